"""`vade data` and `vade doctor`."""

import importlib.metadata
import json
import re
import sys

import pytest

import vademecum
from vademecum.cli import main
from vademecum.data import DataNotFoundError


def test_data(capsys) -> None:
    assert main(["data"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "name\tkind\tsize\tsource\tfound\thint"
    assert "karate" in {line.partition("\t")[0] for line in lines[1:]}
    assert main(["data", "karate"]) == 0
    assert "\nedge_index\tint64 (2, 156)\nn\t34\n" in capsys.readouterr().out
    assert main(["data", "digits", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["x"] == "float32 (1437, 1, 8, 8)"


def test_data_that_cannot_be_had(capsys, monkeypatch) -> None:
    def refuse(name: str) -> None:
        raise DataNotFoundError(f"{name} was not found: apt install it")

    monkeypatch.setattr("vademecum.data.load", refuse)
    assert main(["data", "karate"]) == 1
    assert capsys.readouterr().err == "vade: karate was not found: apt install it\n"
    assert main(["data", "karat"]) == 2
    assert "no data set is called 'karat'; there are: karate" in capsys.readouterr().err


def test_doctor_finds_nothing_broken(capsys) -> None:
    assert main(["doctor", "--json"]) == 0
    findings = {f["name"]: f for f in json.loads(capsys.readouterr().out)}
    assert findings["vademecum"]["value"] == vademecum.__version__
    assert findings["torch"]["status"] == "ok"
    assert findings["data karate"]["status"] == "ok"
    assert "cpu" in findings


@pytest.mark.parametrize(
    ("version", "code", "line"),
    [
        ({"torch": "1.0"}, 1, r"torch\tbroken\t1.0 is too old\tpip install -U 'torch>=2.*'\n"),
        ({"rich": None}, 1, r"rich\tbroken\tnot installed\tpip install 'rich>=.*'\n"),
        ({"pooch": None}, 0, r"pooch \[.*data.*\]\tmissing\tnot installed\tpip install 'pooch>="),
    ],
)
def test_doctor_prescribes(version: dict, code: int, line: str, capsys, monkeypatch) -> None:
    true_version = importlib.metadata.version

    def fake(name: str) -> str:
        found = version.get(name, true_version(name))
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", fake)
    assert main(["doctor"]) == code
    assert re.search(line, capsys.readouterr().out)


def test_doctor_sees_a_package_that_does_not_import(capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)  # how Python marks what must not be imported
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"scikit-learn\tbroken\t.* importing it raises ModuleNotFoundError", shown)
