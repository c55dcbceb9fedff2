"""Margins: how far the nearest example is, and the largest such distance."""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, integers, lowest
from vademecum.connectionism import MaxMarginClassifier, margin, nearest_point


def planted(n: int, d: int = 2, gap: float = 0.1) -> tuple[Tensor, Tensor]:
    """Points with labels that a random hyperplane through the origin separates by `gap`."""
    normal = torch.nn.functional.normalize(torch.randn(d), dim=0)
    x = torch.randn(n, d)
    y = torch.where(torch.arange(n) % 2 == 0, 1.0, -1.0)
    side = x @ normal
    return x + ((y * (side.abs() + gap)) - side)[:, None] * normal, y


@claim(
    by="identity",
    sources=("A-030", "B-046", "C-006", "C-007"),
    budget=0.5,
    full={"angles": 7200},
    short=r"\gamma[w, b](S) = \min_{(x, y) \in S} y (\langle x, w \rangle + b) / \|w\|",
)
def geometric_margin(
    formula: Callable[[Tensor, float, Tensor, Tensor], Tensor] = margin, angles: int = 240
):
    r"""The geometric margin, and separability with a margin.

    The margin of a labelled point is its signed distance on the right side,
    $\gamma[w, b](x, y) = \frac{y (\langle x, w \rangle + b)}{\|w\|}$; that of a sample is the
    minimum over its points. It does not change under $(w, b) \mapsto c\,(w, b)$, $c > 0$, and is
    positive exactly if all points are classified correctly. A sample is separable through the
    origin with margin $\gamma > 0$ if some unit vector $\theta$ has
    $y \langle x, \theta \rangle \ge \gamma$ for all $(x, y)$; the largest such margin is that of
    the maximum-margin classifier without bias.

    *Check.* The last sentence in the plane: the largest margin among $k$ directions falls short of
    the largest one by at most $\pi R / k$, since turning $\theta$ by an angle $a$ changes no margin
    by more than $R a$.

    Knobs:
        formula: The margin of a sample, a function of $w$, $b$, $x$ and $y$.
        angles: How many directions $\theta$ of the plane are tried.
    """
    for d in (1, 2, 4):
        for flips in (0, 1):
            w, b, x = integers(d), float(integers(1)), integers(12, d)
            w[0] = 3.0
            y = torch.where(x @ w + b > 0, 1.0, -1.0)
            y[:flips] *= -1
            each = [int(y[i] * (x[i] @ w + b)) / math.hypot(*w.tolist()) for i in range(12)]
            errors, at = sum(value <= 0 for value in each), {"d": d, "flips": flips}
            measured = formula(w, b, x, y)
            yield equals("margin of a sample", measured, min(each), **at)
            yield equals("whether the margin is positive", measured > 0, errors == 0, **at)
            scaled = formula(2 * w, 2 * b, x, y)
            yield equals("margin after doubling the weights", scaled, measured, **at)
    x, y = planted(10)
    turn = torch.arange(angles) * 2 * math.pi / angles
    circle = torch.stack([turn.cos(), turn.sin()], 1)
    best = torch.stack([formula(theta, 0.0, x, y) for theta in circle]).max()
    top = MaxMarginClassifier(fit_intercept=False).fit(x, y).margin_
    radius = x.norm(dim=1).max()
    yield at_least("margin of the classifier without bias", top, best, angles=angles)
    most = best + radius * math.pi / angles
    yield at_most("margin of the classifier without bias", top, most, angles=angles)


geometric_margin.foil(
    r"the functional margin doubles with $(w, b)$",
    refuted_by="margin after doubling the weights",
    formula=lambda w, b, x, y: (y * (x @ w + b)).min(),
)
geometric_margin.foil(
    "the mean over the sample is positive in spite of an error",
    refuted_by="whether the margin is positive",
    formula=lambda w, b, x, y: (y * (x @ w + b)).mean() / w.norm(),
)


