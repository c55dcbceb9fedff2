"""Each law of pictures passes a good one, and fails on one that breaks just that law."""

from itertools import count
from typing import Literal

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from vademecum.canvas import panels
from vademecum.pictures import Picture
from vademecum.testing import PICTURE_LAWS, BrokenLaw, check_picture

TEXT = """{title}

{see}

Knobs:
    way: Which way it goes{stop}
"""


def make(
    draw, *, claims=("linear.ridge",), title="Up or down.", see="Turn it.", stop="."
) -> Picture:
    def function(way: Literal["up", "down"] = "up") -> Figure:
        figure, axes = panels((3, 2))
        axes.plot([0, 1] if way == "up" else [1, 0])
        draw(axes, way)
        return figure

    function.__doc__ = TEXT.format(title=title, see=see, stop=stop)
    return Picture(f"laws.{draw.__name__}", function, claims)


def good(axes, way):
    axes.set_title(way)


def fails(axes, way):
    if way == "down":
        raise RuntimeError("nothing goes down")


def too_wide(axes, way):
    axes.set_title("far too many words for a figure as small as this one, whichever way")


def too_large(axes, way):
    axes.plot(np.random.default_rng(0).random(20_000), np.arange(20_000.0) % 7)


def deaf(axes, way):
    axes.clear()


DRAWN = count()


def drifts(axes, way):
    axes.set_title(f"drawing {next(DRAWN)}")


def rolls(axes, way):
    torch.rand(1)


def rolls_numpy(axes, way):
    np.random.rand()  # noqa: NPY002


def settles(axes, way):
    matplotlib.rcParams["font.size"] = 12 if way == "up" else 13


class Careless(Picture):
    """A picture that takes what it gets."""

    def at(self, given):
        """All knobs as given."""
        return {"way": "up", **given}


CARELESS = Careless("laws.careless", make(good).function, ("linear.ridge",))
BAD_PICTURES = [
    ("statement", make(good, title=""), "its docstring has no title"),
    ("statement", make(good, see=""), "does not say what to try and see"),
    ("statement", make(good, stop=""), "way is not explained in a sentence"),
    ("claims", make(good, claims=()), "it names none"),
    ("claims", make(good, claims=("linear.ridg",)), "there is no claim linear.ridg"),
    ("draws", make(fails), "it raised RuntimeError: nothing goes down"),
    ("whole", make(too_wide), r"0\.\d\d inches are cut off at the left: Up or down: way up"),
    ("small", make(too_large), r"\d{6} bytes at  = None"),
    ("moves", make(deaf), "way changes nothing"),
    ("reproduces", make(drifts), "the same knobs give another drawing"),
    ("refuses", CARELESS, "it takes no_such_knob = 1"),
    ("untouched", make(rolls), "torch's generator"),
    ("untouched", make(rolls_numpy), "NumPy's generator"),
]


@pytest.mark.parametrize(("law", "picture", "finding"), BAD_PICTURES, ids=lambda v: str(v)[:20])
def test_a_picture_that_breaks_a_law_breaks_just_that_one(law, picture, finding):
    with pytest.raises(BrokenLaw, match=f"^{picture.id} breaks the law '{law}': ") as broken:
        check_picture(picture)
    assert broken.match(finding)
    if picture.id != "laws.fails":
        held = check_picture(picture, skip={law: "on purpose"})
        assert set(held) == set(PICTURE_LAWS) - {law}


def test_all_knobs_stand_at_their_ends_at_once():
    def both(up: bool = False, down: bool = False) -> Figure:
        """Up, down or neither.

        Turn it.

        Knobs:
            up: Whether it goes up.
            down: Whether it goes down.
        """
        figure, axes = panels((3, 2))
        axes.plot([0, up], [1 / (2 - up - down), down])
        return figure

    with pytest.raises(BrokenLaw, match="breaks the law 'draws': it raised ZeroDivisionError"):
        check_picture(Picture("laws.both", both, ("linear.ridge",)))


def test_every_law_of_pictures_is_broken_by_something():
    assert {law for law, *_ in BAD_PICTURES} == set(PICTURE_LAWS)


def test_a_good_picture_keeps_all_laws():
    assert check_picture(make(good)) == tuple(PICTURE_LAWS)
    assert check_picture(make(settles)) == tuple(PICTURE_LAWS)  # the canvas takes care of that
