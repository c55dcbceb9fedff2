r"""The steps of EM for the aspect Bernoulli model, in portions of rows.

Each entry has a hidden component: $x_{ij} \sim \mathrm{Ber}(B_{kj})$ with $k \sim Z_i$. With $P = Z
B$ and $1 - P = Z (1 - B)$ the sums of the component's posterior over ones and over zeros are

$$G^1 = B \odot Z^\top (X / P), \quad G^0 = (1 - B) \odot Z^\top \big((1 - X) / (1 - P)\big), \qquad
B \leftarrow \frac{G^1}{G^1 + G^0},$$
$$Z \leftarrow Z \odot M, \qquad
M = \tfrac1d \big[(X / P) B^\top + ((1 - X) / (1 - P)) (1 - B)^\top\big].$$

Both use the same old factors. $M$ is the gradient in $Z$ of the mean log-likelihood of an entry.
The $1 - B$ is kept beside $B$, so that it has all its digits where $B$ is nearly one; both are at
least `floor(dtype)` within, so that no entry divides by zero. Exact up to rounding. On the CPU each
thread takes portions of its own.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arrays import one_blas_thread, portions, views

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
    codes, parts = torch.empty_like(Z), _rows_of(x, len(B))
    work = partial(_strip, *views(x, Z, B, C, codes), value=value)
    workers = min(torch.get_num_threads(), len(parts)) if x.device.type == "cpu" else 1
    if workers == 1:
        strips = [work(parts)]
    else:
        with one_blas_thread(), ThreadPoolExecutor(workers) as pool:
            strips = list(pool.map(work, (parts[i::workers] for i in range(workers))))
    ones, zeros, total = (sum(part) for part in zip(*strips, strict=True))
    posterior = torch.stack([B * torch.as_tensor(ones), C * torch.as_tensor(zeros)])
    mass = posterior.sum(0)
    both = torch.where(mass > 0, posterior / mass, both)  # a component that nobody uses stays
    return Pass(codes / codes.sum(1, keepdim=True), both, float(total))


def _strip(
    x: Any, Z: Any, B: Any, C: Any, codes: Any, parts: list[slice], *, value: bool
) -> tuple[Any, Any, float]:
    """The sums over ones and over zeros, and the log-likelihood; writes new codes.

    NumPy's products of a portion take half as long as torch's on an EPYC.
    """
    ones, zeros, total = 0, 0, 0.0
    with np.errstate(all="ignore"):
        for rows in parts:
            z = Z[rows]
            hit, miss = ratios(x[rows], z, B, C)
            if value:
                total -= _sum_of_logs(hit + miss)
            ones, zeros = ones + z.T @ hit, zeros + z.T @ miss
            codes[rows] = z * gradient(hit, miss, B, C)
    return ones, zeros, total


def _sum_of_logs(a: Any) -> float:
    if isinstance(a, Tensor):
        return float(a.log_().sum(dtype=torch.float64))
    return float(np.log(a, out=a).sum(dtype=np.float64))


def ratios(x: Any, z: Any, B: Any, C: Any) -> tuple[Any, Any]:
    """The X / P and (1 - X) / (1 - P), of tensors or of arrays."""
    hit, miss = z @ B, z @ C
    over: Any = torch.div if isinstance(hit, Tensor) else np.divide
    return over(x, hit, out=hit), over(1 - x, miss, out=miss)


def gradient(hit: Any, miss: Any, B: Any, C: Any) -> Any:
    """The M, (r, k); torch takes a third of the time for its products this way round."""
    return (B @ hit.T + C @ miss.T).T / hit.shape[1]
