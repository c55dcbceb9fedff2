"""Chains, against conjugate posteriors, by simulation-based calibration, and on bad ground."""

import math
import warnings
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from vademecum.bayes import hmc_step, posterior, sample
from vademecum.bayes.sampling._adaptation import DualAveraging, Spread, windows
from vademecum.bayes.sampling._doubling import nuts_move
from vademecum.bayes.sampling._kernels import kernel_of
from vademecum.bayes.steps._energy_calls import point
from vademecum.bayes.steps._masses import Mass

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
COV = torch.tensor([[1.0, 1.2], [1.2, 4.0]]).double()
PRECISION = torch.linalg.inv(COV)


def gaussian(theta: Tensor) -> Tensor:
    return ((theta @ PRECISION) * theta).sum(1) / 2


def quartic(theta: Tensor) -> Tensor:
    return (theta**4).sum(1) / 4


def within(samples: Tensor, wanted: Tensor, sigmas: float = 5.5) -> bool:
    """Whether means over independent rows are right."""
    error = samples.std(0) / len(samples) ** 0.5
    return bool(((samples.mean(0) - wanted).abs() < sigmas * error).all())


X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).double()
Y = X @ torch.tensor([1.0, -2.0, 0.5]).double() + 0.1 * X[:, 0] ** 2
NOISE, SCALE = 0.8, 1.5
EXACT: dict[Any, dict[str, Any]] = {
    "nuts": {"draws": 30, "warmup": 40},
    "hmc": {"draws": 40, "warmup": 40, "leapfrogs": 3},
    "chees": {"draws": 100, "warmup": 100},
    "mala": {"draws": 200, "warmup": 100},
    "mh": {"draws": 200, "warmup": 200, "thin": 3},
}


@pytest.mark.parametrize("metric", ["diagonal", "dense", "fixed"])
@pytest.mark.parametrize("kernel", EXACT)
def test_sample_gives_conjugate_posteriors(kernel, metric):
    cov = torch.linalg.inv(X.T @ X / NOISE**2 + torch.eye(3).double() / SCALE**2)
    mean = cov @ X.T @ Y / NOISE**2
    model = nn.Linear(3, 1, bias=False).double()
    energy = posterior(model, X, Y[:, None], likelihood="gaussian", noise=NOISE, prior=SCALE)
    start = mean + torch.randn(48, 3).double() @ torch.linalg.cholesky(cov).T
    found = sample(energy, start, kernel=kernel, metric=metric, max_rhat=1.5, **EXACT[kernel])
    assert within(found.draws.mean(1), mean)
    off = found.draws - mean
    assert within(torch.einsum("cti,ctj->cij", off, off) / off.shape[1], cov)
    torch.testing.assert_close(found.energies[:, -1], energy(found.last))
    assert found.draws.shape == (48, EXACT[kernel]["draws"], 3)
    assert len(found.divergences) == 0
    assert found.converged


@pytest.mark.parametrize("kernel", ["nuts", "hmc", "chees", "mala"])
def test_step_sizes_reach_their_target(kernel):
    found = sample(gaussian, torch.randn(64, 2).double(), kernel=kernel, draws=60, warmup=250,
                   target=0.7, metric="fixed", max_rhat=2)  # fmt: skip
    low = 0.65 if kernel in ("nuts", "chees") else 0.6  # these aim at other means
    assert low < float(found.acceptance.mean()) < 0.95


def test_dual_averaging_shrinks_after_refusals():
    small, large = DualAveraging(0.5, 0.8), DualAveraging(0.5, 0.8)
    for _ in range(30):
        small.update(0.1)
        large.update(1.0)
    assert small.eta < small.averaged < 0.5 < large.averaged
    exact = DualAveraging(0.5, 0.8)
    exact.update(0.3)  # log eta = log 5 - 0.5 / 11 / 0.05
    assert exact.eta == pytest.approx(5 * math.exp(-0.5 / 11 / 0.05))


@pytest.mark.parametrize("dense", [False, True])
def test_spread_is_the_covariance_of_all_points(dense):
    points = torch.randn(30, 5, 3).double() * torch.tensor([1.0, 5.0, 0.2]).double() + 7
    spread = Spread(points[0], dense)
    for rows in points:
        spread.update(rows)
    cov = torch.cov(points.flatten(0, 1).T)
    wanted = 150 / 155 * cov + 1e-3 * 5 / 155 * torch.eye(3).double()
    found = spread.mass().inverse
    torch.testing.assert_close(found, wanted if dense else wanted.diagonal())


def test_windows_cover_what_they_should():
    for warmup in (20, 100, 149, 150, 400, 1000):
        first, ends = windows(warmup)
        assert first < ends[0] < warmup
        assert ends == sorted(ends)
        assert warmup - ends[-1] in (50, int(0.1 * warmup))


