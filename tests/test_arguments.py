"""Refusals name the argument, the constraint and what was given."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vademecum.arguments import broadcasting, floats, number, probabilities, square, symmetric

nan = float("nan")


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (torch.tensor([0.5, 0.6]), r"p must sum to one along axis -1, got a sum of 1\.1"),
        (torch.tensor([[0.5, 0.5], [0.5, 0.25]]), r"got a sum of 0\.75"),
        (torch.tensor([1.5, -0.5]), r"entries of p must be >= 0, got -0\.5 at \(1,\)"),
        (torch.tensor([nan, 1.0]), r"p must be finite, got nan at \(0,\)"),
        (torch.tensor([float("inf"), 0.0]), r"p must be finite, got inf"),
        (torch.zeros(10**7), r"p must sum to one along axis -1, got a sum of 0"),
        (torch.tensor([1, 0]), r"p must be floating point, got torch\.int64"),
        (torch.tensor([1 + 0j]), r"p must be real, got torch\.complex64"),
        (torch.tensor(1.0), r"p must have an axis -1, got shape \(\)"),
        (torch.zeros(0), r"p must not be empty"),
        ([1.0], r"p must be a tensor, got list"),
    ],
)
def test_bad_probabilities(p, message):
    with pytest.raises(ValueError, match=message):
        probabilities("p", p)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 3, 10_000, 1_000_000])
def test_rounding_is_forgiven(dtype, n):
    p = torch.softmax(torch.randn(5, n), -1).to(dtype)
    p = p / p.sum(-1, keepdim=True)
    assert probabilities("p", p) is p
    assert probabilities("p", p.T, dim=0).shape == (n, 5)


@pytest.mark.parametrize(
    ("check", "matrix", "message"),
    [
        (square, torch.zeros(2, 3), r"A must be square, got shape \(2, 3\)"),
        (square, torch.zeros(2), r"A must be square, got shape \(2,\)"),
        (square, torch.tensor([[nan]]), r"A must be finite"),
        (symmetric, torch.tensor([[0.0, 1.0], [2.0, 0.0]]), r"A must be symmetric.* up to 1"),
        (symmetric, torch.tensor([[1j]]), r"A must be symmetric.* up to 2"),
        (symmetric, torch.stack([torch.eye(2), torch.ones(2, 2).triu()]), r"symmetric.* up to 1"),
    ],
)
def test_bad_matrices(check, matrix, message):
    with pytest.raises(ValueError, match=message):
        check("A", matrix)


def test_symmetric_up_to_rounding():
    a = torch.randn(50, 80)
    assert symmetric("A", a @ a.T).shape == (50, 50)
    b = torch.randn(4, 3, 3, dtype=torch.complex128)
    assert symmetric("A", b + b.mH).shape == (4, 3, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64,
                                   torch.complex64, torch.complex128])  # fmt: skip
@pytest.mark.parametrize("bad", [nan, float("inf"), -float("inf")])
def test_every_kind_of_infinity_is_found(dtype, bad):
    x = torch.zeros(3, 4).to(dtype)
    assert floats("x", x) is x
    x[2, 1] = torch.tensor(complex(0, bad) if dtype.is_complex else bad)
    with pytest.raises(ValueError, match=r"x must be finite, got .* at \(2, 1\)"):
        floats("x", x.conj() if dtype.is_complex else x)


@pytest.mark.parametrize(
    ("value", "knobs", "message"),
    [
        (float("inf"), {"low": 0}, "a must be finite, got inf"),
        (-float("inf"), {}, "a must be finite, got -inf"),
        (-float("inf"), {"low": 0, "infinite": True}, "a must be >= 0, got -inf"),
        (nan, {"infinite": True}, "a must be a number, got nan"),
        (nan, {"above": 0}, "a must be > 0, got nan"),
        (nan, {"below": 1}, "a must be < 1, got nan"),
        (1, {"above": 1}, "a must be > 1, got 1"),
        (1.0, {"below": 1}, r"a must be < 1, got 1\.0"),
        (2, {"high": 1}, "a must be <= 1, got 2"),
        (True, {}, "a must be a number, got True"),
        ("1", {}, "a must be a number, got '1'"),
    ],
)
def test_bad_numbers(value, knobs, message):
    with pytest.raises(ValueError, match=message):
        number("a", value, **knobs)


def test_numbers_on_their_limits():
    assert number("a", 1, low=1, high=1) == 1
    assert number("a", float("inf"), above=0, infinite=True) == float("inf")
    assert number("a", np.float32(0.5), above=0) == 0.5


@given(st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=3))
def test_broadcasting_is_what_torch_broadcasts(shapes):
    named = {f"x{i}": shape for i, shape in enumerate(shapes)}
    try:
        torch.broadcast_shapes(*shapes)
    except RuntimeError:
        with pytest.raises(ValueError, match=r"^shapes must broadcast, got x0: "):
            broadcasting("shapes", named)
    else:
        broadcasting("shapes", named)
