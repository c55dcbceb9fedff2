r"""Loading a data set by its name.

Pixels are stored as levels $0, \dots, L$ ($L = 255$, and $16$ for the digits) and come as
$x = \text{level} / L \in [0, 1]$. Every number is the published one: what is read is checked
against the counts, sizes and labels that the data set is known to have, and refused otherwise.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from vademecum.arguments import choice
from vademecum.data._karate import karate_club
from vademecum.data._stdlib import stdlib_folder, stdlib_text
from vademecum.data.cifar import CIFAR10_CLASSES, read_cifar10
from vademecum.data.idx import read_idx
from vademecum.data.kinds import Graph, Images, Text
from vademecum.data.sources import CIFAR10, FASHION_MNIST, MNIST, DataNotFoundError, Source
from vademecum.results import one_line

__all__ = ["DATASETS", "Entry", "describe", "load"]

SPLITS = ("train", "test", "all")
DIGITS = tuple("0123456789")
FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
DIGITS_TRAIN = 1437
"""The first four fifths of scikit-learn's 1797 digits; the order is by writer."""

ImageName = Literal["digits", "fashion_mnist", "mnist", "cifar10"]
Split = Literal["train", "test", "all"]


class Entry(NamedTuple):
    """What `describe` says of a data set.

    Attributes:
        name: The name that `load` takes.
        kind: "images", "graph" or "text".
        description: What it is.
        size: How much there is of it.
        source: Where it comes from.
        found: Where it lies on this machine, or None: then `load` would download it.
        hint: What to install or set to have it offline; empty where it is found.
    """

    name: str
    kind: str
    description: str
    size: str
    source: str
    found: Path | None
    hint: str

    __repr__ = one_line


@overload
def load(
    name: ImageName,
    *,
    split: Split = ...,
    dtype: torch.dtype = ...,
    device: torch.device | str | None = ...,
    download: bool = ...,
) -> Images: ...
@overload
def load(
    name: Literal["karate"], *, split: Split = ..., device: torch.device | str | None = ...
) -> Graph: ...
@overload
def load(name: Literal["stdlib_text"], *, split: Split = ...) -> Text: ...
@overload
def load(
    name: str,
    *,
    split: str = ...,
    dtype: torch.dtype = ...,
    device: torch.device | str | None = ...,
    download: bool = ...,
) -> Images | Graph | Text: ...
def load(
    name: str,
    *,
    split: str = "train",
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    download: bool = True,
) -> Images | Graph | Text:
    """Load a data set, from this machine where it is here, else by a download.

    The digits and the text, which have no official split, are cut by position: the first four
    fifths and nine tenths train. The karate club is one graph and has no test split.

    Args:
        name: One of `DATASETS`.
        split: "train", "test" or "all" (the training examples, then the test examples).
        dtype: A floating dtype for pixels in [0, 1], or `torch.uint8` for the levels as stored.
            Graphs and texts have no use for it.
        device: Where the tensors go.
        download: Whether to fetch what is not on this machine.

    Returns:
        `Images`, a `Graph` or a `Text`.

    Raises:
        ValueError: Where an argument is not one of those, or a file is not what it should be.
        DataNotFoundError: Where the data set is not here and could not be fetched. It is a
            `FileNotFoundError`, and says what to install or to set.

    Example:
        >>> x, y, classes = load("digits")
        >>> tuple(x.shape), x.max().item(), classes[y[0]]
        ((1437, 1, 8, 8), 1.0, '0')
    """
    choice("name", name, DATASETS)
    choice("split", split, SPLITS)
    if not (dtype.is_floating_point or dtype == torch.uint8):
        raise ValueError(f"dtype must be floating point or torch.uint8, got {dtype}")
    if name == "karate":
        if split == "test":
            raise ValueError("split must be 'train' or 'all' for karate, one graph, got 'test'")
        return karate_club(device=device)
    if name == "stdlib_text":
        if (folder := stdlib_folder()) is None:
            raise DataNotFoundError("the sources of the standard library are not installed")
        return stdlib_text(folder, split=split)
    read, classes, levels = _IMAGES[name]
    x, y = read(split, download)
    x = x.to(device)
    x = x if dtype == torch.uint8 else x.to(dtype).div_(levels)
    return Images(x, y.to(device), classes)


