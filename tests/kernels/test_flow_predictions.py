"""Predictions of gradient flow against matrix exponentials, differential equations, training."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from torch import Tensor, nn

from vademecum.kernels import LinearizedNetwork, LinearKernel, RBFKernel, empirical_ntk, ntk_predict

N, M, K = 5, 3, 2  # training inputs, new inputs, outputs
T = torch.tensor([0.0, 0.03, 0.4, 5.0, math.inf], dtype=torch.float64)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, Y, NEW = drawn(N, 4, seed=1), drawn(N, K, seed=2), drawn(M, 4, seed=3)


def net() -> Any:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, K)).double()


def dense(model: Any, x1: Tensor, x2: Tensor) -> np.ndarray:
    """The full tangent kernel as a matrix of (n1 k, n2 k), by backward passes."""
    rows = []
    for x in (x1, x2):
        z = model(x).flatten()
        parameters = list(model.parameters())
        g = [torch.autograd.grad(entry, parameters, retain_graph=True) for entry in z]
        rows.append(torch.stack([torch.cat([p.flatten() for p in row]) for row in g]))
    return (rows[0] @ rows[1].T).numpy()


def weights(k: np.ndarray, G: np.ndarray, t: float) -> np.ndarray:
    """The matrix k G^-1 (1 - exp(-G t)), densely."""
    decay = np.zeros_like(G) if math.isinf(t) else expm(-G * t)
    return k @ np.linalg.solve(G, np.eye(len(G)) - decay)


def test_all_pairs_of_outputs_by_the_matrix_exponential():
    model = net()
    found = ntk_predict(partial(empirical_ntk, model), X, Y, NEW, t=T, f0=model)
    G, k = dense(model, X, X), dense(model, NEW, X)
    start, new = model(X).detach().numpy().ravel(), model(NEW).detach().numpy().ravel()
    for t, mean in zip(T.tolist(), found.mean, strict=True):
        wanted = new + weights(k, G, t) @ (Y.numpy().ravel() - start)
        np.testing.assert_allclose(mean.numpy().ravel(), wanted, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.rates, np.linalg.eigvalsh(G), rtol=1e-9, atol=1e-10)
    assert (found.rank, found.variance) == (N * K, None)
    assert found.mean.shape == (len(T), M, K)


def test_it_solves_the_differential_equation():
    """The flow of training and new outputs together, by a Runge-Kutta method."""
    model = net()
    f0 = torch.cat([model(X), model(NEW)]).detach()
    both = dense(model, torch.cat([X, NEW]), X)
    slope = lambda _, f: both @ (Y.numpy().ravel() - f[: N * K])  # noqa: E731
    solved = solve_ivp(slope, (0, 0.4), f0.numpy().ravel(), "DOP853", rtol=1e-11, atol=1e-12)
    found = ntk_predict(
        partial(empirical_ntk, model), X, Y, torch.cat([X, NEW]), t=0.4, f0=lambda x: model(x)
    )
    np.testing.assert_allclose(found.mean.numpy().ravel(), solved.y[:, -1], rtol=1e-7, atol=1e-8)
    assert found.t == 0.4


def test_it_is_where_descent_on_the_linearised_network_goes():
    model = net()
    h, eta, steps = LinearizedNetwork(model), 2e-4, 500
    optimizer = torch.optim.SGD(h.parameters(), eta)
    for _ in range(steps):
        optimizer.zero_grad()
        ((h(X) - Y).square().sum() / 2).backward()
        optimizer.step()
    found = ntk_predict(partial(empirical_ntk, model), X, Y, NEW, t=eta * steps, f0=model).mean
    moved = (h(NEW) - model(NEW)).norm()
    assert (h(NEW) - found).norm() < 5e-3 * moved  # Euler's method is off by O(eta)


def test_one_kernel_for_each_output_or_for_all():
    model = net()
    each = ntk_predict(partial(empirical_ntk, model, outputs="diagonal"), X, Y, NEW, t=T)
    G, k = dense(model, X, X), dense(model, NEW, X)
    for c in range(K):
        A, b = G[c::K, c::K], k[c::K, c::K]
        for t, mean in zip(T.tolist(), each.mean, strict=True):
            wanted = weights(b, A, t) @ Y[:, c].numpy()
            np.testing.assert_allclose(mean[:, c], wanted, rtol=1e-8, atol=1e-9)
    assert each.rates.shape == (K, N)
    assert each.rank == N * K
    kernel = RBFKernel(lengthscale=1.3)
    both = ntk_predict(kernel, X, Y, NEW, t=T)
    for c in range(K):
        one = ntk_predict(kernel, X, Y[:, c], NEW, t=T)
        torch.testing.assert_close(one.mean, both.mean[..., c], rtol=1e-10, atol=1e-12)
    A, b = kernel(X).numpy(), kernel(NEW, X).numpy()
    wanted = weights(b, A, 0.4) @ Y.numpy()
    np.testing.assert_allclose(both.mean[2], wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", ["all", "each", "pairs"])
def test_variance_of_an_ensemble(kind):
    """The law of f0(x) - A f0(X), from its joint covariance."""
    prior, ntk = RBFKernel(lengthscale=0.8), RBFKernel(lengthscale=1.7)
    R = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    kernels = {
        "all": ntk,
        "each": lambda a, b: ntk(a, b)[..., None] * R.diagonal(),
        "pairs": lambda a, b: ntk(a, b)[..., None, None] * R,
    }
    found = ntk_predict(kernels[kind], X, Y, NEW, t=T, nngp=prior)
    S = {"all": torch.eye(K), "each": torch.diag(R.diagonal()), "pairs": R}[kind].numpy()
    G, k = np.kron(ntk(X).numpy(), S), np.kron(ntk(NEW, X).numpy(), S)
    joint = torch.cat([X, NEW])
    C = np.kron(prior(joint).numpy(), np.eye(K))
    assert found.variance is not None
    for t, mean, variance in zip(T.tolist(), found.mean, found.variance, strict=True):
        A = weights(k, G, t)
        B = np.hstack([-A, np.eye(M * K)])
        np.testing.assert_allclose(variance.numpy().ravel(), np.diag(B @ C @ B.T), atol=1e-9)
        np.testing.assert_allclose(mean.numpy().ravel(), A @ Y.numpy().ravel(), atol=1e-9)
    first = ntk_predict(kernels[kind], X, Y, NEW, t=0.4, nngp=lambda a, b: prior(a, b))
    torch.testing.assert_close(first.variance, found.variance[2])
    at_data = ntk_predict(kernels[kind], X, Y, X, nngp=prior)
    torch.testing.assert_close(at_data.variance, torch.zeros(N, K).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", ["all", "each", "pairs"])
def test_random_outputs_of_different_variance(kind):
    """A prior whose variance differs from input to input, and few of these at a time."""
    prior, ntk = LinearKernel(), RBFKernel(lengthscale=1.7)
    shape = {"all": (), "each": (1,), "pairs": (1, 1)}[kind]
    scale = {"all": 1.0, "each": torch.ones(K), "pairs": torch.eye(K)}[kind]
    kernel = lambda a, b: ntk(a, b).reshape(len(a), len(b), *shape) * scale  # noqa: E731
    least = 4 * kernel(X, X).nbytes
    A = weights(ntk(NEW, X).numpy(), ntk(X).numpy(), 0.4)
    B = np.hstack([-A, np.eye(M)])
    wanted = np.diag(B @ prior(torch.cat([X, NEW])).numpy() @ B.T)
    for memory in (None, least):
        found = ntk_predict(kernel, X, Y, NEW, t=0.4, nngp=prior, memory=memory).variance
        for c in range(K):
            assert found is not None
            np.testing.assert_allclose(found[:, c].numpy(), wanted, atol=1e-9)


def test_initial_outputs_a_few_at_a_time():
    new = torch.linspace(-2, 2, 40 * X.shape[1], dtype=X.dtype).reshape(40, -1)
    kernel, f0 = RBFKernel(lengthscale=1.3), lambda x: x.sum(1, keepdim=True).sin().expand(-1, K)
    few = ntk_predict(kernel, X, Y, new, t=0.4, f0=f0, memory=4 * kernel(X).nbytes).mean
    torch.testing.assert_close(few, ntk_predict(kernel, X, Y, new, t=0.4, f0=f0).mean)
    A = weights(kernel(new, X).numpy(), kernel(X).numpy(), 0.4)
    wanted = f0(new).numpy() + A @ (Y - f0(X)).numpy()
    np.testing.assert_allclose(few.numpy(), wanted, rtol=1e-9, atol=1e-10)


def test_kernels_off_by_more_or_less_than_rounding():
    """The square root of the precision is what symmetry and signs may be off by."""
    x, y = torch.eye(3).double(), torch.ones(3).double()

    def given(G: torch.Tensor) -> torch.Tensor:
        return ntk_predict(lambda a, b: a @ G @ b.T, x, y, x, t=1e-3).rates

    tiny, small = (torch.diag(torch.tensor([1.0, 1.0, -s], dtype=y.dtype)) for s in (1e-9, 1e-6))
    assert given(tiny)[0] == 0
    with pytest.raises(ValueError, match="positive semidefinite, got the eigenvalue -1e-06"):
        given(small)
    G = torch.eye(3).double()
    G[0, 1] = 1e-8
    assert abs(float(given(G)[2]) - (1 + 5e-9)) < 1e-12
    G[0, 1] = 1e-6
    with pytest.raises(ValueError, match="kernel must be symmetric"):
        given(G)


def test_a_singular_kernel():
    """Two copies of an input: their targets' mean is learned, and the rank says why."""
    x, y = torch.cat([X, X[:1]]), torch.cat([Y, Y[:1] + 2])
    found = ntk_predict(
        RBFKernel(lengthscale=1.3), x, y, x[:1], t=torch.tensor([50.0, 1e30, math.inf]).double()
    )
    assert found.rank == N
    torch.testing.assert_close(found.mean[1:, 0], (Y[:1] + 1).expand(2, -1), rtol=1e-9, atol=1e-9)
    single = ntk_predict(RBFKernel(lengthscale=1.3), x.float(), y.float(), x[:1].float())
    torch.testing.assert_close(single.mean, (Y[:1] + 1).float(), rtol=1e-3, atol=1e-3)


