r"""What each parameter adds to a tangent kernel, in the cheapest exact way.

With gradients $\sum_t b_{ict} a_{it}^T$ in a weight $W \in \mathbb{R}^{m \times d}$, the inner
product for a pair of examples is either that of gradients which are formed, or

$$\Big\langle \sum_t b_{ict} a_{it}^T, \sum_s b_{jds} a_{js}^T \Big\rangle
= \sum_{t, s} \langle a_{it}, a_{js} \rangle \langle b_{ict}, b_{jds} \rangle,$$

a Gram matrix of activations times one of backward signals, to which a bias adds one to the first
factor. For $T$ times and $q$ inner products a pair ($k^2$ for all outputs, $k$ for a trace) that is

$$T^2 (d + q m) \quad\text{against}\quad q\, m d + k T m d\, (n_1 + n_2) / (n_1 n_2)$$

multiplications, and the cheaper one is taken. In an embedding only pairs of equal tokens count: $b$
is added up over equal tokens of an example, and either all pairs of examples with a token in common
are listed, or gradients in the rows for all tokens at hand are formed. Exact up to rounding.

References:
    Novak, Sohl-Dickstein and Schoenholz, Fast finite width neural tangent kernel, ICML, 2022.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vademecum.arrays import portions
from vademecum.kernels._pair_sums import PairSums
from vademecum.kernels._tangent_uses import Factors, Use, factors, formed, tokens

__all__ = ["Tangents", "add_parameters"]

Tangents = Mapping[str, list[Use] | Tensor]
"""The uses of each parameter, or its gradients (g, n, D) where no rule tells of them."""
_ELEMENTWISE = 8  # multiplications that an entry of a Gram matrix costs beside its inner product
_LISTED = 16  # times that of products of matrices, for pairs that are gathered one by one
_GATHERED = 2**25  # bytes of backward signals that are gathered at a time


def add_parameters(
    sums: PairSums, one: Tangents, other: Tangents, shapes: Mapping[str, Any], memory: int
) -> None:
    """Add the inner products of the gradients in all parameters.

    Args:
        sums: Where to add.
        one: What is known of the gradients of some examples.
        other: And of others.
        shapes: The shapes of the parameters by name.
        memory: The bytes of gradients to form at a time.
    """
    done: set[str] = set()
    for name in sorted(shapes, key=lambda name: len(shapes[name]) < 2):  # weights before biases
        u, v = one.get(name), other.get(name)
        if name in done or u is None or v is None:
            continue
        if isinstance(u, Tensor) or isinstance(v, Tensor) or not _factored(u, v, sums):
            if not _listed(sums, u, v):
                _add_formed(sums, u, v, shapes[name], memory)
            continue
        bias = u[0].names.get("bias")
        joint = bias is not None and all(_only_use(t.get(bias), t[name]) for t in (one, other))
        if joint and bias is not None:
            done.add(bias)
        _add_factors(sums, u, v, plus=float(joint))


def _only_use(uses: Any, of_weight: Any) -> bool:
    """Whether a bias is used with its weight and nowhere else."""
    if not isinstance(uses, list) or not isinstance(of_weight, list):
        return False
    return [use.call for use in uses] == [use.call for use in of_weight]


def _factored(u: list[Use], v: list[Use], sums: PairSums) -> bool:
    """Whether Gram matrices of factors are cheaper than gradients."""
    kinds = {use.kind for use in (*u, *v)}
    if kinds not in ({"product"}, {"transposed"}):
        return False
    (t1, d, m), (t2, _, _) = _sizes(u), _sizes(v)
    if t1 == t2 == 1:
        return True
    q = sums.g**2 if sums.full else sums.g
    entries = {"full": q, "diagonal": sums.g}.get(sums.outputs, 1)
    gram = t1 * t2 * (d + q * m + _ELEMENTWISE * entries)
    forming = sums.g * m * d * (t1 / sums.n2 + t2 / sums.n1)
    return gram < q * m * d + forming


def _sizes(uses: list[Use]) -> tuple[int, int, int]:
    """How many times there are, and how long the factors are."""
    each = [
        (f.b.shape[2], f.a[0].numel() // f.b.shape[2], f.b.shape[3]) for f in map(factors, uses)
    ]
    return sum(t for t, _, _ in each), each[0][1], each[0][2]


def _joined(uses: list[Use]) -> Factors:
    """The factors of all uses, one after the other along time."""
    each = [factors(use) for use in uses]
    a = [f.a.reshape(len(f.a), f.b.shape[2], -1) for f in each]
    if len(each) == 1:
        return Factors(a[0], each[0].b)
    return Factors(torch.cat(a, 1), torch.cat([f.b for f in each], 2))


def _add_factors(sums: PairSums, u: list[Use], v: list[Use], *, plus: float) -> None:
    (a1, b1), (a2, b2) = _joined(u), _joined(v)
    if a1.shape[1] == a2.shape[1] == 1:
        weights = (a1[:, 0] @ a2[:, 0].T).add_(plus)
        sums.add(b1[:, :, 0], b2[:, :, 0], weights)
    else:
        sums.add_over_times((a1, a2), (b1, b2), plus)


def _add_formed(sums: PairSums, u: Any, v: Any, shape: torch.Size, memory: int) -> None:
    """From gradients that are formed, in as many rows of the parameter as there is room for."""
    n = shape[0] if shape else 1
    each = (sums.n1 + sums.n2) * sums.g * 8 * shape.numel() // n
    for units in portions(n, each=each, memory=memory):
        one = _gradients(u, shape, units)
        sums.add(one, one if v is u else _gradients(v, shape, units))


def _gradients(uses: Any, shape: torch.Size, units: slice) -> Tensor:
    if isinstance(uses, list):
        return formed(uses, shape, units)
    return uses.unflatten(2, (shape[0], -1))[:, :, units].flatten(2) if shape else uses


def _listed(sums: PairSums, u: Any, v: Any) -> bool:
    """Whether an embedding's inner products were added, over the tokens that are there."""
    if not all(isinstance(t, list) and {use.kind for use in t} == {"tokens"} for t in (u, v)):
        return False
    (i, of_i, b1), (j, of_j, b2) = _by_token(u), _by_token(v)
    names, code = torch.unique(torch.cat([of_i, of_j]), return_inverse=True)
    of_i, of_j = code[: len(i)], code[len(i) :]
    counts = torch.bincount(of_j, minlength=len(names))
    pairs = counts[of_i]
    if _LISTED * int(pairs.sum()) > sums.n1 * sums.n2 * len(names):
        _add_compact(sums, (i, of_i, b1), (j, of_j, b2), len(names))
        return True
    order, first = of_j.argsort(stable=True), counts.cumsum(0) - counts
    size = b1.shape[0] * b1.shape[2] * b1.element_size() * 2
    ends = pairs.cumsum(0)
    step = max(1, _GATHERED // size)
    while len(i):
        take = max(1, int((ends <= step).sum()))
        p = torch.repeat_interleave(torch.arange(take, device=i.device), pairs[:take])
        within = torch.arange(len(p), device=i.device) - (ends[:take] - pairs[:take])[p]
        q = order[first[of_i[:take]][p] + within]
        sums.add_at(i[:take][p], j[q], b1[:, :take][:, p], b2[:, q])
        i, of_i, b1, pairs = i[take:], of_i[take:], b1[:, take:], pairs[take:]
        ends = pairs.cumsum(0)
    return True


def _by_token(uses: list[Use]) -> tuple[Tensor, Tensor, Tensor]:
    """Examples, tokens, and the sums of what comes back to these, (g, pairs of both, d)."""
    each = [tokens(use) for use in uses]
    rows, b = torch.cat([t.rows for t in each], 1), torch.cat([t.b for t in each], 2)
    n, width = len(rows), int(rows.max()) + 1
    codes = rows + width * torch.arange(n, device=rows.device)[:, None]
    found, where = torch.unique(codes.flatten(), return_inverse=True)
    total = b.new_zeros(len(b), len(found), b.shape[-1])
    total.index_add_(1, where, b.flatten(1, 2))
    return found // width, found % width, total


def _add_compact(sums: PairSums, one: Any, other: Any, size: int) -> None:
    """From gradients in the rows of those tokens that are there."""
    dense = []
    for n, (i, of_i, b) in ((sums.n1, one), (sums.n2, other)):
        into = b.new_zeros(len(b), n * size, b.shape[-1])
        dense.append(into.index_copy_(1, i * size + of_i, b).view(len(b), n, -1))
    sums.add(*dense)
