"""Going back: the exact reverse kernel, and when it is nearly normal."""

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, slope
from vademecum.foundations import gaussian_condition
from vademecum.generative import DDPM, MixtureScore, NoiseSchedule
from vademecum.generative.claims._normal_chains import Exact

MIXTURE = torch.tensor([0.3, 0.7]), torch.tensor([[-1.0], [1.2]]), torch.tensor([0.09, 0.25])


def gaussian(x: Tensor, mean: Tensor | float, variance: Tensor | float) -> Tensor:
    """The density of a normal law."""
    variance = torch.as_tensor(variance)
    return torch.exp(-((x - mean) ** 2) / (2 * variance)) / (2 * math.pi * variance).sqrt()


def noised_mixture(y: Tensor, left: float) -> Tensor:
    """The density of the mixture, noised until a share of it is left."""
    weights, means, variances = (v.flatten().tolist() for v in MIXTURE)
    parts = [
        w * gaussian(y, math.sqrt(left) * m, left * v + 1 - left)
        for w, m, v in zip(weights, means, variances, strict=True)
    ]
    return torch.stack(parts).sum(0)


@claim(
    by="identity",
    sources=("A-378",),
    budget=0.8,
    short=r"q(x_{t-1} | x_t) = q(x_t | x_{t-1})\, q(x_{t-1}) / q(x_t)",
)
def reverse_kernel(
    kernel: Literal["bayes", "backwards"] = "bayes",
    marginals: Literal["data", "noise"] = "data",
    points: int = 801,
):
    r"""The exact reverse kernel needs the marginals of the noised data.

    By Bayes $q(x_{t-1} \mid x_t) = q(x_t \mid x_{t-1})\, q(x_{t-1}) / q(x_t)$ with the marginals of
    the noised *data*; these are unknown, so the kernel is intractable in general, but it is normal
    with explicit parameters where the data are normal: mean $\sqrt{\alpha_t} \frac{v_{t-1}}{v_t}
    x_t$ and variance $\beta_t \frac{v_{t-1}}{v_t}$ for data $\mathcal N(0, v_0)$ and $v_t =
    \bar\alpha_t v_0 + 1 - \bar\alpha_t$.

    Checked on a grid for a mixture: the kernel integrates to 1, leads from $q(x_t)$ back to
    $q(x_{t-1})$, and its mean is that of `DDPM` with the exact predictor. For normal data: against
    the conditional of the joint law.

    Knobs:
        kernel: Bayes's, or the forward kernel in the other direction.
        marginals: Those of the noised data, or the standard normal law.
        points: How many points the grid has.
    """
    betas = [0.1, 0.3, 0.2, 0.6]
    schedule = NoiseSchedule(betas)
    model = DDPM(MixtureScore(*MIXTURE, process=schedule), (1,), schedule=schedule)
    grid = torch.linspace(-8, 8, points)
    step = 16 / (points - 1)
    for t in (2, 4):
        left = math.prod(1 - b for b in betas[: t - 1]), math.prod(1 - b for b in betas[:t])
        alpha, beta = 1 - betas[t - 1], betas[t - 1]
        before, after = (noised_mixture(grid, share) for share in left)
        forward = gaussian(grid, math.sqrt(alpha) * grid[:, None], beta)  # [x_{t-1}, x_t]
        prior, evidence = before, after
        if marginals == "noise":
            prior = evidence = gaussian(grid, 0.0, 1.0)
        back = forward * prior[:, None] / evidence
        if kernel == "backwards":
            back = gaussian(grid[:, None], grid / math.sqrt(alpha), beta)
        inner = grid.abs() < 3.5
        yield equals("mass of the kernel", back.sum(0)[inner] * step, 1.0, tol=1e-6, t=t)
        yield equals("law one step earlier", back @ after * step, before, tol=1e-6, t=t)
        mean = (back * grid[:, None]).sum(0) * step
        found = model.reverse(grid[:, None], torch.full((points,), t)).mean[:, 0]
        yield equals("mean of the step back", found[inner], mean[inner], tol=1e-6, t=t)
        yield from normal_data(schedule, t, left, beta)


def normal_data(schedule: NoiseSchedule, t: int, left: tuple[float, float], beta: float):
    """The reverse kernel of normal data, against the conditional of a joint law."""
    x = torch.tensor([[-1.3], [0.4]])
    for v0 in (0.2, 3.0):
        v = [share * v0 + 1 - share for share in left]
        alpha = 1 - beta
        joint = torch.tensor([[v[0], math.sqrt(alpha) * v[0]], [math.sqrt(alpha) * v[0], v[1]]])
        law = gaussian_condition(torch.zeros(2), joint, [1], x)
        at = {"t": t, "v0": v0}
        wanted = math.sqrt(alpha) * v[0] / v[1] * x[:, 0]
        yield equals("mean for normal data", law.mean[:, 0], wanted, tol=1e-10, **at)
        yield equals("variance for normal data", law.cov, beta * v[0] / v[1], tol=1e-10, **at)
        model = DDPM(Exact(schedule.betas[1:], v0), (1,), schedule=schedule)
        found = model.reverse(x, torch.full((2,), t)).mean
        yield equals("mean of the step back for normal data", found, law.mean, tol=1e-10, **at)


