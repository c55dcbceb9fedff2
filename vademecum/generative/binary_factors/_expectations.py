r"""The steps of EM for the aspect Bernoulli model, in portions of rows.

Each entry has a hidden component: $x_{ij} \sim \mathrm{Ber}(B_{kj})$ with $k \sim Z_i$. With $P = Z
B$ and $1 - P = Z (1 - B)$ the sums of the component's posterior over ones and over zeros are

$$G^1 = B \odot Z^\top (X / P), \quad G^0 = (1 - B) \odot Z^\top \big((1 - X) / (1 - P)\big), \qquad
B \leftarrow \frac{G^1}{G^1 + G^0},$$
$$Z \leftarrow Z \odot M, \qquad
M = \tfrac1d \big[(X / P) B^\top + ((1 - X) / (1 - P)) (1 - B)^\top\big].$$

Both use the same old factors. $M$ is the gradient in $Z$ of the mean log-likelihood of an entry.
The $1 - B$ is kept beside $B$, so that it has all its digits where $B$ is nearly one; both are at
least `floor(dtype)` within, so that no entry divides by zero. Exact up to rounding.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arrays import portions

__all__ = ["Pass", "floor", "gradient", "pass_over", "ratios"]

BLOCK = {"cpu": 2**20, "cuda": 2**28}  # bytes of a portion: a core's own cache, or a busy GPU


class Pass(NamedTuple):
    """New factors, and the log-likelihood of the old ones if it was asked for."""

    codes: Float[Tensor, " n k"]
    both: Float[Tensor, " 2 k d"]
    log_likelihood: float


def floor(dtype: torch.dtype) -> float:
    """The least probability that ratios are made of: its inverse is finite, its square is not 0."""
    return 1e-18 if dtype == torch.float32 else 1e-150


def _rows_of(x: Tensor, k: int) -> list[slice]:
    """Portions of rows that are worked on at a time."""
    each = x.element_size() * (4 * x.shape[1] + 3 * k)
    return portions(len(x), each=each, memory=BLOCK.get(x.device.type, 2**21))


def pass_over(
    x: Float[Tensor, " n d"],
    Z: Float[Tensor, " n k"],
    both: Float[Tensor, " 2 k d"],
    *,
    value: bool,
) -> Pass:
    """One iteration of EM, and the log-likelihood before it if `value`."""
    B, C = both.clamp(min=floor(x.dtype))
    ones, zeros, codes, total = torch.zeros_like(B), torch.zeros_like(B), torch.empty_like(Z), 0.0
    for rows in _rows_of(x, len(B)):
        z = Z[rows]
        hit, miss = ratios(x[rows], z, B, C)
        if value:
            total -= float((hit + miss).log_().sum(dtype=torch.float64))
        ones.addmm_(z.T, hit)
        zeros.addmm_(z.T, miss)
        codes[rows] = z * gradient(hit, miss, B, C)
    posterior = torch.stack([B * ones, C * zeros])
    mass = posterior.sum(0)
    both = torch.where(mass > 0, posterior / mass, both)  # a component that nobody uses stays
    return Pass(codes / codes.sum(1, keepdim=True), both, total)


def ratios(x: Tensor, z: Tensor, B: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
    """The X / P and (1 - X) / (1 - P)."""
    hit, miss = z @ B, z @ C
    return torch.div(x, hit, out=hit), torch.div(1 - x, miss, out=miss)


def gradient(hit: Tensor, miss: Tensor, B: Tensor, C: Tensor) -> Float[Tensor, " r k"]:
    """The M; its products are taken this way round since that is thrice as fast."""
    return torch.addmm(B @ hit.T, C, miss.T).div_(hit.shape[1]).T
