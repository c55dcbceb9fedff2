"""Rows of the room `generative`: steps of a game against plain torch, transport against SciPy.

A step of both players is one of the discriminator and one of the generator, gradients included. By
hand it is written as tutorials do: the generated batch is detached for the discriminator, and the
generator's loss is sent back through the whole of it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from bench.harness import Row
from vademecum.generative import GAN, mode_coverage, wasserstein_1
from vademecum.models import mlp

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row]:
    for d, width, n in ((784, 512, 128), (2, 64, 256)):
        yield _steps(device, d, width, n, penalised=False)
        yield _steps(device, d, width, n, penalised=True)
    if device.type == "cpu":
        yield from _transport()
    yield _coverage(device)


def _players(device: torch.device, d: int, width: int) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    G = mlp([64, width, width, d], device=device)
    return G, mlp([d, width, width, 1], lambda: nn.LeakyReLU(0.2), device=device)


def _steps(device: torch.device, d: int, width: int, n: int, *, penalised: bool) -> Row:
    x = torch.randn(n, d, device=device)
    kind = "WGAN-GP" if penalised else "GAN"
    mine = _players(device, d, width)
    games: dict[bool, Any] = {False: {"objective": "saturating"}}
    games[True] = {"objective": "wasserstein", "constraint": "gradient-penalty"}
    gan = GAN(*mine, latent_dim=64, **games[penalised])
    step: Callable[..., Any] = _penalised_by_hand if penalised else _by_hand
    return Row(
        f"{kind} step, {d} features, width {width}, batch {n}",
        _Taken(partial(_ours, gan=gan, x=x), mine),
        {"torch by hand": _Taken(partial(step, x=x), _players(device, d, width))},
        _same_move,
    )


class _Taken:
    """A step that is taken again and again; the first call tells where it leads."""

    def __init__(self, step: Callable[..., None], players: tuple[nn.Module, nn.Module]):
        self.step, self.players, self.fresh = step, players, True
        self.descents = [torch.optim.SGD(net.parameters(), 1e-3) for net in players]

    def __call__(self) -> list[Tensor] | None:
        torch.manual_seed(1)
        self.step(self.players, self.descents)
        if not self.fresh:
            return None
        self.fresh = False
        return [p.detach().clone() for net in self.players for p in net.parameters()]


def _ours(players: Any, descents: Any, *, gan: GAN, x: Tensor) -> None:
    for player, descent in (("discriminator", descents[1]), ("generator", descents[0])):
        descent.zero_grad()
        gan.losses(x, players=(player,))[player].backward()
        descent.step()


def _by_hand(players: Any, descents: Any, *, x: Tensor) -> None:
    (G, D), (down_G, down_D) = players, descents
    real, fake = x.new_ones(len(x), 1), x.new_zeros(len(x), 1)
    generated = G(torch.randn(len(x), 64, device=x.device))
    down_D.zero_grad()
    (cross_entropy(D(x), real) + cross_entropy(D(generated.detach()), fake)).backward()
    down_D.step()
    generated = G(torch.randn(len(x), 64, device=x.device))
    down_G.zero_grad()
    (-cross_entropy(D(generated), fake)).backward()
    down_G.step()


def _penalised_by_hand(players: Any, descents: Any, *, x: Tensor) -> None:
    (G, D), (down_G, down_D) = players, descents
    generated = G(torch.randn(len(x), 64, device=x.device)).detach()
    down_D.zero_grad()
    alpha = torch.rand(len(x), device=x.device)[:, None]
    between = (alpha * x + (1 - alpha) * generated).requires_grad_()
    out = D(between)
    (slope,) = torch.autograd.grad(out, between, torch.ones_like(out), create_graph=True)
    penalty = (slope.norm(2, dim=1) - 1).square().mean()
    (D(generated).mean() - D(x).mean() + 10 * penalty).backward()
    down_D.step()
    down_G.zero_grad()
    (-D(G(torch.randn(len(x), 64, device=x.device))).mean()).backward()
    down_G.step()


def _same_move(mine: list[Tensor], other: list[Tensor]) -> None:
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def _transport() -> Iterator[Row]:
    g = torch.Generator().manual_seed(0)
    for n, m in ((1_000_000, 1_000_000), (300_000, 200_000)):
        x, y = (torch.randn(k, generator=g, dtype=torch.float64) for k in (n, m))
        yield Row(
            f"Wasserstein-1 on a line, {n:,} and {m:,} points",
            partial(_distance, x, y),
            {"SciPy": partial(wasserstein_distance, x.numpy(), y.numpy())},
            _same_number,
        )
    x, y = torch.randn(2, 2000, 8, generator=g, dtype=torch.float64)
    yield Row(
        "Wasserstein-1, 2,000 points in 8 dimensions",
        partial(_distance, x, y),
        {"SciPy, cdist and assignment": partial(_assigned, x.numpy(), y.numpy())},
        _same_number,
    )


def _distance(x: Tensor, y: Tensor) -> float:
    return float(wasserstein_1(x, y).distance)


def _assigned(x: np.ndarray, y: np.ndarray) -> float:
    cost = cdist(x, y)
    return float(cost[linear_sum_assignment(cost)].mean())


def _same_number(mine: float, other: float) -> None:
    assert abs(mine - other) <= 1e-9 * other


def _coverage(device: torch.device) -> Row:
    g = torch.Generator().manual_seed(0)
    x, means = torch.randn(100_000, 2, generator=g), torch.randn(25, 2, generator=g)
    x, means, variances = (t.to(device) for t in (x, means, torch.full((25,), 0.01)))
    return Row(
        "modes covered, 100,000 samples, 25 modes",
        lambda: mode_coverage(x, means, variances).counts,
        {"torch, cdist": partial(_counted, x, means)},
        lambda mine, other: torch.testing.assert_close(mine, other, atol=2, rtol=0),
    )


def _counted(x: Tensor, means: Tensor) -> Tensor:
    least, mode = torch.cdist(x, means).min(1)
    return torch.bincount(mode[least <= 0.3], minlength=len(means))
