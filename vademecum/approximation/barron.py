r"""Barron's networks: one sigmoidal unit after the other, chosen greedily.

$$f_m(x) = b_0 + \sum_{j = 1}^m \beta_j\, \sigma(\theta_j^\top x + b_j), \qquad
\sigma(t) = \frac{1}{1 + e^{-\kappa t}} \ \text{ or the step } [t > 0] \ (\kappa = \infty).$$

If $f$ has Barron's constant $C_f$ and $\mu$ is a distribution on the ball of radius $r$, there are
$f_m$ with $\int (f - f_m)^2 d\mu \le (2 r C_f)^2 / m$ in any dimension. They are found one unit at
a time: with the residual $\rho = f - f_{j - 1}$ the next unit maximises

$$\frac{\langle \rho, \sigma_j \rangle^2}{\|\sigma_j - \bar\sigma_j\|^2}, \qquad \text{then} \qquad
f_j = \text{the least-squares fit by all units so far}.$$

The search takes steps. For a direction $\theta$ it is exact: after sorting $\theta^\top x$ the
inner products with all steps are partial sums of $\rho$. Directions are given or drawn at random,
and the best of them and of those in use is improved by random changes of shrinking size. If $f$ is
a sum of functions along the directions given, the error of $m$ steps is at most $A^2 / (m + 1)$
with $A$ half their total variation; for others there is no guarantee, but `errors` tells what was
reached. The claims are `barron_network` and `barron_theorem`.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.approximation.pwl import linear_with
from vademecum.approximation.random_features import fit_readout
from vademecum.arguments import floats, number, whole
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["BarronFit", "Heaviside", "barron_fit"]


class Heaviside(nn.Module):
    """The step $[z > 0]$, entry by entry.

    Example:
        >>> Heaviside()(torch.tensor([-1.0, 0.0, 0.5])).tolist()
        [0.0, 0.0, 1.0]
    """

    def forward(self, z: Float[Tensor, " *shape"]) -> Float[Tensor, " *shape"]:
        """Apply the step."""
        return (z > 0).to(z)


class BarronFit(NamedTuple):
    """A network found greedily.

    Example:
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> barron_fit(x, x[:, 0], 1).errors.round(decimals=6)
        tensor([0.])
    """

    network: nn.Sequential
    """Linear, sigmoidal, linear: inputs (batch, d), outputs (batch, 1)."""
    errors: Float[Tensor, " m"]
    """The mean squared error over the data with 1, 2, ... units."""

    __repr__ = one_line


@torch.no_grad()
def barron_fit(
    x: Float[Tensor, " n d"],
    y: Float[Tensor, " n"],
    m: int,
    *,
    steepness: float = math.inf,
    directions: Float[Tensor, " k d"] | None = None,
    candidates: int = 32,
    refinements: int = 4,
    generator: torch.Generator | None = None,
) -> BarronFit:
    r"""Fit a network of sigmoidal units greedily; its error falls like $1 / m$ in any dimension.

    Args:
        x: The points.
        y: The values there.
        m: The number of hidden units; fewer are taken if these leave nothing to fit.
        steepness: The slope $\kappa$ of the units for $\|\theta\| = 1$; infinite for steps, which
            have no gradient.
        directions: Some $\theta$ to try for every unit beside those drawn, if it is known what $f$
            depends on.
        candidates: How many directions are tried at random for each unit, and at each refinement.
        refinements: How often the best direction is improved by changes half as large as before.
        generator: Where random numbers come from; torch's global generator by default.

    References:
        Barron, Universal approximation bounds for superpositions of a sigmoidal function, IEEE
        Transactions on Information Theory, 1993.

    Example:
        >>> x = torch.linspace(0, 1, 9)[:, None]
        >>> fit = barron_fit(x, (x[:, 0] > 0.3).float() - (x[:, 0] > 0.8).float(), 2)
        >>> [round(e, 6) for e in fit.errors.tolist()]
        [0.148148, 0.0]
    """
    x, y = floats("x", x, ndim=2), floats("y", y, ndim=1, width=len(x))
    if (x.dtype, x.device) != (y.dtype, y.device):
        raise ValueError(f"y must be {x.dtype} on {x.device} as x is, got {y.dtype} on {y.device}")
    if directions is not None:
        directions = floats("directions", directions, ndim=2, width=x.shape[1]).to(x)
    whole("m", m, low=1)
    whole("candidates", candidates, low=1)
    whole("refinements", refinements, low=0)
    kappa = number("steepness", steepness, above=0, infinite=True)
    mean, spread = x.mean(0), x.std(0, correction=0)
    flat = spread <= 8 * torch.finfo(x.dtype).eps * x.abs().amax(0)
    if flat.all():
        raise ValueError("x must have points that differ, got the same point throughout")
    unit = (1 / spread).masked_fill(flat, 0)
    z = (x - mean) * unit
    target = y.double()
    basis, residual = torch.full_like(target, len(y) ** -0.5)[:, None], target - target.mean()
    nothing = len(y) * torch.finfo(y.dtype).eps * torch.linalg.vector_norm(y)
    used, layers, errors = z[:0] if directions is None else directions * spread, [], []
    while not errors or (len(errors) < m and torch.linalg.vector_norm(residual) > nothing):
        for known in (used, z[:0]):  # the second time with new directions alone
            v, c = _best_step(z, residual.to(y.dtype), known, candidates, refinements, generator)
            theta = v * unit
            layer = torch.cat([theta, -(c + theta @ mean)[None]]) / theta.norm()
            column = _new_part(_hidden([layer], kappa)(x), basis)
            if column is not None:
                basis = torch.cat([basis, column], 1)
                break
        used = torch.cat([used, v[None]])
        layers.append(layer)
        residual = target - basis @ (basis.T @ target)
        errors.append(residual.square().mean().to(y.dtype))
    hidden = _hidden(layers, kappa)
    return BarronFit(hidden.append(fit_readout(hidden, x, y)), torch.stack(errors))


def _new_part(column: Tensor, basis: Tensor) -> Tensor | None:
    """The direction of a column orthogonal to a basis; None if nothing but rounding is left."""
    rest = column.double()
    for _ in range(2):  # once more, since the first time leaves rounding
        rest = rest - basis @ (basis.T @ rest)
    new = rest.norm() > len(rest) * torch.finfo(column.dtype).eps * column.norm()
    return nn.functional.normalize(rest, dim=0) if new else None


def _hidden(layers: list[Tensor], kappa: float) -> nn.Sequential:
    """The units of the rows (theta, b)."""
    rows = torch.stack(layers)
    if math.isinf(kappa):
        return nn.Sequential(linear_with(rows[:, :-1], rows[:, -1]), Heaviside())
    return nn.Sequential(linear_with(kappa * rows[:, :-1], kappa * rows[:, -1]), nn.Sigmoid())


def _best_step(
    z: Tensor,
    residual: Tensor,
    used: Tensor,
    candidates: int,
    refinements: int,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """The direction and threshold found of the step that correlates best with a residual."""
    d = z.shape[1]
    count, refinements = (candidates, refinements) if d > 1 else (1, 0)
    best, most, at = z.new_zeros(d), z.new_tensor(-1.0), z.new_zeros(())
    for k in range(1 + refinements):
        change = torch.randn(count, d, **source(generator, z.device), dtype=z.dtype)
        v = best + change.to(z.device) / (d**0.5 * 2**k)
        v = nn.functional.normalize(torch.cat([v, used]) if k == 0 else v)
        gain, threshold = _thresholds(z @ v.T, residual)
        i = gain.argmax()
        if gain[i] > most:
            best, most, at = v[i], gain[i], threshold[i]
    return best, at


def _thresholds(t: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """For each column of projections the gain of its best threshold, and that threshold."""
    n = len(t)
    t, order = t.sort(dim=0)
    below = torch.arange(1, n, device=t.device, dtype=t.dtype)[:, None]
    inner = residual[order].cumsum(0)[:-1]  # less the sum above the threshold
    gain = (inner.square() * n / (below * (n - below))).masked_fill(t[1:] <= t[:-1], -1)
    gain, i = gain.max(0)
    i = i[None]
    return gain, (t.gather(0, i) + t.gather(0, i + 1))[0] / 2
