"""What the course claims of maxima of affine functions, their sums and their differences."""

import math
from collections.abc import Callable
from itertools import combinations, product
from typing import Any, Literal

import torch
from scipy.optimize import linprog
from torch import Tensor, nn

from vademecum.approximation.convex_split import dc_split
from vademecum.approximation.hinges import hinge_decomposition
from vademecum.approximation.max_affine import MaxAffine
from vademecum.approximation.pwl import pwl_to_maxout
from vademecum.approximation.units import AbsUnit, Maxout
from vademecum.claims import at_least, at_most, claim, equals

Function = Callable[[Tensor], Tensor]


def integers(*shape: int, high: int = 9) -> Tensor:
    """Random whole numbers as floating-point ones: sums of products are exact."""
    return torch.randint(-high, high + 1, shape).double()


def excess(f: Function, x: Tensor, y: Tensor, lam: Tensor) -> Tensor:
    """How far the graph of a function lies above the chord from y to x."""
    with torch.no_grad():
        mid, one, two = (f(z).reshape(len(x), -1) for z in (torch.lerp(y, x, lam[:, None]), x, y))
        return mid - torch.lerp(two, one, lam[:, None])


def dyadic_chords(n: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Chords between integers with weights in eighths; the first is from (9, ...) to (-9, ...)."""
    x, y, lam = integers(n, d), integers(n, d), torch.randint(0, 9, (n,)) / 8
    x[0], y[0], lam[0] = 9.0, -9.0, 0.5
    return x, y, lam


@claim(by="identity", sources=("A-066", "B-193"), budget=0.5, full={"n": 100_000})
def maxout(extreme: Literal["largest", "smallest"] = "largest", n: int = 300):
    r"""A maxout unit, or k-hinge, is convex and piecewise linear.

    A $k$-hinge or maxout unit is $g(x) = \max_{j \le k} (\langle \theta_j, x \rangle + b_j)$, a
    convex piecewise-linear function. For $k = 2$ it is a ReLU if one piece is zero, and the
    absolute value if the pieces are opposite.

    Integer weights and points, so that all comparisons are exact.
    """
    sign = 1 if extreme == "largest" else -1
    for d, k in ((1, 2), (2, 3), (3, 5), (5, 10)):
        A, b = integers(k, d), integers(k)
        A[0], A[1] = 1.0, -1.0
        g = MaxAffine(sign * A, sign * b)
        yield at_most(excess(lambda x, g=g: sign * g(x), *dyadic_chords(n, d)), 0.0, d=d, k=k)
        x = integers(20, d)
        brute = [
            max(sum(a * t for a, t in zip(row, point, strict=True)) + c for row, c in zip(
                A.tolist(), b.tolist(), strict=True))
            for point in x.tolist()
        ]  # fmt: skip
        yield equals(sign * g(x), brute, tol=0.0, d=d, k=k)
        layer = Maxout(d, 1, k)
        layer.linear.weight.data, layer.linear.bias.data = sign * A, sign * b
        yield equals(sign * layer(x)[:, 0], brute, tol=0.0, d=d, k=k)
    z = integers(50, 1)
    for other, unit in ((0.0, torch.relu), (-1.0, AbsUnit())):
        pair = MaxAffine(torch.tensor([[1.0], [other]]), torch.zeros(2))
        yield equals(pair(z), unit(z)[:, 0], tol=0.0)


maxout.foil("the smallest piece is concave", extreme="smallest")


def kinked(n: int) -> tuple[Tensor, Tensor]:
    """Integer points and values of a function of one variable, whose slopes are exact numbers."""
    gaps = 2.0 ** torch.randint(0, 3, (n - 1,))
    return torch.cat([torch.zeros(1), gaps.cumsum(0)]) - n, integers(n)


@claim(by="identity", sources=("A-067", "B-195"), budget=0.5, full={"sets": 100})
def wang_sun(extra: int = 1, sets: int = 3, n: int = 300):
    r"""Piecewise-linear functions are signed sums of hinges with few pieces.

    Every continuous piecewise-linear $f : \mathbb{R}^n \to \mathbb{R}$ is a finite sum
    $\sum_j \pm g_j$ of $k$-hinges with $k \le n + 1$ (Wang and Sun, 2005). In the plane $n + 1$
    cannot be lowered: $\max(0, x, y)$ is no sum of 2-hinges.

    *Proof of the last.* A 2-hinge has a kink along a whole line, the same all the way. So for any
    sum of them the jump of $\partial_y f$ across $\{y = 0\}$ is the same at $(t, 0)$ and
    $(-t, 0)$ for all but finitely many $t$, while that of $\max(0, x, y)$ is 0 for $t > 0$ and 1
    for $t < 0$.

    Checked with `hinge_decomposition`, and by least squares over all hinges made of at most
    $n + 1$ of the pieces; in one variable $f$ need not be convex.
    """
    corner = MaxAffine(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.zeros(3))
    drawn = [MaxAffine(torch.randn(k, d), torch.randn(k)) for _ in range(sets)
             for d, k in ((1, 4), (2, 4), (2, 6), (3, 6))]  # fmt: skip
    with torch.no_grad():
        for g in [corner, *drawn]:
            k, d = g.A.shape
            x = 3 * torch.randn(n, d)
            if k <= 4:
                small = [MaxAffine(g.A[list(p)], g.b[list(p)]) for size in range(1, d + extra + 1)
                         for p in combinations(range(k), size)]  # fmt: skip
                table = torch.stack([h(x) for h in small] + [torch.ones(n)], 1)
                fit = torch.linalg.lstsq(table, g(x)[:, None], driver="gelsd").solution
                yield at_most((table @ fit)[:, 0] - g(x), 0.0, d=d, k=k)
                yield at_least((table @ fit)[:, 0] - g(x), 0.0, d=d, k=k)
            parts = hinge_decomposition(g)
            yield at_most(max(len(h.b) for h in parts.hinges), d + extra, d=d, k=k)
            yield equals(parts(x), g(x), d=d, k=k)
        for _ in range(sets):
            x, y = kinked(8)
            two = pwl_to_maxout(x, y)
            parts = [hinge_decomposition(g) for g in (two.g, two.h)]
            yield equals(parts[0](x[:, None]) - parts[1](x[:, None]), y, d=1)
            yield at_most(max(len(h.b) for p in parts for h in p.hinges), 1 + extra, d=1)


wang_sun.foil(r"$n$ pieces do not do", extra=0)


def in_hull(vertices: Tensor, x: Tensor) -> bool:
    """Whether a point is a convex combination of vertices, by linear programming."""
    table = torch.cat([vertices.T, torch.ones(1, len(vertices))])
    target = torch.cat([x, torch.ones(1)])
    none = torch.zeros(len(vertices)).numpy()
    return linprog(none, A_eq=table.numpy(), b_eq=target.numpy()).status == 0


@claim(by="identity", sources=("A-068", "A-069", "B-196", "B-197", "B-198"), budget=0.5)
def polyhedral(body: Literal["polygon", "disc"] = "polygon", strict: bool = False, n: int = 500):
    r"""Polyhedral sets, and polyhedral functions.

    A polyhedral set is the intersection of *finitely* many closed half-spaces,
    $\{x : A x \le b\}$, hence convex; a function is polyhedral if its epigraph is a polyhedral set.
    A finite-valued $f : \mathbb{R}^n \to \mathbb{R}$ is polyhedral exactly if
    $f(x) = \max_{(\theta, b) \in A} (\langle \theta, x \rangle + b)$ for a finite set $A$.

    Checked: a point is above the graph of a `MaxAffine` exactly if it satisfies the half-spaces of
    its pieces; the pieces that are active somewhere are enough; half-spaces and hulls of vertices
    describe the same box and simplex; and the polygon of $k$ tangents of the circle reaches to
    $\frac{1}{\cos(\pi / k)}$, so that it is never the disc.
    """
    for d in (1, 2, 4):
        A, b = integers(8, d), integers(8)
        f, x = MaxAffine(A, b), integers(n, d)
        t = f(x).detach() + torch.randint(-2, 3, (n,))  # one in five lies on the graph
        rows = torch.cat([A, -torch.ones(8, 1)], 1)  # of the half-spaces rows (x, t) <= -b
        slack = -b - (rows[None] * torch.cat([x, t[:, None]], 1)[:, None]).sum(2)
        inside = (slack > 0 if strict else slack >= 0).all(1)
        yield equals(inside.long(), (f(x) <= t).long(), d=d)
        active = f.affine_pieces(x).argmax(1).unique()
        yield equals(MaxAffine(A[active], b[active])(x), f(x), tol=0.0, d=d)
    corners = torch.tensor(list(product((0.0, 1.0), repeat=3)))
    simplex = torch.cat([torch.zeros(1, 3), torch.eye(3)])
    for x in (2 * torch.randint(-4, 20, (6, 3)) + 1) / 32:  # never near the boundary
        box = bool(((x >= 0) & (x <= 1)).all())
        yield equals(int(in_hull(corners, x)), int(box))
        yield equals(int(in_hull(simplex, x)), int((x >= 0).all() and x.sum() <= 1))
    for k in (3, 10, 50, 200):
        turn = 2 * math.pi * torch.arange(k) / k
        tangents = torch.stack([turn.cos(), turn.sin()], 1)
        vertex = tangents.roll(1, 0) + tangents
        vertex = vertex / (vertex * tangents).sum(1, keepdim=True)  # on two of the tangents
        yield at_most(vertex @ tangents.T, 1.0, k=k)
        yield equals(vertex.norm(dim=1), 1 / math.cos(math.pi / k), k=k)
        gauge = (vertex @ tangents.T).amax(1) if body == "polygon" else vertex.norm(dim=1)
        yield at_most(gauge, 1.0, k=k)


polyhedral.foil("open half-spaces lose the graph", strict=True)
polyhedral.erratum(
    "A-068",
    printed="Intersection of half-planes (convex)",
    right="Intersection of finitely many closed half-spaces",
    why="without finiteness every closed convex set qualifies: the disc is the intersection of its"
    " tangent half-planes, yet no finite number of them cuts it out",
    weight="soft",
    body="disc",
)


def unswapped(model: nn.Sequential, x: Tensor) -> tuple[Function, Function, float]:
    """The parts that signed weights give: their difference is right, but they are not convex."""

    def carry(x: Tensor) -> tuple[Tensor, Tensor]:
        u, v = x, torch.zeros_like(x)
        for layer in model:
            if isinstance(layer, nn.Linear):
                u, v = layer(u), v @ layer.weight.T
            else:
                u, v = torch.maximum(u, v), v
        return u, v

    return lambda x: carry(x)[0], lambda x: carry(x)[1], 0.0


@claim(by="sampling", sources=("A-070", "B-199"), budget=0.5, full={"n": 10_000, "sets": 20})
def dc_decomposition(split: Callable[..., Any] = dc_split, n: int = 1000, sets: int = 3):
    r"""Piecewise-linear functions are differences of convex ones.

    Every continuous piecewise-linear $f : \mathbb{R}^n \to \mathbb{R}$ is a difference $g - h$ of
    two polyhedral, that is convex piecewise-linear, functions. In one dimension split the changes
    of slope by their sign. In a ReLU network propagate pairs: $W (g - h) + b$ becomes
    $(W^+ g + W^- h + b) - (W^+ h + W^- g)$ with $W = W^+ - W^-$, $W^\pm \ge 0$, and
    $(u - v)_+ = \max(u, v) - v$.

    The difference is compared at random points, and convexity on random chords.
    """
    for k in range(sets):
        x, y = kinked(10)
        two = pwl_to_maxout(x, y)
        yield equals(two(x[:, None]), y, tol=0.0, set=k)
        for part in two:
            slopes = part.A[:, 0]
            chords = (x[:-1, None], x[1:, None], torch.full((9,), 0.5))
            yield at_least(slopes.diff(), 0.0, tol=0.0, set=k)
            yield at_most(excess(part, *chords), 0.0, tol=0.0, set=k)
        model = nn.Sequential(
            nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 2)
        )
        x = 3 * torch.randn(n, 2)
        g, h, _ = split(model, x)
        yield equals(g(x) - h(x), model(x), set=k)
        near = torch.lerp(x, x.flip(0), torch.rand(n, 1))  # chords of all lengths
        for part in (g, h):
            yield at_most(excess(part, x, near, torch.rand(n)), 0.0, set=k)


dc_decomposition.foil(
    "signed weights keep the difference and lose convexity: negative ones must swap the parts",
    split=unswapped,
)


def envelope(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The lower convex hull of points in increasing order, as the points that it passes through."""
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return x[kept], y[kept]


@claim(by="sampling", sources=("A-071", "B-200"), budget=0.5, full={"n": 200_001})
def two_maxout(units: Literal[1, 2] = 2, n: int = 4001):
    r"""Two maxout units are universal, one is not.

    Differences of two $k$-hinges, $k$ free, approximate every continuous function on a compact set
    as closely as one likes, because piecewise-linear functions are dense and are differences of
    maxima of affine functions. One maxout unit does not suffice: it is convex.

    Checked for the interpolant of $\sin$ on $[0, 2 \pi]$ with $m$ pieces, whose error is at most
    $\frac{h^2}{8}$, $h = \frac{2 \pi}{m}$. A convex $g$ with $|g - \sin| \le \varepsilon$ has
    $1 - \varepsilon \le g(\frac\pi2) \le \frac12 (g(0) + g(\pi)) \le \varepsilon$, so
    $\varepsilon \ge \frac12$; the best one is the convex envelope, lifted by half its distance.
    """
    grid = torch.linspace(0, 2 * math.pi, n)
    for pieces in (10, 30, 100):
        x = torch.linspace(0, 2 * math.pi, pieces + 1)
        two = pwl_to_maxout(x, x.sin())
        with torch.no_grad():
            value = two(grid[:, None])
            if units == 1:
                one = pwl_to_maxout(*envelope(x, x.sin())).g
                value = one(grid[:, None])
                value = value + (grid.sin() - value).max() / 2
        h = 2 * math.pi / pieces
        yield at_most((value - grid.sin()).abs(), h * h / 8, pieces=pieces)
        yield at_least(min(len(part.b) for part in two), pieces // 2, pieces=pieces)


two_maxout.foil("one unit is convex, and a half away from the sine", units=1)
