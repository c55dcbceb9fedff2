"""How the process that examines waits for its threads."""

import pytest

from vademecum.examine._supervised import Question, supervised

FILE = """
import os
from torch import nn, randn
class Said(nn.Linear):
    pass
Said.__qualname__ = str((os.environ.get("GOMP_SPINCOUNT"), os.environ.get("OMP_WAIT_POLICY")))
net, data = Said(3, 2), randn(9, 3)
"""


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({}, ("1000", None)),
        ({"GOMP_SPINCOUNT": "7"}, ("7", None)),
        ({"OMP_WAIT_POLICY": "active"}, (None, "active")),
    ],
)
def test_threads_do_not_wait_awake_for_long_unless_that_is_asked_for(
    tmp_path, monkeypatch, given, seen
):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    question = Question(f"{path}:net", f"{path}:data", sections=("anatomy",))
    assert supervised(question).environment["model"].endswith(str(seen))
