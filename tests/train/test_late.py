"""Numbers that are read a step late: the same run, the same refusals, the same records.

On the CPU nothing is late by itself, but fused optimisers know the flag there as well.
"""

import json
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from tests.train.fitted import assert_same, fitted, network, points, weights
from tests.train.test_guard import Odd
from vademecum.errors import UsageError
from vademecum.train import Supervised, _late
from vademecum.train._late import may_wait

adamw = partial(torch.optim.AdamW, lr=1e-2, fused=True)
sgd = partial(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True)
adagrad = partial(torch.optim.Adagrad, lr=0.1, fused=True)


@pytest.fixture
def late(monkeypatch):
    monkeypatch.setattr(_late, "_DEVICES", ("cpu",))


class Watched(Supervised):
    """Knows when losses were asked for, and writes it where others write, too."""

    def __init__(self, events: list[str]):
        super().__init__(network().model)
        self.events = events

    def losses(self, batch: Any) -> Any:
        self.events.append("losses")
        return super().losses(batch)


def told(monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[str]:
    from vademecum.train._journal import Journal

    events: list[str] = []
    note = Journal.note
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "note", lambda *a: (events.append(f"note {a[1].step}"), note(*a))[1])
        fitted(Watched(events), optimizer=adamw, steps=3, **options)
    return events


def test_a_step_is_noted_when_the_next_one_is_under_way(late, monkeypatch, tmp_path):
    assert told(monkeypatch) == ["losses", "losses", "note 1", "losses", "note 2", "note 3"]
    kept = told(monkeypatch, folder=tmp_path, checkpoint_every=0)  # after each step
    assert kept == ["losses", "note 1", "losses", "note 2", "losses", "note 3"]


def test_elsewhere_it_is_noted_at_once(monkeypatch):
    assert told(monkeypatch) == ["losses", "note 1", "losses", "note 2", "losses", "note 3"]


@pytest.mark.parametrize("optimizer", [adamw, sgd, adagrad])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_same_bits(optimizer, accumulate, monkeypatch):
    plain = fitted(optimizer=optimizer, accumulate=accumulate, schedule="cosine")
    monkeypatch.setattr(_late, "_DEVICES", ("cpu",))
    run = fitted(optimizer=optimizer, accumulate=accumulate, schedule="cosine")
    assert_same(run, plain)
    assert run.history["rate"].equal(plain.history["rate"])
    assert torch.allclose(run.history["norm"], plain.history["norm"], rtol=1e-6)


def test_clipping(monkeypatch):
    options: dict[str, Any] = {"optimizer": sgd, "clip": 0.05}
    plain = fitted(network(dropout=0.0), **options)
    assert (plain.history["norm"] > 0.05).all()
    monkeypatch.setattr(_late, "_DEVICES", ("cpu",))
    run = fitted(network(dropout=0.0), **options)
    assert (weights(run) - weights(plain)).abs().max() < 1e-6
    assert torch.allclose(run.history["norm"], plain.history["norm"], rtol=1e-5)


@pytest.mark.parametrize("optimizer", [adamw, sgd, adagrad])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_what_is_not_finite_changes_no_weight_and_is_named(what, value, optimizer, late, tmp_path):
    objective = Odd(what, value)
    with pytest.raises(UsageError) as caught:
        fitted(objective, optimizer=optimizer, folder=tmp_path)
    text = str(caught.value)
    if what == "loss":
        assert f"the loss of 'model' must be finite, got {value}" in text
    else:
        assert f"the gradient of model.3.bias must be finite, got {value} (the loss of" in text
    assert "in step 4, for positions 24 to 31 of epoch 0; its weights were not changed" in text
    assert objective.step == 4  # the fifth step had begun
    own = torch.cat([p.detach().flatten().double() for p in objective.state_dict().values()])
    assert own.equal(weights(fitted(steps=3, optimizer=optimizer)))
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3]


def test_a_loss_that_is_not_finite_stops_although_its_gradient_is(late):
    class Shifted(Supervised):
        def losses(self, batch):
            return {"model": super().losses(batch)["model"] + math.inf}

    objective = Shifted(network().model)
    before = [p.detach().clone() for p in objective.parameters()]
    with pytest.raises(UsageError, match="the loss of 'model' must be finite, got inf in step 1"):
        fitted(objective, optimizer=adamw)
    assert all(p.equal(q) for p, q in zip(objective.parameters(), before, strict=True))


def test_a_norm_below_the_limit_is_not_raised_to_it(late):
    assert_same(fitted(optimizer=sgd, clip=1e3), fitted(optimizer=sgd))


def test_nor_where_it_is_known_at_once():
    assert_same(fitted(optimizer=sgd, clip=1e3), fitted(optimizer=sgd))


