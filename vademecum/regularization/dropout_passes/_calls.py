r"""Every kind of dropout in torch as one call: what is dropped, at which rate, and what is left.

A kept number is divided by $1 - p$ and a dropped one is 0. Alpha dropout puts $-\alpha$,
$\alpha \approx 1.758$, in the place of a dropped number and then restores mean 0 and variance 1,

$$y = a\, (b\, x - \alpha (1 - b)) + a \alpha p, \qquad
a = \big((1 - p) (1 + \alpha^2 p)\big)^{-1/2},$$

for a mask $b$. Channel-wise kinds have one unit for each channel of an example.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.arguments import number

__all__ = ["KINDS", "Dropping", "attend", "dropping"]

_ALPHA = 1.7580993408473766  # the limit of SELU at minus infinity, with the other sign
KINDS = {
    *("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"),
    *("dropout1d", "dropout2d", "dropout3d"),
}
"""The functions of torch that drop, without the underscore of those in place."""
_WITHOUT_EXAMPLES = {"dropout1d": 2, "dropout3d": 4}  # axes of the input of one example alone


class Dropping(NamedTuple):
    """One call of dropout."""

    x: Tensor
    """What it is given."""
    p: float
    """The rate at which units are dropped."""
    shape: tuple[int, ...]
    """The shape of the mask, which broadcasts."""
    alpha: bool
    """Whether it is alpha dropout."""
    inplace: bool
    """Whether the result belongs in the place of what was given."""

    def masked(self, mask: Tensor) -> Tensor:
        """What is left for a mask that is True for what is kept; not for p = 1.

        Example:
            >>> call = dropping("dropout", (torch.tensor([[1.0, 2.0, 3.0]]), 0.75), {})
            >>> call.masked(torch.tensor([[True, False, True]]))
            tensor([[ 4.,  0., 12.]])
        """
        mask = mask.to(self.x.dtype)
        if not self.alpha:
            return self.x * mask / (1 - self.p)  # in this order nothing dropped overflows
        a = ((1 - self.p) * (1 + _ALPHA**2 * self.p)) ** -0.5
        return a * (self.x * mask - _ALPHA * (1 - mask)) + a * _ALPHA * self.p


def dropping(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Dropping:
    """What a call of one of torch's functions drops, whether or not it is told that it trains.

    Args:
        name: The function, one of `KINDS`, perhaps with an underscore for in place.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    given = dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | kwargs
    x, p, kind = given["input"], number("p", given.get("p", 0.5), low=0, high=1), name.rstrip("_")
    shape = tuple(x.shape)
    if kind not in ("dropout", "alpha_dropout"):
        leading = 1 if x.ndim == _WITHOUT_EXAMPLES.get(kind) else 2
        shape = shape[:leading] + (1,) * (x.ndim - leading)
    inplace = name.endswith("_") or bool(given.get("inplace"))
    return Dropping(x, float(p), shape, "alpha" in kind, inplace)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Dropping, Tensor]:
    """The weights of torch's fused attention, about to be dropped, and the values they average.

    Example:
        >>> x = torch.zeros(1, 2, 4)
        >>> call, _ = attend(x, x, x, dropout_p=0.1, is_causal=True)
        >>> call.x, call.p
        (tensor([[[1.0000, 0.0000],
                 [0.5000, 0.5000]]]), 0.1)
    """
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (t.repeat_interleave(groups, -3) for t in (key, value))
    wide = torch.promote_types(query.dtype, torch.float32)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query.to(wide) * factor) @ key.to(wide).mT
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = scores.softmax(-1)
    if attn_mask is not None:  # a query without keys gets zeros, as torch has it
        weights = weights.masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0)
    weights = weights.to(query.dtype)
    return Dropping(weights, float(dropout_p), tuple(weights.shape), False, False), value
