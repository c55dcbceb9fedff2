"""What bounds refuse: layers that they do not know, by name, and arguments that make no sense."""
# pyright: reportArgumentType=false

import math

import pytest
import torch
from torch import nn

from tests.robustness.test_bounds_of_layers import Calls
from vademecum.robustness import crown_bounds, interval_bounds


def attention(m, x):
    return torch.softmax(x @ x.mT, -1).flatten(1)


REFUSED = [
    (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), (4,), "got submodule '1' (LayerNorm)"),
    (Calls(attention), (2, 2), "got rmatmul|got matmul|got softmax|bounds are known"),
    (Calls(lambda _, x: x * x), (3,), "bounds are known, got mul"),
    (Calls(lambda _, x: x.exp()), (3,), "bounds are known, got exp"),
    (Calls(lambda _, x: x[:, [0, 0]]), (3,), "bounds are known, got getitem"),
    (Calls(lambda _, x: x.double()), (3,), "bounds are known, got double"),
    (Calls(lambda _, x: x + torch.arange(len(x))[:, None].to(x)), (3,), "got another constant"),
    (nn.BatchNorm1d(3, track_running_stats=False), (3,), "has no running statistics"),
    (Calls(lambda _, x: x - x.mean(0)), (3,), "one example at a time"),
    (Calls(lambda _, x: x if x.sum() > 0 else -x), (3,), "model must be traceable"),
    (nn.Linear(5, 2), (3,), "model does not take inputs of shape"),
    (nn.Linear(3, 2).double(), (3,), "x must be torch.float64 as model is"),
    (Calls(lambda _, x: x / 0), (3,), "outputs of model must be finite"),
]


@pytest.mark.parametrize(("model", "shape", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_known_is_refused_by_name(model, shape, words):
    for bounds in (interval_bounds, crown_bounds):
        with pytest.raises(ValueError, match=words.replace("(", r"\(").replace(")", r"\)")):
            bounds(model, torch.rand(2, *shape), norm="linf", radius=0.1)


GOOD = {"norm": "linf", "radius": 0.1}
ERRORS = [
    ({"norm": "l3"}, "norm must be one of 'linf', 'l2', 'l1', got 'l3'"),
    ({"norm": "l0"}, "norm must be one of"),
    ({"radius": -0.1}, "radius must be >= 0, got -0.1"),
    ({"radius": math.nan}, "radius must be >= 0, got nan"),
    ({"radius": torch.tensor([0.1])}, "radius must be a number or 2 of them"),
    ({"box": (0.0, 0.5)}, "x must lie in box, from 0 to 0.5, got entries from"),
    ({"box": (1.0, 0.0)}, r"box\[1\] must be > 1, got 0"),
    ({"arithmetic": "double"}, "arithmetic must be one of 'float', 'real', got 'double'"),
    ({"spec": torch.ones(2, 4)}, r"spec must have shape \(m, 3\) or \(2, m, 3\), got \(2, 4\)"),
    ({"spec": torch.ones(5, 1, 3)}, r"spec must have shape"),
    ({"spec": torch.full((1, 3), 0.1, dtype=torch.float64)}, "spec must be exact in torch.float32"),
    ({"memory": 0}, "memory must be >= 1, got 0"),
]


@pytest.mark.parametrize(("wrong", "words"), ERRORS, ids=range(len(ERRORS)))
def test_errors(wrong, words, unchecked):
    for bounds in (interval_bounds, crown_bounds):
        with pytest.raises(ValueError, match=words):
            bounds(nn.Linear(4, 3), torch.linspace(0, 1, 8).view(2, 4), **(GOOD | wrong))


def test_errors_about_inputs(unchecked):
    model = nn.Linear(4, 3)
    with pytest.raises(ValueError, match=r"x must be floating point, got torch\.int64"):
        interval_bounds(model, torch.ones(2, 4).long(), **GOOD)
    with pytest.raises(ValueError, match="x must be finite, got nan"):
        interval_bounds(model, torch.full((2, 4), math.nan), **GOOD)
    with pytest.raises(ValueError, match=r"x must be float32 or float64, got torch\.bfloat16"):
        interval_bounds(model.bfloat16(), torch.ones(2, 4).bfloat16(), **GOOD)
    with pytest.raises(ValueError, match=r"model must be an nn\.Module, got str"):
        crown_bounds("model", torch.ones(2, 4), **GOOD)
    with pytest.raises(ValueError, match="max_iter must be >= 0, got -1"):
        crown_bounds(nn.Linear(4, 3), torch.ones(2, 4), max_iter=-1, **GOOD)
