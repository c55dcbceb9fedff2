"""What the course claims of margins and of the largest one."""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.connectionism.claims.threshold import integers
from vademecum.connectionism.margins import margin
from vademecum.connectionism.max_margin import MaxMarginClassifier


def planted(n: int, gap: float = 0.1) -> tuple[Tensor, Tensor]:
    """Points of the plane with labels that a random line separates by at least `gap`."""
    angle = torch.rand(()) * 2 * math.pi
    normal = torch.stack([angle.cos(), angle.sin()])
    x = torch.randn(n, 2)
    y = torch.where(torch.arange(n) % 2 == 0, 1.0, -1.0)
    side = x @ normal
    return x + ((y * (side.abs() + gap)) - side)[:, None] * normal, y


@claim(
    by="identity", sources=("A-030", "B-046", "C-006", "C-007"), budget=0.5, full={"angles": 7200}
)
def geometric_margin(
    formula: Callable[[Tensor, float, Tensor, Tensor], Tensor] = margin, angles: int = 720
):
    r"""The geometric margin, and separability with a margin.

    The margin of a labelled point is its signed distance on the right side,
    $\gamma[w, b](x, y) = \frac{y (\langle x, w \rangle + b)}{\|w\|}$; that of a sample is the
    minimum over its points. It does not change under $(w, b) \mapsto c\,(w, b)$, $c > 0$, and is
    positive exactly if all points are classified correctly. A sample is separable through the
    origin with margin $\gamma > 0$ if some unit vector $\theta$ has
    $y \langle x, \theta \rangle \ge \gamma$ for all $(x, y)$; the largest such margin is that of
    the maximum-margin classifier without bias.
    """
    for d in (1, 2, 4):
        for flips in (0, 1):
            w, b, x = integers(d), float(integers(1)), integers(12, d)
            w[0] = 3.0
            y = torch.where(x @ w + b > 0, 1.0, -1.0)
            y[:flips] *= -1
            each = [int(y[i] * (x[i] @ w + b)) / math.hypot(*w.tolist()) for i in range(12)]
            errors = sum(value <= 0 for value in each)
            measured = formula(w, b, x, y)
            yield equals(measured, min(each), d=d, flips=flips)
            yield equals(int(measured > 0), int(errors == 0), d=d, flips=flips)
            yield equals(formula(2 * w, 2 * b, x, y), measured, d=d, flips=flips)
    x, y = planted(10)
    turn = torch.arange(angles) * 2 * math.pi / angles
    circle = torch.stack([turn.cos(), turn.sin()], 1)
    best = torch.stack([formula(theta, 0.0, x, y) for theta in circle]).max()
    top = MaxMarginClassifier(fit_intercept=False).fit(x, y).margin_
    radius = x.norm(dim=1).max()  # which is the margin's Lipschitz constant in the angle
    yield at_most(best, top, angles=angles)
    yield at_least(best, top - radius * math.pi / angles, angles=angles)


geometric_margin.foil(
    r"the functional margin doubles with $(w, b)$",
    formula=lambda w, b, x, y: (y * (x @ w + b)).min(),
)
geometric_margin.foil(
    "the mean over the sample is positive in spite of an error",
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


@claim(by="identity", sources=("C-008",), budget=0.5, full={"sets": 200, "n": 30})
def max_margin(classifier: Callable[..., Any] = largest_margin, sets: int = 4, n: int = 12):
    r"""The maximum-margin classifier and the distance of the convex hulls.

    For separable $S$ with both classes present, $(w^*, b^*) \in \operatorname{argmax}_{w, b}
    \gamma[w, b](S)$ is the hard-margin support vector machine. It is unique up to a positive
    factor, and its margin is half the distance between the convex hulls of the two classes.

    *Proof.* A hyperplane with margin $\gamma$ keeps hulls $2 \gamma$ apart, and the bisector of the
    shortest segment between them, orthogonal to it, attains half its length. Any other normal $w$
    has at most the margin $\cos \angle(w, w^*)$ times that, because it sees the segment at this
    angle, and any other bias lies closer to one hull. (Bennett and Bredensteiner, 2000.)
    """
    witness = torch.tensor([[0.0, 0.0], [0.0, 10.0], [1.0, 0.0]]), torch.tensor([-1.0, -1.0, 1.0])
    for k, (x, y) in enumerate([witness, *(planted(n) for _ in range(sets))]):
        half = hull_distance(x[y > 0], x[y < 0]) / 2
        w, b = classifier(x, y)
        yield equals(margin(w, b, x, y), half, set=k)
        yield equals(margin(5 * w, 5 * b, x, y), half, set=k)
        other = w + w.norm() * torch.randn(2)
        scores = x @ other
        middle = -float(scores[y > 0].min() + scores[y < 0].max()) / 2
        cosine = other @ w / (other.norm() * w.norm())
        yield at_most(margin(other, middle, x, y), half * cosine, set=k)
        shift = float(torch.rand(())) * float(w.norm())
        yield equals(margin(w, b + shift, x, y), half - shift / w.norm(), set=k)
        best = MaxMarginClassifier().fit(x, y)
        weights = best.dual_coef_[0] / best.dual_coef_[0].clamp(min=0).sum()
        between = (weights @ x[best.support_]).norm()  # of a point of each hull
        yield at_least(between / 2, half, set=k)
        yield equals(margin(w, b, x, y), between / 2, set=k)
        yield equals(weights.sum(), 0.0, set=k)


max_margin.foil("the bisector of the class means can even misclassify", classifier=between_means)
max_margin.foil("the least-squares classifier", classifier=least_squares)
