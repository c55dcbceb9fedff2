"""Subgradients: slopes of convex functions, at kinks and elsewhere."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.gradients import Tape
from vademecum.gradients import subdifferential as slopes_of

GRID = torch.arange(-160, 161) / 32.0
SMOOTH = {  # with the slope, and a bound on the second derivative up to 33/32
    "square": (torch.square, lambda x: 2 * x, 2.0),
    "exp": (torch.exp, torch.exp, 3.0),
}
KINKED: dict[str, tuple[Callable[[Tensor], Tensor], str, dict[str, Any]]] = {
    "abs": (torch.abs, "abs", {}),
    "relu": (torch.relu, "relu", {}),
    "leaky_relu": (F.leaky_relu, "leaky_relu", {}),
    "leaky_relu of slope 1/4": (
        lambda z: torch.where(z > 0, z, z / 4), "leaky_relu", {"negative_slope": 0.25},
    ),
}  # fmt: skip


def extent(what: str, g: Tensor, stated: Tensor, found: Tensor, **at: Any) -> Iterator[Evidence]:
    """Two sets of numbers from a list, or of rows, are of one size and have the same ends."""
    yield equals(f"number of the {what}", int(found.sum()), int(stated.sum()), **at)
    if found.any() and stated.any():
        yield equals(f"lowest of the {what}", g[found].amin(0), g[stated].amin(0), tol=0.0, **at)
        yield equals(f"highest of the {what}", g[found].amax(0), g[stated].amax(0), tol=0.0, **at)


def accepted(
    f: Callable[[Tensor], Tensor], x: Tensor, g: Tensor, sides: str, sign: float
) -> Tensor:
    """Which slopes satisfy the subgradient inequality at x, for all points of the grid."""
    u = GRID.double()
    u = u[u > x] if sides == "right" else u
    gap = f(u)[:, None] - f(x) - g * (u - x)[:, None]
    return (sign * gap >= -1e-12).all(0)  # rounding of exp and of 0.01; all others are exact here


def maxima(sides: str, sign: float) -> Iterator[Evidence]:
    """The inequality for the maximum of two and of three numbers."""
    for x in ([1.0, 1.0], [1.0, 0.5], [1.0, 1.0, 0.5], [1.0, 1.0, 1.0]):
        z, d = torch.tensor(x), len(x)
        points = torch.cartesian_prod(*[torch.arange(-1, 4) / 2.0] * d)
        shares = torch.cartesian_prod(*[torch.arange(-2, 7) / 4.0] * d)
        beyond = points[points[:, 0] > z[0]] if sides == "right" else points
        gap = beyond.amax(1)[:, None] - z.max() - (beyond - z) @ shares.T
        demanded, known = (sign * gap >= 0).all(0), slopes_of("max", z)
        at, what = {"d": d, "ties": int((z == 1).sum())}, "subgradients of the maximum on the grid"
        yield from extent(what, shares, demanded, known.contains(shares), **at)


@claim(
    by="identity", sources=("B-172", "D-121"), budget=0.5,
    short=r"\partial f(x) = \{g : f(y) \ge f(x) + g^T (y - x) \text{ for all } y\}",
)  # fmt: skip
def subdifferential(sides: Literal["both", "right"] = "both", sign: float = 1.0):
    r"""The subdifferential of a convex function.

    For convex $f$ and a point $x$ of its domain $\partial f(x) = \{g : f(y) \ge f(x) + g^T (y - x)$
    for all $y\}$; its elements are the subgradients. Where $f$ is differentiable it is the single
    point $\nabla f(x)$.

    *Check.* Slopes and points $y$ run over grids of binary fractions, so that arithmetic is exact
    for all functions but $e^x$ and the leaky unit of slope 0.01, torch's default. Between points of
    a grid of step $h$ a smooth $f$ lets slopes through that differ from $f'(x)$ by at most
    $h \max f'' / 2$.

    Knobs:
        sides: For which $y$ the inequality is demanded, all or those to the right of $x$.
        sign: The sign of the inequality; with $-1$ it is reversed.
    """
    slopes = torch.cat([torch.arange(-96, 97) / 32.0, torch.tensor([0.01])])
    for name, (f, unit, knobs) in KINKED.items():
        for x in (-2.0, 0.0, 0.5):
            at = torch.tensor(x)
            demanded, known = accepted(f, at, slopes, sides, sign), slopes_of(unit, at, **knobs)
            place = {"x": x, "unit": name}
            yield from extent(
                "subgradients on the grid", slopes, demanded, known.contains(slopes), **place
            )
            if demanded.any():
                ends = torch.stack([slopes[demanded].min(), slopes[demanded].max()])
                found = torch.stack([known.low, known.high])
                yield equals("ends of the library's interval", found, ends, tol=0.0, **place)
    for name, (f, slope, bend) in SMOOTH.items():
        for x in (0.0, 1.0):
            at = torch.tensor(x)
            gap = (slopes - slope(at)).abs()[accepted(f, at, slopes, sides, sign)]
            farthest = gap.max() if len(gap) else torch.inf
            title = "distance of a slope that passes from the derivative"
            yield at_most(title, farthest, bend / 64, x=x, function=name)
            passes = accepted(f, at, slope(at)[None], sides, sign)
            yield equals("the derivative passes (1) or not (0)", passes, 1, x=x, function=name)
    yield from maxima(sides, sign)


subdifferential.foil("the inequality reversed", sign=-1.0)
subdifferential.foil(
    "tested for $y > x$ only, every slope below the right derivative passes", sides="right"
)


@claim(
    by="identity", sources=("D-122",), budget=0.5,
    short=r"f(x) = \min f \iff 0 \in \partial f(x), \quad f \text{ convex}",
)  # fmt: skip
def subgradient_optimality(criterion: Literal["set", "sign"] = "set"):
    r"""A zero subgradient characterises the minimum.

    For convex $f$ (not necessarily differentiable) $x$ is a global minimiser if and only if
    $0 \in \partial f(x)$: the subgradient inequality with $g = 0$ says just that.

    *Check.* $\frac12 (w - c)^2 + |w|$, whose minimiser is the soft threshold of $c$, and the
    maximum of tangents of a parabola, on grids of binary fractions that hold all their kinks.

    Knobs:
        criterion: What is demanded of a minimiser of the first function: that the set of its slopes
            holds 0, or that the slope with $\operatorname{sign}(0) = 0$ is 0.
    """
    w = torch.arange(-128, 129) / 32.0
    for c in (torch.arange(-12, 13) / 4).tolist():
        f = (w - c) ** 2 / 2 + w.abs()
        if criterion == "set":
            known = slopes_of("abs", w)
            optimal = (w - c + known.low <= 0) & (w - c + known.high >= 0)
        else:
            optimal = w - c + w.sign() == 0
        name = r"minimisers of $\frac{1}{2} (w - c)^2 + |w|$"
        yield from extent(name, w, optimal, f == f.min(), c=c)
        soft = max(abs(c) - 1, 0.0) * (1 if c > 0 else -1)
        yield equals(f"first of the {name}", w[f.argmin()], soft, tol=0.0, c=c)
    for _ in range(3):
        t, c = torch.randperm(13)[:6] - 6.0, float(torch.randint(-4, 5, ())) / 4
        lines = 2 * t * (w - c)[:, None] - t**2
        f, top = lines.amax(1), slopes_of("max", lines).high > 0
        low = torch.where(top, 2 * t, torch.inf).amin(1)
        high = torch.where(top, 2 * t, -torch.inf).amax(1)
        inside = (low <= 0) & (high >= 0)
        if (t <= 0).any() and (t >= 0).any():  # else it falls for ever
            yield from extent("minimisers of the maximum of lines", w, inside, f == f.min(), c=c)


subgradient_optimality.foil(
    r"$f'(w) = 0$ with $\operatorname{sign}(0) = 0$ misses the minimum at 0 for $0 < |c| \le 1$",
    criterion="sign",
)

SETS = {
    "[-1, 1]": lambda g: (g >= -1) & (g <= 1),
    "{-1, 1}": lambda g: (g == -1) | (g == 1),
    "{0}": lambda g: g == 0,
    "[0, 1]": lambda g: (g >= 0) & (g <= 1),
}


def members(
    unit: str, f: Callable[[Tensor], Tensor], left: float, at_zero: str
) -> Iterator[Evidence]:
    """Compare the slopes below the graph with the stated ones, and with those of the library.

    All points from -2 to 2 in quarters, and all slopes there in eighths: exact in binary.
    """
    u, g = (torch.arange(-8 * k, 8 * k + 1) / 8.0 for k in (5, 2))
    for z in torch.arange(-8, 9) / 4.0:
        below = (f(u)[:, None] - f(z) >= g * (u - z)[:, None]).all(0)
        stated = SETS[at_zero](g) if z == 0 else g == (1.0 if z > 0 else left)
        yield from extent("slopes in eighths below the graph", g, stated, below, z=float(z))
        found = slopes_of(unit, z).contains(g)
        yield from extent("slopes in eighths in the library's set", g, below, found, z=float(z))


@claim(
    by="identity", sources=("A-039", "B-181"), budget=0.5,
    short=r"\partial |z| = \{1\} \ (z > 0), \quad \{-1\} \ (z < 0), \quad [-1, 1] \ (z = 0)",
)  # fmt: skip
def subdifferential_abs(at_zero: Literal["[-1, 1]", "{-1, 1}", "{0}", "[0, 1]"] = "[-1, 1]"):
    r"""The subdifferential of the absolute value.

    $\partial |z| = \{1\}$ for $z > 0$, $\{-1\}$ for $z < 0$ and $[-1, 1]$ at $z = 0$. Checked at
    all $z$ from $-2$ to $2$ in quarters, for slopes in eighths.

    Knobs:
        at_zero: The set of slopes at $z = 0$.
    """
    yield from members("abs", torch.abs, -1.0, at_zero)


subdifferential_abs.foil("the slopes between are subgradients, too", at_zero="{-1, 1}")
subdifferential_abs.foil("autograd's choice is only one of them", at_zero="{0}")
subdifferential_abs.foil("negative slopes belong to it", at_zero="[0, 1]")


@claim(
    by="identity", sources=("B-171",), budget=0.5,
    short=r"\partial (z)_+ = \{0\} \ (z < 0), \quad \{1\} \ (z > 0), \quad [0, 1] \ (z = 0)",
)  # fmt: skip
def subdifferential_relu(at_zero: Literal["[0, 1]", "[-1, 1]", "{-1, 1}", "{0}"] = "[0, 1]"):
    r"""The subdifferential of the ReLU.

    $\partial (z)_+ = \{0\}$ for $z < 0$, $\{1\}$ for $z > 0$ and $[0, 1]$ at $z = 0$; automatic
    differentiation picks one element there. Checked at all $z$ from $-2$ to $2$ in quarters, for
    slopes in eighths.

    Knobs:
        at_zero: The set of slopes at $z = 0$.
    """
    yield from members("relu", torch.relu, 0.0, at_zero)
    zero = torch.zeros((), requires_grad=True)
    (slope,) = torch.autograd.grad(torch.relu(zero), zero)
    ours = Tape(torch.relu, torch.zeros(())).pull().gradients[0]
    for engine, chosen in (("torch", slope), ("ours", ours)):
        yield at_least("slope that automatic differentiation picks", chosen, 0.0, engine=engine)
        yield at_most("slope that automatic differentiation picks", chosen, 1.0, engine=engine)


subdifferential_relu.foil(
    "slope $-1$, copied from the absolute value, is above the graph at $u = -1$", at_zero="[-1, 1]"
)
