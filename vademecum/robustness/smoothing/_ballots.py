r"""Votes: which class a classifier gives to noisy copies, counted in portions.

Noise comes in blocks, each of which serves all examples; so the same generator gives an example the
same votes in any company, and with any `memory` in which a block has room. A network takes a block,
or as much of it as `memory` allows for, at a time. Only counts are kept, on the device where they
are made.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from vademecum.arguments import whole
from vademecum.models import bytes_each
from vademecum.robustness._logits import Classifier
from vademecum.robustness.smoothing._noisy import FloatingNoise, GridNoise

__all__ = ["Votes"]

Tick = Callable[[int], None]

_DRAWS = {"cpu": 2**18}  # numbers in a block: 334 images of 28 x 28, measured best of 64 to 1,000
_MORE = 2**25  # on other devices
_ROWS = 32  # in a block at least, so that a network has something to do
_COPIES = 4  # bytes that a number of a block takes in passing, in its own bytes


class Votes:
    """The votes of a classifier.

    Args:
        logits: The classifier.
        noisy: What makes noisy copies of the inputs.
        memory: The bytes to use at most; None for blocks as they are.
        generator: Where random numbers come from.
    """

    def __init__(
        self,
        logits: Classifier,
        noisy: GridNoise | FloatingNoise,
        memory: int | None,
        generator: torch.Generator | None,
    ):
        self._logits, self._noisy, self._generator = logits, noisy, generator
        x = noisy.inputs
        size = x[0].numel()
        self._rows = max(_DRAWS.get(x.device.type, _MORE) // size, _ROWS)
        self._portion = self._rows
        self._broken = torch.zeros((), dtype=torch.bool, device=x.device)
        if memory is not None:
            self._keep_to(whole("memory", memory, low=1), size * x.element_size())

    def count(self, n: int, tick: Tick) -> Tensor:
        """The class that most of n noisy copies get, for each example."""
        counts: Tensor | int = 0
        for i, z in self._answers(n, tick):
            if isinstance(counts, int):
                k = z.shape[1]
                counts = z.new_zeros(len(self._noisy.inputs), k, dtype=torch.int64)
            counts[i] += torch.bincount(z.argmax(1), minlength=counts.shape[1])
        assert isinstance(counts, Tensor)
        return counts.argmax(1)

    def agreed(self, n: int, top: Tensor, tick: Tick) -> Tensor:
        """How many of n noisy copies get a given class, for each example."""
        counts = torch.zeros_like(top)
        for i, z in self._answers(n, tick):
            counts[i] += (z.argmax(1) == top[i]).sum()
        return counts

    def _answers(self, n: int, tick: Tick) -> Iterator[tuple[int, Tensor]]:
        """Examples, and logits of copies with the same noise for all of them."""
        while n > 0:
            rows = min(n, self._rows)
            noise = self._noisy.draw(rows, self._generator)
            for i in range(len(self._noisy.inputs)):
                for part in noise.split(self._portion):
                    z = self._logits(self._noisy.copies(i, part))
                    self._broken |= z.isnan().any()
                    yield i, z
            tick(rows)
            n -= rows
        if bool(self._broken):
            raise ValueError("logits of model must not be NaN, got some under noise")

    def _keep_to(self, memory: int, each: int) -> None:
        """Make portions, and where they must be blocks, small enough."""
        x = self._noisy.inputs
        row = _COPIES * each
        some = torch.zeros_like(x[:1]).expand(3, *x.shape[1:])
        fixed, passing = bytes_each(lambda z: self._logits(self._noisy.copies(0, z)), some)
        least = fixed + passing + row
        if memory < least:
            raise ValueError(f"memory must be >= {least} bytes for one noisy copy, got {memory}")
        room = (memory - fixed) // 2
        self._rows = max(1, min(self._rows, room // row))
        self._portion = max(1, min(self._rows, (memory - fixed - self._rows * row) // passing))
