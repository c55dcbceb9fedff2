r"""Order statistics of chains: ranks as normal scores, medians, quantiles; all parameters at once.

The rank $r$ of a draw among $N$, averaged where draws are equal, becomes the normal score
$\Phi^{-1}\left((r - \tfrac38) / (N + \tfrac14)\right)$ (Blom). Twice a rank is an integer, so that
a table of $2 N - 1$ scores serves all parameters.
"""

import math

import torch
from torch import Tensor

__all__ = ["halves", "indicator", "normal_scores", "scores_and_median"]


def halves(x: Tensor) -> Tensor:
    """Each chain (..., chains, draws) as two of half the length; a draw in the middle is left."""
    half = x.shape[-1] // 2
    return torch.cat([x[..., :half], x[..., -half:]], -2)


def scores_and_median(x: Tensor) -> tuple[Tensor, Tensor]:
    """Normal scores of the draws of a parameter (P, chains, draws), and its median (P, 1, 1)."""
    flat = x.flatten(1)
    ordered, place = flat.sort(1)
    n = flat.shape[1]
    median = (ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2
    found = torch.empty_like(flat).scatter_(1, place, _scores(ordered))
    return found.view(x.shape), median[:, None, None]


def normal_scores(x: Tensor) -> Tensor:
    """Normal scores of the draws of each parameter, (P, chains, draws)."""
    return scores_and_median(x)[0]


def _scores(ordered: Tensor) -> Tensor:
    """The scores of numbers in ascending order, (P, N) or one row for all where no two are equal.

    Equal numbers from the place i to the place j have the average rank (i + j) / 2 + 1.
    """
    n = ordered.shape[1]
    twice = torch.arange(2 * n - 1, dtype=ordered.dtype, device=ordered.device)
    table = torch.special.ndtri((twice / 2 + 1 - 3 / 8) / (n - 2 * 3 / 8 + 1))
    new = ordered[:, 1:] != ordered[:, :-1]
    if bool(new.all()):
        return table[::2].expand_as(ordered)
    places = torch.arange(n, device=ordered.device)
    edge = torch.ones_like(new[:, :1])
    first = torch.where(torch.cat([edge, new], 1), places, 0).cummax(1).values
    last = torch.where(torch.cat([new, edge], 1), places, n).flip(1).cummin(1).values.flip(1)
    return table[first + last]


def indicator(x: Tensor, ordered: Tensor, prob: float) -> Tensor:
    """Whether draws (P, chains, draws) are at most their quantile, as numbers 0 and 1.

    The quantile interpolates between the neighbours in ascending order as NumPy does, from the
    nearer one, so that it is a draw where it falls on one.
    """
    place = (ordered.shape[1] - 1) * prob
    below = min(math.floor(place), ordered.shape[1] - 2)
    a, b, t = ordered[:, below], ordered[:, below + 1], place - below
    quantile = a + (b - a) * t if t < 0.5 else b - (b - a) * (1 - t)
    return (x <= quantile[:, None, None]).to(x.dtype)
