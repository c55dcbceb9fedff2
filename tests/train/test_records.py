"""The log has every step once, also after resumptions; the folder has what was promised."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.fitted import assert_same, fitted, network, points, sgd
from vademecum.errors import UsageError
from vademecum.train._journal import Journal, read_log
from vademecum.train.checkpoints import BackgroundWriter


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


class Halted(Exception):
    """The machine goes down."""


def halting(at: int) -> Any:
    class Halting(type(network())):
        def before_step(self, step: int) -> None:
            if step == at:
                raise Halted

    return Halting(network().model)


OPTIONS: dict[str, Any] = {"schedule": "cosine", "warmup": 3, "average": 0.8, "clip": 0.5}


def test_a_run_that_was_halted_goes_on_with_the_same_bits(tmp_path):
    whole = fitted(folder=tmp_path / "whole", steps=20, **OPTIONS)
    options = {**OPTIONS, "folder": tmp_path / "halted", "steps": 20}
    with pytest.raises(Halted):
        fitted(halting(13), checkpoint_every=0, **options)
    with pytest.raises(Halted):
        fitted(halting(17), resume=True, checkpoint_every=100, **options)
    again = fitted(resume=True, **options)
    assert_same(whole, again)
    assert lines(tmp_path / "whole") == lines(tmp_path / "halted")
    assert [line["step"] for line in lines(tmp_path / "halted")] == list(range(1, 21))


def test_a_run_is_kept_before_its_first_step(tmp_path):
    with pytest.raises(Halted):
        fitted(halting(0), folder=tmp_path, checkpoint_every=1000)
    assert_same(fitted(folder=tmp_path, resume=True), fitted())


def test_the_best_of_a_run_stays_the_best_when_it_goes_on(tmp_path):
    def options(values: list[float]) -> dict[str, Any]:
        scores = iter(values)
        return {
            "folder": tmp_path, "evaluate": lambda o: {"value": next(scores)},
            "evaluate_every": 4, "score": "value", "checkpoint_every": 0,
        }  # fmt: skip

    with pytest.raises(Halted):
        fitted(halting(9), **options([1.0, 2.0]))
    run = fitted(resume=True, **options([3.0]))
    best = json.loads((tmp_path / "checkpoints" / "best" / "state.json").read_text())
    assert (run.best, best["step"]) == (1.0, 4)


def test_the_log_is_on_the_disk_before_a_checkpoint_is(tmp_path):
    class Reading(type(network())):
        def before_step(self, step: int) -> None:
            assert len(lines(tmp_path)) == step

    fitted(Reading(network().model), folder=tmp_path, checkpoint_every=0)


def test_what_is_in_the_folder(tmp_path):
    scores = iter([2.0, 1.0, 3.0])
    run = fitted(
        folder=tmp_path / "new" / "run", evaluate=lambda o: {"value": next(scores)},
        evaluate_every=4, score="value", configuration={"recipe": "toy"},
    )  # fmt: skip
    folder = tmp_path / "new" / "run"
    assert run.folder == folder
    names = {"config.json", "log.jsonl", "checkpoints", "summary.json", "curves.svg"}
    assert {path.name for path in folder.iterdir()} == names
    asked = json.loads((folder / "config.json").read_text())
    assert (asked["recipe"], asked["batch_size"], asked["examples"]) == ("toy", 8, 50)
    told = json.loads((folder / "summary.json").read_text())
    assert (told["steps"], told["stopped"], told["best"]) == (12, "finished", 1.0)
    assert (folder / "curves.svg").read_bytes().startswith(b"<?xml")
    best = json.loads((folder / "checkpoints" / "best" / "state.json").read_text())
    assert best["step"] == 8
    assert (folder / "checkpoints" / "step-00000012").is_dir()


def test_the_best_checkpoint_has_the_weights_that_were_judged(tmp_path):
    from safetensors.torch import load_file

    seen: list[Any] = []

    def evaluate(objective):
        seen.append({name: t.clone() for name, t in objective.state_dict().items()})
        return {"value": [2.0, 1.0, 3.0][len(seen) - 1]}

    fitted(folder=tmp_path, evaluate=evaluate, evaluate_every=4, score="value", average=0.5)
    kept = load_file(tmp_path / "checkpoints" / "best" / "model.safetensors")
    assert all(kept[name].equal(t) for name, t in seen[1].items())


def test_a_finished_run_that_is_resumed_is_as_it_was(tmp_path):
    evaluate = {"evaluate": lambda o: {"value": 1.0}, "score": "value"}
    first = fitted(folder=tmp_path, average=0.5, **evaluate)
    again = fitted(folder=tmp_path, average=0.5, resume=True, **evaluate)
    assert_same(first, again)
    assert (again.steps, again.stopped, again.scores) == (12, "finished", {"value": 1.0})


def test_more_steps_and_another_rate_where_they_are_named(tmp_path):
    fitted(folder=tmp_path, optimizer=sgd, schedule="linear", steps=10)
    run = fitted(
        folder=tmp_path, optimizer=lambda p: torch.optim.SGD(p, lr=0.2), schedule="linear",
        steps=20, resume=True, change=["steps", "lr"],
    )  # fmt: skip
    rates = run.history["rate"].tolist()
    assert rates[:10] == pytest.approx([0.1 * (1 - t / 10) for t in range(10)])
    assert rates[10:] == pytest.approx([0.2 * (1 - t / 20) for t in range(10, 20)])


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.2), "lr was 0.1 in the checkpoint and is 0.2 now"),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5), "momentum was 0 .* and is 0.5 now"),
        (lambda p: torch.optim.Rprop(p, lr=0.1), "optimizer was 'SGD' .* and is 'Rprop' now"),
        (
            lambda p: torch.optim.SGD(
                [{"params": [w for _, w in p[:1]], "lr": 0.3}, {"params": [w for _, w in p[1:]]}],
                lr=0.1,
            ),
            r"lr was 0.1 in the checkpoint and is \[0.3, 0.1\] now",
        ),
    ],
)
def test_another_optimiser_is_not_taken_up_in_silence(optimizer, message, tmp_path):
    fitted(folder=tmp_path, optimizer=sgd, steps=4)
    with pytest.raises(UsageError, match=message):
        fitted(folder=tmp_path, optimizer=optimizer, steps=6, resume=True, change=["steps"])


def test_moments_of_one_optimiser_are_none_of_another(tmp_path):
    fitted(folder=tmp_path, optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), steps=4)
    with pytest.raises(UsageError, match="cannot go on from its state; begin another run"):
        fitted(folder=tmp_path, resume=True, steps=6, change=["steps", "optimizer"])


def test_files_of_others_and_of_runs_are_not_overwritten(tmp_path):
    (tmp_path / "config.json").write_text("mine")
    with pytest.raises(UsageError, match=r"must hold no run .*, where config.json is"):
        fitted(folder=tmp_path)
    assert (tmp_path / "config.json").read_text() == "mine"
    assert not (tmp_path / "checkpoints").exists()
    fitted(folder=tmp_path / "run", evaluate=lambda o: {"value": 1.0}, score="value")
    log = (tmp_path / "run" / "log.jsonl").read_text()
    for path in (tmp_path / "run" / "checkpoints").glob("step-*"):
        path.rename(tmp_path / path.name)
    with pytest.raises(UsageError, match="where checkpoints/best is"):
        fitted(folder=tmp_path / "run")
    assert (tmp_path / "run" / "log.jsonl").read_text() == log


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n')
    assert fitted(folder=tmp_path).steps == 12


def test_nothing_is_made_where_there_is_nothing_to_resume(tmp_path):
    with pytest.raises(UsageError, match="but there is no such folder"):
        fitted(folder=tmp_path / "typo", resume=True)
    assert not (tmp_path / "typo").exists()


def test_the_best_is_kept_before_the_step_that_knows_of_it(tmp_path, monkeypatch):
    order = []
    write = BackgroundWriter.submit
    monkeypatch.setattr(
        BackgroundWriter, "submit",
        lambda self, content, *, best=False: (order.append(best), write(self, content, best=best)),
    )  # fmt: skip
    evaluate: dict[str, Any] = {"evaluate": lambda o: {"value": 1.0}, "evaluate_every": 1}
    fitted(folder=tmp_path, steps=1, checkpoint_every=0.0, score="value", **evaluate)
    assert order == [False, True, False]  # at the start; then the best, and the step


def test_scores_that_are_not_finite_are_null_in_the_summary(tmp_path):
    evaluate: dict[str, Any] = {"evaluate": lambda o: {"value": math.nan}, "score": "value"}
    fitted(folder=tmp_path, **evaluate)
    told = json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)
    assert (told["scores"], told["best"]) == ({"value": None}, None)


def test_what_is_not_resumed(tmp_path):
    fitted(folder=tmp_path, steps=4)
    for options, message in [
        ({"steps": 4}, "folder must hold no run unless that is resumed"),
        ({"steps": 5, "resume": True}, "steps was 4 in the checkpoint and is 5 now; name it in"),
        ({"steps": 4, "resume": True, "seed": 1}, "seed was 0 in the checkpoint and is 1 now"),
        ({"steps": 4, "resume": True, "data": points(49)}, "examples was 50 .* and is 49 now"),
    ]:
        with pytest.raises(UsageError, match=message):
            fitted(folder=tmp_path, **options)
    with pytest.raises(UsageError, match="there must be a whole checkpoint in"):
        fitted(folder=tmp_path / "other", resume=True)
    with pytest.raises(UsageError, match="folder must be given to resume a run, got None"):
        fitted(resume=True)


def test_to_resume_if_there_is_something(tmp_path):
    first = fitted(folder=tmp_path, resume="auto")
    assert_same(first, fitted(folder=tmp_path, resume="auto"))


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written to"):
        fitted(folder=tmp_path / "file" / "run")


def test_checkpoints_and_logs_change_nothing(tmp_path):
    assert_same(fitted(), fitted(folder=tmp_path, checkpoint_every=0, keep=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 3, "epochs": 1}, "exactly one of steps, epochs and minutes must be given, got "
                                    "steps=3 and epochs=1"),
        ({"steps": None}, "exactly one of steps, epochs and minutes must be given, got none"),
        ({"steps": 0}, "steps must be >= 1, got 0"),
        ({"epochs": 0}, "epochs must be >= 1, got 0"),
        ({"minutes": 0.0}, "minutes must be > 0, got 0.0"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"accumulate": 0}, "accumulate must be >= 1, got 0"),
        ({"clip": 0.0}, "clip must be > 0, got 0.0"),
        ({"workers": -1}, "workers must be >= 0, got -1"),
        ({"keep": 0}, "keep must be >= 1, got 0"),
        ({"checkpoint_every": -1.0}, "checkpoint_every must be >= 0, got -1.0"),
        ({"sharding": "zero"}, "sharding must be one of 'ddp', 'fsdp', got 'zero'"),
        ({"tensorboard": True}, "folder must be given for tensorboard, got None"),
    ],
)  # fmt: skip
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        fitted(**options)


# The journal itself


def test_a_line_that_was_cut_off_and_lines_beyond_the_step_are_dropped(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": null}\n{"step": 3}\n{"step": 4, "lo'
    )
    assert [record["step"] for record in read_log(path)] == [1, 2, 3]
    with Journal(path, 2) as journal:
        history = journal.history()
    assert path.read_text() == '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": null}\n'
    assert history["step"].tolist() == [1, 2]
    assert history["loss"][0] == 2.0
    assert math.isnan(history["loss"][1])


def test_numbers_that_are_not_finite_are_null(tmp_path):
    values = iter([math.nan, math.inf, 1.0])
    fitted(folder=tmp_path, evaluate=lambda o: {"value": next(values)}, evaluate_every=4)
    found = [line["score.value"] for line in lines(tmp_path) if "score.value" in line]
    assert found == [None, None, 1.0]
