"""What Frechet distances refuse, by name."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from vademecum.generative import FeatureMoments, feature_moments, frechet_distance

ok = torch.randn(9, 3, generator=torch.Generator().manual_seed(21))
bad = FeatureMoments(torch.zeros(2), torch.tensor([[1.0, 2.0], [2.0, 1.0]]), 5)
ROWS: Any = [ok[0], ok[0, :2]]
UNEQUAL, NOTHING = DataLoader(ROWS, batch_size=1), DataLoader(ROWS[:0])
good = FeatureMoments(torch.zeros(2), torch.eye(2), 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: frechet_distance(ok[:1], ok), "x must hold at least 2 examples, got 1"),
        (lambda: frechet_distance(ok, ok[:1]), "y must hold at least 2 examples, got 1"),
        (lambda: feature_moments(ok[:1]), "x must hold at least 2 examples, got 1"),
        (lambda: frechet_distance(ok, ok[:, :2]), "equally many features, got 3 and 2"),
        (lambda: frechet_distance(ok, ok.long()), "y must be floating point, got torch.int64"),
        (lambda: frechet_distance(ok[0], ok), "x must be real features with examples in rows"),
        (lambda: frechet_distance(ok + 0j, ok), "x must be real features"),
        (lambda: frechet_distance(ok, ok / 0), "y must be finite"),
        (lambda: frechet_distance(ok.double() * 1e200, ok), "must have finite variances"),
        (lambda: frechet_distance(ok[:0], ok), "x must not be empty"),
        (lambda: frechet_distance(ok, NOTHING), "y must hold batches, got an empty"),
        (
            lambda: frechet_distance(ok[:4], ok, extrapolate=True, groups=4),
            "x must hold more than 3 examples without each of 4 groups to extrapolate, got 4",
        ),
        (
            lambda: frechet_distance(ok, ok[:7, :1], extrapolate=True, groups=8),
            "y must hold an example for each of 8 groups, got 7",
        ),
        (
            lambda: frechet_distance(good, ok[:, :2], extrapolate=True),
            "x must hold examples to extrapolate, got their moments alone",
        ),
        (lambda: frechet_distance(ok, ok, groups=1), "groups must be >= 2, got 1"),
        (lambda: frechet_distance(ok, ok, memory=0), "memory must be >= 1, got 0"),
        (lambda: frechet_distance(bad, good), "covariance of x must be positive semidefinite"),
        (lambda: frechet_distance(good, bad), "covariance of y must be positive semidefinite"),
        (
            lambda: frechet_distance(good._replace(covariance=torch.ones(2, 3)), good),
            "x.covariance must be square",
        ),
        (
            lambda: frechet_distance(good._replace(mean=torch.zeros(3)), good),
            "x.mean must be 2 wide",
        ),
        (
            lambda: frechet_distance(good, good._replace(covariance=-torch.eye(2))),
            "y.covariance must be a matrix with variances >= 0",
        ),
        (
            lambda: frechet_distance(ok, ok, features=nn.BatchNorm1d(3, track_running_stats=False)),
            "model must treat examples independently",
        ),
        (
            lambda: frechet_distance(UNEQUAL, ok, features=nn.Identity()),
            "x must have features of one width in all batches, got 3 and 2",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
