"""Density: uniform convergence, closures, and Weierstrass' theorem."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from vademecum.approximation import bernstein_polynomial, best_uniform_fit
from vademecum.claims import at_least, at_most, claim, equals, lowest


def largest_later(errors: Tensor) -> Tensor:
    """The largest error from the middle of a finite horizon on."""
    return errors[len(errors) // 2 :].max()


def smallest(errors: Tensor) -> Tensor:
    """The smallest error of all."""
    return errors.min()


@claim(
    by="identity",
    sources=("B-119", "E-107", "E-108"),
    budget=0.5,
    full={"horizon": 4000},
    short=r"g_m \to f \iff \forall \epsilon > 0 \ \exists M \ \forall m \ge M :"
    r" \|g_m - f\|_\infty < \epsilon",
)
def uniform_convergence(
    tail: Callable[[Tensor], Tensor] = largest_later,
    norm: Literal["sup", "at 0.9"] = "sup",
    horizon: int = 1000,
):
    r"""Uniform convergence.

    $g_m \to f$ uniformly on $K$ if and only if for every $\epsilon > 0$ there is $M$ with
    $\|g_m - f\|_\infty = \sup_K |g_m - f| < \epsilon$ for all $m \ge M$. It implies pointwise
    convergence but not conversely: $x^m \to 0$ at every point of $[0, 1)$ while the supremum is 1
    for every $m$.

    Three sequences: $f + \frac1m$ converges; $f, f + 1, f, \dots$ does not; nor does $x^m$, whose
    values at $1 - 2^{-j}$ are at least $1 - m 2^{-j}$ (Bernoulli). The supremum is taken over 0.9
    and $1 - 2^{-j}$, $j \le 40$, and "there is $M$" is read as the middle of the horizon.

    Knobs:
        tail: What must be small, as a function of the errors of all terms.
        norm: The error of a term: the supremum, or the value at the point 0.9 alone.
        horizon: How many terms are looked at.
    """
    lowest("horizon", horizon, 3)
    x = torch.cat([torch.tensor([0.9]), 1 - 2.0 ** -torch.arange(41)])
    x = x if norm == "sup" else x[:1]
    m = torch.arange(1, horizon + 1)[:, None]
    f = (3 * x + 6 * torch.rand(())).sin()
    converging, alternating = f + 1 / m, f + m % 2
    errors = [(g - f).abs().amax(1) for g in (converging, alternating)]
    name = "error that the definition looks at, for "
    yield at_most(name + r"$f + \frac1m$", tail(errors[0]), 2 / horizon)
    yield at_least(name + r"$f, f + 1, f, \dots$", tail(errors[1]), 1.0)
    powers = (x**m).abs().amax(1)
    yield at_least(name + "$x^m$", tail(powers), 1 - horizon * 2.0**-40)
    fixed = torch.linspace(0, 1, 1001)[:-1]
    yield at_most(r"$x^m$ at a fixed point of $[0, 1)$", fixed**100_000, 1e-12, m=100_000)


uniform_convergence.foil(
    "convergence at the point 0.9 alone",
    refuted_by="error that the definition looks at, for $x^m$",
    norm="at 0.9",
)
uniform_convergence.erratum(
    "B-119",
    printed=r"$(g_m) \xrightarrow{\infty} f \iff \forall \epsilon > 0 : \exists m \ge 1 :"
    r" \|g_m - f\|_\infty < \epsilon$",
    right=r"$\forall \epsilon > 0 : \exists M : \forall m \ge M : \|g_m - f\|_\infty < \epsilon$",
    why="The quantifier over all later $m$ is missing, so the line only says that $f$ lies in the"
    r" closure of $\{g_m\}$. $g_m = f$ for even $m$ and $f + 1$ for odd $m$ satisfies it and does"
    " not converge.",
    weight="hard",
    refuted_by=r"error that the definition looks at, for $f, f + 1, f, \dots$",
    tail=smallest,
)


def infimum(errors: list[float]) -> float:
    """The least of the distances to growing classes."""
    return min(errors)


def infimum_of_members(errors: list[float]) -> float:
    """The least of the distances that are zero up to rounding; of none of them it is infinite."""
    return min((e for e in errors if e < 1e-12), default=math.inf)


def chebyshev(x: Tensor, count: int) -> Tensor:
    """Chebyshev's polynomials on [-1, 1], a column each."""
    return torch.cos(torch.acos(x)[:, None] * torch.arange(count))


