"""Imports are cheap: what `import vademecum`, its rooms and the command line's help load."""

import subprocess
import sys


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_import_is_cheap():
    code = (
        "import torch, sys, time; before = set(sys.modules); start = time.perf_counter()\n"
        "import vademecum; seconds = time.perf_counter() - start\n"
        "print(seconds, *(set(sys.modules) - before))"
    )
    seconds = []
    for _ in range(3):
        first, *modules = run_python(code).split()
        seconds.append(float(first))
        loaded = {m.partition(".")[0] for m in modules}
        assert not loaded & {"matplotlib", "scipy", "sympy", "sklearn", "networkx"}
    assert min(seconds) < 0.1


def test_rooms_do_not_import_matplotlib():
    code = "import importlib, sys, vademecum\n"
    code += "for room in vademecum.ROOMS:\n    importlib.import_module(f'vademecum.{room}')\n"
    assert "matplotlib" not in run_python(code + "print(*sys.modules)").split()


def test_help_does_not_import_torch():
    code = (
        "import sys, contextlib\nfrom vademecum.cli import main\n"
        "with contextlib.suppress(SystemExit):\n    main(['--help'])\n"
        "print()\nprint(*sys.modules)"
    )
    assert not {"torch", "matplotlib", "scipy"} & set(run_python(code).split())
