r"""Storage rules: how $s$ patterns become the couplings of a Hopfield network.

The patterns are the columns of $P \in \{\pm1\}^{n \times s}$. Each rule below has the form

$$W = \lambda \, (A P^\top - \mathrm{diag}(d)), \qquad d_i = \sum_t A_{it} P_{it},$$

so that $w_{ii} = 0$, and it is the factors that we keep: $O(ns)$ numbers instead of $n^2$.

- *Hebbian*: $A = P$, $\lambda = 1/n$: off the diagonal $w_{ij} = \frac1n \sum_t x_i^t x_j^t$.
- *Pseudo-inverse* (projection): $A = P (P^\top P)^{-1}$, $\lambda = 1$. Then $A P^\top$ projects
  onto the span of the patterns, and $W x^t = (1 - d) \odot x^t$ with $0 \le d \le 1$: all patterns
  are fixed points.
- *Perceptron*: unit $i$ has to give $x_i^t$ for the inputs $x_j^t$, $j \ne i$: a perceptron problem
  of its own, so that $W$ need not be symmetric. All examples whose margin $x_i^t (h_i + \theta_i)$
  is at most $\kappa$ are added at once, $A_{it} \leftarrow A_{it} + x_i^t$, with $\lambda = 1/n$;
  the first step from $A = 0$ is Hebb's rule. If couplings of norm 1 store the patterns with a
  margin $\gamma_i$, and $\theta = 0$, then unit $i$ makes at most
  $(s (n-1) + 2 n \kappa) / \gamma_i^2$ corrections: a step with $m$ of them adds at least
  $m \gamma_i$ to $\langle w, w^* \rangle$ and at most $m^2 (n-1) + 2 m n \kappa$ to $\|w\|^2$.

The Hebbian and the perceptron factors are integers, and exact; the pseudo-inverse is computed in
double precision. The claims `hopfield_hebbian_weights` and `hopfield_optimal_capacity` check them.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vademecum.arguments import choice, number, whole
from vademecum.estimators import warn_unconverged

__all__ = ["Factors", "store"]


class Factors(NamedTuple):
    """The couplings `scale * (a @ p.T - diag(d))`, and which patterns they hold."""

    a: Float[Tensor, " n s"]
    p: Float[Tensor, " n s"]
    scale: float
    symmetric: bool
    stored: Bool[Tensor, " s"]


def store(
    p: Float[Tensor, " n s"],
    theta: Float[Tensor, " n"],
    *,
    rule: str = "hebbian",
    margin: float = 0.0,
    max_iter: int = 1000,
) -> Factors:
    r"""Find couplings that hold patterns.

    Args:
        p: The patterns, one a column, with entries -1 and +1.
        theta: The biases that will be added to the fields.
        rule: `"hebbian"`, `"pseudo-inverse"` or `"perceptron"`.
        margin: The $\kappa$ of the perceptron rule, which corrects a unit until all its margins
            are larger.
        max_iter: How often the perceptron rule goes through the patterns at most; a warning
            says how many patterns are not stored then.

    Returns:
        The factors of the couplings; `stored` says which patterns are fixed points, and for the
        perceptron rule, which have got the margin.

    Raises:
        ValueError: If the pseudo-inverse is asked for patterns that are linearly dependent, or for
            as many patterns as there are units, whose projection is the identity.

    References:
        Hopfield, Neural networks and physical systems with emergent collective computational
        abilities, PNAS, 1982. Personnaz, Guyon, Dreyfus, Information storage and retrieval in
        spin-glass like neural networks, Journal de Physique Lettres, 1985. Gardner, The space of
        interactions in neural network models, Journal of Physics A, 1988.

    Example:
        >>> p = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 1.0, -1.0]]).T
        >>> store(p, torch.zeros(4), rule="pseudo-inverse").a @ p.T
        tensor([[0.5000, 0.0000, 0.5000, 0.0000],
                [0.0000, 0.5000, 0.0000, 0.5000],
                [0.5000, 0.0000, 0.5000, 0.0000],
                [0.0000, 0.5000, 0.0000, 0.5000]])
    """
    choice("rule", rule, ("hebbian", "pseudo-inverse", "perceptron"))
    number("margin", margin, low=0)
    whole("max_iter", max_iter, low=1)
    if rule == "pseudo-inverse":
        return _pseudo_inverse(p, theta)
    if rule == "perceptron":
        return _perceptron(p, theta, margin, max_iter)
    return Factors(p, p, 1 / len(p), True, (_margins(p.T @ p, p, p, len(p) * theta) >= 0).all(0))


def _margins(gram: Tensor, a: Tensor, p: Tensor, theta: Tensor) -> Tensor:
    r"""The $x_i^t (h_i + \theta_i)$ for $W = A P^\top - \mathrm{diag}(d)$, (n, s)."""
    return p * (a @ gram + theta[:, None]) - (a * p).sum(1, keepdim=True)


def _pseudo_inverse(p: Tensor, theta: Tensor) -> Factors:
    n, s = p.shape
    if s >= n:
        raise ValueError(
            f"patterns must be fewer than the {n} units for the pseudo-inverse, got {s}"
        )
    p64 = p.double()
    gram = p64.T @ p64
    rounding = 4 * s * n * torch.finfo(torch.float64).eps
    root, failed = torch.linalg.cholesky_ex(gram)
    squared_distance = root.diagonal().square()  # of each pattern from the span of those before it
    dependent = (squared_distance <= rounding).nonzero()
    if failed or len(dependent):
        which = int(failed) - 1 if failed else int(dependent[0])
        raise ValueError(
            "patterns must be linearly independent for the pseudo-inverse, "
            f"got pattern {which} in the span of those before it"
        )
    a = torch.cholesky_solve(p64.T, root).T
    # The off-diagonal couplings of unit i have the squared norm d (1 - d): none, where d is 1.
    a[1 - (a * p64).sum(1) <= rounding] = 0
    a = a.to(p.dtype).contiguous()
    return Factors(a, p, 1.0, True, (_margins(gram.to(p.dtype), a, p, theta) >= 0).all(0))


def _perceptron(p: Tensor, theta: Tensor, margin: float, max_iter: int) -> Factors:
    n = len(p)
    gram, a, wrong = p.T @ p, torch.zeros_like(p), torch.zeros_like(p, dtype=torch.bool)
    live = torch.arange(n, device=p.device)  # the units that may still make mistakes
    for epoch in range(max_iter + 1):
        wrong[live] = _margins(gram, a[live], p[live], n * theta[live]) <= n * margin
        live = live[wrong[live].any(1)]
        if not len(live) or epoch == max_iter:
            break
        a[live] += wrong[live] * p[live]
    lost = wrong.any(0)
    if lost.any():
        warn_unconverged(f"max_iter={max_iter} reached: {int(lost.sum())} patterns are not stored")
    return Factors(a, p, 1 / n, False, ~lost)
