r"""Attention by its definition: all scores, all weights, all averages.

With queries $Q \in \mathbb R^{T \times d}$, keys $K \in \mathbb R^{S \times d}$ and values
$V \in \mathbb R^{S \times d_v}$,

$$\mathrm{attention}(Q, K, V) = A V, \qquad
A = \mathrm{softmax}\Big(\tfrac1{\sqrt d}\, Q K^\top\Big),$$

where the softmax is taken over the keys, row by row, and scores that a mask forbids count as
$-\infty$. A query that may look at no key has no average to give: its weights, its output and its
gradients are zero.

Exact up to rounding, and dense: the weights take $T S$ numbers. What trains and generates uses
`MultiHeadAttention`, whose fused kernels this function is the oracle of. The claims are
`scaled_dot_product`, `softmax_weights` and `causal_mask`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vademecum.arguments import broadcasting, number
from vademecum.attention._masks import bottom_right, insist_on_booleans
from vademecum.results import one_line

__all__ = ["Attention", "attention"]


class Attention(NamedTuple):
    """What attention gives, and where it looked.

    Example:
        >>> one = torch.ones(1, 2)
        >>> attention(one, one, one)
        Attention(output=tensor([[1., 1.]]), weights=tensor([[1.]]))
    """

    output: Float[Tensor, " *batch T d"]
    """The averages of the values, one for each query."""
    weights: Float[Tensor, " *heads T S"]
    """The weights of the keys, for each query; they sum to one, or are all zero without a key."""

    __repr__ = one_line


def attention(
    q: Float[Tensor, " *batch T d"],
    k: Float[Tensor, " *others S d"],
    v: Float[Tensor, " *more S dv"],
    *,
    mask: Bool[Tensor, " ..."] | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Attention:
    r"""Average values by how well their keys match each query.

    Leading axes broadcast. Numbers of half precision are widened to float32 on the way.

    Args:
        q: Queries.
        k: Keys, as wide as the queries.
        v: Values, one for each key.
        mask: True where a query may look at a key; broadcasts to the weights.
        causal: Whether a query looks at no key after its own time. The last query belongs to the
            last key: with fewer queries than keys these are the latest.
        scale: What scores are multiplied by; $1 / \sqrt d$ by default.

    Raises:
        ValueError: If shapes do not fit, dtypes or devices differ, or the mask is not boolean.

    Example:
        >>> k = torch.tensor([[0.0], [1.0], [1.0]])
        >>> v = torch.tensor([[6.0], [0.0], [3.0]])
        >>> q = torch.tensor([[torch.tensor(3.0).log()]])  # the last two keys weigh three times
        >>> output, weights = attention(q, k, v)
        >>> [round(w, 4) for w in weights[0].tolist()], round(output.item(), 4)
        ([0.1429, 0.4286, 0.4286], 2.1429)
        >>> attention(q, k, v, mask=torch.tensor([[False, False, False]])).output
        tensor([[0.]])
    """
    _insist_on_shapes(q, k, v)
    d, shape = q.shape[-1], (q.shape[-2], k.shape[-2])
    factor = d**-0.5 if scale is None else number("scale", scale)
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = factor * (q.to(wide) @ k.to(wide).mT)
    if mask is not None:
        broadcasting(
            "mask and weights", {"mask": insist_on_booleans(mask), "weights": scores.shape}
        )
    if causal:
        earlier = bottom_right(*shape, q.device)
        mask = earlier if mask is None else mask & earlier
    if mask is None:
        weights = scores.softmax(-1)
    else:
        alone = ~mask.any(-1, keepdim=True)
        scores = scores.masked_fill(~(mask | alone), -torch.inf)
        weights = scores.softmax(-1).masked_fill(alone, 0)
    return Attention((weights @ v.to(wide)).to(q.dtype), weights.to(q.dtype))


def _insist_on_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim < 2:
            given = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"{name} must be a floating-point tensor (..., T, d), got {given}")
        if (x.dtype, x.device) != (q.dtype, q.device):
            place = f"{q.dtype} on {q.device}"
            raise ValueError(f"{name} must be {place} as q is, got {x.dtype} on {x.device}")
    if not q.shape[-1]:
        raise ValueError("q must be at least 1 wide, got 0")
    if k.shape[-1] != q.shape[-1]:
        raise ValueError(f"k must be as wide as q, got {k.shape[-1]} and {q.shape[-1]}")
    if v.shape[-2] != k.shape[-2]:
        raise ValueError(f"v must have a value for each key, got {v.shape[-2]} and {k.shape[-2]}")
    leading = {"q": q.shape[:-2], "k": k.shape[:-2], "v": v.shape[:-2]}
    broadcasting("leading axes", leading)
