"""Evaluations and instruments leave no trace; averages, best weights, patience and the pace."""

import json
import math
from typing import Any

import pytest
import torch
from torch import nn

from tests.train.fitted import adam, assert_same, fitted, network, points, sgd, weights
from vademecum.train import Supervised, draw_run
from vademecum.train import _looks as looks


def disturbing(objective: nn.Module) -> dict[str, float]:
    """An evaluation that draws random numbers, and would change what it finds."""
    assert not any(module.training for module in objective.modules())
    assert not torch.is_grad_enabled()
    torch.manual_seed(7)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*points(9)), shuffle=True)
    return {"seen": float(len(list(loader))), "drawn": float(torch.rand(()))}


@pytest.mark.parametrize("every", [1, 5])
def test_evaluations_leave_training_as_it_is(every):
    plain = fitted(average=0.9)
    looked = fitted(average=0.9, evaluate=disturbing, evaluate_every=every)
    assert_same(plain, looked)
    assert looked.scores["seen"] == 9
    drawn = looked.history["score.drawn"]
    assert drawn[~drawn.isnan()].unique().numel() == 1  # the same random numbers each time
    when = looked.history["step"][~drawn.isnan()].tolist()
    assert when == [s for s in range(1, 13) if s % every == 0 or s == 12]


def test_instruments_leave_training_as_it_is():
    plain = fitted()
    tracked = fitted(track=("sharpness", "ntk_drift"), track_every=4)
    assert_same(plain, tracked)
    drift = tracked.history["track.ntk_drift"]
    assert (~drift.isnan()).nonzero().flatten().tolist() == [3, 7, 11]
    assert 0 < float(drift[3]) < float(drift[11])


def test_an_instrument_that_draws_leaves_training_as_it_is(monkeypatch):
    from vademecum.train import _tracking

    monkeypatch.setitem(_tracking.INSTRUMENTS, "drawn", lambda *_: float(torch.rand(())))
    tracked = fitted(track=("drawn",), track_every=1)
    assert_same(fitted(), tracked)
    assert tracked.history["track.drawn"].unique().numel() == 1


def test_the_sharpness_is_that_of_the_instrument():
    from vademecum.optimization import sharpness

    data = points(20)  # all of which are seen
    run = fitted(network(dropout=0.0), data, track=("sharpness",), track_every=12)
    found = sharpness(run.objective, data[0], data[1], loss=nn.functional.cross_entropy)
    assert float(run.history["track.sharpness"][-1]) == pytest.approx(found.value, rel=1e-3)


def test_the_sharpness_of_a_loss_with_a_count():
    def summed(z: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(z, y, reduction="sum"), len(y)

    one = fitted(track=("sharpness",), track_every=12)
    other = fitted(Supervised(network().model, summed), track=("sharpness",), track_every=12)
    values = [float(run.history["track.sharpness"][-1]) for run in (one, other)]
    assert values[0] == pytest.approx(values[1], rel=1e-3)


def test_what_instruments_refuse():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(()))

        def losses(self, batch):
            return {"model": (self.w - batch).square().mean()}

    with pytest.raises(ValueError, match=r"ntk_drift for objectives with a model .* got Bare"):
        fitted(Bare(), torch.ones(4), track=("ntk_drift",))
    with pytest.raises(ValueError, match="track must be one of 'sharpness', 'ntk_drift', got 'x'"):
        fitted(track=("x",))


# Averages, the best, patience


def test_the_average_is_seen_by_evaluations_and_stays_in_the_end():
    seen = []

    def evaluate(objective: nn.Module) -> dict[str, float]:
        seen.append(torch.cat([p.detach().flatten() for p in objective.parameters()]))
        return {}

    run = fitted(optimizer=sgd, average="uniform", evaluate=evaluate, evaluate_every=1, steps=5)
    iterates = []
    for steps in range(1, 6):  # the same run, shorter
        other = fitted(optimizer=sgd, steps=steps)
        iterates.append(torch.cat([p.detach().flatten() for p in other.objective.parameters()]))
    for t, mean in enumerate(seen, 1):
        assert torch.allclose(mean, torch.stack(iterates[:t]).mean(0), atol=1e-6)
    assert torch.allclose(weights(run).float(), torch.stack(iterates).mean(0), atol=1e-6)


def test_the_exponential_average_has_the_decay_that_was_asked_for():
    run = fitted(optimizer=sgd, average=0.5, steps=3)
    one, two, three = (weights(fitted(optimizer=sgd, steps=s)) for s in (1, 2, 3))
    expected = 0.25 * one + 0.25 * two + 0.5 * three
    assert torch.allclose(weights(run), expected, atol=1e-6)


def scripted(values: list[float]) -> Any:
    given = iter(values)
    return lambda objective: {"value": next(given)}


@pytest.mark.parametrize("maximize", [False, True])
def test_patience_ends_training_with_the_best_weights(maximize):
    values = [3.0, 1.0, 2.0, math.nan, 0.5]
    run = fitted(
        evaluate=scripted([-v for v in values] if maximize else values), evaluate_every=2,
        score="value", maximize=maximize, patience=2,
    )  # fmt: skip
    assert (run.stopped, run.steps, run.best) == ("patience", 8, -1.0 if maximize else 1.0)
    assert weights(run).equal(weights(fitted(steps=4)))


