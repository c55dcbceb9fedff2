"""The page on samplers: its error is a distance, and its data are what it says."""

import itertools

import pytest
import torch

from bench.generative_samplers import N, error, in_few_steps, mixture, quantiles
from vademecum.generative import NoiseSchedule, ddim_sample


def test_the_error_is_the_wasserstein_distance_of_samples_from_the_mixture():
    x = mixture(NoiseSchedule([0.5])).sample(N, generator=torch.Generator().manual_seed(0))
    assert error(x) < 0.02
    assert error(x + 0.7) == pytest.approx(0.7, abs=0.02)


def test_lines_of_few_steps_are_samplers_of_their_own():
    found = {(entry.sampler, entry.steps): entry.error for entry in in_few_steps()}
    assert len(found) == 18
    for steps in (20, 50):
        second = found["DDIM, second order, quadratic steps, linear", steps]
        assert second < found["DDIM, quadratic steps, linear", steps] / 5


def test_more_steps_halve_the_error():
    schedule, start = NoiseSchedule.linear(100), quantiles(2000)
    model = mixture(schedule)
    errors = [
        error(ddim_sample(model, start.shape, schedule=schedule, steps=k, start=start))
        for k in (10, 20, 40)
    ]
    for a, b in itertools.pairwise(errors):
        assert a / b == pytest.approx(2.0, abs=0.4)
