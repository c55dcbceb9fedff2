r"""The Frechet distance of features: that of the Gaussians with their means and covariances.

$$d^2 = \|\mu - \mu'\|^2 + \mathrm{Tr}\big(\Sigma + \Sigma' - 2 (\Sigma \Sigma')^{1/2}\big)$$

is the squared Wasserstein-2 distance of $\mathcal N(\mu, \Sigma)$ and $\mathcal N(\mu', \Sigma')$.
With the 2048 numbers of InceptionV3's last pooling layer it is called FID; here features are those
of any module. Computed exactly, up to rounding.

From $n$ examples it is too large: covariances of few examples differ though laws are equal, by
some $c / n$ in the mean (Binkowski et al., Demystifying MMD GANs, ICLR 2018). With `extrapolate`
the line in $1/n$ through the estimates from all examples, $d^2$, and from all but one of $G$
groups, $d_j^2$ on average, is followed to $1/n = 0$ (Chong and Forsyth, Effectively unbiased FID,
CVPR 2020, do so with random subsets):

$$d_\infty^2 = G\, d^2 - \frac{G - 1}{G} \sum_j d_j^2, \qquad
\mathrm{se}^2 = \frac{G - 1}{G} \sum_j (d_j^2 - \bar d^2)^2 ,$$

which is the jackknife. It leaves a bias of the order $1/n^2$. The claims are `frechet_distance` and
`fid_is_wasserstein_2`.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import floats, symmetric, whole
from vademecum.generative.measures._covariance_roots import Spread, root_trace
from vademecum.generative.measures._feature_rows import feature_rows, insist_on_pair
from vademecum.generative.measures._sums import Sums, merged
from vademecum.generative.measures.moments import FeatureMoments
from vademecum.models import Output
from vademecum.progress import ticking
from vademecum.results import one_line

__all__ = ["FrechetDistance", "frechet_distance"]


class FrechetDistance(NamedTuple):
    """A Frechet distance, which is a squared one, and its parts.

    Example:
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> found = frechet_distance(x, 3 * x)  # means 1 and 3, variances 2 and 18
        >>> found.means, round(found.covariances, 6), round(found.value, 6)
        (4.0, 8.0, 12.0)
    """

    value: float
    """The distance, extrapolated if that was asked for, never below 0."""
    means: float
    """The squared distance of the means of all examples."""
    covariances: float
    """What the covariances of all examples add to it."""
    standard_error: float | None
    """The standard error of an extrapolated distance."""

    __repr__ = one_line


def frechet_distance(
    x: Any,
    y: Any,
    *,
    features: nn.Module | None = None,
    extrapolate: bool = False,
    groups: int = 10,
    output: Output = None,
    memory: int | None = None,
    progress: bool = False,
) -> FrechetDistance:
    """The Frechet distance of two sets of examples, in double precision.

    Args:
        x: Features (n, ...), flattened to rows; inputs of `features`; a `DataLoader` of either,
            which is streamed; or the `FeatureMoments` of a set.
        y: The other set, in any of these forms.
        features: A module whose outputs are the features; it is taken in evaluation mode and left
            as it was.
        extrapolate: Whether to remove what the finite numbers of examples add, and give a standard
            error. Each set needs more examples than features, even without one of its groups.
        groups: How many groups to leave out in turn for that; example i is in group i modulo them.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
            It limits how many examples are taken at a time; matrices of all pairs of features come
            on top, `2 * groups` of them to extrapolate.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If a set has fewer than two examples, widths or devices differ, features are not
            finite, or a given covariance is not positive semidefinite.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> frechet_distance(x, 2 * x + 1).means  # the mean moved by (1, 1)
        2.0
        >>> round(frechet_distance(x, 2 * x).value, 6)  # two variances of 2/3 become 8/3
        1.333333
    """
    whole("groups", groups, low=2)
    knobs: Any = {"output": output, "memory": memory, "progress": progress}
    count = groups if extrapolate else 1
    sets = [_parts(name, s, count, features, knobs) for name, s in (("x", x), ("y", y))]
    found = _distance(_joined("x", sets[0]), _joined("y", sets[1]))
    if not extrapolate:
        return found
    left: list[float] = []
    with ticking("groups", groups, progress=progress) as tick:
        for j in range(groups):
            x, y = (_joined(name, parts, without=j) for name, parts in zip("xy", sets, strict=True))
            left.append(_distance(x, y).value)
            tick(1)
    mean = math.fsum(left) / groups
    spread = math.fsum((value - mean) ** 2 for value in left)
    value = groups * found.value - (groups - 1) * mean
    error = math.sqrt((groups - 1) / groups * spread)
    return found._replace(value=max(value, 0.0), standard_error=error)


class _Set(NamedTuple):
    """What the distance needs of a set."""

    mean: Tensor
    spread: Spread


def _parts(
    name: str, x: Any, groups: int, features: nn.Module | None, knobs: dict[str, Any]
) -> list[Sums] | FeatureMoments:
    """The sums of the groups of a set."""
    if isinstance(x, FeatureMoments):
        if groups > 1:
            raise ValueError(f"{name} must hold examples to extrapolate, got their moments alone")
        return x
    parts, n, width = [Sums() for _ in range(groups)], 0, 0
    for rows in feature_rows(name, x, features, **knobs):
        for j, part in enumerate(parts):
            own = rows[(j - n) % groups :: groups]
            if len(own):
                part.add(own)
        n, width = n + len(rows), rows.shape[1]
    if groups > 1 and n < groups:
        raise ValueError(f"{name} must hold an example for each of {groups} groups, got {n}")
    least = -(-n // groups)
    if groups > 1 and n - least <= width:
        raise ValueError(
            f"{name} must hold more than {width} examples without each of {groups} groups to"
            f" extrapolate, got {n} in all"
        )
    return parts


def _joined(name: str, parts: list[Sums] | FeatureMoments, without: int | None = None) -> _Set:
    if isinstance(parts, FeatureMoments):
        return _given(name, parts)
    kept = [part for i, part in enumerate(parts) if i != without]
    sums = kept[0] if len(kept) == 1 else merged(kept)
    if sums.n < 2:
        raise ValueError(f"{name} must hold at least 2 examples, got {sums.n}")
    rows = sums.centred()
    if rows is not None:
        return _Set(sums.mean(), Spread(name, rows, rows=True))
    mean, covariance = sums.moments()
    return _Set(mean, Spread(name, covariance, rows=False))


def _given(name: str, moments: FeatureMoments) -> _Set:
    covariance = symmetric(f"{name}.covariance", moments.covariance).double()
    mean = floats(f"{name}.mean", moments.mean, ndim=1, width=covariance.shape[-1]).double()
    if covariance.ndim != 2 or bool((covariance.diagonal() < 0).any()):
        what = f"shape {tuple(covariance.shape)}, least variance {covariance.amin():.3g}"
        raise ValueError(f"{name}.covariance must be a matrix with variances >= 0, got {what}")
    return _Set(mean, Spread(name, covariance, rows=False))


def _distance(x: _Set, y: _Set) -> FrechetDistance:
    insist_on_pair(x.mean, y.mean)
    with torch.no_grad():
        means = (x.mean - y.mean).square().sum()
        traces = x.spread.variances().sum() + y.spread.variances().sum()
        if not bool((means + traces).isfinite()):
            raise ValueError(
                "x and y must have finite variances, got features whose squares are inf"
            )
        covariances = (traces - 2 * root_trace(x.spread, y.spread)).clamp(min=0)
    return FrechetDistance(
        float(means + covariances), float(means), float(covariances), standard_error=None
    )
