"""Every module that the room exports keeps the laws of parts."""

import pytest
import torch
from sklearn.base import BaseEstimator
from torch import nn

import vademecum.connectionism as room
from vademecum.connectionism import (
    DenseHopfield,
    HopfieldNetwork,
    McCullochPittsNeuron,
    TuringMachine,
    WillshawMemory,
)
from vademecum.testing import check_part

BITS = torch.tensor([[0, 1, 1, 0, 1], [1, 0, 1, 1, 1], [0, 0, 1, 0, 0]])
SIGNS = torch.tensor([1, -1, 1, 1, 1])
LOGICAL = {"dtype": "bits have one type"}


def memory() -> WillshawMemory:
    made = WillshawMemory(5, 7)
    made.store(BITS, torch.eye(7)[:3])
    return made


PARTS = {
    "McCullochPittsNeuron": lambda: (McCullochPittsNeuron(SIGNS, 2), BITS.float(), {}),
    "TuringMachine": lambda: (TuringMachine.random(5, kind="B"), BITS.bool(), LOGICAL),
    "WillshawMemory": lambda: (memory(), BITS.bool(), LOGICAL),
    "HopfieldNetwork": lambda: (HopfieldNetwork(2 * BITS - 1), 2.0 * BITS - 1, {}),
    "DenseHopfield": lambda: (DenseHopfield(torch.randn(4, 5)), torch.randn(3, 5), {}),
}


@pytest.mark.parametrize("name", PARTS)
def test_laws(name):
    module, inputs, skip = PARTS[name]()
    check_part(module, inputs, skip=skip)


def test_nothing_is_left_out():
    """A new module needs a line above, a new estimator scikit-learn's checks in its own test."""
    exported = {name: getattr(room, name) for name in room.__all__}
    classes = {name: thing for name, thing in exported.items() if isinstance(thing, type)}
    assert {name for name, thing in classes.items() if issubclass(thing, nn.Module)} == set(PARTS)
    estimators = {name for name, thing in classes.items() if issubclass(thing, BaseEstimator)}
    assert estimators == {"KernelPerceptron", "MaxMarginClassifier", "Perceptron"}
