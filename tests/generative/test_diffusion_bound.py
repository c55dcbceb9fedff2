"""The variational bound, term by term, against quadrature and closed forms."""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportReturnType=false

import math
import re

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.generative.exact_gaussians import exact
from vademecum.foundations import gaussian_kl
from vademecum.generative import DDPM, ConditionalMLP, MixtureScore, NoiseSchedule, diffusion_bound
from vademecum.generative.diffusion._reverse_laws import cell_log_probability

SCHEDULE = NoiseSchedule([0.1, 0.3, 0.2, 0.6])


def linear(x, t):
    """A predictor of noise that is wrong, and linear."""
    return 0.4 * x + 0.1


class Linear(nn.Module):
    """The same as a module."""

    def forward(self, x, t):
        return linear(x, t)


def _term(t: int, x0: float, sigma2: float) -> float:
    """E over x_t of the cost of step t, by quadrature with SciPy's normal laws."""
    betas = SCHEDULE.betas.numpy()
    bar = np.cumprod(1 - betas)
    beta = betas[t]

    def cost(xt: float) -> float:
        guess = (xt - math.sqrt(1 - bar[t]) * (0.4 * xt + 0.1)) / math.sqrt(bar[t])
        before = bar[t - 1]
        weights = (
            math.sqrt(before) * beta / (1 - bar[t]),
            math.sqrt(1 - beta) * (1 - before) / (1 - bar[t]),
        )
        mean = weights[0] * guess + weights[1] * xt
        if t == 1:
            return -stats.norm.logpdf(x0, mean, math.sqrt(sigma2))
        true, tilde = weights[0] * x0 + weights[1] * xt, (1 - before) / (1 - bar[t]) * beta
        one, two = torch.tensor([[true], [mean]]).double()
        spread = torch.tensor([[tilde], [sigma2]]).double()
        return float(gaussian_kl(one, spread[0], two, spread[1], diagonal=True))

    law = stats.norm(math.sqrt(bar[t]) * x0, math.sqrt(1 - bar[t]))
    ends = law.ppf(1e-13), law.ppf(1 - 1e-13)
    return integrate.quad(lambda xt: law.pdf(xt) * cost(xt), *ends)[0]


@pytest.mark.parametrize("variance", ["small", "large"])
def test_each_term_is_the_mean_of_its_integrand(variance):
    n, x0 = 20_000, 0.8
    x = torch.full((n, 1), x0, dtype=torch.float64)
    dice = torch.Generator().manual_seed(0)
    found = diffusion_bound(
        linear, x, schedule=SCHEDULE, variance=variance, generator=dice, batch=n
    )
    table = SCHEDULE.betas if variance == "large" else SCHEDULE.beta_tilde
    first = float(SCHEDULE.betas[1] if variance == "large" else SCHEDULE.beta_tilde[2])
    assert found.steps.shape == (n, 3)
    columns = [found.reconstruction, *found.steps.T]
    for t, column in enumerate(columns, 1):
        wanted = _term(t, x0, first if t == 1 else float(table[t]))
        error = 5 * float(column.std()) / math.sqrt(n)
        assert float(column.mean()) == pytest.approx(wanted, abs=error), t
    bar = SCHEDULE.alpha_bar[-1:]
    prior = gaussian_kl(
        bar.sqrt() * x0, 1 - bar, torch.zeros(1).double(), torch.ones(1).double(), diagonal=True
    )
    torch.testing.assert_close(found.prior, prior.expand(n))
    total = found.prior + found.steps.sum(1) + found.reconstruction
    torch.testing.assert_close(found.total, total)
    bits = total / math.log(2)
    assert found.bits_per_dim == pytest.approx(float(bits.mean()))
    assert found.standard_error == pytest.approx(float(bits.std()) / math.sqrt(n))


@pytest.mark.parametrize("predicts", ["noise", "x0", "v", "score"])
def test_the_exact_reversal_costs_the_entropy_and_the_end_of_the_diffusion(predicts):
    v0, d, n = 0.4, 3, 1500
    schedule, dice = (
        NoiseSchedule.linear(12, first=0.01, last=0.5),
        torch.Generator().manual_seed(1),
    )
    v = schedule.alpha_bar * v0 + schedule.beta_bar
    table = torch.cat([v[:1], schedule.betas[1:] * v[:-1] / v[1:]])
    model = MixtureScore(
        torch.ones(1), torch.zeros(1, d), torch.tensor([v0]), process=schedule, predicts=predicts
    )
    x = v0**0.5 * torch.randn(n, d, generator=dice)
    found = diffusion_bound(model, x, schedule=schedule, variance=table, generator=dice)
    last = float(v[-1])
    entropy = math.log(2 * math.pi * math.e * v0) / 2
    wanted = (entropy + (last - 1 - math.log(last)) / 2) / math.log(2)
    assert found.bits_per_dim == pytest.approx(wanted, abs=5 * found.standard_error)
    assert found.standard_error < 0.08


