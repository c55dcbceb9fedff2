r"""How much two estimates of one gradient vary: pathwise, and by the score function.

For $z = \mu + \sigma \odot \eta$ with standard normal noise, $\nabla_{\mu, \sigma} \mathbb E[f(z)]$
is the mean of either

$$\bigl(\nabla f(z),\ \nabla f(z) \odot \eta\bigr) \qquad \text{or} \qquad
(f(z) - b) \Bigl(\frac{\eta}{\sigma},\ \frac{\eta^2 - 1}{\sigma}\Bigr).$$

The first needs the gradient of $f$, the second only its values. Each is estimated from the same
draws, its variance without bias and with the standard error of a sample variance $s^2$ with fourth
central moment $m_4$, $\sqrt{(m_4 - \frac{n - 3}{n - 1} s^4) / n}$. Claim: `pathwise_gradient`.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, whole
from vademecum.foundations import score_function_gradient
from vademecum.models import bytes_each
from vademecum.randomness import given_back, source
from vademecum.results import one_line

__all__ = ["GradientMoments", "GradientVariance", "gradient_variance"]

_PORTION = 2**26  # bytes at a time without a limit


class GradientMoments(NamedTuple):
    r"""What a way to estimate a gradient gives: in $\mu$ in row 0, in $\sigma$ in row 1.

    Example:
        >>> zero = torch.zeros(2, 1)
        >>> GradientMoments(zero, zero, zero, zero).gradient
        tensor([[0.], [0.]])
    """

    gradient: Float[Tensor, " 2 *shape"]
    """The mean over the draws."""
    standard_error: Float[Tensor, " 2 *shape"]
    """Its standard error."""
    variance: Float[Tensor, " 2 *shape"]
    """The variance of the estimate from one draw."""
    variance_error: Float[Tensor, " 2 *shape"]
    """The standard error of that variance."""

    __repr__ = one_line


class GradientVariance(NamedTuple):
    """Two ways to estimate a gradient, from the same draws.

    Example:
        >>> found = gradient_variance(lambda z: z.square().sum(1), torch.ones(1), torch.ones(1))
        >>> pathwise, score = found.pathwise.variance[0], found.score.variance[0]
        >>> bool(score > 3 * pathwise)  # 30 and 4
        True
    """

    pathwise: GradientMoments
    """Through the draws."""
    score: GradientMoments
    """By the score function."""

    __repr__ = one_line


def gradient_variance(
    f: Callable[[Float[Tensor, " n *shape"]], Float[Tensor, " n"]],
    mean: Float[Tensor, " *shape"],
    std: Float[Tensor, " *shape"],
    *,
    draws: int = 10_000,
    baseline: float | Literal["leave_one_out"] = 0.0,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> GradientVariance:
    r"""Compare two estimates of $\nabla_{\mu, \sigma} \mathbb E[f(z)]$: pathwise, score function.

    Args:
        f: A differentiable function of draws, a value for each row, that does not mix rows.
        mean: The means $\mu$ of independent normal coordinates.
        std: Their standard deviations $\sigma$.
        draws: How many draws to take, two or more.
        baseline: What the score-function estimate takes off the values: a number, or
            "leave_one_out", the mean of the others that are drawn at the same time.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If a deviation is not positive, `f` does not give a finite number for each row,
            or is no differentiable function of them.

    Example:
        >>> mean, std = torch.zeros(2), torch.ones(2)
        >>> found = gradient_variance(lambda z: z @ torch.tensor([1.0, 2.0]), mean, std)
        >>> found.pathwise.variance[0].tolist()  # the gradient of a linear function is constant
        [0.0, 0.0]
    """
    floats("mean", mean)
    if floats("std", std).shape != mean.shape:
        raise ValueError(
            f"std must have the shape of the mean, {tuple(mean.shape)}, got {tuple(std.shape)}"
        )
    if float(std.min()) <= 0:
        raise ValueError(f"std must be > 0, got {float(std.min()):.6g}")
    whole("draws", draws, low=2)
    mean, std = mean.detach(), std.detach()
    rows = _rows_at_once(f, mean, std, memory)
    pathwise, score = _Moments(), _Moments()
    starts = list(range(0, draws, max(2, rows)))
    if draws - starts[-1] == 1 and len(starts) > 1:
        starts.pop()  # no draw is left alone, which would have no others to leave it out of
    for start, stop in zip(starts, [*starts[1:], draws], strict=True):
        shape = (stop - start, *mean.shape)
        noise = torch.randn(shape, dtype=mean.dtype, **source(generator, mean.device))
        found = _gradients(f, mean, std, noise.to(mean.device), baseline)
        pathwise.add(found[0])
        score.add(found[1])
        del noise, found  # before the next ones are made
    return GradientVariance(pathwise.result(mean.dtype), score.result(mean.dtype))


@torch.enable_grad()
def _gradients(
    f: Callable[[Tensor], Tensor],
    mean: Tensor,
    std: Tensor,
    noise: Tensor,
    baseline: float | Literal["leave_one_out"],
) -> tuple[Tensor, Tensor]:
    """The estimates from each draw by both ways, (2, n, ...)."""
    n = len(noise)
    means, stds = (t.expand_as(noise).clone().requires_grad_() for t in (mean, std))
    z = means + stds * noise
    values = f(z)
    if not isinstance(values, Tensor) or values.shape != (n,):
        given = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"f must give one number for each of {n} rows, got {given}")
    if not values.requires_grad:
        raise ValueError("f must be a differentiable function of its argument, got a constant")
    floats("f", values.detach())
    path = torch.autograd.grad(values.sum(), [means, stds], materialize_grads=True)
    away = std * noise - (means - mean)  # z - mean, without the digits that z has lost
    log_prob = -((away / stds).square() / 2 + stds.log()).reshape(n, -1).sum(1)
    score = score_function_gradient(log_prob, values, [means, stds], baseline=baseline)
    return torch.stack(path), n * torch.stack(score)  # the mean over draws splits by its rows


def _rows_at_once(
    f: Callable[[Tensor], Tensor], mean: Tensor, std: Tensor, memory: int | None
) -> int:
    """How many draws at a time keep to the limit, two or more, from the work on a few."""
    if memory is None:
        return _PORTION // (16 * mean.numel() * mean.element_size())
    with given_back(None):
        noise = torch.randn((3, *mean.shape), dtype=mean.dtype, device=mean.device)

    def work(some: Tensor) -> None:
        for found in _gradients(f, mean, std, some, 0.0):
            _Moments().add(found)

    fixed, each = bytes_each(work, noise)
    if whole("memory", memory, low=1) < fixed + 2 * each:
        raise ValueError(f"memory must be >= {fixed + 2 * each} bytes for two draws, got {memory}")
    return (memory - fixed) // each


class _Moments:
    """The first four moments of numbers that come in portions, about a mean of the first ones."""

    def __init__(self):
        self._n, self._sums = 0, [torch.zeros(())] * 4
        self._centre = torch.zeros(())

    def add(self, found: Tensor) -> None:
        found = found.double()
        if not self._n:
            self._centre = found.mean(1)
        away = found - self._centre[:, None]
        self._n += found.shape[1]
        self._sums = [
            total.to(away) + (away**power).sum(1) for power, total in enumerate(self._sums, 1)
        ]

    def result(self, dtype: torch.dtype) -> GradientMoments:
        n, (one, two, three, four) = self._n, [total / self._n for total in self._sums]
        spread = (two - one**2).clamp(min=0)
        fourth = four - 4 * one * three + 6 * one**2 * two - 3 * one**4
        variance = spread * (n / (n - 1))
        error = ((fourth - (n - 3) / (n - 1) * variance**2).clamp(min=0) / n).sqrt()
        numbers = self._centre + one, (variance / n).sqrt(), variance, error
        return GradientMoments(*(number.to(dtype) for number in numbers))
