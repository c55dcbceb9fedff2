"""The conventions of the library as rules over what its rooms export: each finds its breaches.

A rule is a generator function of the name of a room. It yields where something is amiss, such as
`eigsh` or `Box.sample`, and what.
"""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args, get_origin

import torch
from sklearn.base import BaseEstimator
from torch import nn

from vademecum.models import Output

KEYWORD, VARIADIC = (
    inspect.Parameter.KEYWORD_ONLY,
    (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD),
)
REQUIRED = inspect.Parameter.empty
TYPES: dict[str, tuple[tuple[Any, ...], Any]] = {
    "generator": ((torch.Generator | None,), None),
    "memory": ((int | None,), None),
    "progress": ((bool,), False),
    "max_iter": ((int, int | None), ...),
    "tol": ((float, float | None), ...),
    "output": ((Output,), None),
}
WORDINGS = {
    "generator": "Where random numbers come from; torch's global generator by default.",
    "memory": "Bytes to use at most beyond inputs and result; None chooses what is fastest.",
    "max_iter": "The most iterations; reaching it gives a `ConvergenceWarning`.",
    "progress": "Whether to show a progress bar on standard error.",
    "output": "What counts of what the model gives: a key, index, attribute or function of it; by"
    " default its `.logits` if it has such, else all of it.",
}
FORBIDDEN = {
    **dict.fromkeys(("seed", "rng", "random_state"), "generator"),
    **dict.fromkeys(("steps", "rounds", "limit", "budget", "iterations", "n_iter"), "max_iter"),
    **dict.fromkeys(("epochs", "max_steps", "max_updates", "max_sweeps"), "max_iter"),
    **dict.fromkeys(("max_epochs", "max_applications", "max_iterations"), "max_iter"),
    **dict.fromkeys(("verbose", "show_progress", "bar"), "progress"),
    **dict.fromkeys(("max_memory", "max_bytes", "chunk", "chunk_size"), "memory"),
    **dict.fromkeys(("tolerance", "atol", "eps"), "tol"),
}


class Call(NamedTuple):
    """An exported function, a constructor or a public method."""

    where: str
    signature: inspect.Signature
    doc: str
    estimator: bool
    function: bool

    @property
    def parameters(self) -> list[inspect.Parameter]:
        return [p for p in self.signature.parameters.values() if p.name != "self"]


def package(room: str) -> ModuleType:
    return importlib.import_module(f"vademecum.{room}")


def exports(room: str) -> dict[str, Any]:
    module = package(room)
    return {name: getattr(module, name) for name in getattr(module, "__all__", ())}


def is_result(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, tuple) and hasattr(thing, "_fields")


def calls(room: str) -> Iterator[Call]:
    for name, thing in exports(room).items():
        if inspect.isfunction(thing):
            yield Call(name, inspect.signature(thing), inspect.getdoc(thing) or "", False, True)
        elif inspect.isclass(thing):
            estimator = issubclass(thing, BaseEstimator)
            if not is_result(thing) and not issubclass(thing, Exception):
                doc = inspect.getdoc(thing) or ""
                yield Call(name, inspect.signature(thing), doc, estimator, False)
            if not estimator:  # whose methods keep scikit-learn's contract
                yield from methods(name, thing)


def methods(name: str, thing: type) -> Iterator[Call]:
    for base in thing.__mro__:
        if base.__module__.startswith("vademecum"):
            for key, value in vars(base).items():
                value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
                if inspect.isfunction(value) and not key.startswith("_"):
                    doc, where = inspect.getdoc(value) or "", f"{name}.{key}"
                    yield Call(where, inspect.signature(value), doc, False, False)


def recurring_arguments(room: str) -> Iterator[tuple[str, str]]:
    """`generator`, `memory`, `output` and the like have one type and are keyword-only."""
    for call in calls(room):
        for p in call.parameters:
            if p.name not in TYPES or call.estimator:
                continue
            types, default = TYPES[p.name]
            if p.kind is not KEYWORD:
                yield call.where, f"{p.name} must be keyword-only"
            if p.annotation not in types:
                yield call.where, f"{p.name} must be {' or '.join(map(str, types))}"
            if p.default is REQUIRED or (default is not ... and p.default is not default):
                yield call.where, f"{p.name} must have a default"


def names(room: str) -> Iterator[tuple[str, str]]:
    """What recurs has one name; estimators follow scikit-learn's."""
    for call in calls(room):
        for p in call.parameters:
            better = FORBIDDEN.get(p.name)
            if call.estimator:
                better = {"seed": "random_state", "generator": "random_state"}.get(p.name)
            if better:
                yield call.where, f"{p.name} should be {better}"


def knobs(room: str) -> Iterator[tuple[str, str]]:
    """Knobs are keyword-only: one positional argument may have a default, no switch or word."""
    for call in calls(room):
        optional = [
            p
            for p in call.parameters
            if p.kind is not KEYWORD and p.kind not in VARIADIC and p.default is not REQUIRED
        ]
        if len(optional) > 1 or any(isinstance(p.default, bool | str) for p in optional):
            yield call.where, f"{', '.join(p.name for p in optional)} should be keyword-only"


