r"""The Gram matrix $K_{ij} = k(x_{1,i}, x_{2,j})$ of any kernel, of any size.

It is computed in tiles (see `_tiles`), each from the inputs of its rows and columns alone, so that
beyond inputs and result there is room for a few tiles. Without $x_2$ the matrix is symmetric, and
half of the tiles are mirror images. A build into a file is told from others by a hash over the
inputs and what the kernel is.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from hashlib import sha256
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import whole
from vademecum.kernels._kernel import Kernel, pair
from vademecum.kernels._tiles import AHEAD, WORKERS, filled

__all__ = ["KernelFunction", "evaluated", "fingerprint", "gram"]

KernelFunction = Kernel | Callable[[Tensor, Tensor], Tensor]
"""A kernel, or any function that gives the matrix of two sets of inputs."""

_LARGEST = 4096  # rows of a tile: more are no faster on a CPU; 8 s of work are lost by a kill
_ARRAYS = 4  # of the size of a tile that its computation takes: sums and products of kernels


def gram(
    kernel: KernelFunction,
    x1: Tensor,
    x2: Tensor | None = None,
    *,
    executor: Executor | None = None,
    devices: Sequence[torch.device | str] | None = None,
    out: Tensor | str | os.PathLike[str] | None = None,
    memory: int | None = None,
    progress: bool = False,
) -> Float[Tensor, " n1 n2"]:
    """The matrix of a kernel for all pairs of inputs, tile by tile; no gradients go through it.

    Under `torchrun`, that is where `torch.distributed` is initialised, all ranks call this with the
    same arguments; each computes its share of the tiles, and all have the result.

    Args:
        kernel: A kernel, or a function of two sets of inputs that gives their matrix.
        x1: The inputs of the rows.
        x2: Those of the columns, of the same dtype and device; `x1` by default, which takes half
            of the work, since the kernel is taken to be symmetric.
        executor: Where tiles are computed, such as a `ProcessPoolExecutor`, or Dask's or Ray's;
            here by default. It has at most two tiles for each core of this machine at a time.
        devices: Several devices, such as `["cuda:0", "cuda:1"]`, which get a copy of the inputs and
            compute tiles side by side; the result is where the inputs are.
        out: Where to write: a tensor of the right shape, dtype and device, or the path of a NumPy
            file (.npy), which is then mapped into memory. Beside it lies a journal of finished
            tiles: a build that was killed goes on when it is started again with the same
            arguments, and a finished one is only opened. A file of another build is refused; of a
            plain function it is known by name only.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If the inputs do not fit together, the kernel gives something that is no matrix
            of finite numbers for them, or is not symmetric, or `out` does not fit.

    Example:
        >>> from vademecum.kernels import LinearKernel
        >>> gram(LinearKernel(), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[ 5., 11.],
                [11., 25.]])
    """
    x1, x2 = pair(x1, x2)
    if executor is not None and devices is not None:
        raise ValueError("devices must be None where there is an executor, got both")
    if memory is not None:
        whole("memory", memory, low=1)
    symmetric = x2 is None
    n2 = len(x1 if x2 is None else x2)
    places = [x1.device] if not devices else [torch.device(device) for device in devices]
    hands = len(places) if executor is None else WORKERS
    apart = 1 + AHEAD if len(places) > 1 or executor is not None else 1
    tile = _tile(x1, max(len(x1), n2), memory, hands * apart)
    compute = [_Tiles(kernel, x1.to(p), None if x2 is None else x2.to(p)) for p in places]
    key = fingerprint(kernel, x1, x2) if isinstance(out, str | os.PathLike) else ""
    return filled(
        compute,
        (len(x1), n2),
        symmetric=symmetric,
        tile=tile,
        dtype=x1.dtype,
        device=x1.device,
        executor=executor,
        out=out,
        key=key,
        progress=progress,
    )


def evaluated(kernel: KernelFunction, x1: Tensor, x2: Tensor | None) -> Any:
    """A kernel's matrix, symmetric if there is no `x2`; of a plain function, whatever it gives."""
    if isinstance(kernel, Kernel):
        return kernel(x1, x2)
    K = kernel(x1, x1 if x2 is None else x2)
    if x2 is not None or not isinstance(K, Tensor) or K.shape != (len(x1), len(x1)):
        return K
    gap, scale = (float(t.abs().amax()) for t in (K - K.T, K))
    if gap > max(100 * torch.finfo(K.dtype).eps * len(K), torch.finfo(K.dtype).eps ** 0.5) * scale:
        i, j = divmod(int((K - K.T).abs().argmax()), len(K))
        raise ValueError(
            f"kernel must be symmetric, got {K[i, j].item():.6g} at ({i}, {j}) and"
            f" {K[j, i].item():.6g} at ({j}, {i})"
        )
    return (K + K.T) / 2


class _Tiles:
    """The function that gives a tile, and what another process needs for one."""

    def __init__(self, kernel: KernelFunction, x1: Tensor, x2: Tensor | None):
        self.kernel, self.x1, self.x2 = kernel, x1, x2

    def __call__(self, rows: slice, columns: slice) -> Any:
        return evaluated(self.kernel, *self._inputs(rows, columns))

    def portion(self, rows: slice, columns: slice) -> Callable[[], Tensor]:
        """The computation of one tile, with a copy of the inputs that it needs."""
        a, b = self._inputs(rows, columns)
        return partial(evaluated, self.kernel, a.clone(), None if b is None else b.clone())

    def _inputs(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
        if self.x2 is None and rows == columns:
            return self.x1[rows], None
        return self.x1[rows], (self.x1 if self.x2 is None else self.x2)[columns]


def fingerprint(kernel: Any, *tensors: Tensor | None) -> str:
    """A hash that tells builds apart: of tensors, and of a kernel's name and hyperparameters."""
    own = isinstance(kernel, Kernel)
    name = kernel.identity() if own else getattr(kernel, "__qualname__", type(kernel).__qualname__)
    text = sha256(name.encode())
    for h in kernel.hyperparameters().values() if own else ():
        text.update(repr(h.tolist() if isinstance(h, Tensor) else h).encode())
    for x in tensors:
        text.update(f"{None if x is None else (x.dtype, tuple(x.shape))}".encode())
        if x is not None:
            text.update(x.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return text.hexdigest()


def _tile(x: Tensor, n: int, memory: int | None, at_a_time: int) -> int:
    """Rows of a tile t with $4 b t^2 + 64 d t$ bytes, for b bytes a number, within the limit.

    There are two at least, so that a function which is not symmetric is seen.
    """
    if memory is None:
        return min(_LARGEST, n) if at_a_time == 1 else max(2, min(_LARGEST // 4, -(-n // 8)))
    square = _ARRAYS * max(4, x.dtype.itemsize)
    linear = 64 * max(1, math.prod(x.shape[1:]))
    room = memory / at_a_time
    size = (math.sqrt(linear**2 + 4 * square * room) - linear) / (2 * square)
    return max(2, min(_LARGEST, n, int(size)))
