"""Two samplers: Langevin dynamics at falling noise, and the reverse diffusion."""

import torch
from torch import Tensor

from vademecum.claims import at_least, claim, equals, in_mean
from vademecum.generative import DiffusionSDE, annealed_langevin, reverse_sde_sample
from vademecum.generative._marginals import Marginal
from vademecum.generative.claims.scores_in_time.continuous_time import normal


class Levels(DiffusionSDE):
    r"""Noise of standard deviation 3 t, in steps: $g^2 h = \sigma_i^2 - \sigma_{i-1}^2$ exactly."""

    def __init__(self, steps: int):
        self.steps = steps

    def drift(self, x: Tensor, t: Tensor) -> Tensor:
        """None."""
        return torch.zeros_like(x)

    def diffusion(self, t: Tensor) -> Tensor:
        """The root of what a step from t down takes off the variance, over its length."""
        lower = (t - 1 / self.steps).clamp(min=0)
        return (9 * (t**2 - lower**2) * self.steps).sqrt()

    def marginal(self, t: Tensor) -> Marginal:
        """Examples as they are, with the noise of their level."""
        return Marginal(torch.ones_like(t), 3 * t)


def variance_of_chain(spreads: Tensor, sizes: Tensor, noise: float, per_level: int) -> float:
    r"""The variance that steps $x - \Delta x / V + \sqrt{c \Delta}\, \xi$ reach from the first."""
    found = float(spreads[0])
    for v, delta in zip(spreads.tolist(), sizes.tolist(), strict=True):
        for _ in range(per_level):
            found = (1 - delta / v) ** 2 * found + noise * delta
    return found


@claim(
    by="identity",
    sources=("A-399", "A-396"),
    budget=1.0,
    short=r"x + \Delta s + \sqrt\Delta\,\xi \text{ changes the level},\quad x + \Delta s"
    r" + \sqrt{2\Delta}\,\xi \text{ keeps it}",
)
def annealed_langevin_versus_diffusion(one_pass: str = "reverse", many: int = 200, n: int = 5000):
    r"""Annealed Langevin sampling and the reverse diffusion are different samplers.

    Noise-conditional score models and diffusion models learn the same object, scores of noised
    data, but their samplers differ: a step of the reverse stochastic equation of size $\Delta =
    \sigma_i^2 - \sigma_{i-1}^2$ is $x + \Delta s + \sqrt \Delta\, \xi$ and transports between
    levels, an unadjusted Langevin step with the same drift is $x + \Delta s + \sqrt{2 \Delta}\,
    \xi$ and equilibrates within a level; they agree only when many Langevin steps are made at every
    level.

    Checked for normal data of variance 1, exact scores and 300 levels from $\sigma = 3$ to 0, where
    the variances follow a recursion: reverse steps end within 2 % of 1, one Langevin step per level
    at 1.9; 200 Langevin steps of $0.05 (1 + \sigma_i^2)$ at every level end within 5 %, and with
    20 levels in the stationary variance of the last one. The room's `reverse_sde_sample` and
    `annealed_langevin` follow their recursions, for one pass over 100 levels and for 15 steps at
    each of ten (five standard errors).

    Knobs:
        one_pass: Which steps are made once per level: "reverse" or "langevin".
        many: How many Langevin steps are made at every level in the long run.
        n: How many examples are drawn.
    """
    _, spreads, sizes = _levels(300)
    ends = {c: variance_of_chain(spreads, sizes, c, 1) for c in (1.0, 2.0)}
    once = ends[1.0 if one_pass == "reverse" else 2.0]
    yield equals("variance after one pass", once, 1.0, tol=0.01, steps=one_pass)
    yield at_least("variance after one Langevin step per level", ends[2.0], 1.9)
    long = variance_of_chain(spreads, 0.05 * spreads, 2.0, many)
    yield equals("variance after many Langevin steps per level", long, 1.0, tol=0.025)
    few = spreads[::15]
    found = variance_of_chain(few, 0.05 * few, 2.0, many)
    # A step of size eta = 0.05 V is at rest at V / (1 - eta / 2 V); 0.95^(2 many) is what is left.
    rest = float(few[-1]) / (1 - 0.025)
    yield equals("variance after many Langevin steps at 20 levels", found, rest, tol=1e-6)
    yield from _drawn(n)


def _levels(steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Times from 1 down, the variances of noised unit data there, and what a step takes off."""
    t = 1 - torch.arange(steps) / steps
    return t, 1 + 9 * t**2, 9 * (t**2 - (t - 1 / steps) ** 2)


def _drawn(n: int):
    """The room's samplers with 100 levels, and with many steps at ten of them."""
    t, spreads, sizes = _levels(100)
    process = Levels(100)
    model, start = normal(process), process.sample_prior((n, 1))
    x = reverse_sde_sample(model, (n, 1), process=process, steps=100, end=0.0)
    wanted = variance_of_chain(spreads, sizes, 1.0, 1)
    yield in_mean("squares after reverse steps", x**2, wanted)
    x = annealed_langevin(model, start, process=process, levels=t, per_level=1, eta=sizes)
    wanted = variance_of_chain(spreads, sizes, 2.0, 1)
    yield in_mean("squares after one Langevin step per level", x**2, wanted)
    eta = 0.1 * spreads[::10]
    x = annealed_langevin(model, start, process=process, levels=t[::10], per_level=15, eta=eta)
    wanted = variance_of_chain(spreads[::10], eta, 2.0, 15)
    yield in_mean("squares after many Langevin steps", x**2, wanted)


annealed_langevin_versus_diffusion.foil(
    "few Langevin steps at every level", many=2,
    refuted_by="variance after many Langevin steps at 20 levels",
)  # fmt: skip
annealed_langevin_versus_diffusion.erratum(
    "A-399",
    printed=r"sampling (ULA) from $s_\theta(x, i)$ with iteratively decreasing noise is"
    r" mathematically equivalent to sampling from a diffusion model",
    right=r"both use scores of noised data; as samplers they agree only for many small Langevin"
    r" steps at every level",
    why=r"For equal drift the variances of the noise differ by a factor 2: with exact scores for"
    r" unit Gaussian data one pass over 300 levels ends at the variance 1.007 by reverse steps, and"
    r" at 1.91 by one Langevin step per level. ULA is the corrector, not the predictor.",
    weight="soft",
    refuted_by="variance after one pass",
    close="the statement allows 2 %, and the variance is off by 91 %",
    one_pass="langevin",
)
