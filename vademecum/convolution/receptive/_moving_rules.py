"""What operations need that work entry by entry, or move entries."""

from collections.abc import Callable
from functools import cache

import torch

from vademecum.convolution.receptive._adjoint import Found, by_adjoint
from vademecum.convolution.receptive._needs import Need, matched, thinned
from vademecum.models import Call

__all__ = ["MOVES", "axes_after", "entrywise", "works_entrywise"]


@cache
def works_entrywise(name: str) -> bool:
    """Whether torch calls an operation entry by entry, or we do."""
    packet = getattr(torch.ops.aten, name, None)
    if name in _ENTRYWISE or packet is None:
        return name in _ENTRYWISE
    return any(torch.Tag.pointwise in getattr(packet, o).tags for o in packet.overloads())


def entrywise(call: Call, needs: list[Need | None]) -> Found:
    """The same entries, of inputs that may have been broadcast."""
    return [
        (value, matched(need, value.tensor.shape))
        for value in call.tensors
        for need in needs
        if need is not None
    ]


def _reshaped(call: Call, needs: list[Need | None]) -> Found:
    """The same entries in the same order."""
    (x, *_), (need, *_), (out, *_) = call.tensors, needs, call.outputs
    assert need is not None
    assert out is not None
    before, after = x.tensor.shape, out.tensor.shape
    if before == after:
        return [(x, need)]
    head = 0  # axes at the front that stay
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    kept = need.mask.shape[:head]
    mask = need.mask.expand(*kept, *after[head:]).reshape(*kept, *before[head:])
    return [(x, Need(thinned(mask), {a: s for a, s in need.spans.items() if a < head}))]


def _permuted(call: Call, needs: list[Need | None]) -> Found:
    """The same axes in another order."""
    (x,), (need, *_) = call.tensors, needs
    assert need is not None
    order = axes_after(call)
    mask = need.mask.permute([order.index(a) for a in range(len(order))])
    return [(x, Need(mask, {order[a]: s for a, s in need.spans.items()}))]


def axes_after(call: Call) -> list[int]:
    """The axes of the input in the order in which a permutation leaves them."""
    x = call.tensors[0].tensor
    like = torch.empty_strided(x.shape, [2**a for a in range(x.ndim)], device="meta")
    return [s.bit_length() - 1 for s in call.bind()(like).stride()]


_ENTRYWISE = frozenset(
    (
        "iadd", "isub", "imul", "itruediv", "ipow", "radd", "rmul", "rtruediv", "rpow", "truediv",
        "floordiv", "rfloordiv", "mod", "and", "or", "xor", "invert", "neg", "pos", "positive",
        "clone", "contiguous", "detach", "to", "type", "type_as", "float", "double", "half",
        "bfloat16", "int", "long", "bool", "cpu", "cuda", "data", "alias", "requires_grad",
        "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout",
        "feature_alpha_dropout", "prelu", "rrelu", "where", "expand", "expand_as", "broadcast_to",
        "masked_fill", "logsigmoid", "softsign", "tanhshrink", "hardtanh", "relu6", "softshrink",
        "hardshrink", "threshold", "elu", "celu", "selu", "gelu", "silu", "mish", "hardswish",
        "hardsigmoid", "softplus", "leaky_relu", "copy", "fill", "zero", "clip", "divide",
        "multiply", "subtract", "true_divide", "square", "nan_to_num", "fake_quantize", "real",
        "imag", "conj", "lerp", "addcmul", "addcdiv", "float_power", "sgn", "sign",
    )
)  # fmt: skip
MOVES: dict[str, Callable[[Call, list[Need | None]], Found]] = {
    **dict.fromkeys(
        (
            "flatten", "view", "reshape", "squeeze", "unsqueeze", "unflatten", "ravel", "view_as",
            "reshape_as",
        ),
        _reshaped,
    ),
    **dict.fromkeys(
        (
            "permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "T", "mT",
            "adjoint", "mH", "H",
        ),
        _permuted,
    ),
    **dict.fromkeys(
        (
            "setitem", "narrow", "select", "index_select", "gather", "take_along_dim", "take",
            "repeat", "repeat_interleave", "tile", "flip", "fliplr", "flipud", "roll", "rot90",
            "tril", "triu", "diagonal", "diag_embed", "hsplit", "vsplit", "dsplit", "unbind",
            "broadcast_tensors", "unfold", "fold", "channel_shuffle",
            "native_channel_shuffle", "hstack", "vstack", "dstack",
            "column_stack", "index_add", "index_copy", "scatter", "scatter_add", "scatter_reduce",
            "segment_reduce", "masked_select", "masked_scatter", "index_put", "meshgrid",
        ),
        by_adjoint,
    ),
}  # fmt: skip
"""What these operations need, by their names."""
