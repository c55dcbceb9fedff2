"""Every module that the room exports keeps the laws of parts."""

import pytest
import torch
from sklearn.base import BaseEstimator
from torch import nn

import vademecum.approximation as room
from vademecum.approximation.convex_split import dc_split
from vademecum.approximation.interpolation import interpolating_network
from vademecum.approximation.max_affine import MaxAffine
from vademecum.approximation.pwl import pwl_to_abs, pwl_to_relu
from vademecum.approximation.sawtooth import sawtooth_network
from vademecum.approximation.units import AbsUnit, Maxout
from vademecum.testing import check_part

LINE, WAVE = torch.arange(5.0), torch.tensor([1.0, 3.0, 0.0, 2.0, 1.0])

PARTS = {
    "AbsUnit": lambda: (AbsUnit(), torch.randn(4, 3)),
    "Maxout": lambda: (Maxout(3, 2, 2), torch.randn(40, 3)),
    "MaxAffine": lambda: (
        MaxAffine(torch.tensor([[1.0, 0.0], [-1.0, 1.0]]), torch.zeros(2)),
        torch.tensor([[2.0, 1.0], [-3.0, 0.5], [1.0, 0.0]]),
    ),
}
MADE = {
    "pwl_to_relu": lambda: (pwl_to_relu(LINE, WAVE), 5 * torch.rand(20, 1)),
    "pwl_to_abs": lambda: (pwl_to_abs(LINE, WAVE), 5 * torch.rand(20, 1)),
    "sawtooth_network": lambda: (sawtooth_network(3), torch.rand(20, 1)),
    "interpolating_network": lambda: (
        interpolating_network(torch.randn(5, 2), torch.randn(5)),
        10 * torch.randn(20, 2),
    ),
}


@pytest.mark.parametrize("name", [*PARTS, *MADE])
def test_laws(name):
    module, inputs = (PARTS | MADE)[name]()
    check_part(module, inputs)


def test_laws_of_a_split():
    why = "a split is made for one dtype and device"
    frozen = {"device": why, "dtype": why}
    x = torch.randn(4, 3)
    for part in dc_split(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), x)[:2]:
        check_part(part, x, skip=frozen)


def test_nothing_is_left_out():
    """A new module needs a line above, a new estimator scikit-learn's checks in its own test."""
    classes = [thing for name in room.__all__ if isinstance(thing := getattr(room, name), type)]
    modules = {thing.__name__ for thing in classes if issubclass(thing, nn.Module)}
    assert modules == set(PARTS)
    assert not [thing for thing in classes if issubclass(thing, BaseEstimator)]
