r"""Pointwise mutual information: how much more often two words meet than by chance.

$$\mathrm{pmi}(v, w) = \log \frac{P(v, w)}{P(v)\, P(w)}
= \log \frac{C_{vw}\, C_{\cdot\cdot}}{C_{v\cdot}\, C_{\cdot w}}$$

for a joint law $P$ or counts $C$, whose scale does not matter: 0 for independent words, positive
for pairs that are more frequent than chance, $-\infty$ for those never seen, and at most
$-\log \max(P(v), P(w))$. Its mean is the mutual information. Subtracting $\log k$ and cutting off
what is negative gives what skip-gram vectors with $k$ negative samples factorise, roughly. With a
power $\alpha$ the law of the columns becomes $P(w) \propto C_{\cdot w}^\alpha$, which takes from
rare contexts some of their weight.

Exact up to rounding: the ratio is computed in double precision as
$(C_{vw} / C_{v\cdot})(C_{\cdot\cdot} / C_{\cdot w})$, which neither overflows nor cancels. The
claims are `pmi`, `pmi_range` and `pmi_from_counts`.
"""

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, issparse
from torch import Tensor

from vademecum.arguments import number

__all__ = ["pmi"]


def pmi(
    counts: Any, *, positive: bool = False, shift: float = 0.0, context_power: float = 1.0
) -> Any:
    r"""Pointwise mutual information of all pairs, from their counts or probabilities.

    Args:
        counts: A table with a row for each word and a column for each context, at least 0: a
            tensor, an array or a sparse matrix of SciPy's; integers or floats.
        positive: Whether to put 0 in place of what is negative.
        shift: What to subtract, such as $\log k$ for $k$ negative samples.
        context_power: The power $\alpha$ of the law of the columns.

    Returns:
        A table of the same kind: tensors in their dtype if that is floating point, else in torch's
        default one; arrays and sparse matrices in double precision. Pairs never seen have
        $-\infty$, or 0 if `positive`; in a sparse matrix they are not stored.

    Raises:
        ValueError: If there are not two axes, a count is negative or not finite, all are 0, or a
            number is out of range.

    References:
        Church and Hanks, Word association norms, mutual information and lexicography, ACL, 1989.
        Levy, Goldberg and Dagan, Improving distributional similarity with lessons learned from
        word embeddings, TACL, 2015.

    Example:
        >>> pmi(torch.tensor([[2, 0], [1, 1]])).exp()  # 2 * 4 / (2 * 3) is 4 / 3
        tensor([[1.3333, 0.0000],
                [0.6667, 2.0000]])
    """
    number("shift", shift)
    number("context_power", context_power, low=0)
    if issparse(counts):
        return _sparse(counts, positive, shift, context_power)
    table = torch.as_tensor(counts)
    _insist(table.shape, table)
    c = table.double()
    rows, seen = c.sum(1, keepdim=True), c.sum(0)
    columns = _powers(seen, context_power)
    ratio = (
        c / torch.where(rows > 0, rows, 1) * (columns.sum() / torch.where(columns > 0, columns, 1))
    )
    found = ratio.log() - shift
    found = found.clamp(min=0) if positive else found
    if not isinstance(counts, Tensor):
        return found.numpy()
    return found.to(table.dtype if table.is_floating_point() else torch.get_default_dtype())


def _sparse(counts: Any, positive: bool, shift: float, context_power: float) -> csr_array:
    c = csr_array(counts, dtype=np.float64, copy=True)
    c.sum_duplicates()
    _insist(c.shape, torch.from_numpy(c.data))
    c.eliminate_zeros()
    rows, seen = c.sum(1), c.sum(0)
    columns = _powers(seen, context_power)
    per_row = np.repeat(rows, np.diff(c.indptr))
    c.data = np.log(c.data / per_row * (columns.sum() / columns[c.indices])) - shift
    if positive:
        np.maximum(c.data, 0, out=c.data)
        c.eliminate_zeros()
    return c


def _powers(seen: Any, power: float) -> Any:
    """Powers of sums, 0 where they are 0; up to a factor, so that large ones do not overflow."""
    return seen if power == 1 else (seen / seen.max()) ** power * (seen > 0)


def _insist(shape: Any, values: Tensor) -> None:
    if len(shape) != 2:
        raise ValueError(f"counts must have 2 axes, got shape {tuple(shape)}")
    if values.is_complex() or values.dtype == torch.bool:
        raise ValueError(f"counts must be numbers >= 0, got {values.dtype}")
    values = values.double()
    if values.numel() and not bool(values.isfinite().all() and values.min() >= 0):
        worst = values.flatten()[(~(values >= 0) | ~values.isfinite()).flatten().int().argmax()]
        raise ValueError(f"counts must be finite and >= 0, got {worst.item()}")
    if not values.any():
        raise ValueError(f"counts must not all be 0, got shape {tuple(shape)}")
    if not values.sum().isfinite():
        raise ValueError("counts must have a finite sum, got one beyond double precision")
