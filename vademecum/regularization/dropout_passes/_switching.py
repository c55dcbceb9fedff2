"""Dropout of every kind switched on while everything else stays in evaluation mode.

A model in training mode would move the statistics of batch normalisation, add noise of other kinds,
and may give other outputs. So all modules stay in evaluation mode, and a mode of torch takes over
every call of dropout: of modules, of functions, and within attention. In evaluation mode most calls
still bear their rate, `F.dropout(x, p, training=False)`. A module that hides it, by calling
attention or dropout at the rate 0 in evaluation, is found by a first pass and then told alone, and
not its children, that it trains; so is every module that bears drop in the name of its class (those
of timm that drop paths, blocks or patches) and recurrent layers of torch with dropout in between.
Normalisation that such a module calls by itself still goes by its statistics, and its buffers are
copies meanwhile.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vademecum.models import named_modules
from vademecum.regularization.dropout_passes._calls import KINDS, Dropping, attend, dropping

__all__ = [
    "AbstractMasks",
    "Changed",
    "Switched",
    "by_statistics",
    "rate_of_attention",
    "trained_alone",
]

_SIGNATURE = inspect.signature(F.multi_head_attention_forward)
_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
_IN_PLACE: dict[str, Callable[..., Any]] = {
    **{"__iadd__": torch.add, "__isub__": torch.sub, "__imul__": torch.mul},
    **{"add_": torch.add, "sub_": torch.sub, "mul_": torch.mul},
}
_TRAINS = {F.batch_norm: "training", F.instance_norm: "use_input_stats"}
_DRAWS = {
    *("bernoulli", "bernoulli_", "rand", "rand_like", "uniform_"),
    *("randn", "randn_like", "normal_", "randperm", "multinomial"),
}


class AbstractMasks(ABC):
    """Where masks come from, for one pass or, mapped by `torch.func.vmap`, for many at a time."""

    many: bool = True
    """Whether it is many."""

    @abstractmethod
    def mask(self, call: Dropping, where: str) -> Tensor:
        """True for what is kept and False for what is dropped."""

    @abstractmethod
    def allow(self, where: str) -> None:
        """Let a layer of torch or code of the model draw by itself, or raise an error."""

    def empty(self, x: Tensor) -> Tensor:
        """A tensor like x into which anybody may draw, one for each pass."""
        return x

    def spread(self, x: Tensor) -> Tensor:
        """The same numbers, with one copy for each pass."""
        return x


class Changed(Exception):
    """The calls before the first dropout are not those of the pass before."""


class Switched(TorchFunctionMode):
    """While it is entered, every dropout is on.

    Args:
        masks: Where masks come from.
        stack: The submodules whose code runs, which `following` keeps.
        prefix: The calls before the first dropout and what they gave, which is not computed again.
    """

    def __init__(
        self,
        masks: AbstractMasks,
        stack: list[tuple[str, nn.Module]],
        prefix: Sequence[tuple[Any, Any]] = (),
    ):
        super().__init__()
        self.masks, self.stack, self.met = masks, stack, 0
        self.known = iter(prefix)
        self.overwritten: list[Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        for known, value in self.known:
            if known != func:
                raise Changed
            return value
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if self.overwritten:
            self._insist_on_fresh([*args, *kwargs.values()])
        if name.rstrip("_") in KINDS:
            return self._dropped(dropping(name, args, kwargs))
        if func is F.scaled_dot_product_attention and rate_of_attention(args, kwargs):
            call, value = attend(*args, **kwargs)
            return self._dropped(call) @ value
        if func is F.multi_head_attention_forward:
            return self._torch_attention(args, kwargs)
        inside = bool(self.stack) and self.stack[-1][1].training
        if inside:
            args, kwargs = by_statistics(func, args, kwargs)
        if inside and (name in _RECURRENT or name in _DRAWS):
            self._draws_itself()
            if name in _RECURRENT:
                args = (self.masks.spread(args[0]), *args[1:])
        if self.masks.many:
            if name in ("bernoulli_", "uniform_", "normal_"):
                self.overwritten.append(args[0])
                args = (self.masks.empty(args[0]), *args[1:])
            elif name in _IN_PLACE or (name.endswith("_") and name[:1] != "_"):
                return self._written(func, name, args, kwargs)
        return func(*args, **kwargs)

    def _written(self, func: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
        """Write into a tensor; what is the same for all passes cannot take what is not."""
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if "doesn't match the broadcast shape" not in str(error):
                raise
            if name not in _IN_PLACE:
                raise RuntimeError(f"vmap cannot write in place: {error}") from error
        self.overwritten.append(args[0])
        return _IN_PLACE[name](*args, **kwargs)

    def _insist_on_fresh(self, given: list[Any]) -> None:
        if any(t is a for a in given for t in self.overwritten):
            raise RuntimeError("vmap cannot go on with a tensor that was drawn into in place")

    @property
    def _where(self) -> str:
        return f"{self.stack[-1][0]!r}" if self.stack else "the model"

    def _draws_itself(self) -> None:
        self.met += 1
        self.masks.allow(self._where)

    def _dropped(self, call: Dropping) -> Tensor:
        if call.p == 0:
            return call.x
        self.met += 1
        keep_none = call.p == 1
        made = call.x * 0 if keep_none else call.masked(self.masks.mask(call, self._where))
        if call.inplace and self.masks.many:
            self.overwritten.append(call.x)
        return call.x.copy_(made) if call.inplace and not self.masks.many else made

    def _torch_attention(self, args: Any, kwargs: Any) -> Any:
        """The functional form of `nn.MultiheadAttention`, which hides its own calls."""
        bound = _SIGNATURE.bind(*args, **kwargs)
        given = bound.arguments
        if given["dropout_p"]:
            self._draws_itself()
            given["training"] = True
            names = ("query", "key", "value")  # often one tensor, which torch recognises
            spread = {id(t): self.masks.spread(t) for t in (given[name] for name in names)}
            given.update({name: spread[id(given[name])] for name in names})
        return F.multi_head_attention_forward(*bound.args, **bound.kwargs)


def rate_of_attention(args: Any, kwargs: Any) -> float:
    """The rate at which a call of fused attention drops weights."""
    return args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)


def by_statistics(func: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a call; where it normalises and keeps statistics, as in evaluation mode.

    Example:
        >>> x, (mean, var) = torch.ones(2, 3), torch.ones(2, 3)
        >>> by_statistics(F.batch_norm, (x, mean, var), {"training": True})[1]
        {'training': False}
    """
    if func not in _TRAINS:
        return args, kwargs
    bound = inspect.signature(func).bind(*args, **kwargs)
    if bound.arguments.get("running_mean") is None:
        return args, kwargs
    bound.arguments[_TRAINS[func]] = False
    return bound.args, bound.kwargs


@contextmanager
def trained_alone(model: nn.Module, also: list[nn.Module] | None = None) -> Iterator[None]:
    """Tell the modules that drop by themselves, not their children, that they train.

    What they write into buffers of their own is forgotten.
    """
    known = list(also or ())
    for _, module in named_modules(model):
        named = "drop" in type(module).__name__.lower()
        if named or (isinstance(module, nn.RNNBase) and module.dropout > 0):
            known.append(module)
    before: list[tuple[nn.Module, bool, dict[str, Tensor]]] = []
    try:
        for module in known:
            buffers = dict(module.named_buffers(recurse=False))
            before.append((module, module.training, buffers))
            module.training = True
            for name, buffer in buffers.items():
                setattr(module, name, buffer.clone())
        yield
    finally:
        for module, training, buffers in reversed(before):
            module.training = training
            for name, buffer in buffers.items():
                setattr(module, name, buffer)
