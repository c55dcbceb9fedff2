"""Crops, reflections and erasures: every pixel is one of the image, at the place that was drawn."""

import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from vademecum.regularization import (
    cutmix,
    motion_task,
    patch_position_task,
    random_crop,
    random_erasing,
    random_flip,
)

DTYPES = [torch.uint8, torch.float32, torch.float64, torch.bfloat16]
LAST = torch.channels_last


def numbered(n, c, h, w, dtype=torch.float32, *, last=False):
    """Images that tell channel and place by their pixels."""
    x = torch.arange(c * h * w).view(1, c, h, w).repeat(n, 1, 1, 1).to(dtype)
    return x.contiguous(memory_format=LAST) if last else x


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [0, 3, (2, 0), (0, 5)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_crop_cuts_windows_of_the_padded_image(dtype, padding, last):
    p, q = (padding, padding) if isinstance(padding, int) else padding
    x = (255 * torch.rand(60, 3, 12, 9)).to(dtype)
    x = x.contiguous(memory_format=LAST) if last else x
    size = (7 + 2 * p, 5)
    torch.manual_seed(1)
    y = random_crop(x, size, padding=padding, fill=7)
    torch.manual_seed(1)
    top, left = torch.randint(12 - 7 + 1, (60,)), torch.randint(9 + 2 * q - 5 + 1, (60,))
    z = F.pad(x, (q, q, p, p), value=7)
    for k, (a, b) in enumerate(zip(top.tolist(), left.tolist(), strict=True)):
        assert y[k].equal(z[k, :, a : a + size[0], b : b + 5])
    assert y.dtype == dtype
    assert y.is_contiguous(memory_format=LAST) == last
    if dtype != torch.uint8:  # with a gradient it takes another way
        torch.manual_seed(1)
        again = random_crop(x.clone().requires_grad_(), size, padding=padding, fill=7)
        assert again.detach().equal(y)


def test_random_crop_of_many_images_in_portions():
    x = torch.rand(3000, 1, 20, 20)
    torch.manual_seed(0)
    y = random_crop(x, 20, padding=4)
    torch.manual_seed(0)
    assert y.equal(random_crop(x.clone().requires_grad_(), 20, padding=4).detach())


def test_random_crop_draws_all_offsets_equally_often():
    x = numbered(200, 1, 40, 41)
    corners = torch.cat([random_crop(x, (8, 9))[:, 0, 0, 0] for _ in range(30)]).long()
    counts = torch.bincount(corners, minlength=40 * 41).view(40, 41)
    assert counts[33:].sum() == counts[:, 33:].sum() == 0
    assert stats.chisquare(counts[:33, :33].flatten().numpy()).pvalue > 1e-4


def test_random_crop_of_images_that_are_not_contiguous():
    x = torch.rand(5, 8, 7, 2).permute(0, 3, 2, 1)[:, :, ::2, 1:]
    torch.manual_seed(0)
    y = random_crop(x, 3, padding=1)
    torch.manual_seed(0)
    assert y.equal(random_crop(x.contiguous(), 3, padding=1))
    whole = torch.rand(9, 2, 6, 6)
    torch.manual_seed(0)
    y = random_crop(whole[3:], 4)  # a view that begins further on
    torch.manual_seed(0)
    assert y.equal(random_crop(whole[3:].clone(), 4))


def test_random_crop_where_tensors_are_made_elsewhere_by_default():
    x = torch.rand(5, 2, 6, 6)
    torch.manual_seed(0)
    wanted = random_crop(x, 5, padding=1)
    torch.manual_seed(0)
    with torch.device("meta"):
        found = random_crop(x, 5, padding=1)
    assert found.equal(wanted)


def test_images_that_stay_as_they_are_are_copied():
    x = torch.rand(2, 1, 3, 3)
    assert random_flip(x, horizontal=0.0).data_ptr() != x.data_ptr()


@pytest.mark.parametrize("shape", [(), (2,)])
def test_masks_move_as_images_do(shape):
    x = torch.rand(40, 3, 10, 12)
    m = (x[:, :1] * 1000).long().expand(40, *shape, 10, 12) if shape else (x[:, 0] * 1000).long()
    for change in (
        lambda: random_crop(x, (8, 14), padding=2, masks=m, mask_fill=-1),
        lambda: random_flip(x, vertical=0.5, masks=m),
        lambda: random_erasing(x, p=1.0, masks=m),
    ):
        images, masks = change()
        expected = (images[:, 0] * 1000).long()
        assert masks.dtype == torch.int64
        assert masks.ndim == m.ndim
        flat = masks[:, 0] if shape else masks
        assert torch.where(flat == -1, 0, flat).equal(expected)


def test_gradients_come_back_to_the_pixels_that_were_seen():
    x = torch.rand(6, 2, 5, 5, requires_grad=True)
    random_crop(x, 3).sum().backward()
    assert x.grad is not None
    assert x.grad.sum((1, 2, 3)).tolist() == [18.0] * 6
    (slope,) = torch.autograd.grad(random_flip(x).sum(), x)
    assert slope.equal(torch.ones_like(x))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_flip_mirrors_each_image_by_its_own_coin(dtype, last):
    x = numbered(400, 3, 4, 5, dtype, last=last)
    y = random_flip(x, horizontal=0.3, vertical=0.6)
    assert y.dtype == dtype
    assert y.is_contiguous(memory_format=LAST) == last
    kinds = {(a, b): x[0].flip(tuple(a * [1] + b * [2])) for a in (0, 1) for b in (0, 1)}
    found = [next(kind for kind, z in kinds.items() if z.equal(image)) for image in y]
    for axis, p in ((0, 0.6), (1, 0.3)):
        count = sum(kind[axis] for kind in found)
        assert stats.binomtest(count, 400, p).pvalue > 1e-5
    both = sum(kind == (1, 1) for kind in found)
    assert stats.binomtest(both, 400, 0.18).pvalue > 1e-5
    assert random_flip(x, horizontal=1.0).equal(x.flip(3))
    assert random_flip(x, horizontal=0.0, vertical=1.0).equal(x.flip(2))
    assert random_flip(x, horizontal=0.0).equal(x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_erasing_wipes_out_one_box(dtype):
    x = torch.rand(500, 2, 20, 30).add(1).to(dtype)
    y = random_erasing(x, p=0.4, scale=(0.1, 0.3), ratio=(0.5, 2.0), fill=0)
    gone = (y == 0).any(1)
    assert gone.equal((y == 0).all(1))
    assert y.equal(torch.where(gone[:, None], torch.zeros_like(x), x))
    hit = gone.any((1, 2))
    assert stats.binomtest(int(hit.sum()), 500, 0.4).pvalue > 1e-5
    rows, columns = gone[hit].any(2), gone[hit].any(1)
    height, width = rows.sum(1), columns.sum(1)
    assert gone[hit].sum((1, 2)).equal(height * width)  # a box, with whatever is inside
    assert (rows.long().diff(dim=1) == 1).sum(1).max() <= 1
    share = height * width / 600
    assert 0.08 < share.min() < 0.13
    assert 0.27 < share.max() < 0.33
    ratio = width / height
    assert 0.4 < ratio.min() < 0.6
    assert 1.7 < ratio.max() < 2.4


def test_boxes_keep_to_images_that_are_long_and_thin():
    gone = random_erasing(torch.ones(200, 1, 4, 60), p=1.0, scale=(0.5, 0.9), ratio=(1.0, 1.0)) == 0
    share = gone.float().mean((1, 2, 3))
    assert share.min() > 0.45
    assert share.max() < 0.95


def test_cutmix_labels_are_the_share_of_pixels_kept():
    n, h, w = 300, 16, 32
    x = torch.arange(n, dtype=torch.float64).view(n, 1, 1, 1).expand(n, 1, h, w)
    mixed = cutmix(x, torch.arange(n), classes=n)
    kept = (mixed.images == x).sum((1, 2, 3)) / (h * w)
    alone = mixed.partners == torch.arange(n)
    assert (kept[~alone] == mixed.share[~alone]).all()
    other = (mixed.images == x[mixed.partners]).sum((1, 2, 3)) / (h * w)
    assert (other[~alone] == 1 - mixed.share[~alone]).all()
    rows = torch.arange(n)
    own = mixed.labels[rows, rows]
    assert (own[~alone] == mixed.share[~alone]).all()
    assert (mixed.labels.sum(1) == 1).all()
    assert mixed.partners.sort().values.equal(rows)
    assert len(mixed.share.unique()) > 100
    boxes = mixed.images != x
    assert boxes.sum((1, 2, 3)).equal(boxes.any(3).sum((1, 2)) * boxes.any(2).sum((1, 2)))


def test_crops_of_a_generator_are_drawn_again():
    x = torch.rand(20, 1, 9, 9)
    draws = [random_crop(x, 4, generator=torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
    assert draws[0].equal(draws[1])
    assert not draws[0].equal(draws[2])


def test_patches_of_channels_last_images():
    x = torch.rand(20, 3, 13, 14)
    tasks = []
    for z in (x, x.contiguous(memory_format=LAST)):
        torch.manual_seed(0)
        tasks.append(patch_position_task(z, 4))
    assert tasks[0].inputs.equal(tasks[1].inputs)
    assert tasks[0].labels.equal(tasks[1].labels)


@pytest.mark.parametrize(
    ("most", "down", "right"),
    [(None, (-3, 2), (-3, 3)), (2, (-2, 2), (-2, 2)), (0, (0, 0), (0, 0))],
)
def test_frames_move_by_displacements_of_the_range_that_was_asked_for(most, down, right):
    inputs, labels = motion_task(torch.rand(600, 1, 6, 7), most=most)
    for axis, (low, high) in enumerate((down, right)):
        assert labels[:, axis].unique().equal(torch.arange(low, high + 1))
    for (first, second), move in zip(inputs[:20], labels[:20].tolist(), strict=True):
        assert second.equal(first.roll(move, (1, 2)))
