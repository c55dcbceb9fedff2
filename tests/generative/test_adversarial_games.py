"""The losses of a game against their formulas, and gradients that stay with their player."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vademecum.generative import GAN

SIZES = {"saturating": 4, "non-saturating": 4, "wasserstein": 4}


class Conditional(nn.Module):
    """A network of an example and a context, side by side."""

    def __init__(self, d: int, c: int, k: int):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d + c, 7), nn.Tanh(), nn.Linear(7, k))

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        return self.net(torch.cat([x, context], 1))


class Listed(nn.Module):
    """Generates the same rows whatever the codes are."""

    def __init__(self, rows: Tensor):
        super().__init__()
        self.rows = nn.Parameter(rows)

    def forward(self, z: Tensor) -> Tensor:
        return self.rows[: len(z)]


def networks(dtype: torch.dtype = torch.float64) -> tuple[Any, Any]:
    torch.manual_seed(0)
    G = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).to(dtype)
    D = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1)).to(dtype)
    return G, D


def by_hand(a: np.ndarray, b: np.ndarray) -> dict[str, tuple[float, float]]:
    """What players pay for logits of real and generated examples, by the plain formulas."""
    real, fake = 1 / (1 + np.exp(-a)), 1 / (1 + np.exp(-b))
    value = np.log(real).mean() + np.log(1 - fake).mean()
    return {
        "saturating": (-value, np.log(1 - fake).mean()),
        "non-saturating": (-value, -np.log(fake).mean()),
        "wasserstein": (b.mean() - a.mean(), -b.mean()),
    }


@pytest.mark.parametrize("objective", SIZES)
@pytest.mark.parametrize("flat", [False, True])
def test_losses_are_the_formulas(objective, flat):
    G, D = networks()
    judge = nn.Sequential(D, nn.Flatten(0)) if flat else D
    gan = GAN(G, judge, latent_dim=3, objective=objective)
    x = torch.randn(9, 2).double()
    losses = gan.losses(x, generator=torch.Generator().manual_seed(4))
    z = torch.randn(9, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    with torch.no_grad():
        a, b = (D(t).numpy() for t in (x, G(z)))
    wanted = by_hand(a, b)[objective]
    assert [*losses] == ["discriminator", "generator"]
    for loss, target in zip(losses.values(), wanted, strict=True):
        assert loss.item() == pytest.approx(target, rel=1e-12)


@pytest.mark.parametrize("constraint", [None, "gradient-penalty"])
@pytest.mark.parametrize("objective", SIZES)
def test_each_loss_moves_its_own_player_alone(objective, constraint):
    G, D = networks()
    gan = GAN(G, D, latent_dim=3, objective=objective, constraint=constraint)
    x = torch.randn(6, 2).double()
    for player, own, other in (("discriminator", D, G), ("generator", G, D)):
        gan.zero_grad()
        gan.losses(x)[player].backward()
        assert all(p.grad is None for p in other.parameters())
        grads = [p.grad for p in own.parameters()]
        assert all(g is not None for g in grads)
        assert sum(float(g.abs().sum()) for g in grads if g is not None) > 0
        assert all(p.requires_grad for p in gan.parameters())


@pytest.mark.parametrize("objective", SIZES)
def test_gradients_are_those_of_the_game(objective):
    """The generator's gradient passes through the discriminator, by autograd on one expression."""
    G, D = networks()
    gan = GAN(G, D, latent_dim=3, objective=objective)
    x = torch.randn(6, 2).double()
    losses = gan.losses(x, generator=torch.Generator().manual_seed(1))
    z = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    real, fake = D(x).sigmoid(), D(G(z)).sigmoid()
    value = real.log().mean() + (1 - fake).log().mean()
    generator = {
        "saturating": value,
        "non-saturating": -fake.log().mean(),
        "wasserstein": D(x).mean() - D(G(z)).mean(),
    }[objective]
    discriminator = -generator if objective == "wasserstein" else -value
    for name, net, loss in (("generator", G, generator), ("discriminator", D, discriminator)):
        params = list(net.parameters())
        wanted = torch.autograd.grad(loss, params, retain_graph=True)
        found = torch.autograd.grad(losses[name], params, retain_graph=True)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


def test_what_is_frozen_stays_frozen_and_only_what_is_asked_for_is_computed():
    G, D = networks()
    D[0].weight.requires_grad_(False)
    gan = GAN(G, D, latent_dim=3)
    calls = []
    G.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    D.register_forward_hook(lambda *_: calls.append("judged"))
    x = torch.randn(4, 2).double()
    assert [*gan.losses(x, players=("discriminator",))] == ["discriminator"]
    assert calls == [False, "judged", "judged"]
    calls.clear()
    assert [*gan.losses(x, players=("generator",))] == ["generator"]
    assert calls == [True, "judged"]
    assert not D[0].weight.requires_grad
    assert D[0].bias.requires_grad
    assert sum(p.requires_grad for p in gan.parameters()) == 7


def test_losses_are_stable_where_a_discriminator_is_sure():
    x, fake = torch.full((3, 1), 1e4), torch.full((3, 1), -1e4)
    cases: Any = {"saturating": -0.0, "non-saturating": 1e4, "wasserstein": 1e4}
    for objective, paid in cases.items():
        G = Listed(fake)
        losses = GAN(G, nn.Identity(), latent_dim=1, objective=objective).losses(x)
        assert losses["generator"].item() == pytest.approx(paid)
        losses["generator"].backward()
        slope = 0.0 if objective == "saturating" else -1 / 3
        torch.testing.assert_close(G.rows.grad, torch.full((3, 1), slope))
        wanted = {"wasserstein": -2e4}.get(objective, 0.0)
        assert losses["discriminator"].item() == pytest.approx(wanted)


