r"""What is proved of each method, as a table: what it needs, what it bounds, and the bound.

With $\Delta = f(x_0) - f^*$, $R = \|x_0 - x^*\|$, $q = \mu / L$ and $\rho = \sqrt\beta$:

| method | assuming | step | measured | bound |
|---|---|---|---|---|
| gradient descent | smooth | $1 / L$ | $\min_{j < t} \|\nabla f(x_j)\|^2$ | $2 L \Delta / t$ |
| | convex | $1 / L$ | $f(x_t) - f^*$ | $L R^2 / (2 t)$ |
| | strongly convex, PL | $1 / L$ | $f(x_t) - f^*$ | $(1 - q)^t \Delta$ |
| Nesterov | convex | $1 / L$ | $f(x_t) - f^*$ | $2 L R^2 / (t + 1)^2$ |
| | strongly convex | $1 / L$ | $f(x_t) - f^*$ | $L R^2 (1 - \sqrt q)^t$ |
| heavy ball | quadratic | $4 / (\sqrt L + \sqrt\mu)^2$ | $f(x_t) - f^*$
| $\rho^{2t} (1 + (1 + \rho)\, t)^2 \Delta$ |
| SGD | strongly convex, interpolation | $\eta < 1 / L$ | $\mathbb E \|x_t - x^*\|^2$
| $A^t R^2 + B$ |
| averaged SGD | convex | $R / (G \sqrt T)$ | $\mathbb E f(\bar x_t) - f^*$
| $R^2 / (2 \eta t) + \eta G^2 / 2$ |
| SVRG | strongly convex | $\eta < 1 / (4 L)$ | $\mathbb E f(w_s) - f^*$ | $\alpha^s \Delta$ |

*Heavy ball.* Along an eigenvector of a quadratic the recursion
$x_{t + 1} = (1 + \beta - \eta \lambda)\, x_t - \beta\, x_{t - 1}$ from rest has the solution
$x_t = \rho^t\, (U_t(c) - \rho\, U_{t - 1}(c))\, x_0$ with Chebyshev's polynomials of the second
kind and $2 \rho c = 1 + \beta - \eta \lambda$. The optimal step and momentum send $[\mu, L]$ to
$c \in [-1, 1]$, where $|U_t| \le t + 1$, so every coordinate is at most
$\rho^t (1 + (1 + \rho)\, t)$ times what it was. At $\lambda = L$, where $c = -1$, that is attained.

*SGD.* $A = 1 - 2 \eta \mu (1 - \eta L)$ and $B = \eta \sigma^2 / (\mu (1 - \eta L))$ with the
gradient noise $\sigma^2 = \frac1n \sum_i \|\nabla f_i(x^*)\|^2$, which interpolation makes zero.
*Averaged SGD*: $\bar x_t$ is the mean of $x_0, \dots, x_{t - 1}$; at $t = T$ the bound is
$R G / \sqrt T$. *SVRG*: $w_s$ is the mean of the iterates of epoch $s$, which has $m$ steps, and
$\alpha = \frac1{\mu \eta (1 - 2 L \eta) m} + \frac{2 L \eta}{1 - 2 L \eta}$. For these three every
term $f_i$ is convex, and $L$-smooth but for the second.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

__all__ = ["METHODS", "RANDOM", "Facts", "Method", "Theorem"]

Method = Literal["gradient_descent", "nesterov", "heavy_ball", "sgd", "averaged_sgd", "svrg"]


@dataclass
class Facts:
    """What the bounds are made of; NaN where a theorem needs it not."""

    L: float = math.nan
    mu: float = math.nan
    G: float = math.nan
    gap: float = math.nan
    distance: float = math.nan
    noise: float = math.nan
    eta: float = math.nan
    period: int = 1
    steps: int = 1

    @property
    def momentum(self) -> float:
        """The one for strongly convex functions, and the root of the one for heavy ball."""
        root = math.sqrt(self.L / self.mu)
        return (root - 1) / (root + 1)


@dataclass(frozen=True)
class Theorem:
    """A bound as a function of the steps, the constants it needs, and what it is a bound of.

    `from_distance` says that it begins with the distance to the minimiser, not with the gap.
    """

    bound: Callable[[Tensor, Facts], Tensor]
    needs: tuple[str, ...] = ("L",)
    measures: Literal["gap", "gradient", "distance"] = "gap"
    first: int = 0
    step: Callable[[Facts], float] = lambda c: 1 / c.L
    from_distance: bool = False


def _sublinear(t: Tensor, c: Facts) -> Tensor:
    return c.L * c.distance**2 / (2 * t)


def _stationarity(t: Tensor, c: Facts) -> Tensor:
    return 2 * c.L * c.gap / t


def _linear(t: Tensor, c: Facts) -> Tensor:
    return (1 - c.mu / c.L) ** t * c.gap


def _accelerated(t: Tensor, c: Facts) -> Tensor:
    return 2 * c.L * c.distance**2 / (t + 1) ** 2


def _accelerated_linear(t: Tensor, c: Facts) -> Tensor:
    return c.L * c.distance**2 * (1 - math.sqrt(c.mu / c.L)) ** t


def _heavy_ball(t: Tensor, c: Facts) -> Tensor:
    rho = c.momentum
    return (rho**t * (1 + (1 + rho) * t)) ** 2 * c.gap


def _noise_ball(t: Tensor, c: Facts) -> Tensor:
    rest = 1 - c.eta * c.L
    return _interpolating(t, c) + c.eta * c.noise / (c.mu * rest)


def _interpolating(t: Tensor, c: Facts) -> Tensor:
    return (1 - 2 * c.eta * c.mu * (1 - c.eta * c.L)) ** t * c.distance**2


def _averaged(t: Tensor, c: Facts) -> Tensor:
    way = c.distance**2 / (2 * c.eta) if c.distance else 0.0  # then eta may be 0, too
    return way / t + c.eta * c.G**2 / 2


def _reduced(t: Tensor, c: Facts) -> Tensor:
    rest = 1 - 2 * c.L * c.eta
    rate = 1 / (c.mu * c.eta * rest * c.period) + 2 * c.L * c.eta / rest
    return rate ** (t / c.period) * c.gap


def _half(c: Facts) -> float:
    return 0.5 / c.L


def _to_the_end(c: Facts) -> float:
    return c.distance / (c.G * math.sqrt(c.steps))


_BOTH = ("L", "mu")
METHODS: dict[Method, dict[str, Theorem]] = {
    "gradient_descent": {
        "convex": Theorem(_sublinear, first=1, from_distance=True),
        "strongly_convex": Theorem(_linear, _BOTH),
        "pl": Theorem(_linear, _BOTH),
        "smooth": Theorem(_stationarity, measures="gradient", first=1),
    },
    "nesterov": {
        "convex": Theorem(_accelerated, first=1, from_distance=True),
        "strongly_convex": Theorem(_accelerated_linear, _BOTH, from_distance=True),
    },
    "heavy_ball": {
        "quadratic": Theorem(
            _heavy_ball, _BOTH, step=lambda c: 4 / (math.sqrt(c.L) + math.sqrt(c.mu)) ** 2
        ),
    },
    "sgd": {
        "strongly_convex": Theorem(_noise_ball, _BOTH, "distance", 0, _half, from_distance=True),
        "interpolation": Theorem(_interpolating, _BOTH, "distance", 0, _half, from_distance=True),
    },
    "averaged_sgd": {
        "convex": Theorem(_averaged, ("G",), "gap", 1, _to_the_end, from_distance=True),
    },
    "svrg": {"strongly_convex": Theorem(_reduced, _BOTH, step=lambda c: 0.1 / c.L)},
}
"""The theorems by method and assumption; the first assumption of a method is its default."""
RANDOM = ("sgd", "averaged_sgd", "svrg")
"""The methods that draw terms."""
