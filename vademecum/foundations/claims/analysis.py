"""What the course claims of compact sets, Lipschitz maps, Fourier transforms and multipliers."""

import math
from collections.abc import Callable
from functools import cache
from itertools import combinations_with_replacement, product
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.curvature_constants import lipschitz_constant
from vademecum.foundations.regions import Ball, Box


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


def escape(pieces: tuple[Interval, ...], sup: float = 1e6) -> bool:
    """Whether the continuous x, or 1/(x - e) with e outside, exceeds `sup` somewhere on the set."""
    inside = lambda x: any(piece.contains(x) for piece in pieces)  # noqa: E731
    far = any(inside(x) for x in (-2 * sup, 2 * sup))
    missing = [e for e in (0.0, 1.0, 2.0) if not inside(e)]
    return far or any(inside(e + side / (2 * sup)) for e in missing for side in (-1, 1))


@claim(by="exhaustion", sources=("B-124",), budget=0.5)
def heine_borel(
    criterion: Literal["closed and bounded", "closed", "bounded"] = "closed and bounded",
):
    r"""The Heine-Borel theorem.

    A subset of $\mathbb R^n$ is compact if and only if it is closed and bounded; equivalently,
    every continuous real function on it is bounded and attains its maximum. Both conditions are
    needed, and the equivalence fails in infinite dimension, where the unit vectors of $\ell^2$
    keep the distance $\sqrt2$.

    Checked for all unions of two intervals with ends in $\{-\infty, 0, 1, 2, \infty\}$: where the
    criterion fails, the continuous function $x$, or $1 / (x - e)$ with a limit point $e$ that is
    missing, exceeds $10^6$ at a point of the set; where it holds, neither does, and both $x$ and
    $-x$ attain their suprema.
    """
    predicted, bounded = [], []
    for pieces in combinations_with_replacement(intervals(), 2):
        ends = [end for piece in pieces for end in piece[:2]]
        inside = [any(piece.contains(end) for piece in pieces) for end in ends]
        closed = all(on or math.isinf(e) for e, on in zip(ends, inside, strict=True))
        finite = all(math.isfinite(e) for e in ends)
        predicted.append((closed or criterion == "bounded") and (finite or criterion == "closed"))
        bounded.append(not escape(pieces))
        if predicted[-1]:
            for top in (max(ends), min(ends)):
                yield at_least(int(any(piece.contains(top) for piece in pieces)), 1)
    yield equals(torch.tensor(predicted), torch.tensor(bounded))
    units = torch.eye(30)
    yield equals(torch.pdist(units), math.sqrt(2))


heine_borel.foil("(0, 1) is bounded, and 1/x is not bounded on it", criterion="bounded")
heine_borel.foil(r"$[0, \infty)$ is closed, and x is not bounded on it", criterion="closed")


@cache
def edit_distance(s: str, t: str) -> int:
    """The least number of insertions, deletions and substitutions that turn s into t."""
    if not s or not t:
        return len(s) + len(t)
    change = edit_distance(s[1:], t[1:]) + (s[0] != t[0])
    return min(change, 1 + edit_distance(s[1:], t), 1 + edit_distance(s, t[1:]))


