r"""Rules for products with a matrix: linear layers, embeddings, and tensors without a layer.

The gradient is $\sum_t b_t a_t^T$, written to where it belongs without a copy in between; for an
embedding, which is a product with rows of the identity matrix, $b_t$ is added to the row of the
token. Exact up to rounding.
"""

from typing import Any

import torch
from torch import Tensor

__all__ = ["Out", "copy", "embedding", "linear", "put", "tokens_of", "total", "transposed"]

Out = dict[str, Tensor]
"""Where gradients go: tensors `(n, g, *shape)` by the layer's own names of its parameters."""


def put(out: Tensor, value: Tensor, *, add: bool) -> None:
    """Write gradients, or add them to those of earlier uses of the parameter."""
    if add:
        out.add_(value)
    else:
        out.copy_(value)


def total(x: Tensor, over: list[int]) -> Tensor:
    """The sum over some axes; to torch, no axes are all axes."""
    return x.sum(over) if over else x


def linear(layer: Any, a: Tensor, b: Tensor, out: Out, *, add: bool) -> None:
    """The gradients for z = W a + c."""
    if "bias" in out:
        put(out["bias"], total(b, list(range(2, b.ndim - 1))).movedim(0, 1), add=add)
    if "weight" in out:
        _outer(out["weight"], b, a[None], add=add)


def transposed(layer: Any, a: Tensor, b: Tensor, out: Out, *, add: bool) -> None:
    """The gradients for z = W^T a + c."""
    if "bias" in out:
        put(out["bias"], total(b, list(range(2, b.ndim - 1))).movedim(0, 1), add=add)
    if "weight" in out:
        _outer(out["weight"], a[None], b, add=add)


def _outer(out: Tensor, left: Tensor, right: Tensor, *, add: bool) -> None:
    """The sums over t of outer products; one of the sides is the same for all backward passes."""
    left, right = left.to(out.dtype), right.to(out.dtype)
    if left.ndim == 3:  # a single t
        columns, rows = left.movedim(0, 1)[..., None], right.movedim(0, 1)[..., None, :]
        if add:
            out.addcmul_(columns, rows)
        else:
            torch.mul(columns, rows, out=out)
        return
    left, right = left.flatten(2, -2).mT, right.flatten(2, -2)
    for i in range(out.shape[1]):
        out[:, i].baddbmm_(left[i % len(left)], right[i % len(right)], beta=int(add))


def embedding(layer: Any, a: Tensor, b: Tensor, out: Out, *, add: bool) -> None:
    """The gradients for z = W[a]."""
    weight = out["weight"] if add else out["weight"].zero_()
    tokens, b = tokens_of(layer, a, b)
    index = tokens[:, None, :, None].expand(-1, len(b), -1, b.shape[-1])
    weight.scatter_add_(2, index, b.movedim(0, 1).to(weight.dtype))


def tokens_of(layer: Any, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (n, t) and what comes back to them (g, n, t, d), nothing to the padding."""
    tokens, b = a.reshape(len(a), -1), b.reshape(*b.shape[:2], -1, b.shape[-1])
    if layer.padding_idx is not None:
        b = b.masked_fill((tokens == layer.padding_idx)[..., None], 0)
    return tokens, b


def copy(layer: Any, a: Tensor, b: Tensor, out: Out, *, add: bool) -> None:
    """The gradients of a tensor of which every example had a copy."""
    put(out["value"], b.movedim(0, 1).reshape(out["value"].shape), add=add)
