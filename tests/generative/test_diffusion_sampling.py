"""DDPM and DDIM with exact predictors against recursions of variances, for every count of steps."""

# pyright: reportArgumentType=false

import math

import pytest
import torch
from torch import nn

from tests.generative.exact_gaussians import chain_variance, exact
from vademecum.generative import (
    ConditionalMLP,
    MixtureScore,
    NoiseSchedule,
    ddim_sample,
    ddpm_sample,
)
from vademecum.generative.diffusion._step_lists import step_list

V0 = 0.25
ONE = torch.ones(1, 1, dtype=torch.float64)


def test_the_list_of_steps_begins_with_T_and_each_step_leads_to_the_next_entry():
    for T in (1, 2, 7, 20, 1000):
        for count in range(1, T + 1) if T < 100 else (1, 13, 21, 50, 333, 999, 1000):
            steps = step_list(count, T)
            assert len(steps) == count
            assert steps[0] == T
            assert steps[-1] >= 1
            gaps = [a - b for a, b in zip(steps, [*steps[1:], 0], strict=True)]
            assert min(gaps) >= T // count
            assert max(gaps) <= -(-T // count)


def test_steps_are_the_nearest_to_even_ones():
    assert step_list(3, 10) == [10, 7, 3]
    assert step_list(13, 1000)[-3:] == [231, 154, 77]


def test_eta_is_the_share_of_the_deviation_of_new_noise():
    schedule, seen = NoiseSchedule([0.5, 0.2]), []  # alpha_bar 0.5 and 0.4

    def silent(x, t):
        seen.append(x)
        return 0 * x

    dice = [torch.Generator().manual_seed(7) for _ in range(2)]
    ddim_sample(silent, (1, 1), schedule=schedule, steps=2, eta=0.3, start=ONE, generator=dice[0])
    z = float(torch.randn(1, 1, dtype=torch.float64, generator=dice[1]))
    tilde = 0.5 / 0.6 * (1 - 0.4 / 0.5)
    wanted = (0.5 / 0.4) ** 0.5 + 0.3 * tilde**0.5 * z
    assert float(seen[1]) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("predicts", ["noise", "x0", "v", "score"])
def test_ddim_follows_the_recursion_for_every_count_of_steps(predicts):
    """diffusers steps to t - T // steps, which is no entry of its own list for uneven counts."""
    schedule = NoiseSchedule.linear(60)
    model = exact(schedule, V0, predicts=predicts)
    for count in range(1, 61):
        found = ddim_sample(model, (1, 1), schedule=schedule, steps=count, start=ONE)
        wanted = chain_variance(schedule, step_list(count, 60), V0)
        assert float(found) ** 2 == pytest.approx(wanted, rel=1e-9), count


@pytest.mark.parametrize("count", [13, 21, 50, 333, 1000])
def test_ddim_visits_the_last_step_of_a_thousand(count):
    """diffusers begins 50 of 1,000 steps at 980 by default, where there are data left."""
    schedule, seen = NoiseSchedule.linear(1000), []
    model = exact(schedule, V0)

    def spy(x, t):
        seen.append(int(t[0]))
        return model(x, t)

    found = ddim_sample(spy, (1, 1), schedule=schedule, steps=count, start=ONE)
    assert seen[0] == 1000
    assert seen == step_list(count, 1000)
    assert float(found) ** 2 == pytest.approx(chain_variance(schedule, seen, V0), rel=1e-9)


def _moments(draws: torch.Tensor, variance: float) -> None:
    n = draws.numel()
    assert float(draws.mean().abs()) < 5 * math.sqrt(variance / n)
    assert float(draws.var()) == pytest.approx(variance, rel=5 * math.sqrt(2 / n))


@pytest.mark.parametrize("steps", [1, 2, 13, 21, 40])
@pytest.mark.parametrize("added", ["small", "large"])
def test_ddpm_follows_the_recursion(steps, added):
    schedule, dice = NoiseSchedule.linear(40), torch.Generator().manual_seed(steps)
    model = MixtureScore(torch.ones(1), torch.zeros(1, 1), torch.tensor([V0]), process=schedule)
    draws = ddpm_sample(
        model, (40_000, 1), schedule=schedule, steps=steps, variance=added, generator=dice
    )
    kind = "eta" if added == "small" else "large"
    _moments(draws, chain_variance(schedule, step_list(steps, 40), V0, eta=1.0, added=kind))


@pytest.mark.parametrize("eta", [0.3, 1.0])
def test_ddim_with_noise_follows_the_recursion(eta):
    schedule, dice = NoiseSchedule.cosine(100), torch.Generator().manual_seed(0)
    model = MixtureScore(torch.ones(1), torch.zeros(1, 1), torch.tensor([V0]), process=schedule)
    draws = ddim_sample(model, (40_000, 1), schedule=schedule, steps=21, eta=eta, generator=dice)
    _moments(draws, chain_variance(schedule, step_list(21, 100), V0, eta=eta))


def test_a_table_of_true_variances_gives_back_the_data():
    schedule, dice = NoiseSchedule.linear(30), torch.Generator().manual_seed(1)
    v = schedule.alpha_bar * 4.0 + schedule.beta_bar
    table = torch.cat([v[:1] * 0, schedule.betas[1:] * v[:-1] / v[1:]])
    model = exact(schedule, 4.0)
    start = v[-1].sqrt() * torch.randn(20_000, 1, dtype=torch.float64, generator=dice)
    draws = ddpm_sample(
        _fast(schedule, 4.0), start.shape, schedule=schedule, variance=table, start=start,
        generator=dice,
    )  # fmt: skip
    _moments(draws, 4.0)
    x, t = torch.randn(3, 1), torch.tensor([1, 7, 30])
    torch.testing.assert_close(_fast(schedule, 4.0)(x, t), model(x, t))


def _fast(schedule, v0):
    return MixtureScore(torch.ones(1), torch.zeros(1, 1), torch.tensor([v0]), process=schedule)


def test_all_predictions_and_samplers_agree_in_shape_dtype_and_value():
    schedule, start = NoiseSchedule.linear(25), torch.randn(3, 2, 4)
    results = [
        ddim_sample(
            exact(schedule, V0, 0.7, predicts=kind), (3, 2, 4), schedule=schedule, steps=6,
            start=start,
        )
        for kind in ("noise", "x0", "v", "score")
    ]  # fmt: skip
    for found in results:
        assert found.shape == (3, 2, 4)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, results[0], rtol=1e-4, atol=1e-4)


