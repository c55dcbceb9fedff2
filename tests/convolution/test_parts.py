"""Every module that the room exports keeps the laws of parts."""

import pytest
import torch
from torch import nn

import vademecum.convolution as room
from tests.convolution.test_networks import IMAGES
from vademecum.convolution import CausalConv1d, LocallyConnected2d, SoftmaxPool
from vademecum.testing import check_part

PARTS = {
    "CausalConv1d": lambda: (CausalConv1d(2, 4, 3, dilation=2, groups=2), torch.randn(3, 2, 7)),
    "LocallyConnected2d": lambda: (LocallyConnected2d(2, 3, 5, 2), torch.randn(3, 2, 5, 5)),
    "SoftmaxPool": lambda: (SoftmaxPool(2, learn_beta=True), torch.randn(3, 2, 6, 4)),
}


@pytest.mark.parametrize("name", PARTS)
def test_laws(name):
    check_part(*PARTS[name](), devices=("cpu", "meta"))


def test_nothing_is_left_out():
    """A new layer needs a line above, a new network one among those of its own tests."""
    classes = [thing for name in room.__all__ if isinstance(thing := getattr(room, name), type)]
    modules = {thing.__name__ for thing in classes if issubclass(thing, nn.Module)}
    networks = {type(make()).__name__ for make, _ in IMAGES.values()}
    assert modules == {*PARTS, *networks, "TextCNN", "WaveNet"}
