"""Learning rates: the formula of the module, step by step."""

import math

import pytest
import torch

from tests.train.fitted import assert_same, fitted, sgd

SHAPES = {
    None: lambda u: 1.0,
    "constant": lambda u: 1.0,
    "linear": lambda u: 1 - u,
    "cosine": lambda u: math.cos(math.pi * u / 2) ** 2,
}


@pytest.mark.parametrize("schedule", SHAPES)
@pytest.mark.parametrize(
    ("warmup", "cooldown"), [(0, 0), (4, 0), (0, 5), (3, 2), (1, 1), (0.25, 0.4)]
)
def test_factors(schedule, warmup, cooldown):
    T = 20
    w = warmup * T if warmup < 1 else warmup
    c = cooldown * T if cooldown < 1 else cooldown
    run = fitted(optimizer=sgd, steps=T, schedule=schedule, warmup=warmup, cooldown=cooldown)
    for t, rate in enumerate(run.history["rate"].tolist()):
        rising = 1.0 if t + 1 >= w else (t + 1) / w
        falling = 1.0 if T - t >= c else (T - t) / c
        shape = SHAPES[schedule](max(0.0, (t - w) / (T - w)))
        assert rate == pytest.approx(0.1 * rising * falling * shape, rel=1e-12)


def test_a_cosine_is_that_of_torch():
    run = fitted(optimizer=sgd, steps=15, schedule="cosine")
    other = fitted(
        optimizer=sgd,
        steps=15,
        schedule=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=15),
    )
    assert run.history["rate"].tolist() == pytest.approx(other.history["rate"].tolist())


def test_groups_keep_their_ratio():
    rates = []

    def make(parameters):
        weights = [p for name, p in parameters if name.endswith("weight")]
        others = [p for name, p in parameters if not name.endswith("weight")]
        made = torch.optim.SGD([{"params": weights, "lr": 0.2}, {"params": others}], lr=0.1)
        made.register_step_pre_hook(lambda o, *_: rates.append([g["lr"] for g in o.param_groups]))
        return made

    fitted(optimizer=make, steps=8, schedule="linear", warmup=3)
    assert all(one == pytest.approx(2 * other) for one, other in rates)
    assert rates[0] == pytest.approx([0.2 / 3, 0.1 / 3])


def test_a_warm_up_by_share_rises_slowly_until_the_number_of_steps_is_known(monkeypatch):
    from vademecum.train import _looks as looks

    clock = iter(range(10**6))
    monkeypatch.setattr(looks, "monotonic", lambda: next(clock) / 4)
    run = fitted(optimizer=sgd, minutes=1.0, warmup=0.5, schedule="linear", epochs=None)
    rates = run.history["rate"].tolist()
    assert rates[49] == pytest.approx(0.1 * 50 / 1000)
    assert rates[51] == pytest.approx(0.1 * 52 / (run.steps / 2))
    assert max(rates) == pytest.approx(0.1, rel=0.05)


def test_a_constant_schedule_changes_nothing():
    assert_same(fitted(), fitted(schedule="constant"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"schedule": "step"},
            "schedule must be one of 'constant', 'linear', 'cosine', got 'step'",
        ),
        ({"warmup": -1}, "warmup must be >= 0, got -1"),
        ({"cooldown": math.nan}, "cooldown must be"),
        (
            {"schedule": lambda o: torch.optim.lr_scheduler.StepLR(o, 3), "warmup": 2},
            "warmup and cooldown must be 0 where schedule is a function, .* got 2 and 0",
        ),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        fitted(**options)
