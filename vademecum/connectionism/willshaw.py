r"""Willshaw's associative memory: one bit per synapse, and ln 2 bits of information in it.

Pairs of sparse binary patterns $(x^t, y^t)$ are stored by clipped Hebbian learning in a binary
matrix, the OR of their outer products:

$$\Theta_{ji} = \min\Big(1, \sum_t y^t_j x^t_i\Big).$$

A cue $x$ is answered by the units whose sum reaches a threshold $\theta$, $y_j = 1$ if and only if
$(\Theta x)_j \ge \theta$. By default $\theta = \sum_i x_i$: all links from the active units must be
set. A stored $y^t$ is then always contained in the answer to $x^t$; errors are spurious ones.

If the patterns have $r$ active units of $n$ and a share $p$ of the links is set,
$s = -\ln(1 - p)\, n^2 / r^2$ pairs have been stored, and spurious ones stay rare as long as
$n p^r \le 1$. At this limit a synapse holds, for large $n$,

$$I(p) = \frac{\ln p \, \ln(1 - p)}{\ln 2}$$

bits, at most $I(\tfrac12) = \ln 2$, with $r = \log_2 n$ (claim `willshaw_capacity`).

Row $i$ of the memory holds the bits $\Theta_{\cdot i}$, 64 to a word, so that $n = 16384$ units
take 32 MiB and recall is an AND of the active units' rows. Storing and recalling are exact.
"""

import math
from typing import overload

import torch
from jaxtyping import Bool, Float, Shaped, UInt8
from torch import Tensor, nn

from vademecum.arguments import bits, floats, number, whole
from vademecum.connectionism._bit_rows import (
    active_units,
    all_set,
    at_least_set,
    byte_width,
    count_set,
    pack,
    set_bits,
    true_entries,
    unpack,
)

__all__ = ["WillshawMemory", "willshaw_information"]

_CHUNK = {"cpu": 2**24, "cuda": 2**28}  # entries of patterns looked at in one go


