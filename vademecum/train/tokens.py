r"""Token files too large for memory: windows of a long row of integers, read where they are needed.

Window $i$ holds the tokens $i s, \dots, i s + l - 1$ for the length $l$ and the stride $s$; what is
left at the end is no window. The file is mapped into memory, so that only the pages that windows
lie on are read. It is a `.npy` file, or bare integers without a header.
"""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from vademecum.arguments import choice, whole

__all__ = ["Tokens"]

_DTYPES = ("uint8", "uint16", "uint32", "int16", "int32", "int64")


class Tokens:
    """Windows of a long row of tokens, as data to train on.

    Args:
        source: A tensor of integers with one axis, or the path of a file of them: a `.npy` file, or
            one without a header.
        length: How many tokens a window has. A model that predicts the next token needs one more
            than it reads.
        stride: How far apart windows begin; as long as they are by default.
        dtype: The integers of a file without a header.

    Raises:
        ValueError: If the file cannot be read, holds something else, or is shorter than a window.

    Example:
        >>> windows = Tokens(torch.arange(8), length=3, stride=2)
        >>> len(windows), windows.read(torch.tensor([2, 0])).tolist()
        (3, [[4, 5, 6], [0, 1, 2]])
    """

    def __init__(
        self,
        source: Int[Tensor, " n"] | str | PathLike[str],
        *,
        length: int,
        stride: int | None = None,
        dtype: str = "uint16",
    ):
        self.length = whole("length", length, low=1)
        self.stride = self.length if stride is None else whole("stride", stride, low=1)
        choice("dtype", dtype, _DTYPES)
        self._name = "a tensor" if isinstance(source, Tensor) else str(source)
        self._tokens: Any = source if isinstance(source, Tensor) else _mapped(Path(source), dtype)
        if self._tokens.ndim != 1 or "int" not in str(self._tokens.dtype):
            given = f"{self._tokens.dtype} of shape {tuple(self._tokens.shape)}"
            raise ValueError(f"source must be integers along one axis, got {given}")
        if len(self._tokens) < self.length:
            raise ValueError(
                f"source must hold at least {self.length} tokens, one window, got"
                f" {len(self._tokens)} in {self._name}"
            )

    def __len__(self) -> int:
        """How many windows there are."""
        return (len(self._tokens) - self.length) // self.stride + 1

    def __repr__(self) -> str:
        return f"Tokens({self._name}, length={self.length}, stride={self.stride})"

    def read(self, windows: Int[Tensor, " n"]) -> Int[Tensor, " n length"]:
        """Some windows as integers of 64 bits.

        Args:
            windows: Their numbers.
        """
        places = windows[:, None] * self.stride + torch.arange(self.length)
        if isinstance(self._tokens, Tensor):
            return self._tokens[places.to(self._tokens.device)].long()
        return torch.from_numpy(self._tokens[places.numpy()].astype(np.int64))


def _mapped(path: Path, dtype: str) -> Any:
    try:
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)
        return np.memmap(path, dtype=dtype, mode="r")
    except (OSError, ValueError, EOFError) as error:  # no file, no right, an odd or empty one
        raise ValueError(f"source must be a file of tokens, got {path}: {error}") from error
