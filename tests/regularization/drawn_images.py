"""Calls of what changes images at random."""

from typing import Any

import torch

from vademecum import regularization

X = torch.linspace(0, 1, 40 * 3 * 6 * 6, dtype=torch.float64).sin().view(40, 3, 6, 6)
Y = torch.arange(40)

CALLS: dict[str, Any] = {
    "random_crop": lambda g: regularization.random_crop(X, 4, generator=g),
    "random_flip": lambda g: regularization.random_flip(X, generator=g),
    "random_resized_crop": lambda g: regularization.random_resized_crop(X, 4, generator=g),
    "random_affine": lambda g: regularization.random_affine(X, degrees=20, generator=g),
    "random_erasing": lambda g: regularization.random_erasing(X, generator=g),
    "colour_jitter": lambda g: regularization.colour_jitter(X, brightness=0.5, generator=g),
    "pca_jitter": lambda g: regularization.pca_jitter(X, generator=g),
    "mixup": lambda g: regularization.mixup(X, Y, classes=40, generator=g),
    "cutmix": lambda g: regularization.cutmix(X, Y, classes=40, generator=g),
    "patch_position_task": lambda g: regularization.patch_position_task(X, 2, generator=g),
    "motion_task": lambda g: regularization.motion_task(X, generator=g),
    "mask_task": lambda g: regularization.mask_task(X, 2, generator=g),
}
