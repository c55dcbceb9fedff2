"""What operations need that run along sequences: attention, recurrence, running sums."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vademecum.convolution.receptive._adjoint import Found, NoValues
from vademecum.convolution.receptive._needs import Need, given, matched, mixed, only, whole
from vademecum.models import Call, Value

__all__ = ["SEQUENCES"]


def _attention(call: Call, needs: list[Need | None]) -> Found:
    """A query by itself; of keys and values, all that its mask lets it see."""
    options = given(call, "query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    need, found = mixed(only(needs), [-1]), []
    q, k = options["query"], options["key"]
    length, seen = (f.tensor.shape[-2] if isinstance(f, Value) else f.shape[-2] for f in (q, k))
    allowed = _allowed(call, options.get("attn_mask"), options.get("is_causal"), length, seen)
    keys = _looked_at(need.mask.squeeze(-1), allowed).unsqueeze(-1)
    for name in ("query", "key", "value"):
        value = options[name]
        if isinstance(value, Value):
            own = need if name == "query" else Need(keys, {})
            own = own if name == "query" else _shared(own, value.tensor.shape)
            found.append((value, _broadcast_back(own, value.tensor.shape)))
    if isinstance(options.get("attn_mask"), Value):
        found.append((options["attn_mask"], whole(options["attn_mask"])))
    return found


def _shared(need: Need, shape: torch.Size) -> Need:
    """What is needed of keys whose heads serve as many neighbouring heads of queries each."""
    heads = shape[-3] if len(shape) > 2 else 1
    if heads == 1 or need.mask.shape[-3] in (1, heads):
        return need
    return Need(need.mask.unflatten(-3, (heads, -1)).any(-3), {})


def _allowed(call: Call, mask: Any, causal: Any, length: int, seen: int) -> Tensor | None:
    """Which keys each query may look at; None for all of them."""
    if isinstance(mask, Tensor):
        if mask.is_meta:
            raise NoValues(f"{call.place} needs values")
        mask = mask.detach().cpu()
        mask = mask if mask.dtype == torch.bool else mask > -torch.inf
        return mask.expand(*mask.shape[:-2], length, seen)
    if causal and mask is None:
        return torch.ones(length, seen, dtype=torch.bool).tril()
    return None


def _looked_at(rows: Tensor, allowed: Tensor | None) -> Tensor:
    """The keys that the needed queries, along the last axis, look at."""
    if allowed is None:
        return rows.any(-1, keepdim=True)
    rows = rows.expand(*rows.shape[:-1], allowed.shape[-2]).unsqueeze(-2)
    return (rows.float() @ allowed.float() > 0).squeeze(-2)


def _heads(call: Call, needs: list[Need | None]) -> Found:
    """Attention of many heads as one function, with tokens along the first axis."""
    options = given(call, "query", "key", "value", "width", "num_heads")
    need, found = needs[0], []
    if need is None:
        return [(value, whole(value)) for value in call.tensors]
    need = mixed(need, [-1])
    q, k = options["query"], options["key"]
    length, seen = (f.tensor.shape[0] if isinstance(f, Value) else f.shape[0] for f in (q, k))
    mask = options.get("attn_mask")
    allowed = _allowed(call, mask, False, length, seen)
    if isinstance(mask, Tensor) and allowed is not None:
        allowed = ~allowed if mask.dtype == torch.bool else allowed  # where it is true it hides
        if mask.ndim == 3:  # one for each head of each example
            allowed = allowed.unflatten(0, (-1, options["num_heads"])).any(1, keepdim=True)
    keys = _looked_at(need.mask.movedim(0, -1), allowed).movedim(-1, 0)
    for name, own in (("query", need), ("key", Need(keys, {})), ("value", Need(keys, {}))):
        if isinstance(options[name], Value):
            found.append((options[name], own))
    return found


def _recurrent(call: Call, needs: list[Need | None]) -> Found:
    """All steps up to one; with two directions, a last state, or packed sequences, all of them."""
    x, need = call.tensors[0], needs[0]
    packed = not isinstance(call.args[2], tuple | list)  # where the weights are otherwise
    bidirectional, batch_first = call.args[-2], call.args[-1]
    if need is None or packed or bidirectional:
        return [(value, whole(value)) for value in call.tensors]
    steps = 1 if batch_first and x.tensor.ndim == 3 else 0
    own = _up_to(mixed(need, [-1]), steps)
    if any(n is not None for n in needs[1:]):
        own = mixed(own, [steps])
    return [(x, own), *((v, whole(v)) for v in call.tensors[1:])]


def _prefix(call: Call, needs: list[Need | None]) -> Found:
    """All entries up to one, along an axis."""
    x, need = call.tensors[0], only(needs)
    axis = given(call, "input", "dim")["dim"] % x.tensor.ndim
    return [(x, _up_to(need, axis))]


def _up_to(need: Need, axis: int) -> Need:
    if need.mask.shape[axis] == 1:
        return mixed(need, [axis])
    mask = need.mask.int().flip(axis).cummax(axis).values.flip(axis).bool()
    return Need(mask, {a: s for a, s in need.spans.items() if a != axis})


def _broadcast_back(need: Need, shape: torch.Size) -> Need:
    return matched(need, [n if i < len(shape) - 2 else -1 for i, n in enumerate(shape)])


SEQUENCES: dict[str, Callable[[Call, list[Need | None]], Found]] = {
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _heads,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp"), _prefix),
}
"""What these operations need, by their names."""
