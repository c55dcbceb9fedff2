"""Smoothing: what a majority vote under noise certifies, in theory and on a machine."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.robustness import linear_radius
from vademecum.robustness import randomized_smoothing as smoothed

Rule = Literal["sigma quantile", "quantile", "sigma p"]

RULES: dict[str, Callable[..., np.ndarray]] = {  # of 1 - p_A, which may be small, and p_B
    "sigma quantile": lambda miss, p, sigma: sigma / 2 * (stats.norm.isf(miss) + stats.norm.isf(p)),
    "quantile": lambda miss, p, sigma: (stats.norm.isf(miss) + stats.norm.isf(p)) / 2,
    "sigma p": lambda miss, p, sigma: sigma * (1 - miss) + 0 * p,
}
ALPHA = 1e-8  # with which a limit may be false; there are 60 of them


class Scores(nn.Module):
    """Two logits, 0 and w^T x + b."""

    def __init__(self, w: Tensor, b: float):
        super().__init__()
        self.w, self.b = w, b

    def forward(self, x: Tensor) -> Tensor:
        """The logits (n, 2)."""
        score = x @ self.w + self.b
        return torch.stack([torch.zeros_like(score), score], 1)


class Trace(nn.Module):
    """Class 0 where a number could be a sum fl(a + z), by its last digits; class 1 elsewhere."""

    def __init__(self, a: float):
        super().__init__()
        self.a = torch.tensor(a, dtype=torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (n, 2)."""
        same = (((x - self.a) + self.a) == x).to(x.dtype)
        return torch.cat([same, 1 - same], 1)


