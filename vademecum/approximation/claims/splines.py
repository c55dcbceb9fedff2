"""Piecewise-linear functions: one variable, and the networks that are exactly them."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.approximation import pwl_to_abs, pwl_to_relu
from vademecum.claims import at_least, at_most, claim, equals, lowest

Network = Callable[[Tensor], Tensor]


def random_pwl(n: int) -> tuple[Tensor, Tensor]:
    """Dyadic points with gaps 1/4, 1/2, 1, 2 and integer values: slopes are exact numbers.

    The first slopes are 1, -1 and the last two are equal, so that one point is no kink.
    """
    gaps = 2.0 ** torch.randint(-2, 2, (n - 1,))
    y = torch.randint(-9, 10, (n,)).double()
    gaps[:2], gaps[-2:] = 1.0, 0.5
    y[1], y[2] = y[0] + 1, y[0]
    y[-1] = 2 * y[-2] - y[-3]
    return torch.cat([torch.zeros(1), gaps.cumsum(0)]) - 5, y


def line_through(x: list[Fraction], y: list[Fraction], at: Fraction) -> Fraction:
    """Linear interpolation, the outer pieces prolonged."""
    i = sum(knot <= at for knot in x[1:-1])
    return y[i] + (y[i + 1] - y[i]) / (x[i + 1] - x[i]) * (at - x[i])


def everywhere(x: Tensor) -> Tensor:
    """The points themselves, the middles between them, and points outside."""
    return torch.cat([x, (x[1:] + x[:-1]) / 2, x[:1] - 3, x[-1:] + 3])


def exact(values: Tensor) -> list[Fraction]:
    """Floating-point numbers as the fractions that they are."""
    return [Fraction(v) for v in values.tolist()]


def sup_error(network: Callable, f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The largest error of a network at given points, one a row."""
    with torch.no_grad():
        return (network(x).flatten() - f(x).flatten()).abs().max()


@claim(
    by="sampling",
    sources=("A-062", "B-189"),
    budget=0.5,
    full={"n": 200_001},
    short=r"\|f - f_h\|_\infty \le \omega_f(h), \quad \|f - f_h\|_\infty \le"
    r" \tfrac{h^2}{8} \max |f''|",
)
def pwl_dense(constant: float = 1 / 8, n: int = 4001):
    r"""Piecewise-linear functions are dense among the continuous ones.

    For $f \in C([0, 1])$ the piecewise-linear interpolant on a grid of spacing $h$ has a uniform
    error of at most the modulus of continuity $\omega_f(h)$, and of at most
    $\frac{h^2}{8} \max |f''|$ if $f \in C^2$. For $x^2$ the latter is attained in every middle, and
    for $\sqrt x$ the error is $\frac14 \sqrt h$, at $\frac h4$.

    Checked for a sine, the root and the square, quoted beyond.

    Knobs:
        constant: The factor of $h^2 \max |f''|$.
        n: At how many points of $[0, 1]$ the error is measured.
    """
    phase = 2 * math.pi * float(torch.rand(()))
    cases: list[tuple[str, Network, Callable[[float], float], float | None]] = [
        ("square", torch.square, lambda h: 2 * h - h * h, 2),
        ("sine", lambda x: torch.sin(20 * x + phase), lambda h: 2 * math.sin(10 * h), 400),
        ("root", torch.sqrt, math.sqrt, None),
    ]
    x = torch.linspace(0, 1, n)[:, None]
    for pieces in (8, 32, 128):
        h, knots = 1 / pieces, torch.arange(pieces + 1) / pieces
        for name, f, modulus, bend in cases:
            error = sup_error(pwl_to_relu(knots, f(knots)), f, x)
            yield at_most("error of the interpolant, against the modulus of continuity", error,
                          modulus(h), pieces=pieces, f=name)  # fmt: skip
            if bend is not None:
                yield at_most("error of the interpolant, against the curvature", error,
                              constant * h * h * bend, pieces=pieces, f=name)  # fmt: skip
        middle = knots[:-1, None] + h / 2
        found = pwl_to_relu(knots, knots.square())(middle) - middle.square()
        yield equals("error for $x^2$ in the middle of a piece", found, h * h / 4, pieces=pieces)
        quarter = torch.tensor([[h / 4]])
        found = quarter.sqrt() - pwl_to_relu(knots, knots.sqrt())(quarter)
        yield equals(r"error for $\sqrt x$ at $\frac h4$", found, math.sqrt(h) / 4, pieces=pieces)


pwl_dense.foil(r"half the constant is too little for $x^2$", constant=1 / 16)


