r"""The sliced Wasserstein distance: what is left of two sets on random lines, where it is exact.

$$\mathrm{SW}_p^p = \mathbb E_\theta\, W_p^p(\theta^\top x, \theta^\top y), \qquad
W_p^p = \int_0^1 |F^{-1}(q) - G^{-1}(q)|^p \, dq ,$$

with $\theta$ uniform on the sphere. On a line the quantile functions of $n$ and $m$ points are
steps that end at multiples of $1/n$ and $1/m$; the integral is a sum over the pieces between all of
these, found with integers, so that it is exact for unequal sizes, too. The mean over directions is
an average of random draws, with a standard error.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.arrays import portions
from vademecum.generative.measures._feature_rows import gathered, insist_on_pair
from vademecum.models import Output
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["SlicedWasserstein", "sliced_wasserstein"]

_PORTION = 2**28  # bytes at a time where no limit is given
_TINY = 1e-300  # what nothing is divided by


class SlicedWasserstein(NamedTuple):
    """A sliced Wasserstein distance.

    Example:
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> found = sliced_wasserstein(x, x + 3, projections=2)
        >>> found.value, found.standard_error  # on a line all directions agree
        (3.0, 0.0)
    """

    value: float
    """The distance: the p-th root of the mean of the p-th powers."""
    standard_error: float
    """Its standard error, of the draw of directions alone."""
    distances: Float[Tensor, " projections"]
    """The Wasserstein distance along each direction."""

    __repr__ = one_line


def sliced_wasserstein(
    x: Any,
    y: Any,
    *,
    features: nn.Module | None = None,
    p: float = 2.0,
    projections: int = 256,
    output: Output = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> SlicedWasserstein:
    """The sliced Wasserstein distance of two sets of examples, in double precision.

    Args:
        x: Features (n, ...), flattened to rows; inputs of `features`; or a `DataLoader` of either.
        y: The other set, likewise, of any size.
        features: A module whose outputs are the features; it is taken in evaluation mode and left
            as it was.
        p: The power of distances, at least 1.
        projections: How many directions to draw, at least 2.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            The features, and a few numbers for each example, come on top.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If a set has fewer than two examples, widths or devices differ, or features are
            not finite.

    References:
        Bonneel et al., Sliced and Radon Wasserstein barycenters of measures, 2015.

    Example:
        >>> x = torch.zeros(3, 2)
        >>> found = sliced_wasserstein(x, x + 1, projections=1000, generator=torch.Generator())
        >>> abs(found.value - 1) < 5 * found.standard_error  # |shift|^2 / d = 1
        True
    """
    number("p", p, low=1)
    whole("projections", projections, low=2)
    if memory is not None:
        whole("memory", memory, low=1)
    knobs: Any = {"output": output, "memory": memory}
    rows = [gathered(name, given, features, **knobs) for name, given in (("x", x), ("y", y))]
    insist_on_pair(*rows)
    x, y = rows
    drawn = torch.randn(projections, x.shape[1], dtype=torch.float64, **source(generator, x.device))
    directions = (drawn / drawn.norm(dim=1, keepdim=True)).to(x.device)
    steps = _steps(len(x), len(y), x.device)
    each = 8 * 8 * (len(x) + len(y))  # some eight numbers for each example and direction
    parts = portions(projections, each=each, memory=memory or _PORTION)
    found = torch.cat([_distances(x, y, directions[part], steps, p) for part in parts])
    most = found.max()  # powers of shares of it neither overflow nor vanish
    powers = (found / most.clamp(min=_TINY)).pow(p)
    mean, error = powers.mean(), powers.std() / projections**0.5
    value = most * mean ** (1 / p)
    error = error * value / (p * mean) if mean > 0 else mean
    return SlicedWasserstein(float(value), float(error), found)


class _Steps(NamedTuple):
    """Pieces on which both quantile functions are constant."""

    x: Tensor | slice
    """Which of the sorted points of x each piece belongs to."""
    y: Tensor | slice
    """Which of those of y."""
    widths: Tensor
    """How much of the unit interval it is."""


def _steps(n: int, m: int, device: torch.device) -> _Steps:
    if n == m:  # each point of x beside one of y
        widths = torch.full((n,), 1 / n, dtype=torch.float64, device=device)
        return _Steps(slice(None), slice(None), widths)
    ends = torch.cat([torch.arange(1, n + 1) * m, torch.arange(1, m + 1) * n]).unique()  # of n m
    widths = torch.diff(ends, prepend=torch.zeros(1, dtype=ends.dtype)).double() / (n * m)
    return _Steps(*(t.to(device) for t in ((ends - 1) // m, (ends - 1) // n, widths)))


def _distances(x: Tensor, y: Tensor, directions: Tensor, steps: _Steps, p: float) -> Tensor:
    """The distances along directions."""
    u, v = (_projected(rows, directions) for rows in (x, y))
    gaps = u[:, steps.x].sub_(v[:, steps.y]).abs_()
    most = gaps.amax(1)
    powers = gaps.div_(most[:, None].clamp(min=_TINY)).pow_(p)
    return most * (powers @ steps.widths) ** (1 / p)


def _projected(rows: Tensor, directions: Tensor) -> Tensor:
    """Sorted coordinates along each direction."""
    along = torch.cat([part.double() @ directions.T for part in rows.split(8192)])
    return along.T.contiguous().sort(1).values
