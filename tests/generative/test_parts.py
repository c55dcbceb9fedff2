"""Every module that the room exports keeps the laws of parts."""

import pytest
import torch
from torch import nn

import vademecum.generative as room
from vademecum.testing import check_part

TIMES, LABELS = torch.tensor([1, 7, 30]), torch.tensor([0, 2, 1])


def conditional_unet():
    net = room.ConditionalUNet(1, width=8, blocks=1, classes=3)
    nn.init.normal_(net.last.weight, std=0.1)  # which begins at zero, and so hides all gradients
    return net, (torch.randn(3, 1, 8, 8), TIMES, LABELS)


def ddpm():
    net = room.ConditionalMLP(2, hidden=(8, 6), classes=3)
    return room.DDPM(net, (2,)), (torch.randn(3, 2), TIMES, LABELS)


def mixture():
    half, means = torch.tensor([0.5, 0.5]), torch.randn(2, 3)
    exact = room.MixtureScore(half, means, torch.eye(3).repeat(2, 1, 1) / 2, process=room.VPSDE())
    return exact, (torch.randn(4, 3), torch.rand(4))


def flow(name):
    """Small, with a context; all parameters away from zero, which would hide gradients."""
    few = {} if name in ("LinearFlow", "PlanarFlow") else {"transforms": 3, "hidden": (8, 6)}
    made = getattr(room, name)(4, context=2, **few)
    for p in made.parameters():
        p.data += 0.1 * torch.randn_like(p)
    return made, (torch.randn(3, 4), torch.randn(3, 2))


def composed():
    return room.Compose([flow("PlanarFlow")[0], flow("MAF")[0]]), flow("MAF")[1]


FLOWS = ("IAF", "LinearFlow", "MAF", "PlanarFlow", "RealNVP", "SplineFlow")
PARTS = {
    **{name: lambda name=name: flow(name) for name in FLOWS},
    "Compose": composed,
    "MADE": lambda: (room.MADE(4, kind="gaussian", hidden=(8, 6)), torch.randn(3, 4)),
    "MixtureScore": mixture,
    "GAN": lambda: (room.GAN(nn.Linear(2, 4), nn.Linear(4, 1), latent_dim=2), torch.randn(3, 2)),
    "Autoencoder": lambda: (
        room.Autoencoder(nn.Linear(5, 2), nn.Linear(2, 5)),
        torch.randn(3, 5),
    ),
    "VAE": lambda: (room.VAE(nn.Linear(5, 4), nn.Linear(2, 5)), torch.randn(3, 5)),
    "ConditionalMLP": lambda: (
        room.ConditionalMLP(4, hidden=(8, 8), classes=3),
        (torch.randn(3, 4), TIMES, LABELS),
    ),
    "ConditionalUNet": conditional_unet,
    "DDPM": ddpm,
    "MaskedConv2d": lambda: (
        room.MaskedConv2d(2, 6, 3, kind="B", colours=2),
        torch.randn(3, 2, 5, 4),
    ),
    "PixelCNN": lambda: (
        room.PixelCNN((2, 4, 3), 5, width=6, depth=2, head=8, context=3),
        (torch.randint(5, (3, 2, 4, 3)), torch.randn(3, 3)),
    ),
}
SKIPPED: dict[str, dict[str, str]] = {
    "GAN": {"gradient": "a call generates, and does not ask the discriminator"},
}


@pytest.mark.parametrize("name", PARTS)
def test_laws(name):
    check_part(*PARTS[name](), skip=SKIPPED.get(name))


def test_nothing_is_left_out():
    """A new module needs a line above."""
    exported = {name: getattr(room, name) for name in room.__all__}
    classes = {name: thing for name, thing in exported.items() if isinstance(thing, type)}
    assert {name for name, thing in classes.items() if issubclass(thing, nn.Module)} == set(PARTS)
