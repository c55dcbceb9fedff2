"""Pictures: knobs as they are typed, figures as files, and every picture of the course."""

import math
import re
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from vademecum import ROOMS
from vademecum.canvas import GREY, panels, save, styled, svg
from vademecum.errors import UsageError
from vademecum.pictures import Range, find_picture, picture, pictures
from vademecum.testing import check_picture


@pytest.mark.parametrize("shown", pictures(), ids=lambda p: p.id)
def test_laws(shown):
    check_picture(shown)


@picture(plays="n")
def toy(
    n: Annotated[int, Range(1, 64, 2, log=True, unit="points")] = 4,
    height: Annotated[float, Range(0.5, 2.0, 0.5)] = 1.0,
    shape: Literal["line", "dots", 3] = "line",
    upside_down: bool = False,
) -> Figure:
    """Points in a row.

    Take more of them.

    Knobs:
        n: How many there are.
        height: How high they go.
        shape: How they are drawn.
        upside_down: Whether up is down.
    """
    figure, axes = panels((3, 2))
    sign = -1 if upside_down else 1
    axes.plot([sign * height * k for k in range(n)], "-" if shape == "line" else "o", color="C1")
    axes.set_title(f"{n} points")
    return figure


# Knobs


@pytest.mark.parametrize("shown", pictures(), ids=lambda p: p.id)
def test_first_positions_can_be_reached(shown):
    assert all(knob.default in knob.positions for knob in shown.knobs.values())
    assert all(knob.accept(p) == p for knob in shown.knobs.values() for p in knob.positions)


def test_knobs_come_from_the_signature():
    n, height, shape, upside_down = toy.knobs.values()
    assert (n.default, n.positions, n.unit) == (4, (1, 2, 4, 8, 16, 32, 64), "points")
    assert (n.about, n.domain) == ("How many there are.", "from 1 to 64 points")
    assert (height.positions, height.unit) == ((0.5, 1.0, 1.5, 2.0), "")
    assert (shape.positions, shape.domain) == (("line", "dots", 3), "one of 'line', 'dots', 3")
    assert (upside_down.positions, upside_down.label) == ((False, True), "upside down")
    assert (toy.id, toy.room, toy.name) == ("test_pictures.toy", "test_pictures", "toy")
    assert (toy.title, toy.text, toy.plays) == ("Points in a row", "Take more of them.", "n")
    assert repr(toy) == "Picture('test_pictures.toy', knobs: n, height, shape, upside_down)"
    assert toy.in_words(n=5) == (
        "Points in a row: n 5 points, height 1.0, shape line, upside down False"
    )


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ({"n": "5"}, 5),
        ({"n": " 7 "}, 7),
        ({"height": "1"}, 1.0),
        ({"height": "1.23"}, 1.23),
        ({"shape": "dots"}, "dots"),
        ({"shape": "3"}, 3),
        ({"upside_down": "true"}, True),
        ({"upside_down": "False"}, False),
    ],
)
def test_reading(typed, value):
    ((name, _),) = typed.items()
    assert toy.read(typed) == toy.at({}) | {name: value}
    assert type(toy.read(typed)[name]) is type(value)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"n": "0"}, "n must be an integer from 1 to 64 points, got 0"),
        ({"n": "65"}, "n must be an integer from 1 to 64 points, got 65"),
        ({"n": "2.0"}, "n must be an integer from 1 to 64 points, got '2.0'"),
        ({"n": ""}, "n must be an integer from 1 to 64 points, got ''"),
        ({"n": "True"}, "n must be an integer from 1 to 64 points, got 'True'"),
        ({"n": "-" * 20_000 + "1"}, f"n must be an integer .*, got '{'-' * 80}'"),
        ({"n": "1" * 1000}, f"n must be an integer .*, got '{'1' * 80}'"),
        ({"height": "nan"}, "height must be a number from 0.5 to 2.0, got nan"),
        ({"height": "inf"}, "height must be a number from 0.5 to 2.0, got inf"),
        ({"height": "1e999"}, "height must be a number from 0.5 to 2.0, got inf"),
        ({"height": "high"}, "height must be a number from 0.5 to 2.0, got 'high'"),
        ({"shape": "Line"}, "shape must be one of 'line', 'dots', 3, got 'Line'"),
        ({"upside_down": "1"}, "upside_down must be one of False, True, got '1'"),
        ({"colour": "red"}, "test_pictures.toy has no knob 'colour'; its knobs: n, height, shape"),
    ],
)
def test_bad_words_are_refused(typed, message):
    with pytest.raises(UsageError, match=f"^{message}"):
        toy.read(typed)


def test_numbers_of_numpy():
    given = toy.at({"n": np.int64(5), "height": np.float32(0.5)})
    assert [type(given[name]) for name in ("n", "height")] == [int, float]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n": True}, "n must be an integer from 1 to 64 points, got True"),
        ({"n": 4.0}, "n must be an integer from 1 to 64 points, got 4.0"),
        ({"height": "1"}, "height must be a number from 0.5 to 2.0, got '1'"),
        ({"height": math.nan}, "height must be a number from 0.5 to 2.0, got nan"),
        ({"height": None}, "height must be a number from 0.5 to 2.0, got None"),
        ({"shape": 3.0}, "shape must be one of 'line', 'dots', 3, got 3.0"),
        ({"upside_down": 1}, "upside_down must be one of False, True, got 1"),
        ({"size": 1}, "test_pictures.toy has no knob 'size'"),
    ],
)
def test_bad_values_are_refused(given: dict[str, Any], message):
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        toy(**given)


