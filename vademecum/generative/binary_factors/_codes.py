r"""The best codes of rows for patterns that are known, by steps of Newton inside the simplex.

With $A_{kj}$ the chance $B_{kj}$ or $1 - B_{kj}$ of an entry under pattern $k$ and $p = z A$, the
best code of a row minimises the convex $g(z) = -\frac1d \sum_j \log p_j + \sum_k z_k$ over $z \ge
0$: at the minimum codes sum to one by themselves. With $M = \frac1d A (1 / p)$ there are
multipliers $s = 1 - M \ge 0$ and $z_k s_k = 0$. An interior point follows $z_k s_k = \mu$ to $\mu =
0$ by steps $z \leftarrow z \odot (1 + u)$,

$$\big(R + \operatorname{diag}(z \odot s)\big) u = \mu - z \odot (1 - M), \qquad
R_{kl} = \frac1d \sum_j \frac{z_k A_{kj}\, z_l A_{lj}}{p_j^2},$$

with $s \leftarrow \mu / z - s \odot u$, both kept positive. After codes are divided by their sum,
no others are better by more than $\max_k M_k - 1$ in the mean log-likelihood of an entry, which is
concave: a row is done where this gap, computed afresh, is small enough. What is left after `STEPS`
such steps, or has one that is not finite, goes on by EM.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arrays import portions
from vademecum.generative.binary_factors._expectations import floor, gradient, ratios

__all__ = ["Codes", "best_codes"]

STEPS = 50  # of Newton; rows of 784 bits and 10 patterns, of a model or of coins, take 5 to 12
CLOSER = 0.1  # of the mean product of codes and multipliers is what a step aims at
BLOCK = {"cpu": 2**23, "cuda": 2**28}  # bytes of a portion: 2**20 took 1.6 times as long on a CPU
INSIDE = 0.99  # of the way to the border is what a step may go


class Codes(NamedTuple):
    """The best codes of rows, their log-likelihoods, and what the worst may still lack."""

    codes: Float[Tensor, " n k"]
    log_likelihood: Float[Tensor, " n"]
    gap: float


def best_codes(
    x: Float[Tensor, " n d"], both: Float[Tensor, " 2 k d"], *, tol: float, max_iter: int
) -> Codes:
    """The codes that make each row likeliest, from equal ones; rows do not depend on each other."""
    k = both.shape[1]
    codes = x.new_full((len(x), k), 1 / k)
    values = torch.empty(len(x), dtype=torch.float64, device=x.device)
    worst = 0.0
    each = x.element_size() * (6 * x.shape[1] + 6 * k + k**2) + 24 * k**2
    for rows in portions(len(x), each=each, memory=BLOCK.get(x.device.type, 2**23)):
        codes[rows], gap = _likeliest(x[rows], codes[rows], both, tol, max_iter)
        worst = max(worst, gap)
        hit, miss = (codes[rows] @ part for part in both)  # zeros are zeros here
        chance = torch.where(x[rows] > 0, hit, miss)
        values[rows] = chance.log_().sum(1, dtype=torch.float64)
    return Codes(codes, values, worst)


def _likeliest(
    x: Tensor, z: Tensor, both: Tensor, tol: float, max_iter: int
) -> tuple[Tensor, float]:
    """Codes, each until its gap is at most `tol`, and the largest gap."""
    B, C = both.clamp(min=floor(x.dtype))
    found, gap, active = z.clone(), x.new_zeros(len(z)), torch.arange(len(z), device=z.device)
    s = torch.ones_like(z)
    for step in range(max_iter + 1):
        hit, miss = ratios(x, z, B, C)
        M = gradient(hit, miss, B, C)
        total = z.sum(1, keepdim=True)
        found[active], gap[active] = z / total, (M * total).amax(1) - 1
        left = (gap[active] > tol).nonzero()[:, 0]
        if not len(left) or step == max_iter:
            break
        if len(left) < len(active):
            x, z, s, M, active = x[left], z[left], s[left], M[left], active[left]
            hit, miss = hit[left], miss[left]
        if step < STEPS:
            z, s = _newton(z, s, M, _curvature(z, hit, miss, B, C))
        else:
            z = z * M / (z * M).sum(1, keepdim=True)
    return found, float(gap.max())


def _curvature(
    z: Tensor, hit: Tensor, miss: Tensor, B: Tensor, C: Tensor
) -> Float[Tensor, " r k k"]:
    """The R."""
    hit, miss = hit.square().T, miss.square().T
    made = [torch.addmm((b * B) @ hit, c * C, miss) for b, c in zip(B, C, strict=True)]
    return torch.stack(made).permute(2, 0, 1) / len(hit) * z[:, :, None] * z[:, None]


def _newton(
    z: Tensor, s: Tensor, M: Tensor, R: Float[Tensor, " r k k"]
) -> tuple[Float[Tensor, " r k"], Float[Tensor, " r k"]]:
    """Codes and multipliers after a step; by EM where it is not finite."""
    wide, t, slope = z.double(), s.double(), 1 - M.double()
    product = wide * t
    mu = CLOSER * product.mean(1, keepdim=True)
    system = R.double() + torch.diag_embed(product)
    u = torch.linalg.solve_ex(system, mu - wide * slope).result
    after, other = wide * (1 + _length(u) * u), mu / wide - t * u
    moved = (other - t) / t
    other = t * (1 + _length(moved) * moved)
    fine = (after.isfinite() & other.isfinite() & (after > 0) & (other > 0)).all(1, keepdim=True)
    after, other = after.to(z), other.to(s)
    return torch.where(fine, after, z * M), torch.where(fine, other, s)


def _length(u: Float[Tensor, " r k"]) -> Float[Tensor, " r 1"]:
    """The longest step, at most 1, after which 1 + u is positive."""
    return (INSIDE / (-u).amax(1, keepdim=True).clamp(min=INSIDE)).clamp(max=1)
