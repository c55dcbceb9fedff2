"""Instruments that look at a run: at which steps, at which examples, at which parameters."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.train.fitted import fitted, network, points, sgd
from vademecum import kernels
from vademecum.train import _tracking
from vademecum.train._order import _permutation


@pytest.fixture
def seen(monkeypatch) -> list[tuple[int, Any, Any]]:
    """Steps, batches and parts that an instrument called "spy" was shown."""
    found: list[tuple[int, Any, Any]] = []

    def spy(training: Any, batch: Any, part: Any) -> float:
        found.append((training.step, batch, part))
        return 0.0

    monkeypatch.setitem(_tracking.INSTRUMENTS, "spy", spy)
    return found


@pytest.mark.parametrize(
    ("every", "steps", "expected"), [(2, 5, [0, 2, 4, 5]), (None, 16, [0, 7, 14, 16])]
)
def test_every_so_many_steps_and_after_the_last(every, steps, expected, seen):
    run = fitted(track=("spy",), track_every=every, steps=steps)  # 7 steps an epoch
    assert [step for step, *_ in seen] == expected
    marked = (run.history["track.spy"] == 0).nonzero()[:, 0] + 1
    assert marked.tolist() == expected[1:]  # what was found before the first step has no line


def test_the_first_examples_of_the_first_epoch(seen):
    x, y = points(300)
    fitted(data=(x, y), track=("spy",), track_every=3, steps=3, seed=5)
    first = _permutation(300, 5, 0)[:256]
    for _, batch, part in seen:
        assert batch[0].equal(x[first])
        assert batch[1].equal(y[first])
        assert part.examples.equal(first)


def test_kernels_of_a_few_examples(monkeypatch):
    x, y = points(300)
    given, known = [], kernels.empirical_ntk

    def spy(model: Any, x: Tensor, **options: Any) -> Any:
        given.append(x)
        return known(model, x, **options)

    monkeypatch.setattr(kernels, "empirical_ntk", spy)
    fitted(data=(x, y), track=("ntk_drift",), track_every=3, steps=3)
    assert all(one.equal(x[_permutation(300, 0, 0)[:32]]) for one in given)
    assert len(given) == 2


class Bowl(nn.Module):
    """A loss a^2 / 2 + 5 b^2 / 2 for batches that are a tensor."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    def losses(self, batch: Tensor) -> dict[str, Tensor]:
        assert isinstance(batch, Tensor)
        loss = self.a.square().sum() / 2 + 5 * self.b.square().sum() / 2
        return {"model": loss + 0 * batch.sum()}


@pytest.mark.parametrize(("frozen", "expected"), [(False, 5.0), (True, 1.0)])
def test_curvature_is_that_of_the_parameters_that_may_move(frozen, expected):
    bowl = Bowl()
    bowl.b.requires_grad_(not frozen)
    run = fitted(bowl, torch.ones(6), optimizer=sgd, track=("sharpness",), track_every=1, steps=1)
    assert float(run.history["track.sharpness"][0]) == pytest.approx(expected, rel=1e-3)


def test_curvature_needs_one_player():
    class Two(Bowl):
        def losses(self, batch: Tensor) -> dict[str, Tensor]:
            return {"one": self.a.square().sum(), "other": self.b.square().sum()}

        def players(self) -> dict[str, list[Tensor]]:
            return {"one": [self.a], "other": [self.b]}

    with pytest.raises(ValueError, match="must not have sharpness where there are several players"):
        fitted(Two(), torch.ones(6), optimizer=sgd, track=("sharpness",), steps=1)


def test_steps_between_looks_are_at_least_one():
    with pytest.raises(ValueError, match=r"track_every must be .*1.*, got 0"):
        fitted(network(), track=("sharpness",), track_every=0)