# Form


def untold(n: Annotated[int, Range(1, 2)] = 1) -> Figure:
    """A title alone.

    Knobs:
        n: A number.
    """
    return Figure()


def unexplained(n: Annotated[int, Range(1, 2)] = 1) -> Figure:
    """A title.

    And a text.
    """
    return Figure()


def unbounded(n: int = 1) -> Figure:
    """A title.

    And a text.

    Knobs:
        n: A number.
    """
    return Figure()


def outside(n: Annotated[int, Range(1, 2)] = 3) -> Figure:
    """A title.

    And a text.

    Knobs:
        n: A number.
    """
    return Figure()


@pytest.mark.parametrize(
    ("function", "plays", "message"),
    [
        (untold, "", "the docstring of untold needs a title, and what to try and see"),
        (unexplained, "", "the section Knobs: of unexplained must explain n"),
        (unbounded, "", "knob n of unbounded must be a number with a Range, Literal, bool"),
        (outside, "", "n must be an integer from 1 to 2, got 3"),
        (toy.function, "m", "toy has no knob 'm' to play"),
    ],
)
def test_form(function, plays, message):
    with pytest.raises((TypeError, UsageError), match=f"^{message}$"):
        picture(plays=plays)(function)


def test_rooms_come_in_the_order_of_the_course(monkeypatch):
    monkeypatch.setattr("vademecum.pictures.PICTURES", {p.id: p for p in pictures()[::-1]})
    rooms = [p.room for p in pictures()]
    assert rooms == sorted(rooms, key=ROOMS.index)


def test_find():
    assert find_picture("tooling.round_half_to_even").room == "tooling"
    with pytest.raises(UsageError, match=r"no picture 'tooling.bogus'; there are foundations\."):
        find_picture("tooling.bogus")


# Files


def test_svg_is_the_same_each_time_and_follows_the_page():
    first, again = svg(toy(n=8)), svg(toy(n=8))
    assert first == again != svg(toy(n=16))
    assert b"@media(prefers-color-scheme:dark)" in first
    assert GREY.encode() in first
    assert not re.search(rb' d="[^"]*\.\d\d\d', first)  # hundredths of a point
    assert b"dc:date" not in first


def test_notebooks_show_a_picture():
    figure: Any = toy(n=8)
    before = figure.get_size_inches().tolist(), figure.dpi, figure.canvas
    assert figure._repr_svg_() == svg(toy(n=8)).decode()
    assert (figure.get_size_inches().tolist(), figure.dpi, figure.canvas) == before


def test_as_python_draws_the_same():
    shown = find_picture("foundations.nearest_points")
    assert shown.as_python() == (
        "from vademecum.foundations.pictures import nearest_points\n\nnearest_points()"
    )
    code = shown.as_python(radius=0.5, distance=2.0)
    assert code.endswith("nearest_points(radius=0.5)")
    lines, call = code.split("\n\n")
    names: dict[str, Any] = {}
    exec(lines, names)
    assert svg(eval(call, names)) == svg(shown(radius=0.5))


@pytest.mark.parametrize(
    ("name", "magic"), [("a.svg", b"<?xml"), ("b.PNG", b"\x89PNG"), ("c.pdf", b"%PDF-")]
)
def test_save(name, magic, tmp_path):
    for path in (tmp_path / name, tmp_path / f"again.{name}"):
        save(toy(), path)
    made = (tmp_path / name).read_bytes()
    assert made.startswith(magic)
    assert made == (tmp_path / f"again.{name}").read_bytes()
    if name == "b.PNG":
        assert imread(tmp_path / name, "png")[0, 0].tolist() == [1, 1, 1, 1]  # white


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.gif", "a.gif must end in one of .svg, .png, .pdf"),
        ("svg", "svg must end in one of .svg, .png, .pdf"),
        ("nowhere/a.svg", "there is no folder .*nowhere"),
    ],
)
def test_where_nothing_can_be_saved(name, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        save(toy(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_panels_stand_where_they_should():
    figure, axes = panels((8, 4), 2, 3, margins=(1, 0.5, 0.6, 0.4), gaps=(0.25, 0.5))
    boxes = [[a.get_position() for a in row] for row in axes]
    assert boxes[1][0].x0 * 8 == pytest.approx(1)
    assert boxes[1][0].y0 * 4 == pytest.approx(0.6)
    assert boxes[0][2].x1 * 8 == pytest.approx(7.5)
    assert boxes[0][2].y1 * 4 == pytest.approx(3.6)
    assert (boxes[0][1].x0 - boxes[0][0].x1) * 8 == pytest.approx(0.25)
    assert (boxes[0][0].y0 - boxes[1][0].y1) * 4 == pytest.approx(0.5)
    assert figure.get_size_inches().tolist() == [8, 4]


def test_a_style_ends_where_it_was_wanted():
    from matplotlib import rcParams

    before = dict(rcParams)
    with pytest.raises(ZeroDivisionError):
        styled(lambda: Figure((1 / 0, 1)))
    styled(Figure)  # the lock is free again
    assert dict(rcParams) == before
