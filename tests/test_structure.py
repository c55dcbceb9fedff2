"""The house rules, checked over the sources: layers, sizes, documentation, cheap imports."""

import ast
import doctest
import importlib
import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

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
    "expectations",
)
APPLICATIONS = ("cli", "doctor", "train", "examine", "atlas", "__main__")
FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = [".".join(f.relative_to(ROOT).with_suffix("").parts) for f in FILES]


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


# Layers


def imports(source: str, module: str, *, package: bool = False) -> Iterator[str]:
    """The absolute names that a module imports, `from a import b` as `a.b`."""
    here = module.split(".") if package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))


def place(module: str) -> tuple[str, str, str]:
    """The layer of a module of ours, its name there, and whether it is of claims or pictures."""
    _, name, rest = (*module.split(".", 2), "", "")[:3]
    layer = "room" if name in COURSE else "application" if name in APPLICATIONS else "top"
    noun = rest.partition(".")[0] if layer == "room" else name.replace("canvas", "pictures")
    return layer, name, noun if noun in ("claims", "pictures") else ""


def violations(source: str, module: str, *, package: bool = False) -> list[str]:
    """Which imports of a module break the layers, and why."""
    layer, name, noun = place(module)
    found = []
    for target in imports(source, module, package=package):
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


@pytest.mark.parametrize("path", FILES, ids=short)
def test_layers(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    assert not violations(path.read_text(), module, package=path.name == "__init__.py")


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
    found = violations(source, f"vademecum.{module}".rstrip("."), package=not module)
    assert bool(found) == bool(complaint)
    assert all(complaint in line for line in found)


# Sizes


def long_functions(source: str, limit: int = 40) -> list[str]:
    """The functions whose body, without its docstring, has more lines than the limit."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines > limit:
                found.append(f"{node.name} has {lines} lines")
    return found


@pytest.mark.parametrize("path", [*FILES, *sorted((ROOT / "tests").rglob("*.py"))], ids=short)
def test_sizes(path):
    source = path.read_text()
    assert len(source.splitlines()) <= 300
    assert not long_functions(source)


def test_long_functions_are_caught():
    doc, line = '    """' + "\n" * 50 + '    """\n', "    x = 1\n"
    assert not long_functions("def f():\n" + doc + 40 * line)
    assert long_functions("def f():\n" + doc + 41 * line) == ["f has 41 lines"]


# Documentation


def undocumented(module) -> list[str]:
    """The public names that a module defines and does not explain."""
    tree = ast.parse(inspect.getsource(module))
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


@pytest.mark.parametrize("name", [m for m in MODULES if not m.endswith("__main__")])
def test_public_names_are_documented(name):
    module = importlib.import_module(name.removesuffix(".__init__"))
    assert inspect.getdoc(module)
    assert not undocumented(module)


def has_example(thing) -> bool:
    """Whether the docstring of a function or class, or of one of its methods, has a doctest."""
    return any(test.examples for test in doctest.DocTestFinder(exclude_empty=True).find(thing))


def exports() -> list[tuple[str, str]]:
    return [
        (room, name)
        for room in vademecum.ROOMS
        for name in getattr(importlib.import_module(f"vademecum.{room}"), "__all__", [])
    ]


@pytest.mark.parametrize(("room", "name"), exports())
def test_exports_of_rooms_have_examples(room, name):
    thing = getattr(importlib.import_module(f"vademecum.{room}"), name)
    if isinstance(thing, Claim):
        assert thing.statement
    elif inspect.isroutine(thing) or inspect.isclass(thing):
        assert has_example(thing)


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


# Imports


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_import_is_cheap():
    code = (
        "import torch, sys, time; before = set(sys.modules); start = time.perf_counter()\n"
        "import vademecum; seconds = time.perf_counter() - start\n"
        "print(seconds, *(set(sys.modules) - before))"
    )
    seconds = []
    for _ in range(3):
        first, *modules = run_python(code).split()
        seconds.append(float(first))
        loaded = {m.partition(".")[0] for m in modules}
        assert not loaded & {"matplotlib", "scipy", "sympy", "sklearn", "networkx"}
    assert min(seconds) < 0.1


def test_rooms_do_not_import_matplotlib():
    code = "import importlib, sys, vademecum\n"
    code += "for room in vademecum.ROOMS:\n    importlib.import_module(f'vademecum.{room}')\n"
    assert "matplotlib" not in run_python(code + "print(*sys.modules)").split()


def test_help_does_not_import_torch():
    code = (
        "import sys, contextlib\nfrom vademecum.cli import main\n"
        "with contextlib.suppress(SystemExit):\n    main(['--help'])\n"
        "print()\nprint(*sys.modules)"
    )
    assert not {"torch", "matplotlib", "scipy"} & set(run_python(code).split())
