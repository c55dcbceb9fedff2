"""The page that follows a training run."""

import json

import pytest
from starlette.testclient import TestClient

from vademecum.atlas.application import application
from vademecum.atlas.links import Links
from vademecum.atlas.pages import Pages
from vademecum.atlas.training_run import look_at_run
from vademecum.cli import main
from vademecum.errors import UsageError

HOST = "127.0.0.1:2718"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"recipe": "toy <b>", "steps": 4}))
    lines = [{"step": 1, "epoch": 0, "loss": 2.5}, {"step": 2, "epoch": 0, "loss": 1.25,
                                                  "score.accuracy": 0.75}]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines) + '{"st')
    return tmp_path


def answered(verdicts, drawings, folder):
    app = application(verdicts, drawings, token="secret", hosts=[HOST], run=folder)
    with TestClient(app, base_url=f"http://{HOST}") as client:
        return client.get("/run", headers={"Cookie": "vademecum=secret"})


def test_a_run_is_followed_until_it_ends(folder, verdicts, drawings):
    view = look_at_run(folder)
    assert view.facts == {"steps": "2 of 4", "loss": "1.25", "accuracy": "0.75"}
    assert not view.ended
    assert b"<svg" in view.curves
    page = answered(verdicts, drawings, folder)
    assert page.status_code == 200
    assert page.headers["refresh"] == "5"
    assert "2 of 4" in page.text
    assert "toy &lt;b&gt;" in page.text
    assert "data:image/svg+xml;base64," in page.text


def test_a_run_that_has_ended_rests(folder, verdicts, drawings):
    (folder / "summary.json").write_text(json.dumps({"steps": 2, "stopped": "patience"}))
    assert look_at_run(folder).ended
    assert "refresh" not in answered(verdicts, drawings, folder).headers
    with (folder / "log.jsonl").open("w") as file:  # resumed since
        file.write(json.dumps({"step": 3, "loss": 1.0}) + "\n")
    assert not look_at_run(folder).ended


def test_a_run_that_has_not_begun(folder):
    (folder / "log.jsonl").unlink()
    view = look_at_run(folder)
    assert view.curves == b""
    assert view.facts == {"steps": "0 of 4"}


def test_without_a_run_there_is_no_page(verdicts, drawings, tmp_path, capsys):
    assert answered(verdicts, drawings, None).status_code == 404
    with pytest.raises(UsageError, match="must be the folder of a run"):
        look_at_run(tmp_path)
    assert main(["atlas", "--run", str(tmp_path)]) == 2
    assert "--run" in capsys.readouterr().err
    assert "Your run" not in Pages(verdicts, Links("", ".html"), None).course()
    assert "Your run" in Pages(verdicts, Links(), drawings, follows_run=True).course()
