"""Certificates cover: on problems whose risk is known they fail no more often than they may.

Each has a fault that it catches: a prior that saw the examples of the bound, the error of drawing
weights dropped, and all examples counted where those of the bound should be.
"""

import math
from collections.abc import Callable

import pytest
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from vademecum.generalization import (
    PacBayesCertificate,
    StochasticNetwork,
    kl_inverse,
    pac_bayes_certificate,
)
from vademecum.models import mlp

ALARM = 1e-6
KINDS = ("kl", "quadratic", "mcallester", "catoni")


def covers(
    certify: Callable[[torch.Generator], tuple[PacBayesCertificate, float]], resamples: int
) -> None:
    """Failures of each bound are no more than delta and delta_mc allow, by an exact test."""
    failures = dict.fromkeys(KINDS, 0)
    allowed = 0.0
    for i in range(resamples):
        found, risk = certify(torch.Generator().manual_seed(i))
        allowed = found.delta + found.delta_mc
        for kind in KINDS:
            failures[kind] += getattr(found.zero_one, kind) < risk
    for kind, count in failures.items():
        p = binomtest(count, resamples, allowed, alternative="greater").pvalue
        assert p >= ALARM, f"{kind} failed {count} of {resamples} times"


class Coin(nn.Module):
    """Says 1 where its only parameter is positive, whatever the input."""

    def __init__(self):
        super().__init__()
        self.side = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([torch.zeros(len(x)), self.side.expand(len(x))], 1)


def test_the_error_of_drawing_weights_is_inside():
    """Half of all draws err always and half never, and one pass makes one draw."""
    network = StochasticNetwork(Coin(), prior="init", prior_std=1.0)

    def certify(g: torch.Generator) -> tuple[PacBayesCertificate, float]:
        y = torch.ones(20, dtype=torch.long)
        found = pac_bayes_certificate(
            network, torch.zeros(20, 1), y, passes=1, delta=0.05, delta_mc=0.05, generator=g
        )
        assert found.draws == 1
        return found, 0.5

    covers(certify, 150)


class Table(nn.Module):
    """A score for each of D points, given as one-hot rows: the classes are its signs."""

    def __init__(self, D: int):
        super().__init__()
        self.layer = nn.Linear(D, 1, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        z = self.layer(x)
        return torch.cat([torch.zeros_like(z), z], 1)


def learnt(D: int, j: Tensor, y: Tensor, c: float) -> StochasticNetwork:
    """The posterior whose means are c times the sign of the sum of labels at each point."""
    table = Table(D)
    network = StochasticNetwork(table, prior="init", prior_std=1.0)
    votes = torch.zeros(D).index_add_(0, j, 2.0 * y - 1)
    with torch.no_grad():
        network.model.get_parameter("layer.weight").copy_(c * votes.sign()[None])
    return network


@pytest.mark.parametrize("resamples", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_certificates_cover_on_a_finite_input_space(resamples):
    """Six points whose labels are noisy: the risk of the posterior in closed form."""
    chance = torch.tensor([0.5, 0.6, 0.5, 0.3, 0.45, 0.5])
    D, n = len(chance), 12

    def certify(g: torch.Generator) -> tuple[PacBayesCertificate, float]:
        j = torch.randint(D, (n,), generator=g)
        y = (torch.rand(n, generator=g) < chance[j]).long()
        network = learnt(D, j, y, 1.5)
        found = pac_bayes_certificate(
            network, torch.eye(D)[j], y, passes=4, delta=0.1, delta_mc=0.1, generator=g
        )
        mean = network.model.get_parameter("layer.weight")[0].detach().double()
        one = torch.special.ndtr(mean)
        risk = chance.double() * (1 - one) + (1 - chance.double()) * one
        return found, risk.mean().item()

    covers(certify, resamples)


def test_examples_of_the_prior_do_not_count_for_the_bound():
    """Labels are coins, so that the risk is 1/2, and half of the examples are not of the bound."""
    D, n = 4000, 500

    def certify(g: torch.Generator) -> tuple[PacBayesCertificate, float]:
        j = torch.randperm(D, generator=g)[: 2 * n]  # distinct, so that memorising is cheap
        y = torch.randint(2, (2 * n,), generator=g)
        found = pac_bayes_certificate(
            learnt(D, j[n:], y[n:], 0.6), torch.eye(D)[j], y, prior_index=torch.arange(n),
            passes=30, delta=0.2, delta_mc=0.2, batch_size=n, generator=g,
        )  # fmt: skip
        assert len(found.bound_index) == n
        return found, 0.5

    covers(certify, 25)


def test_the_prior_does_not_see_the_examples_of_the_bound():
    """Labels are coins, and the network can learn them by heart."""

    def certify(g: torch.Generator) -> tuple[PacBayesCertificate, float]:
        x, y = torch.randn(120, 30, generator=g), torch.randint(2, (120,), generator=g)
        found = pac_bayes_certificate(
            mlp([30, 60, 2]), x, y, delta=0.1, delta_mc=0.1, prior_scales=[0.01], prior_epochs=20,
            posterior_epochs=2, prior_lr=0.02, batch_size=60, generator=g,
        )  # fmt: skip
        return found, 0.5

    covers(certify, 25)


def test_uneven_groups_of_draws_keep_the_bound_of_chernoff():
    """All outcomes of groups of 4, 4, 4 and 1 examples that err together, by enumeration."""
    sizes = torch.tensor([4.0, 4.0, 4.0, 1.0, 4.0, 1.0]).double()
    weights, delta = sizes / sizes.sum(), 0.1
    m = (1 / weights.max()).item()
    for p in (0.2, 0.5, 0.9):
        outcomes = torch.cartesian_prod(*[torch.tensor([0.0, 1.0]).double()] * len(sizes))
        chances = (outcomes * p + (1 - outcomes) * (1 - p)).prod(1)
        upper = kl_inverse((outcomes @ weights).clamp(0, 1), math.log(1 / delta) / m, side="upper")
        assert chances[upper < p].sum() <= delta
