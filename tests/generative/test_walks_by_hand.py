"""Steps of samplers: some new noise with the second order, half precision, mapped networks."""

# pyright: reportArgumentType=false

import itertools
import math

import pytest
import torch

from vademecum.generative import ConditionalMLP, NoiseSchedule, ddim_sample, ddpm_sample

STEPS = [30, 24, 23, 11, 5, 2]


def bend(x, t):
    """Noise that a network might predict, curved in x and in t."""
    return torch.tanh(x * (0.3 + 0.02 * t[:, None].to(x))) + 0.1 * x


def moved(schedule, t, s, x, out, *, eta, clip, before):
    """The line of DDIM's paper, for a clean example from a line through two in the log-SNR."""
    bar = schedule.alpha_bar.tolist()
    level = [math.inf, *(math.log(b / (1 - b)) / 2 for b in bar[1:])]
    clean = (x - math.sqrt(1 - bar[t]) * out) / math.sqrt(bar[t])
    middle = clean = clean if clip is None else clean.clamp(-clip, clip)
    if before is not None and s:
        rise = (clean - before[1]) / (level[t] - level[before[0]])
        middle = clean + rise * (level[s] - level[t]) / 2
    sigma = eta * math.sqrt((1 - bar[s]) / (1 - bar[t]) * (1 - bar[t] / bar[s]))
    noise = (x - math.sqrt(bar[t]) * middle) / math.sqrt(1 - bar[t])
    new = math.sqrt(bar[s]) * middle + math.sqrt(1 - bar[s] - sigma**2) * noise
    return new, sigma, (t, clean)


@pytest.mark.parametrize("eta", [0.3, 0.8])
@pytest.mark.parametrize("clip", [None, 0.9])
def test_the_second_order_with_some_noise_is_ddim_of_the_middle_of_a_step(eta, clip):
    schedule, before = NoiseSchedule.linear(30), None
    dice = [torch.Generator().manual_seed(3) for _ in range(2)]
    x = start = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = ddim_sample(bend, (4, 2), schedule=schedule, steps=STEPS, order=2, eta=eta, clip=clip,
                        start=start, generator=dice[0])  # fmt: skip
    for t, s in itertools.pairwise([*STEPS, 0]):
        out = bend(x, torch.full((4,), t))
        x, sigma, before = moved(schedule, t, s, x, out, eta=eta, clip=clip, before=before)
        if s:
            x = x + sigma * torch.randn(4, 2, dtype=torch.float64, generator=dice[1])
    torch.testing.assert_close(found, x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("clip", [None, 2.0])
def test_half_precision_does_not_overflow_where_there_is_little_signal(order, clip):
    """Of data that are all 0 nothing is left, and examples are 20,000 times the signal at T."""
    schedule = NoiseSchedule.cosine()
    start = torch.linspace(-4, 4, 9, dtype=torch.float16)[:, None]
    assert float(4 / schedule.alpha_bar[-1].sqrt()) > torch.finfo(torch.float16).max
    found = ddim_sample(lambda x, t: x, (9, 1), schedule=schedule, steps=[1000, 999, 500],
                        order=order, clip=clip, start=start)  # fmt: skip
    wanted = ddim_sample(lambda x, t: x, (9, 1), schedule=schedule, steps=[1000, 999, 500],
                         order=order, clip=clip, start=start.double())  # fmt: skip
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=0.02)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("clip", [None, 0.9])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_step_in_half_precision_rounds_its_result_alone(order, clip, dtype):
    """Each step is that in double precision of the same examples and predictions, rounded once."""
    schedule, seen, outs = NoiseSchedule.linear(30), [], []

    def model(x, t):
        seen.append(x.double())
        outs.append(bend(x, t))
        return outs[-1]

    start = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    end = ddim_sample(model, (50, 2), schedule=schedule, steps=STEPS, order=order, clip=clip,
                      start=start)  # fmt: skip
    before, half = None, torch.finfo(dtype).eps / 2
    for i, (t, s) in enumerate(itertools.pairwise([*STEPS, 0])):
        wanted, _, past = moved(schedule, t, s, seen[i], outs[i].double(), eta=0.0, clip=clip,
                                before=before)  # fmt: skip
        before = past if order == 2 else None
        found = [*seen, end.double()][i + 1]
        torch.testing.assert_close(found, wanted, rtol=1.01 * half, atol=1e-5)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_mapped_over_networks_as_one_after_the_other(order, clip):
    schedule, start = NoiseSchedule.linear(30), torch.linspace(-1, 1, 8).view(4, 2)

    def draw(a):
        return ddim_sample(lambda x, t: torch.tanh(a * x), (4, 2), schedule=schedule, steps=4,
                           order=order, clip=clip, start=start)  # fmt: skip

    weights = torch.tensor([0.2, 0.9, 1.7])
    wanted = torch.stack([draw(a) for a in weights])
    torch.testing.assert_close(torch.func.vmap(draw)(weights), wanted)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_neither_the_start_nor_what_a_network_returned_is_written_to(order, clip):
    schedule, start = NoiseSchedule.linear(30), torch.linspace(-1, 1, 8).view(4, 2)
    kept, given, copies = start.clone(), [], []

    def model(x, t):
        for tensor in (x, bend(x, t)):
            given.append(tensor)
            copies.append(tensor.clone())
        return given[-1]

    ddim_sample(model, (4, 2), schedule=schedule, steps=6, order=order, clip=clip, eta=0.5,
                start=start)  # fmt: skip
    assert torch.equal(start, kept)
    assert len(given) == 12
    assert all(torch.equal(a, b) for a, b in zip(given, copies, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("order", [1, 2])
def test_a_captured_graph_in_half_precision(dtype, order):
    torch.manual_seed(0)
    model = ConditionalMLP(3, hidden=(32, 32), horizon=100).to("cuda", dtype)
    knobs = {"schedule": NoiseSchedule.linear(100), "clip": 1.0}
    start = torch.randn(4, 3, device="cuda").to(dtype)
    for sampler, more in ((ddim_sample, {"steps": 13, "order": order}), (ddpm_sample, {})):
        draws = [
            sampler(model, (4, 3), start=start, cuda_graph=graph,
                    generator=torch.Generator("cuda").manual_seed(0), **knobs, **more)
            for graph in (False, True)
        ]  # fmt: skip
        torch.testing.assert_close(*draws, rtol=0.05, atol=0.05)
