"""What knobs take, and what they refuse: nonsense must never "hold"."""

import math
from fractions import Fraction
from itertools import combinations
from typing import Literal

import pytest

from vademecum.claims import Claim, at_most, equals, lowest
from vademecum.claims.knobs import check_knobs, explained_knobs, parse_knob, without_knobs
from vademecum.errors import UsageError


def experiment(
    n: int = 3,
    shift: int = 0,
    share: float = 0.5,
    rule: Literal["hebb", "projection"] = "hebb",
    word: str = "mean",
    sizes: tuple[tuple[int, int], ...] = ((2, 3),),
    mixed: tuple = ("tanh", 2),
    exact: bool = True,
    f=math.sin,
    anything=None,
    reach: float = math.inf,
    half: Fraction = Fraction(1, 2),
):
    yield equals("one", 1, 1)


FOILS = ({"n": 0}, {"word": "median"}, {"share": -0.5})


@pytest.mark.parametrize(
    "knobs",
    [
        {"n": 7}, {"n": 0}, {"shift": 4}, {"share": 2}, {"share": -3.0}, {"rule": "projection"},
        {"word": "median"}, {"sizes": ((5, 1), (4, 4))}, {"mixed": ("tanh", 9)}, {"exact": False},
        {"f": math.cos}, {"anything": "goes"}, {"reach": math.inf}, {"reach": 3.0},
        {"half": Fraction(1, 3)},
    ],
)  # fmt: skip
def test_values_of_the_kind_are_taken(knobs):
    assert check_knobs(knobs, experiment, FOILS) == knobs


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"n": -3}, "knob n must be not negative, got -3"),
        ({"n": 2.5}, "knob n must be an integer, got 2.5"),
        ({"n": "many"}, "knob n must be a number, got 'many'"),
        ({"n": True}, "knob n must be a number, got True"),
        ({"share": math.nan}, "knob share must be finite, got nan"),
        ({"shift": -1}, "knob shift must be not negative, got -1"),
        ({"rule": "<b>x"}, "knob rule must be one of 'hebb', 'projection', got '<b>x'"),
        ({"word": "mode"}, "knob word must be one of 'mean', 'median', got 'mode'"),
        ({"sizes": 3}, r"knob sizes must be a tuple like \(\(2, 3\),\), got 3"),
        ({"sizes": ()}, "knob sizes must be a tuple like"),
        ({"sizes": ((2, -3),)}, "entries that are a tuple with entries that are positive"),
        ({"mixed": ("relu", 2)}, "entries that are one of 'tanh'"),
        ({"exact": 1}, "knob exact must be True or False, got 1"),
        ({"half": Fraction(-1, 3)}, "knob half must be positive"),
        ({"f": 3}, "knob f must be a function, got 3"),
    ],
)
def test_nonsense_is_refused(knobs, message):
    with pytest.raises(UsageError, match=message):
        check_knobs(knobs, experiment, FOILS)


def test_a_claim_refuses_nonsense_instead_of_holding():
    def count(n: int = 3, rule: str = "hebb"):
        for i in range(n):
            yield equals("one", 1, 1, i=i)
        yield at_most("zero", 0, 1)

    claim = Claim("room.count", count, "exhaustion")
    with pytest.raises(UsageError, match="knob n must be positive, got -3"):
        claim.run(n=-3)
    with pytest.raises(UsageError, match="knob rule must be one of 'hebb'"):
        claim.run(rule="<b>x")


def test_a_check_may_refuse_a_knob_itself():
    def pairs(n: int = 3):
        lowest("n", n, 2)
        yield equals("pairs", n * (n - 1) // 2, len(list(combinations(range(n), 2))))

    claim = Claim("room.pairs", pairs, "exhaustion")
    assert claim.run().evidence[0].holds
    assert claim.run(n=2).evidence[0].holds
    with pytest.raises(UsageError, match="knob n must be at least 2, got 1"):
        claim.run(n=1)


@pytest.mark.parametrize(
    ("text", "default", "value"),
    [
        ("3", 1, 3), ("3", 1.0, 3), ("1e-3", 1.0, 1e-3), ("a b", "c", "a b"),
        ("[1, 2]", (3,), (1, 2)), ("1/3", Fraction(1, 2), Fraction(1, 3)),
        ("4", (3,), (4,)), ("True", False, True), ("None", None, None),
    ],
)  # fmt: skip
def test_what_is_typed_is_read_as_the_default_is(text, default, value):
    assert parse_knob("k", text, default) == value


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("many", 1), ("1.5", 1), ("True", 1), ("1", True), ("import os", 1), ("1 +", 1.0),
        ("-" * 20000 + "1", 1), ("(" * 300 + ")" * 300, (1,)), ("9" * 5000, 1),
        ("1/0", Fraction(1)),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(text, default):
    with pytest.raises(UsageError, match=r"knob k must be like .*, got '"):
        parse_knob("k", text, default)
    with pytest.raises(UsageError, match="set it from Python"):
        parse_knob("k", text, math.sin)


DOC = """A claim.

With more.

Knobs:
    n: How many
        points.
    rule: Which one:
        Hebb's.

References:
    Somebody.
"""


def test_the_section_on_knobs():
    assert explained_knobs(DOC) == {"n": "How many points.", "rule": "Which one: Hebb's."}
    assert without_knobs(DOC) == "A claim.\n\nWith more.\n\nReferences:\n    Somebody."
    assert explained_knobs("No section; a word Knobs: within a line.") == {}