class WillshawMemory(nn.Module):
    r"""A binary associative memory from `n_in` to `n_out` units.

    There is no limit on the number of pairs: a memory that holds too many answers with more and
    more spurious ones, which `load` (the share $p$ of set links, best near $\frac12$) foretells and
    `information` measures. A single pair cannot be removed again.

    Args:
        n_in: The number of input units.
        n_out: The number of output units; as many as input units by default.

    References:
        Willshaw, Buneman, Longuet-Higgins, Non-holographic associative memory, Nature 222, 1969.
        Palm, On associative memory, Biological Cybernetics 36, 1980.

    Example:
        >>> memory = WillshawMemory(4)
        >>> memory.store(torch.tensor([[1, 1, 0, 0]]), torch.tensor([[0, 0, 1, 1]]))
        >>> memory.recall(torch.tensor([[1, 0, 0, 0], [0, 1, 1, 0]])).int()
        tensor([[0, 0, 1, 1],
                [0, 0, 0, 0]], dtype=torch.int32)
        >>> memory.load
        0.25
    """

    links: UInt8[Tensor, " n_in bytes"]

    def __init__(self, n_in: int, n_out: int | None = None):
        super().__init__()
        self.n_in = whole("n_in", n_in, low=1)
        self.n_out = self.n_in if n_out is None else whole("n_out", n_out, low=1)
        links = torch.zeros(self.n_in, byte_width(self.n_out), dtype=torch.uint8)
        self.register_buffer("links", links)

    def extra_repr(self) -> str:
        """The sizes, as `print(memory)` shows them."""
        return f"n_in={self.n_in}, n_out={self.n_out}"

    def store(self, x: Shaped[Tensor, " pairs n_in"], y: Shaped[Tensor, " pairs n_out"]) -> None:
        """Store pairs of patterns: `y` is to be the answer to the cue `x`.

        Neither the order of the pairs nor their repetition matters.

        Args:
            x: Cues, entries 0 or 1 of any dtype, each with at least one active unit.
            y: Answers, entries 0 or 1 of any dtype.

        Raises:
            ValueError: If the patterns are not binary, a cue is empty, or their shapes do not fit;
                nothing is stored then.
        """
        x, y = self._pairs(x, y)
        for some_x, some_y in zip(self._chunks(x), self._chunks(y), strict=True):
            units, _ = active_units(some_x)
            set_bits(self.links, units, *true_entries(some_y))

    def recall(
        self, cues: Shaped[Tensor, " batch n_in"], *, threshold: int | None = None
    ) -> Bool[Tensor, " batch n_out"]:
        r"""The answers: $y_j = 1$ if and only if $(\Theta x)_j \ge \theta$.

        Args:
            cues: Patterns $x$, entries 0 or 1 of any dtype.
            threshold: The $\theta$; by default that of each cue is its number of active units, and
                then every cue must have one (all units would answer an empty one). With a given
                threshold an empty cue is answered by no unit.

        Raises:
            ValueError: If the cues are not binary or not `n_in` wide, the threshold is not from 1
                to `n_in`, or a cue is empty although no threshold is given.
        """
        cues = self._patterns("cues", cues, self.n_in)
        if threshold is None:
            _refuse_empty("cues", cues)
        else:
            whole("threshold", threshold, low=1, high=self.n_in)
        return unpack(self._answers(cues, threshold), self.n_out)

    forward = recall

    @property
    def load(self) -> float:
        """The share $p$ of links that are set."""
        return int(count_set(self.links).sum()) / (self.n_in * self.n_out)

    def information(
        self, x: Shaped[Tensor, " pairs n_in"], y: Shaped[Tensor, " pairs n_out"]
    ) -> float:
        r"""The bits per synapse that recall gives back of stored pairs, to compare with $\ln 2$.

        Of $n$ output units, $r$ are active in $y$ and $k \ge r$ in the answer to $x$, and these
        contain the former: the answer leaves $\binom{k}{r}$ of $\binom{n}{r}$ candidates for $y$.
        The sum of $\log_2 \binom{n}{r} - \log_2 \binom{k}{r}$ over the pairs, which are meant to be
        independent of each other, is divided by the number of links.

        Args:
            x: The cues of the stored pairs.
            y: Their answers.

        Raises:
            ValueError: If an answer does not contain its `y`, so that the pair was not stored.

        Example:
            >>> memory, x = WillshawMemory(4), torch.eye(4)
            >>> memory.store(x, x)  # 4 patterns of 2 bits each in 16 links
            >>> round(memory.information(x, x), 9)
            0.5
        """
        x, y = self._pairs(x, y)
        answers, targets = self._answers(x, None), pack(y)
        lost = (targets & ~answers).amax(1).nonzero()
        if len(lost):
            raise ValueError(f"x and y must be stored pairs, got one that is not at {int(lost[0])}")
        k, r = count_set(answers), count_set(targets)
        gain = _log2_binomial(torch.full_like(k, self.n_out), r) - _log2_binomial(k, r)
        return float(gain.sum()) / (self.n_in * self.n_out)

    def _answers(self, cues: Tensor, threshold: int | None) -> Tensor:
        answers = []
        for some in self._chunks(cues):
            units, counts = active_units(some)
            if threshold is None:
                answers.append(all_set(self.links, units))
            else:
                answers.append(at_least_set(self.links, units, counts, threshold))
        return torch.cat(answers)

    def _chunks(self, patterns: Tensor) -> tuple[Tensor, ...]:
        entries = _CHUNK.get(patterns.device.type, 2**24)
        return patterns.split(max(1, entries // max(self.n_in, self.n_out)))

    def _pairs(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self._patterns("x", x, self.n_in), self._patterns("y", y, self.n_out)
        if len(x) != len(y):
            raise ValueError(f"x and y must be as many patterns, got {len(x)} and {len(y)}")
        _refuse_empty("x", x)
        return x, y

    def _patterns(self, name: str, x: Tensor, width: int) -> Tensor:
        if isinstance(x, Tensor) and x.device != self.links.device:
            raise ValueError(f"{name} must be on {self.links.device}, got {x.device}")
        fits = isinstance(x, Tensor) and x.ndim == 2 and len(x) > 0 and x.shape[1] == width
        if not fits or x.dtype != torch.bool:  # booleans need no look at every entry
            bits(name, x, ndim=2, width=width)
        return x.bool()


def _refuse_empty(name: str, x: Tensor) -> None:
    empty = (x.view(torch.uint8).amax(1) == 0).nonzero()
    if len(empty):
        raise ValueError(f"{name} must have an active unit each, got none in row {int(empty[0])}")


def _log2_binomial(n: Tensor, r: Tensor) -> Tensor:
    n, r = n.double(), r.double()
    return (torch.lgamma(n + 1) - torch.lgamma(r + 1) - torch.lgamma(n - r + 1)) / math.log(2)


@overload
def willshaw_information(p: float) -> float: ...
@overload
def willshaw_information(p: Float[Tensor, " *shape"]) -> Float[Tensor, " *shape"]: ...
def willshaw_information(p: float | Float[Tensor, " *shape"]) -> float | Float[Tensor, " *shape"]:
    r"""The bits per synapse of a large memory at its limit, $I(p) = \ln p \ln(1 - p) / \ln 2$.

    Args:
        p: The share of links that are set, a number or a tensor.

    Raises:
        ValueError: If `p` is not from 0 to 1.

    Example:
        >>> round(willshaw_information(0.5), 6)  # ln 2, the maximum
        0.693147
    """
    if not isinstance(p, Tensor):
        p = torch.tensor(number("p", p, low=0, high=1), dtype=torch.float64)
        return float(willshaw_information(p))
    outside = p[(floats("p", p) < 0) | (p > 1)]
    if len(outside):
        raise ValueError(f"p must be from 0 to 1, got {outside[0].item()}")
    return torch.where((p == 0) | (p == 1), 0, p.log() * (-p).log1p() / math.log(2))
