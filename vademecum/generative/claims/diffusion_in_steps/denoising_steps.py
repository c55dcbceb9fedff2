"""One step of a diffusion: its posterior, its mean in terms of noise, and its loss."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, claim, equals
from vademecum.foundations import gaussian_kl
from vademecum.generative import DDPM, NoiseSchedule, diffusion_bound
from vademecum.generative.claims._normal_chains import random_betas

KINDS: tuple[Literal["noise", "x0", "v"], ...] = ("noise", "x0", "v")


class Told(nn.Module):
    """A network that knows what noise there is, and says something next to it."""

    def __init__(self, noise: Tensor):
        super().__init__()
        self.noise = noise

    def forward(self, x: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        """The noise."""
        return self.noise


def shares(betas: list[float]) -> list[float]:
    """What is left of the data after each step, by a plain product."""
    found = [1.0]
    for beta in betas:
        found.append(found[-1] * (1 - beta))
    return found


def product(betas: list[float], t: int, x0: Tensor, xt: Tensor) -> tuple[Tensor, float]:
    """Mean and variance of x_{t-1} by precisions: of x_t given it, and of it given x_0."""
    left, beta = shares(betas)[t - 1], betas[t - 1]
    if t == 1:
        return x0, 0.0
    seen, prior = (1 - beta) / beta, 1 / (1 - left)
    variance = 1 / (seen + prior)
    return variance * (seen * xt / math.sqrt(1 - beta) + prior * math.sqrt(left) * x0), variance


@claim(
    by="identity",
    sources=("A-384", "A-386", "C-330", "C-331"),
    budget=0.5,
    short=r"\tilde\mu_t = \frac{\sqrt{\bar\alpha_{t-1}} \beta_t x_0 + \sqrt{\alpha_t}"
    r" (1 - \bar\alpha_{t-1}) x_t}{1 - \bar\alpha_t}",
)
def forward_posterior(
    over: Literal["cumulative", "one step"] = "cumulative",
    spread: Literal["tilde", "beta"] = "tilde",
    swapped: bool = False,
    T: int = 12,
):
    r"""The step back is normal, exactly and for every beta, given the clean example.

    $q(x_{t-1} \mid x_t, x_0) = \frac{q(x_t \mid x_{t-1})\, q(x_{t-1} \mid x_0)}{q(x_t \mid x_0)} =
    \mathcal N(\tilde\mu_t, \tilde\beta_t I)$ with $\tilde\mu_t = \frac{\sqrt{\bar\alpha_{t-1}}\,
    \beta_t}{1 - \bar\alpha_t} x_0 + \frac{\sqrt{\alpha_t}\, (1 - \bar\alpha_{t-1})}{1 -
    \bar\alpha_t} x_t$ and $\tilde\beta_t = \frac{1 - \bar\alpha_{t-1}}{1 - \bar\alpha_t} \beta_t$.
    Sheet A prints $\approx$ (A-384); no approximation is involved: only the kernel that is not
    given $x_0$ needs small $\beta_t$.

    Checked: `NoiseSchedule.posterior` and the formula against the product of two normal densities,
    by their precisions at every step of random schedules with betas up to 0.9, and on a grid.

    Knobs:
        over: Whether it is divided by $1 - \bar\alpha_t$, and not by $1 - \alpha_t$.
        spread: Whether the variance is $\tilde\beta_t$, and not $\beta_t$.
        swapped: Whether $x_0$ and $x_t$ have each other's factors.
        T: How many steps.
    """
    for betas in (random_betas(T).tolist(), [0.1, 0.2, 0.3], [0.9, 0.9]):
        schedule, left = NoiseSchedule(betas), shares(betas)
        for t in range(1, len(betas) + 1):
            x0, xt = torch.randn(2, 3, 2)
            alpha, beta = 1 - betas[t - 1], betas[t - 1]
            below = 1 - left[t] if over == "cumulative" else 1 - alpha
            clean = math.sqrt(left[t - 1]) * beta / below
            weights = clean, math.sqrt(alpha) * (1 - left[t - 1]) / below
            weights = weights[::-1] if swapped else weights
            variance = (1 - left[t - 1]) / below * beta if spread == "tilde" else beta
            mean, own = product(betas, t, x0, xt)
            found = schedule.posterior(x0, xt, torch.full((3,), t))
            at = {"t": t, "beta": beta}
            line = weights[0] * x0 + weights[1] * xt
            yield equals("mean by precisions", mean, line, tol=1e-12, **at)
            yield equals("variance by precisions", own, variance, tol=1e-12, **at)
            yield equals("mean by the schedule", found.mean, mean, tol=1e-12, **at)
            yield equals("variance by the schedule", found.variance, own, tol=1e-12, **at)
    yield from on_a_grid()


def on_a_grid() -> Iterator[Evidence]:
    """The example of three steps: moments of the product of two densities on a grid."""
    betas, x0, xt = [0.1, 0.2, 0.3], 0.7, -0.4
    y, left = torch.linspace(-6, 6, 4001), shares(betas)[2]
    prior = -((y - math.sqrt(left) * x0) ** 2) / (2 - 2 * left)
    mass = (prior - (xt - math.sqrt(0.7) * y) ** 2 / 0.6).softmax(0)
    mean = (mass * y).sum()
    at = torch.tensor([3])
    found = NoiseSchedule(betas).posterior(torch.tensor([[x0]]), torch.tensor([[xt]]), at)
    yield equals("mean on a grid", found.mean, mean, tol=1e-8)
    yield equals("variance on a grid", found.variance, (mass * (y - mean) ** 2).sum(), tol=1e-8)


forward_posterior.foil("divided by the noise of one step", over="one step")
forward_posterior.foil("the variance of the step forward", spread="beta")
forward_posterior.foil("swapped factors", swapped=True)


@claim(
    by="identity",
    sources=("A-385", "A-387", "C-332", "D-438"),
    budget=0.4,
    short=r"\tilde\mu_t = \frac1{\sqrt{\alpha_t}} \Big(x_t - \frac{\beta_t}{\sqrt{1 -"
    r" \bar\alpha_t}}\, \epsilon\Big)",
)
def noise_form_of_mean(
    before: Literal["one step", "cumulative"] = "one step",
    below: Literal["one step", "cumulative"] = "cumulative",
    T: int = 12,
):
    r"""To predict the noise is to predict the mean of the step back.

    Put in $x_0 = (x_t - \sqrt{1 - \bar\alpha_t}\, \epsilon) / \sqrt{\bar\alpha_t}$, and
    $\tilde\mu_t = \frac1{\sqrt{\alpha_t}} \big(x_t - \frac{\beta_t}{\sqrt{1 - \bar\alpha_t}}\,
    \epsilon\big)$ with the *one-step* $\alpha_t = 1 - \beta_t$ in front; so $\mu_\theta(x_t, t)$ is
    the same with the predicted noise. At $t = 1$ it is $x_0$. To predict $x_0$ or $v =
    \sqrt{\bar\alpha_t}\, \epsilon - \sqrt{1 - \bar\alpha_t}\, x_0$ is to predict it as well.

    Checked for `DDPM.reverse` whose network is told the noise, $x_0$ or $v$, against the mean by
    precisions, at all steps of random schedules.

    Knobs:
        before: Whether $\alpha_t$ in front is that of the step or the product of all.
        below: The same for the $\alpha$ in the denominator.
        T: How many steps.
    """
    for betas in (random_betas(T).tolist(), [0.3, 0.3], random_betas(T, 0.05).tolist()):
        schedule, left = NoiseSchedule(betas), shares(betas)
        for t in range(1, len(betas) + 1):
            x0, noise = torch.randn(2, 3, 2)
            xt = math.sqrt(left[t]) * x0 + math.sqrt(1 - left[t]) * noise
            mean, _ = product(betas, t, x0, xt)
            one = {"one step": 1 - betas[t - 1], "cumulative": left[t]}
            line = (xt - betas[t - 1] / math.sqrt(1 - one[below]) * noise) / math.sqrt(one[before])
            yield equals("mean of the step back", mean, line, tol=1e-11, t=t)
            v = math.sqrt(left[t]) * noise - math.sqrt(1 - left[t]) * x0
            for predicts, told in zip(KINDS, (noise, x0, v), strict=True):
                model = DDPM(Told(told), (2,), schedule=schedule, predicts=predicts)
                found = model.reverse(xt, torch.full((3,), t)).mean
                at = {"t": t, "predicts": predicts}
                yield equals("mean of the step back that is told", found, mean, tol=1e-11, **at)


noise_form_of_mean.foil("the product of all alphas in front", before="cumulative")
noise_form_of_mean.foil("alpha of one step below", below="one step")


@claim(
    by="identity",
    sources=("A-388", "C-327"),
    budget=0.6,
    short=r"L_{t-1} = \frac{\beta_t^2}{2 \alpha_t (1 - \bar\alpha_t) \tilde\beta_t}"
    r" \|\epsilon - \epsilon_\theta(x_t, t)\|^2",
)
def diffusion_step_loss(
    variance: bool = True, alpha: Literal["one step", "cumulative"] = "one step", half: float = 2.0
):
    r"""The loss of a step is a weighted regression on the noise.

    Where the model's variance is $\tilde\beta_t$, $\mathrm{KL}(q(x_{t-1} \mid x_t, x_0) \|
    p_\theta(x_{t-1} \mid x_t)) = \frac{\|\tilde\mu_t - \mu_\theta\|^2}{2 \tilde\beta_t} =
    \frac{\beta_t^2}{2 \alpha_t (1 - \bar\alpha_t) \tilde\beta_t} \|\epsilon - \epsilon_\theta(x_t,
    t)\|^2$; for another fixed variance $\sigma_t^2$ it is the same square over $2 \sigma_t^2$ plus
    a constant.

    Checked for `diffusion_bound` and for `DDPM.loss` with the weights of the bound, against the
    general divergence of normal laws, $t \ge 2$, for random schedules and predictions, with both
    fixed variances; `DDPM.loss` for predictions of $x_0$ and $v$ as well.

    Knobs:
        variance: Whether the variance of the step is in the denominator.
        alpha: Whether $\alpha_t$ there is that of the step or the product of all.
        half: The factor in the denominator, 2.
    """
    d = 3
    spreads: tuple[Literal["small", "large"], ...] = ("small", "large")
    for spread in spreads:
        betas = random_betas(6).tolist()
        schedule, left = NoiseSchedule(betas), shares(betas)
        predicted, seen = torch.randn(2, d), {}

        def network(x: Tensor, t: Tensor, predicted=predicted, seen=seen) -> Tensor:
            seen[int(t[0])] = x
            return predicted

        x0 = torch.randn(2, d)
        bound = diffusion_bound(network, x0, schedule=schedule, variance=spread)
        constants = []
        for t in range(2, 7):
            xt = seen[t]
            noise = (xt - math.sqrt(left[t]) * x0) / math.sqrt(1 - left[t])
            truth, tilde = product(betas, t, x0, xt)
            guess = (xt - math.sqrt(1 - left[t]) * predicted) / math.sqrt(left[t])
            mean, _ = product(betas, t, guess, xt)
            own = tilde if spread == "small" else betas[t - 1]
            ones = torch.ones(d)
            general = gaussian_kl(truth, tilde * ones, mean, own * ones, diagonal=True)
            below = {"one step": 1 - betas[t - 1], "cumulative": left[t]}[alpha] * (1 - left[t])
            weight = betas[t - 1] ** 2 / (half * below * (own if variance else 1.0))
            square = weight * (noise - predicted).square().sum(1)
            constant = d / 2 * (tilde / own - 1 + math.log(own / tilde))
            at = {"t": t, "variance": spread}
            yield equals("divergence less its constant", general - constant, square, tol=1e-9, **at)
            distance = (truth - mean).square().sum(1) / (2 * own)
            yield equals("distance of the means", general - constant, distance, tol=1e-9, **at)
            yield equals("step of diffusion_bound", bound.steps[:, t - 2], general, tol=1e-9, **at)
            constants.append(constant)
        yield equals("constants of the small variance", constants[0] * (spread == "small"), 0.0)
        for predicts in KINDS:
            yield from weighted_loss(betas, spread, predicts)


def weighted_loss(
    betas: list[float], spread: Literal["small", "large"], predicts: Literal["noise", "x0", "v"]
) -> Iterator[Evidence]:
    """DDPM.loss of one example at a time, which tells its network where it is."""
    schedule, left, seen = NoiseSchedule(betas), shares(betas), []

    class Spy(nn.Module):
        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            seen.append((x, int(t[0])))
            return 0.3 * x

    model = DDPM(Spy(), (3,), schedule=schedule, variance=spread, weighting="bound",
                 predicts=predicts)  # fmt: skip
    for _ in range(6):
        x0 = torch.randn(1, 3)
        loss = model.loss(x0)
        xt, t = seen[-1]
        scale, std, out = math.sqrt(left[t]), math.sqrt(1 - left[t]), 0.3 * xt
        said = (xt - std * out) / scale, out, scale * xt - std * out
        guess = dict(zip(KINDS, said, strict=True))[predicts]
        small = product(betas, max(t, 2), x0, xt)[1]  # at t = 1 that of t = 2 stands in
        own = small if spread == "small" else betas[t - 1]
        apart = product(betas, t, x0, xt)[0] - product(betas, t, guess, xt)[0]
        wanted = len(betas) * apart.square().mean() / (2 * own)
        at = {"t": t, "variance": spread, "predicts": predicts}
        yield equals("loss with the weights of the bound", loss, wanted, tol=1e-9, **at)


diffusion_step_loss.foil("without the variance", variance=False)
diffusion_step_loss.foil("the product of all alphas", alpha="cumulative")
diffusion_step_loss.foil("without the half", half=1.0)
