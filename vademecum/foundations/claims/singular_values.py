"""What the course claims of singular values: power iteration, best approximation, condition."""

import math

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.power_method import power_iteration as iterate


def orthogonal(n: int) -> Tensor:
    """A random orthogonal matrix."""
    return torch.linalg.qr(torch.randn(n, n)).Q


@claim(by="identity", sources=("B-470",), budget=0.5, full={"rounds": 200, "n": 60})
def power_iteration(
    factors: int = 2, transposed: bool = True, along: float = 3.0, rounds: int = 40, n: int = 6
):
    r"""Power method for the largest singular value.

    Alternate $u \leftarrow J v / \|J v\|$, $v \leftarrow J^\top u / \|J^\top u\|$; if
    $\sigma_1 > \sigma_2$ and $v^{(0)}$ is not orthogonal to $v_1$, then
    $\tan \angle(v^{(k)}, v_1) \le (\sigma_2 / \sigma_1)^{2 k} \tan \angle(v^{(0)}, v_1)$ and
    $\|J v^{(k)}\| \uparrow \sigma_1$. It needs only products with $J$ and $J^\top$, so
    Jacobian-vector products suffice.

    *Proof.* A round multiplies the component along $v_i$ by $\sigma_i^2$, before it is normalised.
    `along` is the component along $v_1$ at the start of an exact case in the plane.
    """
    kind = "singular" if transposed else "eigenvalue"
    shear = torch.tensor([[1.0, 5.0], [0.0, 0.5]])
    found = iterate(shear, kind=kind, tol=0, max_iter=rounds).value
    yield equals(found, torch.linalg.matrix_norm(shear, 2), n=2)
    s, start = 0.8, torch.tensor([along, 4.0])
    plane, v = torch.diag(torch.tensor([1.0, s])), start
    yield equals(iterate(plane, v0=start, tol=0, max_iter=rounds).value, 1.0, n=2)
    for k in range(1, 21):
        v = iterate(plane, v0=v, tol=0, max_iter=1).v
        yield equals(v[1] / v[0] / (4 / along * s ** (factors * k)), 1.0, rounds=k)
    sigma = torch.cat([torch.tensor([1.0, 0.7]), 0.5 * torch.rand(n - 2)])
    U, V = orthogonal(n), orthogonal(n)
    J = (U * sigma) @ V.T
    start = 0.1 * V[:, 0] + V[:, 1:] @ torch.nn.functional.normalize(torch.randn(n - 1), dim=0)
    tangent, v = 10.0, start
    for k in range(1, rounds + 1):
        v = iterate(J, v0=v, tol=0, max_iter=1).v
        measured = (v - V[:, 0] * (V[:, 0] @ v)).norm() / (V[:, 0] @ v).abs()
        yield at_most(measured, 0.7 ** (factors * k) * tangent, tol=1e-13, rounds=k)
    history = iterate(J, v0=start, tol=0, max_iter=rounds).history
    yield at_least(history.diff(), 0.0, tol=1e-14)
    yield at_most(history[-1], 1.0)
    yield equals(history[-1], torch.linalg.matrix_norm(J, 2))
    found = iterate(J, v0=start, tol=1e-6)
    yield equals(found.residual, (J.T @ found.u - found.value * found.v).norm(), tol=1e-14)
    yield at_most(found.residual, 1e-6 * found.value, tol=0.0)


power_iteration.foil(r"one factor only is slower than the exact $s^2$ a round", factors=1)
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


