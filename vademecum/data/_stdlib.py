"""A corpus that every reader has: the sources of Python's own standard library.

All `.py` files of the library's modules, in the order of their paths, one after the other. Left out
are the tests, the tables of character encodings and the packages that distributions ship apart
(Tk, IDLE, `distutils` and the like), so that two installations of one Python version agree.
Another version of Python is another corpus.
"""

import sys
import sysconfig
import tokenize
from pathlib import Path

from vademecum.data.kinds import Text

__all__ = ["stdlib_folder", "stdlib_text"]

APART = {
    "distutils", "encodings", "ensurepip", "idlelib", "lib2to3", "tkinter", "turtledemo", "venv",
}  # fmt: skip
TESTS = {"test", "tests", "idle_test"}

TRAIN_SHARE = (9, 10)
"""The first nine tenths of the characters train, the last tenth tests."""


def stdlib_folder() -> Path | None:
    """Where the sources are, or None where Python was installed without them."""
    folder = Path(sysconfig.get_path("stdlib"))
    return folder if (folder / "os.py").is_file() else None


def stdlib_text(folder: Path, *, split: str = "train") -> Text:
    """The corpus, as `load("stdlib_text")` returns it.

    Args:
        folder: The folder of the standard library.
        split: "train" (the first nine tenths), "test" (the rest) or "all".
    """
    text = "".join(_source(path) for path in _paths(folder))
    cut = len(text) * TRAIN_SHARE[0] // TRAIN_SHARE[1]
    part = {"train": text[:cut], "test": text[cut:], "all": text}[split]
    return Text(part, "".join(sorted(set(text))))


def _paths(folder: Path) -> list[Path]:
    names = sys.stdlib_module_names - APART
    paths = [folder / f"{name}.py" for name in names]
    paths = [path for path in paths if path.is_file()]
    for name in names:
        paths += (folder / name).rglob("*.py")
    parts = {path: path.relative_to(folder).parts for path in paths}
    return sorted((path for path in paths if not TESTS & set(parts[path])), key=parts.__getitem__)


def _source(path: Path) -> str:
    with tokenize.open(path) as file:
        return file.read()
