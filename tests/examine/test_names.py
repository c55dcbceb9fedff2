"""The names of measurements, which are known before anything is measured."""

import ast
import importlib
import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from vademecum.examine import examine, sections
from vademecum.examine._names import NAMES, unknown_name
from vademecum.examine.sections import PLANS

HOMES = {"_regions": "geometry", "_symmetries": "geometry", "_infinite_width": "kernel"}
"""Modules beside the sections that measure for them."""


def made_in(name: str) -> list[ast.expr]:
    """The names that a section gives its measurements, as they stand in its code."""
    homes = [name, *(module for module, section in HOMES.items() if section == name)]
    found = []
    for home in homes:
        module = importlib.import_module(f"{sections.__name__}.{home}")
        tree = ast.parse(Path(str(module.__file__)).read_text())
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        found += [call.args[0] for call in calls if ast.unparse(call.func) == "Measurement"]
    return found


def test_every_module_that_measures_is_looked_at():
    folder = Path(str(sections.__file__)).parent
    measuring = {path.stem for path in folder.glob("*.py") if "Measurement(" in path.read_text()}
    assert measuring == set(PLANS) | set(HOMES)
    assert list(NAMES) == list(PLANS)


@pytest.mark.parametrize("section", PLANS)
def test_the_list_has_what_the_code_names(section):
    for node in made_in(section):
        if isinstance(node, ast.Constant):
            assert node.value in NAMES[section]
        elif isinstance(node, ast.JoinedStr):
            parts = (re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"\w+"
                     for p in node.values)  # fmt: skip
            pattern = "".join(parts)
            assert any(re.fullmatch(pattern, name) for name in NAMES[section]), pattern
    assert list(NAMES[section]) == sorted(set(NAMES[section]))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(7, 6), nn.Linear(6, 7)

    def forward(self, ids):
        return self.last(self.words(ids).tanh())


class Density(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return -(x - self.mean).square().sum(1) / 2


def everything() -> dict[str, set[str]]:
    """What four networks, one of each kind, have measured."""
    images, classes = torch.rand(20, 1, 4, 4), torch.arange(20) % 3
    net = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(),
                        nn.Linear(48, 3))  # fmt: skip
    x = torch.randn(30, 3)
    chain = nn.Sequential(nn.Linear(3, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False))
    given = [
        (net, (images, classes), {"test": (images.flip(3), classes)}),
        (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), (x, x[:, :1]), {}),
        (Tokens(), (torch.randint(7, (12, 5)),), {}),
        (Density(), (x,), {"test": x.flip(0)}),
        (chain, (x, x.argmax(1)), {}),
    ]
    found: dict[str, set[str]] = {name: set() for name in PLANS}
    for model, data, more in given:
        dice = torch.Generator().manual_seed(0)
        for section in examine(model, *data, budget=math.inf, generator=dice, **more).sections:
            assert section.status != "failed", section.traceback
            found[section.name] |= {m.name for m in section.measurements}
    return found


def test_what_is_measured_is_in_the_list_and_nearly_all_of_it_is():
    found = everything()
    for section, names in found.items():
        assert names <= set(NAMES[section]), section
    missing = {f"{s}.{n}" for s, names in NAMES.items() for n in names if n not in found[s]}
    assert len(missing) < 12, missing


def test_a_name_without_near_ones_gets_all():
    assert unknown_name("kernel", "zzz").endswith(f"there are: {', '.join(NAMES['kernel'])}")
