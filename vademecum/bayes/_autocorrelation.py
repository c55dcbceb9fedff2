r"""The effective number of draws from autocorrelations, for many parameters at once.

For $m$ chains of $n$ draws with the mean within-chain variance $W$ and the variance $B / n$ of
their means, $\widehat{\mathrm{var}}^+ = \frac{n - 1}n W + \frac B n$ and

$$\hat\rho_t = 1 - \frac{W - \frac1m \sum_j \hat s_{t, j}}{\widehat{\mathrm{var}}^+}, \qquad
\hat\tau = -1 + 2 \sum_{k < K} \hat P_k + \hat\rho_{2 K}, \qquad
\hat P_k = \min_{l \le k} (\hat\rho_{2 l} + \hat\rho_{2 l + 1}),$$

where $\hat s_{t, j}$ are autocovariances divided by n, and the pair $K$ is the first whose sum is
not positive (Geyer's initial monotone sequence); $\hat\rho_{2 K}$ counts if it is positive. The
number is $m n / \hat\tau$, at most $m n \log_{10}(m n)$. The mean over chains is taken of power
spectra, so that one inverse transform serves a parameter. Exact up to rounding.
"""

import math

import torch
from scipy.fft import next_fast_len
from torch import Tensor

__all__ = ["effective_number"]


def effective_number(x: Tensor) -> Tensor:
    """How many independent draws the chains (P, chains, draws) are worth, (P,).

    Where all draws of a parameter are equal it is their number.
    """
    _, m, n = x.shape
    low, high = x.amin((1, 2)), x.amax((1, 2))
    still = low == high
    x = (x - low[:, None, None]) / torch.where(still, 1, high - low)[:, None, None]
    rho = torch.where(still[:, None], 0.0, _autocorrelation(x, still))
    pairs = rho[:, : n // 2 * 2].view(len(x), -1, 2).sum(2)
    most = max((n - 1) // 2 - 1, 0)  # pairs that are looked at, beyond the first
    over = torch.cat([pairs[:, :most] <= 0, torch.ones_like(still)[:, None]], 1)
    K = over.to(torch.int8).argmax(1)
    counts = torch.arange(pairs.shape[1], device=x.device) < K[:, None]
    head = torch.where(counts, pairs.cummin(1).values, 0).sum(1)
    last = rho.gather(1, 2 * K[:, None])[:, 0]
    kept = pairs.gather(1, K[:, None])[:, 0] >= 0
    tau = -1 + 2 * head + torch.where(kept, last, last.clamp(min=0))
    tau = tau.clamp(min=1 / math.log10(m * n))
    return torch.where(still, float(m * n), m * n / tau)


def _autocorrelation(x: Tensor, still: Tensor) -> Tensor:
    _, m, n = x.shape
    means = x.mean(2)
    size = next_fast_len(2 * n, real=True)
    spectrum = torch.view_as_real(torch.fft.rfft(x - means[..., None], n=size))
    power = spectrum.square().sum(-1).mean(1)  # over chains
    covariance = torch.fft.irfft(power, n=size)[:, :n] / n
    within = covariance[:, :1] * n / (n - 1)
    total = covariance[:, :1] + (means.var(1)[:, None] if m > 1 else 0)
    rho = 1 - (within - covariance) / torch.where(still[:, None], 1, total)
    rho[:, 0] = 1
    return rho
