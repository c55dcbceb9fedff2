r"""Langevin dynamics at smaller and smaller noise.

At each level $t$ of noise, from the largest down, examples make some steps of the unadjusted
Langevin algorithm with that level's score,

$$x \leftarrow x + \eta_t\, \nabla \log p_t(x) + \sqrt{2 \eta_t}\, \epsilon,$$

with $\eta_t$ in proportion to the variance of the noise. Within a level they approach $p_t$, up to
a bias of the order of $\eta_t$; many steps are needed at every level, unlike for the reverse
diffusion, whose steps go from level to level. The claim is `annealed_langevin_versus_diffusion`.

References:
    Song and Ermon, Generative modeling by estimating gradients of the data distribution, NeurIPS,
    2019.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Num
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.generative._marginals import INTEGERS, Predicts, Process, kind_of
from vademecum.generative._scores_of_models import Score, examples, score_from
from vademecum.generative.continuous.equations import insist_on_times
from vademecum.models import resting
from vademecum.progress import ticking
from vademecum.randomness import source

__all__ = ["annealed_langevin", "stay"]


@torch.no_grad()
def annealed_langevin(
    model: Any,
    x: Float[Tensor, " n *shape"],
    *,
    process: Process,
    levels: Num[Tensor, " levels"],
    per_level: int = 100,
    eta: float | Float[Tensor, " levels"] = 0.1,
    predicts: Predicts | None = None,
    context: Any = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> Float[Tensor, " n *shape"]:
    r"""Draw examples by Langevin dynamics at falling levels of noise.

    Args:
        model: What predicts, called as `model(x, t)` or, with a context, `model(x, t, context)`,
            with t (n,); a module is taken in evaluation mode.
        x: Where the examples start, often noise as there is at the first level.
        process: What noises examples: anything with `marginal(t)`.
        levels: Times of the process, falling, as many as there are levels: between 0 and 1 for an
            equation, integers for the steps of a `NoiseSchedule`.
        per_level: How many steps are made at each.
        eta: The step size, in units of the noise's variance at each level; or the step sizes
            themselves, one for each level.
        predicts: What the model gives, "score", "noise", "x0" or "v"; by default what its attribute
            `predicts` says, or the score.
        context: What else the model is given.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.

    Example:
        >>> from vademecum.generative import VESDE, MixtureScore
        >>> process = VESDE(sigma_min=0.1, sigma_max=3.0)
        >>> ball = torch.ones(1), torch.full((1, 2), 4.0), torch.ones(1)
        >>> exact = MixtureScore(*ball, process=process, predicts="score")
        >>> noise, levels = process.sample_prior((500, 2)), torch.linspace(1, 0.1, 10)
        >>> x = annealed_langevin(exact, noise, process=process, levels=levels)
        >>> bool((x.mean() - 4).abs() < 0.5)
        True
    """
    x, levels = examples("x", x), _falling(levels)
    whole("per_level", per_level, low=1)
    score = score_from(model, process, kind_of(model, predicts, "score"), context)
    insist_on_times("levels", levels, process)
    sizes = _step_sizes(process, levels, eta)
    with resting(model), ticking("levels", len(levels), progress=progress) as tick:
        for t, size in zip(levels.to(x.device), sizes, strict=True):
            x = walked(score, x, t, per_level, size, generator)
            tick(1)
    return x


def stay(
    score: Score, process: Process, x: Tensor, t: Tensor, count: int, eta: float,
    generator: torch.Generator | None,
) -> Tensor:  # fmt: skip
    """Langevin steps at one time, of a size in units of the variance of its noise."""
    return walked(score, x, t, count, eta * float(process.marginal(t).std) ** 2, generator)


def walked(
    score: Score, x: Tensor, t: Tensor, count: int, eta: float, generator: torch.Generator | None
) -> Tensor:
    """Steps of the unadjusted Langevin algorithm at one time."""
    for _ in range(count):
        noise = torch.randn(x.shape, dtype=x.dtype, **source(generator, x.device)).to(x.device)
        x = x.add(score(x, t), alpha=eta).add_(noise, alpha=math.sqrt(2 * eta))
    return x


def _falling(levels: Any) -> Tensor:
    """Times in double precision, or steps as the integers they are."""
    whole_steps = isinstance(levels, Tensor) and levels.dtype in INTEGERS
    times = floats("levels", levels.double() if whole_steps else levels, ndim=1).double()
    if bool((times.diff() >= 0).any()):
        raise ValueError(f"levels must fall, got {levels.tolist()}")
    return levels if whole_steps else times


def _step_sizes(process: Process, levels: Tensor, eta: float | Tensor) -> list[float]:
    if isinstance(eta, Tensor):
        sizes = floats("eta", eta, ndim=1).double()
        if sizes.shape != levels.shape or not bool((sizes > 0).all()):
            raise ValueError(
                f"eta must be {len(levels)} positive step sizes, one for each level, got"
                f" {sizes.tolist()}"
            )
        return sizes.tolist()
    variances = process.marginal(levels).std.double() ** 2
    some = (variances > 0) & variances.isfinite()
    if not bool(some.all()):
        at, value = (t[~some][0].item() for t in (levels, variances))
        raise ValueError(f"levels must have noise, got the variance {value:g} at {at:g}")
    return (number("eta", eta, above=0) * variances).tolist()
