r"""A large matrix computed tile by tile, in memory or in one file, by as many hands as there are.

The entries $K[r, c]$ of tiles of rows $r$ and columns $c$ come from a function. If the matrix is
symmetric, $K_{ji} = K_{ij}^\top$ (with the transpose of the trailing axes if there are two),
only tiles on and above the diagonal are computed, $b (b + 1) / 2$ of $b^2$.

| where | how |
|---|---|
| here | one tile after the other |
| an `Executor` | a tile is a job; a few jobs for each worker are under way at a time |
| several devices | as many functions that give the same, each with a thread of its own |
| the ranks of `torchrun` | rank r of w takes the tiles r, r + w, ...; the results are added up |

A tile is the same whoever computes it, up to rounding.
"""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from itertools import islice
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

from vademecum.arguments import whole
from vademecum.arrays import empty
from vademecum.kernels._tile_file import TileFile
from vademecum.progress import ticking

__all__ = ["Tile", "filled", "tiles_of"]

WORKERS = os.cpu_count() or 1  # of an executor, which has no public number of them
AHEAD = 2  # jobs under way for each worker, so that none waits while a result is written

Compute = Callable[[slice, slice], Tensor]


class Tile(NamedTuple):
    """A tile of the matrix."""

    rows: slice
    columns: slice

    @property
    def name(self) -> str:
        """What it is called in errors."""
        r, c = self
        return f"rows {r.start} to {r.stop - 1} and columns {c.start} to {c.stop - 1}"


def filled(
    compute: Compute | Sequence[Compute],
    shape: tuple[int, ...],
    *,
    symmetric: bool,
    tile: int,
    dtype: torch.dtype,
    device: torch.device,
    executor: Executor | None = None,
    out: Tensor | str | os.PathLike[str] | None = None,
    key: str = "",
    progress: bool = False,
) -> Tensor:
    """The matrix whose tiles a function computes.

    Args:
        compute: Gives the entries of a slice of rows and a slice of columns, `(rows, columns, ...)`
            with the trailing axes of `shape`. If it has a method `portion(rows, columns)`, that
            gives the function without arguments which an executor gets, so that a process is sent
            what it needs and no more. Several functions give the same on several devices.
        shape: The shape of the whole, (n1, n2, ...).
        symmetric: Whether the mirror image of a tile may take its place; `n1 == n2` then.
        tile: How many rows and columns a tile has, at most.
        dtype: The dtype of the result.
        device: Where the result is, if it is in memory.
        executor: Where tiles are computed; here by default.
        out: Where to write: a tensor, or a path of a NumPy file. Beside the file lies a journal of
            finished tiles, so that a build that was killed goes on where it was; a file of another
            build is refused. A new tensor by default.
        key: What the entries depend on, as a text; a file with another key is another build's.
        progress: Whether to show a progress bar on standard error.

    Example:
        >>> x = torch.tensor([1.0, 2.0, 3.0])
        >>> filled(lambda r, c: torch.outer(x[r], x[c]), (3, 3), symmetric=True, tile=2,
        ...        dtype=x.dtype, device=x.device)
        tensor([[1., 2., 3.],
                [2., 4., 6.],
                [3., 6., 9.]])
    """
    whole("tile", tile, low=1)
    if symmetric and shape[0] != shape[1]:
        raise ValueError(f"shape must be square where it is symmetric, got {shape}")
    functions = [compute] if callable(compute) else list(compute)
    tiles = tiles_of(shape[0], shape[1], tile=tile, symmetric=symmetric)
    rank, world = _place()
    if isinstance(out, str | os.PathLike):
        build = {"shape": list(shape), "tile": tile, "symmetric": symmetric, "key": key}
        with TileFile(out, build, len(tiles), dtype, rank=rank, world=world) as file:
            mine = [(i, tiles[i]) for i in file.missing[rank::world]]
            _fill(functions, mine, file.values, symmetric, executor, progress, file.finished)
        return file.values
    if out is None and executor is None and world == len(tiles) == len(functions) == 1:
        return _checked(_detached(functions[0], *tiles[0]), tiles[0], shape, dtype)
    values = _room(out, shape, dtype, device)
    if world > 1:
        values.zero_()
    mine = list(enumerate(tiles))[rank::world]
    _fill(functions, mine, values, symmetric, executor, progress, lambda i: None)
    if world > 1:
        total = values.contiguous()
        dist.all_reduce(total)
        if total is not values:
            values.copy_(total)
    return values


def tiles_of(n1: int, n2: int, *, tile: int, symmetric: bool) -> list[Tile]:
    """The tiles that have to be computed.

    Example:
        >>> [len(tiles_of(9, 9, tile=3, symmetric=half)) for half in (False, True)]
        [9, 6]
    """
    rows, columns = (
        [slice(start, min(start + tile, n)) for start in range(0, n, tile)] for n in (n1, n2)
    )
    return [Tile(r, c) for r in rows for c in columns if not symmetric or c.start >= r.start]


