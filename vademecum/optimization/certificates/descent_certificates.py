r"""Certificates of descent: what a run measures, beside what the theorem promises, step by step.

A theorem on a descent method bounds a gap, $f(x_t) - f^*$, a squared gradient or the mean of a
squared distance, by a function of the step $t$ and of constants of $f$. A certificate runs the
method with the step size of the theorem, measures the gap after every step and holds the bound
beside it:

$$\text{held} \iff \text{gap}_t \le \text{bound}_t \text{ for all } t, \qquad
\text{tightness} = \max_{t \ge 1}\, \text{gap}_t / \text{bound}_t .$$

A run cannot prove constants, only break them: with constants that were given a violation refutes
them (or the assumption), with constants that were estimated it is inconclusive, since the estimates
err to the side of a smaller bound. Heavy ball has a rate on quadratics only. On the function with
$f'(x) = 25 x$ below 1, $x + 24$ from 1 to 2 and $25 x - 24$ beyond, which is 1-strongly convex and
25-smooth, it cycles for ever with the step and momentum that are best on quadratics (Lessard, Recht
and Packard, 2016).

Deterministic methods: exact up to rounding, f being taken to be computed to $\sqrt d + 8$ units of
roundoff. Stochastic methods: the gap is a mean over independent runs, with normal intervals for all
steps at once (Bonferroni), right in the limit of many runs. The claims are `convex_rate`,
`linear_rate`, `pl_rate`, `stationarity_rate`, `sgd_constant_step`, `interpolation` and
`sgd_convex_rate`.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.models import Loss, Output
from vademecum.optimization.certificates._objectives import (
    Objective,
    model_objective,
    vector_objective,
)
from vademecum.optimization.certificates._setting import Setting, prepared
from vademecum.optimization.certificates._theorems import METHODS, RANDOM, Method
from vademecum.optimization.certificates._walks import measured
from vademecum.results import one_line

__all__ = ["DescentCertificate", "certify_descent"]

Assumption = Literal["smooth", "convex", "strongly_convex", "pl", "quadratic", "interpolation"]


class DescentCertificate(NamedTuple):
    """A run beside the bound of its theorem.

    Example:
        >>> result = certify_descent(lambda x: x @ x, torch.tensor([2.0]), L=2.0, mu=2.0, steps=3)
        >>> result.gap.tolist(), result.bound.tolist()
        ([4.0, 0.0, 0.0, 0.0], [4.0, 0.0, 0.0, 0.0])
    """

    method: str
    """The method."""
    assuming: str
    """What the theorem assumes of f."""
    held: bool | None
    """Whether the bound held at every step; None if that is inconclusive: if it was violated, but
    constants were estimated, if intervals reach across it, or if it is below rounding."""
    tightness: float
    """The largest ratio of gap and bound from step 1 on; 1 if the bound is attained, more if it is
    violated."""
    steps: Int[Tensor, " k"]
    """The steps after which the gap was measured."""
    gap: Float[Tensor, " k"]
    """What the theorem bounds, as measured: a mean over runs if the method is stochastic."""
    bound: Float[Tensor, " k"]
    """What the theorem promises."""
    low: Float[Tensor, " k"]
    """The lower ends of the intervals of the gap; the gap itself for deterministic methods."""
    high: Float[Tensor, " k"]
    """The upper ends of the intervals."""
    measures: str
    """What the gap is: "gap" for f over its minimum, "gradient" or "distance" for the least squared
    gradient norm and the squared distance to the minimiser."""
    constants: dict[str, float]
    """The constants in the bound, and the step size eta."""
    estimated: tuple[str, ...]
    """Those of them that were not given but estimated."""

    __repr__ = one_line


def certify_descent(
    f: Callable[[Tensor], Tensor] | nn.Module,
    x0: Any,
    y: Any = None,
    *,
    method: Method = "gradient_descent",
    assuming: Assumption | None = None,
    L: float | None = None,
    mu: float | None = None,
    G: float | None = None,
    steps: int = 100,
    eta: float | None = None,
    period: int | None = None,
    minimiser: Float[Tensor, " d"] | None = None,
    minimum: float | None = None,
    runs: int = 100,
    confidence: float = 0.999,
    loss: Loss | None = None,
    output: Output = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> DescentCertificate:
    r"""Hold a descent method's run beside the bound that its theorem promises.

    | method | assuming | bound |
    |---|---|---|
    | gradient_descent | convex | $L R^2 / (2 t)$ |
    | | strongly_convex, pl | $(1 - \mu / L)^t \Delta$ |
    | | smooth | $2 L \Delta / t$, of the least squared gradient |
    | nesterov | convex | $2 L R^2 / (t + 1)^2$ |
    | | strongly_convex | $L R^2 (1 - \sqrt{\mu / L})^t$ |
    | heavy_ball | quadratic | $\beta^t (1 + (1 + \sqrt\beta)\, t)^2 \Delta$ |
    | sgd | strongly_convex | $A^t R^2 + B$, of the mean squared distance |
    | | interpolation | $A^t R^2$, likewise |
    | averaged_sgd | convex | $R^2 / (2 \eta t) + \eta G^2 / 2$ |
    | svrg | strongly_convex | $\alpha^s \Delta$ after $s$ epochs |

    with $\Delta = f(x_0) - f^*$, $R = \|x_0 - x^*\|$, $\sqrt\beta = \frac{\sqrt{L / \mu} -
    1}{\sqrt{L / \mu} + 1}$, $A = 1 - 2 \eta \mu (1 - \eta L)$,
    $B = \frac{\eta \sigma^2}{\mu (1 - \eta L)}$ for the variance $\sigma^2$ of the terms' gradients
    at $x^*$, and $\alpha = \frac1{\mu \eta (1 - 2 L \eta) m} + \frac{2 L \eta}{1 - 2 L \eta}$.

    Args:
        f: A function of a vector that gives a number, or the vector of the terms of which it is the
            mean, as stochastic methods need it. Or a model, taken in evaluation mode and never
            changed: then its loss is minimised from its parameters on.
        x0: Where to begin, a vector. For a model the inputs.
        y: The targets of a model.
        method: The method, which makes the steps of the optimiser of that name.
        assuming: What is assumed of f. By default strongly_convex where mu is given, else the first
            one in the table.
        L: The smoothness constant; of every term, for stochastic methods.
        mu: The constant of strong convexity or of the condition of Polyak and Lojasiewicz.
        G: The largest gradient of a term, for averaged_sgd.
        steps: How many steps are made.
        eta: The step size of a stochastic method. By default $1 / (2 L)$ for sgd, $R / (G \sqrt T)$
            for averaged_sgd and $1 / (10 L)$ for svrg; others take that of their theorem.
        period: The steps $m$ of an epoch of svrg; by default $50 L / \mu$, for $\alpha \le 1/2$.
        minimiser: The minimiser $x^*$. If neither is given, SciPy's L-BFGS and then steps of
            Newton's method search it in the neighbourhood of the start.
        minimum: The least value $f^*$; by default that at the minimiser.
        runs: How many runs of a stochastic method there are.
        confidence: What the intervals of the means promise, for all steps at once.
        loss: A function of a model's outputs and targets; by default the cross-entropy for integer
            targets and the mean squared error for others. Stochastic methods take it of every
            example alone, and minimise the mean.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If there is no such theorem, a constant is out of its range, f is not what is
            assumed as far as that shows (heavy ball beyond quadratics, interpolation without an
            exact fit, negative curvature), its values are below the minimum that was given, or
            examples of a model influence each other where they are drawn.

    References:
        Nesterov, Lectures on convex optimization, Springer, 2018.
        Lessard, Recht and Packard, Analysis and design of optimization algorithms via integral
        quadratic constraints, SIAM Journal on Optimization, 2016.
        Johnson and Zhang, Accelerating stochastic gradient descent using predictive variance
        reduction, NeurIPS, 2013.

    Example:
        >>> f = lambda x: x[0] ** 2 / 2 + 2 * x[1] ** 2  # curvatures 1 and 4
        >>> result = certify_descent(f, torch.tensor([1.0, 0.0]), L=4.0, mu=1.0, steps=2)
        >>> result.gap.tolist(), result.bound.tolist()  # 9/16 a step, where 3/4 is promised
        ([0.5, 0.28125, 0.158203125], [0.5, 0.375, 0.28125])
        >>> result.held, certify_descent(f, torch.tensor([0.0, 1.0]), L=1.0, mu=1.0, steps=2).held
        (True, False)
    """
    choice("method", method, tuple(METHODS))
    theorems = tuple(METHODS[method])
    usual = "strongly_convex" if "strongly_convex" in theorems and mu is not None else theorems[0]
    case = choice("assuming", usual if assuming is None else assuming, theorems)
    objective = _objective(f, x0, y, loss=loss, output=output, terms=method in RANDOM)
    given = {"L": L, "mu": mu, "G": G, "eta": eta, "period": period, "minimum": minimum}
    given |= {"minimiser": minimiser, "steps": whole("steps", steps, low=1)}
    if G is not None and "G" not in METHODS[method][case].needs:
        raise ValueError(f"G must be None for {method}, got {G!r}")
    whole("runs", runs, low=2)
    number("confidence", confidence, above=0, below=1)
    setting = prepared(objective, method, case, given=given, generator=generator)
    samples = measured(setting, runs, generator, progress=progress)
    return _judged(setting, samples, 1 - confidence)


def _objective(
    f: Any, x0: Any, y: Any, *, loss: Loss | None, output: Output, terms: bool
) -> Objective:
    if isinstance(f, nn.Module):
        return model_objective(f, x0, y, loss=loss, output=output, terms=terms)
    for name, value in (("y", y), ("loss", loss), ("output", output)):
        if value is not None:
            raise ValueError(f"{name} must be None where f is no model, got {type(value).__name__}")
    if not callable(f):
        raise ValueError(f"f must be a function or a module, got {type(f).__name__}")
    return vector_objective(cast("Callable[[Tensor], Tensor]", f), x0, terms=terms)


def _judged(setting: Setting, samples: Tensor, alpha: float) -> DescentCertificate:
    theorem, c = setting.theorem, setting.facts
    at = theorem.first + torch.arange(len(samples)) * c.period
    bound = theorem.bound(at.double(), c)
    gap = samples.mean(1).nan_to_num(nan=math.inf, posinf=math.inf)
    error = torch.zeros_like(gap)
    if samples.shape[1] > 1:
        tail = torch.tensor(alpha / (2 * len(gap)), dtype=torch.float64)
        error = (
            -torch.special.ndtri(tail) * samples.std(1) / math.sqrt(samples.shape[1])
        ).nan_to_num(nan=0.0)
    slack = _rounding(setting)
    clear = bool((bound > slack).any())
    held: bool | None = True if clear and bool((gap + error <= bound + slack).all()) else None
    if bool((gap - error > bound + slack).any()) and not setting.estimated:
        held = False
    ratio = torch.where(bound > slack, gap / bound, torch.where(gap > slack, math.inf, 0.0))
    names = (*theorem.needs, "eta", *(("distance",) if theorem.from_distance else ("gap",)))
    names += ("noise",) * (setting.assuming == "strongly_convex" and setting.method == "sgd")
    names += ("period",) * (setting.method == "svrg")
    constants = {name: float(getattr(c, name)) for name in names}
    tightness, sides = float(ratio[at > 0].max()), (gap - error, gap + error)
    return DescentCertificate(
        setting.method, setting.assuming, held, tightness, at, gap, bound, *sides,
        theorem.measures, constants, tuple(setting.estimated),
    )  # fmt: skip


def _rounding(setting: Setting) -> float:
    """What rounding may add to the gap: to f itself, or to where the iterates come to rest.

    A step rounds x by eps |x|, and steps contract by 1 - eta mu, so that errors stay below
    eps |x| / (eta mu); taken eight times for what the gradient adds.
    """
    c = setting.facts
    if setting.theorem.measures == "gap":
        return setting.roundoff * max(abs(setting.minimum), abs(setting.minimum + c.gap))
    away = 0.0 if setting.optimum is None else float(setting.optimum.norm())
    size = 8 * setting.eps * max(float(setting.f.start.norm()), away)
    return (size * c.L if setting.theorem.measures == "gradient" else size / (c.eta * c.mu)) ** 2
