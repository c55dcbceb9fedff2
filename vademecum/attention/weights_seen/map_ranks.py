r"""How attention makes tokens alike: ranks of its maps, and distances of tokens from rank one.

The *stable rank* of a map is $\|A\|_F^2 / \|A\|_2^2$, between 1, where all queries look at the same
keys, and the rank. Attention alone, without residual paths and networks of positions, drives tokens
$X$ to a common value, doubly exponentially with depth; what is left is

$$\frac{\|X - \mathbf 1 \bar x^\top\|_F}{\|X\|_F}, \qquad \bar x = \tfrac1T X^\top \mathbf 1 ,$$

and the mean is the nearest token in this norm. Small maps have their norms by a dense eigenvalue
problem; large ones by the method of Lanczos for $A^\top A$, from the vector of ones: maps have no
negative entry, so the singular vector has none, and the start cannot miss it. A map that does not
fit into memory is computed again for each product, a block of rows at a time.

References:
    Dong, Cordonnier and Loukas, Attention is not all you need: pure attention loses rank doubly
    exponentially with depth, ICML, 2021.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arrays import portions
from vademecum.attention.weights_seen._passes import Layers, catch
from vademecum.attention.weights_seen._seen_calls import Seen
from vademecum.attention.weights_seen._tables import by_head
from vademecum.foundations import LinearOperator, eigsh
from vademecum.results import one_line

__all__ = ["AttentionRank", "attention_rank"]

_DENSE = 128  # keys or queries up to which a dense eigenvalue problem is the faster way


class AttentionRank(NamedTuple):
    """Ranks of maps, and how far tokens are from being all alike.

    Example:
        >>> x = torch.zeros(1, 3, 4)  # all queries look alike
        >>> attention_rank(nn.MultiheadAttention(4, 2, batch_first=True), (x, x, x)).by_head
        tensor([[1., 1.]])
    """

    names: tuple[str, ...]
    """The modules whose code called attention, in order."""
    stable_rank: tuple[Tensor, ...]
    """For each call the stable ranks of its maps, of shape (n, heads); 0 for a map of zeros, NaN
    for one that is not finite."""
    before: Float[Tensor, " layers"]
    """The tokens' distance from rank one as they come to the module that attends, the mean over
    examples; NaN where no input has the shape of tokens."""
    after: Float[Tensor, " layers"]
    """The same for what leaves it, before anything is added to it."""
    unseen: tuple[str, ...]
    """Modules that are called attention and of which no call was seen."""

    __repr__ = one_line

    @property
    def by_head(self) -> Float[Tensor, " layers heads"]:
        """Stable ranks, the means over examples; NaN where a layer has fewer heads than another."""
        return by_head(self.stable_rank)


def attention_rank(
    model: nn.Module, x: Any, *, layers: Layers = None, memory: int | None = None
) -> AttentionRank:
    """Stable ranks of every head's maps, and the tokens' distance from rank one, layer by layer.

    Args:
        model: Any module, taken in evaluation mode.
        x: Its input: a tensor, a tuple or a dict.
        layers: Which calls to look at: names of modules (also of those that contain them), or
            numbers of calls from 0; all by default.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. What
            the model's own pass takes is its business.

    Raises:
        ValueError: If no call can be seen, or none of those that are asked for.

    Example:
        >>> from vademecum.attention import MultiHeadAttention
        >>> model = nn.Sequential(*(MultiHeadAttention(8, 2) for _ in range(4)))
        >>> found = attention_rank(model, torch.randn(5, 7, 8))
        >>> bool(found.after[-1] < 1e-3 < found.before[0])  # attention alone makes tokens alike
        True
    """
    calls, unseen = catch(model, x, layers, lambda seen: _ranks(seen, memory))
    means = [
        [math.nan if each is None else float(each.mean()) for each in (seen.before, seen.after)]
        for seen in calls
    ]
    before, after = torch.tensor(means).T
    names, ranks = tuple(s.name for s in calls), tuple(s.value for s in calls)
    return AttentionRank(names, ranks, before, after, unseen)


def _ranks(seen: Seen, memory: int | None) -> Tensor:
    n, heads, T, S = seen.shape
    found = torch.zeros(n, heads, dtype=seen.dtype, device=seen.device)
    if min(T, S) <= _DENSE and seen.bytes_of_row * T <= seen.limit(memory):
        for block in seen.blocks(memory):
            A = seen.rows(block)
            gram = A @ A.mT if T <= S else A.mT @ A
            norm = torch.linalg.eigvalsh(gram.nan_to_num())[..., -1]
            found[block[:2]] = A.square().sum((2, 3)) / norm.where(norm > 0, 1)
        return found
    for i in range(n):
        for j in range(heads):
            found[i, j] = _large_rank(seen, i, j, memory)
    return found


def _large_rank(seen: Seen, i: int, j: int, memory: int | None) -> float:
    """The stable rank of one map, which is kept if there is room for it."""
    _, _, T, S = seen.shape
    row, limit = seen.bytes_of_row, seen.limit(memory if memory is not None else 2**30)
    place = (slice(i, i + 1), slice(j, j + 1))
    parts = portions(T, each=row, memory=limit)
    kept = seen.rows((*place, parts[0]))[0, 0] if len(parts) == 1 else None
    square = 0.0

    def blocks():
        for part in parts:
            yield kept if kept is not None else seen.rows((*place, part))[0, 0]

    for A in blocks():
        square += float(A.square().sum())

    def gram(v: Tensor) -> Tensor:
        total = torch.zeros_like(v)
        for A in blocks():
            total += A.mT @ (A @ v)
        return total

    if not square or math.isnan(square):
        return square
    op = LinearOperator((S, S), gram, gram, dtype=seen.dtype, device=seen.device)
    ones = torch.ones(S, dtype=seen.dtype, device=seen.device)
    top = eigsh(op, 1, degenerate=False, v0=ones, symmetry_tol=math.inf, tol=1e-3).values
    return square / float(top)
