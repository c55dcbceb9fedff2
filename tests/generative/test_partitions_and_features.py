"""Chinese restaurants and Indian buffets against sums over all partitions, and by hand."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import beta as beta_law
from scipy.stats import chisquare, poisson

from vademecum.generative import crp_log_prob, sample_crp, sample_ibp


def partitions(n):
    """All partitions, as labels in the order in which they appear."""
    found = [[0]]
    for _ in range(n - 1):
        found = [[*p, t] for p in found for t in range(max(p) + 2)]
    return torch.tensor(found)


def seated(labels, alpha):
    """The probability by one customer after the other, in fractions."""
    p, sizes = Fraction(1), {}
    for i, table in enumerate(labels):
        p *= sizes.get(table, alpha) / (alpha + i)
        sizes[table] = sizes.get(table, 0) + 1
    return p


@pytest.mark.parametrize("alpha", [Fraction(5, 2), Fraction(1, 3)])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_crp_log_prob_of_all_partitions(n, alpha):
    labels = partitions(n)
    exact = [seated(row, alpha) for row in labels.tolist()]
    assert sum(exact) == 1
    found = crp_log_prob(labels, float(alpha))
    np.testing.assert_allclose(found.exp(), [float(p) for p in exact], rtol=1e-12)
    assert found.dtype == torch.float64
    one = crp_log_prob(labels[-1], float(alpha))
    assert one.ndim == 0
    assert float(one) == float(found[-1])


def test_crp_log_prob_takes_any_labels():
    labels = torch.tensor([[[5, -3, 5, 9], [0, 1, 0, 2]], [[1, 1, 1, 1], [7, 7, 7, 7]]])
    found = crp_log_prob(labels, 1.7)
    assert found.shape == (2, 2)
    torch.testing.assert_close(found[:, 0], found[:, 1])
    assert crp_log_prob(labels[0].int(), 1.7).equal(found[0])
    alpha = torch.tensor([0.5, 2.0]).double().requires_grad_()
    both = crp_log_prob(labels[:, 0], alpha)
    assert float(both[1].detach()) == pytest.approx(float(crp_log_prob(labels[1, 0], 2.0)))
    slope = torch.autograd.grad(both.sum(), alpha)[0]
    wanted = [3 / 0.5 - sum(1 / (0.5 + i) for i in range(4))]  # tables over alpha, less customers
    wanted += [1 / 2.0 - sum(1 / (2.0 + i) for i in range(4))]
    torch.testing.assert_close(slope, torch.tensor(wanted).double())


@pytest.mark.parametrize("alpha", [1e-12, 1e12])
def test_crp_log_prob_of_extremes(alpha):
    labels = torch.tensor([[0, 0, 0], [0, 1, 0], [0, 1, 2]])
    exact = [float(seated(row, Fraction(alpha))) for row in labels.tolist()]
    np.testing.assert_allclose(crp_log_prob(labels, alpha).exp(), exact, rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.7, 4.0])
def test_sample_crp_follows_the_law(alpha):
    labels, n = partitions(4), 60_000
    drawn = sample_crp(4, alpha, draws=n)
    assert drawn.shape == (n, 4)
    place = 5 ** torch.arange(4)
    counts = [int((drawn @ place == row @ place).sum()) for row in labels]
    assert sum(counts) == n  # tables are numbered as they are taken
    expected = n * crp_log_prob(labels, alpha).exp().numpy()
    assert chisquare(counts, expected / expected.sum() * n).pvalue > 1e-5


def test_sample_crp_of_many_customers():
    n, alpha = 200_000, 5.0
    tables = sample_crp(n, alpha)
    assert tables.shape == (n,)
    count = int(tables.max()) + 1
    p = alpha / (alpha + np.arange(n))
    assert abs(count - p.sum()) < 5 * math.sqrt((p * (1 - p)).sum())
    first = [int((tables == k).nonzero()[0]) for k in range(count)]
    assert first == sorted(first)
    drawn = sample_crp(2000, alpha, draws=3000)  # the share of the first table is a Beta variable
    share = (drawn == 0).double().mean(1)
    law = beta_law(1, alpha)
    assert abs(float(share.mean()) - law.mean()) < 5 * law.std() / 3000**0.5 + 1e-3
    assert float(share.var()) == pytest.approx(law.var(), rel=0.2)


@pytest.mark.parametrize("alpha", [0.6, 3.0])
def test_sample_ibp_of_two_customers(alpha):
    """Dishes of both, of the first alone and of the second alone: Poisson of alpha / 2 each."""
    n = 20_000
    taken = sample_ibp(2, alpha, draws=n)
    kinds = taken[:, 0].int() + 2 * taken[:, 1].int()
    counts = torch.stack([(kinds == kind).sum(1) for kind in (1, 2, 3)]).double()
    for row in counts:
        most = int(poisson.ppf(1 - 5 / n, alpha / 2))
        seen = [int((row == c).sum()) for c in range(most)]
        seen.append(n - sum(seen))
        p = [*poisson.pmf(range(most), alpha / 2), poisson.sf(most - 1, alpha / 2)]
        assert chisquare(seen, np.array(p) * n).pvalue > 1e-5
    corr = torch.corrcoef(counts) - torch.eye(3).double()
    assert corr.abs().max() < 5 / n**0.5


def test_sample_ibp_is_the_buffet():
    """Customer i takes an old dish with the share of those before; new ones are Poisson(a / i)."""
    n, alpha, draws = 6, 2.5, 30_000
    taken = sample_ibp(n, alpha, draws=draws)
    assert taken.dtype == torch.bool
    sums = taken.int().cumsum(1)
    for i in range(1, n):
        before, now = sums[:, i - 1], taken[:, i]
        for m in range(1, i + 1):
            asked = before == m
            count, share = int(asked.sum()), float(now[asked].double().mean())
            p = m / (i + 1)
            assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / count)
        new = ((before == 0) & now).sum(1).double()
        rate = alpha / (i + 1)
        assert abs(float(new.mean()) - rate) < 5 * math.sqrt(rate / draws)
        assert float(new.var()) == pytest.approx(rate, rel=0.1)
    assert abs(float(taken.sum(2).double().mean()) - alpha) < 5 * math.sqrt(alpha / draws)


def test_sample_ibp_orders_and_pads(monkeypatch):
    taken = sample_ibp(7, 3.0, draws=50)
    first = torch.where(taken.any(1), taken.int().argmax(1), 7)
    assert first.equal(first.sort(1).values)
    assert (taken.any(1).sum(1).max()) == taken.shape[2]
    one = sample_ibp(9, 3.0)
    assert one.shape[0] == 9
    assert one.any(0).all()
    whole = sample_ibp(40, 3.0, draws=3, generator=torch.Generator().manual_seed(2))
    monkeypatch.setattr("vademecum.generative.feature_matrices.BLOCK", 2000)
    parts = sample_ibp(40, 3.0, draws=3, generator=torch.Generator().manual_seed(2))
    assert whole.any(1).sum(1).equal(parts.any(1).sum(1))
    assert sample_ibp(3, 1e-12).shape == (3, 0)


ANY: Any = list

BAD = [
    (lambda: sample_crp(0, 1.0), "n must be >= 1, got 0"),
    (lambda: sample_crp(3, 0.0), "alpha must be > 0, got 0.0"),
    (lambda: sample_crp(3, math.inf), "alpha must be finite"),
    (lambda: sample_crp(3, 1.0, draws=0), "draws must be >= 1"),
    (lambda: sample_ibp(0, 1.0), "n must be >= 1, got 0"),
    (lambda: sample_ibp(3, -1.0), "alpha must be > 0, got -1.0"),
    (lambda: sample_ibp(3, 1.0, draws=0), "draws must be >= 1"),
    (lambda: crp_log_prob(torch.tensor([0, 1]), 0.0), "alpha must be > 0"),
    (lambda: crp_log_prob(torch.tensor([0]), torch.tensor([-1.0])), "alpha must be .* got -1"),
    (lambda: crp_log_prob(torch.ones(2, 3).long(), torch.ones(3)), r"each of \(2,\) partitions"),
    (lambda: crp_log_prob(torch.tensor([0.5]), 1.0), "labels must be a tensor of integers"),
    (lambda: crp_log_prob(ANY([0, 1]), 1.0), "labels must be a tensor of integers, got list"),
    (lambda: crp_log_prob(torch.zeros(0).long(), 1.0), "labels must have a customer"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), BAD)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
def test_on_a_gpu():
    generator = torch.Generator("cuda").manual_seed(0)
    tables = sample_crp(1000, 2.0, draws=100, generator=generator)
    assert tables.is_cuda
    assert crp_log_prob(tables, 2.0).is_cuda
    torch.testing.assert_close(crp_log_prob(tables, 2.0).cpu(), crp_log_prob(tables.cpu(), 2.0))
    taken = sample_ibp(50, 2.0, draws=1000, generator=generator)
    assert taken.is_cuda
    assert abs(float(taken.sum(2).double().mean()) - 2.0) < 0.05