def test_the_ancestral_sampler_is_ddim_with_all_its_noise():
    schedule, model = NoiseSchedule.linear(30), exact(NoiseSchedule.linear(30), V0)
    draws = [
        draw(model, (4, 2), schedule=schedule, generator=torch.Generator().manual_seed(2), **knobs)
        for draw, knobs in ((ddpm_sample, {"steps": 7}), (ddim_sample, {"steps": 7, "eta": 1.0}))
    ]
    torch.testing.assert_close(*draws)


def test_learned_variances_lie_between_the_small_and_the_large():
    schedule = NoiseSchedule.linear(30)
    inner = exact(schedule, V0)
    knobs = {"schedule": schedule, "steps": 9, "start": torch.ones(5, 2)}
    for raw, kind in ((-1.0, "small"), (1.0, "large")):

        def model(x, t, raw=raw):
            return torch.cat([inner(x, t), torch.full_like(x, raw)], 1)

        dice = [torch.Generator().manual_seed(3) for _ in range(2)]
        found = ddpm_sample(model, (5, 2), variance="learned", generator=dice[0], **knobs)
        wanted = ddpm_sample(inner, (5, 2), variance=kind, generator=dice[1], **knobs)
        torch.testing.assert_close(found, wanted)


def test_clipping_cuts_the_clean_prediction_and_keeps_the_noise_that_belongs_to_it():
    schedule = NoiseSchedule([0.5, 0.5])
    found = ddim_sample(lambda x, t: 0 * x - 2, (1, 1), schedule=schedule, steps=2, clip=1.0,
                        start=ONE)  # fmt: skip
    # x0 = (1 + 2 sqrt(3/4)) / (1/2) is cut to 1; the noise is (1 - 1/2) / sqrt(3/4), and so on
    noise = 0.5 / 0.75**0.5
    x = 0.5**0.5 + 0.5**0.5 * noise
    guess = min((x + 2 * 0.5**0.5) / 0.5**0.5, 1.0)
    assert float(found) == pytest.approx(guess)
    loose = ddim_sample(
        exact(schedule, V0), (1, 1), schedule=schedule, steps=2, clip=1e6, start=ONE
    )
    plain = ddim_sample(exact(schedule, V0), (1, 1), schedule=schedule, steps=2, start=ONE)
    torch.testing.assert_close(loose, plain)


class Labelled(nn.Module):
    """A prediction that is the label, or minus one without."""

    def __init__(self, null=None):
        super().__init__()
        self.null, self.calls, self.scale = null, [], nn.Parameter(torch.ones(()))

    def forward(self, x, t, context=None):
        self.calls.append((len(x), self.training))
        label = torch.full(x.shape[:1], -1.0) if context is None else context.to(x)
        return label[:, None].expand_as(x) * self.scale


