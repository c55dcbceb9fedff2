"""Every operation that is piecewise linear, against autograd's Jacobian at random points."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.approximation.test_piecewise_steps import Does
from vademecum.approximation.convex_split import dc_split
from vademecum.approximation.dying_units import dead_units
from vademecum.approximation.local_affine import local_affine_map
from vademecum.approximation.patterns import activation_pattern
from vademecum.approximation.piecewise import Affine, read_program
from vademecum.foundations import Box

EPS = torch.finfo(torch.float64).eps
G = torch.Generator().manual_seed(0)
W = torch.randn(4, 3, generator=G).double()
C = torch.randn(3, generator=G).double()
KERNEL = torch.randn(2, 3, 2, generator=G).double()
MASK = torch.tensor([True, False, True])
INDEX = torch.tensor([2, 0, 0])
MEAN, VAR = C / 2, C**2 + 0.5


def spread(x):  # an assignment to a part
    y = torch.zeros(x.shape[0], 5, dtype=x.dtype)
    y[:, 1:4] = 2 * x
    y[:, 0] = 1.5
    return y


def bumped(x):
    y = x.clone()
    y[:, :2] += 1
    return y


AFFINE = {
    "chunk": (lambda x: x.chunk(2, 1)[1] - 2 * x.chunk(2, 1)[0][:, :1], (3,)),
    "split": (lambda x: torch.cat(x.split([2, 1], 1)[::-1], 1), (3,)),
    "tensor_split": (lambda x: torch.tensor_split(x, 2, dim=1)[0] * 3, (3,)),
    "unbind": (lambda x: x.unbind(1)[0] - x.unbind(1)[2], (3,)),
    "flip": (lambda x: x.flip(1), (3,)),
    "roll": (lambda x: x.roll(1, 1), (3,)),
    "cumsum": (lambda x: x.cumsum(1), (3,)),
    "einsum": (lambda x: torch.einsum("ni,oi->no", x, W), (3,)),
    "einsum in the middle": (lambda x: torch.einsum("oi,nij,j->no", W, x, C[:2]), (3, 2)),
    "tensordot": (lambda x: torch.tensordot(x, W.T, dims=1), (3,)),
    "bmm": (lambda x: torch.bmm(x, W.expand(x.shape[0], 4, 3)), (2, 4)),
    "to": (lambda x: x.to(torch.float64).to("cpu"), (3,)),
    "type_as": (lambda x: x.type_as(C), (3,)),
    "mT": (lambda x: x.mT, (3, 2)),
    "add with alpha": (lambda x: torch.add(x, C, alpha=-2), (3,)),
    "add of two, with alpha": (lambda x: torch.add(x, x.flip(1), alpha=-2), (3,)),
    "sub with alpha": (lambda x: torch.sub(C, x, alpha=3), (3,)),
    "rsub": (lambda x: torch.rsub(x, 1.0, alpha=3), (3,)),
    "the same twice": (lambda x: x + x, (3,)),
    "broadcast sum": (lambda x: x + x[:, :1] - 1, (3,)),
    "broadcast constant": (lambda x: x[:, None] + W, (3,)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), (2, 3)),
    "bilinear": (lambda x: F.interpolate(x, size=(5, 4), mode="bilinear"), (1, 3, 2)),
    "area": (lambda x: F.interpolate(x, size=2, mode="area"), (1, 3)),
    "bicubic": (lambda x: F.interpolate(x, size=(5, 4), mode="bicubic"), (1, 3, 2)),
    "batch norm": (lambda x: F.batch_norm(x, MEAN, VAR, C, C.exp(), eps=0.1), (3,)),
    "plain batch norm": (lambda x: F.batch_norm(x, MEAN, VAR), (3, 2)),
    "conv": (lambda x: F.conv1d(x, KERNEL, C[:2], padding=1), (3, 4)),
    "conv_transpose": (lambda x: F.conv_transpose1d(x, KERNEL, C[:3].repeat(1), stride=2), (2, 3)),
    "addmm": (lambda x: torch.addmm(W[:, 0], x, W.T, alpha=-2), (3,)),
    "baddbmm": (lambda x: torch.baddbmm(C, x, W.expand(len(x), 4, 3), beta=2, alpha=-1), (2, 4)),
    "diff": (lambda x: x.diff(dim=1, prepend=C[:1].expand(len(x), 1)), (3,)),
    "lerp": (lambda x: torch.lerp(x, x.flip(1), 1.5), (3,)),
    "lerp from a constant": (lambda x: torch.lerp(C, x, C), (3,)),
    "addcmul": (lambda x: torch.addcmul(C, C, x, value=-2), (3,)),
    "a constant in its dtype": (lambda x: x * INDEX.to(x) + MASK.type_as(x), (3,)),
    "a constant in its shape": (lambda x: C.expand_as(x) * x + W[0].view_as(C), (3,)),
    "index_add": (lambda x: C.expand(len(x), 3).index_add(1, INDEX, x, alpha=-2), (3,)),
    "index_fill": (lambda x: x.index_fill(1, INDEX, 4.0), (3,)),
    "scatter": (lambda x: x.scatter(1, INDEX[:1].expand(len(x), 1), 7.0), (3,)),
    "scatter_add": (lambda x: x.scatter_add(1, INDEX.expand(len(x), 3), 2 * x), (3,)),
    "matmul from the left": (lambda x: W @ x, (3, 2)),
    "reflected": (lambda x: F.pad(x, (1, 1), mode="reflect"), (2, 3)),
    "circular": (lambda x: F.pad(x, (1, 1), mode="circular"), (2, 3)),
    "where": (lambda x: torch.where(MASK, x, C), (3,)),
    "where with a number": (lambda x: torch.where(MASK, 2, x), (3,)),
    "masked_fill": (lambda x: x.masked_fill(MASK, -4.0), (3,)),
    "index_select": (lambda x: x.index_select(1, INDEX), (3,)),
    "indexed": (lambda x: x[:, INDEX, None], (3,)),
    "gather": (lambda x: x.gather(1, INDEX.expand(len(x), 3)), (3,)),
    "joined": (lambda x: torch.cat([x, C.expand(len(x), 3)], 1), (3,)),
    "stacked": (lambda x: torch.stack([x, 2 * x, torch.ones_like(x)], 1), (3,)),
    "token": (lambda x: torch.cat([torch.zeros(x.shape[0], 1, 2).to(x), x], 1), (3, 2)),
    "positions": (lambda x: x + torch.arange(x.shape[1]) / x.shape[1], (3,)),
    "repeat": (lambda x: x.repeat(1, 2).repeat_interleave(2, 1), (3,)),
    "unfold": (lambda x: x.unfold(1, 2, 1), (3,)),
    "tril": (lambda x: x.tril(), (3, 3)),
    "mean": (lambda x: x.mean((1, 2), keepdim=True), (3, 2)),
    "assigned": (spread, (3,)),
    "assigned in place": (bumped, (3,)),
    "in place": (lambda x: (x * 1).add_(1).mul_(-2).sub_(C), (3,)),
    "made by one step, changed by the next": (lambda x: F.conv1d(x, KERNEL).neg_(), (3, 4)),
    "halved": (lambda x: torch.div(x, C), (3,)),
    "by its size": (lambda x: x.view(x.size(0), -1) / math.sqrt(x.shape[-1]), (3, 2)),
    "by int": (lambda x: x[:, : int(x.shape[1] / 2)], (4,)),
    "hstack": (lambda x: torch.hstack([x, -x]), (3,)),
    "fold": (lambda x: F.fold(F.unfold(x, 2), (3, 3), 2), (1, 3, 3)),
    "pixel shuffle": (lambda x: F.pixel_unshuffle(x, 2), (1, 2, 4)),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (2, 1)), (1, 3, 3)),
    "flatten, merged": (lambda x: x.reshape(x.shape[0] * 2, -1).view(len(x), -1), (2, 3)),
}  # fmt: skip
MERGED = "flatten, merged"


def jacobian(model, x):
    each = torch.stack([torch.autograd.functional.jacobian(model, z[None]) for z in x])
    return each.reshape(len(x), -1, x[0].numel())


@pytest.mark.parametrize("name", [name for name in AFFINE if name != MERGED])
def test_affine_operations(name):
    function, shape = AFFINE[name]
    model, x = Does(function), torch.randn(4, *shape).double()
    found, wanted = local_affine_map(model, x), jacobian(model, x)
    # sums of at most 16 terms with coefficients of at most 10
    close = 16 * 10 * EPS * float(1 + x.abs().max())
    torch.testing.assert_close(found.A, wanted, rtol=0, atol=close)
    torch.testing.assert_close(found(x), model(x).reshape(len(x), -1), rtol=0, atol=close)
    forwards = local_affine_map(Does(lambda x: function(x).reshape(len(x), -1).repeat(1, 9)), x)
    torch.testing.assert_close(forwards.A, wanted.repeat(1, 9, 1), rtol=0, atol=close)
    assert all(isinstance(step.map, Affine) for step in read_program(model, shape, x).steps)


@pytest.mark.parametrize("name", [name for name in AFFINE if name != MERGED])
def test_radii_and_convex_parts_of_affine_operations(name):
    """The box that holds the image of a box is the exact one if there is one step."""
    function, shape = AFFINE[name]
    model, r = Does(function), torch.rand(1, *shape).double()
    steps = read_program(model, shape, r).steps
    if len(steps) == 1 and isinstance(steps[0].map, Affine):
        exact = r.flatten(1) @ jacobian(model, r)[0].abs().T
        found = steps[0].map.radius(r).flatten(1)
        torch.testing.assert_close(found, exact, rtol=0, atol=64 * EPS)
    split = dc_split(Does(lambda x: function(F.relu(x) - 0.3)), torch.randn(5, *shape).double())
    assert split.gap < 1e-12


UNITS = {
    "relu in place": (lambda x: F.relu_(x * 1), (3,)),
    "relu by option": (lambda x: F.relu(x - 1, inplace=True), (3,)),
    "clamp_min": (lambda x: x.clamp_min(0.3), (3,)),
    "clamp_max": (lambda x: x.clamp_max(max=-0.3), (3,)),
    "clamp by tensors": (lambda x: x.clamp(C - 0.5, C + 0.5), (3,)),
    "clamp broadened": (lambda x: x[:, None].clamp(W - 0.5), (3,)),
    "maximum with a constant": (lambda x: torch.maximum(x, C), (3,)),
    "maximum of a constant": (lambda x: torch.maximum(C, x), (3,)),
    "minimum with a constant": (lambda x: torch.minimum(x, C), (3,)),
    "max with another": (lambda x: torch.max(x, x.flip(1) - 0.1), (3,)),
    "max with a row": (lambda x: x.max(torch.zeros(len(x), 3).double() + 0.1), (3,)),
    "max along": (lambda x: x.max(1).values, (3, 2)),
    "min along": (lambda x: x.min(dim=-1, keepdim=True)[0], (3, 2)),
    "amax kept": (lambda x: x.amax(1, keepdim=True), (3, 2)),
    "amax of several": (lambda x: x.amax((1, -1)), (3, 2, 2)),
    "amin of several, kept": (lambda x: torch.amin(x, dim=(2, 3), keepdim=True), (2, 2, 2)),
    "threshold": (lambda x: F.threshold(x, 0.2, 0.2), (3,)),
    "rrelu": (lambda x: F.rrelu(x), (3,)),
    "relu6": (lambda x: F.relu6(4 * x), (3,)),
    "hardtanh": (lambda x: F.hardtanh(x, -0.5), (3,)),
    "leaky": (lambda x: F.leaky_relu(x), (3,)),
    "pool": (lambda x: F.max_pool1d(x, 2, 1, padding=1), (2, 4)),
    "pool with indices": (lambda x: F.max_pool2d(x, 2, 1, return_indices=True)[0], (1, 3, 3)),
    "pool of torch": (lambda x: torch.max_pool2d(x, (2, 1)), (1, 4, 3)),
    "adaptive pool": (lambda x: F.adaptive_max_pool2d(x, (2, 1)), (1, 3, 3)),
    "abs of a sum": (lambda x: (x + C).abs().sum(1), (3,)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNITS)
def test_units(name):
    function, shape = UNITS[name]
    model, x = Does(function), torch.randn(9, *shape).double()
    found, wanted = local_affine_map(model, x), jacobian(model, x)
    close = 64 * EPS * float(1 + x.abs().max())  # sums of a few terms with small coefficients
    torch.testing.assert_close(found.A, wanted, rtol=0, atol=close)
    torch.testing.assert_close(found(x), model(x).reshape(len(x), -1), rtol=0, atol=close)
    forwards = local_affine_map(Does(lambda x: function(x).reshape(len(x), -1).repeat(1, 9)), x)
    torch.testing.assert_close(forwards.A, wanted.repeat(1, 9, 1), rtol=0, atol=close)
    assert dc_split(model, x).gap < 1e-12
    box = Box(x.amin(0).flatten(), x.amax(0).flatten())
    for layer in dead_units(model, x, box=box):
        assert layer.certified is not None
        assert bool((layer.dead | ~layer.certified).all())
    assert activation_pattern(model, x).shape[0] == 9


def gated(x):
    return x * (x > 0)


def branch(x):
    if x.abs().sum() > 1e9:
        return -x
    return x


def picked(x):
    return x if x.max().item() < 1e9 else -x


@torch.jit.script
def scripted(x):
    return x * 2.0


LSTM, ATTENTION = nn.LSTM(3, 4).double(), nn.MultiheadAttention(3, 1).double()
REFUSED = {
    "hardswish": (lambda x: F.hardswish(x), "piecewise linear, got hardswish in the model"),
    "softmax": (lambda x: x.softmax(1), "piecewise linear, got softmax in the model"),
    "layer norm": (lambda x: F.layer_norm(x, (3,)), "got layer_norm in the model"),
    "product": (lambda x: torch.einsum("ni,ni->n", x, x), "got einsum in the model"),
    "gate": (gated, "got gt in the model"),
    "branch": (branch, r"got bool in the model.*if x.abs\(\).sum\(\) > 1e9"),
    "item": (picked, "model must be traceable, got item in the model"),
    "jump": (lambda x: F.threshold(x, 0.2, 0.0), "must not jump, got 0.0 up to the threshold 0.2"),
    "recurrent": (lambda x: LSTM(x)[0], "piecewise linear, got lstm in"),
    "attention": (lambda x: ATTENTION(x, x, x)[0], "piecewise linear, got softmax in"),
    "transposed": (lambda x: x.mT.relu().mT, r"first axis throughout, .* \(3, 2\) for 2 examples"),
    "tiny": (lambda x: x.flip(0) * 1e-30, "are examples mixed"),
    "scripted": (scripted, "model must"),
    "chance": (lambda x: x + torch.rand(3), "another constant for each in add in the model"),
    "noise": (lambda x: x + torch.randn_like(x), "another constant for each in add"),
    "indices": (lambda x: x.max(1).indices / 2, "got max in the model"),
    "topk": (lambda x: x.topk(2, 1)[0], "got topk in the model"),
    "integers": (lambda x: x.long().to(x), "got long in the model"),
    "batch": (lambda x: x * len(x), "a function of one example at a time"),
    "batch as a float": (lambda x: x * float(len(x)), "another constant for each in mul"),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), "statistics of its batch"),
    "view": (lambda x: (x.view(-1).add_(1), x * 1)[1], "in place through views"),
    "merged": (AFFINE[MERGED][0], r"tensor of shape \(4, 3\) for 2 examples from reshape"),
}  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    function, message = REFUSED[name]
    shape = (2, 3) if name == "merged" else (3,)
    with pytest.raises(ValueError, match=message):
        local_affine_map(Does(function), torch.randn(2, *shape).double())


def test_a_refusal_names_the_line():
    class Head(nn.Module):
        def forward(self, x):
            return F.softmax(x, 1)  # the culprit

    model = nn.Sequential(nn.Linear(3, 3), Head())
    with pytest.raises(
        ValueError, match=r"softmax in submodule '1' \(line \d+ of test_op.*culprit"
    ):
        local_affine_map(model, torch.randn(2, 3))
