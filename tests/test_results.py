from typing import NamedTuple

import torch
from torch import Tensor, nn

from vademecum.results import one_line


class Inner(NamedTuple):
    a: Tensor
    __repr__ = one_line


class Outer(NamedTuple):
    n: int
    word: str
    x: Tensor
    parts: list
    model: nn.Module
    inner: Inner
    call: object

    __repr__ = one_line


def test_large_things_are_summed_up_and_small_ones_shown():
    result = Outer(
        *(3, "yes", torch.zeros(50, 2, dtype=torch.float64), list(range(100))),
        *(nn.Sequential(nn.ReLU()), Inner(torch.ones(2)), len),
    )
    assert repr(result) == (
        "Outer(n=3, word='yes', x=float64[50, 2], parts=list of 100, model=Sequential(...),"
        " inner=Inner(a=tensor([1., 1.])), call=<built-in function len>)"
    )


def test_a_small_matrix_which_torch_prints_on_two_lines():
    assert repr(Inner(torch.eye(2))) == "Inner(a=tensor([[1., 0.], [0., 1.]]))"
    assert repr(Inner(torch.empty(0))) == "Inner(a=tensor([]))"


def test_one_line_whatever_is_inside():
    class Odd:
        def __repr__(self):
            return "a\nb" * 100

    for inside in (Odd(), [Odd()], {1: Odd()}, "x\n" * 100, Inner(torch.eye(3)), (torch.eye(3),)):
        text = repr(Inner(inside))  # pyright: ignore[reportArgumentType]
        assert "\n" not in text
        assert len(text) < 100


def test_it_still_is_a_tuple():
    a, *_ = Outer(1, "", torch.zeros(1), [], nn.ReLU(), Inner(torch.zeros(1)), None)
    assert a == 1
