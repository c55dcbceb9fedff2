r"""What a very wide network does to variances and correlations, layer by layer.

Weights $W_{ij} \sim \mathcal{N}(0, \sigma_w^2 / n)$ ($n$ inputs of the layer) and biases $b_i \sim
\mathcal{N}(0, \sigma_b^2)$; pre-activations $h = W \phi(h^-) + b$ are Gaussian as $n \to \infty$.
With $u, v$ Gaussian of variance $q$ and correlation $c$, their variance and correlation follow

$$V(q) = \sigma_w^2\, \mathbb{E} \phi(u)^2 + \sigma_b^2, \qquad
C_q(c) = \frac{\sigma_w^2\, \mathbb{E} \phi(u) \phi(v) + \sigma_b^2}{V(q)} .$$

At the fixed point $q^* = V(q^*)$ small differences of inputs, and gradients, are multiplied by

$$\chi = \sigma_w^2\, \mathbb{E} \phi'(u)^2$$

a layer (squared): $\chi < 1$ is the *ordered* phase, where all inputs become alike and gradients
vanish, $\chi > 1$ the *chaotic* one, where neighbours part and gradients explode. Distances to the
fixed points shrink like $e^{-l / \xi}$, $\xi_q = -1 / \log |V'(q^*)|$ and $\xi_c = -1 / \log
C'(c^*)$ with $C'(c) = \sigma_w^2 q^* \mathbb{E} \phi'(u) \phi'(v) / V(q^*)$.

The integrals are those of `vademecum.expectations`, exact or integrated to about 12 digits; fixed
points are roots to rounding. Infinite width is the approximation: a network of width $n$ and depth
$L$ strays by about $\sqrt{L / n}$. The claims `he_init` and `lecun_init` check two of its points;
tests compare it with networks.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from scipy.optimize import root_scalar
from torch import Tensor

from vademecum.arguments import number
from vademecum.expectations import GaussianExpectations
from vademecum.results import one_line

__all__ = ["MeanField", "mean_field"]

_SMALLEST, _LARGEST = 1e-12, 1e8  # variances beyond are taken for 0 and infinity
_ROUNDING = 1e-13
_CRITICAL = 1e-8


class MeanField(NamedTuple):
    """Where the variances and correlations of a wide network go; see `mean_field`.

    Example:
        >>> he = mean_field(torch.relu, 2.0)
        >>> he.variance_map(3.0).item(), he.chi, he.phase  # every variance is kept
        (3.0, 1.0, 'critical')
        >>> he.correlation_map(0.0).item()  # 1 / pi: orthogonal inputs become alike
        0.318...
    """

    expectations: GaussianExpectations
    """The activation's integrals."""
    weight_variance: float
    """The variance of a weight, times the number of inputs."""
    bias_variance: float
    """The variance of a bias."""
    variance: float
    """The fixed point of the variance that is reached from 1; 0 where signals vanish, infinity
    where they explode, and 1 where every variance is fixed."""
    correlation: float
    """The fixed point of the correlation that positive ones approach; NaN where each stays."""
    chi: float
    """By how much a layer multiplies the square of a gradient, or of a small difference, at the
    fixed point; where that is 0 or infinite, near it."""
    variance_depth: float
    """In how many layers a distance from the variance's fixed point falls by the factor e."""
    correlation_depth: float
    """The same for the correlation; infinity where it falls slower than any exponential."""
    phase: str
    """The phase: ordered, critical or chaotic, as chi is below 1, at it or above."""

    __repr__ = one_line

    def variance_map(self, variance: float | Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
        """The next layer's variance."""
        return self.weight_variance * self.expectations.square(variance) + self.bias_variance

    def correlation_map(
        self,
        correlation: float | Float[Tensor, " ..."],
        variance: float | Float[Tensor, " ..."] | None = None,
    ) -> Float[Tensor, " ..."]:
        """The next layer's correlation.

        Args:
            correlation: This layer's.
            variance: This layer's variance, for both inputs; by default the fixed point.
        """
        q = self._here() if variance is None else variance
        product = self.expectations.product(q, correlation)
        return (self.weight_variance * product + self.bias_variance) / self.variance_map(q)

    def correlation_slope(self, correlation: float) -> float:
        """The derivative of the correlation's map at the fixed point of the variance."""
        q = self._here()
        slopes = float(self.expectations.slope_product(q, correlation))
        return self.weight_variance * q * slopes / float(self.variance_map(q))

    def _here(self) -> float:
        return min(max(self.variance, _SMALLEST), _LARGEST)


def mean_field(activation: Any, weight_variance: float, bias_variance: float = 0.0) -> MeanField:
    r"""The maps of variance and correlation of a wide network, and where they lead.

    Args:
        activation: The activation: any function of tensors, entry by entry, or a module.
        weight_variance: $\sigma_w^2$, the variance of a weight times the number $n$ of inputs: 1 in
            LeCun's initialisation, 2 in He's, 1/3 in that of `nn.Linear`.
        bias_variance: $\sigma_b^2$, the variance of a bias.

    Raises:
        ValueError: If the activation has no second moment, or jumps, so that chi is infinite.

    References:
        Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli, Exponential expressivity in deep neural
        networks through transient chaos, NeurIPS, 2016. Schoenholz, Gilmer, Ganguli and
        Sohl-Dickstein, Deep information propagation, ICLR, 2017.

    Example:
        >>> default = mean_field(torch.relu, 1 / 3, 0.1)  # 0.1 / (1 - 1/6)
        >>> round(default.variance, 6), round(default.chi, 6), default.phase
        (0.12, 0.166667, 'ordered')
    """
    number("weight_variance", weight_variance, above=0)
    number("bias_variance", bias_variance, low=0)
    integrals = GaussianExpectations(activation)
    blank = MeanField(
        integrals, float(weight_variance), float(bias_variance),
        math.nan, math.nan, math.nan, math.nan, math.nan, "",
    )  # fmt: skip
    q = _variance(lambda q: float(blank.variance_map(q)))
    found = blank._replace(variance=q)
    chi = weight_variance * float(integrals.slope(found._here()))
    critical = abs(chi - 1) <= _CRITICAL
    phase = "critical" if critical else "ordered" if chi < 1 else "chaotic"
    c, slope = _correlation(found)
    return found._replace(
        chi=chi,
        phase=phase,
        correlation=c,
        variance_depth=_depth(_variance_slope(found)),
        correlation_depth=_depth(slope),
    )


def _variance(V: Callable[[float], float]) -> float:
    """The fixed point that is reached from 1: the next one above or below."""
    gap = V(1.0) - 1
    if abs(gap) <= _ROUNDING:
        return 1.0
    factor, q = (4.0 if gap > 0 else 0.25), 1.0
    while (V(q * factor) - q * factor) * gap > _ROUNDING * q * factor * abs(gap):
        q *= factor
        if not _SMALLEST < q < _LARGEST:
            return math.inf if gap > 0 else 0.0
    ends = sorted((math.log(q), math.log(q * factor)))
    if (V(q * factor) - q * factor) * gap >= 0:  # met up to rounding
        return q * factor
    return math.exp(_root(lambda t: V(math.exp(t)) / math.exp(t) - 1, *ends))


def _variance_slope(field: MeanField) -> float:
    q = torch.tensor(field._here(), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(field.variance_map(q), q)
    return abs(float(slope))


def _correlation(field: MeanField) -> tuple[float, float]:
    """The fixed point of the correlation, and the slope there.

    The map is a power series with coefficients that are not negative, so it is convex for positive
    correlations: its one other fixed point exists if and only if its slope at 1 exceeds 1.
    """
    at_one = field.correlation_slope(1.0)
    if at_one <= 1 + _CRITICAL:
        kept = all(abs(float(field.correlation_map(c)) - c) <= 1e-11 for c in (0.0, 0.5))
        return (math.nan if kept else 1.0), (1.0 if abs(at_one - 1) <= _CRITICAL else at_one)
    if float(field.correlation_map(0.0)) <= _ROUNDING:
        return 0.0, field.correlation_slope(0.0)

    def above(c: float) -> float:  # divided by the root at 1
        return (float(field.correlation_map(c)) - c) / (1 - c)

    near = 1e-2
    while above(1 - near) >= 0 and near > 1e-9:
        near /= 10
    c = _root(above, 0.0, 1 - near)
    return c, field.correlation_slope(c)


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    return float(root_scalar(f, bracket=(low, high), method="brentq", xtol=1e-15).root)


def _depth(slope: float) -> float:
    """In how many steps powers of a slope fall by e."""
    if slope <= 0:
        return 0.0
    return math.inf if abs(slope - 1) <= _CRITICAL else abs(1 / math.log(slope))