def test_a_map_of_logits_is_averaged():
    D = nn.Conv2d(1, 1, 2).double()
    x, y = torch.randn(2, 4, 1, 5, 5).double()
    gan = GAN(Listed(y), D, latent_dim=1, objective="saturating")
    a, b = (D(t).detach().numpy() for t in (x, y))
    paid = gan.losses(x)["discriminator"].item()
    assert paid == pytest.approx(by_hand(a, b)["saturating"][0])
    steep = GAN(Listed(y), D, latent_dim=1, objective="saturating", constraint="gradient-penalty")
    # the mean of 16 shifted filters: its slope is their sum over 16, the same everywhere
    spread = nn.functional.conv_transpose2d(torch.ones(1, 1, 4, 4).double() / 16, D.weight.detach())
    wanted = 10 * (float(spread.norm()) - 1) ** 2
    assert steep.losses(x)["discriminator"].item() - paid == pytest.approx(wanted, rel=1e-9)


def test_context_reaches_both_players():
    torch.manual_seed(0)
    G, D = Conditional(3, 2, 4).double(), Conditional(4, 2, 1).double()
    gan = GAN(G, D, latent_dim=3, constraint="gradient-penalty")
    x, context = torch.randn(5, 4).double(), torch.randn(5, 2).double()
    source = torch.Generator().manual_seed(2)
    losses = gan.losses(x, context=context, generator=source)
    source.manual_seed(2)
    z = torch.randn(5, 3, generator=source, dtype=torch.float64)
    logits = D(G(z, context), context)
    wanted = nn.functional.softplus(-logits).mean()
    torch.testing.assert_close(losses["generator"], wanted)
    source.manual_seed(2)
    torch.testing.assert_close(gan.sample(5, context, generator=source), G(z, context).detach())
    with pytest.raises(ValueError, match=r"context must have 5 rows, got shape \(4, 2\)"):
        gan.sample(5, context[:4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("prior", ["normal", "uniform"])
def test_codes_have_their_law_and_the_generators_dtype(dtype, prior):
    G = nn.Linear(2, 2, bias=False).to(dtype)
    nn.init.eye_(G.weight)
    gan = GAN(G, nn.Linear(2, 1), latent_dim=2, prior=prior)
    z = gan.sample(40_000, generator=torch.Generator().manual_seed(0))
    assert z.dtype == dtype
    assert not z.requires_grad
    mean, variance = (0.0, 1.0) if prior == "normal" else (0.5, 1 / 12)
    error = 5 * math.sqrt(variance / 40_000)
    assert (z.mean(0) - mean).abs().max() < error
    assert (z.var(0) - variance).abs().max() < 5 * math.sqrt(2 / 40_000) * variance
    assert abs(float((z[:, 0] * z[:, 1]).mean()) - mean**2) < 2 * error
    if prior == "uniform":
        assert z.min() >= 0
        assert z.max() <= 1


def test_samples_are_of_evaluation_mode_and_change_nothing():
    G = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    G[2].eval()
    gan = GAN(G, nn.Linear(3, 1), latent_dim=2)
    before = {name: t.clone() for name, t in gan.state_dict().items()}
    found = gan.sample(7, generator=torch.Generator().manual_seed(0))
    z = torch.randn(7, 2, generator=torch.Generator().manual_seed(0))
    assert G.training
    assert G[1].training
    assert not G[2].training
    assert all(t.equal(before[name]) for name, t in gan.state_dict().items())
    torch.testing.assert_close(found, G.eval()(z).detach())


def test_generators_without_parameters():
    gan = GAN(nn.Tanh(), nn.Linear(2, 1).double(), latent_dim=2)
    assert gan.sample(3).dtype == torch.get_default_dtype()
    assert gan.losses(torch.randn(3, 2).double())["discriminator"].dtype == torch.float64


def test_a_game_learns_a_shifted_plane():
    """Two dimensions, both networks trained by Adam: mean and covariance come near the data's."""
    torch.manual_seed(0)
    A, b = torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([2.0, -1.0])
    G, D = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    gan = GAN(G, D, latent_dim=2)
    steps = {"generator": torch.optim.Adam(G.parameters(), 2e-2, betas=(0.5, 0.9)),
             "discriminator": torch.optim.Adam(D.parameters(), 2e-2, betas=(0.5, 0.9))}  # fmt: skip
    for _ in range(250):
        x = torch.randn(128, 2) @ A.T + b
        for player, step in steps.items():
            step.zero_grad()
            gan.losses(x, players=(player,))[player].backward()
            step.step()
    found = gan.sample(20_000)
    assert (found.mean(0) - b).abs().max() < 0.4
    assert (found.T.cov() - A @ A.T).abs().max() < 0.5


@pytest.mark.gpu
@pytest.mark.parametrize("objective", SIZES)
def test_on_a_gpu_as_on_the_cpu(objective):
    G, D = networks()
    x = torch.randn(6, 2).double()
    found = []
    for device in ("cpu", "cuda"):
        gan = GAN(G, D, latent_dim=3, objective=objective, constraint="gradient-penalty").to(device)
        source = torch.Generator().manual_seed(0)
        losses = gan.losses(x.to(device), generator=source)
        assert all(loss.device.type == device for loss in losses.values())
        found.append([loss.item() for loss in losses.values()])
        assert gan.sample(3).device.type == device
    assert found[0] == pytest.approx(found[1], rel=1e-10)
    nowhere = Listed(torch.full((2, 2), torch.nan, device="cuda"))
    gan = GAN(nowhere, nn.Linear(2, 1).cuda(), latent_dim=1)
    with pytest.raises(ValueError, match="generator's loss must be finite, got nan"):
        gan.losses(torch.ones(2, 2, device="cuda"), players=("generator",))
