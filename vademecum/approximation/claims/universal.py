"""Universal approximation: for which units, and on which sets."""

import math
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.approximation import best_uniform_fit, fit_readout, random_feature_fit
from vademecum.arrays import rational_rank
from vademecum.claims import Evidence, at_least, at_most, claim, equals, in_mean, lowest

UNITS = {
    "logistic": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu, "square": torch.square,
}  # fmt: skip
Unit = Literal["logistic", "tanh", "relu", "square"]


def drawn_features(m: int) -> Iterator[Evidence]:
    """Evidence for random features with their defaults: their law, their kinks, their read-out."""
    for n, d in ((30, 3), (400, 2)):  # fewer and more points than units
        x, y = torch.randn(n, d), torch.randn(n)
        network = random_feature_fit(x, y, m)
        w, b, v, v0 = (p.detach() for p in network.parameters())
        spread = (x - x.mean(0)).square().sum(1).mean().sqrt()
        law = (w * spread / 3).square()
        yield in_mean(r"squared weight of a random unit, over $9 / \tau^2$", law, 1.0, d=d)
        bends = (x @ w.T + b).abs().amin(0)
        name = "pre-activation of a random unit at the data point of its kink"
        yield equals(name, bends, 0.0, n=n)
        hidden = torch.relu(x @ w.T + b)
        residual = (hidden @ v.T)[:, 0] + v0 - y
        yield equals("value of the network with random units", network(x)[:, 0], y + residual, n=n)
        if n < m:
            yield equals("value of the wide network at a data point", network(x)[:, 0], y, n=n)
        table = torch.cat([hidden, torch.ones(n, 1)], 1)
        best = torch.linalg.lstsq(table, y[:, None], driver="gelsd").solution
        least = ((table @ best)[:, 0] - y).square().mean()
        yield equals("mean squared error of the read-out", residual.square().mean(), least, n=n)
        both = torch.stack([y, x[:, 0]], 1)
        readout = fit_readout(nn.Sequential(network[0], network[1]), x, both, alpha=0.5)
        centred = hidden - hidden.mean(0)
        gram = centred.T @ centred + 0.5 * torch.eye(m)
        wanted = torch.linalg.solve(gram, centred.T @ both)
        yield equals("weights of the ridge read-out", readout.weight, wanted.T, n=n)
        mean = hidden.mean(0) @ wanted + readout.bias
        yield equals("mean output of the ridge read-out", mean, both.mean(0), n=n)


def farthest_parabola(x: Tensor, y: Tensor) -> float:
    """A distance that no parabola goes below at points in increasing order.

    A combination of four values that vanishes for parabolas, with weights of total size 1, is at
    most the largest error; the values are those at the ends and at the extremes.
    """
    chosen = [0, int(y.argmax()), int(y.argmin()), len(x) - 1]
    t, values = x[chosen].tolist(), y[chosen].tolist()
    weights = [1 / math.prod(a - b for b in t if b != a) for a in t]
    total = sum(w * v for w, v in zip(weights, values, strict=True))
    return abs(total) / sum(map(abs, weights))


