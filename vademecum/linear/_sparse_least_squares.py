r"""Least squares and ridge regression of sparse examples, by Krylov steps.

With the roots $\rho_i$ of the examples' weights as a diagonal matrix $R$, the rows of
$Z = R (X - 1 \mu^\top)$ are never formed: LSMR takes one product with $X$ and one with $X^\top$ a
step, and minimises

$$\|Z w - R (y - \bar y)\|^2 + \alpha \|w\|^2, \qquad w = S^{-1} v, \qquad
S_{jj}^2 = \|z_j\|^2 + \alpha .$$

Without a penalty $S = I$, so that of several minimisers the shortest is found; but where columns
differ in norm by more than $10^4$ the $S$ above is used, and the shortest is that of the $v$. A
column counts as constant, and has no weight, if $\|z_j\|$ is at most $n \varepsilon$ of
$\|\rho\| |\mu_j|$: so much of it the rounding of the mean may be. The iteration, in double
precision, stops where the gradient is rounding, $\|Z^\top r\| \le 10^{-14} \|Z\| \|r\|$.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from scipy.sparse.linalg import LinearOperator, lsmr
from torch import Tensor

from vademecum.estimators import SparseRows, warn_unconverged

__all__ = ["SparseFit", "sparse_least_squares"]

TOL = 1e-14
SPREAD = 1e4  # of the columns' norms
FEWEST = 1000  # steps that are always allowed, and so many times the width


class SparseFit(NamedTuple):
    """The weights and the means through which the map passes."""

    w: Float[Tensor, " d t"]
    mean_x: Float[Tensor, " d"]
    mean_y: Float[Tensor, " t"]


def sparse_least_squares(
    x: SparseRows,
    y: Float[Tensor, " n t"],
    *,
    alpha: float = 0.0,
    centre: bool = True,
    weights: Float[Tensor, " n"] | None = None,
) -> SparseFit:
    """The minimiser, for each target; a `ConvergenceWarning` where rounding was not reached.

    Example:
        >>> from scipy.sparse import csr_array
        >>> x = SparseRows(csr_array([[0.0], [1.0], [2.0]]))
        >>> sparse_least_squares(x, torch.tensor([[1.0], [3.0], [5.0]])).w
        tensor([[2.0000]], dtype=torch.float64)
    """
    x, y = x.to(torch.float64), y.double()
    s = y.new_ones(len(x)) if weights is None else weights.double()
    total, roots = s.sum(), s.sqrt()
    mean_x = x.pull(s[None] / total)[0] * centre
    mean_y = s @ y / total * centre
    scale = _scale(x.squares_about(mean_x, s), total * mean_x.square(), len(x), alpha)
    operator = _operator(x.times(roots), roots, mean_x, scale, alpha)
    columns = []
    for target in ((y - mean_y) * roots[:, None]).T:
        right = torch.cat([target, target.new_zeros(operator.shape[0] - len(x))]).numpy()
        limit = FEWEST + 4 * min(x.shape)
        found = lsmr(operator, right, atol=TOL, btol=TOL, conlim=0, maxiter=limit)
        if found[1] == 7:
            left = float(found[4]) / max(float(found[5] * found[3]), torch.finfo(y.dtype).tiny)
            warn_unconverged(
                f"{limit} steps left a gradient of {left:.3g} of its size, not {TOL:g}"
            )
        columns.append(torch.from_numpy(found[0]) / scale)
    return SparseFit(torch.stack(columns, 1), mean_x, mean_y)


def _scale(squares: Tensor, mean: Tensor, n: int, alpha: float) -> Float[Tensor, " d"]:
    """The S, infinite for columns that are constant, from sums of squares."""
    varies = squares > (n * torch.finfo(squares.dtype).eps) ** 2 * mean
    norms = torch.where(varies, squares + alpha, torch.inf).sqrt()
    if not alpha and bool((norms[varies] <= SPREAD * norms.min()).all()):
        return torch.where(varies, 1.0, torch.inf)
    return norms


def _operator(
    x: SparseRows, roots: Tensor, mean: Tensor, scale: Tensor, alpha: float
) -> LinearOperator:
    """The rows of Z, and those of the penalty below them."""
    (n, d), a = x.shape, x.matrix
    b, mean_, scale_, roots_ = a.T.tocsr(), mean.numpy(), scale.numpy(), roots.numpy()
    penalty = alpha**0.5 / scale_

    def push(v):
        w = v.ravel() / scale_
        z = a @ w - roots_ * (mean_ @ w)
        return torch.cat([torch.from_numpy(part) for part in (z, penalty * v.ravel())]).numpy()

    def pull(u):
        u = u.ravel()
        inner = b @ u[:n] - mean_ * (roots_ @ u[:n])
        return inner / scale_ + penalty * u[n:]

    kind: Any = LinearOperator  # whose arguments SciPy declares for subclasses
    return kind((n + d, d), matvec=push, rmatvec=pull, dtype="float64")