Pixels = tuple[Tensor, Tensor]


def _digits(split: str, download: bool) -> Pixels:
    from sklearn.datasets import load_digits

    levels, labels = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
    x, y = levels.to(torch.uint8).reshape(-1, 1, 8, 8), labels.long()
    rows = {"train": slice(DIGITS_TRAIN), "test": slice(DIGITS_TRAIN, None), "all": slice(None)}
    return x[rows[split]], y[rows[split]]


def _idx(source: Source) -> Callable[[str, bool], Pixels]:
    def read(split: str, download: bool) -> Pixels:
        halves = ("train", "test") if split == "all" else (split,)
        files = source.get(split, download=download)
        parts = [
            _pair(*files[2 * i : 2 * i + 2], count=source.counts[half])
            for i, half in enumerate(halves)
        ]
        if len(parts) == 1:
            return parts[0]
        return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])

    return read


def _pair(images: Path, labels: Path, *, count: int) -> Pixels:
    y = read_idx(labels)
    _expect(labels, y, (count,))
    if count and y.max() > 9:
        raise ValueError(f"{labels} must have labels 0 to 9, got {y.max().item()}")
    x = read_idx(images)
    _expect(images, x, (count, 28, 28))
    return x[:, None], y.long()


def _expect(path: Path, entries: Tensor, shape: tuple[int, ...]) -> None:
    if entries.dtype != torch.uint8 or tuple(entries.shape) != shape:
        raise ValueError(
            f"{path} must hold uint8 of shape {shape}, "
            f"got {str(entries.dtype).removeprefix('torch.')} of shape {tuple(entries.shape)}"
        )


def _cifar10(split: str, download: bool) -> Pixels:
    (path,) = CIFAR10.get(split, download=download)
    return read_cifar10(path, split=split, records=CIFAR10.counts["test"])


_IMAGES: dict[str, tuple[Callable[[str, bool], Pixels], tuple[str, ...], int]] = {
    "digits": (_digits, DIGITS, 16),
    "fashion_mnist": (_idx(FASHION_MNIST), FASHION, 255),
    "mnist": (_idx(MNIST), DIGITS, 255),
    "cifar10": (_cifar10, CIFAR10_CLASSES, 255),
}

DATASETS = (*_IMAGES, "karate", "stdlib_text")
"""The names that `load` takes."""


def describe() -> list[Entry]:
    """What there is, where it was found, and what to do about what was not.

    Example:
        >>> [entry.name for entry in describe() if entry.kind != "images"]
        ['karate', 'stdlib_text']
    """
    sklearn = importlib.util.find_spec("sklearn")
    digits = Path(sklearn.origin).parent if sklearn and sklearn.origin else None
    library = stdlib_folder()
    pairs = "60,000 + 10,000 images of 1 x 28 x 28"
    return [
        Entry("digits", "images", "handwritten digits", "1,437 + 360 images of 1 x 8 x 8",
              "bundled with scikit-learn", digits, "" if digits else "pip install scikit-learn"),
        _published(FASHION_MNIST, "articles of clothing", pairs, "Zalando Research, 2017"),
        _published(MNIST, "handwritten digits", pairs, "LeCun, Cortes and Burges, 1998"),
        _published(CIFAR10, "small photographs", "50,000 + 10,000 images of 3 x 32 x 32",
                   "Krizhevsky, 2009"),
        Entry("karate", "graph", "friendships in a karate club", "34 nodes, 78 edges",
              "built in (Zachary, 1977)", Path(__file__).with_name("_karate.py"), ""),
        Entry("stdlib_text", "text", "the sources of Python's standard library",
              "about 8.5 million characters", "this Python", library,
              "" if library else "install Python's standard library as source files"),
    ]  # fmt: skip


def _published(source: Source, description: str, size: str, origin: str) -> Entry:
    paths = source.find()
    found = paths[0].parent if paths else None
    hint = "" if found else source.hint()
    return Entry(source.name, "images", description, size, origin, found, hint)