@claim(
    by="sampling",
    sources=("A-054", "B-123", "E-098", "E-099"),
    budget=1.0,
    short=r"\phi \in C: \mathrm{span}\{\phi(w^\top x + b)\} \text{ dense"
    r" in each } C(K) \iff \phi \text{ is no polynomial}",
)
def universal_approximation(
    universal: tuple[Unit, ...] = ("tanh", "relu"),
    bounded: tuple[Unit, ...] = ("logistic", "tanh"),
    points: int = 101,
):
    r"""The universal approximation theorem.

    A class is a universal approximator if its restrictions are dense in $C(K)$ for every compact
    $K \subset \mathbb R^d$. Networks with one hidden layer, $\sum_i v_i \phi(w_i^\top x + b_i)$,
    with a locally bounded, almost everywhere continuous $\phi$ are universal if and only if $\phi$
    is not almost everywhere a polynomial (Leshno, Lin, Pinkus and Schocken, 1993). Hornik's version
    (1991) assumes $\phi$ bounded, continuous and not constant: that covers logistic and $\tanh$ but
    not ReLU, which the other version covers.

    Checked for $\sin 6 x$ on points of $[0, 1]$, quoted beyond. With ReLUs that bend at $N$ equally
    spaced points the best fit is no worse than the broken line through the sine there, which misses
    it by at most $\frac{36}{8 (N - 1)^2}$; $\tanh$ is held to the same (observed: far below).
    Squares give parabolas whatever the width, and stay away by a divided difference of four values.
    Random units are checked for their law (the weights are normal with variance $9 / \tau^2$,
    where $\tau^2$ is the mean squared distance of the data from their mean) and their kinks, and
    the read-out for being the least-squares fit, or with a penalty the ridge fit.

    Knobs:
        universal: The activations that are said to be universal.
        bounded: The activations that are said to be bounded by 1 and not constant.
        points: How many points of $[0, 1]$ a network is fitted to.
    """
    lowest("points", points, 20)
    x = torch.linspace(0, 1, points)[:, None]
    y = (6 * x[:, 0]).sin()

    def error(phi: str, units: int) -> float:
        hidden = UNITS[phi](8 * (x - torch.linspace(0, 1, units)))
        return best_uniform_fit(torch.cat([torch.ones_like(x), hidden], 1), y).error

    for phi in universal:
        for units in (6, 20, 50):
            limit = 36 / (8 * (units - 1) ** 2)
            yield at_most(r"error of the best fit to $\sin 6 x$", error(phi, units), limit,
                          units=units, phi=phi)  # fmt: skip
    least = farthest_parabola(x[:, 0], y)
    for units in (3, 20, 50):
        name = r"error of the best fit to $\sin 6 x$ by squares"
        yield at_least(name, error("square", units), least, units=units)
    far = torch.cat([10.0 ** torch.arange(7), -(10.0 ** torch.arange(7))])
    for phi in bounded:
        values = UNITS[phi](far)
        yield at_most(r"modulus of the activation at $\pm 10^k$, $k \le 6$", values.abs(), 1.0,
                      phi=phi)  # fmt: skip
        yield at_least(r"spread of the activation over $\pm 10^k$", values.max() - values.min(),
                       1.0, phi=phi)  # fmt: skip
    yield from drawn_features(200)


universal_approximation.foil("a polynomial is not universal", universal=("square",))
universal_approximation.erratum(
    "E-099",
    printed=r"lists Sigmoid and ReLU as examples of bounded, continuous, non-constant $\phi$",
    right=r"Sigmoid and $\tanh$; ReLU is covered by the theorem for $\phi$ that are no polynomials",
    why=r"$\max(t, 0) \to \infty$ as $t \to \infty$, so ReLU does not satisfy the stated"
    " hypothesis; the conclusion holds for it only by the non-polynomial version of the theorem.",
    weight="hard",
    bounded=("logistic", "relu"),
)


@claim(
    by="sampling",
    sources=("E-100",),
    budget=0.5,
    short=r"\sup_{x \in K} |f(x) - \textstyle\sum_i v_i \phi(w_i^\top x + b_i)| < \epsilon,"
    r"\ K \text{ compact}",
)
def uat_compact(reach: float = 1.0, units: int = 60, side: int = 21):
    r"""Universal approximation holds on compact sets only.

    For every compact $K \subset \mathbb R^d$, $f \in C(K)$ and $\epsilon > 0$ there are $N$ and
    $v_i, w_i, b_i$ with $|f(x) - \sum_{i \le N} v_i \phi(w_i^\top x + b_i)| < \epsilon$ for all
    $x \in K$, with $\phi$ as in the universal approximation theorem. Nothing is claimed outside
    $K$: with $|\phi| \le 1$ the network is bounded by $|v_0| + \sum_i |v_i|$ and has an infinite
    sup error against any unbounded $f$ on $\mathbb R^d$.

    Checked for $f(x) = x_1$ on a grid of $K = [-1, 1]^2$, random $\tanh$ units and
    $\epsilon = 0.01$; quoted beyond.

    Knobs:
        reach: The half side of the square on which the error is measured; it is fitted for 1.
        units: How many hidden units are drawn.
        side: How many points a side of the grid has, 2 at least.
    """
    lowest("units", units, 40)
    line = torch.linspace(-1, 1, max(side, 2))
    x = torch.cartesian_prod(line, line)
    network = random_feature_fit(x, x[:, 0], units, activation=nn.Tanh(), scale=1.0, alpha=1e-6)
    with torch.no_grad():
        error = (network(reach * x)[:, 0] - reach * x[:, 0]).abs().max()
        yield at_most(r"largest error on the square against $f(x) = x_1$", error, 0.01, reach=reach)
        _, _, v, v0 = network.parameters()
        bound = v.abs().sum() + v0.abs().sum()
        far = 2 * bound * torch.tensor([[-1.0, 0], [1, 0], [100, 3]])
        yield at_most("modulus of the network", network(torch.cat([x, far])).abs(), bound)
        off = (network(far)[:, 0] - far[:, 0]).abs()
        yield at_least(r"error far away against $f(x) = x_1$", off, far[:, 0].abs() / 2)