@claim(
    by="identity",
    sources=("A-063", "B-190", "E-122", "E-123"),
    budget=0.5,
    full={"n": 60},
    short=r"g(x) = a x + b + \textstyle\sum_i c_i (x - x_i)_+, \quad"
    r" c_i \text{ the change of slope at } x_i",
)
def relu_spline(
    coefficient: Literal["change", "slope"] = "change", degree: int = 1, n: int = 10, sets: int = 5
):
    r"""One layer of ReLUs is a basis for linear splines, and of no higher degree.

    A continuous piecewise-linear $g$ on $\mathbb{R}$ with the breakpoints $x_1 < \dots < x_{m - 1}$
    equals $a x + b + \sum_{i = 1}^{m - 1} c_i (x - x_i)_+$, where $a$ is the first slope and $c_i$
    the change of slope at $x_i$. Any finite layer of ReLUs is piecewise linear, so a spline of
    degree 2 is out of reach: $N$ units leave an interval of length $\ell \ge \frac{1}{N + 1}$ of
    $[0, 1]$ without kink, and there $x^2$ is $\frac{\ell^2}{8}$ away from every line.

    Both the expansion, in fractions, and the network of `pwl_to_relu` are compared exactly with
    linear interpolation at the points, between them and outside.

    Knobs:
        coefficient: Whether $c_i$ is the change of slope or the new slope.
        degree: The degree of a spline that ReLUs are said to represent.
        n: At how many points a function is given, 3 at least.
        sets: How many functions are drawn.
    """
    lowest("n", n, 4)
    n = max(n, 3)
    for k in range(sets):
        x, y = random_pwl(n)
        at = everywhere(x)
        xs, ys = exact(x), exact(y)
        wanted = [float(line_through(xs, ys, t)) for t in exact(at)]
        s = [(ys[i + 1] - ys[i]) / (xs[i + 1] - xs[i]) for i in range(n - 1)]
        c = [s[i] - s[i - 1] if coefficient == "change" else s[i] for i in range(1, n - 1)]
        kinks = list(zip(c, xs[1:-1], strict=True))
        found = [
            ys[0] + s[0] * (t - xs[0]) + sum(w * max(t - p, 0) for w, p in kinks) for t in exact(at)
        ]
        yield equals("expansion in ReLUs", [float(v) for v in found], wanted, tol=0.0, set=k)
        network = pwl_to_relu(x, y)
        yield equals("network of ReLUs", network(at[:, None])[:, 0], wanted, tol=0.0, set=k)
        first = network[0]
        assert isinstance(first, nn.Linear)
        knots = set((-first.bias / first.weight[:, 0]).tolist())
        changes = sum(s[i] != s[i - 1] for i in range(1, n - 1))
        yield equals("number of the network's kinks", len(knots), changes, set=k)
    knots, fine = torch.arange(11) / 10, torch.linspace(0, 1, 1001)[:, None]
    power, square = (lambda t: t**degree), torch.square
    error = sup_error(pwl_to_relu(knots, power(knots)), power, fine)
    yield at_most(
        "distance of the interpolating network from a power of $x$", error, 0.0, degree=degree
    )
    error = sup_error(pwl_to_relu(knots, square(knots)), square, fine)
    yield at_least("distance of ten units from $x^2$", error, 1 / (8 * 11**2))


relu_spline.foil("the new slope instead of the change", coefficient="slope")
relu_spline.erratum(
    "E-123",
    printed="one ReLU layer is called a universal basis for 1D splines (degree not restricted)",
    right="one ReLU layer is a basis for splines of degree 1",
    why="True for splines of degree 1 only: a finite ReLU layer is piecewise linear and cannot"
    " equal the quadratic spline $x^2$ on any interval (second derivative 0 against 2).",
    weight="soft",
    degree=2,
)


@claim(
    by="identity",
    sources=("A-064", "B-191"),
    budget=0.5,
    full={"n": 60},
    short=r"g(x) = a' x + b' + \textstyle\sum_i \frac{c_i}{2} |x - x_i|, \quad"
    r" a' = a + \frac12 \sum_i c_i",
)
def abs_spline(half: float = 0.5, tilt: float = 0.5, n: int = 10):
    r"""A piecewise-linear function in absolute values.

    With $a$, $b$ and $c_i$ as in the ReLU expansion, the same $g$ equals
    $a' x + b' + \sum_i \frac{c_i}{2} |x - x_i|$ with $a' = a + \frac12 \sum_i c_i$ and
    $b' = b - \frac12 \sum_i c_i x_i$, by $z_+ = \frac12 (z + |z|)$.

    Both the expansion, in fractions, and the network of `pwl_to_abs` are compared exactly with
    linear interpolation.

    Knobs:
        half: The share of $c_i$ that multiplies the absolute value.
        tilt: The share of all $c_i$ that goes into $a'$ and $b'$.
        n: At how many points a function is given, 3 at least.
    """
    n = max(n, 3)
    for k in range(5):
        x, y = random_pwl(n)
        at = everywhere(x)
        xs, ys = exact(x), exact(y)
        wanted = [float(line_through(xs, ys, t)) for t in exact(at)]
        s = [(ys[i + 1] - ys[i]) / (xs[i + 1] - xs[i]) for i in range(n - 1)]
        kinks = [(s[i] - s[i - 1], xs[i]) for i in range(1, n - 1)]
        a = s[0] + Fraction(tilt) * sum(c for c, _ in kinks)
        b = ys[0] - s[0] * xs[0] - Fraction(tilt) * sum(c * p for c, p in kinks)
        bends = [(Fraction(half) * c, p) for c, p in kinks]
        found = [a * t + b + sum(c * abs(t - p) for c, p in bends) for t in exact(at)]
        yield equals("expansion in absolute values", [float(v) for v in found], wanted, tol=0.0,
                     set=k)  # fmt: skip
        network = pwl_to_abs(x, y)
        value = network(at[:, None])[:, 0]
        yield equals("network of absolute values", value, wanted, tol=0.0, set=k)
        yield equals("slope of the linear bypass", network.affine.weight, float(a), tol=0.0, set=k)
        yield equals("offset of the linear bypass", network.affine.bias, float(b), tol=0.0, set=k)


abs_spline.foil(r"the coefficients $c_i$ not halved", half=1.0)
abs_spline.foil(r"the slope $a$ left as it is", tilt=0.0)
