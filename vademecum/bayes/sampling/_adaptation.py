r"""What warm-up learns from all chains together: a step size, and the covariance of the target.

**Dual averaging** (Nesterov) drives the mean acceptance $\alpha_t$ to a target $\alpha$:

$$\bar h_t = \Big(1 - \frac1{t + t_0}\Big) \bar h_{t - 1} + \frac{\alpha - \alpha_t}{t + t_0},
\qquad \log \eta_t = \mu - \frac{\sqrt t}\gamma\, \bar h_t,$$

and $\log \bar\eta_t$ is a mean of the $\log \eta_t$ with weights $t^{-\kappa}$: too few acceptances
make $\bar h$ positive and the step smaller. **The covariance** is that of all draws of a window, of
all chains, shrunk towards a small multiple of the identity. Windows double, as Stan's do: the first
ones forget where chains began.

References:
    Hoffman and Gelman, The No-U-Turn sampler, Journal of Machine Learning Research, 2014.
"""

import math

import torch
from torch import Tensor

from vademecum.bayes.sampling._teams import Member
from vademecum.bayes.steps._masses import Mass

__all__ = ["DualAveraging", "Spread", "windows"]

_GAMMA, _T0, _KAPPA = 0.05, 10, 0.75  # as in Hoffman and Gelman
_FIRST, _LAST, _WINDOW = 75, 50, 25  # steps of a warm-up of 1,000, as in Stan
_SHRINKAGE, _FLOOR = 5, 1e-3  # as in Stan


class DualAveraging:
    """A step size that reaches an acceptance rate."""

    def __init__(self, eta: float, target: float):
        self.target = target
        self.restart(eta)

    def restart(self, eta: float) -> None:
        """Begin anew at a step size."""
        self.eta = self.averaged = eta
        self._mu = math.log(10 * eta)
        self._error, self._log_mean, self._t = 0.0, 0.0, 0

    def update(self, acceptance: float) -> None:
        """Learn from the acceptance of one step."""
        self._t += 1
        weight = 1 / (self._t + _T0)
        self._error = (1 - weight) * self._error + weight * (self.target - acceptance)
        log_eta = self._mu - math.sqrt(self._t) / _GAMMA * self._error
        share = self._t**-_KAPPA
        self._log_mean = share * log_eta + (1 - share) * self._log_mean
        self.eta, self.averaged = math.exp(log_eta), math.exp(self._log_mean)


class Spread:
    """The covariance of points that come in batches, one from each chain: diagonal or dense."""

    def __init__(self, like: Tensor, dense: bool, member: Member):
        self._like, self._dense, self._member = like, dense, member
        self.restart()

    def restart(self) -> None:
        """Forget all points."""
        P = self._like.shape[-1]
        self.count = 0
        self._mean = self._like.new_zeros(P)
        self._squares = self._like.new_zeros((P, P) if self._dense else (P,))

    def update(self, theta: Tensor) -> None:
        """Take in a row from each chain, of all members."""
        k = self._member.chains
        mean = self._member.mean(theta)
        own = theta - mean
        gap, total = mean - self._mean, self.count + k
        weight = self.count * k / total
        if self._dense:
            self._squares += self._member.total(own.mT @ own) + weight * torch.outer(gap, gap)
        else:
            self._squares += self._member.total(own.square().sum(0)) + weight * gap.square()
        self._mean += gap * (k / total)
        self.count = total

    def mass(self) -> Mass:
        """The mass whose inverse is the covariance, shrunk where points are few."""
        share = self.count / (self.count + _SHRINKAGE)
        covariance = self._squares * (share / max(self.count - 1, 1))
        floor = _FLOOR * (1 - share)
        return Mass(covariance + floor * (self._eye() if self._dense else 1))

    def _eye(self) -> Tensor:
        return torch.eye(len(self._mean), dtype=self._mean.dtype, device=self._mean.device)


def windows(warmup: int) -> tuple[int, list[int]]:
    """When the covariance begins to be learned, and after which steps it is used.

    Example:
        >>> windows(1000)
        (75, [100, 150, 250, 450, 950])
        >>> windows(100), windows(10)
        ((15, [40, 90]), (10, []))
    """
    if warmup < 20:
        return warmup, []
    first, last = (_FIRST, _LAST) if warmup >= 150 else (int(0.15 * warmup), int(0.1 * warmup))
    end, ends, size = warmup - last, [], _WINDOW
    at = first
    while at < end:
        at = end if at + 3 * size > end else at + size
        ends.append(at)
        size *= 2
    return first, ends
