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

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
COV = torch.tensor([[1.0, 1.2], [1.2, 4.0]]).double()
PRECISION = torch.linalg.inv(COV)


def gaussian(theta: Tensor) -> Tensor:
    return ((theta @ PRECISION) * theta).sum(1) / 2


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
