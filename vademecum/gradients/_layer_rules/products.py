r"""Rules for products with a matrix: linear layers, embeddings, and tensors without a layer.

The gradient is $\sum_t b_t a_t^T$, written to where it belongs without a copy in between; for an
embedding, which is a product with rows of the identity matrix, $b_t$ is added to the row of the
token. Exact up to rounding.
"""

from typing import Any

import torch
from torch import Tensor

__all__ = [
    "Out", "copy", "embedding", "linear", "put", "put_total", "tokens_of", "transposed",
]  # fmt: skip

_ONE_BY_ONE = {"cpu"}  # devices where products for several backward passes go best one by one
Out = dict[str, Tensor]
"""Where gradients go: tensors `(n, g, *shape)` by the layer's own names of its parameters."""


def put(out: Tensor, value: Tensor, *, add: bool) -> None:
    """Write gradients, or add them to those of earlier uses of the parameter."""
    if add:
        out.add_(value)
    else:
        out.copy_(value)


def put_total(out: Tensor, x: Tensor, over: list[int], *, add: bool) -> None:
    """Write, or add, the sums of what is (g, n, ...) over some of the further axes."""
    x = x.transpose(0, 1)
    if over and not add:
        torch.sum(x, over, dtype=out.dtype, out=out)
    else:  # to torch, no axes are all axes
        put(out, x.sum(over) if over else x, add=add)


def linear(layer: Any, a: Tensor, b: Tensor, out: Out, *, add: bool) -> None:
    """The gradients for z = W a + c."""
    if "bias" in out:
        put_total(out["bias"], b, list(range(2, b.ndim - 1)), add=add)
    if "weight" in out:
        _outer(out["weight"], a, b, left=False, add=add)


def transposed(layer: Any, a: Tensor, b: Tensor, out: Out, *, add: bool) -> None:
    """The gradients for z = W^T a + c."""
    if "bias" in out:
        put_total(out["bias"], b, list(range(2, b.ndim - 1)), add=add)
    if "weight" in out:
        _outer(out["weight"], a, b, left=True, add=add)


def _outer(out: Tensor, a: Tensor, b: Tensor, *, left: bool, add: bool) -> None:
    """The sums over t of outer products of `b` (g, n, ...) with `a` (n, ...), or with it `left`."""
    a, b = a.to(out.dtype), b.to(out.dtype)
    if a.ndim == 2:  # a single t
        one, other = (a[:, None], b.transpose(0, 1)) if left else (b.transpose(0, 1), a[:, None])
        if add:
            out.addcmul_(one[..., None], other[..., None, :])
        else:
            torch.mul(one[..., None], other[..., None, :], out=out)
        return
    a, b = a.flatten(1, -2), b.flatten(2, -2)
    if len(b) > 1 and out.device.type not in _ONE_BY_ONE:
        put(out, (a.mT @ b if left else b.mT @ a).transpose(0, 1), add=add)
        return
    for i, each in enumerate(b):
        one, other = (a, each) if left else (each, a)
        out[:, i].baddbmm_(one.mT, other, beta=int(add))


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
