r"""Precision and recall of samples: who lies where the others are dense?

The manifold of a set is the union of balls about its points, each as large as the distance to the
$k$-th nearest other point of the set. With data $x$ and samples $y$

$$\text{precision} = \tfrac1m\, \#\{j : y_j \in \text{manifold of } x\}, \qquad
\text{recall} = \tfrac1n\, \#\{i : x_i \in \text{manifold of } y\} .$$

*Density* counts in how many balls of the data a sample lies, over $k$, and *coverage* the share of
the data whose ball holds a sample; a single stray point, with its huge ball, moves them less.

Distances are exact up to rounding, in double precision; a point at the rim, such as a copied
neighbour, is inside. Pairs are taken in tiles, so that memory does not grow with their number.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.generative.measures._blocks import blocks, centre
from vademecum.generative.measures._feature_rows import gathered, insist_on_pair
from vademecum.models import Output
from vademecum.progress import ticking
from vademecum.results import one_line

__all__ = ["PrecisionRecall", "precision_recall"]


class PrecisionRecall(NamedTuple):
    """How good and how diverse samples are.

    Example:
        >>> PrecisionRecall(1.0, 0.5, 0.8, 0.5)
        PrecisionRecall(precision=1.0, recall=0.5, density=0.8, coverage=0.5)
    """

    precision: float
    """The share of samples that lie in the manifold of the data."""
    recall: float
    """The share of the data that lie in the manifold of the samples."""
    density: float
    """How many balls of the data a sample lies in on average, over k; about 1 for equal laws."""
    coverage: float
    """The share of the data whose ball holds a sample."""

    __repr__ = one_line


def precision_recall(
    x: Any,
    y: Any,
    *,
    k: int = 3,
    features: nn.Module | None = None,
    output: Output = None,
    memory: int | None = None,
    progress: bool = False,
) -> PrecisionRecall:
    """Precision and recall, density and coverage of samples against data.

    Args:
        x: The data: features (n, ...), flattened to rows; inputs of `features`; or a `DataLoader`
            of either.
        y: The samples, likewise.
        k: Which neighbour in its own set a point's ball reaches to.
        features: A module whose outputs are the features; it is taken in evaluation mode and left
            as it was.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            The features, and a few numbers for each example, come on top.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If a set has no more than k examples, widths or devices differ, or features are
            not finite.

    References:
        Kynkaanniemi et al., Improved precision and recall metric for assessing generative models,
        NeurIPS 2019. Naeem et al., Reliable fidelity and diversity metrics, ICML 2020.

    Example:
        >>> data = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
        >>> samples = torch.tensor([[0.5], [1.5], [50.0]])
        >>> found = precision_recall(data, samples, k=1)
        >>> round(found.precision, 3), found.recall  # balls of 1 and 7; of 1 and 48.5
        (0.667, 1.0)
    """
    whole("k", k, low=1)
    knobs: Any = {"output": output, "memory": memory}
    rows = [gathered(name, given, features, **knobs) for name, given in (("x", x), ("y", y))]
    insist_on_pair(*rows)
    for name, r in zip("xy", rows, strict=True):
        if len(r) <= k:
            raise ValueError(f"{name} must hold more than k = {k} examples, got {len(r)}")
    x, y = rows
    pairs = _Pairs(x, y)
    parts = [blocks(r, memory) for r in rows]
    nx, ny = map(len, parts)
    with ticking("tiles", nx * nx + ny * ny + nx * ny, progress=progress) as tick:
        radii = [pairs.radii(r, p, k, tick) for r, p in zip(rows, parts, strict=True)]
        covered = x.new_zeros(len(x), dtype=torch.bool)  # data with a sample in their ball
        recalled = covered.clone()
        precise = y.new_zeros(len(y), dtype=torch.bool)
        inside = y.new_zeros((), dtype=torch.long)
        for one in parts[0]:
            for other in parts[1]:
                squares = pairs.squares(x[one], y[other])
                near = squares <= radii[0][one, None]
                precise[other] |= near.any(0)
                covered[one] |= near.any(1)
                inside += near.sum()
                recalled[one] |= (squares <= radii[1][other]).any(1)
                tick(1)
    good, found, held = (int(t.sum()) / len(t) for t in (precise, recalled, covered))
    return PrecisionRecall(good, found, int(inside) / (k * len(y)), held)


class _Pairs:
    """Squared distances, less than their rounding errors: a tie must not fall outside.

    They are taken in a unit, a power of two, in which no square overflows, and not all vanish.
    """

    def __init__(self, x: Tensor, y: Tensor):
        self._middle = centre(x, y)
        ends = torch.stack([t for rows in (x, y) for t in rows.aminmax(dim=0)])
        most = (ends.double() - self._middle).abs().max()
        self._unit = torch.ldexp(torch.ones_like(most), torch.frexp(most).exponent)
        self._slack = 4 * (x.shape[1] + 4) * torch.finfo(torch.float64).eps

    def squares(self, a: Tensor, b: Tensor, *, slack: bool = True) -> Tensor:
        a, b = ((t.double() - self._middle).div_(self._unit) for t in (a, b))
        share = 1 - self._slack if slack else 1.0
        across = torch.addmm(b.square().sum(1).mul_(share), a, b.T, alpha=-2)
        return across.add_(a.square().sum(1, keepdim=True).mul_(share))

    def radii(self, x: Tensor, parts: list[slice], k: int, tick: Any) -> Tensor:
        """The squared distance of each point to its k-th neighbour in the set."""
        found = []
        for one in parts:
            nearest = x.new_empty(one.stop - one.start, 0, dtype=torch.float64)
            for other in parts:
                tile = self.squares(x[one], x[other], slack=False)
                if one == other:
                    tile.fill_diagonal_(torch.inf)
                few = tile.topk(min(k, tile.shape[1]), largest=False).values
                both = torch.cat([nearest, few], 1)
                nearest = both.topk(min(k, both.shape[1]), largest=False).values
                tick(1)
            found.append(nearest.amax(1).clamp_(min=0))
        return torch.cat(found)
