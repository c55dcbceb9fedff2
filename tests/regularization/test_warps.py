"""Affine maps against SciPy, resized crops against torch's interpolation."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage, stats
from torch import Tensor
from torch.nn import functional as F

from vademecum.regularization import random_affine, random_resized_crop


def ramps(n: int, h: int, w: int) -> Tensor:
    """Images whose two channels tell the row and the column."""
    row, column = torch.meshgrid(torch.arange(h).double(), torch.arange(w).double(), indexing="ij")
    return torch.stack((row, column)).expand(n, 2, h, w)


def recovered(y: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices and offsets of the maps from places to the places they come from, from ramps."""
    n, _, h, w = y.shape
    i, j = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    near = ((i - h // 2).abs() <= 2) & ((j - w // 2).abs() <= 2)
    A = torch.stack((i[near], j[near], torch.ones_like(i[near])), 1).double()
    solved = torch.linalg.lstsq(A.expand(n, -1, -1), y[:, :, near].mT).solution  # (n, 3, 2)
    return solved[:, :2].mT, solved[:, 2]


KNOBS = [
    {"degrees": 25.0},
    {"translate": 0.1, "scale": (0.8, 1.3)},
    {"degrees": (-40.0, 10.0), "translate": 0.1, "scale": (0.9, 1.1), "shear": 15.0, "fill": 3.0},
]


@pytest.mark.parametrize("knobs", KNOBS)
@pytest.mark.parametrize(("h", "w"), [(21, 30), (24, 24)])
def test_random_affine_is_that_of_scipy(knobs, h, w):
    n = 12
    texture = torch.rand(n, 1, h, w, dtype=torch.float64)
    y = random_affine(torch.cat((ramps(n, h, w), texture), 1), **knobs)
    matrices, offsets = recovered(y[:, :2])
    assert len(offsets[:, 0].round(decimals=6).unique()) == n
    for k in range(n):
        offset: Any = offsets[k].numpy()  # typed as one number
        expected = ndimage.affine_transform(
            texture[k, 0].numpy(), matrices[k].numpy(), offset, order=1,
            mode="grid-constant", cval=knobs.get("fill", 0.0),
        )  # fmt: skip
        np.testing.assert_allclose(y[k, 2].numpy(), expected, atol=1e-9)


def test_random_affine_draws_what_it_says():
    h, w, n = 31, 41, 3000
    y = random_affine(ramps(n, h, w), degrees=(-20, 40), scale=(0.8, 1.25), translate=(0.02, 0.1))
    M, offset = recovered(y)
    scale = M.det() ** -0.5
    turn = torch.atan2(M[:, 0, 1], M[:, 0, 0]).rad2deg()  # the row of origin grows to the right
    centre = torch.tensor([(h - 1) / 2, (w - 1) / 2], dtype=torch.float64)
    goal = torch.linalg.solve(M, centre - offset)  # where the centre went
    move = (goal - centre) / torch.tensor([h, w])
    down, right = move.unbind(1)
    for found, low, high in (
        *((turn, -20, 40), (scale, 0.8, 1.25), (down, 0.02, 0.1), (right, 0.02, 0.1)),
    ):
        assert stats.kstest(((found - low) / (high - low)).numpy(), "uniform").pvalue > 1e-4


def test_random_affine_turns_against_the_clock_and_shears_along_rows():
    x = torch.rand(3, 2, 7, 7)
    for quarter in (1, 2, 3):
        y = random_affine(x, degrees=(90 * quarter, 90 * quarter))
        torch.testing.assert_close(y, x.rot90(quarter, (2, 3)), atol=1e-5, rtol=0)
    point = torch.zeros(1, 1, 9, 9)
    point[0, 0, 2, 4] = 1  # two above the centre
    sheared = random_affine(point, shear=(45.0, 45.0))
    assert sheared[0, 0].argmax() == 2 * 9 + 6  # to the right by as much
    moved = random_affine(point, translate=(2 / 9, 2 / 9))
    assert moved[0, 0].argmax() == 4 * 9 + 6


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16])
def test_other_dtypes_are_rounded_once(dtype):
    x = (255 * torch.rand(20, 3, 13, 11)).to(dtype)
    for change in (
        lambda z: random_affine(z, degrees=30, fill=9),
        lambda z: random_resized_crop(z, (9, 17)),
    ):
        torch.manual_seed(0)
        y = change(x)
        torch.manual_seed(0)
        exact = change(x.float())
        assert y.dtype == dtype
        assert y.equal(exact.round().to(dtype) if dtype == torch.uint8 else exact.to(dtype))


