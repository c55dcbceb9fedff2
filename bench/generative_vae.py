"""Rows of the room `generative`: variational autoencoders against the same steps by hand."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.harness import Row, Skipped
from vademecum.generative import VAE, Autoencoder
from vademecum.models import mlp

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    n = 128 if device.type == "cpu" else 1024
    yield _step(f"Bernoulli VAE, {n} x 784", _perceptrons(device), _bits(n, device), "bernoulli")
    yield _step(f"Gaussian VAE, {n} x 784", _perceptrons(device), torch.rand(n, 784).to(device),
                "gaussian")  # fmt: skip
    n = 32 if device.type == "cpu" else 512
    x = torch.rand(n, 1, 28, 28).to(device)
    yield _step(f"convolutional VAE, {n} x 28 x 28", _convolutions(device), x, "gaussian")
    yield _likelihood(64 if device.type == "cpu" else 1000, device)
    yield _contraction(256, device)


def _perceptrons(device: torch.device) -> tuple[nn.Module, nn.Module]:
    return mlp([784, 400, 40]).to(device), mlp([20, 400, 784]).to(device)


def _convolutions(device: torch.device) -> tuple[nn.Module, nn.Module]:
    encoder = nn.Sequential(
        nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(64 * 49, 40),
    )  # fmt: skip
    decoder = nn.Sequential(
        nn.Linear(20, 64 * 49), nn.ReLU(), nn.Unflatten(1, (64, 7, 7)),
        nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1),
    )  # fmt: skip
    return encoder.to(device), decoder.to(device)


def _bits(n: int, device: torch.device) -> Tensor:
    return torch.rand(n, 784).round().to(device)


def _step(name: str, nets: tuple[nn.Module, nn.Module], x: Tensor, likelihood: Any) -> Row:
    """Ten steps of Adam on the same numbers; a state of its own for each side."""
    vae = VAE(*nets, likelihood=likelihood)
    start = {key: value.clone() for key, value in vae.state_dict().items()}
    parameters = list(vae.parameters())

    def ours(x: Tensor) -> Tensor:
        return vae.loss(x)

    def by_hand(x: Tensor) -> Tensor:
        mean, log_variance = nets[0](x).chunk(2, 1)
        z = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        decoded = nets[1](z)
        if likelihood == "bernoulli":
            fit = F.binary_cross_entropy_with_logits(decoded, x, reduction="sum")
        else:
            fit = 0.5 * (F.mse_loss(decoded, x, reduction="sum") + x.numel() * math.log(math.tau))
        kl = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
        return (fit + kl) / len(x)

    def run(loss: Any) -> Tensor:
        vae.load_state_dict(start)
        torch.manual_seed(1)
        steps, losses = torch.optim.Adam(parameters, lr=1e-3), []
        for _ in range(10):
            steps.zero_grad()
            losses.append(loss(x))
            losses[-1].backward()
            steps.step()
        return torch.stack(losses).detach()

    return Row(
        f"ten steps of a {name}", partial(run, ours), {"the same by hand": partial(run, by_hand)},
        _agree, limit="0.97 of the bare modules",
    )  # fmt: skip


def _agree(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=0.0)


def _likelihood(n: int, device: torch.device) -> Row:
    """1,000 draws for each example; by hand in one piece, which takes the memory."""
    encoder, decoder = _perceptrons(device)
    x, k = _bits(n, device), 1000
    vae = VAE(encoder, decoder, likelihood="bernoulli")

    @torch.no_grad()
    def by_hand() -> Tensor:
        mean, log_variance = encoder(x).chunk(2, 1)
        found = []
        for row, m, v in zip(x, mean, log_variance, strict=True):
            noise = torch.randn(k, 20, device=device)
            z = m + (v / 2).exp() * noise
            fit = -F.binary_cross_entropy_with_logits(
                decoder(z), row.expand(k, -1), reduction="none"
            ).sum(1)
            ratio = (noise.square() - z.square() + v).sum(1) / 2
            found.append((fit + ratio).logsumexp(0))
        return torch.stack(found) - torch.tensor(float(k)).log()

    def agree(ours: Tensor, theirs: Tensor) -> None:
        torch.testing.assert_close(ours.mean(), theirs.mean(), rtol=0, atol=1.0)

    return Row(
        f"log-likelihoods of {n} examples by 1,000 draws",
        lambda: vae.log_prob(x, k=k).log_prob,
        {"a loop over the examples": by_hand},
        agree,
    )


def _contraction(n: int, device: torch.device) -> Row:
    """A step with the exact Jacobian of the encoder: ours, and torch.func's."""
    encoder, decoder = mlp([100, 200, 10], nn.Tanh).to(device), mlp([10, 200, 100]).to(device)
    model, x = Autoencoder(encoder, decoder, contractive=0.1), torch.randn(n, 100).to(device)
    parameters = list(model.parameters())

    def by_function() -> Tensor:
        jac = torch.func.vmap(torch.func.jacrev(encoder))(x)
        loss = (x - decoder(encoder(x))).square().sum(1) + 0.1 * jac.square().sum((1, 2))
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss.mean(), parameters)])

    def ours() -> Tensor:
        grads = torch.autograd.grad(model.loss(x), parameters)
        return torch.cat([g.flatten() for g in grads])

    def agree(ours: Tensor, theirs: Tensor) -> None:
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5 * float(theirs.abs().max()))

    return Row(
        f"a step of a contractive autoencoder, {n} x 100 to 10", ours,
        {"torch.func.vmap of jacrev": by_function}, agree,
    )  # fmt: skip
