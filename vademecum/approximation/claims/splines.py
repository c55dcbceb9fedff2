"""What the course claims of piecewise-linear functions of one variable and their networks."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.approximation.interpolation import interpolating_network
from vademecum.approximation.pwl import linear_with, pwl_to_abs, pwl_to_relu
from vademecum.approximation.sawtooth import sawtooth_network
from vademecum.claims import at_most, claim, equals

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


@claim(by="sampling", sources=("A-062", "B-189"), budget=0.5, full={"n": 200_001})
def pwl_dense(constant: float = 1 / 8, n: int = 4001):
    r"""Piecewise-linear functions are dense among the continuous ones.

    For $f \in C([0, 1])$ the piecewise-linear interpolant on a grid of spacing $h$ has a uniform
    error of at most the modulus of continuity $\omega_f(h)$, and of at most
    $\frac{h^2}{8} \max |f''|$ if $f \in C^2$. For $x^2$ the latter is attained in every middle.
    """
    phase = 2 * math.pi * float(torch.rand(()))
    cases: list[tuple[str, Network, Callable[[float], float], float | None]] = [
        ("sine", lambda x: torch.sin(20 * x + phase), lambda h: 2 * math.sin(10 * h), 400),
        ("root", torch.sqrt, math.sqrt, None),
        ("square", torch.square, lambda h: 2 * h - h * h, 2),
    ]
    x = torch.linspace(0, 1, n)[:, None]
    for pieces in (8, 32, 128):
        h, knots = 1 / pieces, torch.arange(pieces + 1) / pieces
        for name, f, modulus, bend in cases:
            error = sup_error(pwl_to_relu(knots, f(knots)), f, x)
            yield at_most(error, modulus(h), pieces=pieces, f=name)
            if bend is not None:
                yield at_most(error, constant * h * h * bend, pieces=pieces, f=name)
        middle = knots[:-1, None] + h / 2
        found = pwl_to_relu(knots, knots.square())(middle) - middle.square()
        yield equals(found, h * h / 4, pieces=pieces)


pwl_dense.foil(r"half the constant is too little for $x^2$", constant=1 / 16)


@claim(by="identity", sources=("A-063", "B-190", "E-122", "E-123"), budget=0.5, full={"n": 60})
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
    """
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
        yield equals([float(v) for v in found], wanted, tol=0.0, set=k)
        network = pwl_to_relu(x, y)
        yield equals(network(at[:, None])[:, 0], wanted, tol=0.0, set=k)
        first = network[0]
        assert isinstance(first, nn.Linear)
        knots = set((-first.bias / first.weight[:, 0]).tolist())
        changes = sum(s[i] != s[i - 1] for i in range(1, n - 1))
        yield equals(len(knots), changes, set=k)
    knots = torch.arange(11) / 10
    dense = torch.linspace(0, 1, 1001)[:, None]
    power = lambda t: t**degree  # noqa: E731
    yield at_most(sup_error(pwl_to_relu(knots, power(knots)), power, dense), 0.0, degree=degree)


relu_spline.foil("the new slope instead of the change", coefficient="slope")
relu_spline.erratum(
    "E-123",
    printed="one ReLU layer is a universal basis for 1D splines (their degree not restricted)",
    right="one ReLU layer is a basis for splines of degree 1",
    why=r"a finite layer is piecewise linear and cannot equal $x^2$ on any interval",
    weight="soft",
    degree=2,
)


@claim(by="identity", sources=("A-064", "B-191"), budget=0.5, full={"n": 60})
def abs_spline(half: Fraction = Fraction(1, 2), tilt: Fraction = Fraction(1, 2), n: int = 10):
    r"""A piecewise-linear function in absolute values.

    With $a$, $b$ and $c_i$ as in the ReLU expansion, the same $g$ equals
    $a' x + b' + \sum_i \frac{c_i}{2} |x - x_i|$ with $a' = a + \frac12 \sum_i c_i$ and
    $b' = b - \frac12 \sum_i c_i x_i$, by $z_+ = \frac12 (z + |z|)$.

    Both the expansion, in fractions, and the network of `pwl_to_abs` are compared exactly with
    linear interpolation.
    """
    for k in range(5):
        x, y = random_pwl(n)
        at = everywhere(x)
        xs, ys = exact(x), exact(y)
        wanted = [float(line_through(xs, ys, t)) for t in exact(at)]
        s = [(ys[i + 1] - ys[i]) / (xs[i + 1] - xs[i]) for i in range(n - 1)]
        kinks = [(s[i] - s[i - 1], xs[i]) for i in range(1, n - 1)]
        a = s[0] + tilt * sum(c for c, _ in kinks)
        b = ys[0] - s[0] * xs[0] - tilt * sum(c * p for c, p in kinks)
        found = [a * t + b + sum(half * c * abs(t - p) for c, p in kinks) for t in exact(at)]
        yield equals([float(v) for v in found], wanted, tol=0.0, set=k)
        network = pwl_to_abs(x, y)
        yield equals(network(at[:, None])[:, 0], wanted, tol=0.0, set=k)
        yield equals(network.affine.weight, float(a), tol=0.0, set=k)
        yield equals(network.affine.bias, float(b), tol=0.0, set=k)


abs_spline.foil(r"the coefficients $c_i$ not halved", half=Fraction(1))
abs_spline.foil(r"the slope $a$ left as it is", tilt=Fraction(0))


