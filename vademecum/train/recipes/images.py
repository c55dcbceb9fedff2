"""Recipes for images: labels, attacks, teachers, contrasts and certificates.

Digits of scikit-learn are the default: they need no download, and a CPU is done in half a minute.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from vademecum.train.recipes._task import Task

__all__ = ["ImageData", "ImageModel", "adversarial", "classify", "contrastive", "distillation",
           "pac_bayes"]  # fmt: skip

_SETTINGS = {"optimizer": "muon", "lr": 1e-2, "weight_decay": 0.01, "batch_size": 64, "steps": 300,
             "schedule": "cosine", "warmup": 20, "evaluate_every": 100}  # fmt: skip

_OTHERS = {
    "densenet": {"steps": 150},
    "vgg": {"optimizer": "adamw", "lr": 2e-3, "steps": 200},
}
"""What deep and what wide networks need on a CPU: fewer and cheaper steps."""

ImageData = Literal["digits", "fashion_mnist", "mnist", "cifar10"]
"""The data sets of images, by name."""


@dataclass(frozen=True)
class ImageModel:
    """A network for images.

    Attributes:
        name: Which network.
        width: How many maps or features its first layer has; few by default.
        depth: How many layers it has, of those numbers that it comes in; the least by default.
    """

    name: Literal[
        "mlp", "lenet5", "alexnet", "vgg", "googlenet", "resnet", "densenet", "vit", "lru"
    ] = "lenet5"
    width: int | None = None
    depth: int | None = None


_LENET = ImageModel()
_STUDENT, _TEACHER = ImageModel("mlp", width=16, depth=1), ImageModel("resnet")
_CERTIFIED = ImageModel("mlp", width=64)


def classify(
    *,
    data: ImageData = "digits",
    model: ImageModel = _LENET,
    labels: int | None = None,
    shifts: int = 0,
) -> Task:
    """Tell what images show: LeNet-5 and its descendants, a vision transformer, an LRU, an MLP.

    Args:
        data: Which images.
        model: Which network.
        labels: How many labelled images to train on; all by default.
        shifts: By how many pixels at most images are moved while training.
    """
    from torch.nn import functional as F

    from vademecum.train import Supervised
    from vademecum.train.recipes import _image_losses as parts
    from vademecum.train.recipes._shifts import shifted

    images = parts.pictures(data, labels)
    settings: dict[str, Any] = _SETTINGS | _OTHERS.get(model.name, {})
    if shifts:
        settings["augment"] = partial(shifted, most=shifts)
    objective = Supervised(parts.network(model, images), F.cross_entropy)
    judge = parts.accuracy(images.test)
    return Task(objective, images.train, judge, "accuracy", True, settings)


def adversarial(
    *,
    data: ImageData = "digits",
    model: ImageModel = _LENET,
    method: Literal["pgd", "fgsm", "trades"] = "pgd",
    radius: float = 0.1,
    ascent: int = 5,
) -> Task:
    """Train on images that were made as bad as a radius allows, so that attacks find less.

    Args:
        data: Which images.
        model: Which network.
        method: How images are attacked while training.
        radius: The largest change of a pixel, between 0 and 1.
        ascent: How many steps an attack takes while training.
    """
    from vademecum.robustness import adversarial_loss
    from vademecum.train.recipes import _image_losses as parts
    from vademecum.train.recipes._objective import Objective

    images = parts.pictures(data)

    def loss(net, batch):
        return adversarial_loss(net, *batch, method=method, radius=radius, steps=ascent)

    objective = Objective(parts.network(model, images), loss)
    judge = parts.robustness(images.test, radius)
    return Task(objective, images.train, judge, "robust accuracy", True, dict(_SETTINGS))


def distillation(
    *,
    data: ImageData = "digits",
    model: ImageModel = _STUDENT,
    teacher: ImageModel = _TEACHER,
    teacher_steps: int = 200,
    temperature: float = 4.0,
    share: float = 0.9,
    labels: int | None = None,
) -> Task:
    """Train a small network on the softened answers of a large one, which is trained first.

    Args:
        data: Which images.
        model: The student.
        teacher: The network that it learns from.
        teacher_steps: How many steps the teacher is trained for.
        temperature: By what logits are divided, so that answers are soft.
        share: How much of the loss is the teacher's; the rest is that of the labels.
        labels: How many labelled images to train on; all by default.
    """
    from vademecum.train.recipes import _image_losses as parts
    from vademecum.train.recipes._first import trained_first
    from vademecum.train.recipes._objective import Objective, over

    images = parts.pictures(data, labels)
    expert = trained_first(parts.network(teacher, images), images.train, steps=teacher_steps)
    answers = over(expert, images.train[0])
    loss = partial(parts.taught_loss, temperature=temperature, share=share)
    objective = Objective(parts.network(model, images), loss)
    settings = _SETTINGS | {"optimizer": "adam", "lr": 5e-3, "weight_decay": 0.0, "steps": 600}
    judge = parts.accuracy(images.test)
    return Task(objective, (*images.train, answers), judge, "accuracy", True, settings)


def contrastive(
    *,
    data: ImageData = "digits",
    model: ImageModel = _LENET,
    features: int = 64,
    temperature: float = 0.1,
) -> Task:
    """Learn features without labels: two views of an image must find each other among many.

    `vade train classify --from RUN --head new` goes on from there with labels.

    Args:
        data: Which images.
        model: Which network.
        features: How many features it gives.
        temperature: By what cosines are divided.
    """
    from vademecum.train.recipes import _image_losses as parts
    from vademecum.train.recipes._objective import Objective

    images = parts.pictures(data)
    loss = partial(parts.contrastive_loss, temperature=temperature)
    objective = Objective(parts.network(model, images, outputs=features), loss)
    settings = _SETTINGS | {"batch_size": 256}
    judge = parts.neighbours_agree(images)
    return Task(objective, images.train[0], judge, "neighbour accuracy", True, settings)


def pac_bayes(
    *,
    data: ImageData = "digits",
    model: ImageModel = _CERTIFIED,
    prior_steps: int = 300,
    prior_std: float = 0.03,
    delta: float = 0.025,
    delta_mc: float = 0.01,
) -> Task:
    """Train a network with random weights to its own certificate: a bound of its risk.

    The prior is a network that was trained on every other image; the bound is made of the rest.
    It is for new images of the same law: digits to test by are other writers', and may be harder.

    Args:
        data: Which images.
        model: Which network.
        prior_steps: How many steps the prior is trained for.
        prior_std: The standard deviation of its weights.
        delta: The probability over images with which a bound may fail.
        delta_mc: The probability over draws of weights with which one of all evaluations' may fail.
    """
    from vademecum.generalization import StochasticNetwork
    from vademecum.train.recipes import _image_losses as parts
    from vademecum.train.recipes._first import trained_first

    images = parts.pictures(data)
    x, y = images.train
    prior = trained_first(parts.network(model, images), (x[::2], y[::2]), steps=prior_steps)
    bound = x[1::2], y[1::2]
    loss = partial(parts.certified_loss, n=len(bound[0]), delta=delta)
    network = StochasticNetwork(prior, prior="init", prior_std=prior_std)
    settings = {"optimizer": "adam", "lr": 1e-3, "batch_size": 128, "steps": 300,
                "schedule": "cosine", "evaluate_every": 100}  # fmt: skip
    judge = parts.certificate(bound, images.test, delta, delta_mc)
    return Task(parts.Certified(network, loss), bound, judge, "certified risk", False, settings)
