"""Rows of the room `optimization`: steps of optimisers, and SVRG on a logistic regression."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bench.harness import Row
from vademecum.optimization.momentum import HeavyBall, Nesterov
from vademecum.optimization.sign_descent import SignSGD
from vademecum.optimization.variance_reduction import SVRG

__all__ = ["rows"]

LAYERS, WIDTH, RATE = 24, 640, 1e-6
DECAY, GAP = 1e-4, 1e-6
BATCHES, STEP = (6000, 6, 5), 3.0  # examples a batch, steps a period, periods; the step size


def rows(device: torch.device) -> Iterator[Row]:
    SGD = torch.optim.SGD
    peers = {
        "torch SGD, fused": partial(SGD, lr=RATE, momentum=0.9, fused=True),
        "torch SGD, foreach": partial(SGD, lr=RATE, momentum=0.9, foreach=True),
    }
    yield _steps("HeavyBall", partial(HeavyBall, lr=RATE), peers, 5, device)
    ahead = {name: partial(make, nesterov=True) for name, make in peers.items()}
    ours = partial(Nesterov, lr=RATE, momentum=0.9)
    yield _steps("Nesterov", ours, ahead, 5, device)
    yield _steps("SignSGD", partial(SignSGD, lr=RATE), {"the obvious loop": _SignLoop}, 3, device)
    if device.type == "cpu":
        yield _svrg()


def _steps(
    name: str,
    ours: Callable[..., torch.optim.Optimizer],
    peers: Mapping[str, Callable[..., torch.optim.Optimizer]],
    streams: int,
    device: torch.device,
) -> Row:
    """A step on 24 layers of 640 x 640; what is read and written are so many copies of them."""

    def stepping(make: Callable[..., torch.optim.Optimizer]) -> Callable[[], list[Tensor]]:
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]).to(device)
        params: list[Tensor] = list(model.parameters())
        for p in params:
            p.grad = torch.randn_like(p)
        optimizer = make(params)

        def step() -> list[Tensor]:
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            return params

        return step

    def agree(mine: list[Tensor], other: list[Tensor]) -> None:
        for a, b in zip(mine, other, strict=True):  # each after one step from the same start
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)

    size = 4e-6 * LAYERS * WIDTH * (WIDTH + 1) * streams
    limit = f"{size:.0f} MB, {size / 27:.1f} ms at 27 GB/s" if device.type == "cpu" else ""
    calls = {peer: stepping(make) for peer, make in peers.items()}
    return Row(f"{name}, {LAYERS} x Linear({WIDTH})", stepping(ours), calls, agree, limit, 25)


class _SignLoop(torch.optim.Optimizer):
    """Sign descent as everybody writes it."""

    def __init__(self, params: Any):
        super().__init__(params, {"lr": RATE})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(torch.sign(p.grad), alpha=-group["lr"])


# SVRG


def _svrg() -> Row:
    """Logistic regression with independent features, to a gap of 1e-6, both from 0.

    The peer cannot be told a gap to stop at: it gets as many passes as it needs, found beforehand.
    """
    import sklearn.linear_model  # noqa: F401, the peer

    return Row(
        f"SVRG, logistic 60000 x 784, l2 {DECAY:g}, to a gap of {GAP:g}", _by_svrg,
        {"scikit-learn, SAG": lambda: _by_sag(_passes())}, _agree, rounds=3,
    )  # fmt: skip


@cache
def _data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60_000, 784, generator=generator)
    noise = torch.rand(len(x), generator=generator).logit()
    return x, (x @ torch.randn(784, generator=generator) * 0.06 + noise > 0).float()


def _value(w: Tensor) -> float:
    x, y = _data()
    w = w.double()
    z = torch.cat([part.double() @ w for part in x.split(10_000)])
    return float(binary_cross_entropy_with_logits(z, y.double()) + DECAY / 2 * w @ w)


@cache
def _least() -> float:
    """The minimum, by Newton's method in double precision."""
    x, y = _data()
    w = torch.zeros(784, dtype=torch.float64)
    for _ in range(7):
        g, h = DECAY * len(x) * w, DECAY * len(x) * torch.eye(784, dtype=torch.float64)
        for part, labels in zip(x.double().split(10_000), y.double().split(10_000), strict=True):
            p = torch.sigmoid(part @ w)
            g, h = g + part.T @ (p - labels), h + (part * (p * (1 - p))[:, None]).T @ part
        w = w - torch.linalg.solve(h, g)
    return _value(w)


def _agree(ours: Tensor, peer: Tensor) -> None:
    for w in (ours, peer):
        gap = _value(w) - _least()
        assert gap <= GAP, f"a gap of {gap:.2g} is above {GAP:g}"


def _by_svrg() -> Tensor:
    x, y = _data()
    w = torch.zeros(784, requires_grad=True)

    def closure(rows: slice = slice(None)) -> Tensor:
        loss = binary_cross_entropy_with_logits(x[rows] @ w, y[rows]) + DECAY / 2 * w @ w
        loss.backward()
        return loss

    size, period, periods = BATCHES
    optimizer = SVRG([w], STEP, period, closure)
    starts = torch.randint(len(x) // size, (period * periods,)).tolist()
    for start in starts:
        rows = slice(start * size, (start + 1) * size)
        optimizer.step(partial(closure, rows))
    return w.detach()


@cache
def _passes() -> int:
    """How many passes SAG needs, by bisection."""
    low, high = 0, 8
    while _value(_by_sag(high)) - _least() > GAP:
        low, high = high, 2 * high
    while high - low > max(1, high // 20):
        middle = (low + high) // 2
        low, high = (low, middle) if _value(_by_sag(middle)) - _least() <= GAP else (middle, high)
    return high


def _by_sag(passes: int) -> Tensor:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    x, y = _data()
    model = LogisticRegression(
        C=1 / (len(x) * DECAY), solver="sag", max_iter=passes, tol=0.0, fit_intercept=False,
        random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x.numpy(), y.numpy())
    return torch.from_numpy(model.coef_[0])
