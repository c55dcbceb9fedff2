"""What the page on resuming promises: its loop, and its script with real commands."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "resume.md").read_text()


def test_the_loop_of_the_page_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

    def end(source: str) -> torch.Tensor:
        torch.manual_seed(0)
        names: dict[str, Any] = {}
        exec(compile(source, "page", "exec"), names)
        return names["model"].weight.detach()

    whole = end(source.replace("runs/mine", "runs/other"))
    end(source.replace("step < 100", "step < 70"))  # killed twenty steps after a checkpoint
    assert torch.equal(end(source), whole)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_the_script_of_the_page_finds_equal_hashes(processes):
    script = [sys.executable, str(ROOT / "docs" / "kill_and_resume.py"), "--kills", "1"]
    recipe = ["classify", "--model.name", "mlp", "--steps", "150"]
    words = [*script, "--processes", str(processes), "--seed", "0", "--", *recipe]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--- killing" in done.stdout
    one, other = re.findall(r"[0-9a-f]{64}", done.stdout)
    assert one == other
