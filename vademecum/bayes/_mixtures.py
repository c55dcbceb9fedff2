r"""Laws that are mixtures over draws of weights: means, quantiles and proper scores.

Of S draws with shares $w_j$ and outputs $z_j$ the predictive law is

| likelihood | law | mean |
|---|---|---|
| gaussian | $\sum_j w_j\, \mathcal N(z_j, \delta^2)$ | $\sum_j w_j z_j$ |
| categorical | $\sum_j w_j \operatorname{softmax}(z_j)$ | the probabilities |
| bernoulli | $\sum_j w_j\, \sigma(z_j)$ | the probabilities |

Scores are the less the better: minus the logarithm of the density of all targets of an example at
once; Brier's $\sum_c (p_c - [y = c])^2$; and for numbers $\mathrm{CRPS} = \mathbb E |Y - y| -
\frac12 \mathbb E |Y - Y'|$ with independent $Y, Y'$ from the law. There
$\mathbb E |\mathcal N(\mu, s^2)| = 2 s\, \varphi(\mu / s) + \mu\, (2 \Phi(\mu / s) - 1)$, and
$\frac12 \mathbb E |Y - Y'| = \int F (1 - F)$ with the distribution function F of the mixture: a sum
over pairs of draws, or over a grid of step $\delta / 2$ where that is shorter, which is exact to
double precision (the integrand is analytic, with Gaussian tails).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["Numbers", "bernoulli", "categorical", "gaussian", "single_gaussian"]

_CUT = 9.0  # standard deviations beyond which a normal law has no mass in double precision


class Numbers(NamedTuple):
    """Mean, standard deviation, interval (2, n, ...) and scores of some examples."""

    mean: Tensor
    std: Tensor
    spread: Tensor
    interval: Tensor
    log_score: Tensor | None = None
    brier: Tensor | None = None
    crps: Tensor | None = None


def gaussian(z: Tensor, w: Tensor, noise: Tensor, y: Tensor | None, tails: Tensor) -> Numbers:
    """The mixture of normal laws around outputs (S, n, ...)."""
    mean, variance = _moments(z, w)
    ends = torch.stack([_quantile(z, w, noise, q) for q in tails.tolist()])
    found = Numbers(mean, (variance + noise**2).sqrt(), variance.sqrt(), ends)
    if y is None:
        return found
    off = (y - z) / noise
    each = -off.square() / 2 - noise.log() - math.log(2 * math.pi) / 2
    log_score = -(each.expand_as(z).flatten(2).sum(2) + w.log()[:, None]).logsumexp(0)
    crps = _average(noise * _mean_size(off), w) - _half_gap(z, w, noise)
    return found._replace(log_score=log_score, crps=crps)


def single_gaussian(
    mean: Tensor, covariance: Tensor, noise: Tensor, y: Tensor | None, tails: Tensor
) -> Numbers:
    """One normal law for each example: means (n, k), covariances (n, k, k) without the noise."""
    spread = covariance.diagonal(dim1=1, dim2=2).sqrt()
    std = (spread.square() + noise**2).sqrt()
    ends = mean + torch.special.ndtri(tails).view(2, 1, 1) * std
    found = Numbers(mean, std, spread, ends)
    if y is None:
        return found
    total = covariance + torch.diag_embed((noise**2).expand_as(mean))
    root = torch.linalg.cholesky(total)
    off = torch.linalg.solve_triangular(root, (y - mean)[..., None], upper=False)[..., 0]
    halves = root.diagonal(dim1=1, dim2=2).log().sum(1)
    constant = mean.shape[1] / 2 * math.log(2 * math.pi)
    log_score = off.square().sum(1) / 2 + halves + constant
    crps = std * (_mean_size((y - mean) / std) - 1 / math.sqrt(math.pi))
    return found._replace(log_score=log_score, crps=crps)


def categorical(z: Tensor, w: Tensor, y: Tensor | None, tails: Tensor) -> Numbers:
    """The average of probabilities, from logits (S, n, k)."""
    found = _of_probabilities(z.softmax(2), w, tails)
    if y is None:
        return found
    own = z.log_softmax(2).gather(2, y.long().view(1, -1, 1).expand(len(z), -1, 1))[..., 0]
    hot = F.one_hot(y.long(), z.shape[2])
    brier = (found.mean - hot).square().sum(1)
    return found._replace(log_score=-(own + w.log()[:, None]).logsumexp(0), brier=brier)


def bernoulli(z: Tensor, w: Tensor, y: Tensor | None, tails: Tensor) -> Numbers:
    """The average of probabilities, from a logit for each (S, n, ...)."""
    found = _of_probabilities(z.sigmoid(), w, tails)
    if y is None:
        return found
    own = (y * z - F.softplus(z)).flatten(2).sum(2)
    log_score = -(own + w.log()[:, None]).logsumexp(0)
    brier = (found.mean - y).square().flatten(1).sum(1)
    return found._replace(log_score=log_score, brier=brier)


def _of_probabilities(p: Tensor, w: Tensor, tails: Tensor) -> Numbers:
    mean, variance = _moments(p, w)
    ordered, place = p.sort(0)
    below = w[place].cumsum(0)
    goals = tails.tolist()
    at = [(below < q).sum(0, keepdim=True).clamp(max=len(p) - 1) for q in goals]
    ends = torch.stack([ordered.gather(0, i)[0] for i in at])
    return Numbers(mean, variance.sqrt(), variance.sqrt(), ends)


def _moments(z: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    mean = _average(z, w)
    return mean, _average((z - mean).square(), w)


def _average(z: Tensor, w: Tensor) -> Tensor:
    return torch.tensordot(w, z, 1)


def _mean_size(t: Tensor) -> Tensor:
    """The mean of |t + N(0, 1)|."""
    density = torch.exp(-t.square() / 2) / math.sqrt(2 * math.pi)
    return 2 * density + t * torch.erf(t / math.sqrt(2))


def _half_gap(z: Tensor, w: Tensor, noise: Tensor) -> Tensor:
    """Half of the mean distance of two independent numbers from the mixture."""
    low, high = (z / noise).amin(0) - _CUT, (z / noise).amax(0) + _CUT
    points = 1 + 2 * math.ceil(float((high - low).amax()))
    if len(z) <= points:
        root = math.sqrt(2)
        each = [_average(_mean_size((z - one) / (root * noise)), w) for one in z]
        return noise * root * _average(torch.stack(each), w) / 2
    total = torch.zeros_like(z[0])
    for i in range(points):
        cdf = (1 + _average(torch.erf((low + i / 2 - z / noise) / math.sqrt(2)), w)) / 2
        total += cdf * (1 - cdf)
    return total * noise / 2


def _quantile(z: Tensor, w: Tensor, noise: Tensor, q: float) -> Tensor:
    """A quantile of the mixture, by Newton's method within ends between which it must lie."""
    shift = noise * math.sqrt(2) * torch.erfinv(torch.tensor(2 * q - 1, dtype=torch.float64)).item()
    low, high = z.amin(0) + shift, z.amax(0) + shift
    mean, variance = _moments(z, w)
    guess = mean + shift * (1 + variance / noise**2).sqrt()  # as if the mixture were normal
    at = torch.minimum(torch.maximum(guess, low), high)
    eps = torch.finfo(z.dtype).eps
    for _ in range(100):
        t = (at - z) / noise
        over = (1 + _average(torch.erf(t / math.sqrt(2)), w)) / 2 - q  # some 20 times ndtr's speed
        slope = _average(torch.exp(-t.square() / 2), w) / (math.sqrt(2 * math.pi) * noise)
        low, high = torch.where(over < 0, at, low), torch.where(over < 0, high, at)
        step = at - over / slope
        inside = (step > low) & (step < high)
        new = torch.where(inside, step, (low + high) / 2)
        # after a step of Newton's the error is of the order of its square, in units of the noise
        done = inside & ((new - at).abs() <= eps**0.5 * noise)
        done |= high - low <= 4 * eps * (noise + at.abs())
        at = new
        if bool(done.all()):
            break
    return at
