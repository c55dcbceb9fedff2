"""Integer noise: thresholds against many digits, draws against the thresholds and the law."""

import itertools
from bisect import bisect_right
from math import ceil

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from vademecum.robustness.smoothing._rounded_normal import RoundedNormal, thresholds

SCALES = [0.05, 0.31, 1.0, 5.0, 63.75]


@pytest.mark.parametrize("scale", SCALES)
def test_thresholds_are_those_of_many_digits(scale):
    found = thresholds(scale)
    m = len(found) // 2
    with mpmath.workdps(60):
        for k, t in zip(range(-m, m), found, strict=True):
            assert t == int(mpmath.nint(2**63 * mpmath.ncdf((k + mpmath.mpf(1) / 2) / scale)))
        beyond = mpmath.ncdf(-(m + mpmath.mpf(1) / 2) / scale)
        assert 2 * beyond < mpmath.mpf(2) ** -63


@pytest.mark.parametrize("scale", SCALES)
def test_the_total_variation_is_bounded(scale):
    """The exact one, and a bound that is not much larger."""
    law, limits = RoundedNormal(scale), [0, *thresholds(scale), 2**63]
    with mpmath.workdps(60):
        ends = [(k + mpmath.mpf(1) / 2) / scale for k in range(-law.reach - 1, law.reach + 1)]
        ours = [(b - a) / mpmath.mpf(2**63) for a, b in itertools.pairwise(limits)]
        true = [mpmath.ncdf(b) - mpmath.ncdf(a) for a, b in itertools.pairwise(ends)]
        gaps = sum(abs(p - q) for p, q in zip(ours, true, strict=True))
        exact = (gaps + 2 * mpmath.ncdf(ends[0])) / 2
    assert len(ours) == 2 * law.reach + 1
    assert exact <= law.total_variation <= (law.reach + 2) * 2.0**-63


def test_draws_are_what_the_thresholds_say_of_63_bits(monkeypatch):
    """Fair bits that begin with given ones: at thresholds, just below them, anywhere."""
    limits = thresholds(5.0)
    law = RoundedNormal(5.0)
    anywhere = [int(u) for u in torch.randint(2**62, (200,))]
    wanted = [*limits, *(t - 1 for t in limits), *anywhere, 0, 2**63 - 1]
    first = torch.tensor([u >> 47 for u in wanted]) - 2**15
    seen = []

    def bits(self, count, generator, low, high):
        if high is None:
            words = torch.zeros(4 * count, dtype=torch.int16)
            words[: len(wanted)] = first.to(torch.int16)
            return words.view(torch.int64)
        assert (low, high) == (0, 2**47)
        cells = [u for u in wanted if law._cells[u >> 47].isnan()]
        seen.append(len(cells))
        return torch.tensor([u & (2**47 - 1) for u in cells])

    monkeypatch.setattr(RoundedNormal, "_bits", bits)
    found = law.draw(len(wanted), None).long().tolist()
    assert found == [bisect_right(limits, u) - law.reach for u in wanted]
    assert seen[0] >= len(limits)  # every threshold lies in a cell that is searched


@pytest.mark.parametrize("scale", [0.31, 3.0, 63.75])
def test_draws_follow_the_law(scale):
    law = RoundedNormal(scale).to(torch.float32, torch.device("cpu"))
    draws = law.draw(200_001, torch.Generator().manual_seed(3))
    assert draws.dtype == torch.float32
    assert len(draws) == 200_001
    assert draws.equal(draws.round())
    reach = ceil(2.5 * scale)
    inner = torch.arange(-reach, reach).numpy()
    mass = np.diff(stats.norm.cdf([-np.inf, *(inner + 0.5) / scale, np.inf]))
    counts = np.bincount(np.searchsorted(inner, draws.long().numpy()), minlength=len(mass))
    assert stats.chisquare(counts, mass * len(draws)).pvalue > 1e-6


def test_neighbouring_draws_are_independent():
    """Four share a word of 64 bits."""
    draws = RoundedNormal(1.0).draw(400_000, torch.Generator().manual_seed(0)).view(-1, 4)
    for i in range(4):
        for j in range(i):
            assert abs(float(torch.corrcoef(draws[:, [i, j]].T)[0, 1])) < 5 / 100_000**0.5


def test_the_same_bits_give_the_same_draws_in_any_dtype():
    one, other = (
        RoundedNormal(2.0).to(kind, torch.device("cpu")).draw(999, torch.Generator().manual_seed(1))
        for kind in (torch.float32, torch.float64)
    )
    assert one.double().equal(other)


@pytest.mark.parametrize("scale", [0.0, -1.0, 4097.0, float("nan")])
def test_scales_that_are_refused(scale):
    with pytest.raises(ValueError, match="sigma / quantum must be > 0 and <= 4096"):
        thresholds(scale)
