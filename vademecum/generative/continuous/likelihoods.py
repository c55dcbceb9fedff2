r"""Log-densities by the flow of a diffusion: the instantaneous change of variables.

Along $\dot x = v(x, t)$ the log-density changes by $-\operatorname{tr} \nabla v$, so that

$$\log p_0(x_0) = \log p_1(x_1) + \int_0^1 \operatorname{tr} \nabla v(x_t, t)\, dt,$$

where $p_1$ is the prior, an approximation unless the true law at time 1 is given. Up to 64 features
the trace is exact; beyond it is the mean of $u^\top \nabla v\, u$ over random signs $u$, kept
along the path so that the mean of all paths is unbiased, with their standard error.

A density of *integers* means nothing: a model may give 256 grey values spikes as high as it likes,
and bits per dimension below zero. With `levels` every pixel is spread evenly over its cell of
width $w$, and $\log p(x + u) + d \log w$ is, in the mean over $u$, a lower bound of the
log-probability of the integers, which never exceeds 0 (Theis, van den Oord and Bethge, A note on
the evaluation of generative models, ICLR, 2016).

References:
    Chen, Rubanova, Bettencourt and Duvenaud, Neural ordinary differential equations, NeurIPS, 2018.
    Grathwohl, Chen, Bettencourt, Sutskever and Duvenaud, FFJORD, ICLR, 2019.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Num
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.foundations.stochastic_trace import mean_and_error
from vademecum.generative._divergences import Products, directions, exact_divergence, projected
from vademecum.generative._marginals import Predicts, kind_of
from vademecum.generative._scores_of_models import examples, home, score_from
from vademecum.generative.continuous._runge_kutta import integrate
from vademecum.generative.continuous.equations import DiffusionSDE, insist_on_equation
from vademecum.generative.continuous.flow_integration import (
    span,
    tolerance,
    velocity,
    warn_if_short,
)
from vademecum.models import resting
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["LogLikelihood", "log_likelihood"]

_EXACT = 64  # features up to which the trace is computed as it stands
_PROBES = 8


class LogLikelihood(NamedTuple):
    """Log-densities of examples under a diffusion model.

    Example:
        >>> from vademecum.generative import VPSDE
        >>> log_likelihood(lambda x, t: -x, torch.zeros(2, 1), process=VPSDE()).bits_per_dim is None
        True
    """

    log_prob: Float[Tensor, " n"]
    """The log-density; of integers the bound of their log-probability."""
    standard_error: Float[Tensor, " n"]
    """The standard error over the probes; 0 where the trace was exact."""
    bits_per_dim: Float[Tensor, " n"] | None
    """Minus the bound over log 2 and the entries of an example; None for continuous data."""
    latent: Float[Tensor, " n *shape"]
    """Where the flow carried the examples at time 1."""
    evaluations: int
    """How often the model was called."""
    converged: bool
    """Whether the end was reached within the steps allowed."""

    __repr__ = one_line


@torch.no_grad()
def log_likelihood(
    model: Any,
    x: Num[Tensor, " n *shape"],
    *,
    process: DiffusionSDE,
    start: float = 1e-5,
    predicts: Predicts | None = None,
    levels: int | None = None,
    interval: tuple[float, float] = (0.0, 1.0),
    prior: Callable[[Tensor], Tensor] | None = None,
    probes: int | None = None,
    context: Any = None,
    tol: float = 1e-5,
    max_iter: int = 1000,
    generator: torch.Generator | None = None,
) -> LogLikelihood:
    """The log-density that a diffusion model gives to examples.

    Args:
        model: What predicts, called as `model(x, t)` or, with a context, `model(x, t, context)`,
            with t (n,); a module is taken in evaluation mode. Examples must not influence each
            other.
        x: The examples: floating point, or integers with `levels`.
        process: The equation that noises examples, `VPSDE()` or `VESDE()`.
        start: The time that the examples are taken to have; at 0 they are clean, which only exact
            scores allow.
        predicts: What the model gives, "score", "noise", "x0" or "v"; by default what its attribute
            `predicts` says, or the score.
        levels: How many values integers take, 256 for pixels of bytes. They get uniform noise, and
            results are bounds for the integers.
        interval: Where the cells of the integers lie for the model: 0 begins at the first number,
            the last one ends at the second.
        prior: The log-density at time 1, of (n, ...); by default the noise of the process.
        probes: How many random directions; by default none up to 64 features, where the trace is
            exact, and 8 beyond.
        context: What else the model is given.
        tol: The error allowed in a step, relative and absolute, for the worst example.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If x holds integers without `levels`, or numbers other than 0, ..., levels - 1
            with it.

    Example:
        >>> from vademecum.generative import VPSDE
        >>> log_likelihood(lambda x, t: -x, torch.zeros(1, 2), process=VPSDE()).log_prob
        tensor([-1.8379])
    """
    y, shift = _continuous(model, x, levels, interval, generator)
    kind, tol = kind_of(model, predicts, "score"), tolerance(tol, y.dtype)
    start, _ = span(start, 1.0, kind)
    max_iter, d = whole("max_iter", max_iter, low=1), y[0].numel() if len(y) else 1
    score = score_from(model, insist_on_equation(process), kind, context)
    m = probes if probes is not None or d <= _EXACT else _PROBES
    u = None if m is None else directions("rademacher", y, whole("probes", m, low=2), generator)
    products, columns = Products(graph=False), 1 if m is None else m

    def field(t: float, state: Tensor) -> Tensor:
        time = torch.tensor(t, dtype=torch.float64, device=y.device)
        with torch.enable_grad():
            at = state[:, :d].reshape(y.shape).requires_grad_()
            v = velocity(score, process, at, time)
            trace = exact_divergence(v, at, products)[:, None] if u is None else (
                projected(v, at, u, products).T
            )  # fmt: skip
        return torch.cat([v.detach().reshape(-1, d), trace.detach()], 1)

    begin = torch.cat([y.flatten(1), y.new_zeros(len(y), columns)], 1)
    with resting(model):
        found = integrate(field, begin, start, 1.0, tol=tol, max_iter=max_iter)
    latent = found.y[:, :d].reshape(y.shape)
    gained, error = (found.y[:, d], y.new_zeros(len(y))) if u is None else (
        mean_and_error(found.y[:, d:])
    )  # fmt: skip
    log_prob = _ending(prior or process.prior_log_prob, latent) + gained + shift * d
    bits = None if levels is None else -log_prob / (d * math.log(2))
    reached = warn_if_short(found, 1.0, max_iter)
    return LogLikelihood(log_prob, error, bits, latent, found.evaluations, reached)


def _continuous(
    model: Any, x: Tensor, levels: int | None, interval: tuple[float, float],
    generator: torch.Generator | None,
) -> tuple[Tensor, float]:  # fmt: skip
    """The examples as the model knows them, and the logarithm of the width of a cell."""
    if levels is None:
        if not x.is_floating_point():
            raise ValueError(
                f"x must be floating point, or levels must be given, got {x.dtype}: a density of"
                " integers means nothing unless noise fills the cells between them"
            )
        return examples("x", x), 0.0
    levels, (low, high) = whole("levels", levels, low=2), interval
    width = number("interval[1] - interval[0]", high - low, above=0) / levels
    if x.is_floating_point() or not _within(x, levels):
        raise ValueError(f"x must be integers from 0 to {levels - 1}, got {_described(x)}")
    dtype, _ = home(model, None, None)
    u = torch.rand(x.shape, dtype=dtype, **source(generator, x.device)).to(x.device)
    return low + width * (x.to(dtype) + u), math.log(width)


def _ending(prior: Callable[[Tensor], Tensor], latent: Tensor) -> Tensor:
    """What a prior says of examples at time 1, a number of each."""
    found = prior(latent)
    if found.shape != latent.shape[:1]:
        raise ValueError(f"prior must give {len(latent)} numbers, got shape {tuple(found.shape)}")
    return found


def _within(x: Tensor, levels: int) -> bool:
    """Whether integers are from 0 to levels - 1: as Python's numbers, since 256 is no byte."""
    return not x.numel() or (x.min().item() >= 0 and x.max().item() < levels)


def _described(x: Tensor) -> str:
    return f"{x.dtype} between {x.min().item():g} and {x.max().item():g}"
