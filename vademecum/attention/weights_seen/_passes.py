"""One pass of a model under watch: which calls are asked for, and what was not seen.

Modules that bear attention in the name of their class and of which nothing was seen are named.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from vademecum.attention.weights_seen._catching import Catcher
from vademecum.attention.weights_seen._seen_calls import Seen
from vademecum.models import (
    call_arguments,
    evaluation,
    following,
    named_modules,
    named_tensors,
    refuse_nan,
    unwrapped,
)

__all__ = ["Caught", "Layers", "catch"]

Layers = int | str | Sequence[int | str] | None
"""Names of modules, or numbers of calls."""


class Caught(NamedTuple):
    """All calls that were looked at, in order, and the modules of which none was seen."""

    calls: list[Seen]
    unseen: tuple[str, ...]


def catch(model: nn.Module, x: Any, layers: Layers, visit: Callable[[Seen], Any]) -> Caught:
    """Run a model once, in evaluation mode, and look at every call of attention.

    Args:
        model: The module.
        x: Its input.
        layers: Which calls to look at: names of modules, or numbers of calls; all by default.
        visit: What to do with a call; what it returns is the call's `value`.

    Raises:
        ValueError: If there is none, or none of those that are asked for.
    """
    model = unwrapped(model)
    refuse_nan(x)
    asked = _asked(layers)
    sizes = [len(t) for _, t in named_tensors(x) if t.ndim]
    if not sizes or not sizes[0]:
        raise ValueError("x must hold a tensor with examples along its first axis")
    count = itertools.count()

    def wanted(name: str) -> bool:
        number = next(count)
        return asked is None or any(_fits(each, number, name) for each in asked)

    args, kwargs = call_arguments(x)
    mode = Catcher(model, sizes[0], wanted, visit)
    with evaluation(model), torch.no_grad(), following(model, [], mode.entered), mode:
        model(*args, **kwargs)
    mode.flush()
    return _checked(model, mode, asked)


def _asked(layers: Layers) -> list[int | str] | None:
    if layers is None:
        return None
    many = isinstance(layers, Sequence) and not isinstance(layers, str)
    asked: list[Any] = list(layers) if many else [layers]  # pyright: ignore
    if not asked or not all(isinstance(a, int | str) and not isinstance(a, bool) for a in asked):
        raise ValueError(f"layers must be names of modules or numbers of calls, got {layers!r}")
    return asked


def _fits(asked: int | str, number: int, name: str) -> bool:
    if isinstance(asked, int):
        return asked == number
    return f"{name}.".startswith(f"{asked}.")


def _checked(model: nn.Module, mode: Catcher, asked: list[int | str] | None) -> Caught:
    unseen = _unseen(model, mode.called) + tuple(sorted(mode.unread - mode.called))
    if not mode.calls:
        also = f"; what looks like it: {', '.join(map(repr, unseen))}" if unseen else ""
        raise ValueError(f"model must call attention that can be seen, got none{also}")
    for each in asked or []:
        if not any(_fits(each, i, seen.name) for i, seen in enumerate(mode.calls)):
            names = ", ".join(repr(seen.name) for seen in mode.calls)
            raise ValueError(
                f"layers must be among the {len(mode.calls)} calls of {names}, got {each!r}"
            )
    return Caught([seen for seen in mode.calls if seen.shape[0]], unseen)


def _unseen(model: nn.Module, called: set[str]) -> tuple[str, ...]:
    """The innermost modules that look like attention and made no call, nor did one around them."""
    kinds = {prefix[:-1]: type(m).__name__.lower() for prefix, m in named_modules(model)}
    alike = {name for name, kind in kinds.items() if "attention" in kind or "attn" in kind}
    around = {name for name in called if name or name in alike}

    def within(inner: str, outer: str) -> bool:
        return not outer or f"{inner}.".startswith(f"{outer}.")

    return tuple(
        name
        for name in kinds
        if name in alike
        and not any(within(each, name) for each in called)
        and not any(within(name, each) for each in around)
        and not any(each != name and within(each, name) for each in alike)
    )
