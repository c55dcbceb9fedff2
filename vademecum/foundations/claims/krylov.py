"""Krylov methods: what theory promises, and what ours keep."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from vademecum.claims import Evidence, at_least, at_most, claim, equals, lowest, with_eigenvalues
from vademecum.foundations import LinearOperator, cg, eigsh


def counted(A: Tensor) -> tuple[LinearOperator, list[int]]:
    """A symmetric matrix as an operator, and how many vectors it was applied to, call by call."""
    columns: list[int] = []

    def product(x: Tensor) -> Tensor:
        columns.append(x.shape[1])
        return A @ x

    return LinearOperator((len(A), len(A)), product, product), columns


def ordered(values: Tensor, which: str) -> Tensor:
    """Eigenvalues in the order in which they are asked for."""
    key = {"largest": values, "smallest": -values, "magnitude": values.abs()}[which]
    return values[key.argsort(descending=True)]


@claim(
    by="sampling",
    budget=0.6,
    full={"n": 500, "matrices": 10},
    short=r"\min_i |\lambda_i - \theta| \le \|A x - \theta x\|, \quad"
    r" \theta = x^\top A x,\ \|x\| = 1,\ A = A^\top",
)
def lanczos_residual_bound(power: int = 1, n: int = 40, matrices: int = 1):
    r"""A Ritz value is as close to an eigenvalue as its residual norm.

    For symmetric $A$, a unit vector $x$ and $\theta = x^\top A x$ some eigenvalue $\lambda$ has
    $|\lambda - \theta| \le \|A x - \theta x\|$; and no Ritz value is above the largest eigenvalue
    or below the smallest. So the residual norms that Lanczos gets for nothing certify what it
    found. Which eigenvalues these are they do not say: that Lanczos finds those at the ends of the
    spectrum first, and multiple ones as often as they occur, is checked here and not proved.

    *Proof.* With $x = \sum_i c_i u_i$, $\|A x - \theta x\|^2 = \sum_i c_i^2 (\lambda_i - \theta)^2
    \ge \min_i (\lambda_i - \theta)^2$. For the largest eigenvalue the error
    $\sum_i c_i^2 (\lambda_1 - \lambda_i)$ is of the order of the squared residual over the gap: a
    spectrum of width $w$ leaves at least $\|A x - \theta x\|^2 / w$.

    Knobs:
        power: The power of the residual norm that bounds the error.
        n: The size of the matrices.
        matrices: How many matrices are drawn.
    """
    lowest("n", n, 6)
    ends = torch.tensor([0.12, 0.12, -0.11, 0.1, -0.09])  # the largest one twice
    for _ in range(matrices):
        inner = (torch.arange(n - 5.0) + torch.rand(n - 5) / 2) / n - 0.5
        values = torch.cat([ends, inner / 8])
        A = with_eigenvalues(values)
        for which, k in itertools.product(("largest", "smallest", "magnitude"), (1, 3)):
            at = {"k": k, "which": which}
            found = eigsh(A, k, which=which, tol=1e-3, degenerate=False)
            X, theta = found.vectors, found.values
            residuals = (A @ X - X * theta).norm(dim=0)
            yield equals("lengths of the vectors", X.norm(dim=0), 1.0, **at)
            rounding = 1e-14  # of products with a matrix of norm 0.12
            yield equals("residual norms reported", found.residuals, residuals, tol=rounding, **at)
            distance = (theta - values[:, None]).abs().amin(0)
            bound = residuals**power
            yield at_most("distance to an eigenvalue", distance, bound, tol=rounding, **at)
            yield at_most("Ritz values", theta, values.max(), tol=rounding, **at)
            yield at_least("Ritz values, from below", theta, values.min(), tol=rounding, **at)
            op, columns = counted(A)
            found = eigsh(op, k, which=which)
            yield equals("eigenvalues found", found.values, ordered(values, which)[:k], **at)
            yield equals("products reported", found.applications, sum(columns), **at)
            yield equals("whether it converged", found.converged, 1, **at)


lanczos_residual_bound.foil(
    "the squared residual, without the gap that it must be divided by", power=2
)


def best_in_krylov_space(A: Tensor, x: Tensor, steps: int) -> Tensor:
    """The least energy norm of x - y over y in the span of A x, ..., A^steps x."""
    root = torch.linalg.cholesky(A).T
    basis = (A @ x)[:, None]
    for _ in range(steps - 1):
        basis = torch.linalg.qr(torch.cat([basis, (A @ basis[:, -1])[:, None]], 1)).Q
    Q = torch.linalg.qr(root @ basis).Q
    target = root @ x
    return (target - Q @ (Q.T @ target)).norm()


@claim(
    by="sampling",
    budget=0.5,
    full={"n": 1000},
    short=r"A \succ 0: \|x_t - x^*\|_A \le 2 \left(\tfrac{\sqrt\kappa"
    r" - 1}{\sqrt\kappa + 1}\right)^t \|x_0 - x^*\|_A",
)
def cg_error_bound(root: int = 2, kappa: float = 100.0, n: int = 60):
    r"""The error of conjugate gradients falls with the square root of the condition number.

    For symmetric positive definite $A$ with condition number $\kappa$,
    $\|x_t - x^*\|_A \le 2 \left(\frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}\right)^t \|x_0 - x^*\|_A$
    with $\|e\|_A^2 = e^\top A e$. With $m$ distinct eigenvalues $m$ steps suffice.

    *Proof.* $x_t$ is the best of $x_0 + p(A) r_0$ over polynomials $p$ of degree below $t$; the
    shifted Chebyshev polynomial gives the bound, one with roots at the eigenvalues the rest.

    Knobs:
        root: The root of $\kappa$ in the bound.
        kappa: The condition number.
        n: The size of the matrices.
    """
    lowest("n", n, 3)
    angles = torch.pi * (torch.arange(n - 2) + torch.rand(n - 2)) / (n - 2)
    inner = (1 - angles.cos()) / 2  # dense at the ends, which is hard
    A = with_eigenvalues(1 + (kappa - 1) * torch.cat([torch.tensor([0.0, 1.0]), inner]))
    solutions = torch.randn(n, 2)
    start = energy(A, solutions)
    rate = (kappa ** (1 / root) - 1) / (kappa ** (1 / root) + 1)
    b, norms = A @ solutions, {}
    for t in (t for t in (1, 2, 4, 8, 16, 24) if t < n):
        solved = cg(A, b, tol=1e-15, max_iter=t)
        error = solved.x - solutions
        share = energy(A, error) / start
        yield at_most("error over that of the start", share, 2 * rate**t, t=t)
        best = torch.stack([best_in_krylov_space(A, x, t) for x in solutions.T]) / start
        yield equals("error, against the best in the Krylov space", share, best, t=t)
        norms[t] = (A @ error).norm(dim=0)
        ways = torch.stack([b.norm(dim=0), *norms.values()])
        yield equals("residual norms on the way", solved.residuals[[0, *norms]], ways, t=t)
        yield equals("whether it converged, within so few steps", solved.converged.long(), 0, t=t)
    yield from _elsewhere(A, solutions)
    for values in ((3.0,), (1.0, 10.0), (1.0, 3.0, 10.0)):
        yield from _few_eigenvalues(values)


def energy(A: Tensor, e: Tensor) -> Tensor:
    """The energy norms of columns."""
    return ((A @ e) * e).sum(0).sqrt()


def _elsewhere(A: Tensor, solutions: Tensor, t: int = 2) -> Iterator[Evidence]:
    """From another start, and with a preconditioner $M = S S^T$: the same for $S^T A S$."""
    n = len(A)
    start, S = torch.randn(n, 2), torch.eye(n) + torch.rand(n, n).tril() / n
    error = cg(A, A @ solutions, x0=start, max_iter=t).x - solutions
    best = torch.stack([best_in_krylov_space(A, x, t) for x in (solutions - start).T])
    yield equals("error from another start", energy(A, error), best, t=t)
    error = cg(A, A @ solutions, preconditioner=S @ S.T, max_iter=t).x - solutions
    moved = torch.linalg.solve_triangular(S, solutions, upper=False)
    best = torch.stack([best_in_krylov_space(S.T @ A @ S, x, t) for x in moved.T])
    yield equals("error with a preconditioner", energy(A, error), best, t=t)


def _few_eigenvalues(values: tuple[float, ...]) -> Iterator[Evidence]:
    """As many steps as there are distinct eigenvalues in a right-hand side."""
    few, at = with_eigenvalues(torch.tensor(values).repeat(12 // len(values))), len(values)
    x = torch.cat([torch.randn(12, 1), torch.linalg.eigh(few).eigenvectors[:, :1]], 1)
    solved = cg(few, few @ x, tol=1e-10)
    steps = torch.tensor([at, 1])
    yield equals("steps taken", solved.iterations, steps, distinct=at)
    yield equals("whether it converged", solved.converged.long(), 1, distinct=at)
    yield equals("solution", solved.x, x, distinct=at)


cg_error_bound.foil("with the fourth root it is too good to be true", root=4)
cg_error_bound.foil("with the third root as well", root=3)
