"""Singular values: power iteration, best approximation, condition."""

import math
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, lowest, with_eigenvalues
from vademecum.foundations import power_iteration as iterate


def orthogonal(n: int) -> Tensor:
    """A random orthogonal matrix."""
    return torch.linalg.qr(torch.randn(n, n)).Q


@claim(
    by="identity",
    sources=("B-470",),
    budget=0.5,
    full={"rounds": 200, "n": 60},
    short=r"\tan \angle(v^{(k)}, v_1) \le (\sigma_2 / \sigma_1)^{2 k} \tan \angle(v^{(0)}, v_1)",
)
def power_iteration(
    factors: int = 2, transposed: bool = True, along: float = 3.0, rounds: int = 40, n: int = 6
):
    r"""Power method for the largest singular value.

    Alternate $u \leftarrow J v / \|J v\|$, $v \leftarrow J^\top u / \|J^\top u\|$; if
    $\sigma_1 > \sigma_2$ and $v^{(0)}$ is not orthogonal to $v_1$, then
    $\tan \angle(v^{(k)}, v_1) \le (\sigma_2 / \sigma_1)^{2 k} \tan \angle(v^{(0)}, v_1)$ and
    $\|J v^{(k)}\| \uparrow \sigma_1$. It needs only products with $J$ and $J^\top$, so
    Jacobian-vector products suffice. Without the transpose, a symmetric $A$ gives its eigenvalue of
    largest modulus, with its sign.

    *Proof.* A round multiplies the component along $v_i$ by $\sigma_i^2$, before it is normalised;
    in the plane there is one other component, and the bound is an equality.

    Knobs:
        factors: How many factors $\sigma_2 / \sigma_1$ a round brings.
        transposed: Whether $J^\top$ is used, or $J$ twice.
        along: The component along $v_1$ of the start in the plane, whose other component is 4.
        rounds: How many rounds are made.
        n: The number of columns of the random matrix; it has two rows more.
    """
    lowest("rounds", rounds, 20)
    lowest("n", n, 2)
    kind = "singular" if transposed else "eigenvalue"
    shear = torch.tensor([[1.0, 5.0], [0.0, 0.5]])
    found = iterate(shear, kind=kind, tol=0, max_iter=rounds).value
    yield equals(r"$\sigma_1$ of a shear", found, math.sqrt((26.25 + math.sqrt(688.0625)) / 2))
    s, start = 0.8, torch.tensor([along, 4.0])
    plane, v = torch.diag(torch.tensor([1.0, s])), start
    found = iterate(plane, v0=start, tol=0, max_iter=rounds).value
    yield equals(r"$\sigma_1$ of diag(1, 0.8)", found, 1.0, tol=2 * s ** (4 * rounds) + 1e-12)
    for k in range(1, 21):
        v = iterate(plane, v0=v, tol=0, max_iter=1).v
        share = v[1] / v[0] / (start[1] / start[0] * s ** (factors * k))
        yield equals("tangent in the plane, over its formula", share, 1.0, rounds=k)
    sigma = torch.cat([torch.tensor([1.0, 0.7]), 0.5 * torch.rand(n - 2)])
    U, V = orthogonal(n + 2)[:, :n], orthogonal(n)
    J = (U * sigma) @ V.T
    start = 0.1 * V[:, 0] + V[:, 1:] @ torch.nn.functional.normalize(torch.randn(n - 1), dim=0)
    v = start  # with the tangent 10
    for k in range(1, rounds + 1):
        v = iterate(J, v0=v, tol=0, max_iter=1).v
        tangent = (v - V[:, 0] * (V[:, 0] @ v)).norm() / (V[:, 0] @ v).abs()
        bound = 10 * 0.7 ** (factors * k)
        yield at_most(r"tangent to $v_1$", tangent, bound, tol=1e-13, rounds=k)  # and rounding
    history = iterate(J, v0=start, tol=0, max_iter=rounds).history
    yield at_least(r"gain of $\|J v\|$ in a round", history.diff(), 0.0, tol=1e-14)
    largest = torch.linalg.matrix_norm(J, 2)
    left = 100 * 0.7 ** (4 * rounds)  # of the squared tangent, which bounds the error
    yield equals(r"$\|J v\|$ at the end", history[-1], largest, tol=left + 1e-13)
    found = iterate(J, v0=start, tol=1e-6)
    residual = (J.T @ found.u - found.value * found.v).norm()
    yield equals("residual norm reported", found.residual, residual, tol=1e-14)
    yield at_most("residual norm at the end, over the value", residual / found.value, 1e-6, tol=0.0)
    A = with_eigenvalues(torch.cat([torch.tensor([-1.0, 0.7]), 0.5 * torch.rand(n - 2)]))
    found = iterate(A, kind="eigenvalue", max_iter=2000)
    yield equals("eigenvalue of largest modulus", found.value, -1.0)


