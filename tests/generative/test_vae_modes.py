"""Variational autoencoders in training and evaluation mode, copied, saved, and their codes."""

import math
import warnings
from copy import deepcopy
from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.distributions import Normal
from torch.utils.data import DataLoader

from tests.generative.linear_gaussian import drawn
from vademecum.generative import VAE, ActiveUnits
from vademecum.generative._importance_weights import RunningMean, log_evidence
from vademecum.models import mlp


def test_active_units_are_those_whose_means_vary():
    vae: Any = VAE(nn.Linear(3, 6), nn.Linear(3, 3))
    x = torch.randn(50, 3)
    with torch.no_grad():
        vae.encoder.weight[1] = 0
        vae.encoder.weight[2] = torch.tensor([0.05, 0.0, 0.0])
    found = vae.active_units(x)
    wanted = vae.encoder(x)[:, :3].var(0).detach()
    torch.testing.assert_close(found.variance, wanted)
    assert found.active.tolist() == [True, False, False]
    assert found.number == 1
    assert vae.active_units(x, threshold=1e-4).active.tolist() == [True, False, True]
    rows: Any = [(row, 0) for row in x]
    loader = DataLoader(rows, batch_size=7)
    torch.testing.assert_close(vae.active_units(loader).variance, wanted)
    assert isinstance(found, ActiveUnits)
    with torch.no_grad():
        vae.encoder.bias[0] = math.nan
    with pytest.raises(ValueError, match="encoder must return finite means of all codes, got NaN"):
        vae.active_units(x)
    with pytest.raises(ValueError, match="x must have 2 examples or more, got 1"):
        vae.active_units(x[:1])
    with pytest.raises(ValueError, match="context must be None where x is a DataLoader"):
        vae.active_units(loader, x)


def test_far_weights_of_single_precision_are_averaged_in_double():
    mean = RunningMean(1)
    mean.add(torch.full((7, 1), -12345.678))
    mean.add(torch.full((4, 1), -12345.678))
    torch.testing.assert_close(mean.effective(), torch.tensor([11.0]).double(), rtol=1e-9, atol=0)


def test_the_standard_error_of_few_weights_is_that_of_their_mean():
    """Weights 1, 1 and 4: a mean of 2 with the error 1, which is a half of it."""
    mean = RunningMean(1)
    mean.add(torch.tensor([[1.0], [1.0], [4.0]]).log())
    assert float(mean.standard_error()) == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("weights", "warned"),
    [
        ([1.0, 1.0, 1.0, 0.2], False),  # worth 3.4 of 4 draws: more than half of them
        ([1.0, 0.2, 0.0, 0.0], True),  # worth 1.4
        ([1.0] * 6 + [0.0] * 94, False),  # worth 6 of a hundred
        ([1.0] * 4 + [0.0] * 96, True),
    ],
)
def test_draws_are_few_below_five_or_half_of_all(weights, warned):
    def begin(here):
        return lambda draws: torch.tensor(weights).log()[:, None]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = log_evidence(begin, 1, len(weights), rows=len(weights), progress=False)
    wanted = sum(weights) ** 2 / sum(w * w for w in weights)
    assert float(found.effective) == pytest.approx(wanted, rel=1e-6)
    assert [w.category for w in caught] == [ConvergenceWarning] * warned


def test_few_effective_draws_give_a_warning():
    vae = drawn(4, 3, sigma=0.05).vae(mean=torch.zeros(3, 4).double(), log_variance=torch.zeros(3))
    with pytest.warns(ConvergenceWarning, match="100 draws are worth .* far from the posterior"):
        vae.log_prob(3 + torch.randn(2, 4).double(), k=100)


def with_memory(d: int, m: int) -> VAE:
    """Modules whose outputs depend on the mode: batch normalisation and dropout."""
    encoder = nn.Sequential(
        nn.Linear(d, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2 * m)
    )
    decoder = nn.Sequential(nn.Linear(m, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, d))
    return VAE(encoder, decoder, noise=0.7, latent=m)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_is_measured_is_measured_in_evaluation_mode():
    vae, x = with_memory(4, 2), torch.randn(9, 4)
    vae.loss(x)  # moves the running statistics, as training does
    next(vae.encoder.children()).eval()
    before = {name: t.clone() for name, t in vae.state_dict().items()}
    modes = [module.training for module in vae.modules()]

    def measured() -> list:
        g = torch.Generator().manual_seed(0)
        return [*vae.log_prob(x, k=40, generator=g), vae.sample(5, generator=g),
                vae.active_units(x).variance]  # fmt: skip

    here = measured()
    assert [module.training for module in vae.modules()] == modes
    assert all(torch.equal(t, before[name]) for name, t in vae.state_dict().items())
    vae.eval()
    assert all(torch.equal(a, b) for a, b in zip(here, measured(), strict=True))


def test_draws_of_one_example_do_not_depend_on_the_others():
    """In evaluation mode, so that a batch may be cut anywhere."""
    vae, x = with_memory(4, 2).eval(), torch.randn(6, 4)
    torch.manual_seed(0)
    bounds = vae.iwae_bound(x, 3, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(3, 6, 2, generator=torch.Generator().manual_seed(0))
    mean, log_variance = vae.encoder(x).chunk(2, 1)
    for i in range(6):
        std = (log_variance[i] / 2).exp()
        z = mean[i] + std * noise[:, i]
        joint = Normal(vae.decoder(z), 0.7).log_prob(x[i]).sum(1) + Normal(0.0, 1.0).log_prob(
            z
        ).sum(1)
        own = joint - Normal(mean[i], std).log_prob(z).sum(1)
        torch.testing.assert_close(bounds[i], own.logsumexp(0) - math.log(3))


def test_a_copy_and_a_saved_state_give_the_same_numbers():
    vae: Any = VAE(mlp([4, 6, 4]), mlp([2, 6, 4]), noise="learned")
    x = torch.randn(5, 4)
    vae.loss(x).backward()
    with torch.no_grad():
        vae.law.log_variance.fill_(-0.4)
    other = VAE(mlp([4, 6, 4]), mlp([2, 6, 4]), noise="learned")
    other.load_state_dict(vae.state_dict())
    wanted = vae.loss(x, generator=torch.Generator().manual_seed(0))
    for same in (other, deepcopy(vae)):
        assert torch.equal(same.loss(x, generator=torch.Generator().manual_seed(0)), wanted)
        assert same.sample(2).shape == (2, 4)
