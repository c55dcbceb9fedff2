"""What networks for images pay, and how they are judged."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.data import load
from vademecum.errors import UsageError
from vademecum.generalization import pac_bayes_bound, pac_bayes_certificate
from vademecum.regularization import distillation_loss, info_nce_loss, random_affine, random_erasing
from vademecum.robustness import pgd, robust_accuracy
from vademecum.train.recipes._image_models import image_network
from vademecum.train.recipes._objective import Objective, over, place_of

__all__ = [
    "Pictures", "accuracy", "certificate", "certified_loss", "contrastive_loss", "moved_about",
    "neighbours_agree", "network", "pictures", "robustness", "taught_loss",
]  # fmt: skip

_ATTACKED = 300  # test images; an attack costs as much as a hundred passes


class Pictures(NamedTuple):
    """Labelled images to train on and to judge by.

    Attributes:
        train: Images and labels.
        test: Others.
        classes: How many classes there are.
    """

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int


def pictures(data: str, labels: int | None = None) -> Pictures:
    """A data set by name; with `labels`, only so many examples to train on, classes by turns."""
    found: Any = load(data, split="train")
    held: Any = load(data, split="test")
    x, y, names = found
    if labels is not None:
        if not len(names) <= labels <= len(x):
            raise UsageError(f"--labels must be from {len(names)} to {len(x)}, got {labels}")
        rank = (F.one_hot(y).cumsum(0).gather(1, y[:, None])[:, 0] - 1) * len(names) + y
        kept = rank.argsort()[:labels]  # the first of each class, then the second, ...
        x, y = x[kept], y[kept]
    return Pictures((x, y), (held[0], held[1]), len(names))


def network(model: Any, images: Pictures, outputs: int | None = None) -> nn.Module:
    """A network for such images, as it is named in a recipe's `model`."""
    _, channels, side, _ = images.train[0].shape
    k = images.classes if outputs is None else outputs
    return image_network(model.name, model.width, model.depth, outputs=k, channels=channels,
                         side=side)  # fmt: skip


def accuracy(test: tuple[Tensor, Tensor]) -> Callable[[Any], dict[str, float]]:
    """The share of images that are told right, and the cross-entropy."""

    def evaluate(objective: Any) -> dict[str, float]:
        logits = over(objective.model, test[0])
        right = (logits.argmax(1) == test[1]).float().mean()
        return {"accuracy": float(right), "test loss": float(F.cross_entropy(logits, test[1]))}

    return evaluate


def robustness(test: tuple[Tensor, Tensor], radius: float) -> Callable[[Any], dict[str, float]]:
    """The accuracy on images as they are, and on attacked ones."""

    def evaluate(objective: Any) -> dict[str, float]:
        x, y = (part[:_ATTACKED].to(place_of(objective.model)) for part in test)
        attack = partial(pgd, steps=20)
        found = robust_accuracy(objective.model, x, y, radii=[0.0, radius], attack=attack).accuracy
        return {"accuracy": float(found[0]), "robust accuracy": float(found[1])}

    return evaluate


def taught_loss(
    model: nn.Module, batch: tuple[Tensor, Tensor, Tensor], *, temperature: float, share: float
) -> Tensor:
    """Part of it against a teacher's softened answers, part of it against labels."""
    x, y, teacher = batch
    logits = model(x)
    soft = distillation_loss(logits, teacher, temperature=temperature, scaled=True)
    return share * soft + (1 - share) * F.cross_entropy(logits, y)


def contrastive_loss(model: nn.Module, x: Tensor, *, temperature: float) -> Tensor:
    """Two views of an image must find each other among all views of the batch."""
    views = (F.normalize(model(moved_about(x))) for _ in range(2))
    return info_nce_loss(*views, temperature=temperature)


def moved_about(x: Tensor) -> Tensor:
    """Images turned, moved, scaled, and with a hole, each differently."""
    made = random_affine(x, degrees=15.0, translate=0.12, scale=(0.85, 1.15), shear=10.0)
    return random_erasing(made, p=0.5, scale=(0.02, 0.15))  # pyright: ignore[reportReturnType]


def neighbours_agree(images: Pictures) -> Callable[[Any], dict[str, float]]:
    """The share of test images whose nearest training image, by cosine, has their label."""

    def evaluate(objective: Any) -> dict[str, float]:
        known, new = (F.normalize(over(objective.model, x)) for x in (images.train[0],
                                                                      images.test[0]))  # fmt: skip
        nearest = torch.cat([(part @ known.T).argmax(1) for part in new.split(1000)])
        right = images.train[1][nearest] == images.test[1]
        return {"neighbour accuracy": float(right.float().mean())}

    return evaluate


def certified_loss(
    model: Any, batch: tuple[Tensor, Tensor], *, n: int, delta: float, p_min: float = 1e-5
) -> Tensor:
    """A PAC-Bayes bound of the bounded cross-entropy, as n examples give it."""
    x, y = batch
    likely = F.log_softmax(model(x), 1).gather(1, y[:, None]).clamp_min(math.log(p_min))
    risk = (-likely.mean() / math.log(1 / p_min)).clamp(0, 1)
    return pac_bayes_bound(risk, model.kl().clamp_min(0), n, delta=delta, kind="quadratic")


class Certified(Objective):
    """An objective that knows how many steps were taken."""

    taken = 0

    def before_step(self, step: int) -> None:
        """Count the step that comes."""
        self.taken = step + 1


def certificate(
    bound: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], delta: float, delta_mc: float
) -> Callable[[Any], dict[str, float]]:
    r"""The certified risk, and the risk on test images beside it.

    The best of several certificates counts, and each has draws of its own that may mislead. So that
    of step t may be wrong with probability $\delta_{mc} / ((t + 1)(t + 2))$, which add up to
    $\delta_{mc}$ at most, however many there are. The other $\delta$ holds for all weights at once.
    """

    def evaluate(objective: Any) -> dict[str, float]:
        model = objective.model
        x, y = (part.to(place_of(model)) for part in bound)
        share = delta_mc / ((objective.taken + 1) * (objective.taken + 2))
        found = pac_bayes_certificate(model, x, y, delta=delta, delta_mc=share, passes=20)
        wrong = over(model, test[0]).argmax(1) != test[1]
        risk = float(wrong.float().mean())
        return {"certified risk": found.zero_one.kl, "test risk": risk, "kl": found.kl}

    return evaluate
