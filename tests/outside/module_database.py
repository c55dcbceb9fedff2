"""The modules of torch's own tests, with the inputs that these give them, as cases."""

import inspect
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from bench.outside.cases import Case, Subject, call, one_of

with warnings.catch_warnings(), patch.object(torch.backends, "disable_global_flags"):
    warnings.simplefilter("ignore", DeprecationWarning)  # of newer NumPys, in torch's own tests
    from torch.testing._internal.common_modules import ModuleInfo, ModuleInput, module_db

DOUBLE = torch.float64
REFUSED = {  # random samples, one for each example, are an attribute
    "FractionalMaxPool2d": {"jacobian_x": "any number of examples"},
    "FractionalMaxPool3d": {"jacobian_x": "any number of examples"},
}
INFOS: dict[str, list[ModuleInfo]] = {}
for _info in module_db:
    if _info.module_cls.__module__.startswith("torch.nn") and not _info.is_lazy:
        INFOS.setdefault(_info.module_cls.__name__, []).append(_info)


def cases_of(name: str) -> Iterator[Case]:
    """A case for some of the inputs that torch tests a class with, as far as it gives numbers."""
    for info in INFOS[name]:
        many = len(_inputs(info))
        for i in range(0, many, 1 + many // 5):
            subject = _subject(info, i)
            z = _quietly(lambda: subject.read(call(subject.model.eval(), subject.x)))  # noqa: B023
            if isinstance(z, Tensor) and z.is_floating_point() and _finite(z):
                yield Case(f"{name} {i}", partial(_subject, info, i), separate=_separate(subject),
                           refused=REFUSED.get(name, {}))  # fmt: skip


def _finite(z: Tensor) -> bool:
    return z.numel() > 0 and bool(z.isfinite().all())


def _inputs(info: ModuleInfo) -> list[ModuleInput]:
    given = {"device": "cpu", "dtype": DOUBLE, "requires_grad": False, "training": False}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = _quietly(lambda: list(info.module_inputs_func(info, **given)))
    return [each for each in made if each.forward_input is not None]


def _quietly(make: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


def _subject(info: ModuleInfo, i: int) -> Subject:
    each = _inputs(info)[i]
    built, given = each.constructor_input, each.forward_input
    assert given is not None
    model: nn.Module = _quietly(lambda: info.module_cls(*built.args, **built.kwargs).to(DOUBLE))
    x: Any = given.args
    if given.kwargs:
        x = dict(inspect.signature(model.forward).bind(*given.args, **given.kwargs).arguments)
    only = next(iter(x.values() if isinstance(x, dict) else x))
    x = only if len(x) == 1 else x
    wrt = "x" if isinstance(x, Tensor) and x.is_floating_point() else ""
    n = len(only) if isinstance(only, Tensor) and only.ndim else 1
    z = _quietly(lambda: call(model.eval(), x))
    read = partial(_few, several=isinstance(z, tuple))
    return Subject(model, x, torch.zeros(n, dtype=DOUBLE), _half_square, read, read, wrt)


def _half_square(z: Tensor, y: Tensor) -> Tensor:
    return z.square().sum() / 2


def _few(z: Any, *, several: bool) -> Any:
    """Some entries of each row of the first output: a Jacobian takes a backward pass for each."""
    z = z[0] if several else z
    if not isinstance(z, Tensor) or z.ndim < 2 or not z.numel():
        return z
    rows = z.reshape(len(z), -1)
    return rows[:, :: 1 + rows.shape[1] // 6]


def _separate(subject: Subject) -> bool:
    """Whether each example by itself gives its row of the output."""

    def rows() -> bool:
        z, n = subject.read(call(subject.model, subject.x)), len(subject.y)
        shapes = [t.shape[:1] for t in _tensors(subject.x)]
        if any(shape != (n,) for shape in [*shapes, z.shape[:1]]):
            return False
        each = [subject.read(call(subject.model, one_of(subject.x, i))) for i in range(n)]
        return all(a.shape == z[:1].shape for a in each) and torch.allclose(torch.cat(each), z)

    try:
        return _quietly(rows)
    except (RuntimeError, ValueError, IndexError, AssertionError):  # of torch, for the shape
        return False


def _tensors(x: Any) -> list[Tensor]:
    many = x.values() if isinstance(x, dict) else x if isinstance(x, tuple) else (x,)
    return [t for t in many if isinstance(t, Tensor)]
