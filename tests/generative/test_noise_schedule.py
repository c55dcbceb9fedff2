"""Schedules of noise: tables against plain loops and exact fractions, and what is refused."""

import math
import re
import subprocess
import sys
from fractions import Fraction

import pytest
import torch

from vademecum.generative import NoiseSchedule

SCHEDULES = {
    "linear": lambda: NoiseSchedule.linear(1000),
    "short": lambda: NoiseSchedule.linear(7, first=0.01, last=0.4),
    "cosine": lambda: NoiseSchedule.cosine(300),
    "tiny": lambda: NoiseSchedule([1e-12] * 5),
    "random": lambda: NoiseSchedule(torch.rand(40, dtype=torch.float64) * 0.9 + 0.01),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_tables_are_those_of_exact_fractions(name):
    schedule = SCHEDULES[name]()
    betas = [Fraction(b) for b in schedule.betas.tolist()]
    assert len(betas) - 1 == schedule.T
    assert betas[0] == 0
    bar = [Fraction(1)]
    for beta in betas[1:]:
        product = bar[-1] * (1 - beta)
        bar.append(Fraction(round(product * 2**1200), 2**1200))
    assert schedule.alpha_bar[0] == 1
    assert schedule.beta_bar[0] == 0
    for t in range(1, schedule.T + 1):
        tilde = (1 - bar[t - 1]) / (1 - bar[t]) * betas[t]
        wanted = {"alpha_bar": bar[t], "beta_bar": 1 - bar[t], "beta_tilde": tilde}
        for table, value in wanted.items():
            found = float(getattr(schedule, table)[t])
            assert found == pytest.approx(float(value), rel=1e-12), (table, t)
        assert float(schedule.alphas[t]) == pytest.approx(float(1 - betas[t]), rel=1e-15)
    assert all(v.dtype == torch.float64 for v in (schedule.betas, schedule.alpha_bar))


def test_linear_betas_are_those_of_ho_et_al_and_keep_the_noise_for_other_lengths():
    torch.testing.assert_close(
        NoiseSchedule.linear(1000).betas[1:], torch.linspace(1e-4, 0.02, 1000).double(),
        rtol=1e-5, atol=0,
    )  # fmt: skip
    for T in (100, 250, 4000):
        left = float(NoiseSchedule.linear(T).alpha_bar[-1])
        assert math.log(left) == pytest.approx(-10.1, abs=1.2)
    plain = NoiseSchedule.linear(50, first=1e-4, last=0.02).betas[1:]
    assert plain[0] == 1e-4
    assert plain[-1] == 0.02


def test_the_cosine_follows_its_formula_until_the_last_beta_is_cut():
    T, o = 50, 0.008
    schedule = NoiseSchedule.cosine(T)
    f = [math.cos((t / T + o) / (1 + o) * math.pi / 2) ** 2 for t in range(T + 1)]
    for t in range(1, T):
        assert float(schedule.alpha_bar[t]) == pytest.approx(f[t] / f[0], rel=1e-9)
    assert float(schedule.betas[T]) == 0.999


def test_zero_terminal_snr_moves_the_ends_of_the_roots_alone():
    plain, rescaled = NoiseSchedule.linear(30), NoiseSchedule.linear(30, zero_terminal_snr=True)
    assert rescaled.alpha_bar[-1] == 0
    assert rescaled.beta_bar[-1] == 1
    assert float(rescaled.betas[-1]) == 1
    assert float(rescaled.alpha_bar[1]) == pytest.approx(float(plain.alpha_bar[1]), rel=1e-14)
    old, new = plain.alpha_bar.sqrt()[1:], rescaled.alpha_bar.sqrt()[1:]
    slope = (new[1:] - new[:-1]) / (old[1:] - old[:-1])
    torch.testing.assert_close(slope, slope[:1].expand_as(slope), rtol=1e-9, atol=0)
    torch.testing.assert_close(rescaled.alpha_bar + rescaled.beta_bar, torch.ones(31).double())
    product = (1 - rescaled.betas[1:]).cumprod(0)
    torch.testing.assert_close(product, rescaled.alpha_bar[1:], rtol=1e-11, atol=1e-15)
    assert NoiseSchedule.cosine(9, zero_terminal_snr=True).alpha_bar[-1] == 0


def test_steps_in_a_row_are_the_marginal():
    schedule = SCHEDULES["random"]()
    scale, variance = 1.0, 0.0
    for t in range(1, schedule.T + 1):
        step = schedule.transition(t)
        scale, variance = scale * float(step.scale), variance * float(step.scale) ** 2
        variance += float(step.std) ** 2
        found = schedule.marginal(t)
        assert float(found.scale) == pytest.approx(scale, rel=1e-12)
        assert float(found.std) ** 2 == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noised_takes_a_step_for_each_example(dtype):
    schedule = NoiseSchedule([0.19, 0.5, 0.75])  # alpha_bar 0.81, 0.405, 0.10125
    x0, noise = torch.randn(4, 2, 3, dtype=dtype), torch.randn(4, 2, 3, dtype=dtype)
    found = schedule.noised(x0, torch.tensor([0, 1, 2, 3]), noise)
    assert found.dtype == dtype
    for i, bar in enumerate([1.0, 0.81, 0.405, 0.10125]):
        torch.testing.assert_close(found[i], bar**0.5 * x0[i] + (1 - bar) ** 0.5 * noise[i])


def test_posterior_is_the_conditional_of_the_joint_law():
    schedule = NoiseSchedule([0.1, 0.2, 0.3])
    x0, xt = torch.tensor([[0.7]]).double(), torch.tensor([[-0.4]]).double()
    found = schedule.posterior(x0, xt, torch.tensor([3]))
    assert float(found.mean) == pytest.approx(0.170333, abs=1e-6)
    assert float(found.variance) == pytest.approx(0.169355, abs=1e-6)
    x0, xt = torch.randn(3, 2).double(), torch.randn(3, 2).double()
    found = schedule.posterior(x0, xt, torch.tensor([1, 2, 3]))
    assert found.variance.shape == (3, 1)
    for i, t in enumerate((1, 2, 3)):
        a, noise = schedule.alpha_bar[t - 1], schedule.beta_bar[t - 1]
        # x_{t-1} ~ N(sqrt(a) x0, noise), x_t = sqrt(alpha) x_{t-1} + sqrt(beta) z
        alpha, beta = 1 - schedule.betas[t], schedule.betas[t]
        gain = alpha.sqrt() * noise / (alpha * noise + beta)
        mean = a.sqrt() * x0[i] + gain * (xt[i] - alpha.sqrt() * a.sqrt() * x0[i])
        torch.testing.assert_close(found.mean[i], mean)
        left = noise - gain * alpha.sqrt() * noise
        torch.testing.assert_close(found.variance[i, 0], left, rtol=1e-9, atol=1e-15)


REFUSED = {
    "entries of betas must be > 0 and < 1, got 1.0 at (1,)": lambda: NoiseSchedule([0.5, 1.0]),
    "entries of betas must be > 0 and < 1, got 0.0 at (0,)": lambda: NoiseSchedule([0.0, 0.5]),
    "entries of betas must be > 0 and < 1, got -0.1 at (2,)": lambda: NoiseSchedule(
        [0.1, 0.2, -0.1]
    ),
    "betas must be finite": lambda: NoiseSchedule([0.1, math.nan]),
    "betas must not be empty": lambda: NoiseSchedule([]),
    "betas must have 1 axes": lambda: NoiseSchedule(torch.rand(2, 2)),
    "betas must be floating point": lambda: NoiseSchedule(torch.tensor([1, 0])),
    "betas must be two or more": lambda: NoiseSchedule([0.3], zero_terminal_snr=True),
    "last must be given where T <= 20": lambda: NoiseSchedule.linear(20),
    "first must be > 0": lambda: NoiseSchedule.linear(100, first=0.0),
    "last must be < 1": lambda: NoiseSchedule.linear(100, last=1.0),
    "T must be >= 1": lambda: NoiseSchedule.cosine(0),
    "t must be from 0 to 3, got 4": lambda: NoiseSchedule([0.1] * 3).marginal(4),
    "t must be from 0 to 3, got -1": lambda: NoiseSchedule([0.1] * 3).marginal(torch.tensor([-1])),
    "t must be integers from 0 to 3": lambda: NoiseSchedule([0.1] * 3).marginal(torch.ones(1)),
    "t must be >= 1, got 0": lambda: NoiseSchedule([0.1] * 3).posterior(
        torch.ones(1, 1), torch.ones(1, 1), torch.tensor([0])
    ),
    "t must be 2 integers, one for each example": lambda: NoiseSchedule([0.1] * 3).noised(
        torch.ones(2, 1), torch.tensor([1]), torch.ones(2, 1)
    ),
    "noise must have the shape (2, 1)": lambda: NoiseSchedule([0.1] * 3).noised(
        torch.ones(2, 1), torch.tensor([1, 1]), torch.ones(2, 2)
    ),
    "xt must have the shape (1, 1)": lambda: NoiseSchedule([0.1] * 3).posterior(
        torch.ones(1, 1), torch.ones(1, 3), torch.tensor([1])
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message, unchecked):
    with pytest.raises(ValueError, match=re.escape(message)):
        REFUSED[message]()


def test_steps_may_be_bytes_and_tables_longer_than_they_count():
    schedule, x = NoiseSchedule.linear(300), torch.randn(2, 3)
    t = torch.tensor([1, 255])
    for found, wanted in zip(
        schedule.posterior(x, 2 * x, t.to(torch.uint8)),
        schedule.posterior(x, 2 * x, t),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("call", [
    "marginal(torch.tensor([-1], device='cuda'))", "marginal(torch.tensor([4], device='cuda'))",
    "posterior(x, x, torch.tensor([0], device='cuda'))",
    "posterior(x, x, torch.tensor([0], device='cuda', dtype=torch.uint8))",
])  # fmt: skip
def test_steps_outside_the_table_stop_the_program_on_a_device(call):
    """In a program of its own, since nothing runs on the device after that."""
    lines = (
        "import torch", "from vademecum.generative import NoiseSchedule",
        "x, schedule = torch.ones(1, 1, device='cuda'), NoiseSchedule([0.1, 0.2, 0.3])",
        "schedule.marginal(torch.tensor([0, 3], device='cuda'))", "torch.cuda.synchronize()",
        "print('so far so good')", f"schedule.{call}", "torch.cuda.synchronize()",
    )  # fmt: skip
    found = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert found.stdout == "so far so good\n", found.stderr
    assert found.returncode
    assert "assert" in found.stderr


@pytest.mark.gpu
def test_tables_follow_the_steps_to_the_device():
    schedule = NoiseSchedule.linear(100)
    t = torch.tensor([0, 50, 100], device="cuda")
    for found, wanted in zip(schedule.marginal(t), schedule.marginal(t.cpu()), strict=True):
        assert found.is_cuda
        torch.testing.assert_close(found.cpu(), wanted)
