r"""What mean-field theory knows of a layer's map: moments forward, sums of squares backward.

A signal is an `Estimate` $(q, p, m)$: the mean square of its entries, the mean product of the same
entry for two examples, the mean. Weights and biases are independent of the signal, entries of
weights independent with mean 0 and variance $v$ (here: their mean square), $k$ inputs for each
output, counted exactly where a kernel reaches over the edge; $u$ is Gaussian.

| map | forward | squares of gradients, times |
|---|---|---|
| weights | $q' = k v q + \overline{b^2}$, likewise $p'$; $m' = \bar b$ | $k v$ |
| $a u + b$ | $\overline{a^2} q + 2 \overline{ab} m + \overline{b^2}$ | $\overline{a^2}$ |
| activation | $E \phi(u)^2$, $E \phi(u) \phi(u')$, $E \phi(u)$ | $E \phi'(u)^2$ |
| sum | $q_1 + q_2 + 2 m_1 m_2$, likewise $p'$ | 1 for both |
| norm of $d$ | $\overline{a^2} v / (v + \varepsilon) + \overline{b^2}$ | $a^2 (1 - \frac2d) / v$ |
| pooling of $P$ entries | as much less as measured | $1/P$ for means, 1 for maxima |

A norm's $v$ is $q$ less the square of what is taken off: $m^2$, for small groups the part that was
measured, for batches the part that their statistics have, which all examples have in common. The
products of gradients of two examples go along, with $E \phi'(u) \phi'(u')$ for activations, and for
maxima the chance of one place for both, $1/P + (1 - 1/P) (2/\pi) \arcsin c$, exact for two.
Exact in expectation over the weights for weights of equal size; where weights are wide for all.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.expectations import GaussianExpectations
from vademecum.regularization.signal._gaussian_signals import through
from vademecum.regularization.signal._measured_moments import Measured, cross_moment

__all__ = [
    "Activation", "Affine", "Estimate", "Joined", "LayerMap", "Noise", "Normalised", "Pooled",
    "Standardised", "Sum", "Weights", "squares",
]  # fmt: skip


class Estimate(NamedTuple):
    """The moments of a signal as theory follows them."""

    q: float
    p: float
    m: float


Factors = list[tuple[float, float]]
"""For each input, what the sums of squares and of products of gradients are multiplied by."""


def squares(t: Tensor) -> Tensor:
    """The mean square and the mean of a tensor, in double precision, where it is."""
    t = t.detach()
    n = max(t.numel(), 1)
    if t.dtype == torch.float64 or n < 2**16:
        flat = t.double().reshape(-1)
        return torch.stack([flat @ flat, flat.sum()]) / n
    flat = t.float().reshape(-1)
    second = torch.linalg.vector_norm(flat).double().square() / n
    return torch.stack([second, flat.sum().double() / n])


class LayerMap:
    """A map of estimates; `None` where it cannot tell."""

    def forward(self, given: Sequence[Estimate]) -> Estimate | None:
        """The moments of what comes out."""
        raise NotImplementedError

    def backward(self, given: Sequence[Estimate]) -> Factors:
        """The factors of the squares of gradients, summed over entries."""
        raise NotImplementedError


class Weights(LayerMap):
    """Independent weights."""

    def __init__(self, fan: float, weight: Tensor, bias: Tensor | None):
        self.fan, self._weight, self._bias = fan, weight, bias

    def forward(self, given: Sequence[Estimate]) -> Estimate:
        (u,), gain = given, self.gain
        b2, b1 = (0.0, 0.0) if self._bias is None else self._bias.tolist()
        return Estimate(gain * u.q + b2, gain * u.p + b2, b1)

    def backward(self, given: Sequence[Estimate]) -> Factors:
        return [(self.gain, self.gain)]

    @property
    def gain(self) -> float:
        """Inputs times variance."""
        return self.fan * float(self._weight[0])


class Affine(LayerMap):
    """A factor and a summand for each entry, of which the means are known."""

    def __init__(self, a: Tensor | None = None, b: Tensor | None = None, ab: Tensor | None = None):
        self._a, self._b, self._ab = a, b, ab

    def _means(self) -> tuple[float, float, float, float, float]:
        a2, a1 = (1.0, 1.0) if self._a is None else self._a.tolist()
        b2, b1 = (0.0, 0.0) if self._b is None else self._b.tolist()
        return a2, a1, b2, b1, a1 * b1 if self._ab is None else float(self._ab)

    def forward(self, given: Sequence[Estimate]) -> Estimate:
        (u,) = given
        a2, a1, b2, b1, ab = self._means()
        shift = 2 * ab * u.m + b2
        return Estimate(a2 * u.q + shift, a2 * u.p + shift, a1 * u.m + b1)

    def backward(self, given: Sequence[Estimate]) -> Factors:
        a2 = self._means()[0]
        return [(a2, a2)]


class Activation(LayerMap):
    """A function of each entry."""

    def __init__(
        self, function: Callable[[Tensor], Tensor], exact: GaussianExpectations | None = None
    ):
        self.function, self._exact = function, exact
        self._known: tuple[Any, Any] = (None, None)

    def _through(self, u: Estimate) -> Any:
        if self._known[0] != u:
            self._known = u, through(self.function, self._exact, *u)
        return self._known[1]

    def forward(self, given: Sequence[Estimate]) -> Estimate | None:
        found = self._through(given[0])[:3]
        return Estimate(*found) if all(map(math.isfinite, found)) else None

    def backward(self, given: Sequence[Estimate]) -> Factors:
        return [self._through(given[0])[3:]]


class Sum(LayerMap):
    """The sum of signals, the second times a factor, that know nothing of each other."""

    def __init__(self, factor: float = 1.0):
        self._factor = factor

    def forward(self, given: Sequence[Estimate]) -> Estimate:
        u, v = given
        f = self._factor
        cross = 2 * f * u.m * v.m
        return Estimate(u.q + f * f * v.q + cross, u.p + f * f * v.p + cross, u.m + f * v.m)

    def backward(self, given: Sequence[Estimate]) -> Factors:
        square = self._factor**2
        return [(1.0, 1.0), (square, square)]


class Noise(LayerMap):
    """Dropout that is on: entries are dropped with probability `share`, the others grow."""

    def __init__(self, share: float):
        self._gain = 1 / (1 - share) if share < 1 else 0.0

    def forward(self, given: Sequence[Estimate]) -> Estimate:
        (u,) = given
        return Estimate(self._gain * u.q, u.p, u.m) if self._gain else Estimate(0.0, 0.0, 0.0)

    def backward(self, given: Sequence[Estimate]) -> Factors:
        return [(self._gain, 1.0)]


class Normalised(LayerMap):
    """Signals of size one over `d` entries, then a factor and a summand for each entry.

    Args:
        d: How many entries are normalised together.
        eps: What is added to their variance.
        affine: The factors and summands.
        centred: Whether their mean is taken off.
        shares: Of the second moment, the parts that go with these means: in the square, and in the
            product of two examples; and the mean of their inverse variances times their variances'
            mean. By default those of the mean of all entries, and 1.
    """

    def __init__(
        self, d: int, eps: float, affine: Affine, *, centred: bool, shares: Tensor | None = None
    ):
        self._d, self._eps, self._affine, self._centred = d, eps, affine, centred
        self._shares = shares

    def _taken_off(self, u: Estimate) -> tuple[float, float]:
        if not self._centred:
            return 0.0, 0.0
        if self._shares is None:
            return u.m**2, u.m**2
        square, product, _ = self._shares.tolist()
        return square * u.q, product * u.q

    def _variance(self, u: Estimate) -> float:
        return max(u.q - self._taken_off(u)[0], 0.0) + self._eps

    def forward(self, given: Sequence[Estimate]) -> Estimate | None:
        (u,) = given
        square, product = self._taken_off(u)
        v = self._variance(u)
        if v <= 0:
            return None
        mean = 0.0 if self._centred else u.m / v**0.5
        left = max(u.q - square, 0.0)
        common = min(max(u.p - product, -left), left)  # what theory and measurement leave may clash
        return self._affine.forward([Estimate(left / v, common / v, mean)])

    def backward(self, given: Sequence[Estimate]) -> Factors:
        ((a2, _),) = self._affine.backward(given)
        kept = max(1 - (1 + self._centred) / self._d, 0.0)  # directions that do not matter
        uneven = 1.0 if self._shares is None else float(self._shares[2])
        factor = a2 * kept * uneven / max(self._variance(given[0]), 1e-300)
        return [(factor, factor)]


class Standardised(LayerMap):
    """Batch normalisation by its statistics: if these are of no data yet, a factor, else true.

    Their means are common to all examples: a product of two is no less than the part of these.
    """

    def __init__(self, affine: Affine, normalised: Normalised, fresh: Tensor, share: Tensor):
        self._affine, self._normalised, self._fresh = affine, normalised, fresh
        self._share = share

    def forward(self, given: Sequence[Estimate]) -> Estimate | None:
        (u,) = given
        if bool(self._fresh):
            return self._affine.forward([u])
        return self._normalised.forward([u._replace(p=max(u.p, float(self._share) * u.q))])

    def backward(self, given: Sequence[Estimate]) -> Factors:
        return self._affine.backward(given)


class Pooled(LayerMap):
    """Means or maxima over entries, of signals as they were measured, at the scale predicted."""

    def __init__(self, before: Measured, after: Measured, entries: float, *, largest: bool):
        self._before, self._after, self._entries, self._largest = before, after, entries, largest

    def forward(self, given: Sequence[Estimate]) -> Estimate | None:
        (u,) = given
        before, after = self._before.tolist(), self._after.tolist()
        q, p = (before[1] / before[0], cross_moment(before))
        if q <= 0 or u.q <= 0:
            return None
        scale = u.q / q
        same = p == q or u.p == u.q
        share = 1.0 if same else min(max((u.q - u.p) / (q - p) / scale, 0.0), 1e300)
        out, cross = after[1] / after[0], cross_moment(after)
        # what is common to examples and what is not shrink each as they did
        return Estimate(scale * out, scale * (out - share * (out - cross)),
                        scale**0.5 * after[3] / after[0])  # fmt: skip

    def backward(self, given: Sequence[Estimate]) -> Factors:
        (u,), share = given, 1 / self._entries
        if not self._largest:
            return [(share, share)]
        spread = u.q - u.m**2
        c = min(max((u.p - u.m**2) / spread, -1.0), 1.0) if spread > 0 else 1.0
        # the chance that the largest is at the same place for two examples
        return [(1.0, share + (1 - share) * math.asin(c) * 2 / math.pi)]


class Joined(LayerMap):
    """Signals beside each other, with their shares of the entries."""

    def __init__(self, shares: list[float]):
        self._shares = shares

    def forward(self, given: Sequence[Estimate]) -> Estimate:
        weighted = [[s * e for e in u] for s, u in zip(self._shares, given, strict=True)]
        return Estimate(*map(sum, zip(*weighted, strict=True)))

    def backward(self, given: Sequence[Estimate]) -> Factors:
        return [(s, s) for s in self._shares]