@claim(
    by="identity",
    sources=("B-118", "B-120", "B-121", "B-122"),
    budget=1.0,
    short=r"f \in \overline{\mathcal G} \iff \inf_{g \in \mathcal G} \|f - g\|_\infty = 0",
)
def closure_density(
    error_of: Callable[[list[float]], float] = infimum,
    parity: Literal["even", "any"] = "even",
    points: int = 201,
):
    r"""Approximable functions, closure and density of a class.

    For a class $\mathcal G$ the approximation error is
    $\mathrm{err}(f, \mathcal G) = \inf_{g \in \mathcal G} \|f - g\|_\infty$; $f$ is approximable if
    this infimum is 0, equivalently if $f$ is a uniform limit of members of $\mathcal G$. The
    closure of $\mathcal G$ is the set of approximable functions, and $\mathcal G$ is dense in
    $\mathcal F$ if its closure contains $\mathcal F$. The infimum need not be attained.

    Polynomials approximate $e^x$ on $[0, 1]$, though none equals it: the distance of those of
    degree $k$ is $\frac{2^{-2 k - 1}}{(k + 1)!} e^\xi$ for some $\xi \in [0, 1]$ (Bernstein), also
    on points among which are the extremes of the Chebyshev polynomial $T_{k + 1}$. Even polynomials
    approximate $|x|$ on $[-1, 1]$: the Chebyshev series stopped at degree $2 k$ is
    $\frac{2}{\pi (2 k + 1)}$ off. They stay at distance 1 from $x$.

    Knobs:
        error_of: The approximation error, as a function of the distances of degrees 0, 1, ...
        parity: Which polynomials are to stay away from $x$.
        points: How many equally spaced points of an interval are fitted, beside the extremes.
    """
    extremes = [(math.pi * torch.arange(k + 2) / (k + 1)).cos() for k in range(6)]
    x = torch.cat([torch.linspace(-1, 1, points), *extremes]).sort().values
    basis, errors = chebyshev(x, 9), []
    for k in range(6):
        fit = best_uniform_fit(basis[:, : k + 1], ((1 + x) / 2).exp())
        yield equals("certified distance of $e^x$", fit.lower, fit.error, k=k)
        size = 2.0 ** (-2 * k - 1) / math.factorial(k + 1)
        yield at_least("distance of $e^x$ from polynomials, relative", fit.lower / size, 1.0, k=k)
        yield at_most("distance of $e^x$ from polynomials, relative", fit.error / size, math.e, k=k)
        errors.append(fit.error)
    yield at_most("approximation error of $e^x$", error_of(errors), math.e * 2.0**-11 / 720)
    some = basis[:, ::2] if parity == "even" else basis
    for k, known in enumerate((0.5, 0.125, None, None, None)):
        bend, odd = (best_uniform_fit(some[:, : k + 1], y).error for y in (x.abs(), x))
        limit = 2 / (math.pi * (2 * k + 1))
        yield at_most("distance of $|x|$ from even polynomials", bend, limit, k=k)
        if known is not None:
            yield equals("distance of $|x|$ from even polynomials", bend, known, k=k)
        yield equals("distance of $x$ from even polynomials", odd, 1.0, k=k)


closure_density.foil(
    "among all polynomials $x$ is at distance 0 from $x$",
    refuted_by="distance of $x$ from even polynomials",
    parity="any",
)
closure_density.erratum(
    "B-118",
    printed=r"$f \approx g \iff \text{approx-err}(f, g) ="
    r" \inf\{g \in \mathcal G \mid \|f - g\|_\infty = 0\}$",
    right=r"$\mathrm{err}(f, \mathcal G) = \inf_{g \in \mathcal G} \|f - g\|_\infty$",
    why="As scanned: the infimum runs over functions, not numbers, and only over those equal to"
    r" $f$, so it would require $f \in \mathcal G$; the scan also reads $g$ for $\mathcal G$ and"
    r" may have turned $\inf_{g \in \mathcal G} \|f - g\|_\infty = 0$ into a set. Polynomials"
    " approximate $e^x$ on $[0, 1]$ arbitrarily well although none has distance 0.",
    weight="scan",
    refuted_by="approximation error of $e^x$",
    error_of=infimum_of_members,
)


