r"""Conjugate gradients: $A x = b$ with products only, for many right-hand sides at once.

For symmetric positive definite $A$ and a preconditioner $M \approx A^{-1}$ of the same kind, with
$r = b - A x$ and $p = z = M r$ to begin with,

$$\alpha = \frac{r^H z}{p^H A p}, \quad x \leftarrow x + \alpha p, \quad r' = r - \alpha A p, \quad
z' = M r', \quad \beta = \frac{r'^H z'}{r^H z}, \quad p \leftarrow z' + \beta p .$$

The iterate $x_t$ minimises the error in the norm $\|e\|_A^2 = e^H A e$ over $x_0 +
\operatorname{span}\{r_0, A r_0, \dots, A^{t-1} r_0\}$ (for $M = I$), so that

$$\|x_t - x^*\|_A \le 2 \left(\frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}\right)^t \|x_0 - x^*\|_A .$$

Each right-hand side has its own $\alpha$ and $\beta$ and stops by itself; the operator is applied
to those that are left. The recurrence for $r$ drifts from $b - A x$ by rounding: the residuals are
computed anew when it says that all is done, or has fallen to rounding, and the iteration goes on
from there if that is not enough. A
direction with $p^H A p \le 0$ shows that $A$ is not positive definite. The claim is
`cg_error_bound`.
"""

import math
import warnings
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Inexact, Int
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.arrays import lengths
from vademecum.foundations._probes import square_operator, symmetric_pair, watched
from vademecum.foundations.operators import LinearOperator
from vademecum.results import one_line

__all__ = ["ConjugateGradients", "cg"]


class ConjugateGradients(NamedTuple):
    """Solutions of linear systems, and how they were reached.

    Example:
        >>> cg(2 * torch.eye(3), torch.tensor([3.0, 0.0, 4.0])).residuals
        tensor([5., 0.])
    """

    x: Inexact[Tensor, " n *r"]
    """The solutions, in the shape of `b`."""
    residuals: Float[Tensor, " t *r"]
    r"""The norms $\|b - A x\|$ before each iteration and at the end."""
    iterations: Int[Tensor, " *r"]
    """How many iterations each right-hand side took."""
    converged: Bool[Tensor, " *r"]
    """Whether its last residual is below the tolerance."""

    __repr__ = one_line


def cg(
    op: Any,
    b: Inexact[Tensor, " n *r"],
    *,
    x0: Inexact[Tensor, " n *r"] | None = None,
    preconditioner: Any = None,
    tol: float | None = None,
    max_iter: int | None = None,
    symmetry_tol: float | None = None,
    progress: bool = False,
) -> ConjugateGradients:
    r"""Solve $A x = b$ for a symmetric (complex: Hermitian) positive definite operator.

    Args:
        op: The operator, or anything that `aslinearoperator` takes.
        b: A right-hand side, or several ones as columns.
        x0: Where to start; by default at zero.
        preconditioner: A symmetric positive definite operator close to $A^{-1}$.
        tol: Stop where $\|b - A x\|$ is at most `tol` times $\|b\|$; by default the square root of
            the machine precision.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. By default $10 n$.
        symmetry_tol: The largest relative difference of $\langle u, A v \rangle$ and $\langle A u,
            v \rangle$ for two random vectors that passes for rounding; by default the square root
            of the machine precision. Infinity saves these two products.
        progress: Whether to show a progress bar on standard error.

    Returns:
        The solution, in the shape of `b`, with the history of $\|b - A x\|$; a right-hand side that
        has stopped repeats its last one.

    Raises:
        ValueError: If the operator or the preconditioner is seen not to be symmetric and positive
            definite.

    References:
        Hestenes and Stiefel, Methods of conjugate gradients for solving linear systems, Journal of
        Research of the NBS 49, 1952.

    Example:
        >>> A = torch.tensor([[4.0, 1.0], [1.0, 3.0]])
        >>> solved = cg(A, torch.tensor([1.0, 2.0]))
        >>> solved.x, solved.iterations  # 1/11 and 7/11, after as many steps as unknowns
        (tensor([0.0909, 0.6364]), tensor(2))
    """
    op = square_operator("op", op)
    n, b = op.shape[0], _block("b", b, op)
    tol = number("tol", torch.finfo(op.dtype).eps ** 0.5 if tol is None else tol, above=0)
    max_iter = whole("max_iter", 10 * n if max_iter is None else max_iter, low=1)
    M = None if preconditioner is None else square_operator("preconditioner", preconditioner)
    x = torch.zeros_like(b) if x0 is None else _block("x0", x0, op)
    if x.shape != b.shape or (M is not None and M.shape != op.shape):
        raise ValueError(
            f"x0 and preconditioner must fit b and op, got {tuple(x.shape)} for b of"
            f" {tuple(b.shape)} and {M.shape if M else None} for op of {op.shape}"
        )
    if symmetry_tol != math.inf:
        # A solver draws nothing: the same two vectors for every operator of this size.
        symmetric_pair(op, torch.Generator().manual_seed(0), tol=symmetry_tol)
    with watched(op, None, progress=progress) as op:
        run = _Run(op, M, b.reshape(n, -1), x.reshape(n, -1), tol, max_iter)
        residuals, iterations = run.solve()
    converged = residuals[-1] <= run.target
    if not converged.all():
        worst = float((residuals[-1] / run.target).nan_to_num(posinf=0.0).max()) * tol
        message = f"{int(iterations.max())} iterations reached a relative residual of {worst:.3g}"
        warnings.warn(f"{message}, for a tolerance of {tol:.3g}", ConvergenceWarning, stacklevel=2)
    columns = b.shape[1:]
    return ConjugateGradients(
        run.x.reshape(b.shape),
        residuals.reshape(-1, *columns),
        iterations.reshape(columns),
        converged.reshape(columns),
    )


