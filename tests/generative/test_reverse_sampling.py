"""Reverse diffusion and annealed Langevin dynamics: step by step, and in law."""

# pyright: reportArgumentType=false

import math

import pytest
import torch
from torch import nn

from vademecum.generative import (
    VESDE,
    VPSDE,
    MixtureScore,
    NoiseSchedule,
    annealed_langevin,
    reverse_sde_sample,
)
from vademecum.generative._marginals import Marginal

F64 = torch.float64
PROCESSES = [VPSDE(), VESDE(sigma_min=0.05, sigma_max=8.0)]
ids = pytest.mark.parametrize("process", PROCESSES, ids=["vp", "ve"])


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(process, mean=1.0, variance=0.25, predicts="score"):
    """The exact score of a normal law on the line."""
    one = torch.ones(1, dtype=F64)
    return MixtureScore(one, mean * one[:, None], variance * one, process=process,
                        predicts=predicts)  # fmt: skip


def moments(process, steps, end, mean, variance):
    """Mean and variance that the steps of Euler and Maruyama reach from the prior, exactly."""
    last = process.marginal(torch.ones((), dtype=F64))
    m, v, h = 0.0, float(last.scale**2 + last.std**2), (1 - end) / steps
    for i in range(steps):
        t = torch.tensor(1 - i * h, dtype=F64)
        s, e = map(float, process.marginal(t))
        spread, g2 = s * s * variance + e * e, float(process.diffusion(t)) ** 2
        a = float(process.drift(torch.ones(1, 1, dtype=F64), t))
        factor = 1 - h * a - h * g2 / spread
        m, v = factor * m + h * g2 * s * mean / spread, factor**2 * v + h * g2
    return m, v


@ids
@pytest.mark.parametrize("steps", [1, 13, 200])
def test_reverse_sde_sample_follows_the_variance_recursion(process, steps):
    end, n = 0.02, 20_000
    x = reverse_sde_sample(normal(process), (n, 1), process=process, steps=steps, end=end,
                           denoise=False, generator=dice())  # fmt: skip
    mean, variance = moments(process, steps, end, 1.0, 0.25)
    assert float(x.mean()) == pytest.approx(mean, abs=5 * (variance / n) ** 0.5)
    assert float(x.var()) == pytest.approx(variance, rel=5 * (2 / n) ** 0.5)


@pytest.mark.parametrize("predicts", ["score", "noise", "x0", "v"])
def test_steps_are_those_of_the_docstring(predicts):
    process, steps, end, count, eta = VPSDE(), 3, 0.1, 2, 0.04
    model = normal(process, predicts=predicts)
    known = {"process": process, "steps": steps, "end": end, "predicts": predicts}
    found = reverse_sde_sample(model, (4, 1), corrector=count, eta=eta, generator=dice(5), **known)
    source, score = dice(5), model.score
    x = torch.randn(4, 1, dtype=F64, generator=source)
    h = (1 - end) / steps
    for i in range(steps):
        t, lower = 1 - i * h, 1 - (i + 1) * h
        beta = 0.1 + 19.9 * t
        noise = torch.randn(4, 1, dtype=F64, generator=source)
        x = x + h * beta * x / 2 + h * beta * score(x, t) + math.sqrt(h * beta) * noise
        size = eta * float(process.marginal(torch.tensor(lower, dtype=F64)).std) ** 2
        for _ in range(count):
            noise = torch.randn(4, 1, dtype=F64, generator=source)
            x = x + size * score(x, lower) + math.sqrt(2 * size) * noise
    s, e = map(float, process.marginal(torch.tensor(end, dtype=F64)))
    wanted = (x + e * e * score(x, end)) / s
    torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-7)


def test_down_to_time_zero_nothing_is_denoised_or_corrected_there():
    seen = []

    def model(x, t):
        seen.append(float(t[0]))
        return -x

    known = {"process": VPSDE(), "steps": 4, "end": 0.0}
    x = reverse_sde_sample(model, (2, 1), corrector=1, generator=dice(), **known)
    assert min(seen) == pytest.approx(0.25)
    assert x.shape == (2, 1)
    reverse_sde_sample(model, (2, 1), generator=dice(), **known | {"end": 0.2})
    assert seen[-1] == pytest.approx(0.2)  # where the noise is taken off


@ids
def test_a_mixture_comes_back(process):
    weights = torch.tensor([0.25, 0.75], dtype=F64)
    means = torch.tensor([[-1.0, 0.0], [1.0, 1.0]], dtype=F64)
    model = MixtureScore(weights, means, torch.full((2,), 0.05, dtype=F64), process=process,
                         predicts="noise")  # fmt: skip
    n = 4000
    x = reverse_sde_sample(model, (n, 2), process=process, steps=150, corrector=1,
                           predicts="noise", generator=dice())  # fmt: skip
    share = float((x[:, 0] > 0).double().mean())
    assert share == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / n) ** 0.5 + 0.01)
    assert (x[x[:, 0] > 0].var(0) - 0.05).abs().max() < 0.02


