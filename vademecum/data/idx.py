r"""The IDX format, in which MNIST and its kin are published.

A file is the header

$$0,\ 0,\ \text{type},\ r,\ n_1, \dots, n_r$$

(four bytes, then $r$ big-endian 32-bit sizes) and then the $n_1 \cdots n_r$ entries in row-major
order, big-endian. The reader takes a file only if it is exactly as long as its header says.
"""

import io
import math
import os
import struct

import numpy as np
import torch
from jaxtyping import Num
from torch import Tensor

from vademecum.data._packed import unpacked

__all__ = ["read_idx"]

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""The entries' type by its code: unsigned and signed bytes, shorts, ints, floats, doubles."""

AXES = 64
"""As many axes as NumPy and torch can have."""


def read_idx(path: str | os.PathLike[str]) -> Num[Tensor, " *shape"]:
    """Read an IDX file, gzipped or plain.

    Args:
        path: The file.

    Returns:
        A tensor of the shape and dtype that the header states.

    Raises:
        ValueError: Where the file is not IDX, is shorter or longer than its header states, or is a
            broken gzip stream. No memory is set aside for entries that the file cannot hold.

    References:
        Y. LeCun, C. Cortes, C. J. C. Burges, The MNIST database of handwritten digits, 1998.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "tiny")
        ...     with open(path, "wb") as file:
        ...         _ = file.write(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6]))
        ...     read_idx(path)
        tensor([[1, 2, 3],
                [4, 5, 6]], dtype=torch.uint8)
    """
    with unpacked(path) as (stream, most):
        dtype, shape = _header(path, stream)
        head = 4 + 4 * len(shape)
        body = math.prod(shape) * dtype.itemsize
        stated = (
            f"a header that states {' x '.join(map(str, shape)) or '1'} entries of {dtype.name}"
        )
        if head + body > most:
            raise ValueError(f"{path} has {stated}: {head + body} bytes, but holds at most {most}")
        if math.prod(filter(None, shape)) * dtype.itemsize >= 2**63:
            raise ValueError(f"{path} has {stated}, which no array can hold")
        entries = np.empty(shape, dtype)
        got = _fill(stream, entries)
        if got < body:
            raise ValueError(f"{path} has {stated}: {head + body} bytes, but holds {head + got}")
        # Reading past the end also lets gzip compare its checksum.
        if stream.read(1):
            raise ValueError(f"{path} has {stated}: {head + body} bytes, but holds more")
    return torch.from_numpy(_native(entries))


def _header(
    path: str | os.PathLike[str], stream: io.BufferedIOBase
) -> tuple[np.dtype, tuple[int, ...]]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or magic[3] > AXES:
        raise ValueError(
            f"{path} must be an IDX file, which starts with two zero bytes, a type code "
            f"({', '.join(f'{code:02x}' for code in TYPES)}) and a number of axes of at most "
            f"{AXES}, but starts with {magic.hex(' ') or 'nothing'}"
        )
    axes = magic[3]
    sizes = stream.read(4 * axes)
    if len(sizes) < 4 * axes:
        raise ValueError(f"{path} must state the sizes of {axes} axes, but ends in its header")
    return np.dtype(TYPES[magic[2]]), struct.unpack(f">{axes}I", sizes)


def _fill(stream: io.BufferedIOBase, entries: np.ndarray) -> int:
    """Read into the array, and say how many bytes there were."""
    view = entries.reshape(-1).view(np.uint8).data
    got = 0
    while got < len(view) and (step := stream.readinto(view[got:])):
        got += step
    return got


def _native(entries: np.ndarray) -> np.ndarray:
    native = entries.dtype.newbyteorder("=")
    return entries if entries.dtype == native else entries.byteswap(inplace=True).view(native)