def hull_distance(p: Tensor, q: Tensor) -> float:
    """The distance of the hulls of two disjoint sets in the plane: a point's to a segment."""
    least = math.inf
    for points, others in ((p, q), (q, p)):
        pairs = list(combinations(range(len(others)), 2)) or [(0, 0)]
        for i, j in pairs:
            along = others[j] - others[i]
            share = ((points - others[i]) @ along / (along @ along).clamp(min=1e-300)).clamp(0, 1)
            foot = others[i] + share[:, None] * along
            least = min(least, float((points - foot).norm(dim=1).min()))
    return least


def largest_margin(x: Tensor, y: Tensor) -> tuple[Tensor, float]:
    """The maximum-margin classifier."""
    best = MaxMarginClassifier().fit(x, y)
    return best.coef_[0], best.intercept_.item()


def between_means(x: Tensor, y: Tensor) -> tuple[Tensor, float]:
    """The bisector of the class means."""
    p, q = x[y > 0].mean(0), x[y < 0].mean(0)
    return p - q, float((q @ q - p @ p) / 2)


def least_squares(x: Tensor, y: Tensor) -> tuple[Tensor, float]:
    """The hyperplane of the best linear fit to the labels."""
    fit = torch.linalg.lstsq(torch.cat([x, torch.ones(len(x), 1)], 1), y[:, None]).solution[:, 0]
    return fit[:-1], fit[-1].item()


@claim(
    by="identity",
    sources=("C-008",),
    budget=0.5,
    full={"sets": 200, "n": 30},
    short=r"S \text{ separable}: \max_{w, b} \gamma[w, b](S) = \tfrac12"
    r" \mathrm{dist}(\mathrm{conv} S_+, \mathrm{conv} S_-)",
)
def max_margin(classifier: Callable[..., Any] = largest_margin, sets: int = 4, n: int = 12):
    r"""The maximum-margin classifier and the distance of the convex hulls.

    For separable $S$ with both classes present, $(w^*, b^*) \in \operatorname{argmax}_{w, b}
    \gamma[w, b](S)$ is the hard-margin support vector machine. It is unique up to a positive
    factor, and its margin is half the distance between the convex hulls of the two classes.

    *Proof.* A hyperplane with margin $\gamma$ keeps hulls $2 \gamma$ apart, and the bisector of the
    shortest segment between them, orthogonal to it, attains half its length. Any other normal $w$
    has at most the margin $\cos \angle(w, w^*)$ times that, because it sees the segment at this
    angle, and any other bias lies closer to one hull. (Bennett and Bredensteiner, 2000.)

    *Check.* In the plane against the distance of the hulls from points to segments. In 3 and 5
    dimensions by the condition of the shortest vector $v$ between points of the hulls: no point of
    either lies beyond its ends, $\langle v, p - q \rangle \ge \|v\|^2$.

    Knobs:
        classifier: What finds $(w, b)$, a function of $x$ and $y$.
        sets: How many sets of points are drawn in the plane.
        n: How many points a set has.
    """
    lowest("n", n, 2)
    witness = torch.tensor([[0.0, 0.0], [0.0, 10.0], [1.0, 0.0]]), torch.tensor([-1.0, -1.0, 1.0])
    for k, (x, y) in enumerate([witness, *(planted(n) for _ in range(sets))]):
        half = hull_distance(x[y > 0], x[y < 0]) / 2
        w, b = classifier(x, y)
        yield equals("margin of the classifier", margin(w, b, x, y), half, set=k)
        yield equals("margin after scaling by 5", margin(5 * w, 5 * b, x, y), half, set=k)
        other = w + w.norm() * torch.randn(2)
        scores = x @ other
        middle = -float(scores[y > 0].min() + scores[y < 0].max()) / 2
        cosine = other @ w / (other.norm() * w.norm())
        turned = margin(other, middle, x, y)
        yield at_most("margin with another normal", turned, half * cosine, set=k)
        shift = float(torch.rand(())) * float(w.norm())
        shifted = margin(w, b + shift, x, y)
        yield equals("margin with another bias", shifted, half - shift / w.norm(), set=k)
        best = MaxMarginClassifier().fit(x, y)
        weights = best.dual_coef_[0] / best.dual_coef_[0].clamp(min=0).sum()
        between = (weights @ x[best.support_]).norm()  # of a point of each hull
        yield equals("half the distance of the dual points", between / 2, half, set=k)
        yield equals("sum of the signed dual weights", weights.sum(), 0.0, set=k)
        yield equals("margin that the estimator states", best.margin_, half, set=k)
    yield from _cut_short()
    yield from _in_space(classifier, n)


