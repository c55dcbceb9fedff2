"""Monte Carlo dropout over the batches of a `DataLoader`."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vademecum.regularization import mc_dropout


def test_batches_of_a_loader_follow_each_other():
    torch.manual_seed(5)
    x = torch.randn(7, 6)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    loader = DataLoader(TensorDataset(x, torch.zeros(7)), batch_size=3)
    dice = [torch.Generator().manual_seed(1) for _ in range(2)]
    found, again = (mc_dropout(model, loader, samples=4000, generator=g) for g in dice)
    wanted = mc_dropout(model, x, samples=4000)
    assert found.draws.shape == wanted.draws.shape
    assert found.draws.equal(again.draws)
    error = 6 * (found.standard_error**2 + wanted.standard_error**2).sqrt()
    assert bool(((found.mean - wanted.mean).abs() < error).all())
    for name in ("variance", "probabilities", "entropy", "mutual_information"):
        one, other = getattr(found, name), getattr(wanted, name)
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=0.25, atol=0.02)
    torch.testing.assert_close(found.mean, found.draws.mean(0))


def test_batches_have_masks_of_their_own():
    loader = DataLoader(torch.ones(4, 50), batch_size=2)  # pyright: ignore
    state = torch.get_rng_state()
    found = mc_dropout(nn.Dropout(0.5), loader, samples=20, link="identity")
    assert not found.draws[:, :2].equal(found.draws[:, 2:])
    assert found.probabilities is None
    assert state.equal(torch.get_rng_state())


def test_an_empty_loader_is_refused():
    with pytest.raises(ValueError, match="x must hold batches, got an empty DataLoader"):
        mc_dropout(nn.Dropout(0.5), DataLoader(TensorDataset(torch.zeros(0, 2))))
