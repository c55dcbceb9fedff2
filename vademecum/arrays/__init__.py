"""Large arrays, small blocks and portions of them, their second moments, ends of the range."""

from vademecum.arrays.elimination import (
    Echelon,
    rational_determinant,
    rational_rank,
    row_reduce,
)
from vademecum.arrays.large import empty
from vademecum.arrays.memory import portions
from vademecum.arrays.scaling import lengths, power_of_two
from vademecum.arrays.second_moments import Gram, gram
from vademecum.arrays.small_blocks import one_blas_thread, one_torch_thread, views

__all__ = [
    "Echelon",
    "Gram",
    "empty",
    "gram",
    "lengths",
    "one_blas_thread",
    "one_torch_thread",
    "portions",
    "power_of_two",
    "rational_determinant",
    "rational_rank",
    "row_reduce",
    "views",
]
