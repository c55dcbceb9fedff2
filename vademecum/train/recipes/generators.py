"""Recipes for models that make examples: VAE, flows, GANs, diffusion."""

from typing import Literal

from vademecum.train.recipes._task import Task
from vademecum.train.recipes.images import ImageData

__all__ = ["diffusion", "flow", "gan", "vae"]


def vae(
    *, data: ImageData = "digits", width: int = 128, latent: int = 8, beta: float = 1.0
) -> Task:
    """Learn images with a hidden code: a variational autoencoder of dense networks.

    Args:
        data: Which images; grey values count as chances of white pixels.
        width: How wide hidden layers are.
        latent: How many numbers a code has.
        beta: The weight of the divergence; with 1 the loss is a bound of the log-evidence.
    """
    from torch import nn

    from vademecum.generative import VAE
    from vademecum.models import mlp
    from vademecum.train.recipes import _generative_parts as parts
    from vademecum.train.recipes._objective import Objective

    train, test = (x.flatten(1) for x in parts.pixels(data))
    d = train.shape[1]
    encoder, decoder = mlp([d, width, width, 2 * latent]), mlp([latent, width, width, d])
    net: nn.Module = VAE(encoder, decoder, likelihood="bernoulli", grey=True, beta=beta,
                         latent=latent)  # fmt: skip
    settings = {"optimizer": "adam", "lr": 2e-3, "batch_size": 64, "steps": 1000,
                "schedule": "cosine", "evaluate_every": 250}  # fmt: skip
    judge = parts.bound(test, lambda model, x: -model.elbo(x).elbo.mean())
    return Task(Objective(net, parts.own_loss), train, judge, "nats", False, settings)


def flow(
    *,
    data: Literal["moons", "spirals"] = "moons",
    name: Literal["realnvp", "maf", "spline"] = "realnvp",
    width: int = 64,
    transforms: int = 6,
    points: int = 5000,
) -> Task:
    """Learn the density of points by a chain of invertible maps: RealNVP, MAF or splines.

    Args:
        data: Which points of the plane.
        name: Which flow.
        width: How wide hidden layers are.
        transforms: How many maps there are.
        points: How many points to train on.
    """
    from vademecum.train.recipes import _generative_parts as parts
    from vademecum.train.recipes._objective import Objective

    net = parts.flow_network(name, 2, width=width, transforms=transforms)
    settings = {"optimizer": "adam", "lr": 2e-3, "batch_size": 256, "steps": 600,
                "schedule": "cosine", "clip": 5.0, "evaluate_every": 200}  # fmt: skip
    judge = parts.bound(parts.plane(data, 2000, seed=1), parts.density)
    train = parts.plane(data, points, seed=0)
    return Task(Objective(net, parts.density), train, judge, "nats", False, settings)


def gan(
    *,
    data: ImageData = "digits",
    objective: Literal["saturating", "non-saturating", "wasserstein"] = "non-saturating",
    constraint: Literal["none", "gradient-penalty"] = "none",
    latent: int = 16,
    width: int = 128,
) -> Task:
    """Let a generator fool a discriminator: a GAN of dense networks, each with its optimiser.

    Args:
        data: Which images.
        objective: The game that is played.
        constraint: What bounds the slope of the discriminator.
        latent: How many numbers a code has.
        width: How wide hidden layers are.
    """
    from vademecum.train.recipes import _generative_parts as parts

    train, test = (x.flatten(1) for x in parts.pixels(data))
    bounded = None if constraint == "none" else constraint
    game = parts.Game(
        train.shape[1], latent=latent, width=width, objective=objective, constraint=bounded
    )
    settings = {
        "optimizer": "muon",
        "lr": 2e-3,
        "batch_size": 64,
        "steps": 1500,
        "evaluate_every": 500,
    }
    return Task(game, train, parts.distance(test), "frechet distance", False, settings)


def diffusion(
    *,
    data: ImageData = "digits",
    name: Literal["mlp", "unet"] = "mlp",
    width: int = 128,
    noise_steps: int = 100,
) -> Task:
    """Learn to undo noise step by step, and draw images by doing so: DDPM.

    Args:
        data: Which images.
        name: The network: dense, for small images, or a U-Net.
        width: How wide its layers are; of a U-Net, how many maps the first level has.
        noise_steps: In how many steps an image becomes noise.
    """
    from vademecum.generative import DDPM, ConditionalMLP, ConditionalUNet, NoiseSchedule
    from vademecum.train.recipes import _generative_parts as parts
    from vademecum.train.recipes._objective import Objective

    train, test = (2 * x - 1 for x in parts.pixels(data))
    if name == "mlp":
        train, test = train.flatten(1), test.flatten(1)
        net = ConditionalMLP(train.shape[1], hidden=(width,) * 3, horizon=noise_steps)
    else:
        net = ConditionalUNet(train.shape[1], width=width, horizon=noise_steps)
    model = DDPM(net, train.shape[1:], schedule=NoiseSchedule.cosine(noise_steps))
    settings = {"optimizer": "muon", "lr": 1e-2, "weight_decay": 0.0, "batch_size": 128,
                "steps": 1000, "schedule": "cosine", "warmup": 50, "average": 0.99,
                "evaluate_every": 500}  # fmt: skip
    judge = parts.distance(test, low=-1.0)
    return Task(Objective(model, parts.own_loss), train, judge, "frechet distance", False, settings)
