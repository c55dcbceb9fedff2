"""A user's own network."""

import textwrap

import pytest

from vademecum.atlas.network import dossier, parse_shape, split_name
from vademecum.atlas.server import Looking
from vademecum.errors import UsageError

SOURCE = """
    import torch
    from torch import nn

    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x)

    tied = nn.Linear(4, 4)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                        nn.Linear(8 * 30 * 30, 10))
    net[0].bias.requires_grad_(False)
    twice = nn.Sequential(tied, nn.Tanh(), tied)
    noisy = nn.Sequential(nn.Linear(4, 4), Noisy())
    words = nn.Sequential(nn.Embedding(50, 6), nn.Flatten(), nn.Linear(48, 2))
    bare = nn.ReLU()
    number = 3

    def make():
        return nn.Linear(5, 2)

    def dies():
        import os
        os._exit(3)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_model.py"
    path.write_text(textwrap.dedent(SOURCE))
    return path


def test_a_convolutional_network(file):
    found = dossier(f"{file}:net", (3, 32, 32))
    assert not found.error
    assert (found.kind, found.answer) == ("Sequential", "(4, 10)")
    assert found.parameters == 3 * 8 * 9 + 8 + 16 + 7200 * 10 + 10
    assert (found.frozen, found.buffers) == (8, 17)
    shapes = {row.name: row.shape for row in found.rows}
    assert shapes["0"] == "(4, 8, 30, 30)"
    assert shapes["3"] == "(4, 7200)"
    laws = {law.name: law.verdict for law in found.laws}
    assert laws["dtype"] == laws["determinism"] == laws["independence"] == "kept"
    assert all(law.means for law in found.laws)


def test_guessed_inputs(file):
    assert (
        dossier(f"{file}:net", None).given == "(4, 3, 32, 32) float32, guessed from the first layer"
    )
    assert dossier(f"{file}:make", None).answer == "(4, 2)"
    assert dossier(f"{file}:words", None).given.startswith("(4, 8) int64")
    assert "--input" in dossier(f"{file}:bare", None).error
    assert dossier(f"{file}:bare", (2, 2)).answer == "(4, 2, 2)"


def test_shared_parameters_are_counted_once(file):
    found = dossier(f"{file}:twice", None)
    assert found.parameters == 20
    assert [row.tied for row in found.rows] == [False, False, False, True]


def test_a_broken_law_is_told(file):
    laws = {law.name: law for law in dossier(f"{file}:noisy", None).laws}
    assert laws["determinism"].verdict == "broken"
    assert laws["determinism"].why
    assert laws["finite"].verdict == "kept"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("number", "number is a int, no nn.Module"),
        ("nothing", "has no 'nothing'; it has: .*net"),
        ("net", "It does not take this input"),
    ],
)
def test_what_cannot_be_looked_at(file, name, message):
    import re

    assert re.search(message, dossier(f"{file}:{name}", (7,)).error)


def test_a_file_that_fails_or_dies(file, tmp_path):
    (tmp_path / "broken.py").write_text("net = 1 / 0")
    assert "ZeroDivisionError" in dossier(f"{tmp_path}/broken.py:net", None).error
    found = Looking(f"{file}:dies", None)()
    assert found is not None
    assert "exit code 3" in found.error


@pytest.mark.parametrize("text", ["", "3,", "0,2", "a", "-1", "3x32"])
def test_bad_shapes(text):
    with pytest.raises(UsageError, match="--input must be the shape of one example"):
        parse_shape(text)


@pytest.mark.parametrize(
    ("name", "message"),
    [("model.py", "must be FILE.py:OBJECT"), (":net", "must be FILE.py"), ("no.py:net", "no file")],
)
def test_bad_names(name, message):
    with pytest.raises(UsageError, match=message):
        split_name(name)
