r"""The runs: each method's own optimiser, moved along the objective, looked at after every step.

A deterministic method moves one vector. A stochastic one moves as many vectors as there are runs,
the rows of one parameter, each along the gradient of a term drawn for it: the gradient of
$\sum_r f_{i_r}(x_r)$ has the rows $\nabla f_{i_r}(x_r)$.

That f is quadratic, as heavy ball needs it, is checked along the way:
$\nabla f(x_t) = \nabla f(x_0) + H (x_t - x_0)$ with the Hessian at $x_0$.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from vademecum.optimization.certificates._setting import Setting
from vademecum.optimization.certificates._theorems import RANDOM
from vademecum.optimization.momentum import HeavyBall, Nesterov
from vademecum.optimization.variance_reduction import SVRG
from vademecum.progress import ticking
from vademecum.randomness import source

__all__ = ["measured"]


def measured(
    setting: Setting, runs: int, generator: torch.Generator | None, *, progress: bool
) -> Tensor:
    """What the theorem bounds, a row for each step of which it speaks, a column for each run."""
    with ticking("steps", setting.facts.steps, progress=progress) as tick, torch.no_grad():
        if setting.method in RANDOM:
            return _of_many(setting, runs, generator, tick)
        return _of_one(setting, tick)


def _of_one(setting: Setting, tick: Callable[[int], None]) -> Tensor:
    f, c, found = setting.f, setting.facts, []
    slope, least, quotient = f.gradient(f.start), math.inf, c.L
    for x in _walk(setting):
        value = float(f.value(x)) - setting.minimum
        _insist_on_minimum(setting, value)
        if setting.method == "heavy_ball":
            _insist_on_quadratic(setting, x, slope)
        if setting.assuming in ("smooth", "pl"):
            square = float(f.gradient(x).square().sum())
            least = min(least, square)
            if value > setting.roundoff * abs(setting.minimum):
                quotient = min(quotient, square / (2 * value))
        tick(bool(found))  # not for the start
        found.append(least if setting.theorem.measures == "gradient" else value)
    if "mu" in setting.estimated and setting.assuming == "pl":
        c.mu = quotient
    first = setting.theorem.first
    found += [math.inf] * (c.steps + 1 - len(found))  # of a run that left all bounds
    if setting.theorem.measures == "gradient":
        found, first = found[:-1], 0  # the least before each step
    return torch.tensor(found, dtype=torch.float64)[first:, None]


def _walk(setting: Setting) -> Iterator[Tensor]:
    """The iterates from the start on, as long as they are finite."""
    x = setting.f.start.clone().requires_grad_()
    optimizer = _optimizer(setting, x)
    yield x.detach()
    for _ in range(setting.facts.steps):
        optimizer.zero_grad()
        with torch.enable_grad():
            setting.f.value(x).backward()
        if x.grad is None or not bool(torch.isfinite(x.grad).all()):
            return
        optimizer.step()
        shown = optimizer.iterates() if isinstance(optimizer, Nesterov) else nullcontext()
        with shown:
            here = x.detach().clone()
        if not bool(torch.isfinite(here).all()):
            return
        yield here


def _optimizer(setting: Setting, x: Tensor) -> torch.optim.Optimizer:
    c = setting.facts
    if setting.method == "heavy_ball":
        return HeavyBall([x], c.eta, momentum=c.momentum**2)
    if setting.method == "nesterov":
        return Nesterov([x], c.eta, momentum=None if setting.assuming == "convex" else c.momentum)
    return torch.optim.SGD([x], lr=c.eta)


def _insist_on_minimum(setting: Setting, value: float) -> None:
    """A value below a minimum that was given refutes it; one that was found is an estimate."""
    size = abs(setting.minimum) + abs(setting.minimum + setting.facts.gap)
    if value < -4 * setting.roundoff * size and not setting.found:
        raise ValueError(
            f"minimum must be the least value of f, got {setting.minimum}, and {-value:.3g} less"
            " was met"
        )
    if value < -(setting.eps**0.5) * setting.facts.gap:
        setting.estimated.extend({"minimum"} - set(setting.estimated))


def _insist_on_quadratic(setting: Setting, x: Tensor, slope: Tensor) -> None:
    f, way = setting.f, x - setting.f.start
    wanted = slope + f.turned(f.start, way)
    off = float((f.gradient(x) - wanted).norm())
    size = float(slope.norm()) + setting.facts.L * float(way.norm() + f.start.norm())
    if off > setting.eps**0.5 * size:
        raise ValueError(
            "f must be quadratic for heavy_ball, which can cycle for ever on other strongly convex"
            " functions (f' = 25 x below 1, x + 24 up to 2, 25 x - 24 beyond, from 3.3), got a"
            f" gradient that is {off:.3g} off the affine function that it was at x0"
        )


def _of_many(
    setting: Setting, runs: int, generator: torch.Generator | None, tick: Callable[[int], None]
) -> Tensor:
    found = []
    for points in _walks(setting, runs, generator, tick):
        if setting.theorem.measures == "distance":
            assert setting.optimum is not None
            found.append((points - setting.optimum).square().sum(1))
        else:
            found.append(setting.f.values(points) - setting.minimum)
            _insist_on_minimum(setting, float(found[-1].nan_to_num(nan=0.0).min()))
    return torch.stack(found).double().cpu()


def _walks(
    setting: Setting, runs: int, generator: torch.Generator | None, tick: Callable[[int], None]
) -> Iterator[Tensor]:
    """What the theorem speaks of, a row for each run, at each step that it speaks of."""
    f, c = setting.f, setting.facts
    x = f.start.repeat(runs, 1).requires_grad_()
    mean = torch.zeros_like(x)

    def total(function: Callable[[], Tensor]) -> Tensor:
        optimizer.zero_grad()
        loss = function().sum()
        loss.backward()
        return loss

    optimizer = torch.optim.SGD([x], lr=c.eta)
    if setting.method == "svrg":
        everything = partial(total, lambda: f.values(x))
        optimizer = SVRG([x], c.eta, c.period, everything, snapshot="average")
    far = torch.finfo(x.dtype).max ** 0.5
    for t in range(c.steps - c.steps % c.period):
        mean += (x - mean) / (t + 1)
        if t % c.period == 0:
            yield mean if setting.method == "averaged_sgd" else x.detach()
        if not float(x.abs().max()) < far:  # a run has left all bounds, and stays there
            x.fill_(math.inf)
            continue
        drawn = torch.randint(f.count, (runs, 1), **source(generator, x.device)).to(x.device)
        optimizer.step(partial(total, lambda i=drawn: f.rows(x).gather(1, i)))  # pyright: ignore
        tick(1)
    if setting.method != "averaged_sgd":
        yield x.detach()
