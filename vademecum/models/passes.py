r"""Means over the batches of a loader, pass after pass, each of them over the same examples.

A function $\ell$ of a loader's data is the mean over its batches $B$, weighted by their numbers
$m_B$ of terms, or of examples where nothing is known of terms (see `LossCalls`),

$$\ell = \sum_B m_B\, \ell(B) \Big/ \sum_B m_B,$$

which for a mean is that over all at once, in whatever batches, and the sum for a sum. Data at hand
may be cut in portions likewise. Sums are taken in single precision at least.

A loader that brings other examples at the next pass (it drops some, or changes them at random) is
another function each time, and is refused: by a hash of the examples, in which their order does not
count. Under `torchrun` the batches are shared by the processes.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from vademecum.models._fingerprints import fingerprint
from vademecum.models._processes import Share, share_of
from vademecum.models.inputs import count_examples, map_tensors, named_tensors
from vademecum.models.loaders import batches
from vademecum.models.loss_calls import LossCalls
from vademecum.results import one_line

__all__ = ["Passes", "Weighed", "mean_over_batches", "weighted"]


class Passes:
    """Passes over the batches of a loader, or over data at hand, all over the same examples.

    Args:
        x: A `DataLoader`, or inputs.
        y: The targets of inputs that are at hand.
        device: Where to move what a loader brings.
        progress: Whether to show a progress bar on standard error.
        shared: Whether processes share the batches; then all of them must make each pass.
        portions: How many examples of a batch to take at a time, as a function of it that gives
            None for all.

    Example:
        >>> loader = DataLoader(torch.arange(5.0), batch_size=2)
        >>> Passes(loader).mean(lambda x, y: x.mean())
        tensor(2.)
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        device: torch.device | None = None,
        progress: bool = False,
        shared: bool = False,
        portions: Callable[[Any, Any], int | None] | None = None,
    ):
        self._x, self._y, self._device, self._progress = x, y, device, progress
        self._shared, self._portions, self._seen = shared, portions, None

    def mean(
        self,
        function: Callable[[Any, Any], Tensor],
        like: Tensor | None = None,
        *,
        by_examples: bool = False,
    ) -> Tensor:
        """What a function gives for the batches on average.

        Args:
            function: A function of inputs and targets that gives a tensor.
            like: A tensor of the shape of what it gives, on which that depends; it must be the
                same in all processes that share the batches.
            by_examples: Whether batches count by their examples, whatever the loss in the function.
        """
        if not isinstance(self._x, DataLoader) and self._portions is None:
            return function(self._x, self._y)
        share = share_of(self._x) if self._shared else Share(0, 1, divided=False)
        sums = _Sums(like if share.world > 1 else None)
        own = all_ = torch.zeros((), dtype=torch.int64)
        source = batches(self._x, self._y, device=self._device, progress=self._progress)
        with closing(source) as each:
            for i, (x, y) in enumerate(each):
                if isinstance(self._x, DataLoader):
                    mark = fingerprint(x, y)
                    all_ = mark + all_.to(mark.device)
                    own = mark * share.takes(i) + own.to(mark.device)
                if share.takes(i):
                    size = None if self._portions is None else self._portions(x, y)
                    for part in _parts(x, y, size):
                        sums.add(function, *part, by_examples=by_examples)
        if self._seen is not None and self._seen != int(all_):
            raise ValueError(
                "x must bring the same examples at each pass, and this DataLoader brings others:"
                " it drops or changes examples by random numbers that are not torch's"
            )
        self._seen = int(all_)
        mark = own if like is None or share.world == 1 else fingerprint(like, None)
        return sums.mean(share, mark, own, all_)


