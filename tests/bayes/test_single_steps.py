"""Single steps: detailed balance, Geweke's joint test, Lyapunov's variances, bad energies."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov
from torch import Tensor

from vademecum.bayes import (
    hmc_step,
    leapfrog,
    mala_step,
    mh_step,
    sghmc_step,
    sgld_step,
    ula_step,
)

COV = torch.tensor([[1.0, 0.7], [0.7, 2.0]]).double()
PRECISION = torch.linalg.inv(COV)
MASS = torch.tensor([[2.0, -0.5], [-0.5, 0.8]]).double()


def gaussian(theta: Tensor) -> Tensor:
    return ((theta @ PRECISION) * theta).sum(1) / 2


def exact(n: int) -> Tensor:
    return torch.randn(n, 2).double() @ torch.linalg.cholesky(COV).T


def insist_on_moments(theta: Tensor, cov: Tensor = COV) -> None:
    """Means and second moments within five standard errors."""
    n = len(theta)
    assert bool((theta.mean(0).abs() < 5 * theta.std(0) / n**0.5).all())
    for i in range(cov.shape[0]):
        for j in range(i + 1):
            product = theta[:, i] * theta[:, j]
            assert abs(float(product.mean() - cov[i, j])) < 5 * float(product.std()) / n**0.5


def test_mh_step_balances_twenty_states_in_detail():
    n = 20
    E, R = 2 * torch.randn(n).double(), torch.rand(n, n).double() ** 3
    R = R / R.sum(1, keepdim=True)
    i, j = np.divmod(np.arange(n * n), n)
    step = mh_step(
        lambda t: E[t[:, 0].long()], torch.from_numpy(i)[:, None].double(),
        propose=lambda t, g: (torch.from_numpy(j)[:, None].double(), (R[j, i] / R[i, j]).log()),
    )  # fmt: skip
    P = (R * step.probability.view(n, n)).numpy()
    np.fill_diagonal(P, 0)
    P += np.diag(1 - P.sum(1))
    law = np.exp(-E.numpy())
    law /= law.sum()
    flow = law[:, None] * P
    np.testing.assert_allclose(flow, flow.T, rtol=0, atol=1e-15)
    values, vectors = (np.real(part) for part in np.linalg.eig(P.T))
    order = np.argsort(-values)
    assert values[order[1]] < 1 - 1e-6  # the law is the only one
    found = vectors[:, order[0]]
    np.testing.assert_allclose(found / found.sum(), law, atol=1e-10)


MASSES = [None, 3.0, torch.tensor([0.5, 4.0]).double(), MASS]


@pytest.mark.parametrize("mass", MASSES[:3], ids=["one", "number", "diagonal"])
def test_mala_step_is_one_leapfrog_step_with_its_test(mass):
    start, eta = 2 * torch.randn(500, 2).double(), 0.4

    def quartic(t):
        return (t**4).sum(1) / 4 + t[:, 0] * t[:, 1]

    dice = [torch.Generator().manual_seed(3) for _ in range(2)]
    one = mala_step(quartic, start, eta=eta, mass=mass, generator=dice[0])
    size = math.sqrt(2 * eta)
    other = hmc_step(quartic, start, eta=size, leapfrogs=1, mass=mass, generator=dice[1])
    torch.testing.assert_close(one.probability, other.probability)
    torch.testing.assert_close(one.theta, other.theta)
    assert 0.1 < float(one.accepted.double().mean()) < 0.95


@pytest.mark.parametrize("mass", MASSES, ids=["one", "number", "diagonal", "dense"])
@pytest.mark.parametrize("kind", ["mh", "mala", "hmc"])
def test_a_coarse_step_leaves_the_target_as_it_is(kind, mass):
    start = exact(20_000)
    step = {
        "mh": lambda: mh_step(gaussian, start, eta=1.0, mass=mass),
        "mala": lambda: mala_step(gaussian, start, eta=0.5, mass=mass),
        "hmc": lambda: hmc_step(gaussian, start, eta=0.8, leapfrogs=3, mass=mass),
    }[kind]()
    assert 0.2 < float(step.probability.mean()) < 0.999
    assert bool((step.theta != start).any(1).equal(step.accepted))
    torch.testing.assert_close(step.energy, gaussian(step.theta))
    if step.gradient is not None:
        torch.testing.assert_close(step.gradient, step.theta @ PRECISION)
    insist_on_moments(step.theta)


@pytest.mark.parametrize("kind", ["mh", "mala", "hmc"])
def test_geweke_joint_law_of_parameters_and_data(kind):
    """Data drawn anew between steps: parameters must keep the law of the prior."""
    n, noise = 8000, 0.6
    X = torch.randn(5, 2, generator=torch.Generator().manual_seed(0)).double()
    theta = torch.randn(n, 2).double()
    for _ in range(12):
        y = theta @ X.T + noise * torch.randn(n, 5).double()

        def energy(t, y=y):
            return ((t @ X.T - y) ** 2).sum(1) / (2 * noise**2) + t.square().sum(1) / 2

        step = {
            "mh": lambda e=energy, t=theta: mh_step(e, t, eta=0.3),
            "mala": lambda e=energy, t=theta: mala_step(e, t, eta=0.06),
            "hmc": lambda e=energy, t=theta: hmc_step(e, t, eta=0.35, leapfrogs=2, mass=1.5),
        }[kind]()
        theta = step.theta
    insist_on_moments(theta, torch.eye(2).double())


def test_hmc_step_refreshes_its_momentum_with_the_mass():
    start = torch.zeros(20_000, 2).double()
    step = hmc_step(gaussian, start, eta=1e-3, leapfrogs=1, mass=MASS)
    velocity = step.theta / 1e-3
    insist_on_moments(velocity, torch.linalg.inv(MASS))


def test_leapfrog_is_reversible_and_counts_its_steps():
    theta, y = torch.randn(4, 2).double(), torch.randn(4, 2).double()
    there = leapfrog(gaussian, theta, y, eta=0.3, leapfrogs=7, mass=MASS)
    back = leapfrog(gaussian, there.theta, -there.momentum, eta=0.3, leapfrogs=7, mass=MASS)
    torch.testing.assert_close(back.theta, theta)
    torch.testing.assert_close(back.momentum, -y)
    one = leapfrog(gaussian, theta, y, eta=0.3, leapfrogs=3, mass=MASS)
    for _ in range(3):
        y = y - 0.15 * theta @ PRECISION
        theta = theta + 0.3 * y @ torch.linalg.inv(MASS)
        y = y - 0.15 * theta @ PRECISION
    torch.testing.assert_close(one.theta, theta)
    torch.testing.assert_close(one.momentum, y)


@pytest.mark.parametrize("step", [ula_step, sgld_step])
def test_ula_step_and_sgld_step_have_this_mean_and_covariance(step):
    at, eta = torch.tensor([[1.0, -2.0]]).double(), 0.3
    found = step(gaussian, at.expand(20_000, 2).clone(), eta=eta, mass=MASS)
    inverse = torch.linalg.inv(MASS)
    insist_on_moments(found.theta - (at - eta * at @ PRECISION @ inverse), 2 * eta * inverse)
    torch.testing.assert_close(found.gradient, found.theta @ PRECISION)


@pytest.mark.parametrize(("mass", "friction"), [(1.0, 1.0), (4.0, 0.5), (0.3, 2.0)])
def test_sghmc_step_has_lyapunov_variances(mass, friction):
    eta, k = 0.1, torch.tensor([1.0, 3.0]).double()

    def energy(t):
        return (k * t**2).sum(1) / 2

    n = 10_000
    phase = sghmc_step(energy, torch.zeros(n, 2).double(), eta=eta, friction=friction, mass=mass)
    for _ in range(round(40 * max(mass / friction, friction, 1))):
        phase = sghmc_step(energy, phase, eta=eta, friction=friction, mass=mass)
    for i in range(2):
        kick = np.array([[1.0, 0.0], [-eta * float(k[i]), 1 - eta * friction / mass]])
        drift = np.array([[1.0, eta / mass], [0.0, 1.0]])
        noise = np.outer(drift @ [0, 1], drift @ [0, 1]) * 2 * friction * eta
        cov = solve_discrete_lyapunov(drift @ kick, noise)
        pairs = torch.stack([phase.theta[:, i], phase.momentum[:, i]], 1)
        for a in range(2):
            squares = pairs[:, a] ** 2
            assert abs(float(squares.mean()) - cov[a, a]) < 5 * float(squares.std()) / n**0.5


def test_sghmc_step_with_a_mass_matrix_is_its_equation():
    theta, y = torch.randn(3, 2).double(), torch.randn(3, 2).double()
    found = sghmc_step(gaussian, theta, y, eta=0.1, friction=0.0, mass=MASS)
    y = y - 0.1 * theta @ PRECISION
    torch.testing.assert_close(found.momentum, y)
    torch.testing.assert_close(found.theta, theta + 0.1 * y @ torch.linalg.inv(MASS))
    dice = [torch.Generator().manual_seed(1) for _ in range(2)]
    ends = [
        sghmc_step(gaussian, theta, y * f, eta=0.1, friction=2.0, mass=MASS, generator=d).momentum
        for f, d in zip((0.0, 1.0), dice, strict=True)
    ]
    torch.testing.assert_close(ends[1] - ends[0], y - 0.2 * y @ torch.linalg.inv(MASS))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_bad_energies_are_never_accepted(bad):
    def energy(t):
        return torch.where(t[:, 0] > 0.5, bad, t.square().sum(1) / 2)

    start = torch.zeros(400, 2).double()
    for step in (
        mh_step(energy, start, eta=2.0),
        hmc_step(energy, start, eta=1.0, leapfrogs=1),
        mala_step(energy, start, eta=0.5),
        ula_step(energy, start, eta=0.5),
        sgld_step(energy, start, eta=0.5),
    ):
        assert bool(step.failed.any())
        assert not bool(step.failed.all())
        assert not bool((step.failed & step.accepted).any())
        assert bool((step.theta[:, 0] <= 0.5).all())
        assert bool(step.energy.isfinite().all())
    phase = sghmc_step(energy, start, eta=1.0)
    assert bool((phase.theta[:, 0] <= 0.5).all())


def test_a_step_goes_on_from_a_step():
    first = hmc_step(gaussian, torch.randn(5, 2).double(), eta=0.1, leapfrogs=2)
    dice = [torch.Generator().manual_seed(1) for _ in range(2)]
    one = hmc_step(gaussian, first, eta=0.1, leapfrogs=2, generator=dice[0])
    other = hmc_step(gaussian, first.theta, eta=0.1, leapfrogs=2, generator=dice[1])
    torch.testing.assert_close(one.theta, other.theta)


@pytest.mark.usefixtures("unchecked")
def test_errors():
    at = torch.zeros(3, 2).double()
    table = [
        (lambda: mh_step(gaussian, at), "one of eta and propose must be given"),
        (lambda: mh_step(gaussian, at, eta=-1.0), "eta must be > 0, got -1"),
        (lambda: mh_step(gaussian, at[0], eta=1.0), r"theta must be a tensor \(chains, P\), got s"),
        (
            lambda: mh_step(gaussian, at[:0], eta=1.0),
            r"theta must have at least one chain, got sha",
        ),
        (lambda: mh_step(gaussian, at * math.nan, eta=1.0), "theta must be finite, got nan"),
        (lambda: mh_step(gaussian, at, propose=lambda t, g: t[:1]), "propose must give points of"),
        (lambda: mh_step(gaussian, at, propose=lambda t, g: (t, t)), "propose must give a log rat"),
        (lambda: hmc_step(gaussian, at, eta=0.1, leapfrogs=0), "leapfrogs must be >= 1, got 0"),
        (
            lambda: hmc_step(lambda t: t, at, eta=0.1, leapfrogs=1),
            "one number for each of 3 chains",
        ),
        (lambda: ula_step(lambda t: torch.zeros(3), at, eta=1.0), "energy must be differentiable"),
        (lambda: ula_step(gaussian, at, eta=1.0, mass=-MASS), "mass must be positive definite"),
        (lambda: ula_step(gaussian, at, eta=1.0, mass=MASS[:1]), r"mass must be a number or have"),
        (lambda: ula_step(gaussian, at, eta=1.0, mass=-MASS[0]), r"entries of mass must be > 0"),
        (lambda: leapfrog(gaussian, at, at[:1], eta=1.0), r"momentum must have shape \(3, 2\)"),
        (lambda: sghmc_step(gaussian, at, at[:1], eta=1.0), r"momentum must have shape \(3, 2\)"),
        (lambda: sghmc_step(gaussian, at, eta=1.0, friction=-1.0), "friction must be >= 0, got -1"),
    ]
    for act, message in table:
        with pytest.raises(ValueError, match=message):
            act()