power_iteration.foil(
    r"one factor only is slower than the exact $s^2$ a round",
    refuted_by="tangent in the plane, over its formula",
    factors=1,
)
power_iteration.foil(
    "without the transpose a shear has 1, its eigenvalue, instead of 5.12", transposed=False
)
power_iteration.foil(r"a start orthogonal to $v_1$ ends at $\sigma_2 = 0.8$", along=0.0)


def reduced(X: Tensor, r: int, keep: str) -> Tensor:
    """A matrix of rank at most r: some singular triplets of X, or some of its columns."""
    if keep == "columns":
        best = X.norm(dim=0).argsort(descending=True)[:r]
        return torch.zeros_like(X).index_copy(1, best, X[:, best])
    U, sigma, Vh = torch.linalg.svd(X, full_matrices=False)
    chosen = slice(r) if keep == "largest" else slice(len(sigma) - r, None)
    return (U[:, chosen] * sigma[chosen]) @ Vh[chosen]


@claim(
    by="sampling",
    sources=("A-337",),
    budget=0.5,
    full={"rivals": 3000},
    short=r"\min_{\mathrm{rank} Y \le r} \|X - Y\|_F^2 = \|X - X_r\|_F^2 = \sum_{i > r} \sigma_i^2",
)
def eckart_young(keep: Literal["largest", "smallest", "columns"] = "largest", rivals: int = 60):
    r"""Eckart-Young-Mirsky theorem.

    Among all matrices of rank at most $r$ the truncated singular value decomposition
    $X_r = \sum_{i \le r} \sigma_i u_i v_i^\top$ is closest to $X$:
    $\min_{\mathrm{rank} Y \le r} \|X - Y\|_F = \big(\sum_{i > r} \sigma_i^2\big)^{1/2}$, and in the
    spectral norm the minimum is $\sigma_{r+1}$ (Mirsky: the same $X_r$ is optimal in every
    unitarily invariant norm). In the Frobenius norm the minimiser is unique when
    $\sigma_r > \sigma_{r+1}$.

    *Proof.* Weyl's $\sigma_{i+r}(X) \le \sigma_i(X - Y) + \sigma_{r+1}(Y)$, where the last term is
    zero, bounds all singular values of $X - Y$ from below. Uniqueness: the best $Y$ with columns in
    the range of a projection $P$ is $P X$, and $\|X - P X\|_F^2 - \sum_{i > r} \sigma_i^2 \ge
    \frac12 (\sigma_r^2 - \sigma_{r+1}^2) \|P - U_r U_r^\top\|_F^2$.

    Knobs:
        keep: What the approximation keeps: the largest or the smallest singular triplets, or the
            longest columns.
        rivals: How many other matrices of rank $r$ are tried.
    """
    planted = torch.tensor([5.0, 3.0, 2.0, 1.0])
    wide = (orthogonal(4) * planted) @ orthogonal(7)[:4]
    for X, known in ((torch.ones(2, 2), [2.0, 0.0]), (wide, planted), (torch.randn(6, 5), None)):
        U, sigma, _ = torch.linalg.svd(X, full_matrices=False)
        shape = f"{len(X)} x {len(X.T)}"
        if known is not None:
            yield equals("singular values", sigma, known, shape=shape)
        for r in range(1, len(sigma)):
            at = {"r": r, "shape": shape}
            best, spectral = sigma[r:].norm(), sigma[r]
            Y = reduced(X, r, keep)
            yield equals("Frobenius norm of the error", (X - Y).norm(), best, **at)
            error = torch.linalg.matrix_norm(X - Y, 2)
            yield equals("spectral norm of the error", error, spectral, **at)
            left = torch.randn(rivals, len(X), r)
            fitted = left @ torch.linalg.lstsq(left, X.expand(rivals, -1, -1)).solution
            near = reduced(X, r, "largest") + 0.1 * torch.randn(rivals, *X.shape)
            near = torch.stack([reduced(Z, r, "largest") for Z in near[:10]])
            others = torch.linalg.svdvals(X - torch.cat([fitted, near]))
            yield at_least("Frobenius norm of rivals' errors", others.norm(dim=1), best, **at)
            yield at_least("spectral norm of rivals' errors", others[:, 0], spectral, **at)
            kept = others[:, : len(sigma) - r]
            yield at_least("singular values of rivals' errors", kept, sigma[r:], **at)
            Q = torch.linalg.qr(left).Q
            apart = r - (Q.mT @ U[:, :r]).square().sum((1, 2))  # half the squared distance
            excess = (X - fitted).square().sum((1, 2)) - best**2
            least = (sigma[r - 1] ** 2 - sigma[r] ** 2) * apart
            yield at_least("excess of rivals' squared errors", excess, least, **at)


