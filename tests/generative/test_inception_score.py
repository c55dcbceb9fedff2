"""Inception scores against mutual information, scikit-learn, and what splits should give."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import nn

from tests.generative.drawn_features import batched
from vademecum.generative import inception_score
from vademecum.models import mlp
from vademecum.testing import check_instrument


def table(n: int, k: int, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(n, k, dtype=torch.float64, generator=g)


def by_definition(p: np.ndarray) -> float:
    """The exponential of the mean divergence from the mean."""
    return math.exp(np.mean([scipy.stats.entropy(row, p.mean(0)) for row in p]))


@pytest.mark.parametrize(("n", "k", "splits"), [(24, 5, 4), (25, 2, 3), (7, 10, 7), (6, 3, 1)])
def test_definition(n, k, splits):
    logits = table(n, k, seed=1)
    p = logits.softmax(1)
    found = inception_score(logits, splits=splits)
    assert found.value == pytest.approx(by_definition(p.numpy()), rel=1e-12)
    parts = [p[i::splits].numpy() for i in range(splits)]
    expected = [by_definition(part) for part in parts]
    np.testing.assert_allclose(found.splits, expected, rtol=1e-12)
    assert inception_score(p, given="probabilities", splits=splits).value == pytest.approx(
        found.value, rel=1e-12
    )
    if splits == 1:
        assert found.standard_error is None
        return
    left = [by_definition(np.concatenate(parts[:j] + parts[j + 1 :])) for j in range(splits)]
    assert found.standard_error == pytest.approx(math.sqrt(splits - 1) * np.std(left), rel=1e-8)


def test_ends_of_the_range():
    same = table(1, 6).expand(30, 6)
    assert inception_score(same).value == pytest.approx(1, abs=1e-12)
    sure = torch.eye(6).repeat(5, 1)
    found = inception_score(sure, given="probabilities", splits=5)
    assert found.value == pytest.approx(6, abs=1e-12)
    assert found.value <= 6
    assert found.standard_error == pytest.approx(0, abs=1e-12)
    for k in range(2, 40):
        assert inception_score(torch.eye(k), given="probabilities", splits=2).value <= k
    huge = inception_score(1e5 * sure, splits=5)  # logits whose exponentials overflow
    assert huge.value == pytest.approx(6, abs=1e-12)


def test_standard_error_is_the_spread_of_scores():
    """200 sets from one law of tables: a mixture of sure and unsure rows."""
    g, found = torch.Generator().manual_seed(2), []
    for _ in range(200):
        logits = 3 * torch.randn(100, 4, dtype=torch.float64, generator=g)
        found.append(inception_score(logits, splits=10))
    spread = np.std([f.value for f in found])
    errors = [f.standard_error for f in found if f.standard_error is not None]
    assert 0.85 < np.mean(errors) / spread < 1.3


def test_modules_and_loaders():
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout()).double()
    x = table(30, 4, seed=3)
    wanted = inception_score(net.eval()(x))
    net.train()
    for given in (x, batched(x, size=7), batched(x, size=1)):
        found = inception_score(given, features=net, memory=10_000)
        assert found.value == pytest.approx(wanted.value, rel=1e-12)
        torch.testing.assert_close(found.splits, wanted.splits)
    assert net.training
    sure = nn.Sequential(net, nn.Softmax(1))
    found = inception_score(x, features=sure, given="probabilities")
    assert found.value == pytest.approx(wanted.value, rel=1e-12)

    def score(model, data):
        return torch.tensor(inception_score(data, features=model, splits=2).value)

    check_instrument(score, mlp([6, 4, 2]), table(8, 6).float())


ODDS: Any = "odds"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: inception_score(table(1, 3), splits=1), "x must hold at least 2 samples, got 1"),
        (lambda: inception_score(table(9, 3)), "x must hold at least 10 samples, got 9"),
        (lambda: inception_score(table(9, 3), given=ODDS), "given must be one of 'logits'"),
        (lambda: inception_score(table(20, 3), given="probabilities"), "x must be >= 0, got"),
        (lambda: inception_score(torch.ones(20, 3), given="probabilities"), "x must sum to one"),
        (lambda: inception_score(table(20, 3), splits=0), "splits must be >= 1, got 0"),
        (lambda: inception_score(table(20, 3) / 0), "x must be finite"),
    ],
)
def test_bad_input_is_named(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
def test_gpus():
    x = table(50, 6)
    assert inception_score(x.cuda()).value == pytest.approx(inception_score(x).value, rel=1e-10)
