"""The best discriminator against exact fractions, Bayes' rule and densities of SciPy."""

import math
from fractions import Fraction
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.stats import multivariate_normal

from vademecum.generative import optimal_discriminator


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_optimal_discriminator_as_exact_fractions(dtype):
    """At all sizes that a number can have; subnormal ones too, and sums that overflow."""
    top, least = torch.finfo(dtype).max, torch.finfo(dtype).smallest_normal
    subnormal = float(torch.tensor(least, dtype=dtype) * torch.finfo(dtype).eps)
    sizes = [0.0, subnormal, 3 * subnormal, least / 8, least, 1e-20, 0.3, 1.0, 7.5, 1e20, top]
    p, q = (
        t.flatten() for t in torch.meshgrid(*[torch.tensor(sizes, dtype=dtype)] * 2, indexing="ij")
    )
    found = optimal_discriminator(p, q)
    for a, b, value in zip(p.tolist(), q.tolist(), found.tolist(), strict=True):
        wanted = Fraction(a) / (Fraction(a) + Fraction(b)) if a or b else Fraction(1, 2)
        tiny = torch.finfo(dtype).tiny
        assert value == pytest.approx(float(wanted), rel=4 * torch.finfo(dtype).eps, abs=tiny)


def test_logarithms_where_densities_are_no_numbers():
    x = np.random.default_rng(0).normal(size=(40, 3)) * 200
    C: Any = np.diag([1.0, 2.0, 0.5])
    logs = [multivariate_normal(m, C).logpdf(x) for m in (np.zeros(3), np.ones(3))]
    found = optimal_discriminator(*map(torch.from_numpy, logs), log=True)
    # equal covariances: the logit is linear
    logit = x @ np.linalg.solve(C, -np.ones(3)) + np.ones(3) @ np.linalg.solve(C, np.ones(3)) / 2
    np.testing.assert_allclose(found.numpy(), expit(logit), rtol=1e-9)
    nothing = -torch.tensor([math.inf, math.inf, 0.0, 1.0])
    other = -torch.tensor([math.inf, 0.0, math.inf, 1.0])
    assert optimal_discriminator(nothing, other, log=True).tolist() == [0.5, 0.0, 1.0, 0.5]


def test_logarithms_and_densities_agree_and_shapes_broadcast():
    torch.manual_seed(0)
    p, q = torch.rand(5, 1).double(), torch.rand(3).double()
    wanted = p.numpy() / (p.numpy() + q.numpy())
    for found in (optimal_discriminator(p, q), optimal_discriminator(p.log(), q.log(), log=True)):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-13)


def test_derivatives():
    torch.manual_seed(0)
    p, q = (torch.rand(4).double() for _ in range(2))
    q[0] = p[0]
    p, q = p.requires_grad_(), q.requires_grad_()
    assert torch.autograd.gradcheck(optimal_discriminator, (p, q))
    assert torch.autograd.gradcheck(lambda a, b: optimal_discriminator(a, b, log=True), (p, q))


ONE = torch.ones(2)
HALF: Any = 0.5
REFUSED = {
    r"p must be a tensor of floating-point numbers, got torch.int64": (
        lambda: optimal_discriminator(torch.ones(2, dtype=torch.long), ONE)
    ),
    r"q must be a tensor of floating-point numbers, got float": (
        lambda: optimal_discriminator(ONE, HALF)
    ),
    r"q must be finite and >= 0, got -1.0": lambda: optimal_discriminator(ONE, -ONE),
    r"p must be finite and >= 0, got nan": lambda: optimal_discriminator(ONE * math.nan, ONE),
    r"p must be finite and >= 0, got inf": lambda: optimal_discriminator(ONE * math.inf, ONE),
    r"p must be logarithms of densities below infinity, got inf": (
        lambda: optimal_discriminator(ONE * math.inf, ONE, log=True)
    ),
    r"q must be logarithms of densities below infinity, got nan": (
        lambda: optimal_discriminator(ONE, ONE * math.nan, log=True)
    ),
    r"q must be torch.float32 on cpu like p, got torch.float64": (
        lambda: optimal_discriminator(ONE, ONE.double())
    ),
    r"shapes must broadcast, got p: \(2,\), q: \(3,\)": (
        lambda: optimal_discriminator(ONE, torch.ones(3))
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # it would complain first
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()
