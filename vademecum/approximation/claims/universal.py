"""What the course claims of universal approximation: for which units, and on which sets."""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from vademecum.approximation.pwl import linear_with
from vademecum.approximation.random_features import fit_readout, random_feature_fit
from vademecum.approximation.uniform_fit import best_uniform_fit
from vademecum.claims import at_least, at_most, claim, equals, rational_rank


class Square(nn.Module):
    """The square, entry by entry: a polynomial activation."""

    def forward(self, z: Tensor) -> Tensor:
        """Square."""
        return z.square()


UNITS = {"logistic": nn.Sigmoid(), "tanh": nn.Tanh(), "relu": nn.ReLU(), "square": Square()}


def equispaced_fit(phi: str, units: int, x: Tensor, y: Tensor, *, slope: float) -> nn.Sequential:
    """The best network with units of one slope centred at equally spaced points of the data."""
    centres = torch.linspace(float(x.min()), float(x.max()), units)
    hidden = linear_with(torch.full((units, 1), slope), -slope * centres)
    features = nn.Sequential(hidden, UNITS[phi])
    return features.append(fit_readout(features, x, y))


@claim(by="witness", sources=("A-054", "B-123", "E-098", "E-099"), budget=0.5)
def universal_approximation(
    universal: tuple[str, ...] = ("tanh", "relu"),
    bounded: tuple[str, ...] = ("logistic", "tanh"),
    points: int = 501,
):
    r"""The universal approximation theorem.

    A class is a universal approximator if its restrictions are dense in $C(K)$ for every compact
    $K \subset \mathbb R^d$. Networks with one hidden layer, $\sum_i v_i \phi(w_i^\top x + b_i)$,
    with a locally bounded, almost everywhere continuous $\phi$ are universal if and only if $\phi$
    is not almost everywhere a polynomial (Leshno, Lin, Pinkus and Schocken, 1993). Hornik's version
    (1991) assumes $\phi$ bounded, continuous and not constant: that covers logistic and $\tanh$ but
    not ReLU, which the other version covers.

    Witnesses: fits of $\sin 6 x$ on $[0, 1]$ by equally spaced units, and by $u^2$, which is a
    parabola whatever the width.
    """
    x = torch.linspace(0, 1, points)[:, None]
    y = (6 * x[:, 0]).sin()

    def error(phi: str, units: int) -> Tensor:
        network = equispaced_fit(phi, units, x, y, slope=8.0)
        return (network(x)[:, 0] - y).abs().max()

    for phi in universal:
        for units, limit in ((20, 0.02), (100, 0.001)):
            yield at_most(error(phi, units), limit, units=units, phi=phi)
    for units in (3, 20, 100):
        yield at_least(error("square", units), 0.5, units=units)
    far = torch.cat([10.0 ** torch.arange(7), -(10.0 ** torch.arange(7))])
    for phi in bounded:
        yield at_most(UNITS[phi](far).abs(), 1.0, phi=phi)
        yield at_least(UNITS[phi](far).max() - UNITS[phi](far).min(), 0.5, phi=phi)


universal_approximation.foil("a polynomial is not universal", universal=("square",))
universal_approximation.erratum(
    "E-099",
    printed=r"lists Sigmoid and ReLU as examples of bounded, continuous, non-constant $\phi$",
    right=r"Sigmoid and $\tanh$; ReLU is covered by the theorem for $\phi$ that are no polynomials",
    why=r"$\max(t, 0)$ grows without bound",
    bounded=("logistic", "relu"),
)


