"""Colours step by step as their formulas say; mixtures and their labels."""

import math
from typing import Any

import pytest
import torch
from scipy import linalg, stats

from vademecum.regularization import colour_jitter, cutmix, mixup, pca_jitter
from vademecum.regularization.augmentation.mixtures import symmetric_beta

WEIGHTS = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)


def luminance(x):
    return (WEIGHTS[:, None, None] * x).sum(-3, keepdim=True)


def chroma(x):
    blue, red = x[:, 2:] - luminance(x), x[:, :1] - luminance(x)
    return torch.stack((blue / 1.772, red / 1.402))


def test_colour_jitter_is_four_steps_one_after_the_other():
    x = torch.rand(6, 3, 5, 4, dtype=torch.float64)
    b, k, s = 1.3, 0.6, 1.7
    y = colour_jitter(x, brightness=(b, b), contrast=(k, k), saturation=(s, s), limits=None)
    z = b * x
    mean = luminance(z).mean((2, 3), keepdim=True)
    z = mean + k * (z - mean)
    grey = luminance(z)
    torch.testing.assert_close(y, grey + s * (z - grey))
    cut = colour_jitter(x, brightness=(b, b), contrast=(k, k), saturation=(s, s))
    torch.testing.assert_close(cut, y.clamp(0, 1))


