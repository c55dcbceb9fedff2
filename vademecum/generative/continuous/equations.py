r"""Noising in continuous time: $dx = f(x, t)\, dt + g(t)\, dW$ for $0 \le t \le 1$.

| process | $f(x, t)$ | $g(t)^2$ | scale $s_t$ | variance $\sigma_t^2$ |
|---|---|---|---|---|
| `VPSDE` | $-\frac12 \beta(t) x$ | $\beta(t)$ | $e^{-B(t) / 2}$ | $1 - e^{-B(t)}$ |
| `VESDE` | 0 | $\frac{d \sigma^2(t)}{dt}$ | 1 | $\sigma^2(t) - \sigma^2(0)$ |

with $\beta(t) = \beta_0 + t (\beta_1 - \beta_0)$, $B(t) = \int_0^t \beta$ and $\sigma(t) =
\sigma_0 (\sigma_1 / \sigma_0)^t$. At $t = 0$ examples are clean, exactly: the variance of the
second process is what the equation adds from there on, where others keep $\sigma^2(t)$ and call
$\sigma(0)$ clean. At $t = 1$ little is left of them, and the prior is normal with the
variance $s_1^2 + \sigma_1^2$ that data of unit variance have there, 1 for the first process. It is
an approximation, whose error is what the data's means and shape still do at that time. The claim is
`diffusion_sde`.

References:
    Song, Sohl-Dickstein, Kingma, Kumar, Ermon and Poole, Score-based generative modeling through
    stochastic differential equations, ICLR, 2021.
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import number
from vademecum.generative._marginals import Marginal, beside
from vademecum.randomness import place, source

__all__ = ["VESDE", "VPSDE", "DiffusionSDE", "insist_on_equation", "insist_on_times"]


class DiffusionSDE(ABC):
    r"""An equation between clean examples at time 0 and noise at time 1; the base of your own.

    The drift must be linear in the examples, or their marginals would not be normal.

    Example:
        >>> from vademecum.generative._marginals import Marginal
        >>> class Straight(DiffusionSDE):  # noise of standard deviation 3 t
        ...     def drift(self, x, t):
        ...         return torch.zeros_like(x)
        ...
        ...     def diffusion(self, t):
        ...         return (18 * t.double()).sqrt()  # the root of the variance's derivative
        ...
        ...     def marginal(self, t):
        ...         return Marginal(torch.ones_like(t.double()), 3 * t.double())
        >>> Straight().prior_log_prob(torch.zeros(1, 2))  # -log(2 pi 10)
        tensor([-4.1405])
    """

    @abstractmethod
    def drift(self, x: Tensor, t: Tensor) -> Tensor:
        """The mean change of examples per unit of time.

        Args:
            x: Examples, (n, ...).
            t: Their times, (n,), or one for all.
        """

    @abstractmethod
    def diffusion(self, t: Tensor) -> Tensor:
        """The factor of the noise, in float64, with the shape of t.

        Args:
            t: Times between 0 and 1.
        """

    @abstractmethod
    def marginal(self, t: Tensor) -> Marginal:
        """The law of an example at a time given the clean one, in float64.

        Args:
            t: Times between 0 and 1.
        """

    def sample_prior(
        self,
        shape: tuple[int, ...],
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw noise, as there is at time 1.

        Args:
            shape: The shape, with the number of examples first.
            dtype: The dtype; torch's default by default.
            device: Where; by default where the generator is.
            generator: Where random numbers come from; torch's global generator by default.
        """
        dtype, device = place(generator, dtype, device)
        noise = torch.randn(shape, dtype=dtype, **source(generator, device))
        return noise.to(device) * self._prior_std()

    def prior_log_prob(self, x: Float[Tensor, " n *shape"]) -> Float[Tensor, " n"]:
        """The log-density of such noise.

        Args:
            x: Examples at time 1.
        """
        std, d = self._prior_std(), x[0].numel() if len(x) else 0
        size = (x.flatten(1) / std).square().sum(1)
        return -(size + d * (math.log(2 * math.pi) + 2 * math.log(std))) / 2

    def _prior_std(self) -> float:
        return math.hypot(*map(float, self.marginal(torch.ones(()))))


def insist_on_equation(process: Any) -> DiffusionSDE:
    """An equation as an argument: a schedule of steps has neither drift nor diffusion."""
    if not isinstance(process, DiffusionSDE):
        given = type(process).__name__
        raise ValueError(f"process must be a DiffusionSDE, such as VPSDE(), got {given}")
    return process