def test_the_bound_is_above_minus_the_log_likelihood():
    schedule, dice = NoiseSchedule.linear(30), torch.Generator().manual_seed(2)
    mixture = torch.tensor([0.4, 0.6]), torch.tensor([[-1.0], [1.0]]), torch.tensor([0.1, 0.2])
    model = MixtureScore(*mixture, process=schedule)
    x = model.sample(1500, generator=dice)
    found = diffusion_bound(model, x, schedule=schedule, variance="large", generator=dice)
    gap = found.total + model.log_prob(x).double()
    error = 5 * float(gap.std()) / math.sqrt(len(x))
    assert -error < float(gap.mean()) < 0.4


def test_cells_of_a_grid_have_the_probabilities_of_scipy_and_sum_to_one():
    for levels in (2, 3, 256):
        grid = torch.linspace(-1, 1, levels, dtype=torch.float64)
        for mean, std in ((0.3, 0.2), (-0.99, 0.01), (5.0, 0.1), (-40.0, 1.0)):
            law = torch.tensor([mean, std], dtype=torch.float64)
            found = cell_log_probability(grid, *law, levels)
            assert float(found.exp().sum()) == pytest.approx(1, abs=1e-12)
            half = 1 / (levels - 1)
            above = np.where(grid > 1 - half, np.inf, grid + half)
            below = np.where(grid < -1 + half, -np.inf, grid - half)
            wanted = stats.norm.cdf(above, mean, std) - stats.norm.cdf(below, mean, std)
            np.testing.assert_allclose(found.exp(), wanted, atol=1e-13)
            assert bool((found > -math.inf).all())


def test_levels_turn_the_density_into_probabilities():
    levels, n = 16, 2000
    schedule, dice = NoiseSchedule.linear(40), torch.Generator().manual_seed(3)
    x = torch.randint(levels, (n, 2), generator=dice) * 2.0 / (levels - 1) - 1
    model = exact(schedule, 0.4)
    found = diffusion_bound(model, x, schedule=schedule, variance="large", levels=levels,
                            generator=dice, batch=n)  # fmt: skip
    assert found.bits_per_dim > 4 - 5 * found.standard_error  # the entropy of 16 levels
    smooth = diffusion_bound(model, x, schedule=schedule, variance="large", generator=dice, batch=n)
    assert smooth.bits_per_dim == pytest.approx(found.bits_per_dim + math.log2(2 / 15), abs=0.3)


def test_a_learned_variance_costs_what_the_fixed_one_costs():
    schedule = NoiseSchedule.linear(30)
    inner, x = exact(schedule, 0.3), torch.randn(20, 2)

    def model(x, t):
        return torch.cat([inner(x, t), torch.ones_like(x)], 1)

    dice = [torch.Generator().manual_seed(4) for _ in range(2)]
    one = diffusion_bound(model, x, schedule=schedule, variance="learned", generator=dice[0])
    two = diffusion_bound(inner, x, schedule=schedule, variance="large", generator=dice[1])
    torch.testing.assert_close(one.total, two.total, rtol=1e-5, atol=1e-5)


def test_batches_contexts_modes_and_global_random_numbers():
    schedule = NoiseSchedule.linear(30)
    net = ConditionalMLP(2, hidden=(8,), classes=3, horizon=30)
    model, x, labels = DDPM(net, (2,), schedule=schedule), torch.randn(10, 2), torch.arange(10) % 3
    state = torch.get_rng_state()
    found = model.bound(x, labels)
    assert state.equal(torch.get_rng_state())
    assert model.training
    assert found.total.shape == (10,)
    assert not found.total.requires_grad
    assert not torch.equal(found.total, model.bound(x).total)
    wide = exact(schedule, 1.0)
    one = diffusion_bound(wide, x, schedule=schedule, batch=3)
    assert one.steps.shape == (10, 29)


