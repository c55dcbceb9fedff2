"""Curvature of outputs against their slopes, and motion of kernels, by dense derivatives."""

import copy
import warnings
from functools import partial
from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from vademecum.gradients import functional
from vademecum.kernels import empirical_ntk, lazy_ratio, ntk_drift
from vademecum.testing import check_instrument

X = torch.linspace(-1, 1.3, 20, dtype=torch.float64).reshape(5, 4)


def net(width: int = 6, seed: int = 2) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3)).double()


def dense(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The norms of all Hessians and gradients, from the matrices."""
    f = functional(model.eval())
    norms = []
    for row in x:
        for c in range(f(f.theta, row[None]).numel()):
            value = lambda theta, row=row, c=c: f(theta, row[None]).flatten()[c]  # noqa: E731
            H = torch.as_tensor(torch.autograd.functional.hessian(value, f.theta))
            g = torch.as_tensor(torch.autograd.functional.jacobian(value, f.theta))
            norms.append((torch.linalg.matrix_norm(H, 2), g.norm()))
    h, g = (torch.stack(t).view(len(x), -1) for t in zip(*norms, strict=True))
    return h, g


@pytest.mark.parametrize("width", [1, 6, 12])
def test_norms_are_those_of_the_matrices(width):
    model = net(width)
    h, g = dense(model, X)
    found = lazy_ratio(model, X, tol=1e-6)
    torch.testing.assert_close(found.hessian_norm, h, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(found.gradient_norm, g)
    torch.testing.assert_close(found.ratio, h / g**2, rtol=1e-9, atol=1e-11)
    assert found.converged.all()
    assert found.applications > 0
    coarse = lazy_ratio(model, X)
    torch.testing.assert_close(coarse.ratio, found.ratio, rtol=1e-3, atol=0)  # the residual's bound


def test_negative_curvature_counts_by_its_size():
    """-exp(u) has the curvature -exp(u) and the slope -exp(u)."""

    class Exponential(nn.Module):
        def __init__(self):
            super().__init__()
            self.u = nn.Parameter(torch.linspace(0, 1, 40, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return -(x[:, :1] * self.u.exp()).sum(1)

    found = lazy_ratio(Exponential(), torch.tensor([[2.0], [5.0]]).double())
    e = torch.linspace(0, 1, 40, dtype=torch.float64).exp()
    wanted = torch.stack([e.max() / (x * e.square().sum()) for x in (2, 5)])
    torch.testing.assert_close(found.ratio, wanted, rtol=1e-3, atol=0)
    assert found.ratio.shape == (2,)


def test_both_ends_of_the_spectrum_count():
    """A long tail of positive curvature, and one direction of slightly more negative curvature."""

    class Saddle(nn.Module):
        def __init__(self):
            super().__init__()
            self.u = nn.Parameter(torch.full((200,), 0.1, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            c = torch.cat([torch.linspace(0.99, 1, 150), torch.linspace(-1.02, 0.9, 50)])
            return (x[:, :1] * c.to(x) * self.u**2).sum(1) / 2

    found = lazy_ratio(Saddle(), torch.ones(3, 1).double())
    torch.testing.assert_close(
        found.hessian_norm, torch.full((3,), 1.02).double(), rtol=1e-3, atol=0
    )


def test_without_slope_or_curvature():
    """u^2 x at u = 0 has no slope; nothing moves without inputs, and a linear network is lazy."""

    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.u = nn.Parameter(torch.zeros(3, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return x[:, :1] * self.u.square().sum()

    found = lazy_ratio(Square(), torch.tensor([[2.0], [0.0]]).double())
    assert found.ratio.flatten().tolist() == [torch.inf, 0.0]
    assert found.hessian_norm.flatten().tolist() == pytest.approx([4.0, 0.0])
    flat = lazy_ratio(nn.Linear(4, 1, bias=False), torch.zeros(2, 4))
    assert not flat.ratio.any()
    assert flat.converged.all()


def test_products_of_all_examples_are_counted():
    each = [lazy_ratio(net(1), X[i : i + 1]).applications for i in range(5)]
    assert lazy_ratio(net(1), X).applications == sum(each) > max(each) > 0


def test_one_output_other_parameters_and_memory():
    model = net(12)
    every = lazy_ratio(model, X, tol=1e-6)
    one = lazy_ratio(model, X, output=lambda z: z[:, 1], tol=1e-6)
    torch.testing.assert_close(one.ratio, every.ratio[:, 1], rtol=1e-6, atol=0)
    tight = lazy_ratio(model, X, tol=1e-5, memory=12 * 8 * functional(model).size)
    torch.testing.assert_close(tight.ratio, every.ratio, rtol=1e-5, atol=0)
    model[0].requires_grad_(False)
    last = lazy_ratio(model, X, frozen=False)
    assert not last.ratio.any()  # linear in what is left
    assert last.applications == 0
    torch.testing.assert_close(every.ratio, lazy_ratio(model, X, tol=1e-6).ratio, rtol=1e-6, atol=0)


def test_inputs_by_name():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()

        def forward(self, a: Tensor, b: Tensor) -> dict[str, Tensor]:
            return {"z": self.inner(a - b)}

    found = lazy_ratio(Named(), {"a": 2 * X, "b": X}, output="z")
    torch.testing.assert_close(found.ratio, lazy_ratio(net(), X).ratio, rtol=1e-3, atol=0)


def test_instruments_keep_the_laws():
    without = {"no_parameters": "there is nothing to differentiate"}

    def ratio(model, x):
        return lazy_ratio(model, x, tol=1e-5)[:3]

    def drift(model, x):
        other = copy.deepcopy(model)
        with torch.no_grad():
            for p in other.parameters():
                p.mul_(1.1)
        return torch.tensor(ntk_drift(model, x, other))

    check_instrument(ratio, net().float(), X.float(), per_example=True, skip=without, tol=1e-4)
    linear = "its kernel does not depend on the parameters"
    check_instrument(drift, net().float(), X.float(), skip=without | {"finite": linear})


def moved(model: Any) -> Any:
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.mul_(1.5)
    return other


@pytest.mark.parametrize("outputs", ["full", "diagonal", "trace", "sum"])
def test_drift_is_the_change_of_the_matrix(outputs):
    before, after = net(), moved(net())
    J = [functional_jacobian(model) for model in (before, after)]  # n, k, P
    K0, K1 = (torch.einsum("icp,jdp->ijcd", j, j) for j in J)
    reduce = {
        "full": lambda K: K,
        "diagonal": lambda K: K.diagonal(dim1=2, dim2=3),
        "trace": lambda K: K.diagonal(dim1=2, dim2=3).sum(2),
        "sum": lambda K: K.sum((2, 3)),
    }[outputs]
    K0, K1 = reduce(K0).flatten(), reduce(K1).flatten()
    wanted = ((K1 - K0).norm() / K0.norm(), (K1 - K0).norm(), K0 @ K1 / K0.norm() / K1.norm())
    state = {k: v.clone() for k, v in before.state_dict().items()}
    kernel = empirical_ntk(before, X, outputs=outputs)
    for start in (before, state, kernel):
        found = ntk_drift(after, X, start, outputs=outputs)
        assert found == pytest.approx(tuple(map(float, wanted)), rel=1e-9)
    both = ntk_drift(empirical_ntk(after, X, outputs=outputs), None, kernel)
    assert both == pytest.approx(tuple(map(float, wanted)), rel=1e-9)


def functional_jacobian(model: nn.Module) -> Tensor:
    f = functional(model)
    return torch.as_tensor(torch.autograd.functional.jacobian(lambda t: f(t, X), f.theta))


def test_only_what_trains_counts_for_the_drift_on_demand():
    model = net()
    model[2].requires_grad_(False)
    other = moved(model)
    K0, K1 = (empirical_ntk(m, X, frozen=False) for m in (model, other))
    found = ntk_drift(other, X, model, frozen=False).relative
    assert found == pytest.approx(float((K1 - K0).norm() / K0.norm()))
    assert found != pytest.approx(ntk_drift(other, X, model).relative, rel=1e-3)


class Product(torch.autograd.Function):
    """A product whose backward pass is differentiated in one factor alone."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return g[0] * b.detach(), g[0] * a


class PartlySingle(nn.Module):
    """Mean squares in single precision whatever comes in, as T5 and Llama compute them."""

    def __init__(self, *, broken: bool = False):
        super().__init__()
        self.first, self.second, self.broken = nn.Linear(4, 6), nn.Linear(6, 3), broken

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        root = torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(h.dtype)
        h = Product.apply(h, root) if self.broken else h * root
        return self.second(h)


def test_models_that_compute_a_part_in_single_precision():
    for seed in range(10):
        torch.manual_seed(seed)
        model = PartlySingle().double()
        h, _ = dense(model, X)
        found = lazy_ratio(model, X)
        torch.testing.assert_close(found.hessian_norm, h, rtol=2e-3, atol=0)  # tol, either side


def test_second_derivatives_that_are_not_symmetric():
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="op must be symmetric"):
        lazy_ratio(PartlySingle(broken=True).double(), X)


