"""Rows of the room `robustness`: curves of accuracy and minimal radii, Fashion-MNIST.

The network is that of the attacks. The peer is foolbox: a list of radii for the same attack, and
its attack that looks for the shortest perturbation. A curve that lies above a peer's by more than
one image in a hundred, or radii that are longer by a hundredth in the mean, do not agree.
"""

import importlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped, in_turn
from bench.robustness_attacks import _trained
from vademecum.data import load
from vademecum.robustness import MinimalRadius, RobustAccuracy, minimal_radius, pgd, robust_accuracy

__all__ = ["rows"]

RADII = [0.0, 0.01, 0.02, 0.04, 0.06, 0.1]
STEPS = 20


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    """A curve of 256 images and radii of 64 (16 times as many on a GPU)."""
    yield from in_turn(_measures(device))


def _measures(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    net, data = _trained(device), load("fashion_mnist", split="test")
    n = 256 if device.type == "cpu" else 4096
    x, y = data.x[:n].to(device), data.y[:n].to(device)
    attack = partial(pgd, steps=STEPS)
    ours = partial(robust_accuracy, net, x, y, radii=RADII, attack=attack)
    peers = {"foolbox": partial(_curve, net, x, y)}
    yield Row(f"robust accuracy, {len(RADII)} radii, {n} images", ours, peers, _lower, rounds=3)
    few, labels = x[: n // 4], y[: n // 4]
    ours = partial(minimal_radius, net, few, labels)
    peers = {"foolbox (FMN)": partial(_shortest, net, few, labels)}
    yield Row(f"minimal radius, linf, {len(few)} images", ours, peers, _shorter, rounds=3)


def _curve(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    foolbox: Any = importlib.import_module("foolbox")
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device=x.device)
    attack = foolbox.attacks.LinfPGD(steps=STEPS, rel_stepsize=2.5 / STEPS)
    *_, fooled = attack(model, x, y, epsilons=RADII)
    return 1 - fooled.double().mean(1)


def _shortest(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    foolbox: Any = importlib.import_module("foolbox")
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device=x.device)
    _, found, fooled = foolbox.attacks.LInfFMNAttack(steps=100)(model, x, y, epsilons=None)
    return (found - x).flatten(1).abs().amax(1).where(fooled, torch.inf)


def _lower(ours: RobustAccuracy, theirs: Tensor) -> None:
    print(f"      accuracy: ours {_round(ours.accuracy)}, theirs {_round(theirs)}", file=sys.stderr)
    assert bool((ours.accuracy <= theirs.to(ours.accuracy) + 0.01).all())


def _shorter(ours: MinimalRadius, theirs: Tensor) -> None:
    mine, other = float(ours.radius.mean()), float(theirs.mean())
    missed = int(ours.radius.isinf().sum()), int(theirs.isinf().sum())
    print(f"      mean radius: ours {mine:.4f}, theirs {other:.4f}; missed: {missed}",
          file=sys.stderr)  # fmt: skip
    assert mine <= 1.01 * other
    assert missed[0] <= missed[1]


def _round(values: Any) -> list[float]:
    return [round(float(v), 3) for v in values]