@claim(by="witness", sources=("E-100",), budget=0.5)
def uat_compact(reach: float = 1.0, units: int = 30, points: int = 401):
    r"""Universal approximation holds on compact sets only.

    For every compact $K \subset \mathbb R^d$, $f \in C(K)$ and $\epsilon > 0$ there are $N$ and
    $v_i, w_i, b_i$ with $|f(x) - \sum_{i \le N} v_i \phi(w_i^\top x + b_i)| < \epsilon$ for all
    $x \in K$, with $\phi$ as in the universal approximation theorem. Nothing is claimed outside
    $K$: with $|\phi| \le 1$ the network is bounded by $\sum_i |v_i|$ and has an infinite sup error
    against any unbounded $f$ on $\mathbb R^d$.
    """
    x = torch.linspace(-1, 1, points)[:, None]
    network = equispaced_fit("tanh", units, x, x[:, 0] ** 2, slope=4.0)
    yield at_most((network(reach * x) - (reach * x) ** 2).abs(), 1e-2, reach=reach)
    _, _, v, v0 = network.parameters()
    bound = v.abs().sum() + v0.abs().sum()
    far = (2 * bound + 2).sqrt() * torch.tensor([[-1.0], [1.0], [100.0]])
    yield at_most(network(torch.cat([x, far])).abs(), bound)
    yield at_least((network(far) - far**2).abs(), far**2 / 2)


uat_compact.erratum(
    "E-100",
    printed=r"$|f(\mathbf x) - F(\mathbf x)| < \epsilon,\ \forall \mathbf x \in \mathbb R^d$",
    right=r"$|f(x) - F(x)| < \epsilon$ for all $x$ in a compact set $K$",
    why=r"with bounded $\phi$ every $F$ is bounded, and $x^2$ is not",
    reach=100.0,
)


@claim(by="identity", sources=("B-127",), budget=0.5, full={"units": 60, "points": 100})
def polynomial_activation(
    dimension: Callable[[int, int], int] = lambda n, d: math.comb(n + d, d),
    phi: str = "square",
    units: int = 20,
    points: int = 30,
):
    r"""Polynomial activations are not universal.

    If $\phi$ is a polynomial of degree $d$, every network with one hidden layer on $\mathbb R^n$,
    of any width, is a polynomial of degree at most $d$: an element of a space of dimension
    $\binom{n + d}{d}$ ($d + 1$ for $n = 1$), which is closed and hence not dense. So $z^2$ units
    stay at distance $\frac14$ from $x^3$ on $[-1, 1]$, the distance of all parabolas.
    """
    for n, d in ((1, 2), (1, 3), (2, 2)):
        w, b = torch.randint(-5, 6, (units, n)), torch.randint(-5, 6, (units, 1))
        x = torch.randint(-9, 10, (n, points))
        yield equals(rational_rank(((w @ x + b) ** d).tolist()), dimension(n, d), n=n, d=d)
    x = torch.linspace(-1, 1, 201)
    for width in (3, 10, 30):
        z = torch.randn(width) * x[:, None] + torch.randn(width)
        yield at_most(torch.linalg.matrix_rank(UNITS[phi](z)), dimension(1, 2), width=width)
        fit = best_uniform_fit(UNITS[phi](z), x**3)
        yield equals(fit.error, 0.25, tol=1e-6, width=width)
        yield at_least(fit.lower, 0.25 - 1e-6, width=width)


polynomial_activation.foil(
    "dimension $d$ on the line", dimension=lambda n, d: math.comb(n + d, d) - 1
)
polynomial_activation.foil(r"the same of $\tanh$: there width helps", phi="tanh")


@claim(by="identity", sources=("A-055", "B-126"), budget=0.5)
def smooth_activation(b: float = 0.6, order: int = 2, points: int = 201):
    r"""Smooth activations that are no polynomials generate the monomials.

    If $\sigma \in C^\infty(\mathbb R)$ is not a polynomial, the span of
    $x \mapsto \sigma(a x + b)$, $a, b \in \mathbb R$, is dense in $C(\mathbb R)$ uniformly on
    compacts. There is $b$ with $\sigma^{(k)}(b) \ne 0$, and the $k$-th difference quotient in $a$
    at $a = 0$ of $\sigma(a x + b)$, a combination of $k + 1$ units, converges to
    $\sigma^{(k)}(b)\, x^k$; Weierstrass does the rest.

    Checked for $\tanh$ with central differences, whose error is $O(h^2)$ and so falls by a factor
    of four, up to $O(h^2)$, when $h$ is halved.
    """
    t = math.tanh(b)
    s = 1 - t * t
    derivatives = {1: s, 2: -2 * t * s, 3: s * (6 * t * t - 2), 4: s * (16 * t - 24 * t**3)}
    x = torch.linspace(-1, 1, points)[:, None]
    for k, derivative in derivatives.items():
        errors = []
        for h in (0.2, 0.1, 0.05):
            j = torch.arange(k + 1.0)
            signs = torch.tensor([(-1.0) ** i * math.comb(k, i) for i in range(k + 1)])
            units = linear_with((k / 2 - j)[:, None] * h, torch.full((k + 1,), b))
            mix = linear_with((signs / (h**k * (derivative or 1.0)))[None])
            network = nn.Sequential(units, nn.Tanh(), mix)
            errors.append((network(x) - x**k).abs().max().item())
        yield at_most(errors[-1], 0.011, k=k)
        for coarse, fine in pairwise(errors):
            yield equals(coarse / fine, 2.0**order, tol=0.3 / (1 + 2**order), k=k)


