r"""Exponential families: everything from the log-partition function.

An exponential family with natural parameter $\eta$, sufficient statistic $T$, base measure $h$ and
log-partition function $A$ has the densities

$$p(y; \eta) = h(y) \exp\big(\langle \eta, T(y) \rangle - A(\eta)\big), \qquad
A(\eta) = \log \int h(y)\, e^{\langle \eta, T(y) \rangle} dy.$$

Where $A$ is finite it is convex, with $\nabla A(\eta) = \mathbb{E}[T(y)]$ and
$\nabla^2 A(\eta) = \mathrm{Cov}[T(y)]$. A network whose output is $\eta$ thus has the loss
$\ell(\eta, y) = A(\eta) - \langle \eta, T(y) \rangle - \log h(y)$ with the gradient
$\mathbb{E}[T(y)] - T(y)$; the canonical link is the inverse of $\nabla A$.

| family | $\eta$ | $A(\eta)$ | $T(y)$ | $h(y)$ |
|---|---|---|---|---|
| gaussian | $\mu$ (unit variance) | $\eta^2 / 2$ | $y$ | $e^{-y^2/2} / \sqrt{2 \pi}$ |
| bernoulli | $\log \frac{p}{1 - p}$ | $\log(1 + e^\eta)$ | $y$ | 1 |
| poisson | $\log \lambda$ | $e^\eta$ | $y$ | $1 / y!$ |
| exponential | $-\lambda < 0$ | $-\log(-\eta)$ | $y$ | 1 |
| categorical | $\log p_k$ + constant | $\log \sum_k e^{\eta_k}$ | one-hot | 1 |

All is exact up to rounding; mean and variance are derivatives of $A$ by autograd, so that a family
of one's own needs no more than its $A$, $T$ and $h$. The claims are `exponential_family`,
`canonical_link` and `negative_log_likelihood`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from vademecum.arguments import choice, floats
from vademecum.randomness import whence

__all__ = ["ExponentialFamily", "glm_loss"]

Elementwise = Callable[[Tensor], Tensor]
Sampler = Callable[[Tensor, torch.Generator | None], Tensor]


def _allow(y: Tensor) -> Tensor:
    return torch.ones_like(y, dtype=torch.bool)


@dataclass(frozen=True, kw_only=True)
class ExponentialFamily:
    r"""An exponential family, from its log-partition, statistic and base measure.

    `ExponentialFamily.named` has the five of the table. The natural parameters of an outcome are
    one number, or with `event=1` the last axis of $\eta$.

    Args:
        log_partition: $A$; takes $\eta$ and removes the axis of an event.
        log_base: $\log h$; takes outcomes, as given with `event=1`, else in the dtype of $\eta$.
        event: The number of axes of one natural parameter, 0 or 1.
        statistic: $T$; takes outcomes, like `log_base`, and the number of natural parameters.
        domain: Where $A$ is finite; takes $\eta$ and answers entry by entry.
        support: Where $h$ is positive; takes outcomes and answers entry by entry.
        link: The canonical link, from means $\mathbb{E}[T(y)]$ to $\eta$, if there is a formula.
        sampler: Draws an outcome for each $\eta$, if there is one.
        name: For errors.

    References:
        Brown, Fundamentals of Statistical Exponential Families, IMS, 1986.
        McCullagh and Nelder, Generalized Linear Models, Chapman and Hall, 1989.

    Example:
        >>> family = ExponentialFamily.named("poisson")
        >>> eta = torch.tensor([0.0, 1.0])
        >>> family.mean(eta), family.variance(eta)
        (tensor([1.0000, 2.7183]), tensor([1.0000, 2.7183]))
        >>> family.log_prob(eta, torch.tensor([2, 0]))  # of 1/(2e) and exp(-e)
        tensor([-1.6931, -2.7183])
        >>> geometric = ExponentialFamily(  # of one's own: failures before a success
        ...     log_partition=lambda eta: -torch.log(-torch.expm1(eta)),
        ...     log_base=torch.zeros_like,
        ...     domain=lambda eta: eta < 0,
        ... )
        >>> geometric.mean(torch.tensor(0.25).log())  # (1 - p) / p with 1 - p = 1/4
        tensor(0.3333)
    """

    log_partition: Elementwise
    log_base: Elementwise
    event: int = 0
    statistic: Callable[[Tensor, int], Tensor] = lambda y, k: y
    domain: Elementwise = _allow
    support: Elementwise = _allow
    link: Elementwise | None = None
    sampler: Sampler | None = None
    name: str = "the family"

    @staticmethod
    def named(name: str) -> "ExponentialFamily":
        """One of "gaussian", "bernoulli", "categorical", "poisson" and "exponential".

        Example:
            >>> ExponentialFamily.named("exponential").mean(torch.tensor([-4.0]))
            tensor([0.2500])
        """
        return _FAMILIES[choice("family", name, tuple(_FAMILIES))]

    def log_prob(
        self, eta: Float[Tensor, " *parameters"], y: Shaped[Tensor, " *outcomes"]
    ) -> Float[Tensor, " *outcomes"]:
        r"""The logarithm of the density, $\langle \eta, T(y) \rangle - A(\eta) + \log h(y)$.

        Raises:
            ValueError: If `eta` leaves the domain, `y` the support, or their shapes differ.
        """
        self._check(eta)
        k = eta.shape[-1] if self.event else 1
        if y.shape != eta.shape[: eta.ndim - self.event]:
            raise ValueError(
                f"y must have shape {tuple(eta.shape[: eta.ndim - self.event])} for eta of shape"
                f" {tuple(eta.shape)}, got shape {tuple(y.shape)}"
            )
        good = self.support(y) & (y < k if self.event else _allow(y))
        if not good.all():
            raise ValueError(f"y must be in the support of {self.name}, got {y[~good][0].item()}")
        outcome = y if self.event else y.to(eta.dtype)  # a class has no rounding
        product = eta * self.statistic(outcome, k)
        inner = product.sum(-1) if self.event else product
        return inner - self.log_partition(eta) + self.log_base(outcome)

    def mean(self, eta: Float[Tensor, " *parameters"]) -> Float[Tensor, " *parameters"]:
        r"""The mean of the statistic, $\nabla A(\eta)$; differentiable."""
        self._check(eta)
        return torch.func.grad(lambda e: self.log_partition(e).sum())(eta)

    def variance(self, eta: Float[Tensor, " *parameters"]) -> Float[Tensor, " *matrices"]:
        r"""The variance of the statistic, $\nabla^2 A(\eta)$; with `event=1` its covariance."""
        self._check(eta)
        if not self.event:
            total = torch.func.grad(lambda e: self.log_partition(e).sum())
            return torch.func.grad(lambda e: total(e).sum())(eta)
        k = eta.shape[-1]
        hessian = torch.func.jacrev(torch.func.grad(self.log_partition))
        return torch.func.vmap(hessian)(eta.reshape(-1, k)).reshape(*eta.shape, k)

    def sample(
        self, eta: Float[Tensor, " *parameters"], *, generator: torch.Generator | None = None
    ) -> Shaped[Tensor, " *outcomes"]:
        """An outcome for each natural parameter; without gradient.

        Args:
            eta: The natural parameters.
            generator: Where random numbers come from; torch's global generator by default.

        Example:
            >>> family = ExponentialFamily.named("bernoulli")
            >>> family.sample(torch.tensor([-100.0, 100.0]))
            tensor([0., 1.])
        """
        self._check(eta)
        if self.sampler is None:
            raise ValueError(f"sampler must be given to sample from {self.name}, got None")
        where = whence(generator, eta.device)
        with torch.no_grad():
            return self.sampler(eta.to(where), generator).to(eta.device)

    def _check(self, eta: Tensor) -> None:
        good = self.domain(floats("eta", eta))
        if not good.all():
            raise ValueError(
                f"eta must be in the domain of {self.name}, got {eta[~good][0].item()}"
            )
        if self.event and not eta.ndim:
            raise ValueError("eta must have at least one axis, got shape ()")


def glm_loss(
    eta: Float[Tensor, " *parameters"],
    y: Shaped[Tensor, " *outcomes"],
    *,
    family: str | ExponentialFamily,
    reduction: str = "mean",
) -> Float[Tensor, " *losses"]:
    r"""The negative log-likelihood $A(\eta) - \langle \eta, T(y) \rangle - \log h(y)$ of a GLM.

    Nothing is left out, also what does not depend on $\eta$, so that losses of different families
    are on one scale: nats.

    Args:
        eta: Natural parameters, a network's output say; for "categorical" the last axis are logits.
        y: Outcomes: real numbers, 0 and 1, counts, positive numbers, or class indices.
        family: A name that `ExponentialFamily.named` knows, or a family.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: If `eta` leaves the family's domain, `y` its support, or their shapes differ.

    Example:
        >>> eta = torch.zeros(2, requires_grad=True)
        >>> loss = glm_loss(eta, torch.tensor([3.0, 1.0]), family="gaussian", reduction="sum")
        >>> loss.backward()
        >>> eta.grad  # mean minus observation
        tensor([-3., -1.])
    """
    choice("reduction", reduction, ("mean", "sum", "none"))
    family = ExponentialFamily.named(family) if isinstance(family, str) else family
    loss = -family.log_prob(eta, y)
    return loss if reduction == "none" else getattr(loss, reduction)()


def _whole(y: Tensor) -> Tensor:
    return (y >= 0) & (y < math.inf) & (y == y.round())


def _draw_categorical(eta: Tensor, generator: torch.Generator | None) -> Tensor:
    p = eta.softmax(-1)
    drawn = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator)
    return drawn.reshape(eta.shape[:-1])


_FAMILIES = {
    "gaussian": ExponentialFamily(
        log_partition=lambda eta: eta**2 / 2,
        log_base=lambda y: -(y**2) / 2 - math.log(2 * math.pi) / 2,
        support=torch.isfinite,
        link=lambda mean: mean,
        sampler=lambda eta, g: torch.empty_like(eta).normal_(generator=g).add_(eta),
        name="gaussian",
    ),
    "bernoulli": ExponentialFamily(
        log_partition=lambda eta: torch.nn.functional.softplus(eta, threshold=80),
        log_base=torch.zeros_like,
        support=lambda y: (y == 0) | (y == 1),
        link=torch.logit,
        sampler=lambda eta, g: torch.bernoulli(eta.sigmoid(), generator=g),
        name="bernoulli",
    ),
    "categorical": ExponentialFamily(
        log_partition=lambda eta: eta.logsumexp(-1),
        log_base=torch.zeros_like,
        event=1,
        statistic=lambda y, k: torch.nn.functional.one_hot(y.long(), k),
        support=_whole,
        link=lambda mean: mean.log(),
        sampler=_draw_categorical,
        name="categorical",
    ),
    "poisson": ExponentialFamily(
        log_partition=torch.exp,
        log_base=lambda y: -torch.lgamma(y + 1),
        support=_whole,
        link=torch.log,
        sampler=lambda eta, g: torch.poisson(eta.exp(), generator=g),
        name="poisson",
    ),
    "exponential": ExponentialFamily(
        log_partition=lambda eta: -torch.log(-eta),
        log_base=torch.zeros_like,
        domain=lambda eta: eta < 0,
        support=lambda y: (y >= 0) & (y < math.inf),
        link=lambda mean: -1 / mean,
        sampler=lambda eta, g: torch.empty_like(eta).exponential_(generator=g) / -eta,
        name="exponential",
    ),
}