def test_context_dtype_and_state_of_the_model():
    class Conditional(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones((), dtype=F64))
            self.drop = nn.Dropout(0.5)

        def forward(self, x, t, context):
            assert t.shape == (len(x),)
            return self.drop((context[:, None] - x) * self.weight) * 4

    model = Conditional().train()
    where = torch.tensor([-5.0, 5.0], dtype=F64).repeat(50)
    x = reverse_sde_sample(model, (100, 1), process=VPSDE(), steps=200, context=where)
    assert x.dtype == F64
    assert not x.requires_grad
    assert (x[:, 0].sign() == where.sign()).all()
    assert model.training
    assert model.drop.training
    single = reverse_sde_sample(lambda x, t: -x, (2, 3), process=VPSDE(), steps=2)
    assert single.dtype == torch.float32
    half = reverse_sde_sample(lambda x, t: -x, (2, 3), process=VPSDE(), steps=2, dtype=F64)
    assert half.dtype == F64


def test_annealed_langevin_step_by_step_and_within_a_level():
    process = VESDE(sigma_min=0.1, sigma_max=3.0)
    model, levels = normal(process), torch.tensor([1.0, 0.4], dtype=F64)
    start = torch.randn(5, 1, dtype=F64, generator=dice(1))
    found = annealed_langevin(model, start, process=process, levels=levels, per_level=3, eta=0.2,
                              generator=dice(2))  # fmt: skip
    x, source = start, dice(2)
    for t in levels:
        size = 0.2 * float(process.marginal(t).std) ** 2
        for _ in range(3):
            noise = torch.randn(5, 1, dtype=F64, generator=source)
            x = x + size * model.score(x, t) + math.sqrt(2 * size) * noise
    torch.testing.assert_close(found, x)
    given = torch.tensor([0.2 * float(process.marginal(t).std) ** 2 for t in levels])
    same = annealed_langevin(model, start, process=process, levels=levels, per_level=3,
                             eta=given.double(), generator=dice(2))  # fmt: skip
    torch.testing.assert_close(same, found)
    n, size = 20_000, 0.1
    x = torch.randn(n, 1, dtype=F64, generator=dice(3))
    one = torch.tensor([0.4], dtype=F64)
    x = annealed_langevin(model, x, process=process, levels=one, per_level=100, generator=dice(4),
                          eta=torch.full((1,), size, dtype=F64))  # fmt: skip
    variance = 0.25 + float(process.marginal(one).std) ** 2
    biased = variance / (1 - size / (2 * variance))  # of the unadjusted chain, exactly
    assert float(x.var()) == pytest.approx(biased, rel=5 * (2 / n) ** 0.5)
    assert float(x.mean()) == pytest.approx(1.0, abs=5 * (biased / n) ** 0.5)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_annealed_langevin_at_the_steps_of_a_schedule(dtype):
    """By hand, with the score of a normal law that the schedule noises."""
    schedule, v0 = NoiseSchedule.linear(50), 0.25
    levels = torch.tensor([50, 20, 3], dtype=dtype)
    seen = []

    def model(x, t):
        seen.append(t)
        return -x / (schedule.alpha_bar[t] * v0 + schedule.beta_bar[t])[:, None]

    start = torch.randn(5, 2, dtype=F64, generator=dice(1))
    found = annealed_langevin(model, start, process=schedule, levels=levels, per_level=2, eta=0.2,
                              generator=dice(2))  # fmt: skip
    x, source = start, dice(2)
    for t in levels.tolist():
        noise_variance = 1 - float((1 - schedule.betas[1 : t + 1]).prod())
        size, v = 0.2 * noise_variance, (1 - noise_variance) * v0 + noise_variance
        for _ in range(2):
            noise = torch.randn(5, 2, dtype=F64, generator=source)
            x = x - size * x / v + math.sqrt(2 * size) * noise
    torch.testing.assert_close(found, x)
    assert [t.tolist() for t in seen] == [[t] * 5 for t in (50, 50, 20, 20, 3, 3)]


def test_a_score_that_is_no_number_shows_in_the_samples():
    """Steps that are not made would leave the noise of the start as if it were a sample."""
    known = {"process": VPSDE(), "levels": torch.tensor([0.5, 0.1]), "per_level": 2}
    for bad in (math.nan, math.inf):
        found = annealed_langevin(lambda x, t, bad=bad: x * bad, torch.ones(3, 2), **known)
        assert not found.isfinite().any()


