"""What the README and CONTRIBUTING show must work as shown."""

import doctest
import re
from pathlib import Path
from typing import Any

import torch

from vademecum.claims.ledger import LEDGER

ROOT = Path(__file__).parent.parent


def _blocks(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_readme_shows_what_happens():
    (shown,) = _blocks("README.md")
    test = doctest.DocTestParser().get_doctest(shown, {}, "README.md", None, None)
    failed, tried = doctest.DocTestRunner().run(test)
    assert tried == 9
    assert failed == 0


def test_the_examples_of_contributing_work():
    leaf, claim = _blocks("CONTRIBUTING.md")
    names: dict[str, Any] = {"__name__": "contributing.claims.example"}
    exec(f"{leaf}\nimport torch\nfrom vademecum.claims import at_most, claim\n{claim}", names)
    try:
        assert names["perceptron_loss"](torch.tensor([2.0]), torch.tensor([-1.0])) == 2.0
        assert names["perceptron_loss_is_convex"].run()
    finally:
        LEDGER.pop("contributing.perceptron_loss_is_convex")


def test_contributing_is_short():
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 60
