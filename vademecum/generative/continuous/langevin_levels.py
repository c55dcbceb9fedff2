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

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.bayes import ula_step
from vademecum.generative._marginals import Predicts, Process
from vademecum.generative._scores_of_models import Score, examples, score_from
from vademecum.models import resting
from vademecum.progress import ticking

__all__ = ["annealed_langevin", "stay"]


@torch.no_grad()
def annealed_langevin(
    model: Any,
    x: Float[Tensor, " n *shape"],
    *,
    process: Process,
    levels: Float[Tensor, " levels"],
    per_level: int = 100,
    eta: float | Float[Tensor, " levels"] = 0.1,
    predicts: Predicts = "score",
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
        levels: Times of the process, falling, as many as there are levels.
        per_level: How many steps are made at each.
        eta: The step size, in units of the noise's variance at each level; or the step sizes
            themselves, one for each level.
        predicts: What the model gives: "score", "noise", "x0" or "v".
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
    x, levels = examples("x", x), floats("levels", levels, ndim=1)
    if bool((levels.diff() >= 0).any()):
        raise ValueError(f"levels must fall, got {levels.tolist()}")
    whole("per_level", per_level, low=1)
    score = score_from(model, process, predicts, context)
    sizes = _step_sizes(process, levels, eta)
    with resting(model), ticking("levels", len(levels), progress=progress) as tick:
        for t, size in zip(levels.double().to(x.device), sizes, strict=True):
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
    at: Any = x.flatten(1)
    energy: Any = _Uphill(score, x.shape, t)
    for _ in range(count):
        at = ula_step(energy, at, eta=eta, generator=generator)
    return at.theta.reshape(x.shape)


class _Uphill:
    """A score as the gradient of an energy whose values nobody knows."""

    def __init__(self, score: Score, shape: torch.Size, t: Tensor):
        self._score, self._shape, self._t = score, shape, t

    def __call__(self, theta: Tensor) -> Tensor:
        return theta.new_zeros(len(theta))

    def with_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """No energies, and minus the scores."""
        found = self._score(theta.reshape(self._shape), self._t)
        return self(theta), -found.reshape(theta.shape)


def _step_sizes(process: Process, levels: Tensor, eta: float | Tensor) -> list[float]:
    if isinstance(eta, Tensor):
        sizes = floats("eta", eta, ndim=1).double()
        if sizes.shape != levels.shape or not bool((sizes > 0).all()):
            raise ValueError(
                f"eta must be {len(levels)} positive step sizes, one for each level, got"
                f" {sizes.tolist()}"
            )
        return sizes.tolist()
    return (number("eta", eta, above=0) * process.marginal(levels).std.double() ** 2).tolist()