def steps(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """A random step function on the line: its ends, and the class of each interval."""
    ends = np.sort(3 * torch.randn(5).numpy())
    labels = torch.randint(classes, (6,)).numpy()
    labels[1:][labels[1:] == labels[:-1]] = (labels[1:][labels[1:] == labels[:-1]] + 1) % classes
    return np.concatenate([[-np.inf], ends, [np.inf]]), labels


def shares(x: np.ndarray, ends: np.ndarray, labels: np.ndarray, sigma: float, k: int) -> np.ndarray:
    """The probabilities of k classes under Gaussian noise at each of some points, exactly."""
    t = (ends - x[:, None]) / sigma
    left, right = np.diff(stats.norm.cdf(t), axis=1), -np.diff(stats.norm.sf(t), axis=1)
    mass = np.where(t[:, :-1] > 0, right, left)  # no small number as a difference of large ones
    return np.stack([mass[:, labels == c].sum(1) for c in range(k)], 1)


@claim(
    by="sampling",
    sources=("C-347",),
    short=r"p_A > \tfrac12 \Rightarrow g(x + r) = g(x) \text{ for } \|r\|_2 <"
    r" \sigma \Phi^{-1}(p_A)",
)
def randomized_smoothing(
    rule: Rule = "sigma quantile", noise: Literal["grid", "floating"] = "grid", points: int = 60
):
    r"""Certified robustness by randomised smoothing.

    The majority vote $g(x) = \arg\max_c P(f(x + \sigma Z) = c)$, $Z \sim \mathcal N(0, I)$, with
    the top probability $p_A > \frac12$ is constant within the $\ell_2$ radius $\sigma
    \Phi^{-1}(p_A)$; with the second probability $p_B$ within $\frac\sigma2 (\Phi^{-1}(p_A) -
    \Phi^{-1}(p_B))$. In practice $p_A$ is replaced by a lower confidence limit from samples, so the
    certificate holds with high probability. Noise that is added in floating point is not Gaussian
    around $x$, and then the theorem says nothing: integer noise on the grid of the inputs is sound.

    Checked with exact probabilities for linear classifiers, where the radius is the distance to the
    boundary, and for random step functions of one variable with 2 and 3 classes, at 201 points of
    the certified interval. Limits and radii of `randomized_smoothing` for linear classifiers on a
    grid in two dimensions are compared with exact probabilities (sums over the rounded normal law),
    at a level of 1e-8 for each of 60 points, and from both sides with what the same limit gives for
    counts that are smaller, or larger, with a probability of 1e-8. The last classifier, of Voráček
    and Hein, reads where its input came from: $f(z) = 0$ iff $(z - a) + a = z$ in single precision,
    with $a = \frac{210}{255}$, $\sigma = 0.33$. Its certified radius is compared with the distance
    of the nearest point on the grid whose vote differs by five standard errors.

    Knobs:
        rule: How the radius is computed from probabilities.
        noise: How noise is added to the inputs of the last classifier.
        points: Points at which limits are compared.
    """
    for sigma, d in ((0.5, 2), (1.5, 4)):
        w, b, x = torch.randn(d), float(torch.randn(())), torch.randn(20, d)
        score = x @ w + b
        miss = stats.norm.sf((score.abs() / (sigma * w.norm())).numpy())
        wanted = linear_radius(w, torch.tensor(b), x, norm="l2")
        found = RULES[rule](miss, miss, sigma)
        yield equals("radius for a linear classifier", found, wanted, tol=1e-8, d=d, sigma=sigma)
    for k in (2, 3, 3):
        yield constant(rule, k)
    yield from limits(points)
    yield from floating(noise)


def constant(rule: Rule, k: int):
    """The least lead of the top class within the certified intervals of a step function."""
    ends, labels = steps(k)
    sigma, x = 0.7, 2 * torch.randn(30).numpy()
    p = shares(x, ends, labels, sigma, k)
    top = p.argmax(1)[:, None]
    others = np.where(np.arange(k) == top, 0, p)
    radius = RULES[rule](others.sum(1), others.max(1), sigma)
    inside = x[:, None] + radius[:, None] * np.linspace(-1, 1, 201)
    there = shares(inside.ravel(), ends, labels, sigma, k).reshape(30, 201, k)
    own = np.take_along_axis(there, top[:, None], 2)[..., 0]
    others = np.where(np.arange(k) == top[:, None], -1, there).max(2)
    return at_least("lead of the class within the radius", own - others, 0.0, tol=1e-10, k=k)


def limits(points: int):
    """Limits and radii of a linear classifier on a grid, against exact probabilities."""
    q, sigma, n = 0.1, 0.5, 2000
    w, b = torch.tensor([3.0, 4.0]), -1.0
    k = torch.randint(-8, 9, (points, 2))
    k[0] = 20  # so far that all agree, where a limit depends on its level alone
    found = smoothed(Scores(w, b), k * q, sigma=sigma, n=n, alpha=ALPHA, quantum=q)
    K = np.arange(-60, 61)
    mass = np.diff(stats.norm.cdf((np.arange(-60, 62) - 0.5) * q / sigma))
    law, sums = np.outer(mass, mass), np.add.outer(3 * K, 4 * K)
    own = (3 * k[:, 0] + 4 * k[:, 1]).numpy()
    high = np.array([law[sums + m > 10].sum() for m in own])  # q (sums + m) > 1
    p = np.where(found.prediction == 1, high, 1 - high)[~found.abstained]
    lower, radius = found.p_lower[~found.abstained], found.radius[~found.abstained]
    yield at_most("lower limit of a probability", lower, p, tol=1e-12, n=n)
    count = stats.binom.ppf(ALPHA, n, p)
    least = stats.beta.ppf(ALPHA, count, n - count + 1)
    yield at_least("lower limit, from below", lower, least, tol=1e-7, n=n)
    count = stats.binom.isf(ALPHA, n, p)
    most = stats.beta.ppf(ALPHA, count, n - count + 1)
    yield at_most("lower limit, from above", lower, most, tol=1e-7, n=n)
    yield equals(
        "radius over the quantile",
        radius / torch.as_tensor(stats.norm.ppf(lower.numpy())),
        sigma,
        tol=1e-8,
    )
    yield equals("predictions", found.prediction[~found.abstained], (high > 0.5)[~found.abstained])
    yield equals("abstentions", found.abstained, found.p_lower <= 0.5)


def floating(noise: Literal["grid", "floating"]):
    """The certified radius where a classifier reads last digits, and the nearest other vote."""
    a, sigma, draws, q = 210 / 255, 0.33, 4000, 1 / 255
    model, x = Trace(a), torch.tensor([[a]], dtype=torch.float32)
    quantum = q if noise == "grid" else None
    found = smoothed(model, x, sigma=sigma, n=100_000, alpha=ALPHA, quantum=quantum)
    k, z = np.arange(256)[:, None], torch.randn(draws).numpy()
    if noise == "grid":
        copies = (k + np.rint(sigma * z / q)).astype(np.float32) / np.float32(255)
    else:
        copies = (k / 255).astype(np.float32) + (sigma * z).astype(np.float32)
    mark = np.float32(a)
    votes = (((copies - mark) + mark) == copies).mean(1)
    votes = 1 - votes if int(found.prediction) == 1 else votes
    other = np.abs(np.arange(256) - 210)[votes < 0.5 - 2.5 / draws**0.5] / 255
    nearest = float(other.min()) if len(other) else np.inf
    yield at_most("certified radius beside another vote", found.radius, nearest, x=a)


randomized_smoothing.foil("the noise forgotten", rule="quantile")
randomized_smoothing.foil("the probability for its quantile", rule="sigma p")
randomized_smoothing.foil(
    "noise in floating point", noise="floating", refuted_by="certified radius beside another vote"
)
