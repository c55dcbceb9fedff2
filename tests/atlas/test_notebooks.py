"""The rooms' notebooks run from top to bottom, and their pictures answer to their controls."""

import inspect

import pytest

from vademecum import ROOMS
from vademecum.atlas.pages import notebook_of
from vademecum.atlas.stills import draw_still, split_image, stills_of


@pytest.mark.parametrize("room", ROOMS)
def test_a_notebook_runs(room):
    stills = stills_of(room)
    assert len(stills) == inspect.getsource(notebook_of(room)).count("mo.Html(as_image(")
    for still in stills:
        picture, words = split_image(still.image)
        assert picture.startswith(b"<?xml")
        assert words
        assert still.heading
        for strip in still.strips:
            assert strip.label
            assert [position.path for position in strip.positions if position.first] == [still.path]
            assert len({position.words for position in strip.positions}) == len(strip.positions)


@pytest.mark.parametrize("room", ROOMS)
def test_a_still_picture_is_what_the_controls_give(room):
    still = stills_of(room)[0]
    first, other = sorted(still.strips[0].positions, key=lambda p: not p.first)[:2]
    assert draw_still(room, still.cell, first.knobs) == still.image
    assert split_image(draw_still(room, still.cell, other.knobs))[0] != split_image(still.image)[0]


@pytest.mark.parametrize("room", ROOMS)
def test_a_notebook_is_short_and_shows_sliders(room):
    source = inspect.getsource(notebook_of(room))
    assert len(source.splitlines()) <= 250
    assert source.count("mo.ui.slider") >= 1
