"""Every module that the room exports keeps the laws of parts."""

import pytest
import torch
from torch import nn

import vademecum.linear as room
from vademecum.linear.autoencoder import LinearAutoencoder
from vademecum.linear.deep_linear import DeepLinearNetwork
from vademecum.testing import check_part

PARTS = {
    "DeepLinearNetwork": lambda: (DeepLinearNetwork([5, 3, 4]), torch.randn(3, 5)),
    "LinearAutoencoder": lambda: (LinearAutoencoder(5, 2), torch.randn(3, 5)),
}


@pytest.mark.parametrize("name", PARTS)
def test_laws(name):
    check_part(*PARTS[name]())


def test_nothing_is_left_out():
    """A new module needs a line above."""
    exported = {name: getattr(room, name) for name in room.__all__}
    classes = {name: thing for name, thing in exported.items() if isinstance(thing, type)}
    assert {name for name, thing in classes.items() if issubclass(thing, nn.Module)} == set(PARTS)
