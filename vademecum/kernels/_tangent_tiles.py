"""Tiles of a tangent kernel: passes for the examples of their rows and columns, and products.

What passes bring for the examples of a tile is held while tiles with the same rows follow. A tile
can be computed by another thread, one pass at a time since a pass puts hooks on the model, or by
another process, which gets the model and makes its own passes.
"""

import math
from operator import itemgetter
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.gradients.network_function import Functional
from vademecum.kernels._layer_products import Tangents, add_parameters
from vademecum.kernels._pair_sums import PairSums
from vademecum.kernels._tangent_passes import TangentPasses
from vademecum.kernels._width_scales import unscaled
from vademecum.models import Output, map_tensors, unwrapped

__all__ = ["TangentTiles"]

_ROOM = {"cpu": 2**31}  # bytes to use unless memory says otherwise; elsewhere half of what is free


_ONE_PASS = Lock()


class TangentTiles:
    """The function that gives the tiles of a tangent kernel.

    Args:
        model: The network.
        x1: Inputs.
        x2: Other inputs, or None.
        outputs: What of the outputs to give.
        memory: Bytes to use at most.
        frozen: Whether parameters that require no gradient count.
        output: What counts of what the model gives.
    """

    def __init__(
        self, model: nn.Module, x1: Any, x2: Any, *, outputs: str, memory: int | None,
        frozen: bool, output: Output,
    ):  # fmt: skip
        knobs = {"outputs": outputs, "memory": memory, "frozen": frozen, "output": output}
        self._given, self.outputs, self.output = (model, x1, x2, knobs), outputs, output
        plain, self.scales = unscaled(unwrapped(model))
        self.f = f = Functional(plain, frozen=frozen, output=output)
        summed, scales = outputs == "sum", self.scales
        self.one = TangentPasses(f, x1, summed=summed, scales=scales)
        self.other = self.one if x2 is None else TangentPasses(f, x2, summed=summed, scales=scales)
        if self.other.k != self.one.k:
            raise ValueError(
                f"model must give as many outputs for x1 as for x2, got {self.one.k} and"
                f" {self.other.k}"
            )
        self._held = dict[Any, Tangents]()
        self._memory = _room(f.device) if memory is None else memory
        self.tile = self._size(insist=memory is not None)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole kernel."""
        k = self.one.k
        more = {"full": (k, k), "diagonal": (k,)}.get(self.outputs, ())
        return self.one.n, self.other.n, *more

    def _size(self, *, insist: bool) -> int:
        """How many examples fit: two sets of passes, two copies of the sums, formed gradients."""
        g, size = self.one.g, self.one.dtype.itemsize
        entry = 2 * size * math.prod(self.shape[2:])
        each = 2 * max(self.one.bytes_each, self.other.bytes_each)
        room = self._memory * 3 // 4
        tile = int((math.sqrt(each**2 + 4 * entry * room) - each) / (2 * entry))
        if tile < 1 and insist:
            least = -(-4 * (each + entry) // 3)
            raise ValueError(
                f"memory must be >= {least} bytes for one example with {g} gradients, got"
                f" {self._memory}"
            )
        n = max(self.one.n, self.other.n)
        count = -(-n // max(1, tile))
        return -(-n // count)  # tiles of one size

    def __call__(self, rows: slice, columns: slice) -> Tensor:
        """The entries of a tile."""
        one = self._tangents("one", rows)
        half = self.other is self.one and rows == columns
        other = one if half else self._tangents("other", columns)
        n1, n2 = rows.stop - rows.start, columns.stop - columns.start
        like = torch.empty(0, dtype=self.one.dtype, device=self.f.device)
        sums = PairSums(self.one.g, n1, n2, outputs=self.outputs, half=half, like=like)
        add_parameters(sums, one, other, self.f.shapes, self._memory // 4)
        return sums.result()

    def _tangents(self, side: str, here: slice) -> Tangents:
        passes = self.one if side == "one" else self.other
        with _ONE_PASS:
            key = (passes is self.one, here.start, here.stop)
            if key not in self._held:
                if side == "one":
                    self._held.clear()
                found = passes(here)
                if side == "other":  # rows stay, columns change
                    return found
                self._held[key] = found
            return self._held[key]

    def portion(self, rows: slice, columns: slice) -> "_Portion":
        """A tile to compute elsewhere."""
        return _Portion(self, rows, columns)

    def pieces(self, rows: slice, columns: slice) -> tuple[Any, ...]:
        """What another process needs for a tile: the inputs of its rows and columns, and knobs."""
        model, x1, x2, knobs = self._given
        there = x1 if x2 is None else x2
        one = map_tensors(x1, itemgetter(rows))
        same = x2 is None and rows == columns
        other = None if same else map_tensors(there, itemgetter(columns))
        return model, one, other, knobs


class _Portion:
    """A tile to compute; in another process, from the inputs that it needs."""

    def __init__(self, tiles: TangentTiles, rows: slice, columns: slice):
        self.tiles, self.rows, self.columns = tiles, rows, columns

    def __call__(self) -> Tensor:
        return self.tiles(self.rows, self.columns)

    def __reduce__(self) -> Any:
        sizes = self.rows.stop - self.rows.start, self.columns.stop - self.columns.start
        return _of_pieces, (self.tiles.pieces(self.rows, self.columns), *sizes)


def _of_pieces(given: Any, m: int, n: int) -> _Portion:
    """A tile in another process."""
    return _Portion(TangentTiles(*given[:3], **given[3]), slice(0, m), slice(0, n))


def _room(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 2
    return _ROOM.get(device.type, 2**31)
