"""How accuracy falls with the radius of an attack, for networks trained in three ways."""

from functools import lru_cache, partial
from typing import Annotated, Any, Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from vademecum.canvas import GREY, panels
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness
from vademecum.robustness import (
    RobustAccuracy,
    draw_robust_accuracy,
    fgsm,
    pgd,
    randomized_smoothing,
    robust_accuracy,
)
from vademecum.robustness.pictures._clothes import NOISE, Kind, images, network

__all__ = ["robust_accuracy_curves"]

Norm = Literal["linf", "l2"]
Method = Literal["one step", "many steps"]
_EXAMPLES, _POINTS, _VOTES = 100, 9, 12
_NAMES: dict[Kind, str] = {"plain": "plain", "robust": "trained on attacks", "noisy": "smoothed"}


@picture(
    claims=(
        "robustness.minimal_vs_constrained",
        "robustness.adversarial_training",
        "robustness.attack_strength",
        "robustness.randomized_smoothing",
    ),
    plays="steps",
)
def robust_accuracy_curves(
    norm: Norm = "linf",
    steps: Annotated[int, Range(1, 16, 2, log=True)] = 8,
    start: Literal["image", "random"] = "image",
) -> Figure:
    """Robust accuracy of three networks.

    The share of a hundred images that three small networks still get right, against the radius of
    the attack: one trained on images as they are, one trained on attacked ones, and the majority of
    one under noise. More steps find more: what looked robust under one step was not. The band is
    where the accuracy on all images lies with confidence 0.95, the dotted line is guessing. With l2
    the dashed line is what smoothing certifies from 500 votes: no attack gets below.

    Knobs:
        norm: The norm of the ball.
        steps: How many steps the attack makes.
        start: Whether it begins at the image, or at a random point of the ball.
    """
    figure, axes = panels((6.2, 3.9))
    for kind, name in _NAMES.items():
        draw_robust_accuracy(_curve(kind, norm, steps, start), axes, label=name)
    if norm == "l2":
        radii, share = _certified()
        axes.step(radii, share, "--", where="post", color="C2", lw=1.4, label="certified")
        axes.legend()
    top = _radii(norm)[-1]
    axes.set(xlim=(0, top), ylim=(0, 1))
    axes.set_title(f"accuracy under an attack of {steps} step{'s' * (steps > 1)}")
    axes.axhline(0.1, color=GREY, lw=0.8, ls=":")
    return figure


class _Majority(nn.Module):
    """The logarithm of the mean probabilities of a network under a few draws of noise."""

    def __init__(self, model: nn.Module, noise: Tensor) -> None:
        super().__init__()
        self.model, self.noise = model, noise

    def forward(self, x: Tensor) -> Tensor:
        many = (x[:, None] + self.noise).flatten(0, 1)
        return self.model(many).softmax(1).unflatten(0, (len(x), -1)).mean(1).log()


def _radii(norm: Norm) -> list[float]:
    top = {"linf": 0.12, "l2": 2.0}[norm]
    return [top * i / (_POINTS - 1) for i in range(_POINTS)]


def _examples() -> tuple[Tensor, Tensor]:
    data = images()
    return data.new_x[:_EXAMPLES], data.new_y[:_EXAMPLES]


@lru_cache(64)
def _curve(kind: Kind, norm: Norm, steps: int, start: str) -> RobustAccuracy:
    x, y = _examples()
    model = network(kind)
    with own_randomness(0):
        if kind == "noisy":
            model = _Majority(model, NOISE * torch.randn(_VOTES, *x.shape[1:]))
        attack: Any = partial(pgd, steps=steps, random_start=start == "random")
        if steps == 1 and start == "image":
            attack = fgsm
        return robust_accuracy(model, x, y, radii=_radii(norm), norm=norm, attack=attack)


@lru_cache(1)
def _certified() -> tuple[list[float], list[float]]:
    """The radii at which fewer images are certified, and their share from there on."""
    x, y = _examples()
    with own_randomness(0):
        found = randomized_smoothing(network("noisy"), x, sigma=NOISE, n=500, n0=50, alpha=0.01,
                                     quantum=1 / images().levels)  # fmt: skip
    right = ~found.abstained & (found.prediction == y)
    radii = found.radius[right].sort().values.tolist()
    shares = [(len(radii) - i) / len(x) for i in range(len(radii) + 1)]
    return [0.0, *radii], shares