def _place() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def _room(out: Any, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if out is None:
        return empty(*shape, dtype=dtype, device=device)
    if not isinstance(out, Tensor):
        raise ValueError(f"out must be a tensor or the path of a file, got {type(out).__name__}")
    if out.shape != shape:
        raise ValueError(f"out must have shape {tuple(shape)}, got {tuple(out.shape)}")
    if out.dtype != dtype:
        raise ValueError(f"out must be {dtype}, got {out.dtype}")
    if out.device != device:
        raise ValueError(f"out must be on {device}, got {out.device}")
    if out.requires_grad:
        raise ValueError("out must not require gradients")
    return out


def _fill(
    functions: list[Compute],
    tiles: list[tuple[int, Tile]],
    values: Tensor,
    symmetric: bool,
    executor: Executor | None,
    progress: bool,
    finished: Callable[[int], None],
) -> None:
    with ticking("tiles", len(tiles), progress=progress) as tick:
        for (i, tile), block in _computed(functions, tiles, executor):
            _write(values, tile, block, symmetric)
            finished(i)
            tick(1)


def _write(values: Tensor, tile: Tile, block: Any, symmetric: bool) -> None:
    rows, columns = tile
    target = values[rows, columns]
    if isinstance(block, bytes):  # from another process
        block = torch.frombuffer(bytearray(block), dtype=values.dtype).view(target.shape)
    target.copy_(_checked(block, tile, target.shape, values.dtype))
    if symmetric and rows.start != columns.start:
        mirror = block.transpose(0, 1)
        values[columns, rows].copy_(mirror.transpose(2, 3) if block.ndim == 4 else mirror)


def _checked(block: Any, tile: Tile, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """What was computed, if it is what it should be."""
    if not isinstance(block, Tensor):
        raise ValueError(f"kernel must give tensors, got {type(block).__name__}")
    if block.shape != shape:
        raise ValueError(
            f"kernel must give a tensor of shape {tuple(shape)} for {tile.name},"
            f" got {tuple(block.shape)}"
        )
    if block.dtype != dtype:
        raise ValueError(f"kernel must give {dtype}, got {block.dtype}")
    if not bool(torch.isfinite(torch.stack(torch.aminmax(block))).all()):
        place = (~torch.isfinite(block)).nonzero()[0]
        value = block[tuple(place)].item()
        place[:2] += torch.tensor([s.start for s in tile], device=place.device)
        raise ValueError(f"kernel must give finite numbers, got {value} at {tuple(place.tolist())}")
    return block


def _computed(
    functions: list[Compute], tiles: list[tuple[int, Tile]], executor: Executor | None
) -> Iterator[tuple[tuple[int, Tile], Any]]:
    """The tiles with their entries, in the order in which they are done."""
    if executor is not None:
        jobs = ((it, _Job(_portion(functions[0], it[1]))) for it in tiles)
        yield from _flowing(jobs, executor, AHEAD * WORKERS)
    elif len(functions) == 1:
        for it in tiles:
            yield it, _detached(functions[0], *it[1])
    else:
        free: SimpleQueue[Compute] = SimpleQueue()
        for function in functions:
            free.put(function)
        with ThreadPoolExecutor(len(functions)) as threads:
            jobs = ((it, _Borrowed(free, it[1])) for it in tiles)
            yield from _flowing(jobs, threads, AHEAD * len(functions))


def _flowing(
    jobs: Iterator[tuple[tuple[int, Tile], Callable[[], Any]]], executor: Executor, ahead: int
) -> Iterator[tuple[tuple[int, Tile], Any]]:
    """Results as they come, with a limited number of jobs under way."""
    under_way: dict[Future[Any], tuple[int, Tile]] = {}
    try:
        while True:
            for it, job in islice(jobs, ahead - len(under_way)):
                under_way[executor.submit(job)] = it
            if not under_way:
                return
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                yield under_way.pop(future), future.result()
    finally:
        for future in under_way:
            future.cancel()


def _portion(function: Compute, tile: Tile) -> Callable[[], Tensor]:
    portion = getattr(function, "portion", None)
    return _Call(function, tile) if portion is None else portion(*tile)


def _detached(function: Compute, rows: slice, columns: slice) -> Any:
    with torch.no_grad():
        return function(rows, columns)


class _Call(NamedTuple):
    function: Compute
    tile: Tile

    def __call__(self) -> Any:
        return self.function(*self.tile)


class _Job:
    """A tile's computation; another process answers with bytes, which need no shared memory."""

    def __init__(self, call: Callable[[], Tensor]):
        self.call, self.home = call, _process()

    def __call__(self) -> Any:
        with torch.no_grad():
            block = self.call()
        if _process() == self.home or not isinstance(block, Tensor):
            return block
        return block.contiguous().cpu().view(-1).view(torch.uint8).numpy().tobytes()


class _Borrowed:
    """A tile's computation by whichever of several functions is free."""

    def __init__(self, free: "SimpleQueue[Compute]", tile: Tile):
        self.free, self.tile = free, tile

    def __call__(self) -> Any:
        function = self.free.get()
        try:
            return _detached(function, *self.tile)
        finally:
            self.free.put(function)


def _process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()
