"""Rows of the room `linear`: logistic and softmax regression, to the same gradient."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from bench.harness import Row
from vademecum.data import load
from vademecum.linear.logistic import LogisticRegression
from vademecum.linear.softmax import SoftmaxRegression

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row]:
    images = load("fashion_mnist")
    x, y = images.x.flatten(1).to(device), images.y.to(device)
    shirts = (y == 6).long()  # the hardest class against the rest
    yield _row(LogisticRegression, "shirts against the rest, Fashion-MNIST", x, shirts, tol=1e-4)
    yield _row(SoftmaxRegression, "10 classes, Fashion-MNIST", x, y, tol=1e-3)
    del images, x, y, shirts
    yield _row(LogisticRegression, "200000 x 1000, independent features", *_many(device), tol=1e-4)


def _many(device: torch.device) -> tuple[Tensor, Tensor]:
    """Many examples whose features are independent, in double precision: 1.6 GB."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200_000, 1000, dtype=torch.float64, generator=generator)
    noise = torch.rand(len(x), dtype=torch.float64, generator=generator).logit()
    y = x @ torch.randn(1000, dtype=torch.float64, generator=generator) * 0.06 + noise > 0
    return x.to(device), y.long().to(device)


def _row(kind: Any, name: str, x: Tensor, y: Tensor, tol: float) -> Row:
    decay = 1 / len(x)  # scikit-learn's C = 1

    def agree(ours, peer):
        for w, b in (ours, peer):
            found = _gradient(torch.as_tensor(w).to(x), torch.as_tensor(b).to(x), x, y, decay)
            assert found <= 1.05 * tol, f"a gradient of {found} is above {tol}"

    def fit() -> tuple[Tensor, Tensor]:
        model = kind(weight_decay=decay, tol=tol).fit(x, y)
        return model.coef_, model.intercept_

    peers: dict[str, Callable[[], Any]] = {"torch LBFGS": partial(_torch_lbfgs, x, y, decay, tol)}
    limit = ""
    if x.device.type == "cpu":
        few = kind is LogisticRegression and len(x) < 100_000  # else it takes a minute
        solvers = ("lbfgs", "newton-cholesky") if few else ("lbfgs",)
        for solver in solvers:
            peers[f"scikit-learn, {solver}"] = partial(_scikit_learn, x, y, solver, tol)
        size = x.nbytes / 1e6
        limit = f"{size:.0f} MB of data: {size / 27:.0f} ms a gradient at 27 GB/s"
    title = f"{kind.__name__}, {name}, gradient {tol:g}"
    return Row(title, fit, peers, agree, limit, rounds=3)


def _scikit_learn(x: Tensor, y: Tensor, solver: str, tol: float) -> tuple[Any, Any]:
    from sklearn.linear_model import LogisticRegression as Peer

    model = Peer(C=1.0, solver=solver, tol=tol, max_iter=10_000).fit(x.numpy(), y.numpy())
    return model.coef_, model.intercept_


def _loss(w: Tensor, b: Tensor, x: Tensor, y: Tensor, decay: float) -> Tensor:
    z = torch.addmm(b, x, w.T)
    if len(w) == 1:
        loss = F.binary_cross_entropy_with_logits(z[:, 0], y.to(z))
    else:
        loss = F.cross_entropy(z, y)
    return loss + decay / 2 * w.square().sum()


def _gradient(w: Tensor, b: Tensor, x: Tensor, y: Tensor, decay: float) -> float:
    """The largest entry of the gradient, in double precision."""
    w, b = w.double().requires_grad_(), b.double().requires_grad_()
    parts = torch.autograd.grad(_loss(w, b, x.double(), y, decay), (w, b))
    return max(float(part.abs().max()) for part in parts)


def _torch_lbfgs(x: Tensor, y: Tensor, decay: float, tol: float) -> tuple[Tensor, Tensor]:
    classes = int(y.max()) + 1
    units = 1 if classes == 2 else classes
    w = x.new_zeros(units, x.shape[1]).requires_grad_()
    b = x.new_zeros(units).requires_grad_()
    solver = torch.optim.LBFGS(
        [w, b], max_iter=10_000, max_eval=20_000, history_size=10, tolerance_grad=tol,
        tolerance_change=0.0, line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        solver.zero_grad()
        loss = _loss(w, b, x, y, decay)
        loss.backward()
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solver.step(closure)
    return w.detach(), b.detach()