def ridges(
    theta: Tensor, phase: Tensor, weight: Tensor, pieces: int
) -> tuple[nn.Sequential, float]:
    """A network for a sum of cosines of linear functions on a cube, and a bound of its error.

    Each cosine is interpolated as a function of one variable, and the units of all of them make one
    hidden layer.
    """
    hidden, out, bias, bound = [], [], torch.zeros(1), 0.0
    for direction, shift, w in zip(theta, phase, weight, strict=True):
        reach = float(direction.abs().sum())
        t = torch.linspace(-reach, reach, pieces + 1)
        scale, offset, heights, base = interpolating_network(
            t[:, None], torch.cos(t + shift)
        ).parameters()
        hidden.append(torch.cat([scale.data * direction, offset.data[:, None]], 1))
        out.append(w * heights.data)
        bias += w * base.data
        bound += float(w.abs()) * (2 * reach / pieces) ** 2 / 8
    both = torch.cat(hidden)
    layer = linear_with(both[:, :-1], both[:, -1])
    return nn.Sequential(layer, nn.ReLU(), linear_with(torch.cat(out, 1), bias)), bound


def without_bias(x: Tensor, y: Tensor) -> Network:
    """The least-squares fit by ReLUs without bias: in one variable there are only two of them."""
    features = lambda t: torch.cat([torch.relu(t), torch.relu(-t)], 1)  # noqa: E731
    weights = torch.linalg.lstsq(features(x[:, None]), y[:, None]).solution
    return lambda t: features(t) @ weights


@claim(by="sampling", sources=("A-065", "B-192", "C-066", "E-124"), budget=0.5)
def relu_universality(bias: bool = True, n: int = 4001):
    r"""One hidden layer of rectifiers is universal.

    Networks with one hidden layer of ReLU or absolute value units are dense in $C(K)$ for compact
    $K \subset \mathbb{R}$, by interpolation and the expansions above. With $m$ equal pieces the
    interpolating network for $f \in C^2([a, b])$ has a uniform error of at most
    $\frac{(b - a)^2}{8 m^2} \max |f''|$. For compact $K \subset \mathbb{R}^d$ they are dense by
    dimension lifting: sums of $\cos(\langle \theta, x \rangle + \varphi)$ are dense, and each of
    them is a function of the one variable $\langle \theta, x \rangle$.

    Bias-free ReLUs are not: they all vanish at 0.
    """
    x = torch.linspace(-math.pi, math.pi, n)[:, None]
    for pieces in (10, 50, 200):
        bound = (2 * math.pi / pieces) ** 2 / 8
        knots = torch.linspace(-math.pi, math.pi, pieces + 1)
        for f in (torch.cos, torch.sin):
            y = f(knots)
            fit = interpolating_network(knots[:, None], y) if bias else without_bias(knots, y)
            yield at_most(sup_error(fit, f, x), bound, pieces=pieces, f=f.__name__)
            yield at_most(sup_error(pwl_to_abs(knots, y), f, x), bound, pieces=pieces)
    for d in (2, 3):
        theta, phase, weight = 2 * torch.randn(4, d), 6 * torch.rand(4), torch.randn(4)
        f = lambda x, t=theta, p=phase, w=weight: torch.cos(x @ t.T + p) @ w  # noqa: E731
        x = 2 * torch.rand(n // 4, d) - 1
        for pieces in (10, 40):
            network, bound = ridges(theta, phase, weight, pieces)
            yield at_most(sup_error(network, f, x), bound, pieces=pieces, d=d)


relu_universality.foil("without biases the network is 0 at 0, where the cosine is 1", bias=False)


def tent(numerator: Tensor, denominator: int, times: int) -> Tensor:
    """The tent map on fractions with a common denominator, applied several times: exact."""
    for _ in range(times):
        numerator = 2 * torch.minimum(numerator, denominator - numerator)
    return numerator


def bends(values: Tensor) -> int:
    """The number of kinks between values on a fine grid: runs of non-zero second differences."""
    bent = values.diff(n=2).abs() > 1e-9
    return int((bent[1:] & ~bent[:-1]).sum() + bent[0])


@claim(by="witness", sources=("E-121",), budget=0.5, full={"depths": 10, "nets": 1000})
def sawtooth_depth(share: int = 1, depths: int = 8, nets: int = 20):
    r"""The sawtooth is exponentially cheaper for deep networks.

    The $L$-fold iterate of the tent map on $[0, 1]$ has $2^L$ linear pieces and is computed exactly
    by $L$ hidden layers of two ReLUs, whereas a network with one hidden layer of $N$ ReLUs has at
    most $N + 1$ pieces in one variable, and so needs $N \ge 2^L - 1$. Depth can thus beat width at
    equal numbers of parameters; trained networks need not use this capacity.

    *Proof.* A unit is linear but for one point, so $N$ units have at most $N$ kinks. The iterate
    takes the values 0 and 1 in turn at $j / 2^L$, so that it has a kink at each
    $0 < j < 2^L$. (Telgarsky, 2016.)
    """
    for depth in range(1, depths + 1):
        pieces = 2 ** (depth + 2)
        j = torch.arange(pieces + 1)
        x = j[:, None] / pieces
        deep = sawtooth_network(depth)(x)[:, 0] * pieces
        yield equals(deep.detach(), tent(j, pieces, depth), tol=0.0, depth=depth)
        kinks = int((deep.diff().diff() != 0).sum())
        units = 2**depth // share
        yield at_most(kinks, units - 1, depth=depth)
        if units > 1:
            shallow = sawtooth_network(1, units)(x)[:, 0] * pieces
            yield equals(shallow, deep.detach(), tol=0.0, depth=depth)
    grid = torch.linspace(-3, 3, 3001)[:, None]
    with torch.no_grad():
        for k in range(nets):
            units = k % 20 + 1
            net = nn.Sequential(nn.Linear(1, units), nn.ReLU(), nn.Linear(units, 1))
            yield at_most(bends(net(grid)[:, 0]), units, units=units)


sawtooth_depth.foil("half as many units do for one layer", share=2)
