r"""Windows around words, as bands of dense matrices.

A block has $N$ words $w_1, \dots, w_N$ and the $c$ before and after them. It is cut into pieces of
$L \ge 2 c$ words; the words of a piece meet those within reach, $L + 2 c$ of them, in one dense
product of $L \times (L + 2 c)$ scores, of which the band $0 < |s - t| \le r_t$ counts. So a word's
vector is gathered once and not for each of its pairs. Exact: all pairs, and no other, also across
the ends of pieces and blocks; none across the ends of texts.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from vademecum.language._corpora import Portion

__all__ = ["band", "offsets", "piece", "stretches", "unfold"]

_OUTSIDE = -1  # the text of what is no word


def piece(c: int) -> int:
    """The length of a piece: a power of two, long enough that only neighbours overlap.

    Example:
        >>> piece(5), piece(20)
        (16, 64)
    """
    return max(16, 1 << (2 * c - 1).bit_length())


def stretches(portions: Iterable[Portion], c: int) -> Iterator[Portion]:
    """Portions with the c words before and after them; each word is within just one of them.

    Where there is nothing before or after, the text's number is -1.
    """
    nothing = Portion(np.zeros(c, np.int32), np.full(c, _OUTSIDE, np.int32))
    before = nothing
    for portion in portions:
        joined = _join(before, portion)
        if len(joined.ids) > 2 * c:
            yield joined
            joined = Portion(joined.ids[-2 * c :], joined.texts[-2 * c :])
        before = joined
    last = _join(before, nothing)
    if len(last.ids) > 2 * c:
        yield last


def _join(one: Portion, other: Portion) -> Portion:
    ids, texts = (np.concatenate(pair) for pair in zip(one, other, strict=True))
    return Portion(ids, texts)


def offsets(c: int, device: torch.device) -> Tensor:
    """Distances of the words of a piece, (L, L + 2 c); to itself a word is farther than all."""
    L = piece(c)
    here, there = torch.arange(L, device=device), torch.arange(L + 2 * c, device=device)
    distance = (there - c - here[:, None]).abs()
    return distance.masked_fill_(distance == 0, 2 * L)


def unfold(x: Tensor, L: int, c: int) -> Tensor:
    """The rows within reach of each piece, (N / L, L + 2 c, ...), a view of (N + 2 c, ...).

    Example:
        >>> unfold(torch.arange(6), 2, 1)
        tensor([[0, 1, 2, 3],
                [2, 3, 4, 5]])
    """
    pieces = (len(x) - 2 * c) // L
    rest, strides = x.shape[1:], x.stride()
    return x.as_strided((pieces, L + 2 * c, *rest), (L * strides[0], *strides))


def band(texts: Tensor, reach: Tensor, distance: Tensor, c: int) -> Tensor:
    """Which pairs count: those of one text, as near as the first of them reaches.

    Args:
        texts: The texts of the words of a block and around it, (N + 2 c,).
        reach: How far each word of the block reaches, (N,).
        distance: What `offsets` gives.
        c: The farthest reach.

    Returns:
        Booleans, (N / L, L, L + 2 c).
    """
    L = len(distance)
    around, own = unfold(texts, L, c), texts[c : len(texts) - c]
    near = distance <= reach.view(-1, L, 1)
    return near.logical_and_(around[:, None] == own.view(-1, L, 1))