def instruments(room: str) -> Iterator[tuple[str, str]]:
    """An instrument begins with the model, then x, then y; what else it takes has a name."""
    for call in calls(room):
        order = [p.name for p in call.parameters]
        models = [p.name for p in call.parameters if p.annotation is nn.Module]
        if not call.function or not (models or "model" in order):
            continue
        if order[0] != "model":
            yield call.where, f"the model must come first and be called so, got {order}"
        elif order[1:2] != ["x"]:
            yield call.where, f"x must come after the model, got {order}"
        elif "y" in order[3:]:
            yield call.where, f"y must come after x, got {order}"
        for p in call.parameters:
            if p.name == "loss" and p.kind is not KEYWORD:
                yield call.where, "loss must be keyword-only"


def drawings(room: str) -> Iterator[tuple[str, str]]:
    """`draw_x(result, axes=None) -> Figure`."""
    for call in calls(room):
        if call.where.startswith("draw_"):
            second = call.parameters[1] if len(call.parameters) > 1 else None
            if second is None or second.name != "axes" or second.default is not None:
                yield call.where, "the second argument must be axes=None"
            if not str(call.signature.return_annotation).endswith("Figure"):
                yield call.where, "must return a Figure"


def returned(annotation: Any) -> Iterator[Any]:
    """The result classes in a return annotation, also inside lists and unions."""
    if is_result(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from returned(part)


def results(room: str) -> Iterator[tuple[str, str]]:
    """Several values are returned under names; each name is explained; they print on one line."""
    found = {thing: None for thing in exports(room).values() if is_result(thing)}
    for call in calls(room):
        annotation = call.signature.return_annotation
        found |= dict.fromkeys(returned(annotation))
        if get_origin(annotation) is tuple and ... not in get_args(annotation):
            yield call.where, "must return a NamedTuple, got a bare tuple"
    for result in found:
        if result.__module__.split(".")[1] != room:
            continue
        for field in undocumented_fields(result):
            yield result.__name__, f"{field} must have a docstring"
        text = printed(result)
        if "\n" in text or len(text) > 1000:
            yield result.__name__, "must print on one line: `__repr__ = one_line`"


def undocumented_fields(result: Any) -> list[str]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(result))).body
    assert isinstance(tree, ast.ClassDef)
    explained = set(arguments(inspect.getdoc(result) or "", "Attributes"))
    for node, after in zip(tree.body, tree.body[1:], strict=False):
        text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(node, ast.AnnAssign) and text:
            explained.add(ast.unparse(node.target))
    return [field for field in result._fields if field not in explained]


def printed(result: Any) -> str:
    """What a result with large tensors prints."""
    simple = {int: 12, float: 0.5, bool: True, str: "word " * 1000}
    large = torch.arange(1000.0).reshape(10, 10, 10)
    types = inspect.get_annotations(result)
    values = [simple.get(types.get(f), large) for f in result._fields]
    try:
        return repr(result(*values))
    except Exception as error:
        return f"\n{error}"


def iterations(room: str) -> Iterator[tuple[str, str]]:
    """What iterates says whether it converged, and what converges can be stopped."""
    for call in calls(room):
        fields = {
            f for result in returned(call.signature.return_annotation) for f in result._fields
        }
        limited = any(p.name == "max_iter" for p in call.parameters)
        if call.estimator or not (call.function or "." in call.where):
            continue
        if limited and "converged" not in fields:
            yield call.where, "takes max_iter, so its result must say whether it converged"
        if "converged" in fields and not limited:
            yield call.where, "says whether it converged, so it must take max_iter"


def arguments(doc: str, section: str = "Args") -> dict[str, str]:
    """The texts of the arguments in a docstring, each on one line."""
    body = re.search(rf"^{section}:\n((?: .*\n|\n)*)", doc + "\n", re.MULTILINE)
    entries = re.findall(
        r"^    \*{0,2}(\w+): ((?:.*\n)(?:     .*\n|\n)*)", body[1] if body else "", re.MULTILINE
    )
    return {name: " ".join(text.split()) for name, text in entries}


def wordings(room: str) -> Iterator[tuple[str, str]]:
    """What recurs is explained in the same words; more sentences may follow."""
    for call in calls(room):
        told = arguments(call.doc)
        for p in call.parameters:
            wording = WORDINGS.get(p.name)
            if wording and not told.get(p.name, "").startswith(wording):
                yield call.where, f"{p.name} is explained as {told.get(p.name, '')!r}"


def modules(room: str) -> Iterator[tuple[str, str]]:
    """What exports nothing looks private; a module is named after its idea, not an export."""
    public = set(exports(room))
    folder = Path(inspect.getfile(package(room))).parent
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder).with_suffix("").parts
        stem = inside[-1] if inside[-1] != "__init__" else inside[-2] if inside[1:] else ""
        if inside[0] in ("claims", "pictures") or not stem:
            continue
        if stem in ("utils", "helpers", "common", "misc", "tools"):
            yield "/".join(inside), "a module is called after its idea"
        if stem in public:
            yield "/".join(inside), "bears the name of an export"
        if inside[-1] == "__init__" or any(part.startswith("_") for part in inside):
            continue
        module = importlib.import_module(".".join(("vademecum", room, *inside)))
        if not public & set(getattr(module, "__all__", ())):
            yield "/".join(inside), "exports nothing, so it must begin with an underscore"


RULES: tuple[Callable[[str], Iterator[tuple[str, str]]], ...] = (
    *(recurring_arguments, names, knobs, instruments, drawings, results, iterations),
    *(wordings, modules),
)
