"""What a scan refuses, and what it says then."""

import re

import pytest
import torch

from vademecum.recurrence import scan

A, B = torch.rand(3), torch.rand(2, 5, 3)

WRONG = [
    ({"b": torch.rand(2, 0, 3)}, "b must have at least one step, got shape (2, 0, 3)"),
    ({"a": torch.rand(4)}, "shapes (..., T, D) must broadcast, got a: (1, 4), b: (2, 5, 3)"),
    ({"a": torch.rand(2, 4, 3)}, "must broadcast, got a: (2, 4, 3), b: (2, 5, 3)"),
    (
        {"initial": torch.rand(7, 3)},
        "must broadcast, got a: (1, 3), b: (2, 5, 3), initial: (7, 1, 3)",
    ),
    ({"reset": torch.ones(2, 4).bool()}, "reset: (2, 4, 1)"),
    ({"b": torch.ones(2, 5, 3).long()}, "b must be one of bfloat16, float32, complex64, float64, "),
    ({"a": torch.ones(3).int()}, "float64, complex128, got torch.int32"),
    ({"a": torch.ones(3).half()}, "float64, complex128, got torch.float16"),
    (
        {"a": torch.ones(3).double()},
        "b must have the precision of a, torch.float64, got torch.float32",
    ),
    ({"a": torch.ones(3).bfloat16()}, "precision of a, torch.bfloat16, got torch.float32"),
    ({"initial": torch.rand(3).double()}, "initial must have the precision of a"),
    ({"b": torch.rand(2, 5, 3, device="meta")}, "b must be on the device of a, cpu, got meta"),
    (
        {"initial": torch.rand(3) + 0j},
        "initial must be real where a and b are, got torch.complex64",
    ),
    ({"reset": torch.ones(2, 5)}, "reset must be boolean, got torch.float32"),
    ({"reset": torch.tensor(True)}, "reset must have an axis of time, got shape ()"),
    ({"a": 0.5}, "a must be a tensor, got float"),
    ({"dim": 3}, "dim must be an axis of b, got 3 for shape (2, 5, 3)"),
    ({"dim": 1.0}, "dim must be an axis of b, got 1.0"),
    ({"b": torch.rand(5)}, "dim must be an axis of b, got -2 for shape (5,)"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_wrong_inputs(unchecked, given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        scan(**({"a": A, "b": B} | given))


def test_a_real_initial_state_may_stand_in_a_complex_scan():
    h = scan(A + 0j, B, initial=torch.ones(3))
    assert torch.allclose(h.real, scan(A, B, initial=torch.ones(3)))


def test_shapes_are_known_without_numbers():
    h = scan(torch.rand(3, device="meta"), torch.rand(2, 5, 3, device="meta"))
    assert (h.shape, h.device.type) == ((2, 5, 3), "meta")