@pytest.mark.parametrize(("corrector", "calls"), [(0, 6), (1, 11), (3, 21)])
def test_a_model_is_called_once_for_each_step(corrector, calls):
    """Five predictions, as many times the corrections, and once to take off what noise is left."""
    seen = []

    def model(x, t):
        seen.append(float(t[0]))
        return -x

    reverse_sde_sample(model, (2, 1), process=VPSDE(), steps=5, corrector=corrector)
    assert len(seen) == calls


class Powers:
    """A process whose deviations leave the range."""

    def marginal(self, t):
        return Marginal(torch.ones_like(t), t.square())


class Roots:
    """A process without noise at 0, and none before."""

    def marginal(self, t):
        return Marginal(torch.ones_like(t), t.sqrt())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: annealed_langevin(f, torch.ones(2, 1), process=NoiseSchedule([0.5, 0.5]),
                                     levels=torch.tensor([1, 2])), "levels must fall, got"),
        (lambda f: annealed_langevin(f, torch.ones(2, 1), process=NoiseSchedule([0.5, 0.5]),
                                     levels=torch.tensor([3, 2])), "t must be from 0 to 2, got 3"),
        (lambda f: annealed_langevin(f, torch.ones(2, 1), process=VPSDE(),
                                     levels=torch.tensor([0.5, 0.0])), "got the variance 0 at 0"),
        (lambda f: annealed_langevin(f, torch.ones(2, 1), process=Roots(),
                                     levels=torch.tensor([0.5, -1.0])),
         "noise, got the variance nan at -1"),
        (lambda f: annealed_langevin(f, torch.ones(2, 1), process=Powers(),
                                     levels=torch.tensor([1e200, 1.0], dtype=F64)),
         "noise, got the variance inf at 1e.200"),
        (lambda f: annealed_langevin(f, torch.ones(2, 1), process=VPSDE(),
                                     levels=torch.tensor([0.5, 0.5])), "levels must fall, got"),
        (lambda f: annealed_langevin(f, torch.ones(2, 1), process=VPSDE(),
                                     levels=torch.tensor([9, 4])),
         "levels must be between 0 and 1, got 9"),
        (lambda f: annealed_langevin(f, torch.ones(2, 1), process=VESDE(),
                                     levels=torch.tensor([0.5, -0.25])),
         "levels must be between 0 and 1, got -0.25"),
        (lambda f: annealed_langevin(f, torch.ones(2, 1) + 0j, process=VPSDE(),
                                     levels=torch.tensor([0.5])), "x must be real, got"),
        (lambda f: reverse_sde_sample(f, (2, 1), process=NoiseSchedule([0.5])),
         r"process must be a DiffusionSDE, such as VPSDE\(\), got NoiseSchedule"),
        (lambda f: reverse_sde_sample(f, (2, 1), process=VPSDE(), steps=0), "steps must be >= 1"),
        (lambda f: reverse_sde_sample(f, (2, 1), process=VPSDE(), end=1.0), "end must be < 1"),
        (lambda f: reverse_sde_sample(f, (2,), process=VPSDE()), r"shape must be \(n, \*shape"),
        (lambda f: reverse_sde_sample(f, (2, 1), process=VPSDE(), predicts="x"), "predicts must"),
        (lambda f: reverse_sde_sample(f, (2, 1), process=VPSDE(), corrector=-1), "corrector must"),
        (lambda f: reverse_sde_sample(lambda x, t: 0.0, (2, 1), process=VPSDE()),
         "model must give a tensor of shape"),
        (lambda f: annealed_langevin(f, torch.ones(2, 1), process=VPSDE(),
                                     levels=torch.tensor([0.1, 0.2])), "levels must fall, got"),
        (lambda f: annealed_langevin(f, torch.ones(2, 1), process=VPSDE(), eta=0.0,
                                     levels=torch.tensor([0.2, 0.1])), "eta must be > 0"),
        (lambda f: annealed_langevin(f, torch.ones(2, 1), process=VPSDE(), eta=torch.ones(3),
                                     levels=torch.tensor([0.2, 0.1])), "eta must be 2 positive"),
        (lambda f: annealed_langevin(f, torch.ones(2, 1), process=3,
                                     levels=torch.tensor([0.2, 0.1])), r"process must have marg"),
    ],
)  # fmt: skip
def test_bad_input(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call(lambda x, t: -x)


@pytest.mark.gpu
def test_sampling_on_a_gpu():
    process = VPSDE()
    model = normal(process)
    known = {"process": process, "steps": 20, "corrector": 1}
    wanted = reverse_sde_sample(model, (5, 1), generator=dice(), **known)
    found = reverse_sde_sample(model.cuda(), (5, 1), generator=dice(), **known)
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), wanted)
