"""Penalties against their formulas, and clipping."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.generative.test_adversarial_games import Listed, networks
from vademecum.generative import GAN


def test_the_gradient_penalty_is_the_formula():
    """Of a critic whose gradient is known, at the points that the same generator gives."""
    torch.manual_seed(0)
    W, v = torch.randn(6, 2).double(), torch.randn(6).double()
    D: Any = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    with torch.no_grad():
        D[0].weight.copy_(W)
        D[2].weight.copy_(v[None])
    x, y = torch.randn(2, 7, 2).double()
    keys: Any = {"latent_dim": 1, "objective": "wasserstein"}
    source = torch.Generator().manual_seed(3)
    penalised = GAN(Listed(y), D, constraint="gradient-penalty", penalty=2.5, **keys)
    loss = penalised.losses(x, generator=source)["discriminator"]
    plain = GAN(Listed(y), D, **keys).losses(x)["discriminator"]
    source.manual_seed(3)
    torch.randn(7, 1, generator=source, dtype=torch.float64)  # the codes
    alpha = torch.rand(7, generator=source, dtype=torch.float64)[:, None].numpy()
    at = alpha * x.numpy() + (1 - alpha) * y.numpy()
    h = np.tanh(at @ W.numpy().T + D[0].bias.detach().numpy())
    slopes = ((1 - h**2) * v.numpy()) @ W.numpy()
    wanted = 2.5 * ((np.linalg.norm(slopes, axis=1) - 1) ** 2).mean()
    assert (loss - plain).item() == pytest.approx(wanted, rel=1e-11)
    weight = D[0].weight.detach().requires_grad_()
    h = torch.tanh(torch.from_numpy(at) @ weight.T + D[0].bias.detach())
    norms = (((1 - h**2) * v) @ weight).norm(dim=1)
    (direct,) = torch.autograd.grad(2.5 * (norms - 1).square().mean(), weight)
    (found,) = torch.autograd.grad(loss - plain, D[0].weight)
    torch.testing.assert_close(found, direct, rtol=1e-10, atol=1e-12)


def test_the_penalty_of_images_and_of_a_flat_critic():
    """The norm is over all entries of an example; a constant critic has slope 0, and no NaN."""
    x, y = torch.randn(2, 4, 1, 3, 3)
    D: Any = nn.Sequential(nn.Flatten(), nn.Linear(9, 1))
    nn.init.constant_(D[1].weight, 2.0)
    gan = GAN(Listed(y), D, latent_dim=1, objective="wasserstein", constraint="gradient-penalty")
    alone = GAN(Listed(y), D, latent_dim=1, objective="wasserstein")
    gap = gan.losses(x)["discriminator"] - alone.losses(x)["discriminator"]
    assert gap.item() == pytest.approx(10 * (2 * 3 - 1) ** 2, rel=1e-5)
    nn.init.zeros_(D[1].weight)
    loss = gan.losses(x)["discriminator"]
    loss.backward()
    assert loss.item() == pytest.approx(10, rel=1e-6)
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in D.parameters())


def test_without_gradients_nothing_is_recorded():
    G, D = networks()
    gan = GAN(G, D, latent_dim=3, constraint="gradient-penalty")
    x = torch.randn(5, 2).double()
    with torch.no_grad():
        losses = gan.losses(x, generator=torch.Generator().manual_seed(0))
    wanted = gan.losses(x, generator=torch.Generator().manual_seed(0))
    for player, loss in losses.items():
        assert not loss.requires_grad
        assert loss.item() == pytest.approx(wanted[player].item())


def test_clip_puts_parameters_back_and_leaves_the_rest():
    G, D = networks()
    with torch.no_grad():
        D[0].weight.copy_(torch.linspace(-1, 1, 12).view(6, 2))
    before = [p.detach().clone() for p in D.parameters()]
    generator = [p.detach().clone() for p in G.parameters()]
    GAN(G, D, latent_dim=3, objective="wasserstein", constraint="clip", clip_at=0.3).clip()
    for old, p in zip(before, D.parameters(), strict=True):
        assert p.detach().numpy() == pytest.approx(np.clip(old.numpy(), -0.3, 0.3), abs=0)
        assert p.requires_grad
    assert all(old.equal(p) for old, p in zip(generator, G.parameters(), strict=True))