class _Sums:
    """A weighted sum of tensors, and of their weights."""

    def __init__(self, like: Tensor | None):
        self._dtype = torch.float32 if like is None else like.dtype
        wide = torch.promote_types(self._dtype, torch.float32)
        self._total = None if like is None else torch.zeros_like(like, dtype=wide)
        self._weight = self._plain = torch.zeros(())

    def add(
        self, function: Callable[[Any, Any], Tensor], x: Any, y: Any, *, by_examples: bool
    ) -> None:
        found, weight = weighted(function, x, y, by_examples=by_examples)
        self._dtype = found.dtype
        found = found.to(torch.promote_types(found.dtype, torch.float32))  # halves would round
        if weight is None:
            self._plain = self._plain + 1
        else:
            weight = weight.to(found.device, found.dtype)
            found = (found * weight).masked_fill_(weight == 0, 0)  # also of NaN
            self._weight = weight + self._weight.to(weight)
        self._total = found if self._total is None else self._total + found

    def mean(self, share: Share, v: Tensor, own: Tensor, all_: Tensor) -> Tensor:
        if self._total is None:
            raise ValueError("x must hold batches, got an empty DataLoader")
        counts = [self._weight, self._plain]
        total, (weight, plain) = share.added(self._total, counts, v, own, all_)
        if not float(weight) and not float(plain):
            raise ValueError("x must hold batches with terms in their loss, got none")
        return (total if float(plain) else total / weight.to(total.device)).to(self._dtype)


class Weighed(NamedTuple):
    """What a function gives for a batch, and how much that counts.

    Example:
        >>> Weighed(torch.tensor(2.0), None)
        Weighed(value=tensor(2.), weight=None)
    """

    value: Tensor
    """What it gives."""
    weight: Tensor | None
    """Its number of terms, or of examples; None where all batches are to be added up."""

    __repr__ = one_line


def weighted(
    function: Callable[[Any, Any], Tensor], x: Any, y: Any, *, by_examples: bool = False
) -> Weighed:
    """What a function gives for a batch, and what that counts: terms, examples, or None for a sum.

    Args:
        function: A function of inputs and targets that gives a tensor.
        x: The inputs of the batch.
        y: Its targets.
        by_examples: Whether it counts by its examples, whatever the loss in the function.

    Example:
        >>> x, y = torch.zeros(2, 3), torch.tensor([0, -100])  # of which one is ignored
        >>> weighted(torch.nn.functional.cross_entropy, x, y)
        Weighed(value=tensor(1.0986), weight=tensor(1))
    """
    n = _length(x, y)
    with LossCalls() as noted:
        found = function(x, y)
    if not by_examples and noted.summed:
        return Weighed(found, None)
    terms = None if by_examples else noted.terms
    return Weighed(found, torch.tensor(float(n)) if terms is None else terms)


def mean_over_batches(
    x: Any,
    y: Any,
    function: Callable[[Any, Any], Tensor],
    *,
    device: torch.device | None = None,
    progress: bool = False,
) -> Tensor:
    """What a function gives for the batches of a loader on average, or for data at hand.

    Args:
        x: A `DataLoader`, or inputs.
        y: The targets of inputs that are at hand.
        function: A function of inputs and targets that gives a tensor.
        device: Where to move what a loader brings.
        progress: Whether to show a progress bar on standard error.
    """
    return Passes(x, y, device=device, progress=progress).mean(function)


def _parts(x: Any, y: Any, size: int | None) -> Iterator[tuple[Any, Any]]:
    """A batch in portions of about the same number of examples."""
    if size is None or (n := count_examples(x, y if isinstance(y, Tensor) else None)) <= size:
        yield x, y
        return
    count = -(-n // size)
    for i in range(count):
        yield map_tensors((x, y), itemgetter(slice(i * n // count, (i + 1) * n // count)))


def _length(x: Any, y: Any) -> int:
    """How many examples a batch has, by its targets if these are a tensor."""
    for tensor in (y, *(leaf for _, leaf in named_tensors(x))):
        if isinstance(tensor, Tensor) and tensor.ndim:
            return len(tensor)
    raise ValueError("x must hold batches of tensors with examples along their first axis")