def _block(name: str, b: Tensor, op: LinearOperator) -> Tensor:
    b = floats(name, b).detach()
    if b.ndim not in (1, 2) or b.shape[0] != op.shape[0] or b.dtype != op.dtype:
        raise ValueError(
            f"{name} must be ({op.shape[0]},) or ({op.shape[0]}, r) and {op.dtype}, got shape"
            f" {tuple(b.shape)} and {b.dtype}"
        )
    return b


class _Run:
    """A run on a block, column by column in x, with those left to solve in `live`."""

    def __init__(self, op: LinearOperator, M: Any, b: Tensor, x: Tensor, tol: float, max_iter: int):
        self.op, self.M, self.b, self.max_iter = op, M, b, max_iter
        self.x = torch.where(b.any(0), x, 0)  # for b = 0 the solution is known
        self.target = tol * lengths(b)

    def solve(self) -> tuple[Tensor, Tensor]:
        """Run until all columns are solved, or no restart helps; the history and the iterations."""
        iterations = torch.zeros(self.b.shape[1], dtype=torch.long, device=self.b.device)
        r = self.b - (self.op @ self.x).detach() if self.x.any() else self.b
        history, before = [lengths(r)], torch.inf
        while True:
            norms = lengths(r)
            live = ((norms > self.target) & (norms < before / 2)).nonzero()[:, 0]
            if not len(live) or len(history) > self.max_iter:
                return torch.stack(history), iterations
            self._iterate(live, r[:, live], history, iterations)
            before, r = norms, self.b - (self.op @ self.x).detach()
            history[-1] = lengths(r)

    def _iterate(self, live: Tensor, r: Tensor, history: list[Tensor], iterations: Tensor) -> None:
        scale = lengths(r)  # squares of what is divided by it neither over- nor underflow
        r = r / scale
        goal = (self.target[live] / scale).clamp(min=torch.finfo(r.dtype).eps)
        p, old = torch.zeros_like(r), torch.ones_like(scale)
        while len(live) and len(history) <= self.max_iter:
            z = r if self.M is None else (self.M @ r).detach()
            new = self._positive((r.conj() * z).sum(0), "preconditioner", "r^H M r", history)
            p = z + (new / old) * p
            ap = (self.op @ p).detach()
            curvature = self._positive((p.conj() * ap).sum(0), "op", "p^H A p", history)
            alpha = new / curvature
            self.x[:, live] += scale * alpha * p
            r = r - alpha * ap
            iterations[live] += 1
            norms = r.norm(dim=0)
            history.append(history[-1].index_copy(0, live, scale * norms))
            on, old = norms > goal, new
            if not on.all():
                live, r, p = live[on], r[:, on], p[:, on]
                old, scale, goal = old[on], scale[on], goal[on]

    def _positive(self, value: Tensor, name: str, form: str, history: list[Tensor]) -> Tensor:
        value = value.real
        if not bool((value > 0).all()):
            raise ValueError(
                f"{name} must be positive definite and finite, got {form} ="
                f" {value.min().item():.3g} in iteration {len(history)}"
            )
        return value
