"""Type checks at run time see what they should, and are off where they are switched off."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
import torch
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from tests.type_checks import has_sizes, has_words, sparingly
from vademecum.foundations import total_variation
from vademecum.models import mlp

checked = sparingly(typechecker=beartype(conf=BeartypeConf(is_pep484_tower=True)))
Vector = Float[Tensor, " n"]


@checked
def dot(x: Vector, y: Vector) -> Float[Tensor, ""]:
    """A function with sizes."""
    return x @ y


@checked
def lengthen(x: Vector) -> Vector:
    """A function whose result breaks them."""
    return torch.cat([x, x])


@checked
def half(n: float, *, word: str = "half") -> float:
    """A function without sizes."""
    return n / 2 if word == "half" else word  # type: ignore[return-value]


@contextmanager
@checked
def lent(n: int) -> Iterator[int]:
    """A generator."""
    yield n


class Scale:
    """A class with methods of all kinds."""

    @property
    @checked
    def size(self) -> int:
        """The wrong type."""
        return "large"  # type: ignore[return-value]

    @staticmethod
    @checked
    def twice(n: int) -> int:
        """A static method."""
        return 2 * n


BAD: list[tuple[Callable[[], Any], type[Exception]]] = [
    (lambda: dot(torch.ones(2), torch.ones(3)), TypeCheckError),
    (lambda: dot(torch.ones(2, 1), torch.ones(2, 1)), TypeCheckError),
    (lambda: dot(torch.ones(2).int(), torch.ones(2)), TypeCheckError),
    (lambda: lengthen(torch.ones(2)), TypeCheckError),
    (lambda: half("two"), BeartypeCallHintViolation),  # type: ignore[arg-type]
    (lambda: half(2, word="whole"), BeartypeCallHintViolation),
    (lambda: half(2, word=3), BeartypeCallHintViolation),  # type: ignore[arg-type]
    (lambda: lent("two").__enter__(), BeartypeCallHintViolation),  # type: ignore[arg-type]
    (lambda: Scale().size, BeartypeCallHintViolation),
    (lambda: Scale.twice(0.5), BeartypeCallHintViolation),  # type: ignore[arg-type]
    (lambda: total_variation(torch.ones(2), "q"), TypeCheckError),  # type: ignore[arg-type]
    (lambda: mlp([2, 1], bias="no"), BeartypeCallHintViolation),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "error"), BAD)
def test_what_does_not_fit_is_seen(call, error):
    for _ in range(2):  # the checks are made at the first call
        with pytest.raises(error):
            call()


def test_what_fits_passes_and_names_stay():
    assert dot(torch.ones(2), torch.ones(2)) == 2
    assert half(3) == 1.5  # an int where a float is asked for
    assert Scale.twice(3) == 6
    with lent(3) as three:
        assert three == 3
    assert (half.__name__, half.__doc__) == ("half", "A function without sizes.")


def test_what_has_no_annotation_is_left_as_it_is():
    def bare(x):
        return x

    assert checked(bare) is bare
    assert checked(Scale) is Scale


def test_nothing_is_checked_where_it_is_off(unchecked):
    assert half(2, word="whole") == "whole"
    assert Scale().size == "large"
    assert lengthen(torch.ones(2)).shape == (4,)


@pytest.mark.parametrize(
    ("annotation", "sizes"),
    [
        (Vector, True), (list[Vector], True), (Vector | None, True),
        (Callable[[Vector], int], True), (tuple[int, ...], False), (Tensor | None, False),
        (Callable[..., Any], False), (None, False), (Callable[[Tensor], Tensor], False),
    ],
)  # fmt: skip
def test_sizes_are_found_wherever_they_stand(annotation, sizes):
    assert has_sizes(annotation) == sizes


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ("Scale", True), (list["Scale"], True), (Callable[["Scale"], int], True),
        (Literal["word"], False), (Vector, False), (dict[str, int] | None, False),
    ],
)  # fmt: skip
def test_names_in_quotes_are_found(annotation, words):
    assert has_words(annotation) == words


LATE = """
import gc
from beartype import BeartypeConf, beartype
from tests.type_checks import sparingly

class Cycle:
    def __init__(self):
        self.own = self

    def __del__(self):
        checked(last)(1)

def first(n: {annotation}) -> int:
    Cycle()
    return n

def last(n: int) -> int:
    return n

def beartyped(function):
    Cycle()
    gc.set_threshold(1)
    return beartype(conf=BeartypeConf(is_pep484_tower=True))(function)

checked = sparingly(typechecker=beartyped)
print(checked(first)(2))
"""


@pytest.mark.parametrize("annotation", ["int", "'int'"])  # made at the first call, and at once
def test_finalisers_wait_until_a_check_is_made(annotation):
    run = [sys.executable, "-c", LATE.format(annotation=annotation)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "2\n", done.stderr
