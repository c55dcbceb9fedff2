"""Where checks run: one thread, double precision, random numbers that belong to a name."""

import hashlib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from threadpoolctl import ThreadpoolController  # comes with scikit-learn

from vademecum.arrays import one_torch_thread
from vademecum.randomness import own_randomness

__all__ = ["laboratory"]


@contextmanager
def laboratory(key: str) -> Iterator[None]:
    """One thread, double precision, a seed made from a name: a new claim moves no old number.

    Iterations that do not converge give no warning: a check may cut them short on purpose, a foil
    often does, and the evidence tells what came of it.
    """
    from sklearn.exceptions import ConvergenceWarning

    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:7])
    dtype = torch.get_default_dtype()
    with (
        own_randomness(seed), _pools(len(sys.modules)).limit(limits=1), one_torch_thread(),
        warnings.catch_warnings(),
    ):  # fmt: skip
        warnings.simplefilter("ignore", ConvergenceWarning)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


@lru_cache(1)
def _pools(modules: int) -> ThreadpoolController:
    """The pools of threads of the libraries that are loaded; to look for them takes 2 ms.

    A library comes with a module that is imported, so they are looked for again when there are more
    modules.
    """
    return ThreadpoolController()
