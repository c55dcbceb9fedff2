r"""Kernels of infinite width on Fashion-MNIST, as large as one device holds.

    python -m bench.kernels_fashion --device cuda          # all 60,000 images, solved in float64
    python -m bench.kernels_fashion --images 2000          # a part of them, on the CPU
    python -m bench.kernels_fashion --conv --device cuda   # a convolutional kernel, 1,000 x 1,500

The first is kernel ridge regression of one-hot labels with the limit of a fully connected network;
a ridge for each number of images is chosen on a part of the training set that is held out. The
matrix of 60,000 images has 28.8 GB and is decomposed in place, by blocks: for each block of columns
$L_{kk} L_{kk}^\top = A_{kk}$, $L_{ik} = A_{ik} L_{kk}^{-\top}$ and $A_{ij} \mathrel{-}= L_{ik}
L_{jk}^\top$ for what is below and to the right.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped
from vademecum.data import load
from vademecum.kernels import Kernel, gram, infinite_width
from vademecum.models import mlp
from vademecum.progress import ticking

__all__ = ["accuracy", "decompose", "main", "rows", "solve"]

Split = Literal["train", "test"]
RIDGES = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)  # in units of the mean of the diagonal
BLOCK = 2048  # columns of a block: large enough for products at full speed


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    """None: nobody else has such a command."""
    yield from ()


def decompose(A: Tensor, *, block: int = BLOCK, tick: Callable[[int], None] | None = None) -> None:
    """Overwrite the lower triangle of a positive definite matrix by its Cholesky factor."""
    n = len(A)
    for k in range(0, n, block):
        end = min(k + block, n)
        L = torch.linalg.cholesky(A[k:end, k:end])
        A[k:end, k:end] = L
        if end < n:
            panel = torch.linalg.solve_triangular(L.mT, A[end:, k:end], upper=True, left=False)
            A[end:, k:end] = panel
            for j in range(end, n, block):
                columns = slice(j, min(j + block, n))
                A[j:, columns].addmm_(panel[j - end :], A[columns, k:end].mT, alpha=-1)
        if tick is not None:
            tick(end - k)


def solve(A: Tensor, b: Tensor, *, block: int = BLOCK) -> Tensor:
    """The solution of L L^T x = b, the factor in the lower triangle of A."""
    x, n = b.clone(), len(A)
    starts = range(0, n, block)
    for k in starts:
        here = slice(k, min(k + block, n))
        x[here] -= A[here, :k] @ x[:k]
        x[here] = torch.linalg.solve_triangular(A[here, here], x[here], upper=False)
    for k in reversed(starts):
        here, end = slice(k, min(k + block, n)), min(k + block, n)
        x[here] -= A[end:, here].mT @ x[end:]
        x[here] = torch.linalg.solve_triangular(A[here, here].mT, x[here], upper=True)
    return x


def images(split: Split, n: int | None, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Images of mean square 1 each, and their labels."""
    data = load("fashion_mnist", split=split)
    x, y = data.x[:n].to(device, dtype), data.y[:n]
    return x / x.square().mean((1, 2, 3), keepdim=True).sqrt(), y.to(device)


def targets(y: Tensor, dtype: torch.dtype) -> Tensor:
    """One-hot labels around 0."""
    return torch.nn.functional.one_hot(y, 10).to(dtype) - 0.1


def accuracy(
    kernel: Kernel, x: Tensor, y: Tensor, test: Tensor, labels: Tensor, ridges: tuple[float, ...],
    *, progress: bool = False,
) -> list[float]:  # fmt: skip
    """How many test images are classified right, for each ridge, which is a share of the trace."""
    found, K, cross = [], gram(kernel, x, progress=progress), gram(kernel, test, x)
    unit = float(K.diagonal().mean())
    for i, ridge in enumerate(ridges):
        A = (
            K if i == len(ridges) - 1 else K.clone()
        )  # the last, which may be the only one, in place
        A.diagonal().add_(ridge * unit)
        with ticking("columns decomposed", len(A), progress=progress) as tick:
            decompose(A, tick=tick)
        coefficients = solve(A, targets(y, x.dtype))
        found.append(float((cross @ coefficients).argmax(1).eq(labels).double().mean()))
    return found


def chosen(kernel: Kernel, x: Tensor, y: Tensor) -> float:
    """The ridge that is best for a sixth of at most 12,000 images that were held out."""
    n = min(len(x), 12_000)
    part = 5 * n // 6
    found = accuracy(kernel, x[:part], y[:part], x[part:n], y[part:n], RIDGES)
    return max(zip(found, RIDGES, strict=True))[1]


def dense(kind: str, depth: int) -> Kernel:
    """The kernel of a fully connected network with ReLUs."""
    net = mlp([784, *[8] * depth, 10])
    limit = infinite_width(net, weight_variance=2.0, bias_variance=0.01)
    return limit.ntk if kind == "ntk" else limit.nngp


def convolutional(kind: str, layers: int) -> Kernel:
    """The kernel of convolutions with ReLUs and global average pooling."""
    parts: list[nn.Module] = []
    for i in range(layers):
        parts += [nn.Conv2d(4 if i else 1, 4, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    limit = infinite_width(net, weight_variance=2.0)
    return limit.ntk if kind == "ntk" else limit.nngp


def main(arguments: list[str] | None = None) -> None:
    """Classify Fashion-MNIST with a network of infinite width, and print accuracy and seconds."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, help="of the training set; all, or 1,000 for --conv")
    parser.add_argument("--test-images", type=int, help="all, or 1,500 for --conv")
    parser.add_argument("--kernel", choices=("ntk", "nngp"), default="ntk")
    parser.add_argument("--depth", type=int, default=3, help="hidden layers")
    parser.add_argument("--conv", action="store_true", help="only a kernel matrix, of convolutions")
    parser.add_argument("--layers", type=int, default=5, help="convolutions")
    parser.add_argument("--progress", action="store_true")
    given = parser.parse_args(arguments)
    if given.conv:
        _convolutional(given)
    else:
        _dense(given)


def _dense(given: argparse.Namespace) -> None:
    x, y = images("train", given.images, given.device, torch.float64)
    test, labels = images("test", given.test_images, given.device, torch.float64)
    x, test = x.flatten(1), test.flatten(1)
    kernel = dense(given.kernel, given.depth)
    start = time.perf_counter()
    ridge = chosen(kernel, x, y)
    choice = time.perf_counter() - start
    (found,) = accuracy(kernel, x, y, test, labels, (ridge,), progress=given.progress)
    seconds = time.perf_counter() - start
    print(
        f"{given.kernel} of {given.depth} hidden layers, {len(x)} images in float64 on"
        f" {given.device}: accuracy {found:.4f} on {len(test)}, {seconds:.1f} s"
        f" ({choice:.1f} of them for the ridge, {ridge:g} of the mean of the diagonal)"
    )


def _convolutional(given: argparse.Namespace) -> None:
    x, _ = images("train", given.images or 1000, given.device, torch.float32)
    test, _ = images("test", given.test_images or 1500, given.device, torch.float32)
    kernel = convolutional(given.kernel, given.layers)
    start = time.perf_counter()
    K = gram(kernel, x, test, progress=given.progress)
    total = float(K.double().mean())  # waits for the device
    seconds = time.perf_counter() - start
    print(
        f"{given.kernel} of {given.layers} convolutions with global average pooling, {len(x)} x"
        f" {len(test)} images in float32 on {given.device}: {seconds:.1f} s,"
        f" {K.numel() / seconds:.0f} pairs a second, mean {total:.6g}"
    )


if __name__ == "__main__":
    main()
