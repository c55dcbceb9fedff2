"""Whether kernels can be made: Triton has to be there, and a C compiler for it."""

import importlib.util
import runpy
import shutil
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from vademecum.arrays import triton_code

MODULES = "triton", "triton.language", "triton.language.extra.libdevice"


@pytest.mark.parametrize(
    ("installed", "compilers", "named", "can"),
    [
        (True, {"gcc"}, False, True),
        (True, {"clang"}, False, True),
        (True, set(), True, True),
        (True, set(), False, False),
        (True, {"tcc"}, False, False),
        (False, {"gcc"}, True, False),
    ],
)
def test_kernels_need_triton_and_a_compiler(
    installed: bool,
    compilers: set[str],
    named: bool,
    can: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    there: Any = SimpleNamespace(jit=lambda kernel: "compiled")
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, there)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: there if installed else None)
    monkeypatch.setattr(shutil, "which", lambda name: name if name in compilers else None)
    monkeypatch.delenv("CC", raising=False)
    if named:
        monkeypatch.setenv("CC", "/opt/a-compiler")
    found = runpy.run_path(triton_code.__file__)
    assert found["has_triton"]() is can
    assert (found["tl"] is there) is installed
    assert (found["jit"](len) == "compiled") is installed
