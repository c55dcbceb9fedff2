"""The flow of a diffusion and the log-densities it gives, against closed forms and SciPy."""

# pyright: reportArgumentType=false, reportIncompatibleMethodOverride=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false
# pyright: reportOptionalOperand=false

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from vademecum.generative import (
    VESDE,
    VPSDE,
    MixtureScore,
    NoiseSchedule,
    log_likelihood,
    probability_flow,
)
from vademecum.models import SlowPathWarning, mlp

F64 = torch.float64
PROCESSES = [VPSDE(), VESDE(sigma_min=0.05, sigma_max=8.0)]
ids = pytest.mark.parametrize("process", PROCESSES, ids=["vp", "ve"])


def two(process, predicts="score", dtype=F64):
    """A mixture of two bent components in the plane."""
    weights = torch.tensor([0.3, 0.7], dtype=dtype)
    means = torch.tensor([[-1.0, 0.5], [2.0, -1.0]], dtype=dtype)
    spread = torch.tensor([[[0.5, 0.2], [0.2, 0.3]], [[0.2, -0.1], [-0.1, 0.4]]], dtype=dtype)
    return MixtureScore(weights, means, spread, process=process, predicts=predicts)


class Timed(nn.Module):
    """A small network that knows the time."""

    def __init__(self, d: int = 2, norm: bool = False):
        super().__init__()
        self.net = mlp([d + 1, 8, d], activation=nn.Tanh)
        self.norm = nn.BatchNorm1d(d) if norm else nn.Identity()

    def forward(self, x, t):
        return self.net(torch.cat([self.norm(x.flatten(1)), t[:, None]], 1)).view_as(x)


@ids
@pytest.mark.parametrize("predicts", ["score", "noise", "x0", "v"])
def test_probability_flow_of_a_normal_law_is_affine(process, predicts):
    """From the law at one time to that at another: x goes to its quantile."""
    mean, variance = torch.tensor([[1.0, -2.0]], dtype=F64), torch.tensor([[0.25, 2.0]], dtype=F64)
    model = MixtureScore(torch.ones(1, dtype=F64), mean, variance, process=process,
                         predicts=predicts)  # fmt: skip
    x = mean + variance.sqrt() * torch.randn(5, 2, dtype=F64)
    for start, end in ((0.05, 1.0), (1.0, 0.05)):
        laws = []
        for t in (start, end):
            s, e = map(float, process.marginal(torch.tensor(t, dtype=F64)))
            laws.append((s * mean, (s * s * variance + e * e).sqrt()))
        (m0, d0), (m1, d1) = laws
        begin = m0 + d0 * (x - mean) / variance.sqrt()
        found = probability_flow(model, begin, process=process, start=start, end=end,
                                 predicts=predicts, tol=1e-8)  # fmt: skip
        wanted = m1 + d1 * (x - mean) / variance.sqrt()
        torch.testing.assert_close(found.x, wanted, rtol=1e-6, atol=1e-6)
        assert found.converged


@ids
def test_log_likelihood_returns_the_density_of_a_mixture(process):
    model = two(process)
    x = model.sample(40, generator=torch.Generator().manual_seed(1))
    found = log_likelihood(model, x, process=process, start=0.0, tol=1e-7,
                           prior=lambda y: model.log_prob(y, t=1.0))  # fmt: skip
    torch.testing.assert_close(found.log_prob, model.log_prob(x), rtol=0, atol=1e-5)
    assert not found.standard_error.any()
    forth = probability_flow(model, x, process=process, start=0.0, end=1.0, tol=1e-7)
    torch.testing.assert_close(found.latent, forth.x, rtol=1e-5, atol=1e-5)
    back = probability_flow(model, forth.x, process=process, start=1.0, end=0.0, tol=1e-7)
    torch.testing.assert_close(back.x, x, rtol=0, atol=1e-5)
    single = two(process, dtype=torch.float32)
    loose = log_likelihood(single, x.float(), process=process, start=0.0,
                           prior=lambda y: single.log_prob(y, t=1.0))  # fmt: skip
    torch.testing.assert_close(loose.log_prob.double(), model.log_prob(x), rtol=0, atol=2e-3)


