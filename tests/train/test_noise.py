"""Random numbers of examples: the same in every batch, and as random as they should be."""

import pytest
import torch
from scipy import stats

from vademecum.train import example_noise


def splitmix64(x: int) -> int:
    """The finaliser in Python's own integers."""
    mask = 2**64 - 1
    x &= mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def test_the_hash_is_splitmix64():
    from vademecum.train.noise import _mixed

    for x in (0, 1, 12345678901234567, -1, -(2**63), 2**63 - 1):
        assert int(_mixed(torch.tensor(x))) % 2**64 == splitmix64(x)


def test_numbers_are_the_hashes_of_the_formula():
    from vademecum.train._order import seed_for

    golden = 0x9E3779B97F4A7C15
    noise = example_noise(5, 2, torch.tensor([11, 4]))
    for call in (0, 1):
        found = noise.uniform(3)
        for row, i in enumerate((11, 4)):
            base = splitmix64(seed_for(5, 2, "noise", call) + i * golden)
            words = [splitmix64(base + j * golden) for j in (1, 2, 3)]
            assert found[row].tolist() == [(word >> 40) / 2**24 for word in words]


@pytest.mark.parametrize("draw", ["uniform", "normal"])
def test_an_example_has_its_numbers_in_whatever_batch_it_is(draw):
    examples = torch.tensor([11, 4, 900_000_000_000, 7])
    whole = getattr(example_noise(5, 2, examples), draw)(3, 2)
    assert whole.shape == (4, 3, 2)
    for i, example in enumerate(examples):
        alone = getattr(example_noise(5, 2, example.view(1)), draw)(3, 2)
        assert alone[0].equal(whole[i])
    turned = getattr(example_noise(5, 2, examples.flip(0)), draw)(3, 2)
    assert turned.flip(0).equal(whole)


def test_seed_epoch_example_call_and_entry_all_matter():
    def first(seed=0, epoch=0, example=0, calls=0, entry=0):
        noise = example_noise(seed, epoch, torch.tensor([example]))
        for _ in range(calls):
            noise.uniform()
        return float(noise.uniform(2)[0, entry])

    changes = ({}, {"seed": 1}, {"epoch": 1}, {"example": 1}, {"calls": 1}, {"entry": 1})
    assert len({first(**change) for change in changes}) == len(changes)


def test_laws():
    noise = example_noise(0, 0, torch.arange(20_000))
    u, z = noise.uniform(2), noise.normal(2)
    assert 0 <= float(u.min()) < float(u.max()) < 1
    for column in (0, 1):  # fixed numbers: no test that fails now and then
        assert stats.kstest(u[:, column].numpy(), "uniform").pvalue > 1e-3
        assert stats.kstest(z[:, column].numpy(), "norm").pvalue > 1e-3
    assert abs(float(torch.corrcoef(u.T)[0, 1])) < 5 / 20_000**0.5
    neighbours = torch.stack((u[:-1, 0], u[1:, 0]))  # of one example and the next
    assert abs(float(torch.corrcoef(neighbours)[0, 1])) < 5 / 20_000**0.5


def test_integers_are_equally_likely():
    drawn = example_noise(0, 0, torch.arange(30_000)).integers(7)
    counts = torch.bincount(drawn, minlength=7)
    assert len(counts) == 7
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_errors():
    with pytest.raises(ValueError, match="high must be >= 1, got 0"):
        example_noise(0, 0, torch.arange(2)).integers(0)
    with pytest.raises(ValueError, match="epoch must be >= 0, got -1"):
        example_noise(0, -1, torch.arange(2))
