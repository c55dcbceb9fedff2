"""Random labels and permuted pixels: what is kept, what is drawn, and how often."""

import math
import re
from typing import Any

import pytest
import torch
from scipy import stats

from vademecum.generalization import permute_pixels, random_labels


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize(("fraction", "count"), [(0.0, 0), (0.25, 100), (0.504, 202), (1.0, 400)])
def test_random_labels_draw_a_share(fraction, count, dtype):
    y = (torch.arange(400) % 7).to(dtype)
    kept = y.clone()
    labels, drawn = random_labels(y, fraction=fraction, k=9)
    assert int(drawn.sum()) == count
    assert labels.dtype == dtype
    assert labels[~drawn].equal(kept[~drawn])
    assert y.equal(kept)  # what was given is as it was
    assert (labels < 9).all()


def test_random_labels_are_uniform_and_independent_of_the_old_ones():
    y = torch.arange(60_000) % 3
    labels, drawn = random_labels(y, fraction=0.5)
    assert int(labels.max()) == 2
    table = torch.stack([torch.bincount(labels[drawn & (y == c)], minlength=3) for c in range(3)])
    independent: Any = stats.chi2_contingency(table.numpy())
    assert independent.pvalue > 1e-6
    assert stats.chisquare(table.sum(0).numpy()).pvalue > 1e-6
    # which are drawn does not depend on their place
    early = int(drawn[:30_000].sum())
    assert stats.binomtest(early, 30_000, 0.5).pvalue > 1e-6


@pytest.mark.parametrize("shape", [(5, 12), (5, 3, 4), (5, 2, 3, 4)])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8])
def test_permute_pixels_by_loops(shape, each, dtype):
    x = torch.randint(100, shape).to(dtype)
    kept = x.clone()
    images, order = permute_pixels(x, each=each)
    pixels = 12
    assert order.shape == ((5, 12) if each else (12,))
    assert images.shape == shape
    assert images.dtype == dtype
    for i in range(5):
        own = order[i] if each else order
        for before, after in zip(
            x[i].reshape(-1, pixels), images[i].reshape(-1, pixels), strict=True
        ):
            assert after.tolist() == [before[int(j)].item() for j in own]
    assert x.equal(kept)
    again = permute_pixels(x, each=each, permutation=order)
    assert again.images.equal(images)
    back = order.argsort(-1)
    assert permute_pixels(images, each=each, permutation=back).images.equal(x)


def test_every_order_comes_out_alike():
    x = torch.zeros(24_000, 4)
    for orders in (
        permute_pixels(x, each=True).permutation,
        torch.stack([permute_pixels(x[:1]).permutation for _ in range(4800)]),
    ):
        names = (orders * torch.tensor([64, 16, 4, 1])).sum(1)
        counts = names.unique(return_counts=True)[1]
        assert len(counts) == math.factorial(4)
        assert stats.chisquare(counts.numpy()).pvalue > 1e-6


def test_orders_of_many_images_are_made_in_portions(monkeypatch):
    from vademecum.generalization import corruptions

    monkeypatch.setattr(corruptions, "_KEYS", 30)
    order = permute_pixels(torch.zeros(11, 10), each=True).permutation
    assert order.sort(1).values.equal(torch.arange(10).expand(11, 10))
    assert len(order.unique(dim=0)) > 8


Y, X = torch.tensor([0, 2, 1]), torch.zeros(3, 4)
BAD_LABELS = [
    ({"y": Y.float()}, "y must be a row of integer labels, got torch.float32 of shape (3,)"),
    ({"y": Y[None]}, "y must be a row of integer labels, got torch.int64 of shape (1, 3)"),
    ({"y": Y[:0]}, "y must be a row of integer labels, got torch.int64 of shape (0,)"),
    ({"y": [0, 1]}, "y must be a row of integer labels, got [0, 1]"),
    ({"y": Y - 1}, "y must be labels >= 0, got -1"),
    ({"k": 2}, "k must be >= 3, got 2"),
    ({"y": Y.to(torch.uint8), "k": 257}, "k must be <= 256, got 257"),
    ({"fraction": 1.1}, "fraction must be <= 1, got 1.1"),
    ({"fraction": -0.1}, "fraction must be >= 0, got -0.1"),
    ({"fraction": math.nan}, "fraction must be >= 0, got nan"),
]
BAD_IMAGES = [
    ({"x": X[0]}, "x must be (n, c, h, w), (n, h, w) or (n, d), got shape (4,)"),
    ({"x": X[:0]}, "x must be (n, c, h, w), (n, h, w) or (n, d), got shape (0, 4)"),
    ({"x": [[1]]}, "x must be (n, c, h, w), (n, h, w) or (n, d), got list"),
    (
        {"permutation": torch.arange(3)},
        "permutation must be integers of shape (4,), got torch.int64 of shape (3,)",
    ),
    (
        {"permutation": torch.arange(4), "each": True},
        "permutation must be integers of shape (3, 4), got torch.int64 of shape (4,)",
    ),
    ({"permutation": [0, 1]}, "permutation must be integers of shape (4,), got [0, 1]"),
    (
        {"permutation": torch.tensor([0, 1, 1, 3])},
        "permutation must hold 0, ..., 3 once each, got others",
    ),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("wrong", "message"), BAD_LABELS, ids=[m for _, m in BAD_LABELS])
def test_labels_that_are_refused(wrong, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        random_labels(**{"y": Y, **wrong})


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("wrong", "message"), BAD_IMAGES, ids=[m for _, m in BAD_IMAGES])
def test_images_that_are_refused(wrong, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        permute_pixels(**{"x": X, **wrong})