def test_log_likelihood_of_a_network_against_scipy_and_its_jacobian():
    process, (torch_model, x) = VPSDE(), (Timed().double(), torch.randn(3, 2, dtype=F64))

    def slope(t, y):
        at, time = torch.tensor(y[:2]), torch.tensor(t, dtype=F64)

        def v(at):
            g2 = float(process.diffusion(time)) ** 2
            return process.drift(at[None], time)[0] - g2 / 2 * torch_model(at[None], time[None])[0]

        jacobian = torch.autograd.functional.jacobian(v, at)
        return np.append(v(at).detach().numpy(), float(jacobian.trace()))

    found = log_likelihood(torch_model, x, process=process, start=0.01, tol=1e-8)
    for i in range(3):
        y = solve_ivp(slope, (0.01, 1), [*x[i].tolist(), 0], rtol=1e-9, atol=1e-10).y[:, -1]
        wanted = y[2] - y[0] ** 2 / 2 - y[1] ** 2 / 2 - math.log(2 * math.pi)
        assert float(found.log_prob[i]) == pytest.approx(wanted, abs=1e-6)
        np.testing.assert_allclose(found.latent[i], y[:2], atol=1e-6)


def test_probes_agree_with_the_exact_trace_within_their_error():
    process = VPSDE()
    model, x = two(process), torch.randn(60, 2, dtype=F64)
    known = {"process": process, "start": 0.01, "tol": 1e-6}
    exact = log_likelihood(model, x, **known)
    found = log_likelihood(model, x, probes=50, generator=torch.Generator().manual_seed(2), **known)
    z = (found.log_prob - exact.log_prob) / found.standard_error
    assert z.abs().max() < 6
    assert 0.6 < float(z.square().mean()) < 1.6  # the error bars are as long as they should be
    assert exact.evaluations < 250


def test_more_than_64_features_take_probes_and_up_to_64_do_not():
    process = VPSDE()
    for d, probing in ((64, False), (65, True)):
        A = 0.1 * torch.randn(d, d) / d**0.5
        spread = torch.eye(d) + (A + A.T) / 2
        model = MixtureScore(torch.ones(1), torch.zeros(1, d), spread[None], process=process,
                             predicts="score")  # fmt: skip
        x = model.sample(3)
        found = log_likelihood(model, x, process=process)
        assert bool(found.standard_error.any()) == probing
        gap = (found.log_prob - model.log_prob(x)).abs()
        assert (gap < 6 * found.standard_error + 0.02).all()  # and what the prior is off by


def test_bits_below_zero_come_from_missing_dequantisation():
    """A density with spikes at the integers: as high as one likes, but no code is that short."""
    levels, std, process = 4, 0.01, VPSDE()
    cells = (torch.arange(levels, dtype=F64)[:, None] + 0.5) / levels
    weights = torch.full((levels,), 1 / levels, dtype=F64)
    spikes = MixtureScore(weights, cells, weights * levels * std**2, process=process,
                          predicts="score")  # fmt: skip
    pixels = torch.arange(levels).repeat(4)[:, None]
    naive = log_likelihood(spikes, (pixels.double() + 0.5) / levels, process=process)
    assert naive.bits_per_dim is None  # which is why none are reported
    bits = -(naive.log_prob + math.log(1 / levels)) / math.log(2)
    assert (bits < -1).all()  # what others report; the right number of a cell is log2(4) = 2
    honest = log_likelihood(spikes, pixels, process=process, levels=levels)
    assert honest.bits_per_dim.mean() >= math.log2(levels)  # the entropy of the pixels
    half, four = torch.full((1, 1), 0.5, dtype=F64), torch.full((1,), 4.0, dtype=F64)
    even = MixtureScore(four / 4, half, four, process=process, predicts="score")
    found = log_likelihood(even, pixels, process=process, levels=levels, start=0.0, tol=1e-7,
                           prior=lambda y: even.log_prob(y, t=1.0))  # fmt: skip
    y = 0.5 + torch.linspace(-0.5, 0.5, 2001, dtype=F64)[:, None]
    ends = -(even.log_prob(y) - math.log(levels)) / math.log(2)
    assert (found.bits_per_dim >= ends.min() - 1e-6).all()  # the density at some point of [0, 1]
    assert (found.bits_per_dim <= ends.max() + 1e-6).all()
    shifted = log_likelihood(even, pixels, process=process, levels=levels, interval=(-1.0, 1.0))
    assert shifted.bits_per_dim.mean() < found.bits_per_dim.mean()  # cells twice as wide


