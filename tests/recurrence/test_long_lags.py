"""Tasks with long lags: their targets, and the losses of answers that ignore the input."""

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from vademecum.recurrence import adding_task, copying_task, latch_task

TASKS: Any = (latch_task, adding_task, copying_task)


def test_latch_task():
    x, y, loss = latch_task(500, 9, distractors=3.0)
    assert x.shape == (500, 9, 2)
    assert x[:, 0, 0].equal(y[:, 0])
    assert set(y.flatten().tolist()) == {-1.0, 1.0}
    assert x[:, :, 1].sum(1).equal(torch.ones(500))
    assert F.mse_loss(torch.zeros_like(y), y).item() == loss == 1
    assert abs(x[:, 1:, 0].std().item() - 3) < 5 * 3 / math.sqrt(2 * 4000)
    assert abs(x[:, 0, 0].mean().item()) < 5 / math.sqrt(500)
    assert not latch_task(5, 9, distractors=0).x[:, 1:].any()


@pytest.mark.parametrize("T", [2, 3, 10])
def test_adding_task(T):
    x, y, loss = adding_task(4000, T)
    values, marks = x.unbind(2)
    assert torch.allclose((values * marks).sum(1, keepdim=True), y)
    assert marks[:, : T // 2].sum(1).equal(torch.ones(4000))
    assert marks[:, T // 2 :].sum(1).equal(torch.ones(4000))
    assert marks.any(0).all(), "some place is never marked"
    squares = (y - 1).square()  # variance of the sum of two uniform numbers: 2 / 12
    assert loss == 1 / 6
    assert abs(squares.mean().item() - loss) < 5 * squares.std().item() / math.sqrt(4000)
    assert values.min() >= 0
    assert values.max() <= 1


@pytest.mark.parametrize("T", [1, 2, 30])
def test_copying_task(T):
    x, y, loss = copying_task(300, T)
    shown = x.argmax(2)
    assert x.shape == (300, T + 20, 10)
    assert x.sum(2).equal(torch.ones(300, T + 20))
    assert shown[:, :10].equal(y[:, T + 10 :])
    assert shown[:, :10].unique().tolist() == list(range(8))
    assert (y[:, : T + 10] == 8).all()
    assert (shown[:, T + 9] == 9).all(), "the bell rings T steps after the last letter"
    assert (shown[:, 10 : T + 9] == 8).all()
    assert (shown[:, T + 10 :] == 8).all()
    logits = torch.full((300, T + 20, 10), -math.inf)
    logits[:, : T + 10, 8] = 0
    logits[:, T + 10 :, :8] = 0
    assert F.cross_entropy(logits.flatten(0, 1), y.flatten()).item() == pytest.approx(loss)


@pytest.mark.parametrize("task", TASKS)
def test_precision_and_place(task):
    generator = torch.Generator().manual_seed(3)
    x, y, _ = task(4, 6, generator=generator, dtype=torch.float64)
    assert x.dtype == torch.float64
    assert y.dtype == (torch.int64 if task is copying_task else torch.float64)
    again = task(4, 6, generator=generator.manual_seed(3), dtype=torch.float64)
    assert x.equal(again.x)
    assert task(4, 6, generator=generator, device="meta").x.device.type == "meta"
    assert "\n" not in repr(again)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: latch_task(0, 5), "n must be >= 1, got 0"),
        (lambda: latch_task(2, 0), "T must be >= 1, got 0"),
        (lambda: latch_task(2, 5, distractors=-1), "distractors must be >= 0, got -1"),
        (lambda: adding_task(2, 1), "T must be >= 2, got 1"),
        (lambda: copying_task(2, 0), "T must be >= 1, got 0"),
        (lambda: copying_task(2.5, 3), "n must be an integer, got 2.5"),  # type: ignore[arg-type]
        (lambda: adding_task(2, 5, dtype=torch.int64), "dtype must be floating point"),
    ],
)
def test_bad_input(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()
