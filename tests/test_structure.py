"""The house rules, checked over the sources: layers, sizes, documentation."""

import ast
import doctest
import importlib
import inspect
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import vademecum
from vademecum.claims import Claim

PACKAGE = Path(vademecum.__file__).parent
ROOT = PACKAGE.parent
COURSE = (
    *("foundations", "connectionism", "linear", "approximation", "gradients", "optimization"),
    *("convolution", "recurrence", "attention", "language", "geometry", "regularization"),
    *("generalization", "kernels", "bayes", "generative", "robustness", "tooling"),
)
TOP = (
    *("claims", "figures", "testing", "data", "arguments", "estimators", "randomness", "results"),
    *("arrays", "models", "progress", "errors", "files", "pictures", "canvas", "typeset", ""),
    *("expectations", "sliders", "scripts"),
)
APPLICATIONS = ("cli", "doctor", "train", "examine", "sheet", "atlas", "__main__")
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MODULES = [".".join(f.relative_to(ROOT).with_suffix("").parts) for f in FILES]


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def by_folder(files: list[Path]) -> Any:
    """Files in groups, a test for each: tests by the thousand cost more than what they look at."""
    groups = defaultdict[str, list[Path]](list)
    for path in files:
        groups["/".join(path.relative_to(ROOT).parts[:-1][:2])].append(path)
    return pytest.mark.parametrize("paths", list(groups.values()), ids=list(groups))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.fixture(autouse=True, scope="module")
def _forgotten():
    """Millions of nodes, through which every later search for garbage would go."""
    yield
    parsed.cache_clear()


# Layers


def imports(tree: ast.Module, module: str, *, package: bool = False) -> Iterator[str]:
    """The absolute names that a module imports, `from a import b` as `a.b`."""
    here = module.split(".") if package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in ("import_module", "__import__"):
            yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))


def _name(function: ast.expr) -> str:
    """The last name of what is called."""
    return getattr(function, "attr", getattr(function, "id", ""))


def place(module: str) -> tuple[str, str, str]:
    """The layer of a module of ours, its name there, and whether it is of claims or pictures."""
    _, name, rest = (*module.split(".", 2), "", "")[:3]
    layer = "room" if name in COURSE else "application" if name in APPLICATIONS else "top"
    noun = rest.partition(".")[0] if layer == "room" else name.replace("canvas", "pictures")
    return layer, name, noun if noun in ("claims", "pictures") else ""


def violations(tree: ast.Module, module: str, *, package: bool = False) -> list[str]:
    """Which imports of a module break the layers, and why."""
    layer, name, noun = place(module)
    found = []
    for target in imports(tree, module, package=package):
        if target.partition(".")[0] != "vademecum":
            continue
        its_layer, its_name, its_noun = place(target)
        if layer != "application" and its_layer == "application":
            found.append(f"{module} imports the application {target}")
        elif layer == "top" and its_layer == "room":
            found.append(f"{module} is above all rooms and imports {target}")
        elif layer == "room" and its_layer == "room" and not _earlier(its_name, name):
            found.append(f"{module} imports the later room {target}")
        elif layer == "room" and its_noun not in ("", noun):
            found.append(f"{module} is {noun or 'a part'} and imports {its_noun}: {target}")
    return found


def _earlier(one: str, other: str) -> bool:
    return COURSE.index(one) <= COURSE.index(other)


@by_folder(FILES)
def test_layers(paths):
    found = []
    for path in paths:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found += violations(parsed(path), module, package=path.name == "__init__.py")
    assert not found


def test_every_module_has_a_layer():
    known = {*COURSE, *TOP, *APPLICATIONS, "__init__"}
    assert {m.split(".")[1] for m in MODULES} <= known
    assert list(vademecum.ROOMS) == [room for room in COURSE if room in vademecum.ROOMS]


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("linear.ridge", "from vademecum.connectionism import Perceptron", ""),
        ("linear.ridge", "from vademecum.linear.lasso import lasso", ""),
        ("linear.ridge", "from vademecum.arguments import floats\nimport torch", ""),
        ("linear.claims.ridge", "from vademecum.claims import claim", ""),
        ("linear.claims.ridge", "from vademecum.connectionism.claims import x", ""),
        ("cli", "from vademecum import linear, claims, train", ""),
        ("linear.ridge", "from vademecum.kernels import ntk", "later room vademecum.kernels.ntk"),
        ("linear.ridge", "def f():\n    import vademecum.kernels", "later room"),
        ("linear.ridge", "from vademecum import kernels", "later room vademecum.kernels"),
        ("linear.ridge", "from ..kernels import ntk", "later room vademecum.kernels.ntk"),
        ("linear.ridge", "import_module('vademecum.kernels')", "later room vademecum.kernels"),
        ("linear.claims", "from vademecum.kernels import ntk", "later room"),
        ("linear.ridge", "from vademecum.linear.claims import ridge", "is a part"),
        ("linear.ridge", "from . import claims", "is a part"),
        ("linear.ridge", "from vademecum.claims import claim", "is a part"),
        ("linear.ridge", "from vademecum.connectionism import claims", "is a part"),
        ("linear.pictures", "from vademecum.canvas import svg\nfrom ..pictures import Range", ""),
        ("linear.ridge", "from vademecum.linear.pictures import x", "a part and imports pictures"),
        ("linear.ridge", "from vademecum.canvas import svg", "a part and imports pictures"),
        ("linear.claims.ridge", "from vademecum.pictures import Range", "imports pictures"),
        ("linear.pictures", "from .claims import ridge", "is pictures and imports claims"),
        ("linear.ridge", "from vademecum.train import fit", "application vademecum.train.fit"),
        ("figures", "from vademecum.linear import ridge", "above all rooms"),
        ("testing.parts", "import vademecum.linear.ridge", "above all rooms"),
        ("claims.runner", "from vademecum.cli import main", "application"),
        ("", "from vademecum import linear", "above all rooms"),
    ],
)
def test_layer_violations_are_caught(module, source, complaint):
    tree = ast.parse(source)
    found = violations(tree, f"vademecum.{module}".rstrip("."), package=not module)
    assert bool(found) == bool(complaint)
    assert all(complaint in line for line in found)


