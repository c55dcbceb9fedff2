"""The constant of a Boltzmann machine, exact and annealed, against sums over all states."""

import math

import numpy as np
import pytest
import torch

from tests.generative.binary_machines import bits, drawn, table
from vademecum.generative import LogPartition, RestrictedBoltzmannMachine
from vademecum.generative.boltzmann._draws import annealed_draws
from vademecum.generative.boltzmann._enumeration import log_weights
from vademecum.generative.boltzmann._units import Units
from vademecum.generative.boltzmann.partition import Annealed, annealed, annealed_partition


@pytest.mark.parametrize(
    ("m", "d", "scale"),
    [(7, 11, 0.01), (7, 11, 1.0), (7, 11, 30.0), (7, 11, 400.0), (300, 5, 3.0)],
)
def test_weights_of_any_size(m, d, scale):
    """Products of all factors, of some lest they overflow, and logarithms one by one."""
    units = Units(*drawn(m, d, scale))
    found = log_weights(units).sort().values
    u = bits(d) @ units.weights.T + units.hidden
    wanted = (torch.logaddexp(u, 0 * u).sum(1) + bits(d) @ units.visible).sort().values
    torch.testing.assert_close(units.log_weight(bits(d)).sort().values, wanted, rtol=1e-13, atol=0)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-10)
    assert math.isfinite(float(found.logsumexp(0)))


def test_twenty_units_and_single_precision():
    W, a, b = (0.2 * part for part in drawn(60, 20))
    exact = RestrictedBoltzmannMachine.from_parameters(W, a, b).log_partition()
    other = RestrictedBoltzmannMachine.from_parameters(W.T, b, a).log_partition()
    assert exact.value == pytest.approx(other.value, rel=1e-12)
    single = RestrictedBoltzmannMachine.from_parameters(W.float(), a.float(), b.float())
    assert single.log_partition().value == pytest.approx(exact.value, rel=1e-6)
    assert single.score_samples(torch.ones(2, 20)).dtype == torch.float32


def test_annealed_weights_are_unbiased():
    """The mean weight is Z, exactly, for any number of temperatures: also for few."""
    parts = drawn(3, 4, 0.7)
    exact = float(table(*parts).sum())
    for temperatures in (1, 3, 10):
        run = annealed(
            Units(*parts),
            torch.tensor([0.5, -0.3, 0.0, 1.0]).double(),
            chains=100_000,
            temperatures=temperatures,
            generator=torch.Generator().manual_seed(1),
        )
        w = run.log_weights.exp()
        assert float(w.mean()) == pytest.approx(exact, abs=5 * float(w.std()) / 100_000**0.5)


def test_the_error_bar_of_annealing():
    """Over a hundred repetitions the errors have the size that each of them says."""
    parts = drawn(5, 6, 0.8)
    exact = float(table(*parts).sum().log())
    units, generator = Units(*parts), torch.Generator().manual_seed(0)
    scores = []
    for _ in range(100):
        run = annealed(
            units, torch.zeros(6).double(), chains=200, temperatures=20, generator=generator
        )
        found = annealed_partition(run)
        assert not found.exact
        assert found.effective > 100
        scores.append((found.value - exact) / found.error)
    spread = np.std(scores)
    assert 0.75 < spread < 1.35  # a standard deviation of 100 scores, known to 7 %
    assert abs(np.mean(scores)) < 0.6


def test_annealing_ends_in_the_law():
    parts = drawn(4, 3)
    joint = table(*parts)
    marginal = (joint.sum(1) / joint.sum()).numpy()
    run = annealed(
        Units(*parts), torch.zeros(3).double(), chains=20_000, temperatures=50,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    index = (run.v @ torch.tensor([4.0, 2.0, 1.0]).double()).long()
    shares = torch.bincount(index, minlength=8).numpy() / 20_000
    assert np.abs(shares - marginal).max() < 0.015  # the rest of the bias, and 4 of 0.0035


def test_few_chains_that_count_are_said():
    logs = torch.zeros(50).double()
    logs[0] = 30.0
    with pytest.warns(RuntimeWarning, match=r"only 1 of 50 annealed chains count: the error .* 1"):
        found = annealed_partition(Annealed(torch.zeros(50, 2), logs))
    assert found.effective == pytest.approx(1.0)
    assert found.value == pytest.approx(30 - math.log(50))
    assert isinstance(found, LogPartition)


def test_beyond_twenty_units_there_is_an_error():
    W, a, b = (0.1 * part for part in drawn(24, 22))
    W[20:] = 0.0
    W[:, 15:] = 0.0  # so the truth is known: 15 x 20 units, and others on their own
    machine = RestrictedBoltzmannMachine.from_parameters(W, a, b)
    inner = RestrictedBoltzmannMachine.from_parameters(W[:20, :15], a[:15], b[:20]).log_partition()
    exact = inner.value + float(torch.nn.functional.softplus(torch.cat([a[15:], b[20:]])).sum())
    found = machine.log_partition(n_chains=200, n_temperatures=100)
    assert not found.exact
    assert abs(found.value - exact) < 5 * found.error < 0.1
    assert found == machine.log_partition(n_chains=200, n_temperatures=100)
    other = machine.log_partition(n_chains=200, n_temperatures=100, random_state=3)
    assert other.value != found.value
    x = torch.zeros(1, 22).double()
    machine._partition = found
    lone = float(machine.score_samples(x) + machine.free_energy(x))
    assert lone == pytest.approx(-exact, abs=0.1)
    assert float(machine.score_samples(x)) == float(machine.score_samples(x))
    x = machine.sample(400, random_state=0)
    assert x.shape == (400, 22)
    shares = torch.sigmoid(a[15:])
    assert (
        x[:, 15:].mean(0) - shares
    ).abs().max() < 5 * 0.5 / 300**0.5  # a quarter are repetitions


def test_annealed_ends_are_drawn_by_their_weights():
    run = Annealed(
        torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0.0, math.log(3)]).double()
    )
    drawn = annealed_draws(run, 8000, torch.Generator().manual_seed(0))
    assert abs(float(drawn[:, 0].mean()) - 0.75) < 5 * math.sqrt(3 / 16 / 8000)
