r"""Is a labelled sample linearly separable? A proof either way.

Labels $y_i = \pm 1$ of points $x_i$ are separable if $y_i (\langle x_i, w \rangle + b) > 0$ for all
$i$, with some $w$ and $b$ ($b = 0$ without a bias). By Gordan's theorem either such a hyperplane
exists, or weights

$$\lambda \ge 0, \qquad \sum_i \lambda_i = 1, \qquad \sum_i \lambda_i y_i x_i = 0
\qquad (\text{and with a bias } \sum_i \lambda_i y_i = 0),$$

never both: multiply the inequalities by $\lambda_i$ and add them up. A linear programme finds one
or the other: it maximises $t$ subject to $y_i (\langle x_i, w \rangle + b) \ge t$ and
$|w_k|, |b| \le 1$; its dual variables are the $\lambda_i$.

The solver is not trusted. What it found is verified on the data as given, in this order:

1. the hyperplane: each score must exceed the bound of its rounding error, and those that do not are
   computed in rational arithmetic; so `separable=True` is a proof.
2. the certificate: the equations are solved on the examples with positive weight. A small system
   (that takes at most $10^5$ operations) is solved in rational arithmetic, which makes
   `separable=False` a proof; the weights returned are its solution, rounded, and `residual` is 0.
   A larger one is solved in double precision; there the `residual`
   $\|\sum_i \lambda_i y_i \tilde x_i\|$ must be a rounding error, and shows that nothing separates
   the points $\tilde x_i = (x_i, 1)$ (or $x_i$, without a bias) with a margin beyond it.

If neither can be verified, an error says so.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped
from scipy.optimize import linprog
from torch import Tensor

from vademecum.arguments import floats, signs
from vademecum.arrays import row_reduce
from vademecum.results import one_line

__all__ = ["Separability", "separable"]

EXACT = 10**5  # rational operations that a certificate may take: a fraction of a second


class Separability(NamedTuple):
    """A verified answer: a hyperplane, or a certificate that there is none.

    Example:
        >>> separable(torch.tensor([[5], [5]]), torch.tensor([1, -1])).certificate.tolist()
        [0.5, 0.5]
    """

    separable: bool
    """Whether a hyperplane has each label on a side of its own."""
    w: Float[Tensor, " d"] | None
    """The normal of a separating hyperplane; None if there is none."""
    b: float | None
    """Its bias; None if there is none."""
    margin: float | None
    """Its geometric margin, positive but not the largest; None if there is none."""
    certificate: Float[Tensor, " n"] | None
    r"""The weights $\lambda$ if nothing separates, else None."""
    residual: float
    r"""$\|\sum_i \lambda_i y_i \tilde x_i\|$ of the certificate; 0 if it was verified exactly."""

    __repr__ = one_line


def separable(
    x: Shaped[Tensor, " n d"], y: Shaped[Tensor, " n"], *, bias: bool = True
) -> Separability:
    """Decide by linear programming whether a hyperplane separates the two labels.

    Args:
        x: The points; integers and floating-point numbers are taken as exact.
        y: Their labels, -1 or +1; they may all be the same.
        bias: Whether the hyperplane may miss the origin.

    Returns:
        The verified answer, in double precision, on the device of the points.

    Raises:
        ValueError: If the points are not finite, the labels are not signs, an integer is not a
            number of double precision, or the points are so close that neither answer could be
            verified.

    References:
        Gordan, Über die Auflösung linearer Gleichungen mit reellen Coefficienten, Mathematische
        Annalen, 1873.

    Example:
        >>> x = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
        >>> separable(x, torch.tensor([-1, -1, -1, 1])).separable
        True
        >>> separable(x, torch.tensor([-1, 1, 1, -1])).certificate
        tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """
    x = _real(x)
    label = signs("y", y, ndim=1, width=len(floats("x", x, ndim=2))).double().cpu().numpy()
    points = x.double().cpu().numpy()
    z = label[:, None] * (np.c_[points, np.ones(len(points))] if bias else points)
    theta, lam = _programme(points, label, bias)
    if bias and not theta[:-1].any():  # all labels are the same: any normal will do
        theta[0], theta[-1] = 1, label[0] * 2 * (1 + np.abs(points[:, 0]).max())
    least = _least(z, theta)
    if least > 0:
        w = theta[: x.shape[1]]
        b = float(theta[-1]) if bias else 0.0
        normal, largest = torch.from_numpy(w.copy()).to(x.device), float(np.abs(w).max())
        margin = least / largest / float(np.linalg.norm(w / largest))  # whose square is in range
        return Separability(True, normal, b, margin, None, 0.0)
    found = _certificate(z, lam)
    if found is None:
        raise ValueError(
            "x must be farther apart: points of the two labels are closer than the precision of "
            "the linear programme, and can be neither separated nor shown to be inseparable"
        )
    return Separability(False, None, None, None, torch.from_numpy(found[0]).to(x.device), found[1])


def _real(x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        return floats("x", x)
    if x.is_complex():
        raise ValueError(f"x must be real, got {x.dtype}")
    exact = x.double()
    if not x.is_floating_point() and not torch.equal(exact.to(x.dtype), x):
        raise ValueError("x must be integers that double precision holds, got one that it rounds")
    return exact


def _programme(x: np.ndarray, y: np.ndarray, bias: bool) -> tuple[np.ndarray, np.ndarray]:
    """The weights and the dual variables of the linear programme, on points of size one."""
    centre = x.mean(0) * bias
    scale = np.abs(x - centre).max(0)
    scale[scale == 0] = 1
    z = (x - centre) / scale
    z = y[:, None] * (np.c_[z, np.ones(len(z))] if bias else z)
    n, d = z.shape
    found = linprog(
        c=np.r_[np.zeros(d), -1.0],
        A_ub=np.c_[-z, np.ones(n)],
        b_ub=np.zeros(n),
        bounds=[(-1, 1)] * d + [(None, None)],
        method="highs-ds",
    )
    if found.status != 0:
        raise ValueError(f"x must give a linear programme that SciPy can solve: {found.message}")
    theta = found.x[:d].copy()
    theta[: x.shape[1]] /= scale
    if bias:
        theta[-1] -= centre @ theta[:-1]
    return theta, np.maximum(-found.ineqlin.marginals, 0)


def _least(z: np.ndarray, theta: np.ndarray) -> float:
    """The least of the scores; where rounding could turn its sign, computed exactly."""
    scores = z @ theta
    error = 2 * len(theta) * np.finfo(float).eps * (np.abs(z) @ np.abs(theta))
    close = np.flatnonzero(scores <= error)
    if (scores < -error).any():
        return -np.inf
    weights = [Fraction(t) for t in theta.tolist()]
    for i in close:
        exact = (Fraction(v) * t for v, t in zip(z[i].tolist(), weights, strict=True))
        scores[i] = float(sum(exact))
    return float(scores.min())


def _certificate(z: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Verified weights and their residual, with the same support as the dual variables."""
    support = np.flatnonzero(lam > 1e-12 * lam.max())
    a = z[support].T
    exact = a.shape[0] * a.shape[1] ** 2 <= EXACT
    null = _rational_null_vector(a) if exact else np.linalg.svd(a)[2][-1]
    if null is None or not ((null > 0).all() or (null < 0).all()):
        return None
    weights = np.zeros(len(z))
    weights[support] = (null / null.sum()).astype(float)
    residual = 0.0 if exact else float(np.linalg.norm(z.T @ weights))
    rounding = 4 * len(support) * np.finfo(float).eps * np.linalg.norm(a, axis=0).max()
    return (weights, residual) if residual <= rounding else None


def _rational_null_vector(a: np.ndarray) -> np.ndarray | None:
    """The solution of $a v = 0$ that is unique up to a factor, exactly; None if it is not."""
    rows, pivots = row_reduce(a.tolist())
    free = sorted(set(range(a.shape[1])) - set(pivots))
    if len(free) != 1:
        return None
    null = np.full(a.shape[1], Fraction(1))
    null[pivots] = [-row[free[0]] for row in rows]
    return null
