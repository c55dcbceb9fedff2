"""What flows and autoregressive densities refuse, by the name of the argument."""

import math
import re

import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from torch import nn

from vademecum.generative import (
    IAF,
    MADE,
    MAF,
    Compose,
    LinearFlow,
    PlanarFlow,
    RealNVP,
    SplineFlow,
)


class Unmoved(nn.Module):
    """A map without parameters."""

    d, context = 2, 0

    def forward(self, x, context=None):
        return x, x.new_zeros(len(x))

    inverse = forward


REFUSED = {
    "d must be >= 1, got 0": lambda: LinearFlow(0),
    "d must be >= 2, got 1": lambda: RealNVP(1),
    "transforms must be >= 1, got 0": lambda: MAF(2, transforms=0),
    "max_log_scale must be > 0, got 0": lambda: IAF(2, max_log_scale=0),
    "bins must be >= 2, got 1": lambda: SplineFlow(2, bins=1),
    "bound must be > 0, got -1": lambda: SplineFlow(2, bound=-1),
    "hidden must be >= 1, got 0": lambda: MAF(2, hidden=(0,)),
    "order must be a permutation of 0, ..., 1, got [0, 0]": lambda: MADE(2, order=(0, 0)),
    "classes must be given for categorical": lambda: MADE(2, classes=3),
    "classes must be given for categorical coordinates, and only for those, got None": lambda: MADE(
        2, kind="categorical"
    ),
    "flows must be one or more, got none": lambda: Compose([]),
    "flows must agree in d, got [2, 3]": lambda: Compose([PlanarFlow(2), PlanarFlow(3)]),
    "flows must agree in context, got [1, 2]": lambda: Compose(
        [PlanarFlow(2, context=1), PlanarFlow(2, context=2)]
    ),
    "network must give shape (4, 2) for shape (4, 1), got (4, 3)": lambda: RealNVP(
        2, network=lambda i, o: nn.Linear(i, 3)
    ).log_prob(torch.zeros(4, 2)),
    "x must be floating point, got torch.int64": lambda: Compose([Unmoved()])(
        torch.ones(1, 2).long()
    ),
    "flows must have d, context and inverse, got a Linear": lambda: Compose([nn.Linear(2, 2)]),
    "x must have shape (n, 2), got (4, 3)": lambda: RealNVP(2).log_prob(torch.zeros(4, 3)),
    "z must have shape (n, 2), got (2,)": lambda: MAF(2).inverse(torch.zeros(2)),
    "x must be torch.float32 on cpu": lambda: RealNVP(2).log_prob(torch.zeros(4, 2).double()),
    "x must be torch.float32 on cpu like the parameters, got torch.int64": lambda: SplineFlow(
        2
    ).log_prob(torch.zeros(4, 2).long()),
    "n must be >= 1, got 0": lambda: PlanarFlow(2).sample(0),
    "context must be None": lambda: PlanarFlow(2).sample(3, torch.zeros(1)),
    "context must have shape (3, 2) or (2,), got None": lambda: MAF(2, context=2).sample(3),
    "context must have shape (3, 2) or (2,), got (4, 2)": lambda: RealNVP(2, context=2).sample(
        3, torch.zeros(4, 2)
    ),
    "context must be torch.float32": lambda: IAF(2, context=2).sample(3, torch.zeros(2).double()),
    "entries of x must be 0 or 1, got 0.5 at (0, 1)": lambda: MADE(2).log_prob(
        torch.tensor([[0.0, 0.5]])
    ),
    "entries of x must be classes 0, ..., 2, got 3 at (0, 0)": lambda: MADE(
        2, kind="categorical", classes=3
    ).log_prob(torch.tensor([[3, 0]])),
    "entries of x must be classes 0, ..., 2, got nan at (0, 1)": lambda: MADE(
        2, kind="categorical", classes=3
    ).log_prob(torch.tensor([[1.0, math.nan]])),
    "entries of x must be classes 0, ..., 2, got -1 at (1, 0)": lambda: MADE(
        2, kind="categorical", classes=3
    ).log_prob(torch.tensor([[1, 0], [-1, 2]])),
    "entries of x must be classes 0, ..., 2, got 0.5 at (0, 0)": lambda: MADE(
        2, kind="categorical", classes=3
    ).log_prob(torch.tensor([[0.5, 0.0]])),
    "x must be torch.float32 like the parameters, got torch.float64": lambda: MADE(
        2, kind="gaussian"
    ).log_prob(torch.zeros(1, 2).double()),
}  # fmt: skip


@pytest.mark.parametrize("make", [
    lambda word: LinearFlow(2, kind=word), lambda word: PlanarFlow(2, activation=word),
    lambda word: MADE(2, kind=word),
])  # fmt: skip
def test_unknown_words_are_refused(make):
    """By the check of types in tests, by the library itself elsewhere."""
    with pytest.raises((ValueError, BeartypeCallHintViolation), match="'lu'"):
        make("lu")


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        REFUSED[message]()
