"""Small networks for images of clothes, trained once: plain, against perturbations, under noise.

Where Fashion-MNIST is not on this machine, the images are scikit-learn's digits.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vademecum.data import DataNotFoundError, load
from vademecum.models import mlp
from vademecum.randomness import own_randomness
from vademecum.robustness import adversarial_loss

__all__ = ["Images", "Kind", "images", "network"]

Kind = Literal["plain", "robust", "noisy"]
_TRAINED, _STEPS, _BATCH = 1300, 250, 64
NOISE = 0.25
"""The standard deviation of the noise of which the last kind sees examples."""
_RADIUS = 0.08  # of the perturbations, in linf, that the second kind is trained against


class Images(NamedTuple):
    """Images in [0, 1] with labels, those to train with and others."""

    x: Tensor
    y: Tensor
    new_x: Tensor
    new_y: Tensor
    classes: tuple[str, ...]
    levels: int
    """In how many steps a pixel goes from 0 to 1."""


@lru_cache(1)
def images() -> Images:
    """Images of clothes or digits; never by a download."""
    try:
        x, y, classes = load("fashion_mnist", split="test", download=False)
        levels = 255
    except DataNotFoundError:
        x, y, classes = load("digits")
        levels = 16
    x, y = x[:1430], y[:1430]
    n = _TRAINED
    return Images(x[:n], y[:n], x[n:], y[n:], tuple(classes), levels)


@lru_cache(3)
def network(kind: Kind) -> nn.Module:
    """A perceptron with a hidden layer, trained on images, the worst near them, or noisy ones."""
    x, y, *_ = images()
    with own_randomness(0):
        model = nn.Sequential(nn.Flatten(), mlp([x[0].numel(), 64, 10]))
        steps = torch.optim.Adam(model.parameters(), lr=3e-3)
        for rows in torch.randint(len(x), (_STEPS, _BATCH)):
            some, labels = x[rows], y[rows]
            steps.zero_grad()
            if kind == "robust":
                loss = adversarial_loss(model, some, labels, radius=_RADIUS, steps=4)
            else:
                noise = NOISE * torch.randn_like(some) if kind == "noisy" else 0
                loss = cross_entropy(model(some + noise), labels)
            loss.backward()
            steps.step()
    return model.eval()
