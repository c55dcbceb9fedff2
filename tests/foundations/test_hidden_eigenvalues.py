"""Eigenvalues that a random start nearly misses: small residuals do not tell of them.

Each is hidden with a probability of 1 % at most: of 200 starts 2 miss one, or with five standard
errors 9; with three of them it is 6, or 18.
"""

import math

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from tests.foundations.test_eigsh import WHICH
from vademecum.foundations import LinearOperator, _thick_restarts, eigsh
from vademecum.foundations._lanczos import KrylovBasis
from vademecum.foundations._thick_restarts import _nothing_passed, rank


def spectrum(*outermost, which="largest"):
    """Some eigenvalues, and a hundred about zero, in this order."""
    e = 0.01 * torch.randn(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    e[: len(outermost)] = torch.tensor(outermost, dtype=e.dtype)
    return -e if which == "smallest" else e


def diagonal(e):
    n = len(e)
    return LinearOperator((n, n), lambda V: e[:, None] * V, lambda V: e[:, None] * V, dtype=e.dtype)


def seeded():
    return (torch.Generator().manual_seed(chance) for chance in range(200))


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("restarts", [False, True])
def test_the_outermost(which, restarts):
    """The second of two eigenvalues that are close to each other may converge before the first."""
    others = torch.linspace(-0.9, 0.9, 8).tolist() if restarts else []  # which drop Ritz values
    e = spectrum(1, 0.995, *others, which=which)
    missed = 0
    for chance in seeded():
        found = eigsh(diagonal(e), 1, which=which, tol=1e-3, subspace=6 if restarts else None,
                      generator=chance)  # fmt: skip
        assert found.converged
        missed += abs(float(found.values) - float(e[0])) > 4e-3
    assert missed <= 9


@pytest.mark.parametrize("which", WHICH)
def test_one_between_others(which):
    e = spectrum(1, 0.9, 0.8, 0.7, which=which)
    missed = 0
    for chance in seeded():
        found = eigsh(diagonal(e), 3, which=which, tol=0.02, degenerate=False, generator=chance)
        assert found.converged
        missed += bool(((found.values - e[:3]).abs() > 0.08).any())
    assert missed <= 18


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("tol", [1e-2, 1e-5])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_bound_holds_wherever_one_may_hide(k, tol, which):
    """Against a grid, whose points are so close that the logarithm moves by 0.02 between them."""
    grid, n = torch.linspace(-3, 3, 500001, dtype=torch.float64), 50
    basis = KrylovBasis(diagonal(torch.ones(n)), 10)
    for chance in range(4):
        mu = 2 * torch.rand(10, generator=torch.Generator().manual_seed(chance)).double() - 1
        mu[1] = 0.97 * mu[0]
        if chance == 3:  # where nothing has been found, the product is the smallest
            mu = torch.cat([torch.tensor([1, 0.97]), 0.01 * mu[2:] - 0.95])
        found = mu[rank(mu, which).argsort(descending=True)[:k]]
        apart = (4e-2 if tol == 1e-2 else 1e-3) * mu.abs().max()
        free = rank(grid, which) >= rank(found[-1], which) + apart
        free &= ((grid[:, None] - found).abs() >= apart).all(1)
        least = float((grid[free, None] - mu).abs().log().sum(1).min())
        for short in (-0.05, 0.05):
            basis.betas = [1.0] * 9 + [math.exp(least + short) / (100 * n**0.5)]
            assert _nothing_passed(basis, found, mu, which, tol) == (short < 0)


@pytest.mark.filterwarnings("ignore:max_iter=5 reached")
def test_iterations_that_end_before_it_is_known():
    wrong = 0
    for chance in seeded():
        found = eigsh(diagonal(spectrum(1, 0.995)), 1, tol=1e-3, max_iter=5, generator=chance)
        wrong += found.converged and abs(float(found.values) - 1) > 4e-3
    assert wrong <= 9


def test_iterations_that_end_between_the_tolerance_and_what_is_aimed_at():
    """Of several pairs smaller residuals are asked for than allowed: with these all may be over."""
    start = torch.randn(1, 400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    order = start[0].abs().argsort()  # the outermost has the least part in it
    e = spectrum(*[0.0] * 2).repeat(4)
    e[order[[0, -1, -2]]] = torch.tensor([1, 0.7, 0.69], dtype=e.dtype)
    with pytest.warns(ConvergenceWarning, match="others, or copies, may be hidden"):
        found = eigsh(diagonal(e), 2, tol=0.1, max_iter=5, symmetry_tol=math.inf,
                      generator=torch.Generator().manual_seed(0))  # fmt: skip
    assert found.values.max() < 0.8
    assert not found.converged
    assert (found.residuals < 0.1 * found.values.max()).all()  # which alone would do


@pytest.mark.parametrize("subspace", [None, 8])
def test_the_bound_has_a_factor_for_each_step(subspace, monkeypatch):
    """And is asked for no more once copies have been searched for, in another Krylov space."""
    asked = []

    def seen(basis, found, mu, *rest):
        asked.append((len(mu), len(basis.betas), basis.applications))
        return _nothing_passed(basis, found, mu, *rest)

    monkeypatch.setattr(_thick_restarts, "_nothing_passed", seen)
    eigsh(diagonal(spectrum(1, 1, 1, 1)), 4, tol=0.1, subspace=subspace, symmetry_tol=math.inf)
    assert asked
    assert all(factors == steps == products for factors, steps, products in asked)


def test_what_is_settled_costs_no_more():
    """In a space that is closed nothing hides; and a start that is given is taken at its word."""
    e = torch.full((100,), 0.5, dtype=torch.float64)
    e[0] = 1.0
    found = eigsh(diagonal(e), 1, tol=1e-3, symmetry_tol=math.inf, generator=next(seeded()))
    assert found.converged
    assert found.applications == 2  # as many as there are eigenvalues
    v0 = spectrum(1)
    found = eigsh(diagonal(e), 1, tol=0.05, v0=v0, symmetry_tol=math.inf)
    assert found.applications <= 2