def test_hue_turns_the_chroma_and_leaves_the_luminance():
    x = torch.rand(4, 3, 3, 3, dtype=torch.float64)
    turns = [colour_jitter(x, hue=(h, h), limits=None) for h in (0.0, 0.25, 0.5, -0.5)]
    torch.testing.assert_close(turns[0], x)
    for y in turns:
        torch.testing.assert_close(luminance(y), luminance(x))
    torch.testing.assert_close(turns[2], turns[3])  # half a turn either way
    grey = luminance(x)
    torch.testing.assert_close(turns[2] - grey, grey - x)
    again = colour_jitter(turns[1], hue=(0.25, 0.25), limits=None)
    torch.testing.assert_close(again, turns[2])
    blue, red = chroma(x)
    torch.testing.assert_close(chroma(turns[1]), torch.stack((-red, blue)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
def test_each_image_has_its_own_factors(dtype):
    x = torch.full((2000, 1, 2, 2), 100 if dtype == torch.uint8 else 0.5).to(dtype)
    y = colour_jitter(x, brightness=0.4)
    assert y.dtype == dtype
    factors = y[:, 0, 0, 0].double() / x[:, 0, 0, 0].double()
    assert (y == y[:, :, :1, :1]).all()
    assert abs(float(factors.mean()) - 1) < 0.03
    assert 0.59 < factors.min() < 0.62
    assert 1.38 < factors.max() < 1.41
    far = colour_jitter(x, brightness=3.0)  # factors from 0 to 4, cut to the range
    assert far.min() == 0 or dtype != torch.uint8
    assert far.max() == (255 if dtype == torch.uint8 else 1)


def test_uint8_colours_are_rounded_once():
    x = torch.randint(256, (50, 3, 9, 7), dtype=torch.uint8)
    for change in (
        lambda z, top: colour_jitter(z, brightness=0.3, contrast=0.3, saturation=0.5, hue=0.1,
                                     limits=(0.0, top)),
        lambda z, _: pca_jitter(z, 0.5),
    ):  # fmt: skip
        torch.manual_seed(0)
        y = change(x, 1.0)
        torch.manual_seed(0)
        exact = change(x.float(), 255.0)
        assert y.equal(exact.round().clamp(0, 255).to(torch.uint8))


def test_colours_in_portions():
    x = torch.rand(3000, 3, 10, 10)
    torch.manual_seed(0)
    y = colour_jitter(x, brightness=0.3, contrast=0.3, saturation=0.5, hue=0.1)
    torch.manual_seed(0)
    z = colour_jitter(x.clone().requires_grad_(), brightness=0.3, contrast=0.3, saturation=0.5,
                      hue=0.1)  # fmt: skip
    torch.testing.assert_close(y, z.detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", ["root", "alexnet"])
def test_pca_jitter_does_not_depend_on_the_eigenvectors_that_were_found(form):
    """The move is the root of the covariance, or the covariance, times a normal vector."""
    A = torch.randn(3, 3, dtype=torch.float64)
    C, x = A @ A.T, torch.rand(7, 3, 2, 2, dtype=torch.float64)
    twice = torch.diag(torch.tensor([2.0, 2.0, 5.0], dtype=torch.float64))  # a plane of axes
    for S in (C, twice):
        y = pca_jitter(x, 0.3, covariance=S, form=form, generator=torch.Generator().manual_seed(1))
        normal = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        found: Any = linalg.sqrtm(S.numpy())  # typed as one of several kinds
        root = torch.from_numpy(found) if form == "root" else S
        torch.testing.assert_close(y - x, (0.3 * normal @ root)[:, :, None, None].expand_as(x))


def test_pca_jitter_takes_the_covariance_of_the_batch():
    x = torch.rand(6, 3, 4, 5, dtype=torch.float64)
    own = torch.cov(x.transpose(0, 1).flatten(1), correction=0)
    y, z = (pca_jitter(x, covariance=C, generator=torch.Generator().manual_seed(1))
            for C in (None, own))  # fmt: skip
    torch.testing.assert_close(y, z)


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5, 1.0, 3.0])
def test_shares_of_mixup_have_a_beta_law(alpha):
    u = symmetric_beta(torch.empty(20000, 0), alpha, None)
    lower = u[u < 0.5].numpy()  # where the smallest can be told from 0
    assert stats.kstest(lower, lambda v: 2 * stats.beta(alpha, alpha).cdf(v)).pvalue > 1e-4
    assert abs(float(u.mean()) - 0.5) < 5 * math.sqrt(0.25 / (2 * alpha + 1) / 20000)


def test_mixup_blends_images_and_labels_in_the_same_shares():
    x, y = torch.rand(50, 2, 4, 3, dtype=torch.float64), torch.randint(5, (50,))
    mixed = mixup(x, y, classes=5, alpha=1.0)
    share = mixed.share[:, None, None, None]
    torch.testing.assert_close(mixed.images, share * x + (1 - share) * x[mixed.partners])
    one_hot = torch.eye(5, dtype=torch.float64)[y]
    expected = mixed.share[:, None] * one_hot + (1 - mixed.share[:, None]) * one_hot[mixed.partners]
    torch.testing.assert_close(mixed.labels, expected)
    assert mixed.partners.sort().values.equal(torch.arange(50))
    torch.manual_seed(0)
    soft = mixup(x, one_hot, alpha=1.0)
    torch.manual_seed(0)
    assert soft.labels.equal(mixup(x, y, classes=5, alpha=1.0).labels)


def test_mixup_of_bytes_is_rounded_once_and_leaves_its_input_alone():
    x = torch.randint(256, (30, 3, 5, 5), dtype=torch.uint8)
    before, y = x.clone(), torch.arange(30)
    torch.manual_seed(0)
    mixed = mixup(x, y, classes=30)
    torch.manual_seed(0)
    exact = mixup(x.float(), y, classes=30)
    assert x.equal(before)
    assert mixed.images.equal(exact.images.round().to(torch.uint8))


def test_mixup_with_a_gradient():
    x = torch.rand(6, 1, 2, 2, requires_grad=True)
    mixup(x, torch.arange(6), classes=6).images.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.sum(), torch.tensor(24.0))


def test_a_box_of_cutmix_has_the_area_that_its_share_leaves():
    torch.manual_seed(0)
    found = cutmix(torch.rand(400, 1, 64, 64), torch.zeros(400, 1), alpha=1e9)
    side = math.floor(64 * math.sqrt(0.5))  # a share of 1/2, where no edge cuts the box off
    assert float(found.share.min()) == pytest.approx(1 - side**2 / 64**2, abs=1e-6)
