"""Triton, in which kernels for CUDA devices are written, where it is installed.

Modules with kernels can be imported without it, and nobody calls the kernels then. Such modules
begin with `from __future__ import annotations`, since their annotations name what is in `tl`.
"""

import os
import shutil
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["has_triton", "jit", "libdevice", "power_of_two", "tl"]


_INSTALLED = find_spec("triton") is not None
_COMPILER = "CC" in os.environ or any(map(shutil.which, ("gcc", "clang")))

tl: Any = import_module("triton.language") if _INSTALLED else None
"""The language of kernels; None without Triton."""

libdevice: Any = import_module("triton.language.extra.libdevice") if _INSTALLED else None
"""CUDA's mathematical functions; None without Triton."""

jit: Any = import_module("triton").jit if _INSTALLED else lambda kernel: kernel
"""What makes a function a kernel; without Triton it stays as it is."""


def has_triton() -> bool:
    """Whether Triton is installed, and the C compiler without which it makes no kernel."""
    return _INSTALLED and _COMPILER


def power_of_two(k: int) -> int:
    """The smallest power of two from k on, as sizes of blocks must be.

    Example:
        >>> [power_of_two(k) for k in (1, 2, 3, 768)]
        [1, 2, 4, 1024]
    """
    return 1 << (k - 1).bit_length()
