"""Gram matrices in tiles: by any hands, into any place, killed and started again."""

import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from torch import Tensor, nn

from vademecum.kernels import ArcCosineKernel, LinearKernel, RBFKernel, gram
from vademecum.kernels._tiles import AHEAD, WORKERS, filled, tiles_of
from vademecum.testing import check_instrument

X = torch.from_numpy(np.random.default_rng(0).normal(size=(23, 4)))
Z = torch.from_numpy(np.random.default_rng(1).normal(size=(9, 4)))
KERNEL = 2.0 * RBFKernel(lengthscale=1.5) + LinearKernel(bias=0.5)
SMALL = 4 * 8 * 25 + 64 * 4 * 5  # room for tiles of 5 x 5


def oracle(x: Tensor, z: Tensor) -> np.ndarray:
    squares = cdist(x.numpy(), z.numpy(), "sqeuclidean")
    return 2 * np.exp(-squares / 4.5) + x.numpy() @ z.numpy().T + 0.5


def laplace(x1: Tensor, x2: Tensor) -> Tensor:
    """A plain function as a kernel."""
    return torch.exp(-torch.cdist(x1, x2, p=1.0))


@pytest.mark.parametrize("memory", [None, SMALL, 1, 10**9])
def test_gram_is_the_matrix_of_all_pairs(memory):
    found = gram(KERNEL, X, memory=memory)
    np.testing.assert_allclose(found.numpy(), oracle(X, X), atol=1e-12)
    assert torch.equal(found, found.T)
    np.testing.assert_allclose(gram(KERNEL, X, Z, memory=memory).numpy(), oracle(X, Z), atol=1e-12)
    plain = gram(laplace, X, Z, memory=memory)
    np.testing.assert_allclose(
        plain.numpy(), np.exp(-cdist(X.numpy(), Z.numpy(), "cityblock")), atol=1e-12
    )


@pytest.mark.parametrize(
    "pool", [ThreadPoolExecutor, pytest.param(ProcessPoolExecutor, marks=pytest.mark.slow)]
)
def test_executors(pool):
    spawn = {"mp_context": multiprocessing.get_context("spawn")}
    with pool(2, **(spawn if pool is ProcessPoolExecutor else {})) as executor:
        for z in (None, Z):
            found = gram(KERNEL, X, z, executor=executor, memory=SMALL)
            wanted = oracle(X, X if z is None else z)
            np.testing.assert_allclose(found.numpy(), wanted, atol=1e-12)
        half = gram(KERNEL, X.bfloat16(), executor=executor)  # which NumPy does not know
        torch.testing.assert_close(half, gram(KERNEL, X.bfloat16()))
        with pytest.raises(ValueError, match=r"kernel must give finite numbers, got inf at \(13, "):
            gram(overflowing, X, Z, executor=executor, memory=SMALL)


def test_several_devices_share_the_tiles():
    found = gram(KERNEL, X, devices=["cpu", "cpu", "cpu"], memory=SMALL)
    np.testing.assert_allclose(found.numpy(), oracle(X, X), atol=1e-12)


def test_laws():
    """A row follows its input, whatever the other inputs are, here for features of a network."""

    def rows(model: nn.Module, x: Tensor) -> Tensor:
        return gram(lambda a, b: model(a) @ model(b).T, x, Z, memory=SMALL)

    check_instrument(rows, nn.Linear(4, 3).double(), X, per_example=True, outputs=None)
    order = torch.arange(23).roll(9).flip(0)
    permuted = gram(KERNEL, X[order], memory=SMALL)
    torch.testing.assert_close(permuted, gram(KERNEL, X)[order][:, order])


def test_jobs_under_way_are_limited():
    """So that results wait for their place in memory that is bounded."""

    class Counting(ThreadPoolExecutor):
        """It counts the tiles that were given to it and those that are done."""

        given = done = 0

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            type(self).given += 1
            future = super().submit(fn, *args, **kwargs)
            future.add_done_callback(self.count)
            return future

        def count(self, future: Any) -> None:
            type(self).done += 1

    asked: list[int] = []

    def slow(x1: Tensor, x2: Tensor) -> Tensor:
        asked.append(Counting.given - Counting.done)
        return laplace(x1, x2)

    with Counting(1) as executor:
        found = gram(slow, X, Z, executor=executor, memory=1)
        np.testing.assert_allclose(found.numpy(), laplace(X, Z).numpy(), atol=1e-12)
        assert len(asked) == 12 * 5
        gram(slow, X, Z, executor=executor, memory=(1 + AHEAD) * WORKERS * SMALL)
        assert len(asked) == 12 * 5 + 5 * 2  # of 5 x 5
    assert max(asked) <= AHEAD * WORKERS


def test_half_of_the_tiles_where_symmetric():
    asked = []

    def compute(rows: slice, columns: slice) -> Tensor:
        asked.append((rows.start, columns.start))
        return X[rows] @ X[columns].T

    kind: Any = {"tile": 5, "dtype": X.dtype, "device": X.device}
    found = filled(compute, (23, 23), symmetric=True, **kind)
    torch.testing.assert_close(found, X @ X.T)
    assert sorted(asked) == [(5 * i, 5 * j) for i in range(5) for j in range(i, 5)]
    assert len(tiles_of(23, 11, tile=5, symmetric=False)) == 15


