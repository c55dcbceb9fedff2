"""Patterns and affine maps against autograd, the network itself, and hand-made boundary points."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.approximation.region_models import MODELS, baked
from vademecum.approximation.local_affine import local_affine_map
from vademecum.approximation.patterns import activation_pattern
from vademecum.approximation.units import AbsUnit, Maxout
from vademecum.testing import check_instrument


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_maps_are_the_jacobian_and_reproduce_the_network(name, dtype):
    model, shape = MODELS[name]
    was = {key: value.clone() for key, value in model.state_dict().items()}
    x = torch.randn(7, *shape, dtype=dtype)
    found = local_affine_map(model, x)
    twin = _twin(model, dtype)
    tol = {torch.float32: 1e-4, torch.float64: 1e-11}[dtype]
    jacobian = torch.stack([torch.autograd.functional.jacobian(twin, z[None]) for z in x])
    jacobian = jacobian.reshape(found.A.shape)
    torch.testing.assert_close(found.A, jacobian, rtol=tol, atol=tol)
    torch.testing.assert_close(found(x), twin(x).reshape(7, -1), rtol=tol, atol=tol)
    assert found.A.dtype == dtype
    assert all(torch.equal(was[key], value) for key, value in model.state_dict().items())


def _twin(model, dtype):
    return copy.deepcopy(model).to(dtype).eval().requires_grad_(False)


def test_more_outputs_than_inputs_go_forwards():
    model = nn.Sequential(
        nn.Linear(2, 6), nn.Hardtanh(), nn.Linear(6, 9), nn.Unflatten(1, (3, 3)), AbsUnit(),
        nn.Flatten(),
    ).double()  # fmt: skip
    x = torch.randn(5, 2).double()
    found = local_affine_map(model, x)
    jacobian = torch.stack([torch.autograd.functional.jacobian(model, z[None]) for z in x])
    torch.testing.assert_close(found.A, jacobian.reshape(5, 9, 2))
    torch.testing.assert_close(found(x), model(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("inputs", [2, 9])  # there forwards, here backwards
def test_pieces_are_not_lost_beside_a_large_offset(dtype, inputs):
    unit = Maxout(inputs, 5, 3).to(dtype)
    unit.linear.bias.data[1:] += 1e6
    x = torch.randn(4, inputs, dtype=dtype)
    which = unit.affine_pieces(x).argmax(-1)
    rows = unit.linear.weight.data.view(5, 3, inputs)[torch.arange(5), which]
    torch.testing.assert_close(local_affine_map(unit, x).A, rows)


def test_hooks_that_only_look_on():
    seen, model = [], nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    expected = local_affine_map(model, X)
    model[0].register_forward_hook(lambda m, given, out: seen.append(out.mean().item()))
    assert torch.equal(local_affine_map(model, X).A, expected.A)


class BehindTheBack(nn.Module):
    def forward(self, x):
        h = x + 10
        F.relu_(h)
        return h


def hooked():
    layer = nn.Linear(3, 3)
    layer.register_forward_hook(lambda m, given, out: out.clamp(-10, 10))
    return layer


@pytest.mark.parametrize("model", [BehindTheBack(), hooked()])
def test_in_place_and_by_hooks(model):
    x = 15 * torch.randn(9, 3).double()
    found = local_affine_map(model.double(), x)
    jacobian = torch.stack([torch.autograd.functional.jacobian(model, z[None]) for z in x])
    torch.testing.assert_close(found.A, jacobian.reshape(9, 3, 3))
    torch.testing.assert_close(found(x), model(x).detach())


def test_the_map_holds_on_the_whole_cell():
    model, shape = MODELS["mlp"]
    x = 2 * torch.randn(3000, *shape).double()
    pattern = activation_pattern(model, x)
    found, twin = local_affine_map(model, x[:20]), _twin(model, torch.float64)
    for i in range(20):
        mates = x[(pattern == pattern[i]).all(1)]
        torch.testing.assert_close(mates @ found.A[i].T + found.b[i], twin(mates))


def test_on_a_boundary_the_lower_piece_counts():
    zero = torch.zeros(1, 2)
    assert activation_pattern(nn.ReLU(), zero).tolist() == [[0, 0]]
    assert local_affine_map(nn.ReLU(), zero).A.any().item() is False
    assert local_affine_map(AbsUnit(), zero).A[0].diag().tolist() == [-1.0, -1.0]
    assert activation_pattern(nn.Hardtanh(), torch.tensor([[-1.0, 1.0, 1.1]])).tolist() == [
        [0, 1, 2]
    ]
    pool = nn.MaxPool1d(2)
    tie = torch.ones(1, 1, 2)
    assert activation_pattern(pool, tie).tolist() == [[0]]
    assert local_affine_map(pool, tie).A.tolist() == [[[1.0, 0.0]]]


def test_patterns_by_hand():
    model, _ = MODELS["maxout, abs"]
    x = torch.randn(6, 3)
    pieces = model[0].affine_pieces(x)
    bent = model[1](pieces.amax(-1))
    expected = torch.cat([pieces.argmax(-1), (bent > 0).long()], 1)
    assert torch.equal(activation_pattern(model, x).long(), expected)
    assert activation_pattern(MODELS["affine"][0], torch.zeros(3, 2)).shape == (3, 0)
    up = torch.arange(257.0)
    ends = torch.stack([up, -up])[:, None]  # the last of 257 is the largest, and the first
    assert activation_pattern(nn.AdaptiveMaxPool1d(1), ends).tolist() == [[256], [0]]


def test_chunks_do_not_change_the_answer():
    model, shape = MODELS["cnn"]
    x = torch.randn(11, *shape).double()
    for whole, parts in zip(
        local_affine_map(model, x), local_affine_map(model, x, memory=30_000), strict=True
    ):
        torch.testing.assert_close(whole, parts)
    assert torch.equal(activation_pattern(model, x), activation_pattern(model, x, memory=20_000))


@pytest.mark.parametrize("name", ["mlp", "norm, dropout", "cnn", "branches", "shared", "sequence"])
def test_laws_of_instruments(name):
    model, shape = MODELS[name]
    x = torch.randn(5, *shape)
    model.train()
    next(model.parameters()).requires_grad_(False)
    for instrument in (local_affine_map, activation_pattern):
        check_instrument(instrument, model, x, per_example=True, outputs=None)
    next(model.parameters()).requires_grad_(True)


class Mixing(nn.Module):
    def forward(self, x):
        return F.relu(x - x.mean(0))


class LateMean(nn.Module):
    def forward(self, x):
        return x + F.relu(x - 5).mean(0, keepdim=True)


class TimeFirst(nn.Module):
    def forward(self, x):
        return F.relu(x.transpose(0, 1)).transpose(0, 1)


class LateProduct(nn.Module):
    def forward(self, x):
        return F.relu(x - 5) * x


class LateMatmul(nn.Module):
    def forward(self, x):
        return F.relu(x - 5).transpose(1, 2) @ x


class Swapped(nn.Module):
    def forward(self, x):
        return x.clamp(0.2, -0.1)


class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Identity())

    def forward(self, x):
        return self.inner(x) * x


class Square(nn.Module):
    def forward(self, x):
        return torch.mul(x, other=x)


class Rounded(nn.Module):
    def forward(self, x):
        return torch.div(x, 0.3, rounding_mode="floor")


class Attention(nn.Module):
    def forward(self, x):
        return (x @ x.transpose(-1, -2)) @ x


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Transposed(nn.Module):
    def forward(self, x):
        return x.T.T


class Smooth(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


X = torch.ones(2, 3)
ERRORS = [
    (nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Tanh())), X, r"got submodule '1.0' \(Tanh\)"),
    (nn.GELU(), X, r"got the model itself \(GELU\)"),
    (nn.LayerNorm(3), X, r"LayerNorm"),
    (Product(), X, "piecewise linear, got mul in the model"),
    (nn.Sequential(nn.Linear(3, 3), Product()), X, "got mul in submodule '1'"),
    (Smooth(), X, "got tanh in the model"),
    (Square(), X, "got mul in the model"),
    (Rounded(), X, "got div in the model"),
    (Attention(), X[:, None], "got matmul in the model"),
    (
        nn.Linear(3, 3).requires_grad_(False),
        X[:, :1],
        r"model does not take inputs of shape \(1,\)",
    ),
    (Mixing(), X, "model must be a function of one example at a time"),
    (
        LateMean(),
        X,
        r"first axis throughout, got a tensor of shape \(1, 3\) for 2 examples",
    ),
    (TimeFirst(), X[:, None], r"shape \(1, 2, 3\) for 2 examples from transpose in the model"),
    (LateProduct(), X, "piecewise linear, got mul in the model"),
    (LateMatmul(), X[:, None], "piecewise linear, got matmul in the model"),
    (
        Swapped(),
        X,
        r"clamp in the model .line.* must have a lower end below the upper one, got 0.2 and -",
    ),
    (Branching(), X, "model must be traceable"),
    (Transposed(), X, r"first axis throughout, got a tensor of shape \(3, 2\) .* from T in the"),
    (nn.BatchNorm1d(3, track_running_stats=False), X, "normalises by the statistics of its batch"),
    (nn.Linear(4, 2), X, r"model does not take inputs of shape \(3,\)"),
    (nn.ReLU(), X.long(), "x must be floating point, got torch.int64"),
    (nn.ReLU(), X * math.nan, "x must be finite, got nan"),
    (nn.ReLU(), X[:0], "x must not be empty"),
    (nn.ReLU(), X[0], "x must be real, with one example a row"),
    (nn.ReLU(), X.to(torch.complex64), "x must be real"),
    (torch.relu, X, "model must be an nn.Module, got builtin_function_or_method"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("instrument", [local_affine_map, activation_pattern])
@pytest.mark.parametrize(("model", "x", "message"), ERRORS)
def test_errors(instrument, model, x, message):
    with pytest.raises(ValueError, match=message):
        instrument(model, x)


@pytest.mark.parametrize("instrument", [local_affine_map, activation_pattern])
def test_a_memory_too_small_for_one_example(instrument):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with pytest.raises(ValueError, match=r"memory must be >= \d+ bytes, one example") as error:
        instrument(model, X, memory=8)
    least = int(str(error.value).split()[4])
    assert len(instrument(model, X, memory=least)[0]) == len(instrument(model, X)[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", MODELS)
def test_on_cuda(name):
    model, shape = MODELS[name]
    x = torch.randn(4, *shape).double()
    here, there = (
        local_affine_map(model, x),
        local_affine_map(baked(model).cuda(), x.cuda()),
    )
    torch.testing.assert_close(there.A.cpu(), here.A)
    torch.testing.assert_close(there.b.cpu(), here.b)
