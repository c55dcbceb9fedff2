"""Claims with a known fate, for testing the machinery, where worker processes can import them."""

import os
import time

import torch

from vademecum.claims import at_most, claim, equals


@claim(by="sampling", sources=("A-001",), covers=("fake_claims.another",), full={"n": 1000})
def true(factor: float = 1.0, n: int = 10):
    r"""A square is not negative.

    $x^2 \ge 0$ for every real $x$.

    Knobs:
        factor: What the square is multiplied by.
        n: How many numbers are drawn.
    """
    x = torch.randn(n)
    yield at_most("minus the square", -factor * x * x, 0.0, n=n)


true.foil("the sign is wrong", factor=-1.0)
true.erratum("A-001", printed=r"$x^2 \le 0$", right=r"$x^2 \ge 0$", why="as seen", factor=-2.0)


@claim(by="identity")
def false(target: int = 5):
    """Two and two is five.

    Knobs:
        target: The sum.
    """
    yield equals("two and two", 2 + 2, target)


false.foil("or six", target=6)


@claim(by="identity")
def blunt(knob: int = 0):
    """Anything goes.

    Knobs:
        knob: What nobody looks at.
    """
    yield equals("one", 1, 1)


blunt.foil("even this", knob=1)


@claim(by="identity")
def vacuous(cases: int = 0):
    """All unicorns are pink.

    Knobs:
        cases: How many there are.
    """
    for _ in range(cases):
        yield equals("one", 1, 1)


@claim(by="identity")
def not_a_number():
    """Undefined things are equal."""
    yield equals("nothing", float("nan"), 0.0)


@claim(by="identity")
def raises():
    """This cannot be checked."""
    yield equals("one", 1, 1)
    raise RuntimeError("out of chalk")


@claim(by="identity")
def hangs(seconds: float = 600.0):
    """This never ends.

    Knobs:
        seconds: How long it sleeps.
    """
    time.sleep(seconds)
    yield equals("one", 1, 1)


@claim(by="identity")
def crashes():
    """This takes its process down."""
    os._exit(7)
    yield equals("one", 1, 1)
