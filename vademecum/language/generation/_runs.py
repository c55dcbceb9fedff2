"""One generation: what is read first, and the step that is taken again and again.

On a CUDA device a model with a cache has its step captured as a graph. The latest graph of a model
is kept with its memory, as long as the model lives and its tensors stay where they are, and serves
every later call with as many rows that fits into it. A model with hooks, with a `forward` that is
not of its class, or with tensors that are neither parameters nor buffers, is run step by step: a
graph would pass by the former, and read the latter where they were.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from vademecum.language.generation._choices import Choice
from vademecum.language.generation._readers import (
    CachedReader,
    Reader,
    WholeReader,
    offers_cache,
)
from vademecum.language.generation._tapes import Tape
from vademecum.models import Replay, named_tensors
from vademecum.models.modes import INTERNAL

__all__ = ["Plan", "Run", "can_be_captured", "reader_for"]

_ROUND = 256  # slots: lengths up to a multiple share a graph
_GRAPHED = 8  # tokens: for fewer a graph is not worth its capture
_LOOK = 16  # steps between looks at whether all rows have ended, on devices one waits for


class Plan(NamedTuple):
    """What is asked for, checked."""

    model: nn.Module
    rows: list[Tensor]
    max_new_tokens: int
    choice: Choice
    stop: tuple[int, ...]
    uniform: Tensor | None
    context: int | None
    slides: bool
    cache: bool
    device: torch.device


class _Session(NamedTuple):
    """A reader and a tape, and the step that joins them."""

    key: tuple[Any, ...]
    reader: Reader
    tape: Tape
    step: Callable[[], None]


_kept: WeakKeyDictionary[nn.Module, _Session] = WeakKeyDictionary()


class Run:
    """A generation, step by step; inference and evaluation mode are the caller's business."""

    def __init__(self, plan: Plan):
        self._plan, self._taken = plan, 0
        self._session: _Session | None = None

    def advance(self) -> Tape:
        """Take one more token for each row."""
        if self._session is None:
            self._session = self._begun()
        else:
            self._session.step()
        self._taken += 1
        if not self.more():
            self._keep()
        return self._session.tape

    def more(self) -> bool:
        """Whether there is a token to take; it is known late on devices one waits for."""
        if self._session is None:
            return True
        if self._taken >= self._plan.max_new_tokens:
            return False
        look = self._plan.device.type == "cpu" or self._taken % _LOOK == 0
        return not (look and self._plan.stop and bool(self._session.tape.ended.all()))

    def _begun(self) -> _Session:
        plan = self._plan
        graphed = plan.device.type == "cuda" and plan.max_new_tokens >= _GRAPHED
        graphed = graphed and plan.cache and offers_cache(plan.model) and not plan.slides
        graphed = graphed and can_be_captured(plan.model)
        key = _key(plan) if graphed else ()
        session = _kept.pop(plan.model, None) if graphed else None
        if session is not None and session.key == key:
            session.reader.model = plan.model
            session.tape.begin(plan.uniform)
            session.tape.take(session.reader.read(plan.rows))
            return session
        n, room = len(plan.rows), _capacity(plan) if graphed else plan.max_new_tokens
        reader, tape = reader_for(plan), Tape(n, room, plan.choice, plan.stop, plan.device)
        tape.begin(plan.uniform)
        tape.take(reader.read(plan.rows))
        return _Session(key, reader, tape, _step(reader, tape, graphed=graphed))

    def _keep(self) -> None:
        session = self._session
        if session is not None and session.key and isinstance(session.reader, CachedReader):
            session.reader.let_go()
            _kept[self._plan.model] = session


def can_be_captured(model: nn.Module) -> bool:
    """Whether all that a model does and reads is seen by a graph of its step."""
    for module in model.modules():
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            return False
        own = [value for key, value in vars(module).items() if key not in INTERNAL]
        if any(True for _ in named_tensors(own)):
            return False
    return True


def reader_for(plan: Plan) -> Reader:
    """What reads the rows: by a cache where there is one and it is wanted."""
    if plan.cache and offers_cache(plan.model) and not plan.slides:
        return CachedReader(plan.model, len(plan.rows), _capacity(plan), plan.device)
    return WholeReader(plan.model, plan.context, plan.max_new_tokens, plan.device)


def _step(reader: Reader, tape: Tape, *, graphed: bool) -> Callable[[], None]:
    def step() -> None:
        tape.take(reader.step(tape.last))

    if not graphed or not isinstance(reader, CachedReader):
        return step
    return Replay(step, [*tape.state, *(cache.lengths for cache in reader.caches)])


def _capacity(plan: Plan) -> int:
    longest = _longest(plan.rows) + plan.max_new_tokens
    if plan.device.type == "cuda":
        longest = -(-longest // _ROUND) * _ROUND
    return longest if plan.context is None else min(longest, plan.context)


def _longest(rows: Sequence[Tensor]) -> int:
    return max(len(row) for row in rows)


def _key(plan: Plan) -> tuple[Any, ...]:
    """What a captured step depends on: sizes, choices, classes, and where tensors are and how."""
    tensors = [*plan.model.parameters(), *plan.model.buffers()]
    places = tuple((t.data_ptr(), t.dtype, t.shape, t.stride()) for t in tensors)
    classes = tuple(map(type, plan.model.modules()))
    kind = plan.device.type
    cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    return (len(plan.rows), _capacity(plan), plan.choice, plan.stop, cast, classes, places)
