"""Seeing every call of attention while a model runs, replacing nothing in it.

Three kinds of calls are seen: torch's `scaled_dot_product_attention`, the functional form of
`nn.MultiheadAttention`, and a softmax over the last axis of scores that are a product of two
tensors, scaled and masked in any way. Each is looked at before the next call begins, then let go.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from vademecum.attention.multi_head import MultiHeadAttention
from vademecum.attention.weights_seen._fused_calls import four_axes, of_fused
from vademecum.attention.weights_seen._seen_calls import Seen
from vademecum.attention.weights_seen._token_distances import rank_one_distance, tokens_among
from vademecum.attention.weights_seen._torch_layers import of_torch_layer
from vademecum.models import named_tensors

__all__ = ["Catcher"]

_PRODUCTS = {"matmul", "bmm", "baddbmm", "einsum", "rmatmul"}
_KEPT = {  # what scores may go through on their way to the softmax
    "mul", "rmul", "imul", "div", "truediv", "itruediv", "idiv", "add", "radd", "iadd", "sub",
    "rsub", "isub", "neg", "masked_fill", "where", "to", "float", "double", "half", "bfloat16",
    "type", "type_as", "view", "reshape", "unflatten", "flatten", "unsqueeze", "squeeze", "expand",
    "transpose", "permute", "cat", "getitem", "contiguous", "clone", "detach", "tanh", "clamp",
    "maximum", "max", "nan_to_num", "setitem",
}  # fmt: skip
_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class _Frame:
    """A submodule whose code runs, and what it was given."""

    def __init__(self, name: str, module: nn.Module, given: Any):
        self.name, self.module, self.given = name, module, given
        self.calls: list[Seen] = []


class Catcher(TorchFunctionMode):
    """While it is entered, hands every call of attention to a visitor."""

    def __init__(self, model: nn.Module, n: int, wanted: Callable[[str], bool], visit: Any):
        super().__init__()
        self.n, self.wanted, self.visit = n, wanted, visit
        self.frames = [_Frame("", model, ())]  # around hooks of the model itself
        self.calls: list[Seen] = []
        self.called, self.unread = set[str](), set[str]()
        self.weights = {p.untyped_storage().data_ptr() for p in model.parameters() if p.ndim == 2}
        self.scores: dict[int, weakref.ref[Tensor]] = {}
        self.pending: tuple[Seen, Tensor | None] | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "").strip("_")
        if name == "get":  # of an attribute
            return func(*args, **kwargs)
        if func is F.scaled_dot_product_attention or func is F.multi_head_attention_forward:
            self.flush()
            with sdpa_kernel(_KERNELS):  # evaluation asks for the one that makes whole maps
                out = func(*args, **kwargs)
            self._note_fused(func, args, kwargs, out)
            return out
        renamed = self._complete_pending(name, args)
        out = func(*args, **kwargs)
        if renamed is not None:
            self.pending = renamed, out
        made = args[0] if name == "setitem" else out
        if not isinstance(made, Tensor):
            return out
        if name in ("softmax", "special_softmax"):
            self._note_softmax(args, kwargs, made)
        elif name in _PRODUCTS:
            factors = [t for _, t in named_tensors((args, kwargs))]
            if not any(self._is_weight(t) for t in factors):
                self._mark(made)
        elif name in _KEPT and any(self._is_score(t) for _, t in named_tensors((args, kwargs))):
            self._mark(made)
        return out

    def _is_weight(self, t: Tensor) -> bool:
        dense = t.layout == torch.strided and not t.is_nested
        return dense and t.untyped_storage().data_ptr() in self.weights

    def _mark(self, t: Tensor) -> None:
        self.scores[id(t)] = weakref.ref(t)

    def _is_score(self, t: Tensor) -> bool:
        found = self.scores.get(id(t))
        return found is not None and found() is t

    def _owner(self) -> _Frame:
        """The submodule whose code runs; of a layer that is a softmax, the one around it."""
        return (self._attending() or self.frames)[-1]

    def _attending(self) -> list[_Frame]:
        return [f for f in self.frames if not isinstance(f.module, nn.Softmax)]

    def _note_fused(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        frame = self._owner()
        if any(t.is_nested for _, t in named_tensors((args, kwargs))):
            self.unread.add(frame.name)
            return
        self.called.add(frame.name)
        if not self.wanted(frame.name):
            self.calls.append(Seen(frame.name, (0, 0, 0, 0)))
            return
        if func is F.multi_head_attention_forward:
            how, out = of_torch_layer(args, kwargs), None
        else:
            how = of_fused(self.n, *args, **kwargs)
        self._keep(frame, how, out)

    def _note_softmax(self, args: Any, kwargs: Any, weights: Tensor) -> None:
        given = [*args, *(kwargs[key] for key in ("input", "dim") if key in kwargs)]
        scores, axis = (*given, None)[:2]
        if weights.ndim < 3 or axis not in (-1, weights.ndim - 1):
            return
        if not isinstance(scores, Tensor) or not self._is_score(scores):
            return
        frame = self._owner()
        self.called.add(frame.name)
        if self.wanted(frame.name):
            alone = scores.detach().amax(-1, keepdim=True) == -torch.inf
            how = {"weights": four_axes(weights, self.n), "alone": four_axes(alone, self.n)}
            self._keep(frame, how, None)
        else:
            self.calls.append(Seen(frame.name, (0, 0, 0, 0)))

    def _keep(self, frame: _Frame, how: dict[str, Any], out: Tensor | None) -> None:
        if "weights" in how:
            shape = how["weights"].shape
        else:
            q, k = how["q"], how["k"]
            shape = (*q.shape[:3], k.shape[2])
        seen = Seen(frame.name, shape, **how)
        self.calls.append(seen)
        for place in reversed(self._attending()):  # the innermost one that is given tokens
            x = tokens_among(place.given, shape, place.module)
            if x is not None:
                seen.before = rank_one_distance(x)
                place.calls.append(seen)
                break
        self.pending = seen, out

    def _complete_pending(self, name: str, args: Any) -> Seen | None:
        """Look at the last call, unless what comes only gives its answer another shape.

        A query without keys gets zeros from the model itself, right after the call.
        """
        if self.pending is None or name in ("dim", "size", "len"):
            return None
        seen, given = self.pending
        mine = given is not None and bool(args) and args[0] is given
        if mine and name in ("reshape", "view") and seen.shape[2] > 1:
            self._one_query_each(seen)
            return seen
        if mine and name == "masked_fill" and args[2:] == (0,) and args[1].shape[-1] == 1:
            seen.alone = args[1]
        self.flush()
        return None

    def _one_query_each(self, seen: Seen) -> None:
        """The single query of heads that share keys, if it was put as several queries of one."""
        module = self._owner().module
        n, groups, each, S = seen.shape
        if isinstance(module, MultiHeadAttention) and seen.q is not None and groups < module.heads:
            masks = (m.expand(seen.shape).reshape(n, groups * each, 1, S) for m in seen.masks)
            seen.masks, seen.q = tuple(masks), seen.q.reshape(n, groups * each, 1, -1)
            seen.shape = (n, groups * each, 1, S)

    def flush(self) -> None:
        """Look at the last call, which is complete now."""
        if self.pending is not None:
            seen, _ = self.pending
            self.pending = None
            with torch.no_grad(), torch.autocast(seen.device.type, enabled=False):
                seen.value = self.visit(seen)
            seen.release()

    def entered(
        self, forward: Callable[..., Any], entry: tuple[str, nn.Module], _: Any
    ) -> Callable[..., Any]:
        """The code of a submodule, with a frame around it."""

        @functools.wraps(forward)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.frames.append(_Frame(*entry, (args, kwargs)))
            try:
                out = forward(*args, **kwargs)
            finally:
                frame = self.frames.pop()
            for seen in frame.calls:
                x = tokens_among(out, seen.shape, frame.module)
                seen.after = None if x is None else rank_one_distance(x)
            return out

        return run
