"""What a run was asked for must be the same when it goes on, or the change be named."""

import pytest

from vademecum.errors import UsageError
from vademecum.train._differences import changed_environment, refuse_changes

THEN = {"recipe": "lenet", "lr": 0.1, "model": {"width": 8, "depth": 2}, "betas": (0.9, 0.99)}


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ({"lr": 0.2}, r"lr was 0.1 in the checkpoint and is 0.2 now; name it in change"),
        ({"recipe": "gpt", "lr": 0.2}, "recipe was 'lenet' in the checkpoint and is 'gpt' now"),
        ({"model": {"width": 8, "depth": 3}}, r"model.depth was 2 in the checkpoint and is 3 now"),
        ({"model": {"width": 8}}, "model.depth was 2 in the checkpoint and is 'not given' now"),
        ({"clip": 1.0}, "clip was 'not given' in the checkpoint and is 1.0 now"),
    ],
)
def test_a_changed_flag_is_refused_unless_named(now, message):
    with pytest.raises(UsageError, match=message):
        refuse_changes(THEN, THEN | now)
    refuse_changes(THEN, THEN | now, change=list(now))


def test_names_of_changes_are_checked_and_exact():
    refuse_changes(THEN, THEN | {"betas": [0.9, 0.99]})
    refuse_changes(THEN, THEN | {"lr": 0.2}, change="lr")
    refuse_changes(THEN, THEN | {"model": {"width": 9, "depth": 2}}, change=["model.width"])
    with pytest.raises(UsageError, match="lr was"):
        refuse_changes(THEN, THEN | {"lr": 0.2}, change=["l", "model"])
    with pytest.raises(UsageError, match="change must name what the run was asked for, got 'x'"):
        refuse_changes(THEN, THEN, change=["x"])


def test_what_a_run_runs_on_may_change_and_is_told():
    then = {"torch": "2.11", "device": "cpu (x86_64)", "threads": 1, "processes": 2}
    assert changed_environment(then, then) == []
    assert changed_environment(then, then | {"device": "cuda (H200)", "threads": 2}) == [
        "device was cpu (x86_64) and is cuda (H200) now: bits may differ",
        "threads were 1 and are 2 now: bits may differ",
    ]
    (line,) = changed_environment(then, then | {"processes": 4})
    assert line.startswith("processes were 2 and are 4 now: batches are the same")
