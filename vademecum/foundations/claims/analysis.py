"""Analysis: compact sets, Lipschitz maps and Fourier transforms."""

import math
from collections.abc import Callable
from functools import cache
from itertools import combinations_with_replacement, product
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import Ball, Box, DifferenceQuotient, lipschitz_constant


class Interval(NamedTuple):
    """An interval with its end points, and whether these belong to it."""

    low: float
    high: float
    with_low: bool
    with_high: bool

    def contains(self, x: float) -> bool:
        """Whether x belongs to it."""
        above = x > self.low or (self.with_low and x == self.low)
        return above and (x < self.high or (self.with_high and x == self.high))


def intervals() -> list[Interval]:
    """All non-empty intervals with ends among 0, 1, 2 and the infinities."""
    ends = [-math.inf, 0.0, 1.0, 2.0, math.inf]
    found = []
    for a, b in combinations_with_replacement(ends, 2):
        for shut in product((False, True), repeat=2):
            real = all(math.isfinite(end) or not on for end, on in zip((a, b), shut, strict=True))
            if real and (a < b or (a == b and all(shut))):
                found.append(Interval(a, b, *shut))
    return found


def peak(pieces: tuple[Interval, ...], far: float = 2e6) -> float:
    r"""The largest $|x|$ and $1 / |x - e|$, with e outside, at points of the set to try."""
    inside = lambda x: any(piece.contains(x) for piece in pieces)  # noqa: E731
    ends = (0.0, 1.0, 2.0)
    near = [e + side / far for e in ends for side in (-1, 1)]
    tried = [x for x in (*ends, 0.5, 1.5, -far, far, *near) if inside(x)]
    missing = [e for e in ends if not inside(e)]
    return max(max(abs(x), *(1 / abs(x - e) for e in missing), 0.0) for x in tried)


def top(pieces: tuple[Interval, ...], sign: int) -> float:
    """The largest of the ends and middles of the pieces, times a sign, that belongs to the set."""
    tried = [x for low, high, *_ in pieces for x in (low, high, (low + high) / 2)]
    return max(sign * x for x in tried if any(piece.contains(x) for piece in pieces))


@claim(
    by="sampling",
    sources=("B-124",),
    budget=0.5,
    short=r"K \subseteq \mathbb R^n \text{ compact} \iff K \text{ closed and bounded}",
)
def heine_borel(
    criterion: Literal["closed and bounded", "closed", "bounded"] = "closed and bounded",
):
    r"""The Heine-Borel theorem.

    A subset of $\mathbb R^n$ is compact if and only if it is closed and bounded; equivalently,
    every continuous real function on it is bounded and attains its maximum. Both conditions are
    needed, and the equivalence fails in infinite dimension, where the unit vectors of $\ell^2$
    keep the distance $\sqrt2$.

    Checked on the line, for all unions of two intervals with ends in
    $\{-\infty, 0, 1, 2, \infty\}$, and quoted beyond. Where the criterion fails, one of the
    continuous functions $x$ and $1 / (x - e)$, with $e \in \{0, 1, 2\}$ outside the set, exceeds
    $10^6$ at a point of the set. Where it holds they are at most 2 at the same places, since a
    closed set with such ends keeps away from $e$ by 1, and $x$ and $-x$ attain their suprema.

    Knobs:
        criterion: What is called compact.
    """
    compact, peaks = [], []
    tops: dict[int, list[tuple[float, float]]] = {1: [], -1: []}
    for pieces in combinations_with_replacement(intervals(), 2):
        ends = [end for piece in pieces for end in piece[:2]]
        inside = [any(piece.contains(end) for piece in pieces) for end in ends]
        closed = all(on or math.isinf(e) for e, on in zip(ends, inside, strict=True))
        finite = all(math.isfinite(e) for e in ends)
        compact.append((closed or criterion == "bounded") and (finite or criterion == "closed"))
        peaks.append(peak(pieces))
        for sign in (1, -1):
            if compact[-1] and finite:
                tops[sign].append((top(pieces, sign), max(sign * e for e in ends)))
    called, heights = torch.tensor(compact), torch.tensor(peaks)
    yield at_most("$|x|$ or $1 / |x - e|$ on a set called compact", heights[called], 2.0)
    yield at_least("$|x|$ or $1 / |x - e|$ on a set called not compact", heights[~called], 1e6)
    for sign, pairs in tops.items():
        reached, supremum = torch.tensor(pairs).T
        yield equals("largest $\\pm x$ on a set called compact", reached, supremum, sign=sign)
    units = torch.eye(30)
    yield equals("distance of two unit vectors", torch.pdist(units), math.sqrt(2))


heine_borel.foil("(0, 1) is bounded, and 1/x is not bounded on it", criterion="bounded")
heine_borel.foil(r"$[0, \infty)$ is closed, and x is not bounded on it", criterion="closed")


