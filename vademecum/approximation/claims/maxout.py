"""Maxout: maxima of affine functions, and signed sums of them."""

import math
from collections.abc import Callable
from itertools import combinations, product
from typing import Literal

import torch
from scipy.optimize import linprog
from torch import Tensor

from vademecum.approximation import (
    AbsUnit,
    MaxAffine,
    Maxout,
    hinge_decomposition,
    pwl_to_maxout,
)
from vademecum.claims import at_most, claim, equals, integers

Function = Callable[[Tensor], Tensor]


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


@claim(
    by="identity",
    sources=("A-066", "B-193"),
    budget=0.5,
    full={"n": 100_000},
    short=r"g(x) = \max_{j \le k} (\langle \theta_j, x \rangle + b_j) \text{ is convex}",
)
def maxout(extreme: Literal["largest", "smallest"] = "largest", n: int = 300):
    r"""A maxout unit, or k-hinge, is convex and piecewise linear.

    A $k$-hinge or maxout unit is $g(x) = \max_{j \le k} (\langle \theta_j, x \rangle + b_j)$, a
    convex piecewise-linear function. For $k = 2$ it is a ReLU if one piece is zero, and the
    absolute value if the pieces are opposite.

    Integer weights and points, so that all comparisons are exact; the layer has two units.

    Knobs:
        extreme: Which of the affine pieces is taken.
        n: On how many chords convexity is tried.
    """
    sign = 1 if extreme == "largest" else -1
    for d, k in ((1, 2), (2, 3), (3, 5), (5, 10)):
        A, b = integers(k, d), integers(k)
        A[0], A[1] = 1.0, -1.0
        g = MaxAffine(sign * A, sign * b)
        above = excess(lambda x, g=g: sign * g(x), *dyadic_chords(n, d))
        yield at_most("height of the graph above a chord", above, 0.0, tol=0.0, d=d, k=k)
        x = integers(20, d)
        brute = [
            max(sum(a * t for a, t in zip(row, point, strict=True)) + c for row, c in zip(
                A.tolist(), b.tolist(), strict=True))
            for point in x.tolist()
        ]  # fmt: skip
        yield equals("maximum of affine functions", sign * g(x), brute, tol=0.0, d=d, k=k)
        layer = Maxout(d, 2, k)
        layer.linear.weight.data = sign * torch.cat([A, 3 * A])
        layer.linear.bias.data = sign * torch.cat([b, 3 * b])
        wanted = torch.tensor(brute)[:, None] * torch.tensor([1.0, 3])
        yield equals("layer of two maxout units", sign * layer(x), wanted, tol=0.0, d=d, k=k)
    z = integers(50, 1)
    for other, unit, name in ((0.0, torch.relu, "ReLU"), (-1.0, AbsUnit(), "absolute value")):
        pair = MaxAffine(torch.tensor([[1.0], [other]]), torch.zeros(2))
        yield equals("maximum of two pieces", pair(z), unit(z)[:, 0], tol=0.0, unit=name)


maxout.foil(
    "the smallest piece is concave",
    refuted_by="height of the graph above a chord",
    extreme="smallest",
)


def kinked(n: int) -> tuple[Tensor, Tensor]:
    """Integer points and values of a function of one variable, whose slopes are exact numbers."""
    gaps = 2.0 ** torch.randint(0, 3, (n - 1,))
    return torch.cat([torch.zeros(1), gaps.cumsum(0)]) - n, integers(n)


@claim(
    by="identity",
    sources=("A-067", "B-195"),
    budget=0.5,
    full={"sets": 100},
    short=r"f \text{ piecewise linear} \Rightarrow f = \textstyle\sum_j \pm g_j,"
    r"\ g_j \text{ hinges of } \le n + 1 \text{ pieces}",
)
def wang_sun(extra: int = 1, sets: int = 3, n: int = 300):
    r"""Piecewise-linear functions are signed sums of hinges with few pieces.

    Every continuous piecewise-linear $f : \mathbb{R}^n \to \mathbb{R}$ is a finite sum
    $\sum_j \pm g_j$ of $k$-hinges with $k \le n + 1$ (Wang and Sun, 2005). In the plane $n + 1$
    cannot be lowered: $\max(0, x, y)$ is no sum of 2-hinges.

    *Proof of the last.* A 2-hinge has a kink along a whole line, the same all the way. So for any
    sum of them the jump of $\partial_y f$ across $\{y = 0\}$ is the same at $(t, 0)$ and
    $(-t, 0)$ for all but finitely many $t$, while that of $\max(0, x, y)$ is 0 for $t > 0$ and 1
    for $t < 0$.

    Checked for maxima of affine functions in up to three dimensions, with `hinge_decomposition` and
    by least squares over all hinges made of at most $n + 1$ of the pieces; in one variable also for
    functions that are not convex. Quoted beyond.

    Knobs:
        extra: How many pieces a hinge may have beyond the dimension.
        sets: How many functions of each size are drawn.
        n: At how many points they are compared.
    """
    corner = MaxAffine(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.zeros(3))
    drawn = [MaxAffine(torch.randn(k, d), torch.randn(k)) for _ in range(sets)
             for d, k in ((1, 4), (2, 4), (2, 6), (3, 6))]  # fmt: skip
    pieces = "pieces of the largest hinge"
    with torch.no_grad():
        for g in [corner, *drawn]:
            k, d = g.A.shape
            x = 3 * torch.randn(n, d)
            if k <= 4:
                small = [MaxAffine(g.A[list(p)], g.b[list(p)]) for size in range(1, d + extra + 1)
                         for p in combinations(range(k), size)]  # fmt: skip
                table = torch.stack([h(x) for h in small] + [torch.ones(n)], 1)
                fit = torch.linalg.lstsq(table, g(x)[:, None], driver="gelsd").solution
                yield equals("best fit by small hinges", (table @ fit)[:, 0], g(x), d=d, k=k)
            parts = hinge_decomposition(g)
            yield at_most(pieces, max(len(h.b) for h in parts.hinges), d + extra, d=d, k=k)
            yield equals("signed sum of hinges", parts(x), g(x), d=d, k=k)
        for _ in range(sets):
            x, y = kinked(8)
            two = pwl_to_maxout(x, y)
            parts = [hinge_decomposition(g) for g in (two.g, two.h)]
            value = parts[0](x[:, None]) - parts[1](x[:, None])
            yield equals("signed sum of hinges of one variable", value, y, d=1)
            yield at_most(pieces, max(len(h.b) for p in parts for h in p.hinges), 1 + extra, d=1)


