"""Spectral norms of Jacobians against dense matrices, and the penalty against its own gradient."""

from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from vademecum.models import peak_bytes
from vademecum.robustness import jacobian_spectral_norm, spectral_regularizer
from vademecum.testing import check_instrument


def dense(model: nn.Module, x: Tensor) -> Tensor:
    """The Jacobians of the examples one by one, (n, k, d)."""
    rows = [jacrev(lambda z: model(z[None])[0].flatten())(row).flatten(1) for row in x]
    return torch.stack(rows).detach()


def convolutions(k: int, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(k)
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(64, k)
    model = nn.Sequential(*layers).to(dtype)
    model(torch.randn(50, 1, 6, 6, dtype=dtype))  # some statistics
    return model.eval()


@pytest.mark.parametrize("k", [2, 64, 65, 90])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_vectors_are_those_of_the_matrices(k, dtype):
    """Made as matrices up to 64 outputs, from products beyond."""
    model, x = convolutions(k, dtype), torch.randn(5, 1, 6, 6, dtype=dtype)
    J = dense(model, x)
    U, S, V = torch.linalg.svd(J, full_matrices=False)
    found = jacobian_spectral_norm(model.train(), x)
    close: Any = (
        {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-7, "atol": 1e-9}
    )
    torch.testing.assert_close(found.value, S[:, 0], **close)
    assert found.converged.all()
    assert model.training
    assert found.u.shape == (5, k)
    assert found.v.shape == x.shape
    image = torch.einsum("nkd,nd->nk", J, found.v.flatten(1))
    torch.testing.assert_close(image, S[:, :1] * found.u, rtol=1e-3, atol=1e-3 * float(S.max()))
    torch.testing.assert_close(found.u.norm(dim=1), torch.ones(5, dtype=dtype))
    torch.testing.assert_close((found.u * U[:, :, 0]).sum(1).abs(), torch.ones(5, dtype=dtype))
    torch.testing.assert_close(
        (found.v.flatten(1) * V[:, 0]).sum(1).abs(), torch.ones(5, dtype=dtype)
    )


def test_outputs_of_any_shape_and_few_inputs():
    """The matrix may be taller than wide, and the outputs a picture."""
    torch.manual_seed(0)
    model, x = nn.Conv2d(2, 9, 2).double(), torch.randn(3, 2, 3, 3).double()
    found = jacobian_spectral_norm(model, x)
    wanted = torch.linalg.svdvals(dense(model, x))[:, 0]
    torch.testing.assert_close(found.value, wanted)
    assert found.u.shape == (3, 9, 2, 2)
    wide = nn.Linear(3, 80).double()
    wanted = torch.linalg.svdvals(wide.weight)[0].detach().expand(4)
    torch.testing.assert_close(
        jacobian_spectral_norm(wide, torch.randn(4, 3).double()).value, wanted
    )


@pytest.mark.parametrize("k", [3, 70])
def test_a_flat_network_and_a_steep_one(k):
    flat = nn.Linear(4, k)
    nn.init.zeros_(flat.weight)
    found = jacobian_spectral_norm(flat, torch.randn(2, 4))
    assert found.value.tolist() == [0, 0]
    assert found.converged.all()
    assert not found.u.any()
    assert not found.v.any()
    nn.init.constant_(flat.weight, 1e25)
    value = jacobian_spectral_norm(flat, torch.randn(2, 4)).value
    torch.testing.assert_close(value, flat.weight.detach()[0, 0] * (4 * k) ** 0.5 * torch.ones(2))


@pytest.mark.parametrize("k", [3, 70])
def test_half_precision(k):
    model, x = nn.Linear(5, k).bfloat16(), torch.randn(2, 5).bfloat16()
    found = jacobian_spectral_norm(model, x)
    wanted = torch.linalg.svdvals(model.weight.detach().float())[0]
    assert found.value.dtype == torch.bfloat16
    torch.testing.assert_close(found.value.float(), wanted.expand(2), rtol=0.02, atol=0)
    assert float(spectral_regularizer(model, x).detach()) == pytest.approx(
        float(wanted) ** 2 / 2, rel=0.05
    )


def test_iterations_that_do_not_suffice_are_told():
    """Equal singular values but one: the residual stays above a tolerance near nothing."""
    model = nn.Linear(80, 80, bias=False).double()
    x = torch.randn(3, 80).double()
    with pytest.warns(ConvergenceWarning, match="max_iter=2 iterations were not enough for 3 of 3"):
        found = jacobian_spectral_norm(model, x, max_iter=2, tol=1e-12)
    assert not found.converged.any()
    assert (found.value <= torch.linalg.svdvals(model.weight)[0]).all()


@pytest.mark.parametrize("k", [3, 70])
def test_memory(k):
    model, x = convolutions(k), torch.randn(40, 1, 6, 6).double()
    every = jacobian_spectral_norm(model, x, tol=1e-10)
    memory = 500_000 if k == 70 else 300_000
    some = jacobian_spectral_norm(model, x, memory=memory, tol=1e-10)
    torch.testing.assert_close(some.value, every.value, rtol=1e-9, atol=0)
    assert peak_bytes(lambda: jacobian_spectral_norm(model, x, memory=memory)) < 2 * memory
    with pytest.raises(ValueError, match="memory must be"):
        jacobian_spectral_norm(model, x, memory=10)


class Named(nn.Module):
    """A model that is called by name, and gives something with logits."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4).double()

    def forward(self, pixels: Tensor, scale: Tensor) -> dict[str, Tensor]:
        return {"scores": self.layer(pixels) * scale[:, None]}


def test_inputs_by_name():
    model = Named()
    x = {"pixels": torch.randn(2, 3).double(), "scale": torch.tensor([1.0, 2.0]).double()}
    found = jacobian_spectral_norm(model, x, wrt="pixels", output="scores")
    sigma = float(torch.linalg.svdvals(model.layer.weight.detach())[0])
    assert found.value.tolist() == pytest.approx([sigma, 2 * sigma])
    penalty = spectral_regularizer(model, x, wrt="pixels", output="scores")
    assert penalty.item() == pytest.approx((1 + 4) / 4 * sigma**2)


@pytest.mark.parametrize("outputs", [3, 70])
def test_the_laws_of_instruments(outputs):
    x = torch.randn(5, 2, 3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, outputs))

    def instrument(model: nn.Module, x: Tensor) -> Tensor:
        return jacobian_spectral_norm(model, x).value

    check_instrument(instrument, model, x, per_example=True, outputs=outputs, tol=1e-3)


@pytest.mark.parametrize("k", [3, 70])
def test_the_gradient_of_the_penalty(k):
    """Autograd through dense Jacobians and their largest singular values."""
    model, x = convolutions(k), torch.randn(4, 1, 6, 6).double()
    parameters = {name: p.detach().requires_grad_() for name, p in model.named_parameters()}

    def of_one(p: dict[str, Tensor], x: Tensor) -> Tensor:
        buffers = {name: b for name, b in model.named_buffers() if "tracked" not in name}
        return functional_call(model, {**p, **buffers}, (x[None],))[0]

    J = vmap(jacrev(of_one, argnums=1), (None, 0))(parameters, x).flatten(2)
    wanted = torch.linalg.matrix_norm(J, 2).square().mean() / 2
    found = spectral_regularizer(model, x)
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=0)
    slopes = torch.autograd.grad(wanted, [*parameters.values()], materialize_grads=True)
    found.backward()
    for p, slope in zip(model.parameters(), slopes, strict=True):
        mine = torch.zeros_like(p) if p.grad is None else p.grad
        torch.testing.assert_close(mine, slope, rtol=1e-5, atol=1e-8)


def test_the_penalty_leaves_the_model_alone():
    model, x = convolutions(3).train(), torch.randn(4, 1, 6, 6).double()
    state = {name: t.clone() for name, t in model.state_dict().items()}
    random = torch.get_rng_state()
    penalty = spectral_regularizer(model, x)
    assert model.training
    assert all(t.equal(state[name]) for name, t in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.get_rng_state().equal(random)
    assert penalty.requires_grad


X = torch.ones(2, 3)
REFUSED = [
    (nn.Linear(3, 2), X.long(), {}, "x must be floating point"),
    (nn.Linear(3, 2), X * torch.nan, {}, "x must be finite, got nan"),
    (nn.Linear(3, 2), X, {"tol": 0.0}, "tol must be > 0, got 0.0"),
    (nn.Linear(3, 2), X, {"max_iter": 0}, "max_iter must be >= 1, got 0"),
    (nn.Linear(3, 2), X, {"wrt": "z"}, "wrt must be one of 'theta', 'x', got 'z'"),
    (nn.Linear(3, 2), X, {"wrt": "theta"}, "wrt must be an input, got 'theta'"),
    (nn.Linear(3, 2), X, {"memory": 0}, "memory must be >= 1, got 0"),
    (nn.BatchNorm1d(3, track_running_stats=False), X, {}, "has no running statistics"),
    (nn.Flatten(0), X, {}, "model must give one output for each of 2 examples"),
]


@pytest.mark.parametrize(("model", "x", "knobs", "message"), REFUSED)
@pytest.mark.usefixtures("unchecked")
def test_refusals(model, x, knobs, message):
    with pytest.raises(ValueError, match=message):
        jacobian_spectral_norm(model, x, **knobs)


class Mixing(nn.Module):
    """Outputs that depend on the other examples."""

    def __init__(self, k: int):
        super().__init__()
        self.layer = nn.Linear(3, k)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x - x.mean(0))


class ByTheLargest(Mixing):
    """All that depends on one of them."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x / x.detach().abs().amax().clamp(min=4))


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("k", [4, 70])
def test_one_example_that_all_depend_on(k, place):
    x = torch.rand(4, 3)
    x[place, 1] = 8.0
    with pytest.raises(ValueError, match="model must treat examples independently"):
        jacobian_spectral_norm(ByTheLargest(k), x)


@pytest.mark.parametrize("k", [4, 70])
def test_examples_that_influence_each_other_are_refused(k):
    with pytest.raises(ValueError, match="model must treat examples independently"):
        jacobian_spectral_norm(Mixing(k), torch.randn(4, 3))


@pytest.mark.gpu
@pytest.mark.parametrize("k", [3, 70])
def test_on_a_gpu(k):
    model, x = convolutions(k), torch.randn(4, 1, 6, 6).double()
    here = jacobian_spectral_norm(model, x)
    there = jacobian_spectral_norm(model.cuda(), x.cuda())
    torch.testing.assert_close(there.value.cpu(), here.value, rtol=1e-6, atol=0)
    assert spectral_regularizer(model, x.cuda()).is_cuda
