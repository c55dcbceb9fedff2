"""Terms of a loss that are no numbers, by name."""

import math

import torch
from torch import Tensor

__all__ = ["insist_on_numbers"]


def insist_on_numbers(terms: dict[str, Tensor], x: Tensor) -> None:
    """Name a term that is not finite, or the examples if it is they; on the CPU alone.

    Elsewhere it would have to wait for the device.
    """
    for name, term in terms.items():
        if term.device.type != "cpu" or torch.compiler.is_compiling():
            return
        values = torch.func.debug_unwrap(term.detach())  # of all networks that vmap maps over
        total = float(values.sum(dtype=torch.float64))
        if not math.isfinite(total):
            if not bool(torch.func.debug_unwrap(x).isfinite().all()):
                raise ValueError("x must be finite, got NaN or infinite entries")
            bad = [*values[~values.isfinite()].tolist(), total][0]
            raise ValueError(f"loss must be finite, got {bad} in its term {name!r}")
