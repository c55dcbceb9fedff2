"""Gram matrices in a file: refused, killed, continued, and written by several ranks."""

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist

from vademecum.kernels import Kernel, MaternKernel, RBFKernel, gram, infinite_width

X = torch.from_numpy(np.random.default_rng(0).normal(size=(23, 4)))
SMALL = 4 * 8 * 25 + 64 * 4 * 5  # room for tiles of 5 x 5: 15 of them


class Failing:
    """A plain function as a kernel, which counts and fails when it has been asked often enough."""

    def __init__(self, most: float = math.inf):
        self.asked, self.most = 0, most

    def __call__(self, x1: Tensor, x2: Tensor) -> Tensor:
        self.asked += 1
        if self.asked > self.most:
            raise InterruptedError
        return torch.exp(-torch.cdist(x1, x2))


def marks(file: Path) -> str:
    return (file.parent / f"{file.name}.tiles").read_text().splitlines()[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_into_a_file(tmp_path, dtype):
    x, kernel, file = X.to(dtype), RBFKernel(), tmp_path / "k.npy"
    found = gram(kernel, x, out=str(file), memory=SMALL)
    torch.testing.assert_close(found, gram(kernel, x))
    assert np.array_equal(np.load(file), found.numpy())
    assert marks(file) == "x" * 15
    wide = gram(kernel, x, x[:4], out=tmp_path / "wide.npy", memory=SMALL)
    torch.testing.assert_close(wide, gram(kernel, x, x[:4]))


def test_a_broken_build_goes_on(tmp_path):
    file, first, second, third = tmp_path / "k.npy", Failing(6), Failing(), Failing(0)
    with pytest.raises(InterruptedError):
        gram(first, X, out=file, memory=SMALL)
    assert marks(file) == "x" * 6 + "." * 9
    found = gram(second, X, out=file, memory=SMALL)
    assert second.asked == 9
    assert torch.equal(found, gram(third, X, out=file, memory=SMALL))
    torch.testing.assert_close(found, MaternKernel(nu=0.5)(X))


def test_tiles_on_record_are_not_computed_again(tmp_path):
    """A tile marked as finished is taken from the file; one that is not is computed."""
    file = tmp_path / "k.npy"
    gram(Failing(), X, out=file, memory=SMALL)
    array = np.load(file, mmap_mode="r+")
    array[0, 0], array[22, 22] = 7.0, 8.0
    array.flush()
    journal = tmp_path / "k.npy.tiles"
    journal.write_bytes(journal.read_bytes()[:-1] + b".")
    again = Failing()
    found = gram(again, X, out=file, memory=SMALL)
    assert (again.asked, float(found[0, 0]), float(found[22, 22])) == (1, 7.0, 1.0)


@pytest.mark.parametrize("state", ["only the journal", "an empty file", "the file was deleted"])
def test_a_build_killed_before_its_first_tile_starts_anew(tmp_path, state):
    file = tmp_path / "k.npy"
    with pytest.raises(InterruptedError):
        gram(Failing(3 if "deleted" in state else 0), X, out=file, memory=SMALL)
    file.unlink()
    if state == "an empty file":
        file.touch()
    found = gram(Failing(), X, out=file, memory=SMALL)
    torch.testing.assert_close(found, MaternKernel(nu=0.5)(X))


OTHER = X + 1


@pytest.mark.parametrize(
    ("again", "message"),
    [
        (lambda f: gram(RBFKernel(), OTHER, out=f), "of a build with another kernel or data"),
        (lambda f: gram(RBFKernel(lengthscale=1 + 1e-15), X, out=f), "another kernel or data"),
        (lambda f: gram(MaternKernel(), X, out=f), "of a build with another kernel or data"),
        (lambda f: gram(RBFKernel(), X, X, out=f), "another symmetric .True, here False., kernel"),
        (lambda f: gram(RBFKernel(), X[:9], out=f), r"another shape \(\[23, 23\], here \[9, 9\]\)"),
        (lambda f: gram(RBFKernel(), X, out=f, memory=SMALL), r"another tile \(23, here 5\)"),
        (lambda f: gram(RBFKernel(), X.float(), out=f), r"kernel or data, dtype \(<f8, here <f4\)"),
    ],
)  # fmt: skip
def test_files_of_other_builds_are_refused(tmp_path, again, message):
    file = tmp_path / "k.npy"
    kept = gram(RBFKernel(), X, out=file).clone()
    with pytest.raises(ValueError, match=f"out must be a new file, or .* {message}"):
        again(file)
    assert torch.equal(torch.from_numpy(np.load(file)), kept)


class Constant(Kernel):
    """A kernel of one's own."""

    def _matrix(self, x1: Tensor, x2: Tensor | None) -> Tensor:
        return x1.new_ones(len(x1), len(x1 if x2 is None else x2))

    def _diagonal(self, x: Tensor) -> Tensor:
        return x.new_ones(len(x))


def test_builds_of_kernels_of_ones_own_go_on(tmp_path):
    file = tmp_path / "k.npy"
    for _ in range(2):  # as another process would, with another object
        assert bool((gram(2.0 * Constant() + RBFKernel(), X, out=file) > 2).all())
    with pytest.raises(ValueError, match="of a build with another kernel or data"):
        gram(2.0 * Constant() + MaternKernel(), X, out=file)


class Silent(Constant):
    """With a hyperparameter that it does not print."""

    def __init__(self, size: float):
        self.size = size

    def hyperparameters(self) -> dict[str, float | Tensor]:
        return {"size": self.size}

    def __repr__(self) -> str:
        return "Silent()"


def test_hyperparameters_count_even_where_they_are_not_printed(tmp_path):
    file = tmp_path / "k.npy"
    for _ in range(2):
        assert bool((gram(Silent(1.0), X, out=file) == 1).all())
    with pytest.raises(ValueError, match="of a build with another kernel or data"):
        gram(Silent(2.0), X, out=file)


def test_files_of_other_architectures_are_refused(tmp_path):
    """Whose limits print alike."""
    file = tmp_path / "k.npy"

    def limit(activation: nn.Module, *, learned: bool = True) -> Kernel:
        first = nn.Linear(4, 5).requires_grad_(learned)
        limit = infinite_width(nn.Sequential(first, activation, nn.Linear(5, 1))).ntk
        return 2.0 * limit + RBFKernel()

    kept = gram(limit(nn.ReLU()), X, out=file).clone()
    assert torch.equal(gram(limit(nn.ReLU()), X, out=file), kept)
    for other in (limit(nn.GELU()), limit(nn.ReLU(), learned=False)):
        assert repr(other) == repr(limit(nn.ReLU()))
        with pytest.raises(ValueError, match="of a build with another kernel or data"):
            gram(other, X, out=file)


def test_files_that_are_not_ours_are_refused(tmp_path):
    file, journal = tmp_path / "k.npy", tmp_path / "k.npy.tiles"
    np.save(file, np.zeros((23, 23)))
    with pytest.raises(ValueError, match=r"which has no journal k\.npy\.tiles beside it"):
        gram(RBFKernel(), X, out=file)
    file.unlink()
    gram(RBFKernel(), X, out=file)
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with pytest.raises(ValueError, match="out must be the file that its journal describes, got"):
        gram(RBFKernel(), X, out=file)
    np.save(file, np.zeros((23, 22)))
    with pytest.raises(ValueError, match=r"with float64 of shape \(23, 22\)"):
        gram(RBFKernel(), X, out=file)
    file.write_bytes(whole)
    marked = journal.read_bytes()
    for broken in (b"no journal", b"", b"[1]\nx", marked[:-1], marked + b"x", marked[:-9]):
        journal.write_bytes(broken)
        with pytest.raises(ValueError, match="out must be a new file, or one that the same build"):
            gram(RBFKernel(), X, out=file)


BUILD = """
import sys, time, torch
from vademecum.kernels import MaternKernel, gram
import vademecum.kernels._tile_file as tile_file

tile_file._SECONDS = 0.05
x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))

def slow(a, b):
    time.sleep(float(sys.argv[2]))
    return MaternKernel(nu=1.5)(a, b)

gram(slow, x, out=sys.argv[1], memory=4 * 4 * 400 + 64 * 3 * 20)
"""


def build(file: Path, pause: float) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", BUILD, str(file), str(pause)])


@pytest.mark.slow
def test_kill_9_in_the_middle(tmp_path):
    """A process that is killed loses what is not on record, and the file becomes the same."""
    killed, straight = tmp_path / "killed.npy", tmp_path / "straight.npy"
    assert build(straight, 0).wait() == 0
    running = build(killed, 0.02)
    while not (Path(f"{killed}.tiles").exists() and marks(killed).count("x") >= 8):
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    done = marks(killed).count("x")
    assert 8 <= done < len(marks(killed)) == 55
    assert build(killed, 0).wait() == 0
    assert killed.read_bytes() == straight.read_bytes()
    assert marks(killed) == "x" * 55


def late(broadcast: Any, file: str) -> Any:
    """It ends when the first rank's tiles are on record."""

    def wait(*args: Any, **kwargs: Any) -> None:
        broadcast(*args, **kwargs)
        while marks(Path(file)).count("x") < 8:
            time.sleep(0.01)

    return wait


def rank(r: int, folder: str, found: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=r, world_size=2)
    try:
        kernel, answers = Failing(), []
        half = torch.empty(46, 23, dtype=X.dtype)[::2]  # not contiguous
        answers.append(gram(kernel, X, out=half, memory=SMALL))
        answers.append(gram(kernel, X, X[:7] + 1, memory=SMALL))
        if r == 1:  # which opens the file when the other has written all its tiles
            dist.broadcast_object_list = late(dist.broadcast_object_list, f"{folder}/k.npy")
        answers.append(gram(kernel, X, out=f"{folder}/k.npy", memory=SMALL))
        try:
            gram(kernel, X, X, out=f"{folder}/k.npy", memory=SMALL)
        except ValueError as error:
            told = str(error)
        else:
            told = ""
        found.put((r, kernel.asked, told, [a.numpy().copy() for a in answers]))
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_two_ranks_share_the_tiles(tmp_path):
    context = multiprocessing.get_context("spawn")
    found = context.SimpleQueue()
    run = [context.Process(target=rank, args=(r, str(tmp_path), found)) for r in (0, 1)]
    for process in run:
        process.start()
    answers = sorted((found.get() for _ in run), key=lambda answer: answer[0])
    for process in run:
        process.join()
    kernel = MaternKernel(nu=0.5)
    wanted = [kernel(X), kernel(X, X[:7] + 1), kernel(X)]
    for r, asked, told, matrices in answers:
        assert asked == {0: 8 + 5 + 8, 1: 7 + 5 + 7}[r]
        assert "another symmetric" in told
        for mine, alone in zip(matrices, wanted, strict=True):
            np.testing.assert_allclose(mine, alone.numpy(), atol=1e-12)
    assert marks(tmp_path / "k.npy") == "x" * 15
    head = json.loads((tmp_path / "k.npy.tiles").read_text().splitlines()[0])
    assert (head["shape"], head["tile"], head["dtype"]) == ([23, 23], 5, "<f8")
