"""The simple loss: regression on the noise, all steps alike."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, claim, equals, in_mean
from vademecum.generative import DDPM, MixtureScore, NoiseSchedule
from vademecum.generative.claims._normal_chains import Exact
from vademecum.generative.claims.diffusion_in_steps.denoising_steps import shares


def two_points(x: Tensor, left: Tensor | float) -> Tensor:
    """The expected noise where data are -1 or 1, by Bayes."""
    left = torch.as_tensor(left)
    logs = torch.stack([-((x - left.sqrt() * m) ** 2) / (2 * (1 - left)) for m in (-1, 1)])
    mean = logs.softmax(0)[1] * 2 - 1
    return (x - left.sqrt() * mean) / (1 - left).sqrt()


@claim(
    by="identity",
    sources=("A-389", "C-329", "D-437"),
    budget=0.8,
    short=r"L = \mathbb E \|\epsilon - \epsilon_\theta(x_t, t)\|^2,\quad"
    r" \epsilon_\theta^*(x_t, t) = \mathbb E[\epsilon | x_t]",
)
def simple_diffusion_loss(
    minimiser: Literal["mean", "inverted"] = "mean",
    power: float = 1.0,
    perturbed: int = 200,
    n: int = 150,
):
    r"""The simple loss counts all steps alike, and has the same minimiser.

    $L = \mathbb E_{x_0,\, t \sim U\{1..T\},\, \epsilon} \|\epsilon -
    \epsilon_\theta(\sqrt{\bar\alpha_t}\, x_0 + \sqrt{1 - \bar\alpha_t}\, \epsilon,\ t)\|^2$, the
    step losses without their weights; for a rich enough $\epsilon_\theta$ the minimiser is still
    $\mathbb E[\epsilon \mid x_t]$ at every $t$. For centred normal data of variance $s^2$ that is
    $\frac{\sqrt{1 - \bar\alpha_t}}{\bar\alpha_t s^2 + 1 - \bar\alpha_t}\, x_t$, and for $s = 1$ the
    least loss is $\bar\alpha_t$ per dimension.

    Checked for data $\pm 1$ by quadrature: whatever is added to the minimiser costs its mean
    square, which is more than nothing; `DDPM.loss`, which is the mean over dimensions, in its mean
    over draws; and for normal data by second moments, `MixtureScore` and `DDPM.loss`.

    Knobs:
        minimiser: The conditional mean, or $x_t / \sqrt{1 - \bar\alpha_t}$, as if $x_0 = 0$.
        power: The power of $\sqrt{1 - \bar\alpha_t}$ in the minimiser for normal data.
        perturbed: How many functions are added to the minimiser.
        n: How many batches of 100 the loss is drawn for.
    """
    betas = [0.3, 0.5, 0.6]
    schedule, left, least = NoiseSchedule(betas), shares(betas), []
    nodes = torch.linspace(-9, 9, 1201)
    mass = (-(nodes**2) / 2).softmax(0)  # of the noise; the trapezoid rule is exact to rounding
    for t in (1, 2, 3):
        std = math.sqrt(1 - left[t])
        x = torch.stack([m * math.sqrt(left[t]) + std * nodes for m in (-1.0, 1.0)])
        best = two_points(x, left[t]) if minimiser == "mean" else x / std
        error = nodes - best
        least.append(float((mass * error**2).sum(1).mean()))
        a, b, c = torch.randn(3, perturbed, 1, 1)
        bump = 0.3 * a * torch.sin(b * x + c)
        more = (mass * (error - bump) ** 2).sum(2).mean(1) - least[-1]
        square = (mass * bump**2).sum(2).mean(1)
        yield equals("loss that is added by a function", more, square, tol=1e-9, t=t)
        yield at_least("loss that is added", more, 0.0, tol=1e-12, t=t)
    yield from drawn_losses(schedule, left, least, power, n)


def drawn_losses(
    schedule: NoiseSchedule, left: list[float], least: list[float], power: float, n: int
) -> Iterator[Evidence]:
    """The loss of DDPM for the best predictors, and normal data."""

    class Best(nn.Module):
        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            return two_points(x, torch.tensor(left)[t][:, None])

    model = DDPM(Best(), (2,), schedule=schedule)
    x = 2.0 * torch.randint(2, (100, 2)) - 1
    losses = torch.stack([model.loss(x) for _ in range(n)])
    yield in_mean("loss of DDPM for data of two points", losses, sum(least) / 3)
    for s in (1.0, 0.5, 3.0):
        t, bar = torch.tensor([1, 2, 3]), torch.tensor(left[1:])
        product, square = (1 - bar).sqrt(), bar * s**2 + 1 - bar  # E[eps x_t] and E[x_t^2]
        formula = (1 - bar) ** (power / 2) / (bar * s**2 + 1 - bar)
        yield equals("coefficient of the regression", product / square, formula, tol=1e-12, s=s)
        law = torch.ones(1), torch.zeros(1, 1), torch.tensor([s**2])
        exact = MixtureScore(*law, process=schedule)
        found = exact(torch.full((3, 1), 1.7), t)[:, 0] / 1.7
        yield equals("coefficient of the exact predictor", found, formula, tol=1e-12, s=s)
        rest = 1 - product**2 / square
        if s == 1:
            yield equals("least loss for unit variance", rest, bar, tol=1e-12)
        model = DDPM(Exact(schedule.betas[1:], s**2), (2,), schedule=schedule)
        losses = torch.stack([model.loss(s * torch.randn(100, 2)) for _ in range(n)])
        yield in_mean("loss of DDPM for normal data", losses, float(rest.mean()), s=s)


simple_diffusion_loss.foil("noise as if the data were 0", minimiser="inverted")
simple_diffusion_loss.foil("the variance in place of its root", power=2.0)
