"""Passes of a model with dropout on, many at a time where torch can map over them.

What precedes the first dropout is computed once. After it `torch.func.vmap` makes many passes at a
time, and what does not depend on a mask there (a branch without dropout) once for them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.arrays import portions
from vademecum.models import (
    Output,
    call_arguments,
    cannot_be_mapped,
    chosen_output,
    differentiable_output,
    evaluation,
    following,
    map_tensors,
    refuse_nan,
    unwrapped,
    warn_of_slow_path,
)
from vademecum.regularization.dropout_passes._looking import looked_at
from vademecum.regularization.dropout_passes._switching import (
    AbstractMasks,
    Changed,
    Switched,
    trained_alone,
)

__all__ = ["Runs", "dropping_runs", "mapped"]

_FASTEST = {"cpu": 2**24, "cuda": 2**31}  # bytes that passes made at a time take, without a limit


class Runs(NamedTuple):
    """A model that is ready for passes with dropout on."""

    once: Callable[[AbstractMasks], Tensor]
    """One pass, with masks from there."""
    plain: Tensor
    """Its output without dropout of torch."""
    each: int
    """About how many bytes a pass takes from its first dropout on."""

    def portions(self, count: int, memory: int | None) -> list[slice]:
        """That many passes, as many at a time as there is room for.

        Raises:
            ValueError: If there is no room for one.
        """
        if memory is None:
            memory = max(self.each, _FASTEST.get(self.plain.device.type, 2**31))
        if whole("memory", memory, low=1) < self.each:
            raise ValueError(f"memory must be >= {self.each} bytes for one pass, got {memory}")
        return portions(count, each=self.each, memory=memory)


@contextmanager
def dropping_runs(model: nn.Module, x: Any, output: Output) -> Iterator[Runs]:
    """Get a model ready for a while, in evaluation mode but for dropout.

    Args:
        model: The module.
        x: Its input.
        output: What counts of what the model gives.
    """
    model = unwrapped(model)
    refuse_nan(x)
    stack: list[tuple[str, nn.Module]] = []

    def run() -> Tensor:
        args, kwargs = call_arguments(_copied(x))
        found = chosen_output(model(*args, **kwargs), output)
        return differentiable_output(found, graph=False)

    with evaluation(model), torch.inference_mode(False), torch.no_grad():
        with trained_alone(model):
            seen = looked_at(model, run, stack)

        def once(masks: AbstractMasks) -> Tensor:
            mode = Switched(masks, stack, seen.prefix.calls)
            try:
                with mode:
                    made = run()
            except Changed:
                seen.prefix.forget()
                return once(masks)
            seen.prefix.check()
            if not mode.met:
                raise ValueError("model must have dropout with a rate above 0, and none was met")
            return made

        with trained_alone(model, seen.hiding), following(model, stack):
            yield Runs(once, seen.out, 1 + seen.peak)


def _copied(x: Any) -> Any:
    """The same input, into which a model may write."""
    copies: dict[int, Tensor] = {}

    def copied(t: Tensor) -> Tensor:
        if id(t) not in copies:
            copies[id(t)] = t.clone()
        return copies[id(t)]

    return map_tensors(x, copied)


def mapped(
    many: Callable[[Any], Tensor], one: Callable[[Any], Tensor], items: Any, slices: list[slice]
) -> Iterator[Tensor]:
    """What a function gives for items, a portion at a time, or one by one, and says so.

    Args:
        many: A function of one item, to be mapped over a portion of them.
        one: The same function, to be called by itself.
        items: The items along the first axis of a tensor.
        slices: The portions.
    """
    by_map = True
    for here in slices:
        if by_map:
            try:
                yield torch.func.vmap(many, randomness="different")(items[here])
                continue
            except RuntimeError as error:
                if not cannot_be_mapped(error):
                    raise
                warn_of_slow_path("passes are made one by one", error)
                by_map = False
        for item in items[here]:
            yield one(item)[None]
