"""DDIM with few steps: where they lie, and the second order, against paths that are known."""

# pyright: reportArgumentType=false

import itertools
import math

import pytest
import torch

from tests.generative.exact_gaussians import exact
from vademecum.generative import (
    DDPM,
    ConditionalMLP,
    MixtureScore,
    NoiseSchedule,
    ddim_sample,
)
from vademecum.generative.diffusion._step_lists import spaced, step_list

WEIGHTS, MEANS, STDS = (
    torch.tensor(v, dtype=torch.float64)
    for v in ((0.3, 0.5, 0.2), (-1.5, 0.2, 1.4), (0.3, 0.35, 0.25))
)
UNEVEN = [40, 33, 31, 18, 17, 9, 4, 1]


def by_level(T: int, span: float) -> NoiseSchedule:
    """A schedule whose log-SNR falls evenly from span to -span."""
    bar = torch.special.expit(2 * torch.linspace(span, -span, T, dtype=torch.float64))
    before = torch.cat([bar.new_ones(1), bar[:-1]])
    return NoiseSchedule(1 - bar / before)


@pytest.mark.parametrize("schedule", [
    NoiseSchedule.linear(), NoiseSchedule.cosine(), NoiseSchedule.cosine(50), NoiseSchedule([0.3]),
    NoiseSchedule.linear(40, zero_terminal_snr=True), NoiseSchedule([0.9, 1e-3, 1e-3, 1e-3, 0.9]),
])  # fmt: skip
@pytest.mark.parametrize("spacing", ["quadratic", "snr"])
def test_every_spacing_falls_from_T_for_every_count(schedule, spacing):
    T = schedule.T
    for count in range(1, T + 1) if T < 100 else (1, 2, 13, 50, 333, 999, 1000):
        steps = spaced(count, schedule, spacing)
        assert len(steps) == count
        assert steps[0] == T
        assert steps[-1] >= 1
        assert all(a > b for a, b in itertools.pairwise(steps))


def test_spacings_are_what_they_say():
    schedule = NoiseSchedule.linear(1000)
    assert spaced(50, schedule, "even") == step_list(50, 1000)
    assert spaced([1000, 3], schedule, "even") == [1000, 3]
    assert spaced(10, schedule, "quadratic") == [10 * i * i for i in range(10, 0, -1)]
    assert spaced(50, schedule, "quadratic")[-4:] == [6, 4, 2, 1]
    assert spaced(6, by_level(101, 3.0), "snr") == [101, 81, 61, 41, 21, 1]
    steps = torch.tensor(spaced(20, schedule, "snr"))
    bar = schedule.alpha_bar[steps]
    level = (bar / (1 - bar)).log()
    assert int(steps[-1]) == 1
    even = torch.linspace(float(level[0]), float(level[-1]), 20, dtype=torch.float64)
    nearest = (schedule.alpha_bar / schedule.beta_bar).log()[1:].diff().abs()
    assert bool(((level - even).abs() <= nearest[steps.clamp(max=999) - 1]).all())


def test_where_all_is_noise_at_T_levels_are_even_from_the_next_one_on():
    betas = by_level(101, 3.0).betas[1:].tolist()
    schedule = NoiseSchedule([*betas, 0.5])
    schedule.alpha_bar[-1], schedule.beta_bar[-1] = 0, 1
    assert spaced(6, schedule, "snr") == [102, 81, 61, 41, 21, 1]


def _by_the_paper(schedule, steps, model, x, *, eta=0.0, clip=None, noise=(), anew=0):
    """DPM-Solver++(2M), and with eta = 1 its SDE variant, line by line in float64.

    At one step it may begin anew, without a prediction from before.
    """
    alpha = [math.sqrt(v) for v in schedule.alpha_bar.tolist()]
    sigma = [math.sqrt(1 - v) for v in schedule.alpha_bar.tolist()]
    past, last = None, math.nan
    for i, (t, s) in enumerate(zip(steps, [*steps[1:], 0], strict=True)):
        guess = model(x, torch.full((len(x),), t))
        guess = guess if clip is None else guess.clamp(-clip, clip)
        h = math.log(alpha[s] / sigma[s]) - math.log(alpha[t] / sigma[t]) if s else math.inf
        D = guess
        if past is not None and s and t != anew:
            r = last / h
            D = (1 + 1 / (2 * r)) * guess - 1 / (2 * r) * past
        if eta:
            x = sigma[s] / sigma[t] * math.exp(-h) * x + alpha[s] * (1 - math.exp(-2 * h)) * D
            x = x + sigma[s] * math.sqrt(1 - math.exp(-2 * h)) * noise[i]
        else:
            x = sigma[s] / sigma[t] * x - alpha[s] * math.expm1(-h) * D
        past, last = guess, h
    return x