@claim(by="sampling", sources=("A-337",), budget=0.5, full={"rivals": 3000})
def eckart_young(keep: str = "largest", rivals: int = 60):
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
    """
    for X in (torch.ones(2, 2), torch.randn(6, 5)):
        U, sigma, _ = torch.linalg.svd(X, full_matrices=False)
        for r in range(1, len(sigma)):
            best, spectral = sigma[r:].norm(), sigma[r]
            Y = reduced(X, r, keep)
            yield equals((X - Y).norm(), best, r=r)
            yield equals(torch.linalg.matrix_norm(X - Y, 2), spectral, r=r)
            left = torch.randn(rivals, len(X), r)
            fitted = left @ torch.linalg.lstsq(left, X.expand(rivals, -1, -1)).solution
            near = reduced(X, r, "largest") + 0.1 * torch.randn(rivals, *X.shape)
            near = torch.stack([reduced(Z, r, "largest") for Z in near[:10]])
            others = torch.linalg.svdvals(X - torch.cat([fitted, near]))
            yield at_least(others.norm(dim=1), best, r=r)
            yield at_least(others[:, 0], spectral, r=r)
            yield at_least(others[:, : len(sigma) - r], sigma[r:], r=r)
            Q = torch.linalg.qr(left).Q
            apart = r - (Q.mT @ U[:, :r]).square().sum((1, 2))  # half the squared distance
            excess = (X - fitted).square().sum((1, 2)) - best**2
            yield at_least(excess, (sigma[r - 1] ** 2 - sigma[r] ** 2) * apart, r=r)


eckart_young.foil("the smallest triplets", keep="smallest")
eckart_young.foil(
    "the longest columns: for four ones the error is the root of 2, not 0", keep="columns"
)


@claim(by="sampling", sources=("D-052",), budget=0.5, full={"pairs": 10**5})
def condition_number(ratio: str = "singular", pairs: int = 200):
    r"""Condition number of a matrix.

    $\kappa(A) = \|A\|_2 \|A^{-1}\|_2 = \sigma_{\max} / \sigma_{\min} \ge 1$ ($+\infty$ for singular
    $A$); for symmetric positive definite $H$ it is $\lambda_{\max} / \lambda_{\min}$. It is the
    largest factor by which solving $A x = b$ amplifies a relative error:
    $\frac{\|\delta x\|}{\|x\|} \le \kappa \frac{\|\delta b\|}{\|b\|}$, attained for $b = u_1$,
    $\delta b \parallel u_n$.

    *Proof.* $\|\delta x\| \le \|A^{-1}\| \|\delta b\|$ and $\|b\| \le \|A\| \|x\|$.
    """
    n = 5
    sigma = torch.cat([torch.ones(1), 10 ** (-3 * torch.rand(n - 1))]).sort(descending=True).values
    U, V = orthogonal(n), orthogonal(n)
    planted = {
        "general": ((U * sigma) @ V.T, sigma[0] / sigma[-1]),
        "definite": ((U * sigma) @ U.T, sigma[0] / sigma[-1]),
        "shear": (torch.tensor([[1.0, 100.0], [0.0, 1.0]]), (50 + math.sqrt(2501)) ** 2),
    }
    for name, (A, kappa) in planted.items():
        values = torch.linalg.svdvals(A)
        if ratio == "eigenvalue" or name == "definite":
            values = torch.linalg.eigvals(A).abs()
        measured = values.max() / values.min()
        yield equals(measured, kappa, matrix=name)
        yield equals(torch.linalg.cond(A), kappa, matrix=name)
        yield at_least(measured, 1.0, matrix=name)
        b, db = torch.randn(2, len(A), pairs)
        yield at_most(amplification(A, b, db), measured, matrix=name)
        u, _, _ = torch.linalg.svd(A)
        yield equals(amplification(A, u[:, :1], 1e-3 * u[:, -1:]), measured, matrix=name)
    yield equals(
        torch.linalg.cond(torch.diag(torch.tensor([1.0, 0.0]))), math.inf, matrix="singular"
    )


def amplification(A: Tensor, b: Tensor, db: Tensor) -> Tensor:
    """The relative error of solutions over that of the right-hand sides."""
    x, dx = torch.linalg.solve(A, torch.cat([b, db], 1)).split(b.shape[1], 1)
    return dx.norm(dim=0) / x.norm(dim=0) * b.norm(dim=0) / db.norm(dim=0)


condition_number.foil(
    "the ratio of eigenvalues, 1 for a shear that amplifies errors by ten thousand",
    ratio="eigenvalue",
)
