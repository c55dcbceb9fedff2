"""`vade examine`: what it refuses, requires, compares, and what it keeps when it must end."""

import json
import re
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from vademecum.cli import main
from vademecum.errors import UsageError
from vademecum.examine import Dossier, Measurement, Section
from vademecum.examine import _supervised as supervising
from vademecum.examine._given import given_data, given_network

FILE = """
import os, time, torch
from torch import nn
print("the file runs")
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
x, y = torch.randn(30, 4), torch.arange(30) % 3
data = x, y
def loader():
    return torch.utils.data.DataLoader(list(zip(x, y)), batch_size=10)
number = 3
class Falls(nn.Module):
    how = staticmethod(lambda: time.sleep(1000))
    def __init__(self):
        super().__init__()
        self.net, self.calls = net, [0]
    def forward(self, x):
        if len(x) > 4:
            self.how()
        return self.net(x)
class Dies(Falls):
    how = staticmethod(lambda: os._exit(7))
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def seen(monkeypatch):
    """The command with a dossier in the place of the process."""
    found = (
        Measurement("accuracy", 0.4, (0.3, 0.5)), Measurement("masked", False),
        Measurement("median_radius", float("nan")), Measurement("masking_flags", "deep"),
    )  # fmt: skip
    sections = (
        Section("robustness", "measured", found, "It falls."),
        Section("kernel", "out of time", reason="the time was over"),
    )
    asked = []

    def instead(question, **_):
        asked.append(question)
        return Dossier(sections, (), {"model": "m"})

    monkeypatch.setattr(supervising, "supervised", instead)
    return asked


def run(capsys, *words) -> tuple[int, str, str]:
    code = main(["examine", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize(
    ("require", "code"),
    [
        ([], 0),
        (["robustness.accuracy >= 0.4"], 0),
        (["robustness.accuracy>0.4"], 1),
        (["robustness.accuracy <= 0.4", "robustness.accuracy < 0.5"], 0),
        (["robustness.masked == 0"], 0),
        (["kernel.alignment > 0"], 2),
        (["curvature.trace > 0"], 2),
        (["robustness.certified_accuracy > 0"], 2),
        (["robustness.radius > 0"], 2),
        (["robustness.median_radius > 0"], 2),
        (["robustness.median_radius <= 0"], 2),
        (["robustness.masking_flags > 0"], 2),
        (["kernel.alignment > 0", "robustness.accuracy >= 0.5"], 1),
    ],
)
def test_requirements_are_exit_codes(capsys, seen, file, tmp_path, require, code):
    words = [word for text in require for word in ("--require", text)]
    given = (f"{file}:net", "--data", "digits", "--out", tmp_path / "out")
    found, said, _ = run(capsys, *given, *words)
    assert found == code
    assert (tmp_path / "out" / "index.html").is_file()
    assert all(text in said for text in require)


def test_options_reach_the_question(capsys, seen, file, tmp_path):
    words = ["--test", "t.npz", "--sections", "anatomy, signal", "--budget", "9", "--seed", "4"]
    run(capsys, f"{file}:net", "--data", "d.npz", *words, "--out", tmp_path / "out")
    (asked,) = seen
    assert (asked.data, asked.test, asked.budget, asked.seed) == ("d.npz", "t.npz", 9.0, 4)
    assert asked.sections == ("anatomy", "signal")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["{}:net"], "--data must be given"),
        (["{}", "--data", "digits"], "must be FILE.py:OBJECT"),
        (["no.py:net", "--data", "digits"], "there is no file no.py"),
        (["{}:net", "--data", "digits", "--budget", "0"], "--budget must be positive, got 0"),
        (["{}:net", "--data", "digits", "--require", "accuracy > 1"], "--require must be as"),
        (["{}:net", "--data", "digits", "--require", "a.b >= c"], "--require must be as"),
        (["{}:net", "--data", "digits", "--require", "kernel.rank >= nan"], "--require must be as"),
        (["{}:net", "--data", "digits", "--checkpoint", "w.pt"], "safetensors"),
        (["{}:net", "--data", "digits", "--out", "mine.py"], "--out must be a folder"),
        (["{}:net", "--data", "digits", "--out", "mine.py/in"], "--out must be a folder"),
        (["a.json"], "two dossiers are needed"),
        (["a.json", "b.json"], "there is no file a.json"),
    ],
)
def test_wrong_usage_is_named_and_nothing_is_written(capsys, file, tmp_path, monkeypatch, words,
                                                     complaint):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    code, _, said = run(capsys, *(word.format(file) for word in words))
    assert code == 2
    assert complaint in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.py"]


@pytest.mark.parametrize(
    ("require", "complaint"),
    [
        ("robustnes.accuracy > 0", "there is no section 'robustnes'; nearest: robustness"),
        ("robustness.acuracy > 0", "robustness measures no 'acuracy'; nearest: accuracy"),
        ("robustness.gap > 0", "measures no 'gap'; there is generalisation.gap"),
        ("signal.layers > 0", "signal is not among --sections"),
    ],
)
def test_what_no_section_measures_is_refused_before_the_work(capsys, file, seen, require,
                                                             complaint):  # fmt: skip
    given = (f"{file}:net", "--data", "digits", "--sections", "kernel,robustness")
    code, _, said = run(capsys, *given, "--require", require)
    assert code == 2
    assert complaint in said
    assert not seen


def test_two_dossiers_are_compared(capsys, tmp_path):
    one = Dossier((Section("kernel", "measured", (Measurement("alignment", 0.5, 0.01),)),))
    other = replace(one, sections=(Section("kernel", "measured", (
        Measurement("alignment", 0.9, 0.01),)),))  # fmt: skip
    for name, each in (("a", one), ("b", other)):
        each.save(tmp_path / name)
    code, said, _ = run(capsys, tmp_path / "a" / "dossier.json", tmp_path / "b")
    assert code == 0
    assert re.search(r"kernel.alignment\t0.5\t0.9\t0.4\t0.372 to 0.428\t.*\tb is larger", said)
    assert "Different in 1 of 1 numbers" in said
    (tmp_path / "c.json").write_text("{}")
    assert run(capsys, tmp_path / "a", tmp_path / "c.json")[0] == 2


def test_networks_and_data_of_a_file(file, tmp_path):
    net = given_network(f"{file}:net", None)
    assert net is given_network(f"{file}:net", None)  # one run serves for all
    x, _ = given_data("--data", f"{file}:data", net, test=False)
    assert x.shape == (30, 4)
    loader, nothing = given_data("--data", f"{file}:loader", net, test=False)
    assert nothing is None
    assert len(loader) == 3
    with pytest.raises(UsageError, match=r"is a int, no nn\.Module"):
        given_network(f"{file}:number", None)
    with pytest.raises(UsageError, match=r"has no 'other'; it has: .*net"):
        given_network(f"{file}:other", None)


def test_data_of_arrays_and_names(file, tmp_path):
    import numpy as np

    net = given_network(f"{file}:net", None)
    path = str(tmp_path / "d.npz")
    np.savez(path, x=np.ones((3, 4)), y=np.arange(3))
    x, y = given_data("--data", path, net, test=False)
    assert (x.dtype, y.tolist()) == (torch.float32, [0, 1, 2])
    np.savez(path, ids=np.ones((3, 4), int), mask=np.ones((3, 4)))
    x, y = given_data("--data", path, net, test=False)
    assert (sorted(x), y) == (["ids", "mask"], None)
    np.savez(path, x=np.array([{}], dtype=object))
    with pytest.raises(UsageError, match="allow_pickle"):
        given_data("--data", path, net, test=False)
    sizes = [len(given_data("--data", "digits", net, test=test)[0]) for test in (False, True)]
    assert sizes == [1437, 360]
    for name in ("karate", "mine", "no.npz"):
        with pytest.raises(UsageError, match="--data"):
            given_data("--data", name, net, test=False)


def test_checkpoints_fit_or_are_refused(file, tmp_path):
    net = given_network(f"{file}:net", None)
    state = {name: torch.ones_like(value) for name, value in net.state_dict().items()}
    save_file(state, tmp_path / "w.safetensors")
    made = given_network(f"{file}:net", str(tmp_path / "w.safetensors"))
    assert float(made.state_dict()["0.bias"].min()) == 1
    del state["0.bias"]
    save_file(state | {"extra": torch.ones(1)}, tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match=r"missing 0\.bias; unknown extra"):
        given_network(f"{file}:net", str(tmp_path / "w.safetensors"))
    with pytest.raises(UsageError, match="no such file"):
        given_network(f"{file}:net", str(tmp_path / "none.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Falls", "Dies"])
def test_what_was_finished_is_kept(capsys, file, tmp_path, kind):
    """The first look takes a few examples; the first pass over all hangs, or ends the process."""
    given = ["--data", f"{file}:data", "--budget", 45, "--out", tmp_path / "out"]
    code, _, _ = run(capsys, f"{file}:{kind}", *given, "--sections", "anatomy,generalisation")
    assert code == 0
    found = Dossier.from_json((tmp_path / "out" / "dossier.json").read_text())
    assert found["anatomy"].status == "measured"
    assert found["anatomy"].parameters == 67
    cut = found["generalisation"]
    assert cut.status == ("out of time" if kind == "Falls" else "failed")
    assert ("time was over" if kind == "Falls" else "exit code 7") in cut.reason


@pytest.mark.slow
def test_a_whole_run_of_the_command(capfd, file, tmp_path):
    words = ["--sections", "anatomy,signal", "--budget", 90, "--out", tmp_path / "out"]
    code, said, errors = run(capfd, f"{file}:net", "--data", f"{file}:data", *words)
    assert code == 0, errors
    assert "the file runs" in errors
    assert "the file runs" not in said
    document = json.loads((tmp_path / "out" / "dossier.json").read_text())
    assert [section["status"] for section in document["sections"]] == ["measured"] * 2
    code, _, errors = run(
        capfd, f"{file}:net", "--data", f"{file}:number", "--out", tmp_path / "no"
    )
    assert code == 2
    assert not (tmp_path / "no").exists()


def test_too_little_time_for_anything_is_one_line(capsys, file, tmp_path, monkeypatch):
    late = (
        Section("kernel", "out of time", reason="the time was over"),
        Section("signal", "measured"),
    )
    given = [f"{file}:net", "--data", "digits", "--budget", 3, "--out", tmp_path / "out"]
    for sections, expected in ((late[:1], 2), (late, 0)):
        found = Dossier(sections, (), {})
        monkeypatch.setattr(supervising, "supervised", lambda *_, found=found, **__: found)
        code, said, errors = run(capsys, *given)
        assert code == expected
        if expected:
            assert errors == "vade: nothing was examined within 3 s: give more with --budget\n"
            assert not said
        assert (tmp_path / "out").exists() == (not expected)


def test_an_interrupt_before_it_began(capsys, file, tmp_path, monkeypatch):
    def instead(question, *, stop, **_):
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        raise UsageError("nothing was examined")

    monkeypatch.setattr(supervising, "supervised", instead)
    code, _, errors = run(capsys, f"{file}:net", "--data", "digits", "--out", tmp_path / "out")
    assert (code, errors) == (130, "vade: nothing was examined\n")
    assert not (tmp_path / "out").exists()
