r"""The deterministic flow that has the marginals of a diffusion.

The law $p_t$ of $dx = f(x, t)\, dt + g(t)\, dW$ is also that of the ordinary equation

$$\dot x = v(x, t) = f(x, t) - \tfrac12 g(t)^2\, \nabla \log p_t(x),$$

which carries data to noise and, backwards, noise to data. Steps are adapted to a tolerance, of a
Runge-Kutta pair of orders 5 and 4; the error is that tolerance and the score's.

References:
    Song, Sohl-Dickstein, Kingma, Kumar, Ermon and Poole, Score-based generative modeling through
    stochastic differential equations, ICLR, 2021.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.estimators import warn_unconverged
from vademecum.generative._marginals import Predicts, beside, kind_of
from vademecum.generative._scores_of_models import Score, examples, score_from
from vademecum.generative.continuous._runge_kutta import Integral, integrate
from vademecum.generative.continuous.equations import DiffusionSDE, insist_on_equation
from vademecum.models import resting
from vademecum.results import one_line

__all__ = ["FlowResult", "probability_flow", "span", "tolerance", "velocity", "warn_if_short"]


class FlowResult(NamedTuple):
    """Where the flow carried examples.

    Example:
        >>> from vademecum.generative import VPSDE
        >>> probability_flow(lambda x, t: -x, torch.ones(2, 1), process=VPSDE()).converged
        True
    """

    x: Float[Tensor, " n *shape"]
    """The examples at the end."""
    evaluations: int
    """How often the model was called."""
    converged: bool
    """Whether the end was reached within the steps allowed."""

    __repr__ = one_line


@torch.no_grad()
def probability_flow(
    model: Any,
    x: Float[Tensor, " n *shape"],
    *,
    process: DiffusionSDE,
    start: float = 1.0,
    end: float = 1e-3,
    predicts: Predicts | None = None,
    context: Any = None,
    tol: float = 1e-5,
    max_iter: int = 1000,
) -> FlowResult:
    """Carry examples along the flow, from noise to data or from data to noise.

    Args:
        model: What predicts, called as `model(x, t)` or, with a context, `model(x, t, context)`,
            with t (n,); a module is taken in evaluation mode.
        x: The examples at the start; for new ones, `process.sample_prior(shape)`.
        process: The equation that noises examples, `VPSDE()` or `VESDE()`.
        start: The time at which the examples are.
        end: The time to go to; above `start` the flow runs from data to noise.
        predicts: What the model gives, "score", "noise", "x0" or "v"; by default what its attribute
            `predicts` says, or the score.
        context: What else the model is given.
        tol: The error allowed in a step, relative and absolute, for the worst example.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.

    Raises:
        ValueError: If times lie outside [0, 1], or time 0 is asked of a model that does not
            predict scores, or the tolerance is below the rounding of the dtype.

    Example:
        >>> from vademecum.generative import VPSDE
        >>> flow = {"process": VPSDE(), "start": 0.0, "end": 1.0}
        >>> data = torch.tensor([[2.0], [-1.0]])  # of a unit normal law, which stays as it is
        >>> probability_flow(lambda x, t: -x, data, **flow).x
        tensor([[ 2.], [-1.]])
    """
    x, kind = examples("x", x), kind_of(model, predicts, "score")
    start, end = span(start, end, kind)
    tol, max_iter = tolerance(tol, x.dtype), whole("max_iter", max_iter, low=1)
    score = score_from(model, insist_on_equation(process), kind, context)
    rows = x.flatten(1)

    def field(t: float, y: Tensor) -> Tensor:
        time = torch.tensor(t, dtype=torch.float64, device=x.device)
        return velocity(score, process, y.view_as(x), time).reshape(rows.shape)

    with resting(model):
        found = integrate(field, rows, start, end, tol=tol, max_iter=max_iter)
    reached = warn_if_short(found, end, max_iter)
    return FlowResult(found.y.reshape(x.shape), found.evaluations, reached)


def velocity(score: Score, process: DiffusionSDE, x: Tensor, t: Tensor) -> Tensor:
    """How fast the flow moves examples at a time."""
    half = beside(process.diffusion(t).square() / 2, x)
    return process.drift(x, t) - half * score(x, t)


def span(start: float, end: float, predicts: str) -> tuple[float, float]:
    """Two times between 0 and 1, at which a score can be had."""
    for name, value in (("start", start), ("end", end)):
        number(name, value, low=0, high=1)
        if value == 0 and predicts != "score":
            raise ValueError(
                f"{name} must be > 0 for a model that predicts {predicts!r}, of which no score"
                " follows without noise, got 0"
            )
    return float(start), float(end)


def tolerance(tol: float, dtype: torch.dtype) -> float:
    """A tolerance that a dtype can keep."""
    least = 8 * torch.finfo(dtype).eps
    if not number("tol", tol, above=0) >= least:
        raise ValueError(f"tol must be >= {least:.2g} for {dtype}, got {tol}")
    return tol


def warn_if_short(found: Integral, end: float, max_iter: int) -> bool:
    """Whether an integration came to its end; a warning if not."""
    if found.reached != end:
        warn_unconverged(
            f"the flow reached time {found.reached:.3g} and not {end:g} within {max_iter} steps:"
            " raise max_iter or tol, or see whether the score is finite"
        )
    return found.reached == end