def test_masks_of_affine_maps_take_the_nearest_pixel():
    h, w = 20, 26
    x, m = ramps(8, h, w), torch.randint(1000, (8, h, w))
    y, masks = random_affine(x, degrees=40, translate=0.2, fill=0.0, masks=m, mask_fill=-1)
    matrices, offsets = recovered(y)
    i, j = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    places = torch.stack((i, j), -1).double()
    for k in range(8):
        at = (places @ matrices[k].T + offsets[k]).round().long()
        within = (at >= 0).all(-1) & (at[..., 0] < h) & (at[..., 1] < w)
        at = at.clamp(min=0).minimum(torch.tensor([h - 1, w - 1]))
        expected = torch.where(within, m[k, at[..., 0], at[..., 1]], -1)
        assert (masks[k] != expected).sum() <= 1  # halves, up to rounding
    assert (masks == -1).any()


@pytest.mark.parametrize(("h", "w"), [(24, 30), (31, 31)])
def test_random_resized_crop_is_the_interpolation_of_a_crop(h, w):
    n, size = 40, (13, 40)
    x = torch.cat((ramps(n, h, w), torch.rand(n, 1, h, w, dtype=torch.float64)), 1)
    y, masks = random_resized_crop(x, size, masks=x[:, :2])
    seen = set()
    for k in range(n):
        # a resized ramp goes from the first to the last pixel of the crop, or half a step less
        first, last = y[k, :2].flatten(1).amin(1), y[k, :2].flatten(1).amax(1)
        crops = [c for c in _crops(first, last, h, w, size) if _equal(x[k], y[k], c, size)]
        assert crops, (first, last)
        seen.add(crops[0])
        top, left, height, width = crops[0]
        part = x[k : k + 1, :2, top : top + height, left : left + width]
        assert masks[k].equal(F.interpolate(part, size, mode="nearest-exact")[0])
    assert len(seen) > n // 2


def _crops(first: Tensor, last: Tensor, h: int, w: int, size: tuple[int, int]):
    """The few crops that a resized ramp with these ends can come from."""
    sides = []
    for a, b, full, new in zip(first.tolist(), last.tolist(), (h, w), size, strict=True):
        fits = [
            (start, length)
            for start in range(full)
            for length in range(1, full - start + 1)
            if abs(start + max(0.0, length / new / 2 - 0.5) - a) < 1e-9
            and abs(start + length - 1 - max(0.0, length / new / 2 - 0.5) - b) < 1e-9
        ]
        sides.append(fits)
    return [(t, l, a, b) for t, a in sides[0] for l, b in sides[1]]


def _equal(x: Tensor, y: Tensor, crop: tuple[int, int, int, int], size: tuple[int, int]) -> bool:
    top, left, height, width = crop
    part = x[None, :, top : top + height, left : left + width]
    return torch.allclose(F.interpolate(part, size, mode="bilinear")[0], y, atol=1e-9)


def test_random_resized_crop_in_portions_and_with_a_gradient():
    x = torch.rand(700, 3, 24, 24)
    torch.manual_seed(0)
    y = random_resized_crop(x, 20)
    torch.manual_seed(0)
    z = random_resized_crop(x.clone().requires_grad_(), 20)
    torch.testing.assert_close(y, z.detach(), rtol=0, atol=1e-6)
    z.sum().backward()


def test_resized_crops_have_the_areas_and_shapes_that_were_asked_for():
    n, size = 1500, 64
    x = ramps(n, size, size)
    y = random_resized_crop(x, size, scale=(0.2, 0.6), ratio=(0.5, 2.0))
    low, high = y.flatten(2).aminmax(dim=2)
    height, width = (high - low + 1).unbind(1)
    share = height * width / size**2
    assert stats.kstest(((share - 0.2) / 0.4).numpy(), "uniform").statistic < 0.06
    ratio = (width / height).log2()
    assert 0.9 < ratio.amax() < 1.1
    assert -1.1 < ratio.amin() < -0.9
    assert ratio.mean().abs() < 0.08
    room = size - width
    start = low[:, 1] / room.clamp(min=1)
    assert abs(float(start[room > 5].mean()) - 0.5) < 0.05