@pytest.mark.parametrize("predicts", ["noise", "x0", "v", "score"])
@pytest.mark.parametrize("eta", [0.0, 1.0])
@pytest.mark.parametrize("clip", [None, 0.8])
def test_the_second_order_is_the_recursion_of_the_paper(predicts, eta, clip):
    schedule, dice = NoiseSchedule.linear(40), [torch.Generator().manual_seed(5) for _ in range(2)]
    law = WEIGHTS, MEANS[:, None].expand(3, 2) * torch.tensor([1.0, -0.6]), STDS.square()
    ideal = {kind: MixtureScore(*law, process=schedule, predicts=kind) for kind in (predicts, "x0")}
    start = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = ddim_sample(ideal[predicts], (6, 2), schedule=schedule, steps=UNEVEN, order=2, eta=eta,
                        clip=clip, start=start, generator=dice[0])  # fmt: skip
    noise = [torch.randn(6, 2, dtype=torch.float64, generator=dice[1]) for _ in UNEVEN]
    wanted = _by_the_paper(schedule, UNEVEN, ideal["x0"], start, eta=eta, clip=clip, noise=noise)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("tiny", [1e-300, 1e-20, 1e-16, 1e-13, 1e-8])
@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_after_a_step_without_length_the_second_order_begins_anew(tiny, place):
    """Two predictions at one level are no line: their difference is rounding, or nothing."""
    betas, start = [0.1, 0.2, 0.15, 0.3], torch.randn(5, 2, dtype=torch.float64)
    schedule = NoiseSchedule([*betas[:place], tiny, *betas[place:]])
    found = ddim_sample(exact(schedule, 0.3, 0.4), (5, 2), schedule=schedule, steps=5, order=2,
                        start=start)  # fmt: skip
    plain = NoiseSchedule(betas)
    ideal = exact(plain, 0.3, 0.4, predicts="x0")
    wanted = _by_the_paper(plain, [4, 3, 2, 1], ideal, start, anew=place)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9 + 10 * tiny)