def test_a_loader_brings_examples_and_what_is_told_of_them():
    schedule = NoiseSchedule.linear(25)
    net = ConditionalMLP(2, hidden=(8,), classes=3, horizon=25)
    x, labels = torch.randn(10, 2), torch.arange(10) % 3
    loader = DataLoader(TensorDataset(x, labels), batch_size=4)
    for told, context in (("targets", labels), (None, None)):
        dice = [torch.Generator().manual_seed(3) for _ in range(2)]
        one = diffusion_bound(net, loader, told, schedule=schedule, generator=dice[0])
        two = diffusion_bound(net, x, context, schedule=schedule, generator=dice[1], batch=4)
        for found, wanted in zip(one[:4], two[:4], strict=True):
            torch.testing.assert_close(found, wanted)
        assert one.bits_per_dim == pytest.approx(two.bits_per_dim)
        assert one.standard_error == pytest.approx(two.standard_error)
    state = torch.get_rng_state()
    alone = diffusion_bound(net, DataLoader(x, batch_size=4, shuffle=True), schedule=schedule)
    assert state.equal(torch.get_rng_state())
    assert alone.total.shape == (10,)
    assert net.training
    model = DDPM(net, (2,), schedule=schedule)
    assert model.bound(loader, "targets").total.shape == (10,)


def test_the_prior_term_of_several_entries_and_levels_by_a_model():
    x = torch.tensor([[-1.0, 1 / 3, 1.0], [1 / 3, 1 / 3, -1 / 3]], dtype=torch.float64)
    model = DDPM(Linear(), (3,), schedule=SCHEDULE, variance="large")
    dice = [torch.Generator().manual_seed(6) for _ in range(2)]
    found = model.bound(x, levels=4, generator=dice[0])
    bar = SCHEDULE.alpha_bar[-1]
    spread, zero = (1 - bar).expand(3), torch.zeros(3).double()
    prior = gaussian_kl(bar.sqrt() * x, spread, zero, zero + 1, diagonal=True)
    torch.testing.assert_close(found.prior, prior)
    wanted = diffusion_bound(
        linear, x, schedule=SCHEDULE, variance="large", levels=4, generator=dice[1]
    )
    torch.testing.assert_close(found.total, wanted.total)
    assert found.bits_per_dim == pytest.approx(float(found.total.mean()) / 3 / math.log(2))


def test_contexts_of_each_portion_are_its_own():
    schedule, labels = NoiseSchedule.linear(25), torch.arange(10)
    x, seen = torch.randn(10, 1), []

    def model(x, t, context):
        seen.append(context)
        return 0 * x

    diffusion_bound(model, x, labels, schedule=schedule, batch=4)
    assert torch.cat(seen[::25]).equal(labels)
    for wrong, given in ((torch.arange(12), "12"), ("targets", "'targets'")):
        with pytest.raises(ValueError, match=f"context must have 10 rows.* got {given}"):
            diffusion_bound(model, x, wrong, schedule=schedule, batch=4)
    with pytest.raises(ValueError, match='context must be None or "targets" where x is a Data'):
        diffusion_bound(model, DataLoader(x), labels, schedule=schedule)
    with pytest.raises(ValueError, match="x must lie on 4 levels"):
        diffusion_bound(model, DataLoader(x), "targets", schedule=schedule, levels=4)


REFUSED = {
    "x must lie on 256 levels from -1 to 1, got values from 0 to 0.3": (
        torch.tensor([[0.0], [0.3]]), {"levels": 256},
    ),
    "x must lie on 4 levels": (torch.tensor([[2.0], [0.0]]), {"levels": 4}),
    "x must lie on 4 levels from -1 to 1, got values from -1 to 1.66667": (
        torch.tensor([[5 / 3], [-1.0]]), {"levels": 4},
    ),
    "levels must be >= 2": (torch.zeros(2, 1), {"levels": 1}),
    "x must be finite": (torch.tensor([[math.nan]]), {}),
    "x must be (n, *shape)": (torch.zeros(3), {}),
    "x must be floating point": (torch.zeros(3, 1).long(), {}),
    "variance must be > 0 for t from 1 on": (torch.zeros(2, 1), {"variance": torch.zeros(5)}),
    "batch must be >= 1": (torch.zeros(2, 1), {"batch": 0}),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message, unchecked):
    x, knobs = REFUSED[message]
    with pytest.raises(ValueError, match=re.escape(message)):
        diffusion_bound(linear, x, schedule=SCHEDULE, **knobs)
