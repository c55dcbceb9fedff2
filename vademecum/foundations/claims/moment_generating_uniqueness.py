r"""Uniqueness: laws with equal generating functions, and laws without any."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import scipy.stats
from scipy.integrate import quad
from torch.distributions import (
    Cauchy,
    Distribution,
    Gamma,
    LogNormal,
    Normal,
    Pareto,
)

from vademecum.claims import Evidence, at_least, claim, equals
from vademecum.foundations.claims.moment_generating import pmf
from vademecum.foundations.claims.moment_generating_laws import truncated


def recovered(values: list[Fraction], points: list[Fraction]) -> list[Fraction]:
    r"""The coefficients of a polynomial from its values: Newton's interpolation in Fractions."""
    table = list(values)
    for level in range(1, len(points)):
        for i in range(len(points) - 1, level - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (points[i] - points[i - level])
    out = [Fraction(0)] * len(points)
    for c, node in zip(reversed(table), reversed(points), strict=True):  # Horner
        out = [c - node * out[0], *(out[k - 1] - node * out[k] for k in range(1, len(out)))]
    return out


Known = Literal["values", "moments", "point probabilities"]
POINTS = [Fraction(k, 10) for k in (6, 8, 11, 14, 19)]  # u = e^t around 1
KNOWN: dict[str, Callable[[list[Fraction]], list[Fraction]]] = {
    "values": lambda p: [sum((v * u**k for k, v in enumerate(p)), Fraction(0)) for u in POINTS],
    "moments": lambda p: [sum((v * k**j for k, v in enumerate(p)), Fraction(0)) for j in range(4)],
    "point probabilities": lambda p: p,
}
TIMES = (-0.5, 0.5, 1.0)


class Smooth(NamedTuple):
    """What is known of a law with a density, and its distribution function on a grid."""

    known: dict[str, list[float]]
    cdf: np.ndarray


def smooth_laws() -> dict[str, Smooth]:
    """Laws of SciPy's, with M at TIMES and the moments of order 1 to 3."""
    none, grid = [math.inf] * len(TIMES), np.linspace(-3, 3, 25)  # see mgf_existence
    normal, uniform = ([f(t) for t in TIMES] for f in (
        lambda t: math.exp(t * t / 2), lambda t: math.expm1(t) / t
    ))  # fmt: skip
    laws = {
        "N(0, 1)": (scipy.stats.norm(), normal, [0.0, 1.0, 0.0]),
        "U(0, 1)": (scipy.stats.uniform(), uniform, [1 / 2, 1 / 3, 1 / 4]),
        "Cauchy(0, 1)": (scipy.stats.cauchy(), none, [math.nan] * 3),
        "Cauchy(0, 2)": (scipy.stats.cauchy(scale=2), none, [math.nan] * 3),
        "Student t(2)": (scipy.stats.t(2), none, [0.0, math.inf, math.nan]),
    }
    return {
        name: Smooth(
            {"values": values, "moments": moments, "point probabilities": [0.0]}, law.cdf(grid)
        )
        for name, (law, values, moments) in laws.items()
    }


PAIRS = (
    ("N(0, 1)", "N(0, 1)"),
    ("N(0, 1)", "U(0, 1)"),
    ("Cauchy(0, 1)", "Student t(2)"),
    ("Cauchy(0, 1)", "Cauchy(0, 2)"),
)


@claim(
    by="identity",
    sources=("D-018", "E-019", "E-256"),
    budget=0.5,
    full={"draws": 300},
    short=r"M_X = M_Y < \infty \text{ near } 0 \implies P(X \le t) = P(Y \le t)\ \forall t",
)
def mgf_uniqueness(knows: Known = "values", finite: bool = True, draws: int = 10):
    r"""The uniqueness theorem for moment generating functions.

    If $M_X$ and $M_Y$ are finite and equal on an open neighbourhood of 0, then $X$ and $Y$ have
    the same distribution, $P(X \le t) = P(Y \le t)$ for all $t$. Finiteness near 0 is essential:
    all Cauchy laws share $M(0) = 1$, $M(t) = \infty$ for $t \ne 0$. (Curtiss, 1942.)

    *Check.* Laws on $\{0, \dots, 4\}$ with rational weights: their values at five points determine
    the polynomial $\sum_k p_k u^k$, $u = e^t$, and hence the law, exactly. Laws that agree in what
    is known of them are at distance 0; among them $p$ and $p + \epsilon (1, -4, 6, -4, 1)$, which
    share the moments of order 0 to 3. So are laws with densities that the theorem calls equal; the
    theorem itself is quoted.

    Knobs:
        knows: What is known of two laws: values of $M$, moments of order 0 to 3, or the
            probabilities of all points.
        finite: Whether the theorem speaks only where what is known is finite.
        draws: How many pairs of finite laws are drawn.
    """
    for draw in range(draws):
        p, r = (list(pmf(5).values()) for _ in range(2))
        step = min(p) / 8
        q = [v + step * c for v, c in zip(p, (1, -4, 6, -4, 1), strict=True)]
        for other in (p, q, r):
            agree = KNOWN[knows](p) == KNOWN[knows](other)
            distance = sum(abs(v - w) for v, w in zip(p, other, strict=True))
            name = "distance of finite laws, counted if called equal"
            yield equals(name, float(agree * distance), 0.0, tol=0.0, draw=draw)
        again = recovered(KNOWN["values"](p), POINTS)
        errors = [float(value - v) for value, v in zip(again, p, strict=True)]
        yield equals("error of the law recovered from $M$", errors, 0.0, tol=0.0, draw=draw)
    laws = smooth_laws()
    for names in PAIRS:
        one, other = (laws[name] for name in names)
        agree = one.known[knows] == other.known[knows]
        called = agree and (not finite or all(map(math.isfinite, one.known[knows])))
        distance = called * np.abs(one.cdf - other.cdf).max()
        yield equals(f"distance of {' and '.join(names)}, counted if called equal", distance, 0.0)


mgf_uniqueness.foil(
    "equality of the moments of order 0 to 3",
    refuted_by="distance of finite laws, counted if called equal",
    knows="moments",
)
mgf_uniqueness.foil(
    r"equal point probabilities: $\mathcal N(0, 1)$ and $U(0, 1)$", knows="point probabilities"
)
for _where, _printed, _why, _other in (
    (
        "D-018",
        r"$\psi_X(t) = \mathbb E[e^{t X}]$ said to characterise the law of $X$, without a "
        "condition",
        "Finiteness around 0 is missing: Cauchy and Student-t with 2 degrees of freedom both have "
        r"$\psi(0) = 1$ and $\psi = \infty$ elsewhere and are different laws.",
        "Student t(2)",
    ),
    (
        "E-019",
        r"$\psi_X(t) = E[e^{t X}]$ said to characterise the law, without an existence condition",
        r"Same omission: Cauchy(0, 1) and Cauchy(0, 2) cannot be told apart by $\psi$.",
        "Cauchy(0, 2)",
    ),
):
    mgf_uniqueness.erratum(
        _where,
        printed=_printed,
        right=r"if it is finite in a neighbourhood of 0",
        why=_why,
        weight="soft",
        refuted_by=f"distance of Cauchy(0, 1) and {_other}, counted if called equal",
        finite=False,
    )
mgf_uniqueness.erratum(
    "E-256",
    printed=r"$M_X = M_Y$ then $\forall t: P(\mathbf X = t) = P(\mathbf Y = t)$ (distributions are"
    " the same)",
    right=r"$P(X \le t) = P(Y \le t)$ for all $t$",
    why="The conclusion must be about distribution functions (and needs finiteness near 0): equal "
    r"point probabilities do not mean equal laws, as $\mathcal N(0, 1)$ and $U(0, 1)$ show, where "
    "both sides are 0 for every $t$.",
    weight="soft",
    refuted_by="distance of N(0, 1) and U(0, 1), counted if called equal",
    knows="point probabilities",
)


def tailed_laws() -> dict[str, tuple[Distribution, float]]:
    """Laws with light and heavy tails, and the point from which on a tail is integrated."""
    return {
        "normal": (Normal(0.0, 1.0), 0.0),
        "gamma": (Gamma(2.0, 1.0), 0.0),
        "Cauchy": (Cauchy(0.0, 1.0), 0.0),
        "log-normal": (LogNormal(0.0, 1.0), 0.0),
        "Pareto": (Pareto(1.0, 3.0), 1.0),
    }


@claim(
    by="sampling",
    sources=("E-257",),
    budget=0.5,
    short=r"X \text{ Cauchy} \implies \mathbb E[e^{t X}] = \infty \text{ for all } t \ne 0",
)
def mgf_existence(
    heavy: tuple[str, ...] = ("Cauchy", "log-normal", "Pareto"),
    times: tuple[float, ...] = (0.01, 0.1, 0.5),
):
    r"""Not every distribution has a moment generating function.

    Heavy-tailed laws have none that is finite around 0: for the Cauchy law
    $\mathbb E[e^{t X}] = \infty$ for every $t \ne 0$, for the log-normal and Pareto laws for every
    $t > 0$. The characteristic function $\mathbb E[e^{i t^\top X}]$ always exists and always
    determines the law (quoted).

    *Check.* $I_R = \int^R e^{t x} p(x)\,dx$ for torch's densities and $R = 40/t, 80/t, 160/t$:
    stable for light tails, of which less than $10^{-6}$ is left; growing by a factor of more than
    100 for heavy ones, since $e^{t x}$ gains $e^{40}$ or more with each doubling and no density
    here loses more than a factor $10^5$. At $-t$ only the Cauchy law's left tail grows. Its
    characteristic function is $e^{-\gamma |t|}$ for the scale $\gamma$, different for different
    scales.

    Knobs:
        heavy: The laws that are said to have no moment generating function.
        times: The values of $t$, for the gamma law below 1.
    """
    laws = tailed_laws()
    for t in times:
        for name, (law, start) in laws.items():
            yield from tails(law, name, t, start, heavy=name in heavy)
        left, cauchy = "Cauchy, to the left", laws["Cauchy"][0]
        yield from tails(cauchy, left, -t, 0.0, toward=-1, heavy="Cauchy" in heavy)
        for name in ("log-normal", "Pareto"):
            yield from tails(laws[name][0], name, -t, laws[name][1], heavy=False)
    for scale in (1.0, 2.0):
        for s in (0.5, 1.0, 3.0):

            def density(x: float, scale=scale) -> float:
                return 2 * scale / (math.pi * (scale**2 + x**2))

            value = quad(density, 0, math.inf, weight="cos", wvar=s, epsabs=1e-11)[0]
            stated = math.exp(-scale * s)
            at = {"t": s, "scale": scale}
            yield equals("characteristic function of a Cauchy law", value, stated, **at)


def tails(
    law: Distribution, name: str, t: float, start: float, *, toward: int = 1, heavy: bool
) -> Iterator[Evidence]:
    """How the integral from `start` on, over a length R to one side, grows when R is doubled."""
    lengths = [r / abs(t) for r in (40, 80, 160)]
    reach = [truncated(law, t, start, start + toward * r) for r in lengths]
    for r, (less, more) in zip(lengths, pairwise(reach), strict=False):
        at = {"R": r, "t": t, "law": name}
        if heavy:
            yield at_least("growth of the integral as $R$ doubles", more / less, 100.0, **at)
        else:
            yield equals("growth of the integral as $R$ doubles", more / less, 1.0, tol=1e-6, **at)


mgf_existence.foil(
    "the log-normal law has all moments, and still no such function", heavy=("Cauchy", "Pareto")
)
mgf_existence.foil(
    "the normal law, whose tails are light, has one",
    heavy=("normal", "Cauchy", "log-normal", "Pareto"),
)
mgf_existence.erratum(
    "E-257",
    printed="every distribution said to have its own kind of MGF (prose, just after a theorem that "
    "assumes that the MGFs exist)",
    right="each distribution whose tails decay exponentially has one that is finite around 0",
    why='Only a loose remark: the theorem before it says "if they exist". Without that condition '
    r"it is false: the Cauchy distribution has $\mathbb E[e^{t X}] = \infty$ for all $t \ne 0$; "
    "the log-normal has all moments but no MGF for $t > 0$.",
    weight="soft",
    heavy=(),
)
