"""Networks and calls that the tests of attacks share."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.robustness import apgd, auto_attack, deepfool, fgsm, pgd, square

ATTACKS: dict[str, Any] = {
    "fgsm": fgsm,
    "pgd": partial(pgd, steps=10),
    "apgd": partial(apgd, steps=15),
    "deepfool": deepfool,
    "square": partial(square, steps=60),
    "auto_attack": partial(auto_attack, steps=8, square_steps=30),
}
CASES = [
    *((name, norm) for name in ATTACKS for norm in ("linf", "l2")),
    *((name, "l1") for name in ("fgsm", "pgd", "apgd", "auto_attack")),
    ("pgd", "l0"),
]
RADIUS = {"linf": 8 / 255, "l2": 0.3, "l1": 1.7, "l0": 3}


def network(dtype: torch.dtype = torch.float32, seed: int = 0, k: int = 5) -> Any:
    """A small convolutional network with what evaluation mode is about."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net: Any = nn.Sequential(
            *(nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Dropout(0.5), nn.Linear(54, 30), nn.Tanh(), nn.Linear(30, k)),
        )
        net(torch.rand(64, 2, 6, 6))
        with torch.no_grad():
            net[-1].weight.mul_(8)
    return net.to(dtype)


def examples(
    net: nn.Module, n: int = 24, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Images and the classes that the network gives them."""
    x = torch.rand(n, 2, 6, 6, generator=torch.Generator().manual_seed(5)).to(dtype)
    return x, logits(net, x).argmax(1)


def logits(net: nn.Module, x: Tensor) -> Tensor:
    """In evaluation mode, as it was afterwards."""
    training = net.training
    with torch.no_grad():
        z = net.eval()(x)
    net.train(training)
    return z


def attack(
    name: str, net: nn.Module, x: Tensor, y: Tensor, norm: str, seed: int = 1, **knobs: Any
) -> Any:
    """An attack with a generator of its own."""
    knobs.setdefault("radius", RADIUS[norm])
    knobs.setdefault("generator", torch.Generator().manual_seed(seed))
    return ATTACKS[name](net, x, y, norm=norm, **knobs)
