"""Random numbers that a model draws in evaluation mode, and whether anything comes of them.

Numbers that move outputs may leave them alike by chance, so that no comparison of passes tells. But
some code draws first and looks afterwards whether the model is in training at all. Such draws are
idle: fresh tensors that no function of torch is given afterwards, nor any of its operations below
these, as scripted code and slices give them, and that nothing keeps, not even a graph for the way
back. All else counts as used: what is drawn in place, or by code that goes around torch's
functions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from vademecum.models import Entangled, named_tensors
from vademecum.randomness import global_state, own_randomness

__all__ = ["draws_of", "no_draws_back", "uses_draws"]


@contextmanager
def draws_of(model: nn.Module) -> Iterator[list[bool]]:
    """Whether each call of a model in this context draws from torch's global generators."""
    starts, found = list[Any](), list[bool]()
    hooks = (
        model.register_forward_pre_hook(lambda *_: starts.append(global_state()), prepend=True),
        model.register_forward_hook(lambda *_: found.append(starts.pop() != global_state())),
    )
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def no_draws_back() -> Iterator[None]:
    """Refuse what draws random numbers on the way back, and give the generators back."""
    with own_randomness(None):
        before = global_state()
        yield
        if global_state() != before:
            raise Entangled(
                "model must have derivatives without chance in evaluation mode, but its way back"
                " draws random numbers"
            )


def uses_draws(model: nn.Module, run: Callable[[], Any]) -> bool:
    """Whether anything comes of what a model draws, in a pass that `run` makes."""
    watch = _Watch()
    hooks = (
        model.register_forward_pre_hook(lambda *_: watch.begin(), prepend=True),
        model.register_forward_hook(lambda *call: watch.end(call[-1])),
    )
    try:
        with watch, _Below(watch):
            _done = run()  # whose graph may keep draws for the way back
    finally:
        for hook in hooks:
            hook.remove()
    return watch.used or any(t() is not None for t in watch.drawn)


class _Watch(TorchFunctionMode):
    """Sees each function of torch while a model runs: what it draws, and who takes that."""

    def __init__(self):
        super().__init__()
        self.used, self.drawn = False, list[ref[Tensor]]()
        self._state: Any = None  # of the generators after what was seen last; None: no model runs

    def begin(self) -> None:
        self.used |= self._state is not None  # a model that calls itself
        self._state = global_state()

    def end(self, result: Any) -> None:
        self.used |= self._state != global_state() or self.takes(result)
        self._state = None

    def takes(self, given: Any) -> bool:
        known = [t() for t in self.drawn]
        return any(t is each for _, t in named_tensors(given) for each in known)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._state is None:
            return func(*args, **kwargs)
        self.used |= self._state != global_state() or self.takes((args, kwargs))
        result = func(*args, **kwargs)
        state = global_state()
        if state != self._state:
            ids = {id(t) for _, t in named_tensors((args, kwargs))}
            fresh = [t for _, t in named_tensors(result)]
            self.used |= not fresh or any(id(t) in ids for t in fresh)
            self.drawn += map(ref, fresh)
        self._state = state
        return result


class _Below(TorchDispatchMode):
    """Sees what operations are given by code that torch's functions do not show."""

    def __init__(self, watch: _Watch):
        super().__init__()
        self._watch = watch

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        self._watch.used |= self._watch.takes((args, kwargs))
        return func(*args, **kwargs)