uat_compact.erratum(
    "E-100",
    printed=r"$|f(\mathbf x) - F(\mathbf x)| < \epsilon,\ \forall \mathbf x \in \mathbb R^d$",
    right=r"$|f(x) - F(x)| < \epsilon$ for all $x$ in a compact set $K$",
    why=r"As scanned: false on all of $\mathbb R^d$: with bounded $\phi$ every $F$ is bounded while"
    r" $f(x) = x_1$ is not, so $\sup |f - F| = \infty$. The quantifier must range over the compact"
    " set, which the sheet names in the sentence before and later calls $K$; on this badly scanned"
    r" page $\mathbb R^d$ may be the scan's.",
    weight="scan",
    reach=100.0,
)


@claim(
    by="identity",
    sources=("B-127",),
    budget=0.5,
    full={"units": 60, "points": 100},
    short=r"\deg \phi = d \Rightarrow \dim \mathrm{span}\{\phi(w^\top x + b)\}"
    r" \le \tbinom{n + d}{d}, \text{ not dense}",
)
def polynomial_activation(
    dimension: Callable[[int, int], int] = lambda n, d: math.comb(n + d, d),
    phi: Unit = "square",
    units: int = 20,
    points: int = 30,
):
    r"""Polynomial activations are not universal.

    If $\phi$ is a polynomial of degree $d$, every network with one hidden layer on $\mathbb R^n$,
    of any width, is a polynomial of degree at most $d$: an element of a space of dimension
    $\binom{n + d}{d}$ ($d + 1$ for $n = 1$), which is closed and hence not dense. So $z^2$ units
    stay at distance $\frac14$ from $x^3$ on $[-1, 1]$, the distance of all parabolas.

    Checked for $z^d$: in fractions the span of random integer units has the full dimension.

    Knobs:
        dimension: The dimension as a function of $n$ and $d$.
        phi: The activation of the units that are to stay away from $x^3$.
        units: How many integer units are drawn.
        points: At how many integer points they are evaluated.
    """
    lowest("units", units, 20)
    lowest("points", points, 20)
    name = "dimension of the span of integer units"
    for n, d in ((1, 2), (1, 3), (2, 2), (2, 3), (3, 2)):
        w, b = torch.randint(-5, 6, (units, n)), torch.randint(-5, 6, (units, 1))
        x = torch.randint(-9, 10, (n, points))
        yield equals(name, rational_rank(((w @ x + b) ** d).tolist()), dimension(n, d), n=n, d=d)
    x = torch.linspace(-1, 1, 201)  # with the points -1, -1/2, 1/2, 1, where parabolas miss most
    for width in (30, 10, 3):
        z = torch.randn(width) * x[:, None] + torch.randn(width)
        fit = best_uniform_fit(UNITS[phi](z), x**3)
        yield equals("distance of the best network from $x^3$", fit.error, 0.25,
                     width=width)  # fmt: skip
        yield at_least("distance that no network goes below", fit.lower, 0.25,
                       width=width)  # fmt: skip


polynomial_activation.foil(
    "dimension $d$ on the line", dimension=lambda n, d: math.comb(n + d, d) - 1
)
polynomial_activation.foil(
    r"the same of $\tanh$: there width helps",
    refuted_by="distance of the best network from $x^3$",
    phi="tanh",
)
