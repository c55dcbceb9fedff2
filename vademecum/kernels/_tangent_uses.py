r"""What the uses of a parameter tell of its gradients, and the gradients if they must be formed.

With $a_t$ for what went into a layer at time or position $t$ (for a convolution the patch that the
kernel sees) and $b_{ct}$ for what comes back to it from output $c$, the gradient of output $c$ in
the weight of a linear layer or convolution is $\sum_t b_{ct} a_t^T$; a weight with several uses has
the sum over all of them. Other parameters (biases, scales and shifts, tensors without a layer) keep
to the rules of `vademecum.gradients._layer_rules`. Exact up to rounding.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.arrays import empty
from vademecum.gradients._layer_rules import EMBEDDING, LINEAR, TRANSPOSED, Rule
from vademecum.gradients._layer_rules.convolutions import convolution, padded, patches_of

__all__ = ["Factors", "Tokens", "Use", "factors", "formed", "tokens"]

_PATCHES = {"cpu": 2**23}  # bytes of patches at a time, which are read as soon as written


class Use(NamedTuple):
    """One use of a parameter by a layer, with what went in and what comes back."""

    rule: Rule
    layer: Any
    names: dict[str, str]  # of the layer's parameters
    call: int  # which one of a pass
    own: str  # what the layer calls the parameter
    a: Tensor
    b: Tensor  # (g, n, ...)

    def scaled(self, scale: float) -> "Use":
        """With `scale` times the gradient; a bias has no share in its weight's call any more."""
        if self.kind in ("product", "transposed"):
            return self._replace(a=scale * self.a)
        return self._replace(b=scale * self.b, call=-1 - self.call)

    @property
    def kind(self) -> str:
        """Of what form the gradient is."""
        rule = self.rule
        if self.own != "weight":
            return "other"
        if rule is EMBEDDING:
            return "tokens"
        if rule.gradient is convolution:
            return "product" if self.layer.groups == 1 else "other"
        return {id(LINEAR): "product", id(TRANSPOSED): "transposed"}.get(id(rule), "other")


class Factors(NamedTuple):
    """Vectors a (n, t, d) and b (g, n, t, m) whose outer products add up, on views."""

    a: Tensor
    b: Tensor


class Tokens(NamedTuple):
    """Rows of a table that were looked up, (n, t), and what comes back to them, (g, n, t, d)."""

    rows: Tensor
    b: Tensor


def factors(use: Use) -> Factors:
    """The vectors whose products are the gradient of a weight, patches as views."""
    a, b = use.a, use.b
    if use.rule.gradient is convolution:
        seen = patches_of(use.layer, padded(use.layer, a))
        axes = (seen.ndim - 2) // 2
        seen = seen.permute(0, *range(2 + axes, 2 + 2 * axes), *range(1, 2 + axes))
        return Factors(seen, b.flatten(3).mT)
    return Factors(a.reshape(len(a), -1, a.shape[-1]), b.reshape(*b.shape[:2], -1, b.shape[-1]))


def tokens(use: Use) -> Tokens:
    """What was looked up in an embedding; nothing comes back to the padding."""
    rows, b = use.a.reshape(len(use.a), -1), use.b.reshape(*use.b.shape[:2], -1, use.b.shape[-1])
    padding = use.layer.padding_idx
    if padding is not None:
        b = b.masked_fill((rows == padding)[..., None], 0)
    return Tokens(rows, b)


def formed(uses: list[Use], shape: torch.Size, units: slice) -> Tensor:
    """The gradients (g, n, D) in some rows `units` of a parameter, as the sum over its uses."""
    g, n = uses[0].b.shape[:2]
    size = torch.Size([len(range(*units.indices(shape[0]))), *shape[1:]]) if shape else shape
    out = empty(g, n, size.numel(), dtype=uses[0].b.dtype, device=uses[0].b.device)
    for i, use in enumerate(uses):
        match use.kind:
            case "product" | "transposed":
                _products(use, out.view(g, n, size[0], -1), units, add=i > 0)
            case "tokens":
                _looked_up(use, out.view(g, n, size[0], -1), units, add=i > 0)
            case _:
                _by_rule(use, out, shape, units, add=i > 0)
    return out


def _products(use: Use, out: Tensor, units: slice, *, add: bool) -> None:
    """Sums over t of outer products, a few examples at a time."""
    a, b = factors(use)
    if use.kind == "transposed":
        _multiply(out, a[..., units].expand(len(b), *a[..., units].shape), b, add=add)
        return
    each = a[0].numel() * a.element_size()
    step = max(1, _PATCHES.get(a.device.type, 2**30) // each) if a.ndim > 3 else len(a)
    for start in range(0, len(a), step):
        here = slice(start, start + step)
        some = a[here].reshape(len(a[here]), b.shape[2], -1)
        right = some.expand(len(b), *some.shape)
        _multiply(out[:, here], b[:, here, :, units], right, add=add)


def _multiply(out: Tensor, left: Tensor, right: Tensor, *, add: bool) -> None:
    """Sums over t of products of (g, n, t, rows) with (g, n, t, columns), to (g, n, ...)."""
    if left.shape[2] == 1:
        columns, rows = left.mT, right
        out.addcmul_(columns, rows) if add else torch.mul(columns, rows, out=out)
        return
    for place, one, other in zip(out, left, right, strict=True):
        place.baddbmm_(one.mT, other, beta=int(add))


def _looked_up(use: Use, out: Tensor, units: slice, *, add: bool) -> None:
    if not add:
        out.zero_()
    rows, b = tokens(use)
    rows = rows - (units.start or 0)
    inside = (rows >= 0) & (rows < out.shape[2])
    index = torch.where(inside, rows, 0)[None, :, :, None].expand(b.shape)
    out.scatter_add_(2, index, b.masked_fill(~inside[..., None], 0))


def _by_rule(use: Use, out: Tensor, shape: torch.Size, units: slice, *, add: bool) -> None:
    g, n = use.b.shape[:2]
    own: dict[str, Any] = {use.own: out.new_empty(n, g, *shape)}
    use.rule.gradient(use.layer, use.a, use.b, own, add=False)
    found = own[use.own][:, :, units] if shape else own[use.own]
    found = found.movedim(0, 1).reshape(out.shape)
    out.add_(found) if add else out.copy_(found)
