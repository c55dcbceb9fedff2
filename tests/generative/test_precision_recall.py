"""Precision and recall against scikit-learn's neighbours and plain counting."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import nn

from tests.generative.drawn_features import batched, normal
from vademecum.generative import precision_recall
from vademecum.models import mlp, peak_bytes
from vademecum.testing import check_instrument


def by_counting(x: np.ndarray, y: np.ndarray, k: int) -> tuple[float, ...]:
    """The definitions, with radii by scikit-learn."""

    def radii(rows):
        return NearestNeighbors(n_neighbors=k).fit(rows).kneighbors()[0][:, -1]

    gaps = np.linalg.norm(x[:, None] - y, axis=-1)
    near, recalled = gaps <= radii(x)[:, None], gaps <= radii(y)
    return (
        near.any(0).mean(), recalled.any(1).mean(), near.sum() / (k * len(y)), near.any(1).mean(),
    )  # fmt: skip


@pytest.mark.parametrize(("n", "m", "d", "k"), [(60, 45, 2, 1), (40, 70, 3, 3), (25, 30, 5, 5)])
@pytest.mark.parametrize("memory", [None, 2**10, 2**12])
def test_counting(n, m, d, k, memory):
    x, y = normal(n, d, seed=1), 0.6 * normal(m, d, seed=2) + 0.4
    found = precision_recall(x, y, k=k, memory=memory)
    np.testing.assert_allclose(found, by_counting(x.numpy(), y.numpy(), k), rtol=1e-12)
    assert len({round(value, 3) for value in found}) == 4  # so that no two can be confused


def test_far_from_zero():
    x, y = normal(60, 3, seed=11), 0.6 * normal(50, 3, seed=12)
    assert precision_recall(x + 2.0**25, y + 2.0**25) == precision_recall(x, y)


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1e8, 1e200])
def test_scales_do_not_count(scale):
    x, y = normal(60, 3, seed=11), 0.6 * normal(50, 3, seed=12)
    assert precision_recall(scale * x, scale * y) == precision_recall(x, y)


def test_what_each_number_misses():
    """Samples of one half, samples too wide, and a set against itself."""
    x = torch.cat([normal(200, 2, seed=3) - 20, normal(200, 2, seed=4) + 20])
    half = precision_recall(x, normal(300, 2, seed=5) + 20)
    assert half.precision > 0.9
    assert half.recall < 0.55
    assert half.coverage < 0.55
    wide = precision_recall(x, 300 * normal(300, 2, seed=6))
    assert wide.precision < 0.1
    itself = precision_recall(x, x)
    assert itself.precision == itself.recall == itself.coverage == 1


def test_equal_laws_have_a_density_of_one():
    """Each of n balls holds a sample with k / n chances on average, so that density is near 1."""
    found = [
        precision_recall(normal(400, 2, seed=s), normal(400, 2, seed=s + 50), k=5).density
        for s in range(8)
    ]
    assert np.mean(found) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("shift", [0.0, 1e3, 2.0**20])
def test_a_point_at_the_rim_is_inside(shift):
    """Copies of data lie at the rim of their neighbours' balls, and on copies of radius 0."""
    x = normal(30, 4, seed=7) + shift
    assert precision_recall(x, x[:3].repeat(4, 1), k=1).precision == 1
    twice = x.repeat(3, 1)  # all radii are 0
    assert precision_recall(twice, twice[:40].clone(), k=2).precision == 1
    assert precision_recall(twice, twice[:40] + 0.5, k=2).precision == 0
    outside = torch.tensor([[2 + 1e-9], [50.0], [60.0]], dtype=torch.float64)
    assert precision_recall(torch.tensor([[0.0], [1.0]]).double(), outside, k=1).precision == 0
    stray = torch.cat([x, x + 1000])
    assert precision_recall(x, stray, k=1).precision == 0.5


def test_modules_and_loaders():
    net = nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.Tanh()).double()
    x, y = normal(31, 4, seed=8), 2 * normal(29, 4, seed=9)
    wanted = precision_recall(net.eval()(x), net(y))
    net.train()
    assert precision_recall(batched(x, size=4), y, features=net) == wanted

    def of_halves(model, data):
        return torch.tensor(precision_recall(data[::2], data[1::2], features=model, k=2))

    check_instrument(of_halves, mlp([6, 4, 2]), normal(12, 6, seed=10).float())


def test_memory_is_kept_to():
    x, y = normal(3000, 8), normal(2000, 8, seed=1)
    assert peak_bytes(lambda: precision_recall(x, y, memory=2**20)) < 2**20 + 5000 * 40


x = torch.randn(5, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: precision_recall(x[:3], x), "x must hold more than k = 3 examples, got 3"),
        (lambda: precision_recall(x, x[:3]), "y must hold more than k = 3 examples, got 3"),
        (lambda: precision_recall(x[:1], x, k=1), "x must hold at least 2 examples, got 1"),
        (lambda: precision_recall(x, x[:, :1]), "equally many features, got 3 and 1"),
        (lambda: precision_recall(x, x, k=0), "k must be >= 1, got 0"),
        (lambda: precision_recall(x, x / 0), "y must be finite"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
def test_gpus():
    x, y = normal(500, 6), normal(400, 6, seed=1)
    assert precision_recall(x.cuda(), y.cuda(), memory=2**16) == precision_recall(x, y)


def test_balls_that_are_points():
    found = precision_recall(torch.zeros(4, 2), torch.zeros(3, 2), k=2)
    assert tuple(found) == (1, 1, 4 / 2, 1)