@pytest.mark.parametrize(("null", "calls"), [(None, 2), (-1, 1)])
def test_guidance_goes_beyond_the_context_in_one_call_or_two(null, calls):
    schedule, model, w = NoiseSchedule([0.5]), Labelled(null), 1.5
    context = torch.tensor([0, 2, 5])
    found = ddim_sample(model, (3, 1), schedule=schedule, steps=1, start=torch.zeros(3, 1),
                        context=context, guidance=w)  # fmt: skip
    noise = (1 + w) * context + w
    torch.testing.assert_close(
        found[:, 0], -noise.float()
    )  # x0 = (0 - sqrt(1/2) noise) / sqrt(1/2)
    assert len(model.calls) == calls
    assert not any(training for _, training in model.calls)
    assert model.training
    assert not found.requires_grad
    for w, prediction in ((0.0, context.float()), (-1.0, -torch.ones(3))):
        found = ddim_sample(model, (3, 1), schedule=schedule, steps=1, start=torch.zeros(3, 1),
                            context=context, guidance=w)  # fmt: skip
        torch.testing.assert_close(found[:, 0], -prediction)


def test_guidance_moves_the_prediction_and_not_the_learned_variance():
    def model(x, t, context=None):
        label = -torch.ones(3) if context is None else context.float()
        return torch.stack([label, torch.zeros(3)], 1)

    found = ddpm_sample(model, (3, 1), schedule=NoiseSchedule([0.5]), variance="learned",
                        start=torch.zeros(3, 1), context=torch.arange(3), guidance=1.5)  # fmt: skip
    torch.testing.assert_close(found[:, 0], -(2.5 * torch.arange(3) + 1.5))


def test_a_model_that_answers_with_its_own_input_or_keeps_it_is_not_overwritten():
    schedule, kept = NoiseSchedule([0.5, 0.5, 0.5]), []

    def model(x, t):
        kept.append(x)
        return x

    start = torch.ones(2, 1)
    ddim_sample(model, (2, 1), schedule=schedule, steps=3, start=start)
    assert start.equal(torch.ones(2, 1))
    assert kept[0].equal(start)
    assert not kept[1].equal(start)


def test_zero_terminal_snr_needs_x0_or_v():
    schedule = NoiseSchedule.linear(40, zero_terminal_snr=True)
    for kind in ("x0", "v"):
        for count in (1, 5, 40):
            found = ddim_sample(exact(schedule, V0, 0.5, predicts=kind), (1, 1), schedule=schedule,
                                steps=count, start=ONE)  # fmt: skip
            assert bool(found.isfinite())
    assert float(found) == pytest.approx(0.5 + V0**0.5, abs=0.05)
    for kind in ("noise", "score"):
        with pytest.raises(ValueError, match="predicts must be 'x0' or 'v' where the last step"):
            ddim_sample(exact(schedule, V0, predicts=kind), (1, 1), schedule=schedule, steps=3)


def test_the_same_steps_as_diffusers_give_the_same_samples():
    diffusers = pytest.importorskip("diffusers")
    theirs = diffusers.DDIMScheduler(
        num_train_timesteps=1000, beta_start=1e-4, beta_end=0.02, clip_sample=False,
        set_alpha_to_one=True, timestep_spacing="trailing",
    )  # fmt: skip
    theirs.set_timesteps(50)
    schedule = NoiseSchedule.linear(1000)
    model = exact(schedule, V0, 0.3)
    start = torch.randn(4, 3)
    x = start
    for t in theirs.timesteps:
        x = theirs.step(model(x, (t + 1).expand(4)), t, x).prev_sample
    steps = [int(t) + 1 for t in theirs.timesteps]
    assert steps == step_list(50, 1000)
    found = ddim_sample(model, (4, 3), schedule=schedule, steps=steps, start=start)
    torch.testing.assert_close(found, x, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_a_captured_graph_gives_what_plain_steps_give(eta):
    schedule = NoiseSchedule.linear(100)
    model = ConditionalMLP(3, hidden=(32, 32), classes=4, horizon=100).cuda()
    labels = torch.tensor([0, 1, 2, 3], device="cuda")
    knobs = {"schedule": schedule, "steps": 13, "context": labels, "guidance": 1.0, "eta": eta}
    draws = [
        ddim_sample(model, (4, 3), cuda_graph=graph, generator=_dice(), **knobs)
        for graph in (False, True, True)
    ]
    for found in draws[1:]:
        torch.testing.assert_close(found, draws[0], rtol=1e-4, atol=1e-4)
    two = ConditionalMLP(3, hidden=(32,), out=6, horizon=100).cuda()
    draws = [
        ddpm_sample(two, (4, 3), schedule=schedule, variance="learned", clip=1.0, cuda_graph=graph,
                    generator=_dice())
        for graph in (False, True)
    ]  # fmt: skip
    torch.testing.assert_close(*draws, rtol=1e-4, atol=1e-4)


def _dice():
    return torch.Generator("cuda").manual_seed(0)