BAD = [
    (lambda: lazy_ratio(nn.ReLU(), X), "model must have parameters to differentiate, got none"),
    (lambda: lazy_ratio(net().half(), X.half()), "in single or double precision, got torch"),
    (lambda: lazy_ratio(net(), X, tol=0.0), "tol must be > 0, got 0"),
    (lambda: lazy_ratio(net(), X, memory=100), "memory must be >= 2040, got 100"),
    (lambda: lazy_ratio(nn.BatchNorm1d(4, track_running_stats=False).double(), X),
     "must treat examples independently in evaluation mode, but BatchNorm1d"),
    (lambda: lazy_ratio(net(), X[:0]), "x must not be empty"),
    (lambda: lazy_ratio(net(), X, output=lambda z: z.sum()), "must give one output for each of 1"),
    (lambda: lazy_ratio(net(), X, output=lambda z: z.detach()), "must be differentiable"),
    (lambda: ntk_drift(net(), None, net()), "x must be given where a kernel is to be computed"),
    (lambda: ntk_drift(torch.eye(2), None, torch.eye(3)), r"must have the kernel's shape \(2, 2"),
    (lambda: ntk_drift(torch.eye(2), None, torch.zeros(2, 2)), "a kernel that is not zero"),
    (lambda: ntk_drift(torch.eye(2), X, net().state_dict()), "must be a module where start is"),
    (lambda: ntk_drift(torch.eye(2) / 0, None, torch.eye(2)), "kernels must be finite, got"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_too_few_iterations_give_a_warning():
    with pytest.warns(ConvergenceWarning):
        found = lazy_ratio(net(60), X[:1], tol=1e-17, max_iter=4)  # nor is H symmetric to that
    assert not found.converged.all()
    with warnings.catch_warnings(record=True) as seen:
        lazy_ratio(net(60), X[:1])
    assert not seen


@pytest.mark.gpu
def test_on_a_gpu():
    model, other = net(30), moved(net(30))
    here = (lazy_ratio(model, X, tol=1e-8), ntk_drift(other, X, model))
    model.cuda()
    other.cuda()
    source = torch.Generator("cuda").manual_seed(0)
    ratio = partial(lazy_ratio, model, X.cuda(), tol=1e-8)
    for found in (ratio(), ratio(generator=source)):
        assert found.ratio.is_cuda
        torch.testing.assert_close(found.ratio.cpu(), here[0].ratio, rtol=1e-8, atol=0)
    assert ntk_drift(other, X.cuda(), model) == pytest.approx(here[1], rel=1e-8)
