"""Every room keeps the conventions; what does not is in `excused`, with its reason."""

import importlib
import sys

import pytest

from tests.conventions import RULES, arguments, calls
from tests.excused import EXCEPTIONS
from vademecum import ROOMS

"""Breaches that are justified, by room and rule; one that is no longer needed fails."""

PLACES = (*ROOMS, "arrays", "models", "estimators", "expectations", "data", "testing")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("room", PLACES)
def test_conventions(room, rule):
    excused = EXCEPTIONS.get((room, rule.__name__), {})
    found = list(rule(room))
    breaches = [f"{where}: {what}" for where, what in found if where not in excused]
    assert not breaches, "\n".join([rule.__doc__, *breaches])
    assert set(excused) <= {where for where, _ in found}, "an exception is no longer needed"


def test_exceptions_name_rooms_and_rules():
    assert all(room in PLACES for room, _ in EXCEPTIONS)
    assert {rule for _, rule in EXCEPTIONS} <= {rule.__name__ for rule in RULES}


# The rules themselves, on a room that breaks all of them

SLOPPY = '''
"""A room that keeps no convention."""

from typing import NamedTuple

import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn


class Result(NamedTuple):
    """A result.

    Attributes:
        a: The first.
    """

    a: Tensor
    b: int
    """The second."""
    c: float


class Model(BaseEstimator):
    """An estimator.

    Args:
        max_iter: As many as you like.
    """

    def __init__(self, *, max_iter=10, seed=None):
        pass


class Walk:
    """A class."""

    def sample(self, n: int, generator: int = 0) -> Tensor:
        """Draw."""
        return torch.zeros(n)


def solve(x: Tensor, *, max_iter: int = 3, tol: int = 0, memory: float | None = None) -> Tensor:
    """Solve.

    Args:
        x: What.
        max_iter: The most iterations; reaching it gives a
            `ConvergenceWarning`. By default three.
        memory: Some.
    """
    return x


def search(x: Tensor, steps: int = 3, fast: bool = True) -> tuple[Tensor, int]:
    """Search."""
    return x, steps


def measure(x: Tensor, model: nn.Module) -> Result:
    """Measure."""
    return Result(x, 1, 2.0)


def weigh(model: nn.Module, y: Tensor, loss: str) -> Tensor:
    """Weigh."""
    return y


def draw_result(result: Result) -> None:
    """Draw."""


__all__ = ["Model", "Result", "Walk", "draw_result", "measure", "search", "solve", "weigh"]
'''
BREACHES = {
    "recurring_arguments": {
        *("Walk.sample generator must be keyword-only", "solve tol must be <class 'float'>"),
        *("Walk.sample generator must be torch", "solve memory must be int | None"),
        "Walk.sample generator must have a default",
    },
    "names": {"Model seed should be random_state", "search steps should be max_iter"},
    "knobs": {"search steps, fast should be keyword-only"},
    "instruments": {
        *("measure the model must come first", "weigh x must come after the model"),
        "weigh loss must be keyword-only",
    },
    "drawings": {"draw_result the second argument must be axes", "draw_result must return a Figu"},
    "results": {
        *("search must return a NamedTuple", "Result c must have a docstring"),
        "Result must print on one line",
    },
    "iterations": {"solve takes max_iter, so its result must say whether it converged"},
    "wordings": {
        *("Model max_iter is explained as 'As many as", "Walk.sample generator is explained as ''"),
        "solve memory is explained as 'Some.'",
    },
    "modules": {
        *("idle exports nothing", "measure bears the name", "measure exports nothing"),
        *("utils a module is called after", "utils exports nothing", "part/solve bears the name"),
        "part/solve exports nothing",
    },
}


@pytest.fixture
def sloppy(tmp_path, monkeypatch):
    """A room `sloppy` whose package lies elsewhere."""
    folder = tmp_path / "vademecum" / "sloppy"
    (folder / "part").mkdir(parents=True)
    (folder / "claims").mkdir()
    (folder / "__init__.py").write_text("from vademecum.sloppy._all import *\n" + SLOPPY)
    for name in ("idle", "measure", "utils", "_all", "part/__init__", "part/solve", "claims/solve"):
        (folder / f"{name}.py").write_text('"""Nothing to export."""\n__all__ = ["nothing"]\n')
    (folder / "_all.py").write_text('"""Private."""\n')
    import vademecum

    monkeypatch.setattr(vademecum, "__path__", [*vademecum.__path__, str(tmp_path / "vademecum")])
    importlib.invalidate_caches()
    yield "sloppy"
    for name in [name for name in sys.modules if name.startswith("vademecum.sloppy")]:
        del sys.modules[name]


def test_every_rule_finds_its_breaches_and_no_others(sloppy):
    assert {rule.__name__ for rule in RULES} == set(BREACHES)
    for rule in RULES:
        found = [f"{where} {what}" for where, what in rule(sloppy)]
        wanted = BREACHES[rule.__name__]
        for start in wanted:
            assert any(text.startswith(start) for text in found), (rule.__name__, start, found)
        assert len(found) == len(wanted), (rule.__name__, found)


def test_calls_are_functions_constructors_and_public_methods(sloppy):
    assert {call.where for call in calls(sloppy)} == {
        *("Model", "Walk", "Walk.sample", "draw_result", "measure", "search", "solve", "weigh"),
    }


def test_arguments_are_read_from_docstrings():
    doc = "Do.\n\nArgs:\n    a: One\n        two.\n    *rest: Three: four.\n\nReturns:\n    b: No."
    assert arguments(doc) == {"a": "One two.", "rest": "Three: four."}
    assert arguments("Do.") == {}