wang_sun.foil("hinges of $n$ pieces do not suffice", refuted_by="best fit by small hinges", extra=0)


def in_hull(vertices: Tensor, x: Tensor) -> bool:
    """Whether a point is a convex combination of vertices, by linear programming."""
    table = torch.cat([vertices.T, torch.ones(1, len(vertices))])
    target = torch.cat([x, torch.ones(1)])
    none = torch.zeros(len(vertices)).numpy()
    return linprog(none, A_eq=table.numpy(), b_eq=target.numpy()).status == 0


@claim(
    by="identity",
    sources=("A-068", "A-069", "B-196", "B-197", "B-198"),
    budget=0.5,
    short=r"\mathrm{epi} f \text{ is a polyhedral set} \iff f(x) = \max_{j \le k}"
    r" (\langle \theta_j, x \rangle + b_j)",
)
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

    Knobs:
        body: The set that the tangents are said to cut out.
        strict: Whether the half-spaces are open.
        n: How many points are drawn.
    """
    for d in (1, 2, 4):
        A, b = integers(8, d), integers(8)
        f, x = MaxAffine(A, b), integers(n, d)
        t = f(x).detach() + torch.randint(-2, 3, (n,))  # one in five lies on the graph
        rows = torch.cat([A, -torch.ones(8, 1)], 1)  # of the half-spaces rows (x, t) <= -b
        slack = -b - (rows[None] * torch.cat([x, t[:, None]], 1)[:, None]).sum(2)
        inside = (slack > 0 if strict else slack >= 0).all(1)
        yield equals("membership in all half-spaces", inside.long(), (f(x) <= t).long(), d=d)
        active = f.affine_pieces(x).argmax(1).unique()
        enough = MaxAffine(A[active], b[active])(x)
        yield equals("maximum of the active pieces", enough, f(x), tol=0.0, d=d)
    corners = torch.tensor(list(product((0.0, 1.0), repeat=3)))
    simplex = torch.cat([torch.zeros(1, 3), torch.eye(3)])
    for x in (2 * torch.randint(-4, 20, (6, 3)) + 1) / 32:  # never near the boundary
        box, corner = bool(((x >= 0) & (x <= 1)).all()), bool((x >= 0).all() and x.sum() <= 1)
        for vertices, member, name in ((corners, box, "box"), (simplex, corner, "simplex")):
            yield equals("membership in the hull of the vertices", int(in_hull(vertices, x)),
                         int(member), body=name)  # fmt: skip
    for k in (3, 10, 50, 200):
        turn = 2 * math.pi * torch.arange(k) / k
        tangents = torch.stack([turn.cos(), turn.sin()], 1)
        vertex = tangents.roll(1, 0) + tangents
        vertex = vertex / (vertex * tangents).sum(1, keepdim=True)  # on two of the tangents
        reach = 1 / math.cos(math.pi / k)
        yield equals("distance of a vertex from the centre", vertex.norm(dim=1), reach, k=k)
        gauge = (vertex @ tangents.T).amax(1) if body == "polygon" else vertex.norm(dim=1)
        yield at_most("factor by which the set must be stretched to hold a vertex", gauge, 1.0, k=k)


polyhedral.foil("open half-spaces lose the graph", strict=True)
polyhedral.erratum(
    "A-068",
    printed="Intersection of half-planes (convex)",
    right="Intersection of finitely many closed half-spaces",
    why="Without finiteness every closed convex set qualifies: the unit disc is the intersection of"
    " its tangent half-planes yet no polyhedral set, and every closed convex function would be"
    " called polyhedral.",
    weight="soft",
    body="disc",
)
