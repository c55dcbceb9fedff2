"""What augmentations, contrast and pretext tasks refuse, and in which words."""

import re
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.regularization import (
    ContrastivePredictiveCoding,
    colour_jitter,
    colourisation_task,
    cutmix,
    effective_sample_size,
    info_nce_loss,
    mask_task,
    mixup,
    motion_task,
    patch_position_task,
    pca_jitter,
    random_affine,
    random_crop,
    random_erasing,
    random_flip,
    random_resized_crop,
    rotation_task,
)

X, Y, NAN = torch.zeros(2, 3, 6, 8), torch.tensor([0, 1]), float("nan")
Q = torch.zeros(4, 3)


def odd(thing) -> Any:
    return thing


def cpc(**knobs):
    knobs = {"encoder": nn.Identity(), "context": nn.Identity(), "latent": 3, "ahead": 2} | knobs
    return ContrastivePredictiveCoding(**knobs)


MISTAKES = [
    (lambda: random_flip(odd("x")), "x must be a tensor (n, c, h, w), got str"),
    (lambda: random_flip(X[0]), "x must have the shape (n, c, h, w), got (3, 6, 8)"),
    (lambda: random_flip(X[:0]), "x must have the shape (n, c, h, w), got (0, 3, 6, 8)"),
    (lambda: random_flip(X.long()), "x must be uint8 or floating point, got torch.int64"),
    (lambda: random_flip(X, horizontal=1.1), "horizontal must be <= 1, got 1.1"),
    (lambda: random_flip(X, vertical=-0.1), "vertical must be >= 0, got -0.1"),
    (lambda: random_flip(X, horizontal=NAN), "horizontal must be >= 0, got nan"),
    (lambda: random_flip(X, masks=X[:1]), "masks must have the shape (2, 6, 8) or (2, m, 6, 8)"),
    (lambda: random_flip(X, masks=odd([1])), "masks must be a tensor, got list"),
    (lambda: random_crop(X, 9),
     "size must be at most that of the padded image, 6 x 8, got 9 x 9"),
    (lambda: random_crop(X, (8, 9), padding=(1, 0)), "padded image, 8 x 8, got 8 x 9"),
    (lambda: random_crop(X, 0), "size must be >= 1, got 0"),
    (lambda: random_crop(X, odd(2.5)), "size must be an integer, got 2.5"),
    (lambda: random_crop(X, odd((2, 3, 4))), "size must be an integer, got (2, 3, 4)"),
    (lambda: random_crop(X, 3, padding=-1), "padding must be >= 0, got -1"),
    (lambda: random_crop(X, 3, fill=NAN), "fill must be a number, got nan"),
    (lambda: random_crop(X.byte(), 3, fill=0.5), "fill must be an integer, got 0.5"),
    (lambda: random_crop(X.byte(), 3, fill=256), "fill must be <= 255, got 256"),
    (lambda: random_crop(X, 3, masks=X.byte(), mask_fill=-1), "mask_fill must be >= 0, got -1"),
    (lambda: random_crop(X, 3, masks=X > 0, mask_fill=2), "mask_fill must be <= 1, got 2"),
    (lambda: random_crop(X.half(), 3, fill=1e5), "fill must be <= 65504, got 100000.0"),
    (lambda: random_crop(X, 3, masks=odd([1])), "masks must be a tensor, got list"),
    (lambda: random_affine(X, masks=odd([1])), "masks must be a tensor, got list"),
    (lambda: random_erasing(X, masks=odd([1])), "masks must be a tensor, got list"),
    (lambda: random_erasing(X, scale=odd(0.5)), "scale must be a pair of numbers, got 0.5"),
    (lambda: random_affine(X, scale=odd(0.5)), "scale must be a pair of numbers, got 0.5"),
    (lambda: random_resized_crop(X, 4, ratio=odd(2.0)), "ratio must be a pair of numbers"),
    (lambda: colour_jitter(X, limits=odd(255.0)), "limits must be a pair of numbers, got 255.0"),
    (lambda: random_resized_crop(X, 0), "size must be >= 1, got 0"),
    (lambda: random_resized_crop(X, 4, scale=(0.5, 1.5)), "scale must be <= 1, got 1.5"),
    (lambda: random_resized_crop(X, 4, scale=(0.5, 0.2)),
     "scale must not decrease, got (0.5, 0.2)"),
    (lambda: random_resized_crop(X, 4, ratio=(0.0, 2.0)), "ratio must be > 0, got (0.0, 2.0)"),
    (lambda: random_resized_crop(X, 4, ratio=(NAN, 2.0)), "ratio must be >= 0, got nan"),
    (lambda: random_affine(X, degrees=NAN), "degrees must be >= 0, got nan"),
    (lambda: random_affine(X, degrees=(0.0, NAN)), "degrees must be a number, got nan"),
    (lambda: random_affine(X, degrees=odd((1.0,))),
     "degrees must be a number or a pair of them, got (1.0,)"),
    (lambda: random_affine(X, scale=(0.0, 1.0)), "scale must be > 0, got (0.0, 1.0)"),
    (lambda: random_affine(X, translate=1.5), "translate must be <= 1, got 1.5"),
    (lambda: random_affine(X, shear=90), "shear must be <= 89, got 90"),
    (lambda: random_erasing(X, p=2.0), "p must be <= 1, got 2.0"),
    (lambda: random_erasing(X, scale=(-0.1, 0.2)), "scale must be >= 0, got -0.1"),
    (lambda: random_erasing(X.byte(), fill=-1), "fill must be >= 0, got -1"),
    (lambda: colour_jitter(X, brightness=-0.1), "brightness must be >= 0, got -0.1"),
    (lambda: colour_jitter(X, contrast=(-1.0, 1.0)), "contrast must be >= 0, got -1.0"),
    (lambda: colour_jitter(X, hue=0.6), "hue must be <= 0.5, got 0.6"),
    (lambda: colour_jitter(X[:, :2]), "x must have 3 channels, or 1 without saturation and hue"),
    (lambda: colour_jitter(X[:, :1], saturation=0.5), "x must have 3 channels, or 1 without"),
    (lambda: colour_jitter(X, limits=(1.0, 0.0)), "limits must not decrease, got (1.0, 0.0)"),
    (lambda: pca_jitter(X, -1.0), "std must be >= 0, got -1.0"),
    (lambda: pca_jitter(X, NAN), "std must be >= 0, got nan"),
    (lambda: pca_jitter(X, form=odd("cube")), "form must be one of 'root', 'alexnet', got 'cube'"),
    (lambda: pca_jitter(X, covariance=torch.eye(2)), "covariance must be 3 x 3, got (2, 2)"),
    (lambda: pca_jitter(X, covariance=torch.ones(3, 3).triu()), "covariance must be symmetric"),
    (lambda: pca_jitter(X, covariance=torch.full((3, 3), NAN)), "covariance must be finite"),
    (lambda: pca_jitter(X, covariance=-torch.eye(3)),
     "covariance must be positive semidefinite, got an eigenvalue of -1"),
    (lambda: pca_jitter(X + NAN), "x must be finite where covariance is not given"),
    (lambda: mixup(X, Y), "classes must be given with integer labels, got None"),
    (lambda: mixup(X, Y, classes=1), "y must be between 0 and 0, got 0 to 1"),
    (lambda: mixup(X, Y[:1], classes=2), "y must be a label for each of the 2 images, got (1,)"),
    (lambda: mixup(X, Y.float(), classes=2), "y must be integers (n,) or floating point (n, k)"),
    (lambda: mixup(X, Y, classes=2, alpha=0.0), "alpha must be > 0, got 0.0"),
    (lambda: cutmix(X, Y, classes=2, alpha=NAN), "alpha must be > 0, got nan"),
    (lambda: cutmix(X, Y, classes=0), "classes must be >= 1, got 0"),
    (lambda: effective_sample_size(0, 3, correlation=0.5), "n must be >= 1, got 0"),
    (lambda: effective_sample_size(2, 3, correlation=-0.6), "correlation must be >= -0.5, got"),
    (lambda: effective_sample_size(2, 3, correlation=1.1), "correlation must be <= 1, got 1.1"),
    (lambda: info_nce_loss(Q, Q, temperature=0.0), "temperature must be > 0, got 0.0"),
    (lambda: info_nce_loss(Q, Q[:2], temperature=1.0), "as query is, got torch.float32 (2, 3)"),
    (lambda: info_nce_loss(Q, Q.double(), temperature=1.0), "key must be torch.float32 (4, 3)"),
    (lambda: info_nce_loss(Q[0], Q, temperature=1.0), "query must be a floating-point tensor (N"),
    (lambda: info_nce_loss(Q, Q.long(), temperature=1.0), "key must be a floating-point tensor"),
    (lambda: info_nce_loss(Q[:0], Q[:0], temperature=1.0), "query must be a floating-point"),
    (lambda: info_nce_loss(Q, Q, temperature=1.0, memory=0), "memory must be >= 1, got 0"),
    (lambda: cpc(ahead=0), "ahead must be >= 1, got 0"),
    (lambda: cpc(temperature=-1.0), "temperature must be > 0, got -1.0"),
    (lambda: cpc()(torch.zeros(2, 2, 3)), "longer than ahead = 2, got (2, 2) and (2, 2)"),
    (lambda: cpc(latent=4)(torch.zeros(2, 5, 3)), "encoder must give (n, T, 4), got (2, 5, 3)"),
    (lambda: cpc(width=2)(torch.zeros(2, 5, 3)), "context must give (n, T, 2), got (2, 5, 3)"),
    (lambda: patch_position_task(X, 3), "patch and gap must fit three times into images of 6 x 8"),
    (lambda: patch_position_task(X, 2, gap=1), "got 2 and 1"),
    (lambda: motion_task(X, most=3), "most must be less than half of 6, got 3"),
    (lambda: motion_task(X, most=-1), "most must be >= 0, got -1"),
    (lambda: colourisation_task(X[:, :2]), "x must have 3 channels, got 2"),
    (lambda: rotation_task(X), "x must be square images, got 6 x 8"),
    (lambda: mask_task(X, 4), "patch must divide 6 and 8, got 4"),
    (lambda: mask_task(X, 2, share=1.5), "share must be <= 1, got 1.5"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
