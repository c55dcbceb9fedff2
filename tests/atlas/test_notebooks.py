"""The rooms' notebooks run from top to bottom, and every picture answers to its controls."""

import inspect

import pytest

from vademecum import ROOMS
from vademecum.atlas.export import pictures_of
from vademecum.atlas.pages import notebook_of


@pytest.mark.parametrize("room", ROOMS)
def test_a_notebook_runs(room):
    found = pictures_of(room)
    assert sum(piece.startswith("<img") for piece in found) >= 1
    assert all('alt="' in piece for piece in found if piece.startswith("<img"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_notebook_is_short_and_shows_sliders(room):
    source = inspect.getsource(notebook_of(room))
    assert len(source.splitlines()) <= 250
    assert source.count("mo.ui.slider") >= 1