@pytest.mark.parametrize("mass", [1.0, 3.0, "dense"])
@pytest.mark.parametrize("eta", [0.4, 1.1])
def test_nuts_leaves_the_target_as_it_is(eta, mass):
    n = 6000
    at = torch.randn(n, 2).double() @ torch.linalg.cholesky(COV).T
    own = Mass(COV) if mass == "dense" else Mass(1 / float(mass))
    step, leaves = nuts_move(gaussian, point(gaussian, at), eta, own, None, 10)
    assert within(step.theta, torch.zeros(2).double())
    products = torch.stack(
        [step.theta[:, i] * step.theta[:, j] for i, j in ((0, 0), (0, 1), (1, 1))]
    )
    assert within(products.T, torch.stack([COV[0, 0], COV[0, 1], COV[1, 1]]))
    torch.testing.assert_close(step.energy, gaussian(step.theta))
    assert step.gradient is not None
    torch.testing.assert_close(step.gradient, step.theta @ PRECISION)
    assert bool(((leaves >= 1) & (leaves < 2**10)).all())


@pytest.mark.parametrize("eta", [0.3, 0.9])
def test_nuts_leaves_a_quartic_as_it_is(eta):
    """Moments from quadrature; trajectories of many lengths, most of them short."""
    n = 20_000
    grid = torch.linspace(-5, 5, 20_001).double()
    density = (-(grid**4) / 4).exp()
    cdf = torch.cumulative_trapezoid(density, grid) / torch.trapezoid(density, grid)
    at = grid[torch.searchsorted(cdf, torch.rand(n).double()).clamp(max=20_000)][:, None]
    moments = [float(torch.trapezoid(density * grid**k, grid)) for k in (0, 2, 4, 6)]
    step, _ = nuts_move(quartic, point(quartic, at), eta, Mass(1.0), None, 10)
    powers = torch.cat([step.theta**k for k in (2, 4, 6)], 1)
    assert within(powers, torch.tensor(moments[1:]).double() / moments[0])


def test_nuts_weighs_the_points_of_a_half_by_their_energies():
    """Errors of the energy are large at this step, and trajectories long in the other direction."""
    stiffness, n = torch.tensor([1.0, 0.05]).double(), 20_000

    def energy(t):
        return (stiffness * t**2).sum(1) / 2

    at = torch.randn(n, 2).double() / stiffness.sqrt()
    step, leaves = nuts_move(energy, point(energy, at), 1.5, Mass(1.0), None, 10)
    assert float(leaves.double().mean()) > 3
    for power, moment in ((2, 1.0), (4, 3.0)):
        assert within(step.theta**power, moment / stiffness ** (power / 2))


def test_nuts_trajectories_span_half_a_period():
    at = torch.randn(500, 20).double()
    ball = lambda t: t.square().sum(1) / 2  # noqa: E731
    _, leaves = nuts_move(ball, point(ball, at), 0.05, Mass(1.0), None, 10)
    span = 0.05 * leaves.double()  # some 3.1 to 2 times that, since it doubles
    assert 1.5 < float(span.mean()) < 7
    _, few = nuts_move(ball, point(ball, at), 0.05, Mass(1.0), None, 3)
    assert bool((few == 7).all())


def test_chees_learns_a_quarter_of_a_period_or_more():
    ball = lambda t: t.square().sum(1) / 2  # noqa: E731
    chains: Any = kernel_of("chees", ball, torch.randn(64, 20).double(), max_leapfrogs=1000)
    for _ in range(400):
        chains.adapt(chains.advance(0.2, Mass(1.0), None), Mass(1.0))
    chains.settle()
    assert 1.2 < math.exp(chains._log_T) < 6.3


@pytest.mark.parametrize("kernel", ["hmc", "mala", "mh", "chees"])
def test_simulation_based_calibration(kernel):
    """Ranks of true parameters among draws are uniform: each chain has data of its own."""
    n, sigma = 600, 0.7
    truth = torch.randn(n, 2).double()
    A = torch.tensor([[1.0, 0.5], [0.0, 1.0], [1.0, -1.0]]).double()
    data = truth @ A.T + sigma * torch.randn(n, 3).double()

    def energy(t):
        return ((t @ A.T - data) ** 2).sum(1) / (2 * sigma**2) + t.square().sum(1) / 2

    thin = {"hmc": 2, "chees": 4, "mala": 6, "mh": 20}[kernel]
    found = sample(energy, torch.zeros(n, 2).double(), kernel=kernel, draws=19, thin=thin,
                   warmup=80, leapfrogs=4, max_rhat=math.inf)  # fmt: skip
    ranks = (found.draws < truth[:, None]).sum(1)
    for own in ranks.T:
        assert chisquare(np.bincount(own.numpy(), minlength=20)).pvalue > 1e-6