reverse_kernel.foil("the forward kernel, backwards", kernel="backwards")
reverse_kernel.foil("without the law of the data", marginals="noise")


@claim(
    by="fit",
    sources=("A-379",),
    budget=0.8,
    short=r"\beta_t \to 0:\ q(x_{t-1} | x_t) \approx \mathcal N(\cdot, \beta_t);\quad"
    r" \mathbb E\, \mathrm{KL} \propto \beta_t^3",
)
def reverse_kernel_gaussian_limit(
    normal: Literal["small noise", "always"] = "small noise",
    rate: float = 3.0,
    spread: float = 1.0,
    points: int = 201,
):
    r"""The reverse kernel is nearly Gaussian where a step adds little noise.

    As $\beta_t \to 0$ the kernel $q(x_{t-1} \mid x_t)$ approaches a Gaussian of variance $\beta_t$,
    which justifies a Gaussian model of it; for large $\beta_t$ it can have several modes.

    Checked for data $\frac12 \mathcal N(-2, 0.2^2) + \frac12 \mathcal N(2, 0.2^2)$ noised to
    $\bar\alpha_{t-1} = 0.7$, by quadrature: the mean divergence of the kernel from the Gaussian
    with its moments falls over $\beta = 0.5, \dots, 0.01$ from more than 0.05 to less than
    $10^{-5}$, like $\beta^3$ in the end, as it must: with $\ell = \log q_{t-1}$ the kernel has the
    skewness $\beta^{3/2} \ell'''$, and the divergence is a twelfth of its square. Its variance is
    $\beta (1 + O(\beta))$; with $\beta = 1/2$ it has two modes at $x_t = 0$, with $\beta = 0.01$
    one.

    Knobs:
        normal: Whether the kernel has one mode for small noise, or always.
        rate: The power of $\beta$ at which the divergence falls.
        spread: The limit of the variance over $\beta$.
        points: How many points the kernel has on either axis.
    """
    found = {beta: kernel_shape(beta, points) for beta in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)}
    for beta, wanted in ((0.5, 2 if normal == "small noise" else 1), (0.01, 1)):
        yield equals("modes of the kernel at 0", found[beta][2], wanted, beta=beta)
    divergences = [kl for kl, _, _ in found.values()]
    yield at_least("mean divergence at beta = 0.5", divergences[0], 0.05, tol=0.0)
    ratios = [b / a for a, b in pairwise(divergences)]
    yield at_most("divergence over that for the next larger beta", ratios, 0.5)
    yield at_most("mean divergence at beta = 0.01", divergences[-1], 1e-5, tol=0.0)
    small = torch.logspace(-5, -3, 8).tolist()
    fine = [kernel_shape(beta, points) for beta in small]
    yield slope("mean divergence", small, [kl for kl, _, _ in fine], rate)
    for beta, (_, variance, _) in zip(small, fine, strict=True):
        # |l''| < 24 for this law: m^2 / s^4 + 1 / s^2 with s^2 = 0.328, m^2 = 2.8, and 1 for alpha
        yield equals("variance over beta", variance / beta, spread, tol=15 * beta, beta=beta)


def kernel_shape(beta: float, points: int) -> tuple[float, float, int]:
    """Of the kernel: divergence from its Gaussian and variance, in the mean; modes at x_t = 0."""
    schedule, alpha = NoiseSchedule([0.3, beta]), 1 - beta
    law = torch.tensor([0.5, 0.5]), torch.tensor([[-2.0], [2.0]]), torch.tensor([0.04, 0.04])
    density = MixtureScore(*law, process=schedule)
    x = torch.linspace(-7, 7, points)[:, None]
    weight = density.log_prob(x, t=torch.tensor(2)).softmax(0)
    reach = torch.linspace(-9, 9, points) * math.sqrt(beta / alpha)
    y = x / math.sqrt(alpha) + reach  # where the kernel lives, for each x_t
    prior = density.log_prob(y.reshape(-1, 1), t=torch.tensor(1)).view_as(y)
    logs = prior - reach**2 * alpha / (2 * beta)
    logs = logs - logs.logsumexp(1, keepdim=True)
    mass = logs.exp()
    mean = (mass * y).sum(1, keepdim=True)
    variance = (mass * (y - mean) ** 2).sum(1, keepdim=True)
    normal = -((y - mean) ** 2) / (2 * variance)
    gap = logs - (normal - normal.logsumexp(1, keepdim=True))
    apart = mass * (torch.expm1(-gap) + gap)  # terms >= 0, which keep their digits
    mid = mass[points // 2]
    modes = int(((mid[1:-1] > mid[:-2]) & (mid[1:-1] > mid[2:])).sum())
    return float(weight @ apart.sum(1)), float(weight @ variance[:, 0]), modes


reverse_kernel_gaussian_limit.foil("Gaussian for every beta", normal="always")
reverse_kernel_gaussian_limit.foil("a slower approach", refuted_by="mean divergence", rate=2.5)
reverse_kernel_gaussian_limit.foil("twice the variance", spread=2.0)
