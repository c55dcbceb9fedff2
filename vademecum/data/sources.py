"""Where the published files of a data set may lie: installed, in a folder of yours, or fetched.

The order is fixed, and everything before the last step works offline:

1. the folder of a Debian package, where there is one;
2. `$VADEMECUM_DATA/<name>/`, with the files as published or unpacked;
3. the user's cache, filled by a download whose SHA-256 must be the one stated here.

The sums are those that TensorFlow Datasets publishes for the same files; Fashion-MNIST's and
CIFAR-10's go with the MD5 sums that their authors publish.
"""

import os
from pathlib import Path
from typing import NamedTuple

from vademecum.data._download import DownloadError, cache_folder, fetch, is_intact

__all__ = ["CIFAR10", "FASHION_MNIST", "MNIST", "DataNotFoundError", "File", "Source"]

VARIABLE = "VADEMECUM_DATA"


class DataNotFoundError(FileNotFoundError):
    """A data set is not on this machine and could not be fetched; the message says what to do."""


class File(NamedTuple):
    """A published file.

    Attributes:
        name: Its name.
        sha256: Its sum.
        split: The split that it belongs to, or "all".
        unpacked: Its name once unpacked.
    """

    name: str
    sha256: str
    split: str
    unpacked: str


class Source(NamedTuple):
    """The published files of a data set and the places that have them.

    Attributes:
        name: The data set's name.
        files: The files.
        counts: The number of examples of "train" and of "test".
        mirrors: Addresses that end where a file's name begins, in the order of preference.
        package: The Debian package that has the files, if any.
        folder: Where that package puts them.
    """

    name: str
    files: tuple[File, ...]
    counts: dict[str, int]
    mirrors: tuple[str, ...]
    package: str = ""
    folder: str = ""

    def needed(self, split: str) -> list[File]:
        """The files that a split is read from."""
        return [file for file in self.files if "all" in (split, file.split) or file.split == split]

    def find(self, split: str = "all") -> list[Path] | None:
        """The files of a split as they lie on this machine, without a download."""
        for folder in self.folders():
            found = [_present(folder, file) for file in self.needed(split)]
            if all(found):
                return [path for path in found if path]
        cache = cache_folder(self.name)
        if cache and all(is_intact(cache / file.name, file.sha256) for file in self.needed(split)):
            return [cache / file.name for file in self.needed(split)]
        return None

    def get(self, split: str, *, download: bool) -> list[Path]:
        """The files of a split, downloaded if need be.

        Raises:
            DataNotFoundError: Where they are not here and could not be fetched.
        """
        if found := self.find(split):
            return found
        try:
            if not download:
                raise DownloadError("download=False")
            return [
                fetch(file.name, file.sha256, mirrors=self.mirrors, name=self.name)
                for file in self.needed(split)
            ]
        except DownloadError as error:
            raise DataNotFoundError(self._help(split, str(error))) from error

    def folders(self) -> list[Path]:
        """The folders to look in before any download."""
        own = os.environ.get(VARIABLE)
        installed = [Path(self.folder)] if self.folder else []
        return installed + ([Path(own).expanduser() / self.name] if own else [])

    def hint(self) -> str:
        """What to do to get the data set."""
        fetchable = cache_folder(self.name) is not None
        ways = [f"apt install {self.package}"] if self.package else []
        ways += [
            "load it with a network" if fetchable else "pip install vademecum[data] to download it",
            f"set {VARIABLE} to a folder of data",
        ]
        return ", or ".join(ways)

    def _help(self, split: str, reason: str) -> str:
        files = [f"{file.name} (or {file.unpacked})" for file in self.needed(split)]
        looked = [f"looked in {folder}" for folder in self.folders()]
        return "\n  ".join(
            [
                f"{self.name} was not found: {self.hint()}.",
                f"Files expected in ${VARIABLE}/{self.name}/: {', '.join(files)}",
                *looked,
                f"not downloaded: {reason}",
            ]
        )


def _present(folder: Path, file: File) -> Path | None:
    paths = (folder / file.name, folder / file.unpacked)
    return next((path for path in paths if path.exists()), None)


def _idx_files(*sums: str) -> tuple[File, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    splits = ("train", "train", "test", "test")
    return tuple(
        File(f"{name}-ubyte.gz", sha256, split, f"{name}-ubyte")
        for name, sha256, split in zip(names, sums, splits, strict=True)
    )


MNIST = Source(
    name="mnist",
    files=_idx_files(
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    counts={"train": 60_000, "test": 10_000},
    mirrors=(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
)
"""LeCun, Cortes and Burges' handwritten digits."""

FASHION_MNIST = Source(
    name="fashion_mnist",
    files=_idx_files(
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
    counts={"train": 60_000, "test": 10_000},
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    package="dataset-fashion-mnist",
    folder="/usr/share/datasets/fashion-mnist",
)
"""Zalando Research's articles of clothing."""

CIFAR10 = Source(
    name="cifar10",
    files=(
        File(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            "all",
            "cifar-10-batches-bin",
        ),
    ),
    counts={"train": 50_000, "test": 10_000},
    mirrors=("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
)
"""Krizhevsky's small photographs."""
