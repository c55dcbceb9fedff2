"""Calls of autoencoders and of draws that gradients pass through, from networks that stay."""

from typing import Any

import torch
from torch import nn

from vademecum.generative import VAE, Autoencoder, gradient_variance, reparameterize

X = torch.linspace(-1, 1, 12).reshape(4, 3)


def variational() -> VAE:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return VAE(nn.Linear(3, 4), nn.Linear(2, 3), latent=2)


def denoising() -> Autoencoder:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Autoencoder(nn.Linear(3, 2), nn.Linear(2, 3), denoising=0.3)


def variances(generator: Any) -> Any:
    zero, one = torch.zeros(2), torch.ones(2)
    return gradient_variance(lambda z: z.prod(1), zero, one, draws=20, generator=generator)


CALLS = {
    "VAE.elbo": lambda g: variational().elbo(X, generator=g),
    "VAE.loss": lambda g: variational().loss(X, generator=g),
    "VAE.iwae_bound": lambda g: variational().iwae_bound(X, 3, generator=g),
    "VAE.log_prob": lambda g: variational().log_prob(X, k=20, generator=g),
    "VAE.sample": lambda g: variational().sample(3, generator=g),
    "Autoencoder.terms": lambda g: denoising().terms(X, generator=g),
    "Autoencoder.loss": lambda g: denoising().loss(X, generator=g),
    "gradient_variance": variances,
    "reparameterize": lambda g: reparameterize(torch.zeros(3), torch.zeros(3), generator=g),
}
