"""What samplers of a diffusion refuse, and how."""

# pyright: reportArgumentType=false

import math
import re

import pytest
import torch

from tests.generative.exact_gaussians import exact
from vademecum.generative import DDPM, ConditionalMLP, NoiseSchedule, ddim_sample, ddpm_sample

SCHEDULE = NoiseSchedule([0.2] * 5)
KNOBS = {"schedule": SCHEDULE, "steps": 2}


def plain(x, t, context=None):
    return 0 * x


REFUSED = {
    "steps must be <= 5, the steps of the schedule, got 6": {"steps": 6},
    "steps must be >= 1, got 0": {"steps": 0},
    "steps must be an integer, got 2.0": {"steps": 2.0},
    "steps must begin with T = 5, where all is noise, got [4, 1]": {"steps": [4, 1]},
    "steps must fall from one to the next": {"steps": [5, 3, 3]},
    "steps must be an integer or a list of them, got a Tensor of shape (2,)": {
        "steps": torch.tensor([5, 3])
    },
    "eta must be <= 1": {"eta": 1.5},
    "eta must be >= 0": {"eta": -0.5},
    "clip must be > 0": {"clip": 0.0},
    "context must be given where there is guidance": {"guidance": 1.0},
    "context must have 3 rows": {"context": torch.zeros(2)},
    "start must have the shape (3, 2)": {"start": torch.zeros(3, 1)},
    "start must be finite": {"start": torch.full((3, 2), math.nan)},
    "predicts must be one of": {"predicts": "epsilon"},
    "schedule must be a NoiseSchedule": {"schedule": [0.1]},
    "shape must be positive integers": {"shape": (3, 0)},
    "cuda_graph must be False where samples are on the cpu": {"cuda_graph": True},
    "model must give the shape (3, 2), got (3, 1)": {"model": lambda x, t: x[:, :1]},
    "model must give a tensor, got tuple": {"model": lambda x, t: (x,)},
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message, unchecked):
    knobs = KNOBS | REFUSED[message]
    model, shape = knobs.pop("model", plain), knobs.pop("shape", (3, 2))
    with pytest.raises(ValueError, match=re.escape(message)):
        ddim_sample(model, shape, **knobs)


def test_refusals_of_the_ancestral_sampler(unchecked):
    with pytest.raises(ValueError, match="steps must be all 5 where variance is a table, got 2"):
        ddpm_sample(plain, (3, 2), variance=torch.ones(6), **KNOBS)
    with pytest.raises(ValueError, match="variance must have 6 entries >= 0"):
        ddpm_sample(plain, (3, 2), variance=torch.ones(5), schedule=SCHEDULE)
    with pytest.raises(ValueError, match="variance must be one of"):
        ddpm_sample(plain, (3, 2), variance="medium", **KNOBS)
    model = exact(SCHEDULE, 1.0, predicts="x0")
    with pytest.raises(ValueError, match="predicts must be 'x0', as the model says, got 'noise'"):
        ddpm_sample(model, (3, 2), predicts="noise", **KNOBS)


@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_contexts_of_other_examples_are_refused_in_training(drop):
    model = DDPM(ConditionalMLP(2, hidden=(4,), classes=3), (2,), schedule=SCHEDULE, drop=drop)
    with pytest.raises(ValueError, match="context must have 3 rows, one for each example, got 2"):
        model.loss(torch.ones(3, 2), torch.tensor([0, 1]))
