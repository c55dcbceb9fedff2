"""A first pass that looks at a model: who drops, what is computed before, and what is alive after.

What precedes the first dropout is the same in all passes. Its calls are noted with what they gave;
of that only what is still alive at the first dropout is kept, since nothing else is asked for
again.
"""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vademecum.models import following, named_tensors
from vademecum.regularization.dropout_passes._calls import KINDS, dropping
from vademecum.regularization.dropout_passes._switching import by_statistics, rate_of_attention

__all__ = ["Prefix", "Seen", "looked_at"]

_OF_A_MASK = 3  # what random bits and the mask take, in numbers of float32


class Prefix:
    """The calls before the first dropout, and what they gave."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any]] = []
        self._versions: list[tuple[Tensor, int]] = []

    def note(self, func: Any, out: Any) -> None:
        """Note a call, without keeping its tensors alive."""
        self.calls.append((func, _weak(out)))

    def close(self) -> None:
        """Keep what is alive."""
        self.calls = [(func, _strong(out)) for func, out in self.calls]
        tensors = {id(t): t for _, t in named_tensors([out for _, out in self.calls])}
        self._versions = [(t, t._version) for t in tensors.values()]

    def check(self) -> None:
        """Forget all that if any of it was written into meanwhile."""
        if any(t._version != version for t, version in self._versions):
            self.forget()

    def forget(self) -> None:
        """Let it be computed again in every pass."""
        self.calls, self._versions = [], []


class Seen(NamedTuple):
    """What a first pass showed."""

    hiding: list[nn.Module]
    """The modules that hide the rates at which they drop."""
    peak: int
    """About how many bytes a pass takes from its first dropout on."""
    prefix: Prefix
    """What comes before."""
    out: Tensor
    """The output, without dropout of torch."""


def looked_at(
    model: nn.Module, run: Callable[[], Tensor], stack: list[tuple[str, nn.Module]]
) -> Seen:
    """Look at one pass of a model.

    Args:
        model: The module, in evaluation mode but for submodules that are known to drop.
        run: One pass of it.
        stack: Where the submodules whose code runs are kept.
    """
    with following(model, stack), _Looking(stack) as mode:
        out = run()
    mode.prefix.check() if mode.seen else mode.prefix.forget()
    mode.weigh(out.numel() * out.element_size())
    return Seen(mode.hiding, mode.peak, mode.prefix, out)


class _Looking(TorchFunctionMode):
    def __init__(self, stack: list[tuple[str, nn.Module]]):
        super().__init__()
        self.stack, self.hiding, self.prefix = stack, list[nn.Module](), Prefix()
        self.seen, self.alive, self.peak = False, 0, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name.rstrip("_") in KINDS:
            return self._dropout(name, args, kwargs)
        if func is F.scaled_dot_product_attention:
            args, kwargs = self._attention(args, kwargs)
        elif func is F.multi_head_attention_forward or self._inside():
            self._see()
            args, kwargs = by_statistics(func, args, kwargs)
        out = func(*args, **kwargs)
        if not self.seen:
            self.prefix.note(func, out)
        elif isinstance(out, Tensor) and not name.startswith("__"):
            self._keep(out)
        return out

    def _dropout(self, name: str, args: Any, kwargs: Any) -> Tensor:
        call = dropping(name, args, kwargs)
        self._note(call.p)
        out = call.x.clone()
        self._keep(out)
        self.weigh(_OF_A_MASK * 4 * out.numel())
        return out

    def _attention(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Note a call of fused attention; what to call it with, so that it drops nothing."""
        self._note(rate_of_attention(args, kwargs))
        given = dict(zip(("query", "key", "value", "attn_mask"), args, strict=False)) | kwargs
        q, k = given["query"], given["key"]
        scores = q.numel() // q.shape[-1] * k.shape[-2]
        self.weigh((2 + _OF_A_MASK) * scores * max(4, q.element_size()))
        if len(args) > 4:
            return (*args[:4], 0.0, *args[5:]), kwargs
        return args, {**kwargs, "dropout_p": 0.0}

    def _inside(self) -> bool:
        return bool(self.stack) and self.stack[-1][1].training

    def _see(self) -> None:
        if not self.seen:
            self.seen = True
            self.prefix.close()

    def _note(self, p: float) -> None:
        self._see()
        if p == 0 and self.stack and self.stack[-1][1] not in self.hiding:
            self.hiding.append(self.stack[-1][1])

    def _keep(self, out: Tensor) -> None:
        size = out.numel() * out.element_size()
        self.alive += size
        self.weigh(0)
        weakref.finalize(out, self._free, size).atexit = False

    def _free(self, size: int) -> None:
        self.alive -= size

    def weigh(self, passing: int) -> None:
        """Note what is alive, with what is so in passing."""
        self.peak = max(self.peak, self.alive + passing)


def _weak(out: Any) -> Any:
    if isinstance(out, Tensor):
        return weakref.ref(out)
    return type(out)(map(_weak, out)) if type(out) in (tuple, list) else out


def _strong(out: Any) -> Any:
    if isinstance(out, weakref.ref):
        alive = out()
        return torch.empty(0) if alive is None else alive  # a tensor that nobody will look into
    return type(out)(map(_strong, out)) if type(out) in (tuple, list) else out