eckart_young.foil("the smallest triplets: an error of 2 for four ones, not 0", keep="smallest")
eckart_young.foil(
    "the longest columns: for four ones the error is the root of 2, not 0", keep="columns"
)


@claim(
    by="sampling",
    sources=("D-052",),
    budget=0.5,
    full={"pairs": 10**5},
    short=r"\kappa(A) = \sigma_{\max} / \sigma_{\min}, \quad "
    r"\|\delta x\| / \|x\| \le \kappa\, \|\delta b\| / \|b\|",
)
def condition_number(ratio: Literal["singular", "eigenvalue"] = "singular", pairs: int = 200):
    r"""Condition number of a matrix.

    $\kappa(A) = \|A\|_2 \|A^{-1}\|_2 = \sigma_{\max} / \sigma_{\min} \ge 1$ ($+\infty$ for singular
    $A$); for symmetric positive definite $H$ it is $\lambda_{\max} / \lambda_{\min}$. It is the
    largest factor by which solving $A x = b$ amplifies a relative error:
    $\frac{\|\delta x\|}{\|x\|} \le \kappa \frac{\|\delta b\|}{\|b\|}$, attained for $b = u_1$,
    $\delta b \parallel u_n$.

    *Proof.* $\|\delta x\| \le \|A^{-1}\| \|\delta b\|$ and $\|b\| \le \|A\| \|x\|$.

    Knobs:
        ratio: Whether the condition of a matrix that is not symmetric is a ratio of singular values
            or of moduli of eigenvalues.
        pairs: How many pairs $b, \delta b$ are drawn.
    """
    n = 5
    sigma = torch.cat([torch.ones(1), 10 ** (-3 * torch.rand(n - 1))]).sort(descending=True).values
    U, V = orthogonal(n), orthogonal(n)
    planted = {
        "shear": (torch.tensor([[1.0, 100.0], [0.0, 1.0]]), (50 + math.sqrt(2501)) ** 2),
        "general": ((U * sigma) @ V.T, sigma[0] / sigma[-1]),
        "definite": (with_eigenvalues(sigma), sigma[0] / sigma[-1]),
    }
    for name, (A, kappa) in planted.items():
        values = torch.linalg.svdvals(A)
        if ratio == "eigenvalue" or name == "definite":
            values = torch.linalg.eigvals(A).abs()
        measured = values.max() / values.min()
        yield equals("condition number", measured, kappa, matrix=name)
        yield at_least("condition number, from below", measured, 1.0, matrix=name)
        norms = [torch.linalg.matrix_norm(M, 2) for M in (A, torch.linalg.inv(A))]
        yield equals("norm times norm of the inverse", norms[0] * norms[1], kappa, matrix=name)
        b, db = torch.randn(2, len(A), pairs)
        factor = amplification(A, b, db)
        yield at_most("amplification of random errors", factor, measured, matrix=name)
        u, _, _ = torch.linalg.svd(A)
        factor = amplification(A, u[:, :1], 1e-3 * u[:, -1:])
        yield equals("amplification of the worst error", factor, measured, matrix=name)
    singular = torch.linalg.cond(torch.diag(torch.tensor([1.0, 0.0])))
    yield equals("condition number", singular, math.inf, matrix="singular")


def amplification(A: Tensor, b: Tensor, db: Tensor) -> Tensor:
    """The relative error of solutions over that of the right-hand sides."""
    x, dx = torch.linalg.solve(A, torch.cat([b, db], 1)).split(b.shape[1], 1)
    return dx.norm(dim=0) / x.norm(dim=0) * b.norm(dim=0) / db.norm(dim=0)


condition_number.foil(
    "the ratio of eigenvalues, 1 for a shear that amplifies errors by ten thousand",
    ratio="eigenvalue",
)
