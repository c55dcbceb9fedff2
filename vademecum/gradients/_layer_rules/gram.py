r"""Norms of gradients in a weight from inner products, without the gradient.

A gradient $\sum_t l_t r_t^T$ (linear layers: $l = b$, $r = a$; embeddings: $l_t$ is the row of the
identity matrix for token $t$, $r = b$) has the squared norm $\sum_{t, u} \langle l_t, l_u \rangle
\langle r_t, r_u \rangle$, which for a single $t$ is $\|l\|^2 \|r\|^2$ (Goodfellow). The gradient of
a weight with several uses is a sum over these as well: with $l_t$ of an embedding and $l'_u$ of a
head that share a matrix, $\langle l_t, l'_u \rangle$ is the entry of $l'_u$ for token $t$.

Exact up to rounding, which is that of squares: see `vademecum.gradients.example_norms`.

References:
    Goodfellow, Efficient per-example gradient computations, arXiv:1510.01799, 2015.
    Bu, Mao and Xu, Scalable and efficient training of large convolutional neural networks with
    differential privacy, NeurIPS, 2022.
"""

from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.gradients._layer_rules.convolutions import padded, patches_of
from vademecum.gradients._layer_rules.products import tokens_of

__all__ = [
    "Factors", "gram_is_smaller", "of_convolution", "of_embedding", "of_linear", "of_transposed",
    "squared_norm",
]  # fmt: skip


class Factors(NamedTuple):
    """Vectors (n, groups, t, ...) whose outer products add up.

    Tokens (n, groups, t) on the left stand for rows of the identity matrix.
    """

    left: Tensor
    right: Tensor


def of_linear(layer: Any, a: Tensor, b: Tensor) -> Factors:
    """What and whose products are added in a linear layer."""
    return Factors(_over_time(b[0]), _over_time(a))


def of_transposed(layer: Any, a: Tensor, b: Tensor) -> Factors:
    """Likewise for a weight that lies the other way round."""
    return Factors(_over_time(a), _over_time(b[0]))


def _over_time(x: Tensor) -> Tensor:
    return x[:, None].flatten(1, -2)[:, None]


def of_embedding(layer: Any, a: Tensor, b: Tensor) -> Factors:
    """Likewise for an embedding."""
    tokens, b = tokens_of(layer, a, b)
    return Factors(tokens[:, None], b[0][:, None])


def of_convolution(layer: Any, a: Tensor, b: Tensor) -> Factors:
    """Likewise for a convolution, group by group."""
    b = b[0].flatten(2).unflatten(1, (layer.groups, -1)).mT
    return Factors(b, patches_of(layer, padded(layer, a)).reshape(*b.shape[:2], -1, b.shape[2]).mT)


def gram_is_smaller(times: int, size: int) -> bool:
    """Whether two Gram matrices over all `times` are smaller than a gradient of `size` entries."""
    return times == 1 or 2 * times**2 < size


def squared_norm(uses: list[Factors]) -> Tensor:
    """The squared norms (n,) of the sum of all products."""
    if len(uses) == 1 and uses[0].right.shape[2] == 1 and uses[0].left.ndim == 4:
        left, right = uses[0]
        return (left.square().sum(-1) * right.square().sum(-1)).flatten(1).sum(1)
    norms = []
    for one, other in combinations_with_replacement(uses, 2):
        products = _left_products(one.left, other.left) * (one.right @ other.right.mT)
        norms.append(products.flatten(1).sum(1) * (1 if one is other else 2))
    return torch.stack(norms).sum(0)


def _left_products(one: Tensor, other: Tensor) -> Tensor:
    """Inner products (n, groups, t, u) of vectors, or of tokens that stand for such."""
    if one.ndim == other.ndim == 3:
        return one[..., :, None] == other[..., None, :]
    if one.ndim == 3:
        return _left_products(other, one).mT
    if other.ndim == 3:
        return one.gather(-1, other[..., None, :].expand(*one.shape[:-1], -1))
    return one @ other.mT