def test_the_optimiser_is_left_without_a_flag(late):
    objective = network()
    optimizer = sgd(objective.parameters())
    fitted(objective, optimizer=optimizer)
    assert not {"found_inf", "grad_scale"} & vars(optimizer).keys()


@pytest.mark.parametrize("options", [{"steps": 4}, {"checkpoint_every": 0.0}])
def test_nothing_is_kept_of_a_step_in_vain(options, late, tmp_path):
    objective = Odd("gradient", math.nan)
    with pytest.raises(UsageError, match="in step 4, "):
        fitted(objective, optimizer=adamw, folder=tmp_path, **options)
    assert objective.step == 3
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert not [name for name in names if "4" in name]


def test_gradients_whose_squares_overflow(late):
    class Large(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([3.0, 4.0]))

        def losses(self, batch):
            return {"model": 1e30 * (self.w * torch.tensor([3.0, 4.0])).sum()}

    objective = Large()
    plain = partial(torch.optim.SGD, lr=0.1, fused=True)
    run = fitted(objective, torch.ones(4), optimizer=plain, steps=1, clip=0.1)
    assert float(run.history["norm"][0]) == pytest.approx(5e30)
    assert objective.w.tolist() == pytest.approx([3 - 0.006, 4 - 0.008])


def test_records_and_resumed_runs_are_the_same(monkeypatch, tmp_path):
    options: dict[str, Any] = {
        "optimizer": adamw, "evaluate": lambda _: {"x": 0.5}, "evaluate_every": 5,
    }  # fmt: skip
    fitted(folder=tmp_path / "plain", **options)
    monkeypatch.setattr(_late, "_DEVICES", ("cpu",))
    whole = fitted(folder=tmp_path / "late", **options)
    fitted(folder=tmp_path / "parts", steps=7, **options)
    again = fitted(folder=tmp_path / "parts", resume=True, change=["steps"], **options)
    assert weights(whole).equal(weights(again))
    logs = [(tmp_path / name / "log.jsonl").read_text() for name in ("plain", "late")]
    one, other = ([json.loads(line) for line in log.splitlines()] for log in logs)
    assert [[*line] for line in one] == [[*line] for line in other]  # also the order of names
    for a, b in zip(one, other, strict=True):
        assert a == b | {"norm": pytest.approx(a["norm"], rel=1e-6)}


def test_a_run_that_loses_patience_notes_its_last_step(late):
    scores = iter([3.0, 4.0, 5.0])
    run = fitted(
        optimizer=adamw, evaluate=lambda _: {"x": next(scores)}, evaluate_every=2, score="x",
        patience=1,
    )  # fmt: skip
    assert run.stopped == "patience"
    assert run.history["loss"].isfinite().all()
    assert run.history["step"].tolist() == [1, 2, 3, 4]


class After(Supervised):
    def after_step(self, player: str) -> None:
        """Something to the weights."""


@pytest.mark.parametrize(
    ("objective", "optimizers", "scaled", "expected"),
    [
        (network(), {"model": adamw}, False, True),
        (network(), {"model": adamw}, True, False),
        (network(), {"model": torch.optim.AdamW}, False, False),
        (network(), {"a": adamw, "b": adamw}, False, False),
        (network(torch.float64), {"model": adamw}, False, False),
        (After(network().model), {"model": adamw}, False, False),
    ],
)
def test_where_numbers_may_be_late(objective, optimizers, scaled, expected, late):
    made = {name: make(objective.parameters()) for name, make in optimizers.items()}
    assert may_wait(objective, made, scaled=scaled) is expected


def test_all_parameters_must_be_moved_behind_the_flag(late):
    first, second = (network().parameters() for _ in range(2))
    optimizer = adamw([{"params": first}, {"params": second, "fused": False}])
    assert not may_wait(network(), {"model": optimizer}, scaled=False)


def test_not_where_parameters_are_tensors_of_another_kind(late):
    class Split(torch.Tensor):
        """As where each process has a part of them."""

    objective = nn.Linear(2, 1)
    objective.weight = nn.Parameter(objective.weight.detach().as_subclass(Split))
    assert not may_wait(objective, {"model": adamw(objective.parameters())}, scaled=False)


def test_not_on_the_cpu():
    objective = network()
    assert not may_wait(objective, {"model": adamw(objective.parameters())}, scaled=False)


def test_data_and_batches_are_named_late_as_well(late):
    x, y = points()
    x[5, 1] = math.nan
    with pytest.raises(UsageError, match=r"where batch\[0\] is not finite either"):
        fitted(data=(x, y), epochs=1, optimizer=adamw)