@cache
def edit_distance(s: str, t: str) -> int:
    """The least number of insertions, deletions and substitutions that turn s into t."""
    if not s or not t:
        return len(s) + len(t)
    change = edit_distance(s[1:], t[1:]) + (s[0] != t[0])
    return min(change, 1 + edit_distance(s[1:], t), 1 + edit_distance(s, t[1:]))


def quotient(f: Callable[[Tensor], Tensor], found: DifferenceQuotient) -> Tensor:
    """The difference quotient at the place found, or the slope there if the length is 0."""
    x, v, t = found.x, found.direction, found.distance
    rise = (f(x + t * v) - f(x)) / t if t else torch.func.jvp(f, (x,), (v,))[1]
    return rise.norm()


@claim(
    by="sampling",
    sources=("D-059",),
    budget=1.0,
    full={"pairs": 100_000, "sets": 30},
    short=r"d_Y(f(x_1), f(x_2)) \le L\, d_X(x_1, x_2), \quad L = \sup_x \|Df(x)\|",
)
def lipschitz_continuity(
    curve: Literal["tanh", "square"] = "tanh",
    bound: float = 1.0,
    norm: Literal["singular value", "spectral radius"] = "singular value",
    pairs: int = 1000,
    sets: int = 3,
):
    r"""Lipschitz continuity.

    Between metric spaces, $f : X \to Y$ is $L$-Lipschitz if
    $d_Y(f(x_1), f(x_2)) \le L\,d_X(x_1, x_2)$ for all $x_1, x_2 \in X$; for normed spaces, if
    $\|f(x_1) - f(x_2)\| \le L \|x_1 - x_2\|$. For a differentiable $f$ on a convex open set the
    smallest constant is $\sup_x \|Df(x)\|$, hence $\sigma_1(A)$ for $x \mapsto A x$ and 1 for
    $\tanh$.

    Checked on random pairs, and by what `lipschitz_constant` finds on intervals and balls.

    *Note.* A sheet (D-059) announces metric spaces and then writes norms on $\mathbb R^n$. The
    length of a string, which is 1-Lipschitz for the edit distance, has a metric and no norm.

    Knobs:
        curve: The function of one variable.
        bound: Its constant.
        norm: What is said to be the constant of a linear map.
        pairs: How many pairs of points are drawn for each map.
        sets: How many matrices are drawn, of sizes from 1 to 5.
    """
    f = {"tanh": torch.tanh, "square": torch.square}[curve]
    x = torch.cat([torch.randn(pairs) * 3, torch.arange(0.0, 10_000, 100)])
    y = x + torch.cat([torch.randn(pairs), torch.ones(100)])
    yield at_most("distance of two values", (f(x) - f(y)).abs(), bound * (x - y).abs())
    h = 1e-2  # tanh(h) / h is 1 - h^2 / 3 or more
    rise = (f(torch.tensor(h)) - f(torch.tensor(-h))) / (2 * h)
    yield at_least("difference quotient around 0", rise, bound - h**2)
    for name, g, low, high, steepest in (
        ("tanh", torch.tanh, -1.0, 1.0, 1.0),
        ("tanh", torch.tanh, 0.5, 2.0, 1 - math.tanh(0.5) ** 2),
        ("square", torch.square, -1.0, 2.0, 4.0),
        ("modulus, unknown to autograd", lambda x: 3 * x.detach().abs(), -1.0, 2.0, 3.0),
    ):
        box = Box(torch.tensor([low]), torch.tensor([high]))
        found = lipschitz_constant(g, box, pairs=20, starts=4)
        at = {"function": name, "low": low, "high": high}
        yield equals("steepest quotient found on an interval", found.value, steepest, **at)
        yield equals("quotient at the place found", quotient(g, found), found.value, **at)
    shapes = torch.randint(1, 6, (sets, 2)).tolist()
    maps = [torch.tensor([[0.0, 1.0], [0.0, 0.0]]), *(torch.randn(m, n) for m, n in shapes)]
    for a in maps:
        m, n = a.shape
        _, sigma, vh = torch.linalg.svd(a)
        top = sigma[0]
        if norm == "spectral radius":  # of the map followed by zeros, or after leaving out some
            top = torch.linalg.eigvals(a[: min(m, n), : min(m, n)]).abs().max()
        x, y = torch.randn(2, pairs, n)
        image, apart = (x @ a.T - y @ a.T).norm(dim=1), (x - y).norm(dim=1)
        yield at_most("distance of two images under a matrix", image, top * apart, m=m, n=n)
        yield equals("stretch of the first singular vector", (a @ vh[0]).norm(), top, m=m, n=n)
        ball = Ball(torch.zeros(n), 2.0)
        found = lipschitz_constant(lambda x, a=a: x @ a.T, ball, pairs=20, starts=2, steps=2)
        yield equals("steepest quotient found of a matrix", found.value, top, m=m, n=n)
        along = (a @ found.direction).norm()
        yield equals("stretch along the direction found", along, found.value, m=m, n=n)
    words = ["".join(w) for n in range(5) for w in product("01", repeat=n)]
    strings = list(combinations_with_replacement(words, 2))
    lengths = [abs(len(s) - len(t)) for s, t in strings]
    yield at_most("difference of two lengths", lengths, [edit_distance(*pair) for pair in strings])


