"""From noise to data, step by step: what samplers have in common.

What a step does is a row of numbers that were computed beforehand in float64; examples in half
precision are moved in single precision, where what is divided by a small signal does not overflow.
On CUDA devices one step can be captured as a graph, which reads its row by a counter on the device,
and replayed.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import choice, floats, number
from vademecum.generative._marginals import Predicts
from vademecum.generative.diffusion._predictors import Predictor
from vademecum.generative.diffusion._step_lists import clean_weights, leans, moves
from vademecum.generative.diffusion.noise_schedules import NoiseSchedule
from vademecum.models import Replay
from vademecum.progress import ticking
from vademecum.randomness import source

__all__ = ["Variance", "Walk", "normal_like", "planned", "start_of", "variance_table", "walked"]

Variance = Literal["small", "large", "learned"]


class Walk(NamedTuple):
    """A list of steps and what each of them does."""

    steps: list[int]
    """The steps that are visited."""
    rows: Tensor
    """For each: the factors of x and of the prediction; of both in the clean example; of the clean
    and the noisy example; of the noise; the logarithms of the small and the large variance; the
    factor of the clean example of the step before."""
    clip: float | None
    """What entries of the clean example are cut to."""
    learned: bool
    """Whether the second half of the prediction tells the variance."""
    order: int
    """2 where a step reads the clean example of the step before, else 1."""


def planned(
    schedule: NoiseSchedule,
    steps: list[int],
    predicts: Predicts,
    *,
    eta: float,
    variance: Variance | Tensor,
    clip: float | None,
    order: int = 1,
) -> Walk:
    """The rows of a walk."""
    if clip is not None:
        clip = number("clip", clip, above=0)
    learned, move = False, moves(schedule, steps, eta)
    p, q = clean_weights(schedule, steps, predicts)
    spread = move.small
    if isinstance(variance, Tensor):
        spread = variance_table(variance, schedule.T)[torch.tensor(steps)]
        if len(steps) < schedule.T:
            raise ValueError(
                f"steps must be all {schedule.T} where variance is a table, got {len(steps)}"
            )
    else:
        learned = choice("variance", variance, ("small", "large", "learned")) == "learned"
        spread = move.large if variance == "large" else spread
        spread = torch.ones_like(spread) if learned else spread
        spread[-1] = 0  # the last step gives the mean
    low = torch.cat([move.small[:-1], move.large[-1:]]).log()
    past = -move.clean * leans(schedule, steps) if order == 2 else torch.zeros_like(low)
    columns = (move.clean * p + move.noisy, move.clean * q, p, q, move.clean - past, move.noisy)
    rows = torch.stack([*columns, spread.sqrt(), low, move.large.log(), past], 1)
    return Walk(steps, rows, clip, learned, order)


def variance_table(variance: Tensor, T: int) -> Tensor:
    """Variances of the steps back as an argument: one for each t from 0 to T."""
    table = floats("variance", variance.detach(), ndim=1).to("cpu", torch.float64)
    if len(table) != T + 1 or bool((table < 0).any()):
        raise ValueError(
            f"variance must have {T + 1} entries >= 0, one for each t from 0 to {T}, got"
            f" {len(table)} from {float(table.min()):g} on"
        )
    return table


def start_of(
    model: Any, shape: Any, start: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    """Where a walk begins: what is given, or noise in the dtype and place of the model."""
    shape = tuple(shape)
    if not shape or any(not isinstance(s, int) or s < 1 for s in shape):
        raise ValueError(f"shape must be positive integers, the first the examples, got {shape}")
    if start is not None:
        if tuple(start.shape) != shape:
            raise ValueError(f"start must have the shape {shape}, got {tuple(start.shape)}")
        return floats("start", start)
    tensors = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
    like = next((v for v in tensors if v.is_floating_point()), None)
    if like is None:
        return torch.randn(shape, **source(generator, None))
    return normal_like(like.detach(), shape, generator)


def normal_like(like: Tensor, shape: Any, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers in the dtype and place of a tensor."""
    drawn = torch.randn(shape, dtype=like.dtype, **source(generator, like.device))
    return drawn.to(like.device)


def walked(
    predict: Predictor,
    x: Tensor,
    walk: Walk,
    *,
    generator: torch.Generator | None,
    cuda_graph: bool,
    progress: bool,
) -> Tensor:
    """The examples at the end of a walk."""
    random, before = walk.rows[:, 6].tolist(), None
    with ticking("steps", len(walk.steps), progress=progress) as tick:
        if cuda_graph:
            x, noise = x.clone(), torch.zeros_like(x)
            take = _captured(predict, x, noise, walk)
            for amplitude in random:
                if amplitude:
                    noise.copy_(normal_like(x, x.shape, generator))
                take()
                tick(1)
            return x
        times = torch.tensor(walk.steps, device=x.device)[:, None].expand(-1, len(x)).unbind()
        for t, row, amplitude in zip(times, walk.rows.tolist(), random, strict=True):
            out = predict(x, t)
            noise = normal_like(x, x.shape, generator) if amplitude else None
            if walk.order == 2 and before is None:
                before = torch.zeros_like(out, dtype=_single(x))
            x = _moved(x, out, row, noise, before, walk)
            tick(1)
    return x


def _captured(predict: Predictor, x: Tensor, noise: Tensor, walk: Walk) -> Replay:
    if not x.is_cuda:
        raise ValueError(f"cuda_graph must be False where samples are on the {x.device.type}")
    count, i = len(walk.steps), torch.zeros(1, dtype=torch.long, device=x.device)
    times, rows = torch.tensor(walk.steps, device=x.device), walk.rows.to(x.device, _single(x))
    some = bool(walk.rows[:, 6].any())
    before = torch.zeros_like(x, dtype=_single(x)) if walk.order == 2 else None

    def step() -> None:
        now = i % count  # a capture runs ahead
        row = list(rows.index_select(0, now)[0].unbind())
        out = predict(x, times.index_select(0, now).expand(len(x)))
        x.copy_(_moved(x, out, row, noise if some else None, before, walk))
        i.add_(1)

    return Replay(step, [x, i] if before is None else [x, i, before])


def _moved(
    x: Tensor, out: Tensor, row: list[Any], noise: Tensor | None, before: Tensor | None, walk: Walk
) -> Tensor:
    """One step, with the numbers of its row: Python's, or tensors of one entry.

    The clean example is left in `before`, for the next step of a second order.
    """
    own, other, p, q, clean, noisy, amplitude, low, high, past = row
    given, raw = x.dtype, None
    if x.element_size() < 4:
        x, out = x.float(), out.float()
    if walk.learned:
        out, raw = out.chunk(2, 1)
    if walk.clip is None and before is None:
        new = _plus(other * out, own, x)
    else:
        guess = _plus(q * out, p, x)
        guess = guess if walk.clip is None else guess.clamp_(-walk.clip, walk.clip)
        new = _plus(clean * guess, noisy, x)
        if before is not None:
            new = _plus(new, past, before)
            before.copy_(guess)
    if noise is not None and raw is not None:
        share = (raw + 1) / 2
        noise = noise * ((share * high + (1 - share) * low) / 2).exp()
    new = new if noise is None else _plus(new, amplitude, noise)
    return new if new.dtype == given else new.to(given)


def _single(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _plus(a: Tensor, factor: Any, b: Tensor) -> Tensor:
    """The sum of a and a multiple of b, in the place of a, which nobody else holds.

    It comes from a prediction, which has all axes that `vmap` gives to networks; b may have fewer.
    """
    return a.add_(b, alpha=factor) if isinstance(factor, float) else a.add_(factor * b)