smooth_activation.foil(r"without $\sigma^{(k)}(b) \ne 0$: $\tanh''(0) = 0$", b=0.0)
smooth_activation.foil("an error that falls with the first power of $h$", order=1)


@claim(by="witness", sources=("A-056", "B-130", "E-125"), budget=0.5)
def dimension_lifting(bias: bool = True, scales: bool = True, units: int = 200):
    r"""Dimension lifting.

    If the span of $x \mapsto \phi(a x + b)$, $a, b \in \mathbb R$, is a universal approximator on
    $\mathbb R$, then that of $x \mapsto \phi(w^\top x + b)$, $w \in \mathbb R^n$,
    $b \in \mathbb R$, is one on $\mathbb R^n$ for every $n \ge 1$. Both the scale $a$ (the length
    of $w$) and the bias $b$ are needed: without bias combinations of $\tanh$ are odd (with an
    output bias, odd up to a constant), and stay away from $\|x\|^2$; without scale
    $\sin(x + b) = \cos b \sin x + \sin b \cos x$ spans two dimensions.

    Witnesses: one fixed draw of $\tanh$ units for $\|x\|^2$ on a square, and 50 waves.
    """
    side = torch.linspace(-1, 1, 21)
    x = torch.cartesian_prod(side, side)
    y = x.square().sum(1)
    draw = torch.Generator().manual_seed(0)
    network = random_feature_fit(x, y, units, activation=nn.Tanh(), scale=1.0, generator=draw)
    if not bias:
        hidden = nn.Sequential(linear_with(network.get_parameter("0.weight")), nn.Tanh())
        network = hidden.append(fit_readout(hidden, x, y))
        odd = network(x) - network[-1].bias
        yield equals(odd, -odd.flip(0))
    yield at_most((network(x)[:, 0] - y).abs(), 1e-4, units=units)
    a, b = torch.linspace(0.1, 5, 50) if scales else torch.ones(50), torch.linspace(-3, 3, 50)
    waves = (a * torch.linspace(-3, 3, 201)[:, None] + b).sin()
    yield at_least(torch.linalg.matrix_rank(waves), 10)


dimension_lifting.erratum(
    "B-130",
    printed=r"$H_\sigma^1$ univ. approx. for $C(\mathbb R)$ implies $H_\sigma^n$ univ. approx. for"
    r" $C(\mathbb R^n)$, with $\mathcal G_\sigma^n = \{g : g(x) = \sigma(x \cdot \theta),\ \theta"
    r" \in \mathbb R^n\}$",
    right=r"$\mathcal G_\sigma^n = \{g : g(x) = \sigma(x \cdot \theta + b)\}$",
    why=r"without a bias all combinations of $\tanh(x \cdot \theta)$ are odd, $\|x\|^2$ is even",
    bias=False,
)
dimension_lifting.erratum(
    "E-125",
    printed=r"span$(\phi(x + b) : b \in \mathbb R)$ universally approximates $C(\mathbb R)$, given"
    " as the lifted conclusion",
    right=r"span$(\phi(w^\top x + b))$ universally approximates $C(\mathbb R^d)$",
    why=r"it repeats the hypothesis and drops the scale: $\sin(x + b)$ spans two dimensions",
    scales=False,
)