@pytest.mark.parametrize("kernel", ["ula", "sgld", "sghmc"])
def test_kernels_without_a_test_have_their_own_law(kernel):
    eta = 0.05
    found = sample(gaussian, torch.randn(400, 2).double() @ torch.linalg.cholesky(COV).T,
                   kernel=kernel, eta=eta, draws=40, warmup=40, thin=3, max_rhat=9)  # fmt: skip
    if kernel == "sghmc":
        # up to a few thousandths, by the claim's formula
        assert within(found.draws[:, :, 0].square().mean(1), COV[0, 0])
        return
    biased = torch.linalg.inv(PRECISION - eta / 2 * PRECISION @ PRECISION)
    squares = torch.einsum("cti,ctj->cij", found.draws, found.draws) / 40
    assert within(squares, biased)


def test_cycles_fall_and_begin_anew():
    sizes = []

    class Counting:
        def __call__(self, theta):
            return theta.square().sum(1) / 2

        def with_gradient(self, theta):
            return self(theta), torch.ones_like(theta)  # a constant drift shows the step

    torch.manual_seed(0)
    start = torch.zeros(20_000, 1).double()
    kept = lambda t: sizes.append(float(t.mean())) or t  # noqa: E731
    found = sample(Counting(), start, kernel="sgld", eta=0.1, draws=4, warmup=2, cycles=2,
                   keep=kept, max_rhat=9)  # fmt: skip
    falls = [0.05 * (1 + math.cos(math.pi * k / 4)) for k in range(4)]
    wanted = np.cumsum(falls * 2)[[2, 3, 6, 7]]
    np.testing.assert_allclose(sizes, -wanted, atol=0.03)
    assert found.draws.shape == (20_000, 4, 1)


def test_keep_and_out(tmp_path):
    dice = [torch.Generator().manual_seed(1) for _ in range(3)]
    start = torch.randn(3, 2).double()
    knobs = {"kernel": "hmc", "draws": 12, "warmup": 5}
    plain = sample(gaussian, start, generator=dice[0], **knobs)
    file = sample(gaussian, start, generator=dice[1], out=tmp_path / "draws.npy", **knobs)
    torch.testing.assert_close(plain.draws, file.draws)
    np.testing.assert_array_equal(np.load(tmp_path / "draws.npy"), plain.draws.numpy())
    kept = sample(gaussian, start, generator=dice[2], keep=lambda t: t.sum(1), **knobs)
    torch.testing.assert_close(kept.draws, plain.draws.sum(2))


def test_split_r_is_the_classic_one():
    found = sample(gaussian, torch.randn(5, 2).double(), kernel="mh", draws=41, warmup=10,
                   max_rhat=math.inf)  # fmt: skip
    halves = torch.cat([found.draws[:, :20], found.draws[:, 21:]])
    within_halves, between = halves.var(1).mean(0), halves.mean(1).var(0)
    wanted = (19 / 20 + between / within_halves).sqrt().max()
    assert found.rhat == pytest.approx(float(wanted))


def test_chains_apart_give_a_warning():
    def wells(t):
        return 50 * (t[:, 0].abs() - 3) ** 2

    start = torch.tensor([[3.0], [-3.0]]).double()
    with pytest.warns(ConvergenceWarning, match="chains have not mixed: the largest split R is"):
        found = sample(wells, start, kernel="hmc", draws=50, warmup=50)
    assert not found.converged
    assert found.rhat > 5


def test_divergences_have_places():
    def cliff(t):
        return torch.where(t[:, 0] > 0.3, 1e5 * (t[:, 0] - 0.3), t[:, 0] ** 2)

    start = torch.zeros(6, 1).double()
    with pytest.warns(ConvergenceWarning, match="draws followed a divergent step"):
        found = sample(cliff, start, kernel="hmc", leapfrogs=2, draws=60, warmup=0, eta=0.5,
                       metric="fixed", max_rhat=9)  # fmt: skip
    assert found.divergences.shape[1] == 2
    for chain, draw in found.divergences.tolist():
        assert draw == 0 or found.draws[chain, draw].equal(found.draws[chain, draw - 1])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kernel", ["nuts", "hmc", "chees", "mala", "mh", "ula", "sghmc"])
def test_bad_energies_are_counted_and_never_kept(kernel, bad):
    def energy(t):
        return torch.where(t[:, 0] > 0.5, bad, t.square().sum(1) / 2)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = sample(energy, torch.zeros(20, 2).double(), kernel=kernel, eta=0.3, draws=30,
                       warmup=20, leapfrogs=3, max_rhat=math.inf)  # fmt: skip
    assert int(found.failures.sum()) > 0
    assert any("NaN or infinite, and none was accepted" in str(w.message) for w in caught)
    assert bool((found.draws[..., 0] <= 0.5).all())
    assert bool(found.energies.isfinite().all())


