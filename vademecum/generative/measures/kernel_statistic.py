r"""The kernel distance: how far two laws are apart, without bias and with a standard error.

For a kernel $k$ the squared maximum mean discrepancy of the laws of $x$ and $y$ is

$$\mathbb E\, k(x, x') + \mathbb E\, k(y, y') - 2\, \mathbb E\, k(x, y), \qquad
k(x, y) = (\gamma\, x^\top y + c)^p ,$$

with $p = 3$, $\gamma = 1/d$, $c = 1$ by default (KID: Binkowski et al., Demystifying MMD GANs, ICLR
2018). Means over pairs of *different* examples make it unbiased: it can be below 0. All pairs are
taken, tile by tile, not random subsets. The standard error is the jackknife's, which leaves out one
example at a time; of a statistic of pairs that needs the sums of each example's pairs alone, and it
is not too small in the mean (Efron and Stein, 1981). Exact up to rounding.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.arrays import lengths
from vademecum.generative.measures._blocks import blocks
from vademecum.generative.measures._feature_rows import gathered, insist_on_pair
from vademecum.models import Output
from vademecum.progress import ticking
from vademecum.results import one_line

__all__ = ["KernelDistance", "kernel_distance"]


class KernelDistance(NamedTuple):
    """A squared maximum mean discrepancy.

    Example:
        >>> KernelDistance(0.25, 0.1)
        KernelDistance(value=0.25, standard_error=0.1)
    """

    value: float
    """The unbiased estimate, which may be below 0."""
    standard_error: float | None
    """Its standard error; None where a set has only two examples."""

    __repr__ = one_line


def kernel_distance(
    x: Any,
    y: Any,
    *,
    features: nn.Module | None = None,
    degree: int = 3,
    gamma: float | None = None,
    coef: float = 1.0,
    output: Output = None,
    memory: int | None = None,
    progress: bool = False,
) -> KernelDistance:
    r"""The kernel distance of two sets of examples, with a polynomial kernel, in double precision.

    Args:
        x: Features (n, ...), flattened to rows; inputs of `features`; or a `DataLoader` of either.
        y: The other set, likewise.
        features: A module whose outputs are the features; it is taken in evaluation mode and left
            as it was.
        degree: The power $p$, at least 1.
        gamma: The factor $\gamma > 0$ of the inner product; 1 / d by default.
        coef: The constant $c \ge 0$.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            The features, and a few numbers for each example, come on top.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If a set has fewer than two examples, widths or devices differ, or features are
            not finite.

    Example:
        >>> x = torch.tensor([[1.0], [2.0], [3.0]])
        >>> found = kernel_distance(x, x + 2, degree=1, coef=0.0)
        >>> round(found.value, 6)  # 11/3 + 47/3 - 2 * 8
        3.333333
    """
    degree = whole("degree", degree, low=1)
    number("coef", coef, low=0)
    knobs: Any = {"output": output, "memory": memory}
    rows = [gathered(name, given, features, **knobs) for name, given in (("x", x), ("y", y))]
    insist_on_pair(*rows)
    d = rows[0].shape[1]
    scale = 1 / d if gamma is None else number("gamma", gamma, above=0)
    kernel = _Polynomial(degree, scale, coef)
    parts = [blocks(r, memory) for r in rows]
    total = len(parts[0]) * (len(parts[0]) + 1) // 2 + len(parts[1]) * (len(parts[1]) + 1) // 2
    with ticking("tiles", total + len(parts[0]) * len(parts[1]), progress=progress) as tick:
        within = [_within(kernel, r, p, tick) for r, p in zip(rows, parts, strict=True)]
        across = _across(kernel, rows, parts, tick)
    return _estimate(within, across)


class _Polynomial(NamedTuple):
    degree: int
    gamma: float
    coef: float

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return (x.double() @ y.double().T).mul_(self.gamma).add_(self.coef).pow_(self.degree)


def _within(kernel: _Polynomial, x: Tensor, parts: list[slice], tick: Any) -> Tensor:
    """The sum of each example's kernel with all others of its set."""
    sums = x.new_zeros(len(x), dtype=torch.float64)
    for i, one in enumerate(parts):
        for other in parts[i:]:
            tile = kernel(x[one], x[other])
            if one == other:
                tile.fill_diagonal_(0)
            else:
                sums[other] += tile.sum(0)
            sums[one] += tile.sum(1)
            tick(1)
    return sums


def _across(
    kernel: _Polynomial, rows: list[Tensor], parts: list[list[slice]], tick: Any
) -> list[Tensor]:
    """The sum of each example's kernel with all of the other set."""
    x, y = rows
    sums = [r.new_zeros(len(r), dtype=torch.float64) for r in rows]
    for one in parts[0]:
        for other in parts[1]:
            tile = kernel(x[one], y[other])
            sums[0][one] += tile.sum(1)
            sums[1][other] += tile.sum(0)
            tick(1)
    return sums


def _estimate(within: list[Tensor], across: list[Tensor]) -> KernelDistance:
    n, m = map(len, within)
    own = [w.sum() / (len(w) * (len(w) - 1)) for w in within]
    mixed = across[0].sum() / (n * m)
    value = own[0] + own[1] - 2 * mixed
    if not bool(value.isfinite()):
        raise ValueError("x and y must have finite kernels, got features whose powers are inf")
    if min(n, m) < 3:
        return KernelDistance(float(value), None)
    errors = []
    for w, a, others in ((within[0], across[0], m), (within[1], across[1], n)):
        size = len(w)  # what is left without an example, but for what its set has no part in
        left = (w.sum() - 2 * w) / ((size - 1) * (size - 2))
        left = left - 2 * (a.sum() - a) / ((size - 1) * others)
        errors.append(math.sqrt((size - 1) / size) * float(lengths(left - left.mean())))
    return KernelDistance(float(value), math.hypot(*errors))
