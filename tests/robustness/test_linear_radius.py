"""Distances to the boundary of linear classifiers: by hand, by corners, edges and refusals."""

import itertools
import math
from typing import Any

import pytest
import torch

from vademecum.robustness import linear_radius

NORMS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_radii_by_hand(dtype):
    """The lines 3 x + 4 y = 1 and, of three classes, the nearest of two faces."""
    w, x = (
        torch.tensor([3.0, 4.0], dtype=dtype),
        torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=dtype),
    )
    b = torch.tensor(-1.0, dtype=dtype)
    lengths: Any = (("l1", 4), ("l2", 5), ("linf", 7))
    for norm, length in lengths:
        wanted = torch.tensor([6 / length, 1 / length], dtype=dtype)
        torch.testing.assert_close(linear_radius(w, b, x, norm=norm), wanted)
        torch.testing.assert_close(linear_radius(w, b[None], x, norm=norm), wanted)
    W = torch.tensor([[0.0, 1.0], [0.0, 0.9], [5.0, 0.5]], dtype=dtype)
    found = linear_radius(W, None, torch.tensor([[0.0, 1.0]], dtype=dtype), norm="l1")
    torch.testing.assert_close(found, torch.tensor([0.5 / 5], dtype=dtype))
    bias = torch.tensor([0.0, 0.05, 0.0], dtype=dtype)
    found = linear_radius(W, bias, torch.tensor([[0.0, 1.0]], dtype=dtype), norm="linf")
    torch.testing.assert_close(found, torch.tensor([0.5 / 5.5], dtype=dtype))


@pytest.mark.parametrize("norm", NORMS)
def test_several_classes_at_the_corners_of_the_ball(norm):
    """Just within the radius no extreme point changes the class, just beyond it one does."""
    torch.manual_seed(0)
    d = 3
    W, b, x = torch.randn(5, d).double(), torch.randn(5).double(), torch.randn(20, d).double()
    radius = linear_radius(W, b, x, norm=norm)
    if norm == "linf":
        ends = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=d))).double()
    elif norm == "l1":
        ends = torch.cat([torch.eye(d), -torch.eye(d)]).double()
    else:
        pairs = (W[:, None] - W).flatten(0, 1)
        ends = pairs[pairs.norm(dim=1) > 0]
        ends = ends / ends.norm(dim=1, keepdim=True)
    classes = (x @ W.T + b).argmax(1)
    for share, changed in ((0.999, False), (1.001, True)):
        moved = x[:, None] + share * radius[:, None, None] * ends
        other = ((moved @ W.T + b).argmax(-1) != classes[:, None]).any(1)
        assert (other == changed).all()


def test_edges():
    one = torch.ones(1, 2)
    assert linear_radius(torch.zeros(2), torch.tensor(1.0), one).item() == math.inf
    assert linear_radius(torch.zeros(2), torch.tensor(0.0), one).item() == 0
    twins = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    assert linear_radius(twins, torch.tensor([1.0, 0.0]), one).item() == math.inf
    assert linear_radius(twins, None, one).item() == 0  # a tie
    images = torch.rand(3, 1, 2, 2)
    weight = torch.randn(4)
    wanted = linear_radius(weight, None, images.flatten(1), norm="l2")
    assert linear_radius(weight, None, images, norm="l2").equal(wanted)


W = torch.ones(3, 2)
REFUSED = [
    ((torch.ones(1, 2), None, torch.ones(1, 2)), {}, r"weight must have shape \(d,\), or \(k, d\)"),
    ((torch.ones(2, 2, 2), None, torch.ones(1, 2)), {}, "weight must have shape"),
    (
        (W, None, torch.ones(1, 3)),
        {},
        r"x must hold examples of 2 numbers each .* got shape \(1, 3",
    ),
    ((W, None, torch.ones(2)), {}, "x must hold examples of 2 numbers each"),
    ((W, torch.ones(2), torch.ones(1, 2)), {}, r"bias must have 3 entries .* got shape \(2,\)"),
    ((W, None, torch.ones(1, 2).double()), {}, "x must be torch.float32 on cpu as weight is, got"),
    ((W, torch.ones(3).double(), torch.ones(1, 2)), {}, "bias must be torch.float32 on cpu"),
    ((W, None, torch.full((1, 2), math.nan)), {}, "x must be finite, got nan"),
    (
        (W, None, torch.ones(1, 2)),
        {"norm": "l0"},
        "norm must be one of 'linf', 'l2', 'l1', got 'l0'",
    ),
]


@pytest.mark.parametrize(("arguments", "knobs", "message"), REFUSED)
@pytest.mark.usefixtures("unchecked")
def test_refusals(arguments, knobs, message):
    with pytest.raises(ValueError, match=message):
        linear_radius(*arguments, **knobs)