def test_pixels_land_in_their_cells():
    """With a flow that stays where it is the latent is the dequantised input."""
    process, pixels = VPSDE(), torch.tensor([[0, 3, 255]]).repeat(400, 1)
    found = log_likelihood(lambda x, t: -x, pixels, process=process, levels=256,
                           interval=(-1.0, 1.0))  # fmt: skip
    cells = (found.latent + 1) * 128 - pixels
    assert (cells > -1e-3).all()
    assert (cells < 1 + 1e-3).all()
    assert (cells.mean(0) - 0.5).abs().max() < 6 * (1 / 12 / 400) ** 0.5
    for dtype in (torch.uint8, torch.int16, torch.int32):  # 256 itself is no byte
        again = log_likelihood(lambda x, t: -x, pixels[:2].to(dtype), process=process, levels=256,
                               interval=(-1.0, 1.0))  # fmt: skip
        assert bool((((again.latent + 1) * 128 - pixels[:2] - 0.5).abs() < 0.501).all())
    plain = process.prior_log_prob(found.latent) + 3 * math.log(2 / 256)
    torch.testing.assert_close(found.log_prob, plain, rtol=0, atol=1e-4)
    torch.testing.assert_close(found.bits_per_dim, -found.log_prob / (3 * math.log(2)))


def test_examples_do_not_influence_each_other_and_models_stay_as_they_were():
    model = Timed(norm=True).train()
    model.norm.running_mean += 1
    x, before = torch.randn(6, 2), {k: v.clone() for k, v in model.state_dict().items()}
    whole = log_likelihood(model, x, process=VPSDE(), tol=1e-6)
    for i in (0, 4):
        alone = log_likelihood(model, x[i : i + 1], process=VPSDE(), tol=1e-6)
        torch.testing.assert_close(alone.log_prob[0], whole.log_prob[i], rtol=0, atol=2e-4)
    assert model.training
    assert model.norm.training
    assert all(v.equal(before[k]) for k, v in model.state_dict().items())
    assert not whole.log_prob.requires_grad
    assert all(p.grad is None for p in model.parameters())