lipschitz_continuity.foil("the square has no constant: its slope grows", curve="square", bound=1e3)
lipschitz_continuity.foil("tanh has the slope 1 at zero", bound=0.5)
lipschitz_continuity.foil(
    "a nilpotent matrix has the spectral radius 0 and still stretches", norm="spectral radius"
)


@claim(
    by="identity",
    sources=("B-132",),
    budget=0.5,
    short=r"\widehat{\nabla g}(\omega) = 2 \pi i \omega\,\hat g(\omega),"
    r"\ \hat g(\omega) = \int e^{-2 \pi i \omega \cdot x} g(x)\,dx",
)
def fourier_gradient(factor: complex = 2j * math.pi):
    r"""The Fourier transform of a gradient.

    For integrable $g$ with integrable gradient,
    $\widehat{\nabla g}(\omega) = i \omega\,\hat g(\omega)$ in the convention
    $\hat g(\omega) = \int g(x) e^{-i \omega \cdot x} dx$, and
    $2 \pi i\,\omega\,\hat g(\omega)$ in the convention with $e^{-2 \pi i \omega \cdot x}$. So
    $\|\widehat{\nabla g}(\omega)\| = \|\omega\|\,|\hat g(\omega)|$ (times $2 \pi$), which is what
    Barron's constant integrates.

    *Proof.* Integration by parts. Checked on Gaussians in one and two dimensions, for which the
    trapezoid rule is spectrally accurate: what remains is the rounding of some thousand terms.

    Knobs:
        factor: What $\omega\,\hat g(\omega)$ is multiplied with, for $e^{-2 \pi i \omega \cdot x}$.
    """
    t = torch.arange(-8 * 64, 8 * 64 + 1) / 64
    rise = -2 * math.pi * t * (-math.pi * t**2).exp()
    for w in (0.5, -1.0, -0.5, 0.25, 1.0):
        hat = math.exp(-math.pi * w**2)
        got = (rise * torch.exp(-2j * math.pi * w * t)).sum() / 64
        size = abs(factor * w * hat)
        yield equals("modulus of the transform of the slope", got.abs(), size, tol=1e-12, w=w)
        target = torch.tensor(factor * w * hat)
        yield equals("transform of the slope", got, target, tol=1e-12, w=w)
        angular = (rise * torch.exp(-1j * w * t)).sum() / 64  # hat g is exp(-w^2 / (4 pi)) here
        target = torch.tensor(factor / (2 * math.pi) * w * math.exp(-(w**2) / (4 * math.pi)))
        yield equals("transform with $e^{-i w t}$", angular, target, tol=1e-12, w=w)
    t = torch.arange(-5 * 16, 5 * 16 + 1) / 16
    x, y = torch.meshgrid(t, t, indexing="ij")
    g = torch.exp(-math.pi * (x**2 + 2 * y**2))
    gradient = torch.stack([-2 * math.pi * x * g, -4 * math.pi * y * g])
    for w in ((0.5, 0.25), (-1.0, 0.5)):
        wave = torch.exp(-2j * math.pi * (w[0] * x + w[1] * y))
        hat = math.exp(-math.pi * (w[0] ** 2 + w[1] ** 2 / 2)) / math.sqrt(2)
        got = (gradient * wave).sum((1, 2)) / 256
        target = factor * torch.tensor(w) * hat
        yield equals("transform of a gradient in the plane", got, target, tol=1e-12, w=w[0])


fourier_gradient.foil(
    "the sign of the exponent is minus, so that of i is plus", factor=-2j * math.pi
)
fourier_gradient.erratum(
    "B-132",
    printed=r"$\nabla \hat g(\omega) = \omega \cdot \hat g(\omega)$",
    right=r"$\widehat{\nabla g}(\omega) = 2 \pi i\,\omega\,\hat g(\omega)$",
    why=r"as scanned, the factor $i$ (with the sheet's own later transform, $2 \pi i$) is missing"
    r" and the hat covers $g$ alone; a lost $i$ and a hat cut short by the scan cannot be excluded."
    r" For $g(t) = e^{-\pi t^2}$ at $\omega = \frac12$ the transform of $g'$ is $1.432\,i$, the"
    r" gradient of the transform $-1.432$, the printed right side $0.228$, so that neither reading"
    r" holds; only the moduli agree, up to $2 \pi$",
    weight="scan",
    factor=1.0,
)