def insist_on_times(name: str, t: Tensor, process: Any) -> None:
    """Times of an equation as an argument; of other processes they are for these to judge."""
    if isinstance(process, DiffusionSDE):
        outside = ~((t >= 0) & (t <= 1))
        if bool(outside.any()):
            raise ValueError(f"{name} must be between 0 and 1, got {t[outside][0].item():g}")


class VPSDE(DiffusionSDE):
    r"""The variance-preserving process, the continuous limit of the noising chain of DDPM.

    Args:
        beta_min: The rate of noising at time 0, $\beta_0$.
        beta_max: The rate at time 1, $\beta_1$.

    Example:
        >>> VPSDE().marginal(torch.tensor([0.0, 1.0]))
        Marginal(scale=tensor([1.0000, 0.0066], ...), std=tensor([0.0000, 1.0000], ...))
    """

    def __init__(self, *, beta_min: float = 0.1, beta_max: float = 20.0):
        self.beta_min = number("beta_min", beta_min, above=0)
        self.beta_max = number("beta_max", beta_max, above=0)

    def __repr__(self) -> str:
        """What makes it again."""
        return f"VPSDE(beta_min={self.beta_min}, beta_max={self.beta_max})"

    def drift(self, x: Tensor, t: Tensor) -> Tensor:
        r"""The mean change of examples per unit of time, $-\frac12 \beta(t) x$.

        Args:
            x: Examples, (n, ...).
            t: Their times, (n,), or one for all.
        """
        return beside(-0.5 * self._beta(t), x) * x

    def diffusion(self, t: Tensor) -> Tensor:
        r"""The factor of the noise, $\sqrt{\beta(t)}$, in float64, with the shape of t.

        Args:
            t: Times between 0 and 1.
        """
        return self._beta(t).sqrt()

    def marginal(self, t: Tensor) -> Marginal:
        """The law of an example at a time given the clean one, in float64.

        Args:
            t: Times between 0 and 1.
        """
        t = t.double()
        total = self.beta_min * t + (self.beta_max - self.beta_min) * t * t / 2
        return Marginal((-total / 2).exp(), (-torch.expm1(-total)).sqrt())

    def _beta(self, t: Tensor) -> Tensor:
        return self.beta_min + t.double() * (self.beta_max - self.beta_min)


class VESDE(DiffusionSDE):
    r"""The variance-exploding process: noise is added, and the examples are left as they are.

    Args:
        sigma_min: What the standard deviation of the noise starts to grow from, $\sigma_0$.
        sigma_max: What it reaches at time 1, $\sigma_1$.

    Example:
        >>> VESDE(sigma_min=3.0, sigma_max=5.0).marginal(torch.tensor([0.0, 1.0]))
        Marginal(scale=tensor([1., 1.], ...), std=tensor([0., 4.], ...))
    """

    def __init__(self, *, sigma_min: float = 0.01, sigma_max: float = 50.0):
        self.sigma_min = number("sigma_min", sigma_min, above=0)
        self.sigma_max = number("sigma_max", sigma_max, above=self.sigma_min)

    def __repr__(self) -> str:
        """What makes it again."""
        return f"VESDE(sigma_min={self.sigma_min}, sigma_max={self.sigma_max})"

    def drift(self, x: Tensor, t: Tensor) -> Tensor:
        """The mean change of examples per unit of time, none.

        Args:
            x: Examples, (n, ...).
            t: Their times, (n,), or one for all.
        """
        return torch.zeros_like(x)

    def diffusion(self, t: Tensor) -> Tensor:
        r"""The factor of the noise, $\sigma(t) \sqrt{2 \log(\sigma_1 / \sigma_0)}$, in float64.

        Args:
            t: Times between 0 and 1.
        """
        rate = math.log(self.sigma_max / self.sigma_min)
        return self.sigma_min * (rate * t.double()).exp() * math.sqrt(2 * rate)

    def marginal(self, t: Tensor) -> Marginal:
        """The law of an example at a time given the clean one, in float64.

        Args:
            t: Times between 0 and 1.
        """
        t = t.double()
        grown = torch.expm1(2 * math.log(self.sigma_max / self.sigma_min) * t)
        return Marginal(torch.ones_like(t), self.sigma_min * grown.sqrt())