@pytest.mark.parametrize("kernel", ["sgld", "sghmc"])
def test_parts_of_the_data_give_the_posterior_mean(kernel):
    cov = torch.linalg.inv(X.T @ X / NOISE**2 + torch.eye(3).double() / SCALE**2)
    mean = cov @ X.T @ Y / NOISE**2
    energy = posterior(nn.Linear(3, 1, bias=False).double(), X, Y[:, None], likelihood="gaussian",
                       noise=NOISE, prior=SCALE, batch=8)  # fmt: skip
    eta = {"sgld": 5e-4, "sghmc": 0.01}[kernel]
    start = mean + torch.randn(100, 3).double() @ torch.linalg.cholesky(cov).T
    found = sample(energy, start, kernel=kernel, eta=eta, draws=25, warmup=100, thin=8,
                   friction=20.0, max_rhat=math.inf)  # fmt: skip
    assert within(found.draws.mean(1), mean)
    spread = (found.draws - mean).square().mean((0, 1)) / cov.diagonal()
    assert bool(((spread > 0.8) & (spread < 1.5)).all())  # noise of the gradients adds to it


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["nuts", "hmc", "chees", "mala", "mh"])
def test_sample_on_a_gpu(kernel):
    here = COV.cuda()
    precision = torch.linalg.inv(here)
    found = sample(lambda t: ((t @ precision) * t).sum(1) / 2, torch.zeros(200, 2).double().cuda(),
                   kernel=kernel, draws=50, warmup=100, thin=3, max_rhat=2, metric="dense",
                   generator=torch.Generator("cuda").manual_seed(0))  # fmt: skip
    assert found.draws.is_cuda
    assert within(torch.einsum("cti,ctj->cij", found.draws, found.draws) / 50, here)


@pytest.mark.usefixtures("unchecked")
def test_errors():
    at, wrong = torch.zeros(3, 2).double(), cast("Any", "wrong")

    def edge(t):
        return torch.where(t[:, 0] >= 0, torch.inf, 0 * t[:, 0])

    table = [
        (lambda: sample(gaussian, at[:0]), r"start must have at least one chain, got shape \(0, 2"),
        (lambda: sample(gaussian, at[0]), r"start must be a tensor \(chains, P\), got shape \(2,"),
        (lambda: sample(edge, at), "start must have finite energies, got inf at chain 0"),
        (lambda: sample(lambda t: gaussian(t) * math.nan, at), "finite energies, got nan at chain"),
        (lambda: sample(gaussian, at, kernel=wrong), "kernel must be one of 'nuts', 'hmc'"),
        (lambda: sample(gaussian, at, draws=0), "draws must be >= 1, got 0"),
        (lambda: sample(gaussian, at, warmup=-1), "warmup must be >= 0, got -1"),
        (lambda: sample(gaussian, at, metric=wrong), "metric must be one of 'diagonal', 'dense'"),
        (lambda: sample(gaussian, at, target=1.0), "target must be < 1, got 1"),
        (lambda: sample(gaussian, at, eta=0.0), "eta must be > 0, got 0"),
        (lambda: sample(gaussian, at, kernel="sgld"), "eta must be given for kernel 'sgld', which"),
        (lambda: sample(gaussian, at, cycles=2), "cycles must be None for kernel 'nuts', which ad"),
        (lambda: sample(gaussian, at, kernel="ula", eta=0.1, draws=5, cycles=2),
         "draws must be a multiple of cycles, got 5 and 2"),
        (lambda: sample(gaussian, at[:1], kernel="chees"), "start must have at least 2 chains for"),
        (lambda: sample(gaussian, at, draws=1, warmup=0, keep=lambda t: t[:1]),
         "keep must give a tensor with a row for each of 3 chains"),
    ]  # fmt: skip
    for act, message in table:
        with pytest.raises(ValueError, match=message):
            act()


def test_chains_go_on_from_where_they_were():
    dice = torch.Generator().manual_seed(0)
    first = sample(gaussian, torch.zeros(4, 2).double(), draws=5, warmup=40, generator=dice)
    more = sample(gaussian, first.last, draws=5, warmup=0, eta=first.eta, mass=first.mass)
    assert more.eta == pytest.approx(first.eta)
    torch.testing.assert_close(more.mass, first.mass)
    assert hmc_step(gaussian, more.last, eta=more.eta, leapfrogs=2, mass=more.mass).theta.ndim == 2