def test_trailing_axes_are_mirrored_with_the_tile():
    """As the tangent kernel of several outputs is: K[i, j, a, b] = K[j, i, b, a]."""
    J = torch.randn(7, 3, 11, dtype=torch.float64)

    def compute(rows: slice, columns: slice) -> Tensor:
        return torch.einsum("iap,jbp->ijab", J[rows], J[columns])

    kind: Any = {"symmetric": True, "tile": 3, "dtype": J.dtype, "device": J.device}
    torch.testing.assert_close(filled(compute, (7, 7, 3, 3), **kind), compute(slice(7), slice(7)))
    diagonal = filled(lambda r, c: compute(r, c).diagonal(0, 2, 3), (7, 7, 3), **kind)
    torch.testing.assert_close(diagonal, compute(slice(7), slice(7)).diagonal(0, 2, 3))


def test_into_a_tensor():
    out = torch.full((23, 46), -1.0, dtype=X.dtype)
    target = out[:, ::2]  # not contiguous
    assert gram(KERNEL, X, out=target, memory=SMALL) is target
    np.testing.assert_allclose(target.numpy(), oracle(X, X), atol=1e-12)
    assert bool((out[:, 1::2] == -1).all())


def text(x1: Tensor, x2: Tensor) -> Any:
    return "no tensor"


def lopsided(x1: Tensor, x2: Tensor) -> Tensor:
    return x1[:, :1] - x2[:, 0]


def overflowing(x1: Tensor, x2: Tensor) -> Tensor:
    K = laplace(x1, x2)
    return torch.where(x1[:, :1] == X[13, 0], math.inf, K)


OUT = torch.empty(23, 23, dtype=X.dtype)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gram(KERNEL, X, Z[:, :3]), r"x2 must hold inputs of shape \(4,\) as x1 does"),
        (lambda: gram(KERNEL, X, Z.float()), "x2 must be torch.float64 as x1 is, got torch"),
        (lambda: gram(KERNEL, X, out=OUT[1:]), r"out must have shape \(23, 23\), got \(22, 23\)"),
        (lambda: gram(KERNEL, X, out=OUT.float()), "out must be torch.float64, got torch.float32"),
        (lambda: gram(KERNEL, X, out=OUT.to("meta")), "out must be on cpu, got meta"),
        (lambda: gram(KERNEL, X, out=OUT.clone().requires_grad_()), "out must not require gradie"),
        (lambda: gram(KERNEL, X, memory=0), "memory must be >= 1, got 0"),
        (lambda: gram(KERNEL, X, executor=ThreadPoolExecutor(1), devices=["cpu"]),
         "devices must be None where there is an executor, got both"),
        (lambda: gram(text, X, Z), "kernel must give tensors, got str"),
        (lambda: gram(text, X), "kernel must give tensors, got str"),
        (lambda: gram(lambda a, b: laplace(a, b)[1:], X, Z),
         r"kernel must give a tensor of shape \(23, 9\) for rows 0 to 22 and columns 0 to 8,"
         r" got \(22, 9\)"),
        (lambda: gram(lambda a, b: laplace(a, b).float(), X, memory=SMALL),
         "kernel must give torch.float64, got torch.float32"),
        (lambda: gram(lopsided, X), r"kernel must be symmetric, got .* at \(\d+, \d+\) and"),
        (lambda: gram(lopsided, X, memory=1), r"kernel must be symmetric, got .* at \(0, 1\) and"),
        (lambda: gram(overflowing, X, Z), r"kernel must give finite numbers, got inf at \(13, 0\)"),
        (lambda: gram(overflowing, X, Z, memory=SMALL), r"numbers, got inf at \(13, 0\)"),
        (lambda: gram(KERNEL, X.bfloat16(), out="k.npy"), "out must be a tensor for torch.bf"),
        (lambda: filled([], (2, 3), symmetric=True, tile=1, dtype=X.dtype, device=X.device),
         r"shape must be square where it is symmetric, got \(2, 3\)"),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_progress_bar(capfd):
    gram(KERNEL, X, memory=SMALL, progress=True)
    assert "15/15 tiles" in capfd.readouterr().err


def test_no_gradients_go_through_tiles():
    found = gram(ArcCosineKernel(), X.clone().requires_grad_(), memory=SMALL)
    assert not found.requires_grad


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
def test_gram_on_a_gpu(tmp_path):
    x = X.cuda()
    several: list[Any] = [{}, {"memory": SMALL}, {"devices": ["cuda:0", "cpu"]}]
    for knobs in several:
        found = gram(KERNEL, x, **knobs)
        assert found.is_cuda
        np.testing.assert_allclose(found.cpu().numpy(), oracle(X, X), atol=1e-11)
    file = gram(KERNEL, x, out=tmp_path / "k.npy", memory=SMALL)
    np.testing.assert_allclose(file.numpy(), oracle(X, X), atol=1e-11)
    with ThreadPoolExecutor(2) as executor:
        found = gram(KERNEL, x, Z.cuda(), executor=executor, memory=SMALL)
    np.testing.assert_allclose(found.cpu().numpy(), oracle(X, Z), atol=1e-11)
    with pytest.raises(ValueError, match="x2 must be on cuda:0 as x1 is, got cpu"):
        gram(KERNEL, x, Z)