def test_patience_without_any_score_that_is_a_number_keeps_the_last_weights():
    run = fitted(evaluate=scripted([math.nan] * 3), evaluate_every=1, score="value", patience=3)
    assert (run.stopped, run.steps, run.best) == ("patience", 3, None)
    assert weights(run).equal(weights(fitted(steps=3)))


def test_without_patience_the_best_score_is_known_and_the_last_weights_stay():
    run = fitted(evaluate=scripted([3.0, 1.0, 2.0]), evaluate_every=4, score="value")
    assert (run.stopped, run.best, run.scores) == ("finished", 1.0, {"value": 2.0})
    assert_same(run, fitted())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"evaluate": lambda o: {"a": 1.0}, "score": "b"},
            "one of what evaluate gives, a, got 'b'",
        ),
        ({"score": "a"}, "evaluate must be given where there is a score, got 'a' alone"),
        ({"patience": 3}, "score must be given where there is patience, got 3 alone"),
        ({"evaluate": lambda o: 1.0}, "evaluate must give numbers by name, got float"),
        ({"evaluate": lambda o: {}, "evaluate_every": 0}, "evaluate_every must be >= 1, got 0"),
        ({"average": 1.0}, "average must be < 1, got 1.0"),
        ({"average": "often"}, "average must be a decay, 'uniform' or None, got 'often'"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        fitted(**options)


# Minutes


def test_minutes_fix_the_number_of_steps_from_the_first_fifty(monkeypatch, tmp_path):
    clock = iter(range(10**6))
    monkeypatch.setattr(looks, "monotonic", lambda: float(next(clock)))
    # a look at the clock before and after each of 50 steps, of a second each: 70 more fit
    run = fitted(minutes=2.0, evaluate=lambda o: {}, folder=tmp_path)
    assert (run.stopped, run.steps) == ("finished", 120)
    told = run.history["steps"]
    assert (~told.isnan()).nonzero().flatten().tolist() == [49]
    assert int(told[49]) == run.steps
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines[49]["steps"] == run.steps == len(lines)


def test_other_minutes_are_measured_anew(monkeypatch, tmp_path):
    clock = iter(range(10**6))
    monkeypatch.setattr(looks, "monotonic", lambda: float(next(clock)))
    fitted(minutes=1.0, folder=tmp_path)
    options: dict[str, Any] = {"folder": tmp_path, "resume": True}
    assert fitted(minutes=1.0, **options).steps == 60
    assert fitted(minutes=2.0, change=["minutes"], **options).steps == 60 + 120
    assert fitted(steps=190, change=["minutes", "steps"], **options).steps == 190
    assert fitted(minutes=1.0, change=["minutes", "steps"], **options).steps == 190 + 60


def test_the_pace_is_the_median_step(monkeypatch):
    from vademecum.train._ranks import Ranks
    from vademecum.train._training import Training

    clock = [0.0]
    monkeypatch.setattr(looks, "monotonic", lambda: clock[0])
    pace = looks.Pace(100 / 60, Ranks())
    training = Training.__new__(Training)
    training.steps = None
    found: Any = None
    for training.step in range(1, 51):
        clock[0] += 20.0 if training.step == 1 else 0.5  # the first one compiles
        found = pace(training)
    assert found == {"steps": 50 + int((100 - 20 - 24.5) / 0.5)}


# Curves


def drawn(line: Any) -> Any:
    return line.get_xydata()


def test_the_curves_of_a_run():
    run = fitted(evaluate=scripted([3.0, 1.0, 2.0]), evaluate_every=4)
    loss, score = draw_run(run).axes
    assert loss.lines[0].get_ydata() == pytest.approx(run.history["loss"].tolist())
    assert drawn(score.lines[0]).tolist() == [[4, 3.0], [8, 1.0], [12, 2.0]]
    assert score.get_ylabel() == "value"
    alone = draw_run(run, loss)
    assert alone is loss.get_figure()


def test_long_curves_are_drawn_as_means_of_neighbours():
    run = fitted()
    steps = torch.arange(1, 2001)
    long = run._replace(history={"step": steps, "loss": steps.double()})
    (line,) = draw_run(long).axes[0].lines
    assert drawn(line).shape == (500, 2)
    assert drawn(line)[0].tolist() == pytest.approx([2.5, 2.5])


def test_a_run_prints_on_one_line():
    text = repr(fitted(optimizer=adam))
    assert "\n" not in text
    assert text.startswith("Run(objective=Supervised(...), steps=12, epochs=1.7142857142857142")


def test_a_run_that_goes_on_measures_the_drift_from_where_it_began(tmp_path):
    options = {"track": ("ntk_drift",), "track_every": 2}
    whole = fitted(**options)
    fitted(**options, steps=6, folder=tmp_path)
    on = fitted(**options, steps=12, folder=tmp_path, resume=True, change=["steps"])
    assert (
        on.history["track.ntk_drift"]
        .nan_to_num(-1)
        .equal(whole.history["track.ntk_drift"].nan_to_num(-1))
    )
    assert whole.history["track.ntk_drift"][-1] > 0
