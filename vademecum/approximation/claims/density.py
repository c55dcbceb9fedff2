"""What the course claims of uniform convergence, closure, density and Weierstrass' theorem."""

import math
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from vademecum.approximation.bernstein import bernstein_polynomial
from vademecum.approximation.uniform_fit import best_uniform_fit
from vademecum.claims import at_least, at_most, claim, equals


def all_later(errors: list[Fraction], epsilon: Fraction) -> bool:
    """Whether from the middle of a finite horizon on all errors are below epsilon."""
    return all(e < epsilon for e in errors[len(errors) // 2 :])


def some(errors: list[Fraction], epsilon: Fraction) -> bool:
    """Whether some error is below epsilon."""
    return any(e < epsilon for e in errors)


@claim(by="witness", sources=("B-119", "E-107", "E-108"), budget=0.5, full={"horizon": 4000})
def uniform_convergence(
    tail: Callable[[list[Fraction], Fraction], bool] = all_later, norm: str = "sup",
    horizon: int = 1000,
):  # fmt: skip
    r"""Uniform convergence.

    $g_m \to f$ uniformly on $K$ if and only if for every $\epsilon > 0$ there is $M$ with
    $\|g_m - f\|_\infty = \sup_K |g_m - f| < \epsilon$ for all $m \ge M$. It implies pointwise
    convergence but not conversely: $x^m \to 0$ at every point of $[0, 1)$ while the supremum is 1
    for every $m$.

    The sup errors of the witnesses are known exactly: $1 / m$ for $f + 1/m$, 0 and 1 in turn for
    $f, f + 1, f, \dots$, and 1 for $x^m$. "There is $M$" is read as $M = 500$ of 1000 terms.
    """
    epsilons = [Fraction(1, k) for k in (2, 10, 100, 400)]
    at = Fraction(9, 10)
    power = {"sup": Fraction(1), "at 0.9": at}[norm]
    sequences = {
        "f + 1/m": ([Fraction(1, m) for m in range(1, horizon + 1)], 1),
        "f, f + 1, f, ...": ([Fraction(m % 2) for m in range(horizon)], 0),
        "x^m": ([power**m for m in range(horizon)], 0),
    }
    for name, (errors, converges) in sequences.items():
        yield equals(int(all(tail(errors, e) for e in epsilons)), converges, sequence=name)
    x = torch.linspace(0, 1, 1001)[:-1]
    yield at_most(x**100_000, 1e-12)  # at each of these points, and yet:
    m = torch.tensor([1.0, 10, 1000])
    yield at_least((1 - 1e-12) ** m, 1 - 2e-12 * m)


uniform_convergence.foil("convergence at the point 0.9 alone", norm="at 0.9")
uniform_convergence.erratum(
    "B-119",
    printed=r"$(g_m) \xrightarrow{\infty} f \iff \forall \epsilon > 0 : \exists m \ge 1 :"
    r" \|g_m - f\|_\infty < \epsilon$",
    right=r"$\forall \epsilon > 0 : \exists M : \forall m \ge M : \|g_m - f\|_\infty < \epsilon$",
    why=r"$f, f + 1, f, \dots$ satisfies the printed line and does not converge: it only says that"
    r" $f$ lies in the closure of $\{g_m\}$",
    tail=some,
)


def infimum_vanishes(errors: list[float]) -> bool:
    """Whether the distances to growing classes fall to less than a ten-thousandth of the first."""
    return errors[-1] < 1e-4 * errors[0]


def is_member(errors: list[float]) -> bool:
    """Whether some distance is zero, up to rounding."""
    return any(e < 1e-12 for e in errors)


@claim(by="identity", sources=("B-118", "B-120", "B-121", "B-122"), budget=1.0)
def closure_density(
    approximable: Callable[[list[float]], bool] = infimum_vanishes,
    parity: str = "even",
    points: int = 201,
):
    r"""Approximable functions, closure and density of a class.

    For a class $\mathcal G$ the approximation error is
    $\mathrm{err}(f, \mathcal G) = \inf_{g \in \mathcal G} \|f - g\|_\infty$; $f$ is approximable if
    this infimum is 0, equivalently if $f$ is a uniform limit of members of $\mathcal G$. The
    closure of $\mathcal G$ is the set of approximable functions, and $\mathcal G$ is dense in
    $\mathcal F$ if its closure contains $\mathcal F$. The infimum need not be attained.

    Best fits on a grid of $[-1, 1]$: polynomials approximate $e^x$, though none equals it; even
    polynomials approximate $|x|$, and stay at distance 1 from $x$.
    """
    x = torch.linspace(-1, 1, points)
    powers = torch.cos(torch.acos(x)[:, None] * torch.arange(9))  # Chebyshev's basis
    errors = []
    for degree in range(8):
        fit = best_uniform_fit(powers[:, : degree + 1], x.exp())
        yield equals(fit.lower, fit.error, degree=degree)
        yield at_least(fit.lower, 2.0**-degree / math.factorial(degree + 1) / math.e / 2)
        errors.append(fit.error)
    yield equals(int(approximable(errors)), 1)
    yield equals(errors[0], math.sinh(1))
    some = powers[:, ::2] if parity == "even" else powers
    bends, odd = ([best_uniform_fit(some[:, : k + 1], y).error for k in range(5)]
                  for y in (x.abs(), x))  # fmt: skip
    yield equals(bends[:2], [0.5, 0.125], tol=1e-4)
    yield at_most(bends[1:], bends[:-1])
    yield at_most(bends[-1], 0.04)
    yield equals(odd, 1.0)


closure_density.foil("among all polynomials $x$ is at distance 0 from $x$", parity="any")
closure_density.erratum(
    "B-118",
    printed=r"$f \approx g \iff \text{approx-err}(f, g) ="
    r" \inf\{g \in \mathcal G \mid \|f - g\|_\infty = 0\}$",
    right=r"$\mathrm{err}(f, \mathcal G) = \inf_{g \in \mathcal G} \|f - g\|_\infty$",
    why="the infimum runs over functions equal to $f$: no polynomial equals $e^x$, all the same"
    " they approximate it",
    approximable=is_member,
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
    by="identity", sources=("A-016", "B-125", "E-109", "E-127"), budget=0.5, full={"points": 2001}
)
def weierstrass(rate: float = 0.5, variance: int = 1, points: int = 201):
    r"""Weierstrass' approximation theorem.

    Polynomials are dense in $C([a, b])$ under the sup norm for all real $a < b$, so a class that
    approximates every polynomial approximates every continuous function. Constructively, the
    Bernstein polynomials $B_n f(x) = \sum_k f(k / n) \binom nk x^k (1 - x)^{n - k}$ converge
    uniformly on $[0, 1]$, with $\|B_n f - f\|_\infty \le \frac{\mathrm{Lip}(f)}{2 \sqrt n}$ for
    Lipschitz $f$ and $B_n(x^2) = x^2 + \frac{x (1 - x)}{n}$.

    *Proof of the rate.* $B_n f(x) = E f(K / n)$ with $K \sim \mathrm{Bin}(n, x)$, and
    $E |K / n - x| \le \sqrt{x (1 - x) / n} \le \frac{1}{2 \sqrt n}$. (Bernstein, 1912.)
    """
    x = torch.linspace(0, 1, points)

    def bend(t):
        return (t - 0.5).abs()

    for n in (4, 16, 64, 256):
        knots = torch.linspace(0, 1, n + 1)
        for f, lip in (polygon(9), polygon(4), (bend, 1.0)):
            error = (bernstein_polynomial(f(knots), x) - f(x)).abs().max()
            yield at_most(error, lip / 2 * float(n) ** -rate, n=n)
        share = math.comb(n, n // 2) / 2 ** (n + 1)  # E |K/n - 1/2| for a fair coin
        yield equals(error, share, n=n)
        x2 = bernstein_polynomial(2 * knots**2 - 1, 2 * x - 1, low=-1.0)
        yield equals(x2, 2 * (x**2 + x * (1 - x) / n) - 1, n=n)
    for n in (3, 8):
        for p in (Fraction(1, 3), Fraction(3, 4)):
            terms = (Fraction(k, n) ** 2 * math.comb(n, k) * p**k * (1 - p) ** (n - k)
                     for k in range(n + 1))  # fmt: skip
            gap = (sum(terms) - p**2) * n**2 * p.denominator**2
            yield equals(int(gap), int(p * (1 - p) * p.denominator**2) * n * variance, n=n)


weierstrass.foil(r"the rate $\mathrm{Lip}(f) / (2 n)$", rate=1.0)
weierstrass.foil("twice the variance", variance=2)
