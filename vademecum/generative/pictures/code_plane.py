"""The plane of codes of a small variational autoencoder, and what its points decode to."""

from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from vademecum.canvas import GREY, panels
from vademecum.data import DataNotFoundError, load
from vademecum.generative import VAE
from vademecum.models import mlp
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["latent_plane"]

Likelihood = Literal["gaussian", "bernoulli"]
_SIDE = 14  # of an image, in pixels
_TILES = 9
_COLOURS = ("blue", "orange", "green", "red", "purple", "brown", "pink", "gray", "olive", "cyan")
_EXAMPLES, _STEPS, _BATCH = 1500, 400, 64


class _Plane(NamedTuple):
    """A trained model as the drawing needs it."""

    codes: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    tiles: np.ndarray
    reconstruction: float
    kl: float
    active: int


@picture(claims=("generative.beta_vae", "generative.variational_autoencoder"), plays="beta")
def latent_plane(
    beta: Annotated[float, Range(0.25, 16.0, 4, log=True)] = 1.0,
    likelihood: Likelihood = "bernoulli",
    reach: Annotated[float, Range(1.0, 3.0, 1.0)] = 2.0,
) -> Figure:
    """The plane of codes of a variational autoencoder.

    Small images of clothes (or digits, where Fashion-MNIST is not on this machine) were squeezed
    through two numbers. To the left is where the encoder puts them, by class; the prior is standard
    normal, and the circles hold half and nearly all of its mass. To the right is what the decoder
    makes of a grid of codes: a walk through it passes from shoes to shirts. A small beta lets the
    codes spread out, and leaves gaps from which nothing sensible is decoded; a large one pulls all
    of them to the prior until images are alike. Turn the reach to see codes that are rare.

    Knobs:
        beta: The weight of the divergence from the prior.
        likelihood: What the decoder's numbers are: means of grey values, or logits of bits.
        reach: How far the grid of codes goes, in standard deviations of the prior.
    """
    plane = _plane(beta, likelihood, reach)
    figure, (left, right) = panels((8.6, 4.3), 1, 2, margins=(0.6, 0.2, 0.6, 0.4), gaps=(0.5, 0.5))
    for label, name in enumerate(plane.classes):
        some = plane.codes[plane.labels == label]
        left.plot(some[:, 0], some[:, 1], ".", ms=3, color=f"tab:{_COLOURS[label]}", label=name)
    turn = np.linspace(0, 2 * np.pi, 100)
    for radius in (1.18, 3.0):
        left.plot(radius * np.cos(turn), radius * np.sin(turn), color=GREY, lw=0.8)
    left.set(xlim=(-5.6, 5.6), ylim=(-6.4, 4.8), xlabel="first code", ylabel="second code")
    left.set_aspect("equal")
    left.set_title(f"{plane.active} of 2 codes in use; divergence {plane.kl:.1f} nats")
    left.legend(loc="lower center", fontsize=6, markerscale=2, ncols=5, handletextpad=0.1,
                columnspacing=0.6, borderaxespad=0.1)  # fmt: skip
    edge = reach * (1 + 1 / (_TILES - 1))
    right.imshow(plane.tiles, cmap="gray_r", vmin=0, vmax=1, extent=(-edge, edge, -edge, edge),
                 interpolation="nearest")  # fmt: skip
    right.set(xlabel="first code", ylabel="second code")
    right.set_title(f"decoded; reconstruction {plane.reconstruction:.0f} nats")
    return figure


@lru_cache(1)
def _images() -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Images (n, 196) in [0, 1] with labels; never by a download."""
    try:
        x, y, classes = load("fashion_mnist", split="test", download=False)
        x = avg_pool2d(x[:_EXAMPLES], 2)
    except DataNotFoundError:
        x, y, classes = load("digits")
        x = nn.functional.interpolate(x, size=(_SIDE, _SIDE), mode="bilinear")
    return x.flatten(1)[:_EXAMPLES].clamp(0, 1), y[:_EXAMPLES], tuple(classes)


@lru_cache(32)
def _trained(beta: float, likelihood: Likelihood) -> tuple[VAE, Tensor]:
    x, *_ = _images()
    with own_randomness(0):
        x = x if likelihood == "gaussian" else (x > 0.35).to(x.dtype)
        noise = 0.3 if likelihood == "gaussian" else 1.0
        vae = VAE(mlp([_SIDE**2, 96, 4]), mlp([2, 96, _SIDE**2]), likelihood=likelihood,
                  beta=beta, noise=noise)  # fmt: skip
        steps = torch.optim.Adam(vae.parameters(), lr=3e-3)
        for rows in torch.randint(len(x), (_STEPS, _BATCH)):
            steps.zero_grad()
            vae.loss(x[rows]).backward()
            steps.step()
    return vae.eval(), x


@lru_cache(64)
def _plane(beta: float, likelihood: Likelihood, reach: float) -> _Plane:
    vae, x = _trained(beta, likelihood)
    _, labels, classes = _images()
    line = torch.linspace(-reach, reach, _TILES)
    codes = torch.cartesian_prod(line.flip(0), line).flip(1)  # from the top, first code to right
    with torch.no_grad(), own_randomness(0):
        tiles = vae.decode(codes).clamp(0, 1).reshape(_TILES, _TILES, _SIDE, _SIDE)
        found, terms = vae.encode(x).mean, vae.elbo(x)
        active = vae.active_units(x).number
    some = slice(0, 300)
    image = tiles.permute(0, 2, 1, 3).reshape(_TILES * _SIDE, _TILES * _SIDE)
    return _Plane(
        found[some].numpy(), labels[some].numpy(), classes, image.numpy(),
        float(terms.reconstruction.mean()), float(terms.kl.mean()), active,
    )  # fmt: skip
