r"""Random numbers that belong to examples: functions of the seed, the epoch and the example.

Number $j$ of example $i$ in call $c$ is a hash,

$$h(h(h(s, e, c) + i g) + j g), \qquad g = 2^{64} / \varphi,$$

with splitmix64's finaliser $h$ in 64-bit integers that wrap around. It does not matter in which
batch, process or order examples come, so augmentation is the same however training is split.
Computed for all examples of a batch at once, on their device.

References:
    Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA, 2014.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import whole
from vademecum.train._order import seed_for

__all__ = ["ExampleNoise", "example_noise"]

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # as a signed integer
_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


class ExampleNoise:
    """Where `augment` gets its random numbers from; each call gives new ones (see `example_noise`).

    Example:
        >>> noise = example_noise(0, 0, torch.tensor([7, 3]))
        >>> again = example_noise(0, 0, torch.tensor([3]))
        >>> torch.equal(noise.uniform(2)[1:], again.uniform(2))
        True
    """

    def __init__(self, seed: int, epoch: int, examples: Int[Tensor, " n"]):
        self._key, self._examples, self._calls = (seed, epoch), examples, 0

    def uniform(self, *shape: int) -> Float[Tensor, " n ..."]:
        """Numbers in [0, 1), shaped `(n, *shape)`, in float32.

        Args:
            *shape: The shape for one example.
        """
        return self._bits(shape, 24).to(torch.float32) * 2.0**-24

    def normal(self, *shape: int) -> Float[Tensor, " n ..."]:
        """Standard normal numbers, shaped `(n, *shape)`, in float32.

        Args:
            *shape: The shape for one example.
        """
        radius = (-2 * torch.log1p(-self.uniform(*shape))).sqrt()
        return radius * torch.cos(2 * math.pi * self.uniform(*shape))

    def integers(self, high: int, *shape: int) -> Int[Tensor, " n ..."]:
        """Integers from 0 to `high - 1`, shaped `(n, *shape)`.

        Args:
            high: How many there are to choose from, at most 2^31.
            *shape: The shape for one example.
        """
        whole("high", high, low=1, high=2**31)
        return (self._bits(shape, 32) * high) >> 32

    def _bits(self, shape: tuple[int, ...], bits: int) -> Tensor:
        """Random integers below `2 ** bits`."""
        key = seed_for(*self._key, "noise", self._calls)
        self._calls += 1
        rows = _mixed(key + self._examples.long() * _GOLDEN)
        entries = torch.arange(1, math.prod(shape) + 1, device=rows.device) * _GOLDEN
        words = _mixed(rows[:, None] + entries).view(len(rows), *shape)
        return _shifted(words, 64 - bits)


def example_noise(seed: int, epoch: int, examples: Int[Tensor, " n"]) -> ExampleNoise:
    """Random numbers for some examples, the same in whatever batch they are.

    Args:
        seed: The seed of the run.
        epoch: The epoch, from 0.
        examples: The numbers of the examples in the data.

    Example:
        >>> noise = example_noise(0, 1, torch.arange(4))
        >>> noise.normal(3).shape, noise.uniform().shape
        (torch.Size([4, 3]), torch.Size([4]))
    """
    return ExampleNoise(whole("seed", seed), whole("epoch", epoch, low=0), examples)


def _mixed(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _FIRST
    x = (x ^ _shifted(x, 27)) * _SECOND
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    """Shift to the right with zeros, where torch would repeat the sign."""
    return (x >> by) & ((1 << (64 - by)) - 1)
