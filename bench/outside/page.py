"""The examples of a Markdown page, run as they stand: `docs/measure.md` measures a model."""

import doctest
import re
from pathlib import Path

__all__ = ["MEASURE", "run_examples"]

MEASURE = Path(__file__).parent.parent.parent / "docs" / "measure.md"
"""The page that takes models from outside through every instrument."""


def run_examples(page: Path, *, without: str = "") -> doctest.TestResults:
    """Run the blocks of Python in a page one after the other, as in one session.

    Args:
        page: The page.
        without: A word; blocks that hold it are left out.
    """
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    source = "\n".join(block for block in blocks if not without or without not in block)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    return runner.run(doctest.DocTestParser().get_doctest(source, {}, page.name, str(page), 0))
