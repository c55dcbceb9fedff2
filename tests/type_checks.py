"""Run-time type checks at a price that tests can pay.

The import hook of jaxtyping wraps each function of the package: arguments are bound, sizes noted,
everything is checked by two functions made for it, some 30 microseconds a call. Only sizes such as
`Float[Tensor, " n d"]` need that. Where a function has no such annotation beartype alone checks
the same for less than a microsecond, and where it has none at all there is nothing to check. Either
is made at the first call: a run calls few of the functions that it imports, and none where a
compiler looks on, which would have to understand how a check is made. Garbage is not
collected meanwhile: a finaliser may be a checked function too, and beartype's lock would wait for
itself.

To be imported before the package is.
"""

import gc
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, ForwardRef, Literal, get_args, get_origin

import jaxtyping
import torch

__all__ = ["sparingly"]

_jaxtyped = jaxtyping.jaxtyped


def sparingly(fn: Any = None, *, typechecker: Any) -> Any:
    """Check a function as `jaxtyping.jaxtyped` would, for less; classes are left to that."""
    if fn is None:
        return partial(sparingly, typechecker=typechecker)
    if not inspect.isfunction(fn):
        return _full(fn, typechecker)
    if not fn.__annotations__:
        return fn
    if any(map(has_words, fn.__annotations__.values())):  # of classes that are still to come
        return _full(fn, typechecker)
    checked: list[Callable[..., Any]] = []

    @wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable or torch.compiler.is_compiling():
            return fn(*args, **kwargs)
        if not checked:
            sizes = any(map(has_sizes, fn.__annotations__.values()))
            checked.append(_full(fn, typechecker) if sizes else _plain(fn, typechecker))
        return checked[0](*args, **kwargs)

    return wrapper


def _full(fn: Any, typechecker: Any) -> Any:
    with no_collection():
        return _jaxtyped(fn, typechecker=typechecker)


def _plain(fn: Any, typechecker: Any) -> Any:
    with no_collection():
        return typechecker(fn)


@contextmanager
def no_collection() -> Iterator[None]:
    """No finaliser of cyclic garbage runs in this context."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def has_words(annotation: Any) -> bool:
    """Whether an annotation is a name in quotes, or has one inside."""
    if isinstance(annotation, str | ForwardRef):
        return True
    parts = annotation if isinstance(annotation, list | tuple) else _parts(annotation)
    return any(map(has_words, parts))


def _parts(annotation: Any) -> tuple[Any, ...]:
    """What an annotation is made of; the words of a `Literal` are none."""
    return () if get_origin(annotation) is Literal else get_args(annotation)


def has_sizes(annotation: Any) -> bool:
    """Whether an annotation is one of jaxtyping's, or has one inside."""
    if isinstance(annotation, list | tuple):
        return any(map(has_sizes, annotation))
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(map(has_sizes, _parts(annotation)))


jaxtyping.jaxtyped = sparingly  # which the hook's decorators look up when a module is imported
