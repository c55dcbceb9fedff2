r"""Ensembles of weights that are not drawn from the posterior, and count by importance.

For draws $\theta_j \sim \rho$ and the posterior $e^{-E} / Z$ the average

$$\bar f(x) = \frac{\sum_j w_j f_{\theta_j}(x)}{\sum_j w_j}, \qquad w_j =
\frac{e^{-E(\theta_j)}}{\rho(\theta_j)},$$

tends to the posterior's mean prediction, where $\rho$ is positive wherever the posterior is. So the
weights are $e^{-E}$ for uniform draws, the likelihood for draws from the prior, and equal for draws
from the posterior. The average is worth $(\sum_j w_j)^2 / \sum_j w_j^2$ equal ones; $\frac1n \sum_j
w_j$ estimates $Z$, the evidence. All in logarithms, so that no weight over- or underflows. Exact up
to rounding for the draws given. The claim is `importance_weighted_ensemble`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import choice, floats
from vademecum.estimators import warn_unconverged
from vademecum.results import one_line

__all__ = ["ImportanceEnsemble", "importance_ensemble"]

_FEW = 5.0  # effective draws below which an average is that of a few


class ImportanceEnsemble(NamedTuple):
    """Weights of a network, and how much each of them counts.

    Example:
        >>> draws = torch.tensor([[0.0], [1.0]])
        >>> importance_ensemble(lambda t: t[:, 0], draws, law="posterior").effective
        2.0
    """

    draws: Float[Tensor, " n P"]
    """The draws, a vector of parameters in each row."""
    log_weights: Float[Tensor, " n"]
    r"""The logarithms of their shares $w_j / \sum_i w_i$."""
    effective: float
    """How many equal draws they are worth."""
    log_evidence: float
    r"""The logarithm of $\frac1n \sum_j w_j$: that of the evidence, if energies and the law of the
    draws lack no constants."""

    __repr__ = one_line


def importance_ensemble(
    energy: Callable[[Tensor], Tensor],
    draws: Float[Tensor, " n P"],
    *,
    law: str | Float[Tensor, " n"] | Callable[[Tensor], Tensor],
) -> ImportanceEnsemble:
    r"""Weigh draws of parameters so that averages over them are averages over the posterior.

    A `ConvergenceWarning` says if they are worth fewer than five, and than half of them.

    Args:
        energy: The energies of rows of parameters, (n, P) -> (n,): `posterior`, or any function.
            Infinite ones count for nothing.
        draws: The draws, a vector of parameters in each row.
        law: Where they come from, for there is no right weight without: "uniform", "posterior" (as
            from chains), or the logarithms $\log \rho(\theta_j)$ of their densities up to a
            constant, (n,), or a function of the draws that gives these. For draws from a prior
            $\mathcal N(0, \sigma^2 I)$ that is `lambda t: -(t / sigma).square().sum(1) / 2`.

    Raises:
        ValueError: If draws or energies are NaN, no draw has a finite energy, a density is zero, or
            there is not one for each draw.

    Example:
        >>> draws = torch.tensor([[0.0], [1.0], [2.0]])
        >>> energy = lambda t: t[:, 0] * torch.tensor(2.0).log()
        >>> importance_ensemble(energy, draws, law="uniform").log_weights.exp()  # 1 : 1/2 : 1/4
        tensor([0.5714, 0.2857, 0.1429])
    """
    floats("draws", draws, ndim=2)
    with torch.no_grad():
        log_density = _log_density(law, draws)
        if log_density is None:
            log_weights = draws.new_zeros(len(draws))
        else:
            log_weights = -_energies(energy, draws) - log_density
    total = log_weights.logsumexp(0)
    shares = log_weights - total
    found = ImportanceEnsemble(
        draws, shares, float(torch.exp(-(2 * shares).logsumexp(0))),
        float(total) - math.log(len(draws)),
    )  # fmt: skip
    if found.effective < min(_FEW, len(draws) / 2):
        warn_unconverged(
            f"{len(draws)} draws are worth {found.effective:.3g}: their law is far from the"
            " posterior"
        )
    return found


def _log_density(law: Any, draws: Tensor) -> Tensor | None:
    """The logarithms of the densities of draws; None for the posterior's own."""
    if isinstance(law, str):
        choice("law", law, ("uniform", "posterior"))
        return None if law == "posterior" else draws.new_zeros(len(draws))
    found = law if isinstance(law, Tensor) else law(draws)
    if not isinstance(found, Tensor) or found.shape != (len(draws),):
        given = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"law must give one number for each of {len(draws)} draws, got {given}")
    return floats("law", found)


def _energies(energy: Callable[[Tensor], Tensor], draws: Tensor) -> Tensor:
    found = energy(draws)
    if not isinstance(found, Tensor) or found.shape != (len(draws),):
        given = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"energy must give one number for each of {len(draws)} draws, got {given}")
    if bool((found.isnan() | (found == -math.inf)).any()):
        raise ValueError("energy must give numbers or infinity, got NaN or -infinity")
    if bool(found.isinf().all()):
        raise ValueError("energy must be finite for a draw, got infinity for all of them")
    return found