def _in_space(classifier: Callable[..., Any], n: int):
    """The condition of the shortest vector, in up to five dimensions."""
    for d, size in ((2, n), (3, n), (5, 400)):
        x, y = planted(size + d, d)
        p, q = x[y > 0], x[y < 0]
        found = nearest_point(p, q)
        v, near, far = found.point, found.weights, found.others
        square = v @ v
        yield equals("shortest vector", v, near @ p - far @ q, d=d)
        yield equals(
            "sums of the weights of its ends", torch.stack([near.sum(), far.sum()]), 1.0, d=d
        )
        yield at_least("weights of its ends", torch.cat([near, far]), 0.0, d=d)
        beyond = (p @ v)[:, None] - q @ v
        name = r"$\langle v, p - q \rangle$ for the shortest vector $v$"
        yield at_least(name, beyond, square, d=d)
        w, b = classifier(x, y)
        half = v.norm() / 2
        yield equals("margin of the classifier", margin(w, b, x, y), half, d=d)
        yield from _in_other_units(x, y, w, b, half, d)


def _in_other_units(x: Tensor, y: Tensor, w: Tensor, b: float, half: Tensor, d: int):
    """Everything scales with the points, however large or small."""
    for scale in (2.0**600, 2.0**-600):
        far = MaxMarginClassifier().fit(scale * x, y)
        yield equals("margin in other units", far.margin_ / scale, half, d=d)
        near = nearest_point(scale * x[y > 0], scale * x[y < 0]).point / scale
        yield equals("distance in other units", near.norm(), 2 * half, d=d)
        turned = margin(scale * w, scale * b, x, y)
        yield equals("margin with weights in other units", turned, half, d=d)


def _cut_short():
    """A search that is stopped early: how much is lacking at most, by its own account."""
    x, y = planted(60, 3)
    best = MaxMarginClassifier().fit(x, y)
    yield equals("whether it converged", best.converged_, 1)
    yield at_most("what the largest margin can lack", best.gap_, 1e-9)
    for bias in (True, False):
        rough = MaxMarginClassifier(tol=0.3, fit_intercept=bias).fit(x, y)
        dual = rough.dual_coef_[0]
        v = dual @ x[rough.support_] / dual.clamp(min=0).sum() if bias else (
            dual @ x[rough.support_] / dual.abs().sum())  # fmt: skip
        lacking = v.norm() / (2 if bias else 1) - rough.margin_
        yield equals("what a rough margin can lack", rough.gap_, lacking, bias=bias)
    for cycles in (3, 4):
        found = nearest_point(x[y > 0], x[y < 0], max_iter=cycles)
        v = found.point
        own = v.norm() - ((x[y > 0] @ v).min() - (x[y < 0] @ v).max()).clamp(min=0) / v.norm()
        yield equals("gap that is stated", found.gap, own, cycles=cycles)
        yield at_most(
            "half the length, less the largest margin",
            v.norm() / 2 - best.margin_,
            found.gap / 2,
            cycles=cycles,
        )
        yield at_most("cycles", found.n_iter, cycles, tol=0.0)
        if found.n_iter < cycles:
            yield equals("whether a shorter search converged", found.converged, 1)


max_margin.foil("the bisector of the class means can even misclassify", classifier=between_means)
max_margin.foil("the least-squares classifier", classifier=least_squares)
