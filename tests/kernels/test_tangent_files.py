"""Tangent kernels in files: killed and continued, of several ranks, and of other networks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from vademecum.kernels import empirical_ntk, ntk_parametrize

X = torch.from_numpy(np.random.default_rng(0).normal(size=(12, 4)))


def net(activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), activation(), nn.Linear(5, 3)).double()


def frozen(shift: float) -> nn.Module:
    """A network whose first layer does not count, but matters."""
    model = net()
    with torch.no_grad():
        model[0].requires_grad_(False).weight.add_(shift)  # pyright: ignore
    return model


OTHERS = {
    "another activation": (net, {}, lambda: net(nn.ReLU), {}),
    "frozen tensors": (lambda: frozen(0), {"frozen": False}, lambda: frozen(1), {"frozen": False}),
    "frozen tensors that count": (lambda: frozen(0), {"frozen": False}, lambda: frozen(0), {}),
    "coordinates": (net, {}, lambda: ntk_parametrize(net(), weight_variance=1.0), {}),
    "other coordinates": (
        lambda: ntk_parametrize(net(), weight_variance=1.0), {},
        lambda: ntk_parametrize(net(), weight_variance=2.0), {},
    ),
    "another kind": (net, {"outputs": "trace"}, net, {"outputs": "sum"}),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_files_of_other_networks_are_refused(tmp_path, name):
    one, knobs, other, others = OTHERS[name]
    file = tmp_path / "kernel.npy"
    kept = empirical_ntk(one(), X, out=file, **knobs).clone()
    assert torch.equal(empirical_ntk(one(), X, out=file, **knobs), kept)
    with pytest.raises(ValueError, match="of a build with another kernel or data"):
        empirical_ntk(other(), X, out=file, **others)
    assert np.array_equal(np.load(file), kept.numpy())


BUILD = """
import os, sys, time, torch
from torch import nn
import vademecum.kernels._tile_file as tile_file
from vademecum.kernels import _tangent_tiles, empirical_ntk

tile_file._SECONDS = 0.02
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 20), nn.Tanh(), nn.Linear(20, 3)).double()
x = torch.randn(60, 5).double()
compute = _tangent_tiles.TangentTiles.__call__

def slowly(self, rows, columns):
    time.sleep(float(sys.argv[2]))
    return compute(self, rows, columns)

_tangent_tiles.TangentTiles.__call__ = slowly
several = "RANK" in os.environ
if several:
    torch.distributed.init_process_group("gloo")
K = empirical_ntk(net, x, out=sys.argv[1], memory=60000)
torch.testing.assert_close(K, empirical_ntk(net, x))
if several:
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
"""


def build(file: Path, pause: float) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", BUILD, str(file), str(pause)])


def done(file: Path) -> int:
    journal = Path(f"{file}.tiles")
    return journal.read_text().splitlines()[-1].count("x") if journal.exists() else 0


@pytest.mark.slow
def test_kill_9_in_the_middle_and_two_ranks(tmp_path):
    """The file becomes the same, byte by byte."""
    straight, killed, both = (tmp_path / f"{name}.npy" for name in ("straight", "killed", "both"))
    assert build(straight, 0).wait() == 0
    running = build(killed, 0.1)
    while done(killed) < 5:
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    assert 5 <= done(killed) < done(straight)
    assert build(killed, 0).wait() == 0
    assert killed.read_bytes() == straight.read_bytes()
    program = tmp_path / "build.py"
    program.write_text(BUILD)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    several = [*launcher, str(program), str(both), "0"]
    assert subprocess.run(several, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode == 0
    assert both.read_bytes() == straight.read_bytes()
