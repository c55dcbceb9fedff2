r"""Noise becomes data: the diffusion run backwards.

The reversal of $dx = f\, dt + g\, dW$ is $dx = [f - g^2 \nabla \log p_t]\, dt + g\, d \bar W$,
from $t = 1$ down (Anderson, 1982). A step of Euler and Maruyama, the predictor, is

$$x \leftarrow x - h f(x, t) + h g(t)^2\, \nabla \log p_t(x) + g(t) \sqrt h\, \epsilon,$$

and after it a corrector may make steps of Langevin's dynamics at the new time, which leave $p_t$ as
it is, nearly. At the end the noise that is left is taken off by Tweedie's formula $\mathbb E[x_0
\mid x] = (x + \sigma^2 \nabla \log p) / s$. The error is of the order of $h$, and the score's. The
claims are `reverse_sde` and `annealed_langevin_versus_diffusion`.

References:
    Anderson, Reverse-time diffusion equation models, Stochastic Processes and their Applications
    12, 1982.
    Song, Sohl-Dickstein, Kingma, Kumar, Ermon and Poole, Score-based generative modeling through
    stochastic differential equations, ICLR, 2021.
"""

import math
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.generative._marginals import Predicts, beside, kind_of
from vademecum.generative._scores_of_models import Score, home, score_from
from vademecum.generative.continuous.equations import DiffusionSDE, insist_on_equation
from vademecum.generative.continuous.langevin_levels import stay
from vademecum.models import resting
from vademecum.progress import ticking
from vademecum.randomness import source

__all__ = ["reverse_sde_sample"]


@torch.no_grad()
def reverse_sde_sample(
    model: Any,
    shape: tuple[int, ...],
    *,
    process: DiffusionSDE,
    steps: int = 1000,
    end: float = 1e-3,
    predicts: Predicts | None = None,
    corrector: int = 0,
    eta: float = 0.05,
    denoise: bool = True,
    context: Any = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> Tensor:
    r"""Draw examples by the reverse diffusion.

    Args:
        model: What predicts, called as `model(x, t)` or, with a context, `model(x, t, context)`,
            with t (n,); a module is taken in evaluation mode.
        shape: The shape of the result, with the number of examples first.
        process: The equation that noises examples, `VPSDE()` or `VESDE()`.
        steps: How many steps of equal length the predictor makes.
        end: The time at which it ends; scores of networks are poor close to 0.
        predicts: What the model gives, "score", "noise", "x0" or "v"; by default what its attribute
            `predicts` says, or the score.
        corrector: How many Langevin steps follow each step of the predictor.
        eta: Their size, in units of the variance of the noise at that time.
        denoise: Whether the noise that is left at `end` is taken off.
        context: What else the model is given.
        dtype: The dtype; by default that of the model's first tensor.
        device: Where; by default where the model's first tensor is.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.

    Example:
        >>> from vademecum.generative import VPSDE, MixtureScore
        >>> two = torch.tensor([0.25, 0.75]), torch.tensor([[-3.0], [3.0]]), torch.ones(2) / 9
        >>> exact = MixtureScore(*two, process=VPSDE(), predicts="score")
        >>> x = reverse_sde_sample(exact, (2000, 1), process=VPSDE(), steps=100)
        >>> bool((x.mean() - 1.5).abs() < 0.5)
        True
    """
    steps, corrector = whole("steps", steps, low=1), whole("corrector", corrector, low=0)
    end, eta = number("end", end, low=0, below=1), number("eta", eta, above=0)
    if len(shape) < 2:
        raise ValueError(f"shape must be (n, *shape of an example), got {shape}")
    dtype, device = home(model, dtype, device)
    kind = kind_of(model, predicts, "score")
    score = score_from(model, insist_on_equation(process), kind, context)
    times = torch.linspace(1.0, end, steps + 1, dtype=torch.float64, device=device)
    h, noises = (1 - end) / steps, process.diffusion(times).tolist()
    x = process.sample_prior(shape, dtype=dtype, device=device, generator=generator)
    with resting(model), ticking("steps", steps, progress=progress) as tick:
        for i in range(steps):
            x = _back(score, process, x, times[i], h, noises[i], generator)
            if corrector and (end > 0 or i + 1 < steps):
                x = stay(score, process, x, times[i + 1], corrector, eta, generator)
            tick(1)
        return _denoised(score, process, x, times[-1]) if denoise and end > 0 else x


def _back(
    score: Score, process: DiffusionSDE, x: Tensor, t: Tensor, h: float, g: float,
    generator: torch.Generator | None,
) -> Tensor:  # fmt: skip
    """A step of the predictor, down from time t."""
    noise = torch.randn(x.shape, dtype=x.dtype, **source(generator, x.device)).to(x.device)
    moved = x.add(score(x, t), alpha=h * g * g).sub_(process.drift(x, t), alpha=h)
    return moved.add_(noise, alpha=g * math.sqrt(h))


def _denoised(score: Score, process: DiffusionSDE, x: Tensor, t: Tensor) -> Tensor:
    scale, std = (beside(value, x) for value in process.marginal(t))
    return (x + std * std * score(x, t)) / scale
