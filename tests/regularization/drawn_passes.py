"""Calls of this room that draw, for the test of generators."""

import torch
from torch import nn

from vademecum import regularization

CALLS = {
    "mc_dropout": lambda g: regularization.mc_dropout(
        nn.Dropout(), torch.ones(2, 9), samples=3, generator=g
    ),
}