def test_the_error_falls_as_the_steps_and_as_their_square():
    """On a line the path without noise keeps the share of the law to its left, at every t."""
    schedule = by_level(1025, 3.0)
    model = MixtureScore(WEIGHTS, MEANS[:, None], STDS.square(), process=schedule)

    def share(x, t):
        scale, std = schedule.marginal(t)
        spread = (scale**2 * STDS.square() + std**2).sqrt()
        return (WEIGHTS * torch.special.ndtr((x - scale * MEANS) / spread)).sum(1)

    start = torch.linspace(-2, 2, 41, dtype=torch.float64)[:, None]
    counts, errors = (16, 32, 64, 128, 256), {1: [], 2: []}
    for order, count in itertools.product((1, 2), counts):
        seen = []

        def spy(x, t, seen=seen):
            seen.append(x)
            return model(x, t)

        steps = list(range(1025, 0, -1024 // count))
        ddim_sample(spy, (41, 1), schedule=schedule, steps=steps, order=order, start=start)
        errors[order].append(float((share(seen[-1], 1) - share(start, 1025)).abs().max()))
    for order, found in errors.items():
        rate = [math.log2(a / b) for a, b in itertools.pairwise(found)]
        assert rate[-2:] == pytest.approx([order, order], abs=0.15), rate


@pytest.mark.parametrize("eta", [0.5, 1.0])
def test_with_new_noise_variances_come_near_as_the_steps_and_as_their_square(eta):
    """Of normal data a sample is a sum of the noise of all steps, whose factors draws reveal."""
    schedule, v0, n = by_level(513, 3.0), 0.25, 160
    wanted = float(schedule.alpha_bar[1] * v0 + schedule.beta_bar[1])
    begun = float(schedule.alpha_bar[513] * v0 + schedule.beta_bar[513])
    model, errors = exact(schedule, v0), {1: [], 2: []}
    for order, count in itertools.product((1, 2), (16, 32, 64, 128)):
        seen, (one, two) = [], (torch.Generator().manual_seed(7) for _ in range(2))
        noise = torch.randn(count + 1, n, 1, dtype=torch.float64, generator=two)

        def spy(x, t, seen=seen):
            seen.append(x)
            return model(x, t)

        steps = list(range(513, 0, -512 // count))
        start = torch.randn(n, 1, dtype=torch.float64, generator=one)
        ddim_sample(spy, (n, 1), schedule=schedule, steps=steps, order=order, eta=eta, start=start,
                    generator=one)  # fmt: skip
        factors = torch.linalg.lstsq(noise[:, :, 0].T, seen[-1]).solution.square()
        found = float(factors[0] * begun + factors[1:].sum())
        errors[order].append(abs(found / wanted - 1))
    for order, found in errors.items():
        rate = [math.log2(a / b) for a, b in itertools.pairwise(found)]
        assert rate[-1] == pytest.approx(order, abs=0.15), rate


def test_the_second_order_is_nearer_to_the_data_with_the_same_calls():
    """Of normal data the path is a straight stretch, and the last steps end where the data are."""
    schedule, v0 = NoiseSchedule.linear(1000), 0.04
    v = schedule.alpha_bar * v0 + schedule.beta_bar
    wanted = float((v0 / v[-1]).sqrt())
    far, calls = {}, []  # observed: 0.13, 0.056; 0.044, 0.0056; 0.049, 0.0010

    def counted(x, t):
        calls.append(t)
        return exact(schedule, v0)(x, t)

    one = torch.ones(1, 1, dtype=torch.float64)
    for spacing, order in itertools.product(("even", "quadratic", "snr"), (1, 2)):
        found = ddim_sample(counted, (1, 1), schedule=schedule, steps=50, spacing=spacing,
                            order=order, start=one)  # fmt: skip
        far[spacing, order] = abs(float(found) / wanted - 1)
    assert len(calls) == 6 * 50
    for spacing in ("quadratic", "snr"):
        assert far[spacing, 2] < far[spacing, 1] / 5
        assert far[spacing, 2] < far["even", 2] / 4


@pytest.mark.parametrize("steps", [1, 2])
def test_one_or_two_steps_are_of_the_first_order(steps):
    schedule, start = NoiseSchedule.linear(30), torch.randn(5, 2, dtype=torch.float64)
    model = exact(schedule, 0.3, 0.4)
    draws = [
        ddim_sample(model, (5, 2), schedule=schedule, steps=steps, order=order, start=start)
        for order in (1, 2)
    ]
    torch.testing.assert_close(*draws)


@pytest.mark.parametrize("kind", ["x0", "v"])
def test_zero_terminal_snr_has_a_first_step_without_length(kind):
    schedule = NoiseSchedule.linear(40, zero_terminal_snr=True)
    one = torch.ones(1, 1, dtype=torch.float64)
    for spacing, steps in itertools.product(("even", "quadratic", "snr"), (2, 3, 20)):
        found = ddim_sample(exact(schedule, 0.25, 0.5, predicts=kind), (1, 1), schedule=schedule,
                            steps=steps, spacing=spacing, order=2, start=one)  # fmt: skip
        assert bool(found.isfinite())
        if steps == 20:
            assert float(found) == pytest.approx(1.0, abs=0.03)


def test_a_guided_model_samples_as_the_function_of_the_sampler_does():
    torch.manual_seed(0)
    net = ConditionalMLP(2, hidden=(16,), classes=3, horizon=60)
    model = DDPM(net, (2,), schedule=NoiseSchedule.linear(60), drop=0.1)
    labels, knobs = torch.tensor([0, 1, 2]), {"spacing": "quadratic", "order": 2, "eta": 0.3}
    dice = [torch.Generator().manual_seed(0) for _ in range(3)]
    found = model.sample(3, labels, steps=9, guidance=1.0, generator=dice[0], **knobs)
    common = {"schedule": model.schedule, "context": labels, "guidance": 1.0}
    listed = spaced(9, model.schedule, "quadratic")
    for g, steps in zip(dice[1:], ({"steps": 9, "spacing": "quadratic"}, {"steps": listed}),
                        strict=True):  # fmt: skip
        wanted = ddim_sample(model, (3, 2), order=2, eta=0.3, generator=g, **common, **steps)
        torch.testing.assert_close(found, wanted)


def test_refusals_of_spacing_and_order(unchecked):
    schedule = NoiseSchedule([0.2] * 5)
    table = {
        "spacing must be one of": {"spacing": "karras"},
        "spacing must be 'even' where steps are a list, got 'snr'": {
            "spacing": "snr",
            "steps": [5],
        },
        "schedule must leave some signal at every step but T, got none at 1500": {
            "schedule": NoiseSchedule([0.5] * 2000),
            "steps": 4,
            "predicts": "x0",
        },
        "order must be 1 or 2, got 3": {"order": 3},
        "order must be >= 1, got 0": {"order": 0},
        "order must be an integer, got 2.0": {"order": 2.0},
    }
    for message, knobs in table.items():
        with pytest.raises(ValueError, match=message):
            ddim_sample(lambda x, t: x, (3, 2), **({"schedule": schedule, "steps": 2} | knobs))
    model = DDPM(ConditionalMLP(2, hidden=(4,)), (2,), schedule=schedule)
    for knobs in ({"order": 2}, {"spacing": "snr"}, {"eta": 0.5}):
        with pytest.raises(ValueError, match="steps must be given for spacing, order and eta, got"):
            model.sample(3, **knobs)


@pytest.mark.gpu
@pytest.mark.parametrize("eta", [0.0, 0.3])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_captured_graph_keeps_the_prediction_of_the_step_before(eta, clip):
    torch.manual_seed(0)
    model = ConditionalMLP(3, hidden=(32, 32), classes=4, horizon=100).cuda()
    labels = torch.tensor([0, 1, 2, 3], device="cuda")
    knobs = {"schedule": NoiseSchedule.linear(100), "steps": 13, "spacing": "snr", "order": 2,
             "context": labels, "guidance": 1.0, "eta": eta, "clip": clip}  # fmt: skip
    draws = [
        ddim_sample(model, (4, 3), cuda_graph=graph,
                    generator=torch.Generator("cuda").manual_seed(0), **knobs)
        for graph in (False, True, True)
    ]  # fmt: skip
    for found in draws[1:]:
        torch.testing.assert_close(found, draws[0], rtol=1e-4, atol=1e-4)
