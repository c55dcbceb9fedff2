"""Sparse rows of unequal lengths in batches of padded ones, for one call on many small systems."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from torch import Tensor

__all__ = ["PaddedRows", "padded_rows"]

CELLS = 2**17
"""Padded cells in a batch: with vectors of 50 numbers in double precision some 50 MB."""


class PaddedRows(NamedTuple):
    """Some rows of a sparse matrix that have about equally many entries."""

    rows: Int[Tensor, " b"]
    """Which rows they are."""
    columns: Int[Tensor, " b width"]
    """The columns of their entries; 0 where there is none."""
    values: Float[Tensor, " b width"]
    """Their entries; 0 where there is none."""


def padded_rows(matrix: csr_array, device: Any) -> Iterator[PaddedRows]:
    """All rows of a matrix that have entries, shortest first."""
    lengths = np.diff(matrix.indptr)
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and (end + 1 - start) * lengths[order[end]] <= CELLS:
            end += 1
        yield _padded(matrix, order[start:end], device)
        start = end


def _padded(matrix: csr_array, rows: np.ndarray, device: Any) -> PaddedRows:
    lengths, starts = np.diff(matrix.indptr)[rows], matrix.indptr[rows]
    places = np.arange(lengths.max())
    there = places < lengths[:, None]
    at = np.where(there, starts[:, None] + places, 0)
    columns = np.where(there, matrix.indices[at], 0).astype(np.int64)
    values = np.where(there, matrix.data[at], 0.0)
    parts = rows.astype(np.int64), columns, values
    return PaddedRows(*(torch.from_numpy(part).to(device) for part in parts))
