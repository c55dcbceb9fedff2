"""Barron's theorem: a rate of approximation that no dimension slows down."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.approximation import barron_constant as constant_of
from vademecum.approximation import barron_fit, radial_barron_constant
from vademecum.claims import at_most, claim, equals, lowest
from vademecum.foundations import Ball


@claim(
    by="identity",
    sources=("B-131", "C-063"),
    budget=0.5,
    short=r"f(x) = \int e^{i \omega \cdot x} \hat f(\omega)\, d\omega: \quad"
    r" C_f = \int \|\omega\|\, |\hat f(\omega)|\, d\omega",
)
def barron_constant(moment: int = 1, power: int = 0):
    r"""Barron's constant.

    For $f(x) = \int e^{i \omega \cdot x} \hat f(\omega)\, d\omega$ the Barron constant is the first
    absolute moment $C_f = \int \|\omega\|\, |\hat f(\omega)|\, d\omega$; Barron's class requires
    $C_f < \infty$. In this normalisation the Gaussian $e^{-\|x\|^2 / 2}$ on $\mathbb R^n$ has
    $C_f = \sqrt 2\, \Gamma(\frac{n + 1}{2}) / \Gamma(\frac n2)$, the mean norm of a standard normal
    vector, and $e^{-s^2 \|x\|^2 / 2}$ has $s$ times that; $\cos(\omega \cdot x + \varphi)$ has
    $C_f = \|\omega\|$ in every dimension.

    Checked for $n = 1, 2, 3, 5$. In one dimension the transform is also integrated by the midpoint
    rule with step $h$; $|\omega|$ has a kink at 0, the edge of a cell, which costs
    $\frac{h^2}{12 \sqrt{2 \pi}}$.

    Knobs:
        moment: The power of $\|\omega\|$ under the integral.
        power: How many factors $(2 \pi)^n$ the transform has too many.
    """

    def transform(r: Tensor, n: int, s: float = 1.0) -> Tensor:
        return (-((r / s) ** 2) / 2).exp() / s**n * (2 * math.pi) ** (n * power - n / 2)

    for n, s in ((1, 1.0), (2, 0.5), (3, 2.0), (5, 1.0)):
        found = radial_barron_constant(
            lambda r, n=n, s=s: transform(r, n, s) * r ** (moment - 1), n
        )
        closed = s * math.sqrt(2) * math.gamma((n + 1) / 2) / math.gamma(n / 2)
        yield equals("Barron constant of a Gaussian", found, closed, n=n, s=s)
        omega, phase = torch.randn(n), torch.randn(2)
        waves = torch.polar(torch.full((2,), 0.5), phase) * omega.norm() ** (moment - 1)
        found = constant_of(waves, torch.stack([omega, -omega]))
        yield equals("Barron constant of a wave", found, omega.norm(), n=n)
    h = 1e-3  # up to 10, where the density is 1e-22
    omega = (torch.arange(20_000) + 0.5) * h - 10
    a = transform(omega, 1) * h
    x = torch.linspace(-2, 2, 9)
    inverse = (omega * x[:, None]).cos() @ a
    yield equals("inverse transform of the Gaussian's", inverse, (-x * x / 2).exp())
    found = constant_of(a * omega.abs() ** (moment - 1), omega[:, None])
    yield equals("Barron constant of a Gaussian, as a sum", found, math.sqrt(2 / math.pi),
                 tol=h * h / 24)  # fmt: skip


barron_constant.foil("the second moment, $n$ for the Gaussian", moment=2)
barron_constant.foil(r"the transform without its factor $(2 \pi)^{-n}$", power=1)


def barron_sum(theta: Tensor, b: Tensor, beta: Tensor, b0: float, x: Tensor) -> Tensor:
    """The network by a loop over units."""
    return sum(
        (beta[j] / (1 + (-(x @ theta[j] + b[j])).exp()) for j in range(len(b))),
        torch.full((len(x),), b0),
    )


def printed_sum(theta: Tensor, b: Tensor, beta: Tensor, b0: float, x: Tensor) -> Tensor:
    """The network as printed, without the input and with the output bias in the sum."""
    terms = (beta[j] / (1 + (-(theta[j].sum() + b[j])).exp()) + b0 for j in range(len(b)))
    return sum(terms, torch.zeros(len(x)))


SIGMOIDS = {
    "logistic": torch.sigmoid,
    "step": lambda t: (t > 0).to(t),
    "(1 + tanh) / 2": lambda t: (1 + t.tanh()) / 2,
    "tanh": torch.tanh,
    "relu": torch.relu,
}


@claim(
    by="identity",
    sources=("B-133", "B-134"),
    budget=0.5,
    short=r"f_m(x) = b_0 + \textstyle\sum_{j = 1}^m \beta_j\, \sigma(\theta_j \cdot x + b_j)",
)
def barron_network(
    formula: Callable[..., Tensor] = barron_sum,
    sigmoidal: tuple[str, ...] = ("logistic", "step", "(1 + tanh) / 2"),
):
    r"""The sigmoidal approximant with one hidden layer.

    Barron's approximant is
    $f_m(x) = b_0 + \sum_{j = 1}^m \beta_j\, \sigma(\theta_j \cdot x + b_j)$ with a sigmoidal
    $\sigma$: bounded (and measurable; usually monotone) with $\sigma(t) \to 1$ for $t \to \infty$
    and $\sigma(t) \to 0$ for $t \to -\infty$. Logistic and step qualify, $\tanh$ only as
    $\frac12 (1 + \tanh)$, ReLU does not.

    The network that `barron_fit` finds, with four logistic units, is compared with a loop over its
    units, in dimensions 1 and 3.

    Knobs:
        formula: The network as a function of $\theta$, $b$, $\beta$, $b_0$ and the inputs.
        sigmoidal: The functions that are said to be sigmoidal.
    """
    yield from _steps()
    for d in (1, 3):
        x = torch.randn(40, d)
        network = barron_fit(x, x.sum(1).sin(), 4, steepness=3.0).network
        theta, b, beta, bias = (p.detach() for p in network.parameters())
        parts, b0 = (theta, b, beta[0]), bias.item()
        values, wanted = formula(*parts, b0, x), network(x)[:, 0].detach()
        spread, known = (v.max() - v.min() for v in (values, wanted))
        yield equals("value of the network", wanted, values, d=d)
        yield equals("spread of the values over the inputs", known, spread, d=d)
        with torch.no_grad():
            bias += 1
            rise = network(x)[:, 0] - wanted
        stated = formula(*parts, b0 + 1, x) - values
        yield equals("change of the values when $b_0$ grows by 1", rise, stated, d=d)
        yield equals("change of the values when $b_0$ grows by 1", rise, 1.0, d=d)
    t = torch.linspace(-1000, 1000, 4001)
    for name in sigmoidal:
        values = SIGMOIDS[name](t)
        for end, limit in ((0, 0.0), (-1, 1.0)):
            yield equals("value at an end of the line", values[end], limit, tol=1e-12,
                         t=float(t[end]), sigma=name)  # fmt: skip
        yield at_most("modulus of the function", values.abs(), 1.0, sigma=name)


def _steps():
    """Networks of steps, and the same with steep units, which stand at the same places."""
    x = torch.randn(40, 1)
    y = (2 * x[:, 0]).sin()
    fit = barron_fit(x, y, 3)
    theta, b, beta, bias = (p.detach() for p in fit.network.parameters())
    steps = (x[:, 0] * theta + b[:, None] > 0).double()
    yield equals("value of a network of steps", fit.network(x)[:, 0], beta[0] @ steps + bias)
    yield equals("steepness of a step", theta.abs(), 1.0)
    (steep, place, *_), (sharp, where, *_) = (
        [p.detach() for p in barron_fit(x, y, 1, steepness=k).network.parameters()]
        for k in (5.0, torch.inf)
    )
    yield equals("steepness of a unit", steep.abs(), 5.0)
    yield equals("where a unit stands, against a step", place / steep[0], where / sharp[0])


barron_network.foil(r"$\tanh$ tends to $-1$", sigmoidal=("tanh",))
barron_network.foil(
    "ReLU is not bounded", refuted_by="modulus of the function", sigmoidal=("relu",)
)
barron_network.erratum(
    "B-133",
    printed=r"$f_m(x) = \sum_{j=1}^m (\beta_j \sigma(\theta_j + b_j) + b_0)$",
    right=r"$f_m(x) = b_0 + \sum_{j=1}^m \beta_j \sigma(\theta_j \cdot x + b_j)$",
    why=r"As scanned: the argument of $\sigma$ has lost the input, perhaps in the scan, so that"
    " $f_m$ is constant in $x$ and can approximate only constants; the output bias sits inside the"
    " sum and is added $m$ times.",
    weight="scan",
    refuted_by="spread of the values over the inputs",
    formula=printed_sum,
)


def best_single_step(t: Tensor, y: Tensor) -> Tensor:
    """The least mean squared error of one step of t, over all thresholds, by a loop."""
    y = y[t.argsort()]
    splits = (y[:k].var(correction=0) * k + y[k:].var(correction=0) * (len(y) - k)
              for k in range(1, len(y)))  # fmt: skip
    return torch.stack(list(splits)).min() / len(y)


def variation(t: Tensor, y: Tensor) -> Tensor:
    """The total variation of y over t, each jump weighed by the deviation of a step there."""
    n, below = len(y), torch.arange(1.0, len(y))
    return (y[t.argsort()].diff().abs() * (below * (n - below)).sqrt()).sum() / n


@claim(
    by="sampling",
    sources=("B-135", "B-136", "C-064"),
    budget=1.0,
    full={"points": 2000},
    short=r"\exists f_m : \int (f - f_m)^2\, d\mu \le (2 r C_f)^2 / m \text{ on } \|x\| \le r",
)
def barron_theorem(
    constant: float = 1.0,
    radius: float = 1.0,
    known: bool = True,
    points: int = 500,
    units: int = 32,
):
    r"""Barron's theorem.

    If $C_f < \infty$ and $r > 0$, then for every $m \ge 1$ and every probability measure $\mu$ on
    the ball $\{\|x\| \le r\}$ some sigmoidal network with $m$ hidden units satisfies
    $\int (f - f_m)^2 d\mu \le (2 r C_f)^2 / m$. The rate $1 / m$ does not depend on the dimension,
    which can enter only through $C_f$; that may itself grow exponentially with it. (Barron, 1993.)

    *Proof for $f(x) = \sum_k a_k \cos(\omega_k \cdot x + \varphi_k)$, with a better constant.* Let
    $\mu$ be the points drawn. Along $\omega_k$ a wave is a constant plus a step for each jump
    $\delta_{k i}$ from one point to the next, so $f$ is a constant plus a combination of centred
    steps, each divided by its deviation $s_{k i} \le \frac12$, with weights that sum to
    $A = \sum_{k i} |a_k \delta_{k i}|\, s_{k i} \le r C_f$. With the residual $\rho$ of a
    least-squares fit, $\|\rho\|^2 = \langle \rho, f \rangle \le A \max_{k i} |\langle \rho,
    \sigma_{k i} \rangle| / s_{k i}$: the best step takes at least $\|\rho\|^4 / A^2$ off
    $\|\rho\|^2$, which therefore is at most $A^2 / (m + 1)$ after $m$ greedy steps.

    Checked for two waves with $\|\omega\| = 10$ in the unit ball of dimension 10, 40 and 100, when
    the search knows their directions, so that it cannot fail by chance. $A = r C_f$ is approached:
    a slow wave at $\pm r$, $\sin \omega x$, has $A = \sin \omega r$ and $C_f = \omega$.

    Knobs:
        constant: The power of $C_f$ in the root of the bound.
        radius: The power of $r$ in the bound of $A$.
        known: Whether the search for steps knows the directions of the waves.
        points: How many points are drawn from the ball.
        units: How many units are taken at most.
    """
    lowest("points", points, 2 * units)
    r, omega = 0.1, 200.0
    x = r * torch.linspace(-1, 1, points)[:, None]
    y = (omega * x[:, 0]).cos()
    error = barron_fit(x, y, 1).errors[0]
    yield equals("mean squared error of the best step", error, best_single_step(x[:, 0], y))
    limit = (2 * r * omega**constant) ** 2
    yield at_most("mean squared error of the best step", error, limit, r=r, omega=omega)
    for r in (0.1, 0.3):
        ends, slow = torch.tensor([-r, r]), torch.tensor([[2.0]])
        size = variation(ends, (2 * ends).sin()) / constant_of(torch.ones(1), slow)
        yield equals("size $A$ of a slow wave over $r C_f$", size / r**radius,
                     math.sin(2 * r) / (2 * r), r=r)  # fmt: skip
    a = torch.tensor([0.8, 0.2])
    for d in (10, 40, 100):
        x = Ball(torch.zeros(d), 1.0).sample(points)
        w = 10 * torch.nn.functional.normalize(torch.randn(2, d), dim=1)
        waves = (x @ w.T + 6 * torch.rand(2)).cos()
        size = sum(c * variation(x @ v, y) for c, v, y in zip(a, w, waves.T, strict=True))
        yield at_most("size $A$ of two waves", size, constant_of(a, w), d=d)
        directions = w if known else None
        fit = barron_fit(x, waves @ a, units, directions=directions, candidates=1, refinements=0)
        for m, error in enumerate(fit.errors.tolist(), 1):
            limit = size**2 / (m + 1)
            yield at_most("mean squared error of greedy steps", error, limit, m=m, d=d)
        yield equals("number of greedy steps", len(fit.errors), units, d=d)
        error = (fit.network(x)[:, 0] - waves @ a).square().mean()
        yield equals("mean squared error of the network", error, fit.errors[-1], d=d)


barron_theorem.foil("the bound without $C_f$", constant=0.0)
barron_theorem.foil("the bound without $r$", radius=0.0)
barron_theorem.foil(
    "steps in directions drawn blindly suffer from the dimension",
    refuted_by="mean squared error of greedy steps",
    known=False,
)