@claim(by="sampling", sources=("D-059",), budget=0.5, full={"pairs": 100_000, "sets": 30})
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

    *Note.* A sheet (D-059) announces metric spaces and then writes norms on $\mathbb R^n$. The
    length of a string, which is 1-Lipschitz for the edit distance, has a metric and no norm.
    """
    slope = {"tanh": torch.tanh, "square": torch.square}[curve]
    x = torch.cat([torch.randn(pairs) * 3, torch.arange(0.0, 10_000, 100)])
    y = x + torch.cat([torch.randn(pairs), torch.ones(100)])
    yield at_most((slope(x) - slope(y)).abs(), bound * (x - y).abs())
    h = 1e-2
    yield at_least((slope(torch.tensor(h)) - slope(torch.tensor(-h))) / (2 * h), bound - h**2)
    yield equals(lipschitz_constant(slope, Box(-torch.ones(1), torch.ones(1)), pairs=20).value, 1.0)
    shapes = torch.randint(1, 6, (sets, 2)).tolist()
    maps = [torch.tensor([[0.0, 1.0], [0.0, 0.0]]), *(torch.randn(m, n) for m, n in shapes)]
    for a in maps:
        _, sigma, vh = torch.linalg.svd(a)
        top = sigma[0]
        if norm == "spectral radius":
            top = torch.linalg.eigvals(a).abs().max()
        x, y = torch.randn(2, pairs, a.shape[1])
        yield at_most((x @ a.T - y @ a.T).norm(dim=1), top * (x - y).norm(dim=1), m=len(a))
        yield equals((a @ vh[0]).norm(), top, m=len(a))
        ball = Ball(torch.zeros(a.shape[1]), 2.0)
        found = lipschitz_constant(lambda x, a=a: x @ a.T, ball, pairs=20, starts=2, steps=2)
        yield equals(found.value, top, m=len(a))
    words = ["".join(w) for n in range(5) for w in product("01", repeat=n)]
    for s, t in combinations_with_replacement(words, 2):
        yield at_most(abs(len(s) - len(t)), edit_distance(s, t))


lipschitz_continuity.foil("the square has no constant: its slope grows", curve="square", bound=1e3)
lipschitz_continuity.foil("tanh has the slope 1 at zero", bound=0.5)
lipschitz_continuity.foil(
    "a nilpotent matrix has the spectral radius 0 and still stretches", norm="spectral radius"
)


@claim(by="identity", sources=("B-132",), budget=0.5)
def fourier_gradient(factor: complex = 2j * math.pi):
    r"""The Fourier transform of a gradient.

    For integrable $g$ with integrable gradient,
    $\widehat{\nabla g}(\omega) = i \omega\,\hat g(\omega)$ in the convention
    $\hat g(\omega) = \int g(x) e^{-i \omega \cdot x} dx$, and
    $2 \pi i\,\omega\,\hat g(\omega)$ in the convention with $e^{-2 \pi i \omega \cdot x}$. So
    $\|\widehat{\nabla g}(\omega)\| = \|\omega\|\,|\hat g(\omega)|$ (times $2 \pi$), which is what
    Barron's constant integrates.

    *Proof.* Integration by parts. Checked on Gaussians, for which the trapezoid rule is spectrally
    accurate.
    """
    t = torch.arange(-8 * 64, 8 * 64 + 1) / 64
    rise = -2 * math.pi * t * (-math.pi * t**2).exp()
    for w in (0.5, -1.0, -0.5, 0.25, 1.0):
        hat = math.exp(-math.pi * w**2)
        got = (rise * torch.exp(-2j * math.pi * w * t)).sum() / 64
        yield equals(got, torch.tensor(factor * w * hat), tol=1e-12, w=w)
        angular = (rise * torch.exp(-1j * w * t)).sum() / 64  # hat g is exp(-w^2 / (4 pi)) here
        target = factor / (2 * math.pi) * w * math.exp(-(w**2) / (4 * math.pi))
        yield equals(angular, torch.tensor(target), tol=1e-12, w=w)
    t = torch.arange(-5 * 16, 5 * 16 + 1) / 16
    x, y = torch.meshgrid(t, t, indexing="ij")
    g = torch.exp(-math.pi * (x**2 + 2 * y**2))
    gradient = torch.stack([-2 * math.pi * x * g, -4 * math.pi * y * g])
    for w in ((0.5, 0.25), (-1.0, 0.5)):
        wave = torch.exp(-2j * math.pi * (w[0] * x + w[1] * y))
        hat = math.exp(-math.pi * (w[0] ** 2 + w[1] ** 2 / 2)) / math.sqrt(2)
        got = (gradient * wave).sum((1, 2)) / 256
        yield equals(got, factor * torch.tensor(w) * hat, tol=1e-12, w=w[0])


fourier_gradient.foil(
    "the sign of the exponent is minus, so that of i is plus", factor=-2j * math.pi
)
fourier_gradient.erratum(
    "B-132",
    printed=r"$\nabla \hat g(\omega) = \omega \cdot \hat g(\omega)$",
    right=r"$\widehat{\nabla g}(\omega) = 2 \pi i\,\omega\,\hat g(\omega)$",
    why="the factor i, with the sheet's own transform 2 pi i, is missing, and the hat must cover"
    " the gradient: for a Gaussian at 1/2 the transform of the slope is 1.432 i, and this 0.228",
    weight="hard",
    factor=1.0,
)


def best_angle(height: Callable[[Tensor], Tensor]) -> Tensor:
    """The angle at which a function on the circle is largest, by its values alone."""
    low, width = torch.tensor(0.0), 2 * math.pi
    for _ in range(12):  # each round narrows the bracket a hundredfold until rounding ends it
        grid = low + width * torch.linspace(0, 1, 401)
        i = int(height(grid).argmax())
        low, width = grid[i] - width / 200, width / 100
        if width < 1e-7:
            break
    return low + width / 2


@claim(by="identity", sources=("D-061", "E-049"), budget=0.5, full={"sets": 50})
def lagrange_multipliers(
    price: int = 1,
    constrained: bool = True,
    power: int = 1,
    extremum: bool = False,
    sets: int = 3,
):
    r"""Lagrange multipliers for one equality constraint.

    If $x^*$ is a local extremum of $f$ on $\{g = c\}$ and $\nabla g(x^*) \ne 0$, there is a
    multiplier $\gamma$ with $\nabla f(x^*) = \gamma \nabla g(x^*)$: $(x^*, \gamma)$ is a stationary
    point of $\mathcal L(x, \gamma) = f(x) - \gamma\,(g(x) - c)$. With this sign
    $\gamma = \frac{d}{dc} f(x^*(c))$, the price of the constraint. The condition is necessary, not
    sufficient.

    Checked for $x y$ on $x + y = c$, with the maximum $c^2 / 4$ at $x = y = \gamma = c / 2$; for
    $e^{a^\top x}$ on random ellipses, its maximum found from values alone; for $x$ on $x^k = y^2$
    (`power` is $k$), least at the origin; and for $y$ on $y = x^3$, where the origin is stationary
    and no extremum.
    """
    for c in (2, 6, 10):
        matrix, rhs = torch.tensor([[0.0, 1, -1], [1, 0, -1], [1, 1, 0]]), torch.tensor([0.0, 0, c])
        if not constrained:  # the gradient of f alone
            matrix, rhs = torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]]), torch.zeros(3)
        x, y, gamma = torch.linalg.solve(matrix, rhs)
        yield equals(x + y, c, c=c)
        yield equals(x * y, c**2 / 4, c=c)
        yield equals(((c + 1) ** 2 - (c - 1) ** 2) / 8, price * gamma, c=c)
    for k in range(sets):
        a, b = torch.randn(2), torch.randn(2, 2)
        m = b @ b.T + torch.eye(2)
        root = torch.linalg.cholesky(torch.linalg.inv(m))
        f = lambda x, a=a: (x @ a).exp()  # noqa: E731

        def top(c: float, f=f, root=root) -> Tensor:
            spot = lambda t: math.sqrt(c) * torch.stack([t.cos(), t.sin()], -1) @ root.T  # noqa: E731
            return spot(best_angle(lambda t: f(spot(t))))

        x = top(1.0).requires_grad_()
        slope = torch.autograd.grad(f(x), x)[0]
        normal = 2 * m @ x.detach()
        gamma = slope @ normal / (normal @ normal)
        yield equals(slope, gamma * normal, tol=1e-6, set=k)  # an angle is known to some 1e-8
        h = 1e-3  # f is exp(s sqrt(c)) with s < 10, so that this errs by (h s)^2 / 24 of gamma
        yield equals((f(top(1 + h)) - f(top(1 - h))) / (2 * h), price * gamma, tol=1e-4, set=k)
    origin = torch.zeros(2, requires_grad=True)
    normal = torch.autograd.grad(origin[0] ** power - origin[1] ** 2, origin)[0]
    yield equals(torch.tensor([1.0, 0.0]), normal[0] * normal)  # the gradient of x; 1 is its price
    normal = torch.autograd.grad(origin[1] - origin[0] ** 3, origin)[0]
    yield equals(torch.tensor([0.0, 1.0]), normal[1] * normal)
    y = torch.tensor([-0.1, 0.1]) ** 3
    yield equals(int(y.min() >= 0 or y.max() <= 0), int(extremum))


lagrange_multipliers.foil("unconstrained stationarity gives (0, 0)", constrained=False)
lagrange_multipliers.foil("the Lagrangian with a plus has the price with a minus", price=-1)
lagrange_multipliers.foil(
    r"at the cusp of $x^3 = y^2$ the constraint has no gradient, and $x$ no multiplier", power=3
)
lagrange_multipliers.foil("a stationary point need not be an extremum", extremum=True)
