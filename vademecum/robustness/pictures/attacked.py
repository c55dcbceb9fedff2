"""An image, what an attack adds to it, and what the network says of both."""

from functools import lru_cache, partial
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from vademecum.canvas import GREY, panels
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness
from vademecum.robustness import fgsm, pgd
from vademecum.robustness.pictures._clothes import images, network

__all__ = ["image_under_attack"]

Norm = Literal["linf", "l2", "l1"]
Steps = Literal["one step", "many steps"]
Training = Literal["plain", "robust"]


class _Attacked(NamedTuple):
    clean: np.ndarray
    moved: np.ndarray
    before: np.ndarray
    after: np.ndarray
    label: int
    radius: float


@picture(
    claims=("robustness.fgsm", "robustness.pgd", "robustness.adversarial_example"), plays="size"
)
def image_under_attack(
    size: Annotated[float, Range(0.0, 0.1, 0.01)] = 0.06,
    norm: Norm = "linf",
    attack: Steps = "one step",
    training: Training = "plain",
    image: Annotated[int, Range(1, 8, 1)] = 1,
) -> Figure:
    """An image under attack.

    An image of clothes (or a digit, where Fashion-MNIST is not on this machine), what an attack
    adds to it, the sum, and the logits of a small network before and after. Play the size: the
    image hardly changes, and the answer does. With linf every pixel moves a little, with l1 a few
    move a lot. Many steps stop as soon as the network is fooled. The robust network was trained on
    attacked images and gives way later.

    Knobs:
        size: How far pixels may move on average: the radius over that of all pixels moved by 1.
        norm: The norm of the ball that the attack keeps to.
        attack: Whether it makes one step to the edge of the ball, or 40 short ones.
        training: Whether the network was trained on images as they are, or on attacked ones.
        image: Which image is shown.
    """
    found = _attacked(size, norm, attack, training, image)
    figure, axes = panels((9.2, 3.1), 1, 4, margins=(0.1, 0.25, 0.5, 0.6), gaps=(0.15, 0))
    classes = images().classes
    answer = classes[int(found.after.argmax())]
    reach = max(float(np.abs(found.moved).max()), 0.02)
    shown: list[tuple[str, np.ndarray, dict[str, Any]]] = [
        (classes[found.label], found.clean, {"cmap": "gray_r", "vmin": 0, "vmax": 1}),
        (f"change, up to {np.abs(found.moved).max():.2f}", found.moved,
         {"cmap": "coolwarm", "vmin": -reach, "vmax": reach}),
        (f"taken for {answer}", found.clean + found.moved,
         {"cmap": "gray_r", "vmin": 0, "vmax": 1}),
    ]  # fmt: skip
    for place, (title, values, look) in zip(axes, shown, strict=False):
        place.imshow(values, interpolation="nearest", **look)
        place.set_title(title, fontsize=9)
        place.set_axis_off()
    _logits(axes[3], found, classes)
    axes[3].set_title(f"{norm} radius {found.radius:.3g}", fontsize=9, x=0.4)
    return figure


def _logits(axes: Any, found: _Attacked, classes: tuple[str, ...]) -> None:
    """The logits of both, shifted so that the largest is 0, one line for each class."""
    rows = np.arange(len(classes))
    for name, z, shift, colour in (
        ("before", found.before, -0.2, GREY), ("after", found.after, 0.2, "C1"),
    ):  # fmt: skip
        values = np.maximum(z - z.max(), -16) + 16
        axes.barh(rows + shift, values, 0.38, left=-16, color=colour, label=name)
    box = axes.get_position()
    axes.set_position((box.x0 + 0.055, box.y0, box.width - 0.055, box.height))
    axes.set(xlim=(-16, 0), ylim=(len(classes) - 0.4, -0.6), xlabel="logit below the largest")
    axes.set_yticks(rows, classes, fontsize=7)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.08), ncols=2)


@lru_cache(1)
def _clear() -> list[int]:
    """The images that both networks get right."""
    data = images()
    right = [network(kind)(data.new_x).argmax(1) == data.new_y for kind in ("plain", "robust")]
    return (right[0] & right[1]).nonzero()[:, 0].tolist()


@lru_cache(256)
def _attacked(size: float, norm: Norm, attack: Steps, training: Training, image: int) -> _Attacked:
    data, model = images(), network(training)
    i = _clear()[3 * image]
    x, y = data.new_x[i : i + 1], data.new_y[i : i + 1]
    d = x.numel()
    radius = size * {"linf": 1.0, "l2": d**0.5, "l1": float(d)}[norm]
    made = fgsm if attack == "one step" else partial(pgd, random_start=False)
    with own_randomness(0), torch.no_grad():
        found = made(model, x, y, norm=norm, radius=radius)
        before, after = model(x)[0], model(found.x)[0]
    clean, moved = x[0, 0], (found.x - x)[0, 0]
    return _Attacked(
        clean.numpy(), moved.numpy(), before.numpy(), after.numpy(), int(y), float(radius)
    )
