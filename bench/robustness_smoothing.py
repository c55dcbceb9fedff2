r"""Rows of the room `robustness`: votes under noise, norms of Jacobians, adversarial training.

The network for votes is a convolutional one with strides, as it is drawn. Peers are the loop in
plain torch that the authors of the method published, with 1,000 noisy copies at a time and floating
noise, and ART's; `torch.func` with singular values of whole Jacobians; and steps of adversarial
training by hand.
"""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap
from torch.nn.functional import cross_entropy

from bench.harness import Row, Skipped, in_turn
from vademecum.robustness import (
    Smoothed,
    adversarial_loss,
    jacobian_spectral_norm,
    randomized_smoothing,
    spectral_regularizer,
)

__all__ = ["rows"]

SIGMA = 0.25


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    """One image on a CPU, many on a GPU."""
    torch.manual_seed(0)
    yield from in_turn(_votes(device), _library(device), _jacobians(device), _training(device))


def _network(device: torch.device) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 4, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(32 * 49, 100), nn.ReLU(), nn.Linear(100, 10)),
    ).to(device)


def _images(n: int, device: torch.device) -> Tensor:
    return (torch.randint(256, (n, 1, 28, 28)) / 255).to(device)


def _votes(device: torch.device) -> Iterator[Row]:
    net = _network(device)
    for n, draws in ((1, 10_000), (1, 100_000)) if device.type == "cpu" else ((1000, 100_000),):
        x = _images(n, device)
        ours = partial(randomized_smoothing, net, x, sigma=SIGMA, n=draws)
        few = 1000 if device.type == "cpu" else 10_000
        peers = {"plain torch": partial(_loop, net, x, draws, few)}
        name = f"smoothing, {n:,} image{'s' * (n > 1)}, {draws:,} draws"
        yield Row(name, ours, peers, partial(_agree, draws), rounds=7 if n == 1 else 1)


def _loop(net: nn.Module, x: Tensor, draws: int, few: int) -> Tensor:
    """The counts of all classes, as one writes it."""
    counts = torch.zeros(len(x), 10, dtype=torch.long, device=x.device)
    with torch.no_grad():
        for i, image in enumerate(x):
            for _ in range(draws // few):
                noise = torch.randn(few, *image.shape, device=x.device)
                votes = net(image + SIGMA * noise).argmax(1)
                counts[i] += torch.bincount(votes, minlength=10)
    return counts


def _agree(draws: int, ours: Smoothed, theirs: Any) -> None:
    """The limit is below the share of the other draws by no more than chance and the level."""
    share, top = (theirs.double() / draws).max(1)
    sure = ~ours.abstained
    assert bool((ours.prediction[sure] == top[sure]).all())
    error = 9 * (share * (1 - share) / draws).sqrt() + 20 / draws
    assert bool(((share - ours.p_lower).abs() <= error).all()), (share, ours.p_lower)


def _library(device: torch.device) -> Iterator[Row]:
    if device.type != "cpu":
        return
    net, x, draws = _network(device).eval(), _images(1, device), 10_000
    art: Any = importlib.import_module("art.estimators.certification.randomized_smoothing")
    theirs = art.PyTorchRandomizedSmoothing(
        net, loss=nn.CrossEntropyLoss(), input_shape=(1, 28, 28), nb_classes=10, sample_size=100,
        clip_values=(0, 1), device_type="cpu", scale=SIGMA, alpha=0.001,
    )  # fmt: skip
    ours = partial(randomized_smoothing, net, x, sigma=SIGMA, n=draws)
    peers = {"ART": partial(theirs.certify, x.numpy(), n=draws, batch_size=1000)}
    yield Row("smoothing, 1 image, 10,000 draws, library", ours, peers, _same_radius)


def _same_radius(ours: Smoothed, theirs: tuple[np.ndarray, np.ndarray]) -> None:
    prediction, radius = theirs
    assert int(prediction[0]) == int(ours.prediction[0])
    assert abs(float(radius[0]) - float(ours.radius[0])) <= 0.1 * SIGMA, (radius, ours.radius)


def _jacobians(device: torch.device) -> Iterator[Row]:
    n = 128 if device.type == "cpu" else 2048
    net, x = _network(device), _images(n, device)
    ours = partial(jacobian_spectral_norm, net, x)
    peers: dict[str, Callable[[], Any]] = {"torch.func": partial(_values, net, x)}
    yield Row(f"spectral norms of Jacobians, {n:,} images", ours, peers, _close)
    few = x[: n // 2]
    ours = partial(_slopes, net, partial(spectral_regularizer, net, few))
    peers = {"torch.func": partial(_slopes, net, lambda: _values(net, few).square().mean() / 2)}
    yield Row(f"penalty on them with its gradient, {n // 2:,} images", ours, peers, _close)


def _values(net: nn.Module, x: Tensor) -> Tensor:
    J = vmap(jacrev(lambda z: net(z[None])[0]))(x).flatten(2)
    return torch.linalg.matrix_norm(J, 2)


def _slopes(net: nn.Module, loss: Callable[[], Tensor]) -> Tensor:
    found = torch.autograd.grad(loss(), list(net.parameters()), materialize_grads=True)
    return torch.cat([g.flatten() for g in found])


def _close(ours: Any, theirs: Tensor) -> None:
    found = ours if isinstance(ours, Tensor) else ours.value
    gap = float(((found - theirs).abs().max() / theirs.abs().max()).detach())
    assert gap <= 1e-3, gap


def _training(device: torch.device) -> Iterator[Row]:
    n = 256 if device.type == "cpu" else 4096
    net, x = _network(device), _images(n, device)
    y = torch.randint(10, (n,), device=device)
    ours = partial(_step, net, partial(adversarial_loss, net, x, y, radius=0.1, step_size=0.025))
    peers: dict[str, Callable[[], Any]] = {
        "plain torch": partial(_step, net, partial(_by_hand, net, x, y))
    }
    attack: Any = importlib.import_module("torchattacks")
    attack = attack.PGD(net, eps=0.1, alpha=0.025, steps=10)
    peers["torchattacks"] = partial(_step, net, lambda: cross_entropy(net(attack(x, y)), y))
    name = f"a gradient of adversarial training, 10 steps, {n:,} images"
    yield Row(name, ours, peers, _same_loss)


def _step(net: nn.Module, loss: Callable[[], Tensor]) -> Tensor:
    value = loss()
    net.zero_grad()
    value.backward()
    return value.detach()


def _by_hand(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    z = (x + torch.empty_like(x).uniform_(-0.1, 0.1)).clamp(0, 1)
    for _ in range(10):
        z = z.detach().requires_grad_()
        (slope,) = torch.autograd.grad(cross_entropy(net(z), y), z)
        z = (x + (z + 0.025 * slope.sign() - x).clamp(-0.1, 0.1)).clamp(0, 1)
    return cross_entropy(net(z.detach()), y)


def _same_loss(ours: Tensor, theirs: Tensor) -> None:
    assert abs(float(ours) / float(theirs) - 1) <= 0.02, (ours, theirs)