def test_memory_changes_nothing_but_rounding():
    kernel, few = RBFKernel(lengthscale=1.3), 4 * N * N * 8
    x = drawn(50, 4)
    found = ntk_predict(kernel, X, Y, x, t=T, nngp=kernel, memory=few)
    wanted = ntk_predict(kernel, X, Y, x, t=T, nngp=kernel)
    torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found.variance, wanted.variance, rtol=1e-10, atol=1e-13)


def test_inputs_by_name():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.inner(a + b)

    named, model = Named().double(), net()
    found = ntk_predict(
        partial(empirical_ntk, named), {"a": X, "b": X}, Y, {"a": NEW, "b": 0 * NEW}, f0=named
    )
    wanted = ntk_predict(partial(empirical_ntk, model), 2 * X, Y, NEW, f0=model)
    torch.testing.assert_close(found.mean, wanted.mean)


def linear(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.T


BAD: list[tuple[dict[str, Any], str]] = [
    ({"kernel": lambda a, b: a @ b.T + torch.outer(a[:, 0], b[:, 1])},
     "kernel must be symmetric, got entries on x_train that differ from their mirror images by up"),
    ({"kernel": lambda a, b: -a @ b.T},
     "kernel must be positive semidefinite, got the eigenvalue -"),
    ({"kernel": lambda a, b: (a @ b.T)[:, :2]}, r"kernel must give a tensor of shape \(5, 5\) or "),
    ({"kernel": lambda a, b: 3.0}, "kernel must give a tensor, got float"),
    ({"kernel": lambda a, b: a @ b.T / 0}, "values of kernel must be finite, got"),
    ({"kernel": lambda a, b: (a @ b.T).float()}, "must give torch.float64 on cpu as y_train"),
    ({"nngp": lambda a, b: (a @ b.T)[..., None]}, r"nngp must give .* shape \(5, 5\), got"),
    ({"nngp": linear, "f0": linear}, "f0 and nngp must not both be given"),
    ({"y_train": Y[:3]}, r"y_train must be \(5,\) or \(5, k\) as x_train is, got shape \(3, 2\)"),
    ({"y_train": Y[..., None]}, r"y_train must be \(5,\) or \(5, k\)"),
    ({"y_train": Y.long()}, "y_train must be floating point, got torch.int64"),
    ({"t": -1.0}, "t must be >= 0, got -1"),
    ({"t": math.nan}, "t must be >= 0, got nan"),
    ({"t": torch.tensor([1.0, -2.0])}, "t must be a number or a vector of times >= 0, got"),
    ({"f0": lambda x: x}, r"f0\(x_train\) must be a tensor of shape \(5, 2\), got shape \(5, 4\)"),
    ({"f0": lambda x: "z"}, r"f0\(x_train\) must be a tensor of shape \(5, 2\), got str"),
    ({"memory": 10}, "memory must be >= 800, got 10"),
    ({"x": NEW * math.nan}, "x must be finite, got nan"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_bad_input(wrong, message):
    good: dict[str, Any] = {"kernel": linear, "x_train": X, "y_train": Y, "x": NEW}
    good |= wrong
    positional = [good.pop(key) for key in ("kernel", "x_train", "y_train", "x")]
    with pytest.raises(ValueError, match=message):
        ntk_predict(*positional, **good)


@pytest.mark.gpu
def test_on_a_gpu():
    model, prior = net(), RBFKernel(lengthscale=0.8)
    for f0, nngp in ((model, None), (None, prior)):
        here = ntk_predict(partial(empirical_ntk, model), X, Y, NEW, t=T, f0=f0, nngp=nngp)
        model.cuda()
        there = ntk_predict(
            partial(empirical_ntk, model), X.cuda(), Y.cuda(), NEW.cuda(), t=T.cuda(), f0=f0,
            nngp=nngp,
        )  # fmt: skip
        model.cpu()
        torch.testing.assert_close(there.mean.cpu(), here.mean, rtol=1e-8, atol=1e-9)
        if here.variance is not None and there.variance is not None:
            torch.testing.assert_close(there.variance.cpu(), here.variance, rtol=1e-7, atol=1e-9)