class Unmappable(torch.autograd.Function):
    """A square that torch cannot map."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.from_numpy((2 * x * g).detach().numpy())


def test_operations_that_cannot_be_mapped_take_a_slower_way():
    x, known = torch.rand(3, 2, dtype=F64) / 3, {"process": VPSDE(), "start": 0.5}
    with pytest.warns(SlowPathWarning, match="one after the other"):
        slow = log_likelihood(lambda x, t: -Unmappable.apply(x), x, **known)
    fast = log_likelihood(lambda x, t: -x.square(), x, **known)
    torch.testing.assert_close(slow.log_prob, fast.log_prob)


def test_context_reaches_the_model():
    process = VPSDE()
    model, x = two(process), torch.randn(4, 2, dtype=F64)
    which = torch.tensor([0, 1, 1, 0])
    found = log_likelihood(model, x, process=process, start=0.0, context=which, tol=1e-7,
                           prior=lambda y: model.log_prob(y, which, t=1.0))  # fmt: skip
    wanted = model.log_prob(x, context=which)
    torch.testing.assert_close(found.log_prob, wanted, rtol=1e-5, atol=1e-5)
    there = probability_flow(model, x, process=process, context=which, end=0.5).x
    assert not torch.allclose(there, probability_flow(model, x, process=process, end=0.5).x)


def test_too_few_steps_are_no_silence():
    model = two(VPSDE())
    with pytest.warns(ConvergenceWarning, match="the flow reached time"):
        short = probability_flow(model, torch.randn(4, 2, dtype=F64), process=VPSDE(), max_iter=2)
    assert not short.converged
    with pytest.warns(ConvergenceWarning, match="within 3 steps"):
        found = log_likelihood(model, torch.randn(4, 2, dtype=F64), process=VPSDE(), max_iter=3)
    assert not found.converged


X = torch.zeros(2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: probability_flow(f, X, process=VPSDE(), start=1.5), "start must be <= 1"),
        (lambda f: log_likelihood(f, X, process=VPSDE(), prior=lambda y: -y.square()),
         r"prior must give 2 numbers, got shape \(2, 2\)"),
        (lambda f: log_likelihood(f, X, process=VPSDE(), prior=lambda y: -y[:1].sum(1)),
         r"prior must give 2 numbers, got shape \(1,\)"),
        (lambda f: log_likelihood(f, X[:, :0], process=VPSDE()),
         r"x must be \(n, \*shape\) with entries, got shape \(2, 0\)"),
        (lambda f: probability_flow(f, X, process=NoiseSchedule([0.5])),
         "process must be a DiffusionSDE, such as .*, got NoiseSchedule"),
        (lambda f: log_likelihood(f, X, process=NoiseSchedule([0.5])),
         "process must be a DiffusionSDE, such as .*, got NoiseSchedule"),
        (lambda f: probability_flow(f, X, process=VPSDE(), end=0.0, predicts="noise"),
         "end must be > 0 for a model that predicts 'noise'"),
        (lambda f: probability_flow(f, X, process=VPSDE(), tol=1e-9), "tol must be >= 9.5e-07 for"),
        (lambda f: probability_flow(f, X[0], process=VPSDE()), r"x must be \(n, \*shape\)"),
        (lambda f: probability_flow(f, X / 0, process=VPSDE()), "x must be finite, got nan"),
        (lambda f: probability_flow(lambda x, t: x[:, :1], X, process=VPSDE()),
         r"model must give a tensor of shape \(2, 2\), got \(2, 1\)"),
        (lambda f: log_likelihood(f, X.long(), process=VPSDE()), "levels must be given, got torch"),
        (lambda f: log_likelihood(f, X, process=VPSDE(), levels=256), "integers from 0 to 255"),
        (lambda f: log_likelihood(f, X.long() + 4, process=VPSDE(), levels=4), "integers from 0"),
        (lambda f: log_likelihood(f, X.long() * 0 - 1, process=VPSDE(), levels=4),
         "integers from 0 to 3, got torch.int64 between -1 and -1"),
        (lambda f: log_likelihood(f, (X * 0).to(torch.uint8) + 200, process=VPSDE(), levels=199),
         "integers from 0 to 198, got torch.uint8 between 200 and 200"),
        (lambda f: log_likelihood(f, X.long(), process=VPSDE(), levels=4, interval=(1.0, 1.0)),
         "must be > 0, got 0.0"),
        (lambda f: log_likelihood(f, X, process=VPSDE(), probes=1), "probes must be >= 2, got 1"),
    ],
)  # fmt: skip
def test_bad_input(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call(lambda x, t: -x)


@pytest.mark.gpu
def test_flow_and_likelihood_on_a_gpu():
    process = VPSDE()
    model, x = two(process), torch.randn(10, 2, dtype=F64)
    known = {"process": process, "start": 0.01, "tol": 1e-7}
    wanted = log_likelihood(model, x, **known)
    found = log_likelihood(model.cuda(), x.cuda(), **known)
    torch.testing.assert_close(found.log_prob.cpu(), wanted.log_prob, rtol=1e-6, atol=1e-6)
    pixels = torch.zeros(4, 2, dtype=torch.uint8, device="cuda")
    assert log_likelihood(model, pixels, process=process, levels=256).bits_per_dim.is_cuda