# Sizes


def long_functions(tree: ast.Module, limit: int = 40) -> list[str]:
    """The functions whose body, without its docstring, has more lines than the limit."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines > limit:
                found.append(f"{node.name} has {lines} lines")
    return found


@by_folder([*FILES, *TESTS])
def test_sizes(paths):
    lengths = {short(path): len(path.read_text().splitlines()) for path in paths}
    assert not {path: length for path, length in lengths.items() if length > 300}
    assert not [f"{short(path)}: {f}" for path in paths for f in long_functions(parsed(path))]


def test_long_functions_are_caught():
    doc, line = '    """' + "\n" * 50 + '    """\n', "    x = 1\n"
    assert not long_functions(ast.parse("def f():\n" + doc + 40 * line))
    assert long_functions(ast.parse("def f():\n" + doc + 41 * line)) == ["f has 41 lines"]


# Documentation


def undocumented(module) -> list[str]:
    """The public names that a module defines and does not explain."""
    tree = parsed(Path(inspect.getfile(module)))
    documented = set()
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            documented |= {node.name} if ast.get_docstring(node) else set()
        elif isinstance(node, ast.Assign | ast.AnnAssign) and _is_text(after):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            documented |= {ast.unparse(target) for target in targets}
    found = []
    for name in getattr(module, "__all__", []):
        home = getattr(getattr(module, name), "__module__", module.__name__)
        imported = home != module.__name__ or not _defines(tree, name)
        if name not in documented and not imported and not name.startswith("__"):
            found.append(f"{module.__name__}.{name}")
    return found


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _defines(tree: ast.Module, name: str) -> bool:
    return not any(
        alias.asname == name or alias.name == name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )


@by_folder([f for f in FILES if f.name != "__main__.py"])
def test_public_names_are_documented(paths):
    names = [".".join(f.relative_to(ROOT).with_suffix("").parts) for f in paths]
    modules = [importlib.import_module(name.removesuffix(".__init__")) for name in names]
    assert not [module.__name__ for module in modules if not inspect.getdoc(module)]
    assert not [name for module in modules for name in undocumented(module)]


def has_example(thing) -> bool:
    """Whether the docstring of a function or class, or of one of its methods, has a doctest."""
    return any(test.examples for test in doctest.DocTestFinder(exclude_empty=True).find(thing))


def exports() -> list[tuple[str, str]]:
    return [
        (room, name)
        for room in vademecum.ROOMS
        for name in getattr(importlib.import_module(f"vademecum.{room}"), "__all__", [])
    ]


@pytest.mark.parametrize("room", vademecum.ROOMS)
def test_exports_of_rooms_have_examples(room):
    module = importlib.import_module(f"vademecum.{room}")
    things = {name: getattr(module, name) for name in getattr(module, "__all__", [])}
    assert not [name for name, thing in things.items() if _lacks_words(thing)]


def _lacks_words(thing: Any) -> bool:
    if isinstance(thing, Claim):
        return not thing.statement
    return (inspect.isroutine(thing) or inspect.isclass(thing)) and not has_example(thing)


def test_a_public_name_has_one_import_path():
    twice = [name for name, count in Counter(name for _, name in exports()).items() if count > 1]
    assert not twice


def test_missing_documentation_is_caught(tmp_path, monkeypatch):
    (tmp_path / "sloppy.py").write_text(
        '"""A module."""\n'
        "from math import pi\n"
        "from typing import NamedTuple\n"
        '__all__ = ["pi", "told", "untold", "X", "Y", "Pair"]\n'
        "def told():\n"
        '    """Say so: >>> 1\n    >>> told()\n    """\n'
        "def untold(): ...\n"
        "class Pair(NamedTuple):\n    a: int\n"
        'X = 1\n"""A number."""\n'
        "Y = 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("sloppy")
    assert undocumented(module) == ["sloppy.untold", "sloppy.Y", "sloppy.Pair"]
    assert [has_example(thing) for thing in (module.told, module.untold)] == [True, False]
