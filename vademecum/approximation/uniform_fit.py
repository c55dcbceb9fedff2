r"""The best fit in the sup norm, with a certificate that there is no better one.

For features $A \in \mathbb R^{n \times k}$ (a row each point) and values $y$ the error
$E = \min_c \|A c - y\|_\infty$ is a linear programme; its dual says

$$E = \max \Big\{ \lambda^\top y : A^\top \lambda = 0,\ \sum_i |\lambda_i| \le 1 \Big\},$$

for $\lambda^\top y = \lambda^\top (y - A c) \le \|A c - y\|_\infty$ whatever $c$. An optimal
$\lambda$ lives on at most $k + 1$ points, where the error is $\pm E$: for polynomials on a line it
alternates in sign there (Chebyshev).

The programme is solved by SciPy's HiGHS, on the host and in double precision, over an orthonormal
basis of the columns of $A$. `error` is the error of the coefficients returned, and `lower` the
value of a $\lambda$ that fulfils $A^\top \lambda = 0$ up to rounding: the best error lies between,
and both agree to some $10^{-9} \|y\|_\infty$. The claim is `closure_density`.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import linprog
from torch import Tensor

from vademecum.arguments import floats
from vademecum.results import one_line

__all__ = ["UniformFit", "best_uniform_fit"]


class UniformFit(NamedTuple):
    r"""A fit in the sup norm.

    Example:
        >>> best_uniform_fit(torch.ones(2, 1), torch.tensor([0.0, 2.0])).error
        1.0
    """

    coefficients: Float[Tensor, " k"]
    """The coefficients $c$; of several that do the same, small ones."""
    error: float
    r"""The error $\|A c - y\|_\infty$."""
    lower: float
    r"""The certificate $\lambda^\top y$: no coefficients have a smaller error."""
    weights: Float[Tensor, " n"]
    r"""The $\lambda$ behind it, not zero at the extremal points alone."""

    __repr__ = one_line


@torch.no_grad()
def best_uniform_fit(A: Float[Tensor, " n k"], y: Float[Tensor, " n"]) -> UniformFit:
    r"""The combination of features whose largest error over the points is least.

    Args:
        A: The features, a row for each point; they may depend on each other.
        y: The values to approximate.

    Returns:
        The coefficients, their error, and a certificate that none have a smaller one.

    References:
        Stiefel, Über diskrete und lineare Tschebyscheff-Approximationen, Numerische Mathematik,
        1959.

    Example:
        >>> x = torch.tensor([-1.0, 0.0, 1.0])
        >>> fit = best_uniform_fit(torch.stack([torch.ones(3), x], 1), x.abs())
        >>> fit.coefficients.tolist(), fit.error, fit.lower  # the constant 1/2
        ([0.5, 0.0], 0.5, 0.5)
        >>> fit.weights.tolist()
        [0.25, -0.5, 0.25]
    """
    A, y = floats("A", A, ndim=2), floats("y", y, ndim=1, width=len(A))
    if (A.dtype, A.device) != (y.dtype, y.device):
        raise ValueError(f"y must be {A.dtype} on {A.device} as A is, got {y.dtype} on {y.device}")
    a, b = A.double(), y.double()
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    rank = int((s > s[0] * max(a.shape) * torch.finfo(A.dtype).eps).sum())
    u, s, vh = u[:, :rank] * len(a) ** 0.5, s[:rank], vh[:rank]
    scale = b.abs().max().clamp(min=torch.finfo(b.dtype).tiny)
    z, lam = (v.to(b) for v in _programme(u, b / scale))
    c = (vh.T @ (z * scale * len(a) ** 0.5 / s)).to(A)
    lam = _feasible(u, lam)
    error = float((a @ c.double() - b).abs().max())
    return UniformFit(c, error, float(lam @ b), lam.to(A))


def _programme(u: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    r"""Minimise t over $-t \le u z - b \le t$: the coefficients and the dual weights."""
    n, k = u.shape
    sides, values, ones = u.cpu().numpy(), b.cpu().numpy(), np.ones((n, 1))
    found = linprog(
        np.append(np.zeros(k), 1.0),
        A_ub=np.block([[sides, -ones], [-sides, -ones]]),
        b_ub=np.concatenate([values, -values]),
        bounds=[(None, None)] * k + [(0, None)],
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.status != 0:
        raise RuntimeError(f"the linear programme was not solved: {found.message}")
    above, below = -found.ineqlin.marginals.reshape(2, n)
    return torch.from_numpy(found.x[:-1]), torch.from_numpy(below - above)


def _feasible(u: Tensor, lam: Tensor) -> Tensor:
    """The weights moved, on their own support, to where they certify: see above."""
    on = lam != 0
    part, mine = u[on], lam[on]
    mine = mine - part @ (torch.linalg.pinv(part, rtol=1e-12) @ mine)
    return lam.masked_scatter(on, mine / mine.abs().sum().clamp(min=torch.finfo(u.dtype).tiny))