def polygon(knots: int) -> tuple[Callable[[Tensor], Tensor], float]:
    """A random piecewise-linear function on [0, 1] and its Lipschitz constant."""
    t = torch.linspace(0, 1, knots)
    y = torch.randn(knots)

    def f(x: Tensor) -> Tensor:
        i = (x * (knots - 1)).long().clamp(max=knots - 2)
        return torch.lerp(y[i], y[i + 1], x * (knots - 1) - i)

    return f, float((y.diff() / t.diff()).abs().max())


@claim(
    by="identity",
    sources=("A-016", "B-125", "E-109", "E-127"),
    budget=0.5,
    full={"points": 2001},
    short=r"|\textstyle\sum_k f(k / n) \binom nk x^k (1 - x)^{n - k} - f(x)|"
    r" \le \mathrm{Lip}(f) / (2 \sqrt n)",
)
def weierstrass(rate: float = 0.5, variance: int = 1, points: int = 201):
    r"""Weierstrass' approximation theorem.

    Polynomials are dense in $C([a, b])$ under the sup norm for all real $a < b$, so a class that
    approximates every polynomial approximates every continuous function. Constructively, the
    Bernstein polynomials $B_n f(x) = \sum_k f(k / n) \binom nk x^k (1 - x)^{n - k}$ converge
    uniformly on $[0, 1]$, with $\|B_n f - f\|_\infty \le \frac{\mathrm{Lip}(f)}{2 \sqrt n}$ for
    Lipschitz $f$ and $B_n(x^2) = x^2 + \frac{x (1 - x)}{n}$.

    *Proof of the rate.* $B_n f(x) = E f(K / n)$ with $K \sim \mathrm{Bin}(n, x)$, and
    $E |K / n - x| \le \sqrt{x (1 - x) / n} \le \frac{1}{2 \sqrt n}$. (Bernstein, 1912.) For
    $|x - \frac12|$ the error at $\frac12$ is $E |K / n - \frac12| = \binom{n}{n / 2} / 2^{n + 1}$.

    Knobs:
        rate: The power of $\frac1n$ in the bound.
        variance: The multiple of $\frac{x (1 - x)}{n}$ by which $B_n(x^2)$ exceeds $x^2$.
        points: At how many points the polynomials are compared.
    """
    x = torch.linspace(0, 1, points)
    cases = {"polygon with 9 points": polygon(9), "polygon with 4 points": polygon(4),
             r"$|x - \frac12|$": (lambda t: (t - 0.5).abs(), 1.0)}  # fmt: skip
    for n in (4, 16, 64, 256):
        knots = torch.linspace(0, 1, n + 1)
        for name, (f, lip) in cases.items():
            error = (bernstein_polynomial(f(knots), x) - f(x)).abs().max()
            limit = lip / 2 * float(n) ** -rate
            yield at_most("largest error of the Bernstein polynomial", error, limit, n=n, f=name)
        bend = bernstein_polynomial((knots - 0.5).abs(), torch.tensor([0.5]))
        yield equals(r"Bernstein polynomial of $|x - \frac12|$ at $\frac12$", bend,
                     math.comb(n, n // 2) / 2 ** (n + 1), n=n)  # fmt: skip
        square = bernstein_polynomial(knots**2, 4 * x - 1, low=-1.0, high=3.0)
        exact = x**2 + variance * x * (1 - x) / n
        yield equals("Bernstein polynomial of $x^2$, moved to $[-1, 3]$", square, exact, n=n)


weierstrass.foil(r"the rate $\mathrm{Lip}(f) / (2 n)$", rate=1.0)
weierstrass.foil("twice the variance", variance=2)
