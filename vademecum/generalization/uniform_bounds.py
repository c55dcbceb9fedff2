r"""Bounds that hold for a whole class of functions at once, by counting it or by noise it can fit.

For losses in $[0, 1]$, $n$ independent examples and a class fixed before them, with probability at
least $1 - \delta$, simultaneously for all $f \in \mathcal F$:

| bound | $\mathcal R(f)$, the risk, exceeds $\hat{\mathcal R}_n(f)$ on the examples by at most |
|---|---|
| `finite_class_bound` | $\sqrt{(\ln K + \ln \frac1\delta) / (2n)}$ for $K$ functions |
| `vc_bound` | $2 \sqrt{2 (\ln S_{\mathcal F}(2n) + \ln \frac2\delta) / n}$ |
| `rademacher_bound` | $2 \mathfrak R_n(\mathcal F) + \sqrt{\ln \frac1\delta / (2n)}$ |

and $P(\sup_f |\hat{\mathcal R}_n(f) - \mathcal R(f)| > \epsilon) \le 8\, S_{\mathcal F}(n)\,
e^{-n \epsilon^2 / 32}$ (Vapnik and Chervonenkis). With one function the first is Hoeffding's bound;
with $\frac2\delta$ for $\frac1\delta$ it bounds the distance on both sides. In the last, with the
complexity on the examples themselves instead of its mean over examples, the root is three times
that of $\ln \frac2\delta$.

Each is evaluated as it stands, with counts as integers of any size; for a VC dimension above a
million Sauer's sum is replaced by $e^{n H(d/n)}$ or $2^n$, which it does not exceed. Above 1 a
bound says nothing. Numbers give a number, tensors a tensor. The claims are `uniform_bound`,
`vc_inequality`, `vc_generalisation_bound` and `rademacher_bound`.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.generalization.growth import sauer_bound

__all__ = ["finite_class_bound", "rademacher_bound", "vc_bound", "vc_inequality"]

Real = float | Float[Tensor, " ..."]
Result = Any  # a number for numbers, a tensor for tensors

_FEW = 2_000  # points up to which Sauer's sum is computed in integers, in about a millisecond
_MANY = 10**6  # terms


def finite_class_bound(
    risk: Real, size: float, n: int, *, delta: float, two_sided: bool = False
) -> Result:
    r"""The bound for a class of `size` functions, or for one that was fixed before the examples.

    Args:
        risk: The risk on the examples, in [0, 1].
        size: How many functions the class has, an integer of any size or a number >= 1.
        n: The number of examples.
        delta: The probability with which the bound may fail for any of them, in (0, 1).
        two_sided: Whether the risk must not be as far below, either.

    Example:
        >>> round(finite_class_bound(0.1, 1, 100, delta=0.05), 4)  # 0.1 + sqrt(ln 20 / 200)
        0.2224
        >>> round(finite_class_bound(0.1, 10**6, 100, delta=0.05), 4)
        0.3899
    """
    n, delta = _sample(n, delta)
    total = _log_count("size", size) + math.log((1 + two_sided) / delta)
    return _risk(risk) + math.sqrt(total / (2 * n))


def vc_bound(
    risk: Real,
    n: int,
    *,
    delta: float,
    dimension: int | None = None,
    growth: float | None = None,
) -> Result:
    r"""The bound by the growth function, or by the VC dimension through Sauer's lemma.

    Args:
        risk: The risk on the examples, in [0, 1].
        n: The number of examples.
        delta: The probability with which the bound may fail, in (0, 1).
        dimension: The VC dimension of the class.
        growth: In its place, the number of labellings of $2n$ points, $S_{\mathcal F}(2n)$: an
            integer of any size.

    Raises:
        ValueError: If not one of `dimension` and `growth` is given.

    Example:
        >>> round(vc_bound(0.0, 50_000, delta=0.05, dimension=10_000), 3)  # says nothing
        2.281
        >>> round(vc_bound(0.0, 50_000, delta=0.05, dimension=10), 3)
        0.129
    """
    n, delta = _sample(n, delta)
    total = _log_growth(2 * n, dimension, growth) + math.log(2 / delta)
    return _risk(risk) + 2 * math.sqrt(2 * total / n)


def vc_inequality(
    epsilon: float, n: int, *, dimension: int | None = None, growth: float | None = None
) -> float:
    r"""The probability that any risk is off by more than `epsilon`, at most; 1 if it says nothing.

    Args:
        epsilon: The largest distance of risks on the examples from true ones, > 0.
        n: The number of examples.
        dimension: The VC dimension of the class.
        growth: In its place, the number of labellings of $n$ points, $S_{\mathcal F}(n)$.

    References:
        Vapnik and Chervonenkis, On the uniform convergence of relative frequencies of events to
        their probabilities, Theory of Probability and its Applications, 1971.

    Example:
        >>> round(vc_inequality(0.5, 2_000, growth=2_001), 4)  # 8 * 2001 exp(-15.625)
        0.0026
    """
    epsilon, n = number("epsilon", epsilon, above=0), whole("n", n, low=1)
    total = math.log(8) + _log_growth(n, dimension, growth) - n * epsilon**2 / 32
    return math.exp(min(total, 0.0))


def rademacher_bound(
    risk: Real, complexity: Real, n: int, *, delta: float, empirical: bool = False
) -> Result:
    r"""The bound by the Rademacher complexity of the class of losses.

    Args:
        risk: The risk on the examples, in [0, 1].
        complexity: The Rademacher complexity of the losses, >= 0. For 0-1 losses of a class with
            values -1 and 1 it is half that of the class.
        n: The number of examples.
        delta: The probability with which the bound may fail, in (0, 1).
        empirical: Whether the complexity is that on these examples, and not its mean over all
            samples of `n`.

    References:
        Bartlett and Mendelson, Rademacher and Gaussian complexities, JMLR, 2002.

    Example:
        >>> round(rademacher_bound(0.1, 0.05, 200, delta=0.05), 4)  # 0.1 + 0.1 + sqrt(ln 20 / 400)
        0.2865
    """
    n, delta = _sample(n, delta)
    if not isinstance(complexity, Tensor):
        complexity = number("complexity", complexity, low=0)
    elif not bool((complexity >= 0).all()):
        raise ValueError(f"complexity must be >= 0, got {complexity.min().item():g}")
    log = 9 * math.log(2 / delta) if empirical else math.log(1 / delta)
    return _risk(risk) + 2 * complexity + math.sqrt(log / (2 * n))


def _sample(n: int, delta: float) -> tuple[int, float]:
    return whole("n", n, low=1), number("delta", delta, above=0, below=1)


def _risk(risk: Real) -> Any:
    if not isinstance(risk, Tensor):
        return number("risk", risk, low=0, high=1)
    good = (risk >= 0) & (risk <= 1)
    if not bool(good.all()):
        raise ValueError(f"risk must be in [0, 1], got {risk[~good][0].item():g}")
    return risk if risk.is_floating_point() else risk.to(torch.get_default_dtype())


def _log_growth(n: int, dimension: int | None, growth: float | None) -> float:
    if (dimension is None) == (growth is None):
        raise ValueError(f"one of dimension and growth must be given, got {dimension} and {growth}")
    if dimension is None:
        return min(_log_count("growth", growth), n * math.log(2))
    d = whole("dimension", dimension, low=0)
    if n <= _FEW:
        return math.log(sauer_bound(n, d))
    if d > _MANY:
        q = min(d / n, 0.5)
        return -n * (q * math.log(q) + (1 - q) * math.log1p(-q))
    i = torch.arange(min(d, n) + 1, dtype=torch.float64)
    total = torch.tensor(n + 1.0).double().lgamma()
    return float((total - (i + 1).lgamma() - (n - i + 1).lgamma()).logsumexp(0))


def _log_count(name: str, count: Any) -> float:
    """The logarithm of a count; of an integer that no float holds, too."""
    exact = isinstance(count, int) and not isinstance(count, bool)
    return math.log(whole(name, count, low=1) if exact else number(name, count, low=1))
