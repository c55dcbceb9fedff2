"""What models of data pay, and how far their samples are from the data."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.data import load, moons, spirals
from vademecum.generative import GAN, MAF, RealNVP, SplineFlow, frechet_distance
from vademecum.models import mlp
from vademecum.train.recipes._objective import place_of

__all__ = ["Game", "bound", "density", "distance", "flow_network", "own_loss", "pixels", "plane"]

_PLAYERS = ("discriminator", "generator")
FLOWS = {"realnvp": RealNVP, "maf": MAF, "spline": SplineFlow}


def pixels(data: str) -> tuple[Tensor, Tensor]:
    """Images to train on and to judge by, as they are."""
    found: list[Any] = [load(data, split=split) for split in ("train", "test")]
    return found[0].x, found[1].x


def plane(data: str, n: int, *, seed: int) -> Tensor:
    """Standardised points in the plane."""
    generator = torch.Generator().manual_seed(seed)
    draw = {"moons": moons, "spirals": spirals}[data]
    x = draw(n, noise=0.1, generator=generator).x
    centre, size = {"moons": ((0.5, 0.25), (0.87, 0.5)), "spirals": ((0.0, 0.0), (0.5, 0.5))}[data]
    return (x - torch.tensor(centre)) / torch.tensor(size)


def own_loss(model: Any, batch: Tensor) -> Tensor:
    """What a model says of itself."""
    return model.loss(batch)


def density(model: Any, batch: Tensor) -> Tensor:
    """Minus the mean log-density."""
    return -model.log_prob(batch).mean()


def flow_network(name: str, d: int, *, width: int, transforms: int) -> nn.Module:
    """A flow by name."""
    return FLOWS[name](d, transforms=transforms, hidden=(width, width))


def bound(test: Tensor, loss: Callable[[Any, Tensor], Tensor]) -> Callable[[Any], dict[str, float]]:
    """The loss on test examples, in nats for each."""

    @torch.no_grad()
    def evaluate(objective: Any) -> dict[str, float]:
        x = test.to(place_of(objective.model))
        return {"nats": float(loss(objective.model, x))}

    return evaluate


def distance(
    test: Tensor, n: int = 1000, *, low: float = 0.0, high: float = 1.0
) -> Callable[[Any], dict[str, float]]:
    """The Frechet distance of samples to test images, of pixels that were in [low, high]."""

    @torch.no_grad()
    def evaluate(objective: Any) -> dict[str, float]:
        x, y = (
            (x.flatten(1) - low) / (high - low) for x in (objective.model.sample(n).cpu(), test)
        )
        return {"frechet distance": frechet_distance(x, y).value}

    return evaluate


class Game(nn.Module):
    """A GAN of two dense networks, whose players take turns.

    Args:
        d: How many entries an example has, between 0 and 1.
        latent: How many numbers a code has.
        width: How wide hidden layers are.
        **options: Of `GAN`.
    """

    def __init__(self, d: int, *, latent: int, width: int, **options: Any):
        super().__init__()
        generator = nn.Sequential(*mlp([latent, width, width, d]), nn.Sigmoid())
        judge = mlp([d, width, width, 1], lambda: nn.LeakyReLU(0.2))
        self.model = GAN(generator, judge, latent_dim=latent, **options)

    def players(self) -> dict[str, Any]:
        """Who moves which parameters."""
        return {name: getattr(self.model, name).parameters() for name in _PLAYERS}

    def losses(self, batch: Tensor) -> dict[str, Callable[[], Tensor]]:
        """What each player pays on its turn."""
        return {name: partial(self._paid, name, batch) for name in _PLAYERS}

    def _paid(self, name: str, batch: Tensor) -> Tensor:
        return self.model.losses(batch, players=(name,))[name]
