"""Regression without ridge: its coefficients, and the gradient flow that ends there."""

import math
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, claim, equals, with_eigenvalues
from vademecum.kernels import LinearKernel, kernel_regression, spectral_filter


@claim(
    by="identity",
    sources=("A-295", "A-296", "C-241"),
    budget=0.4,
    short=r"\beta^* = J^\top \alpha^*,\quad \alpha^* = K^+ (y - f_{\theta_0}),\quad"
    r" K = J J^\top",
)
def dual_coefficients(subtracted: bool = True, projected: bool = True):
    r"""Optimal dual coefficients.

    The solution of least norm of the linearised least squares problem $\min_\beta \|f_{\theta_0} +
    J \beta - y\|^2$ is $\beta^* = J^\top \alpha^*$ with $\alpha^* = K^+ (y - f_{\theta_0})$, $K = J
    J^\top$. It is the limit of gradient descent from $\beta = 0$, and what it leaves over is the
    projection of $y - f_{\theta_0}$ on the null space of $K$.

    Checked for `kernel_regression` with a wide $J$ (rank 4) and a tall one (rank 5), each with a
    repeated row whose targets differ; the singular values lie between 1 and $\sqrt 8$. The other
    side is the pseudoinverse of $J$ by its singular values, and descent step by step.

    Knobs:
        subtracted: Whether the outputs at the start are subtracted from the targets.
        projected: Whether what is left over is the projection on the null space, or nothing.
    """
    for n, d, rank in ((5, 8, 4), (10, 5, 5)):
        U, _, V = torch.linalg.svd(torch.randn(n - 1, d), full_matrices=False)
        J = (U * torch.linspace(1, 2, rank)) @ V
        J = torch.cat([J, J[:1]])  # squared singular values: from 1 to 4 + 4
        y, f0 = torch.randn(n, 2), 1 + torch.rand(n, 2)
        start = f0 if subtracted else None
        found = kernel_regression(LinearKernel(), J, y, f0=start, conflicts="average")
        beta = torch.linalg.pinv(J) @ (y - f0)
        yield equals("rank", found.rank, rank, n=n, d=d)
        yield equals("parameters", J.T @ found.coefficients, beta, tol=1e-9, n=n, d=d)
        yield equals("norm of parameters", found.norm, beta.norm(dim=0), tol=1e-9, n=n, d=d)
        w = torch.zeros(d, 2)
        for _ in range(300):  # each shrinks the error by 7/8 or more: 4e-18 in the end
            w = w + J.T @ (y - f0 - J @ w) / 8
        yield equals("limit of descent", J.T @ found.coefficients, w, tol=1e-9, n=n, d=d)
        left = y - f0 - J @ w
        gone = torch.zeros_like(left)
        yield equals("what is left over", left, found.residual if projected else gone, n=n, d=d)
        yield equals("kernel times what is left over", J @ (J.T @ left), gone, tol=1e-9, n=n)
        pair = (y - f0)[0] - (y - f0)[-1]
        split = found.residual[0] - found.residual[-1]
        yield equals("gap of the targets of equal rows", split, pair, tol=1e-9, n=n, d=d)
        z, z0 = torch.randn(3, d), torch.randn(3, 2)
        yield equals("predictions", found.predict(z, z0), z0 + z @ beta, tol=1e-9, n=n, d=d)


dual_coefficients.foil(r"$K^+ y$, without subtracting the start", subtracted=False)
dual_coefficients.foil("all targets are met", projected=False)


def best_ridge(lam: Tensor, t: float) -> tuple[float, float]:
    """The ridge whose filter is nearest to that of the flow, and their largest distance.

    The maximum of the distances is unimodal in the ridge: the filters of the ridge fall with it.
    """
    flow = 1 - torch.exp(-lam * t)

    def gap(log: float) -> float:
        return float((lam / (lam + math.exp(log)) - flow).abs().max())

    low, high = math.log(1e-6), math.log(1e6)
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if gap(a) < gap(b) else (a, high)
    return math.exp(low), gap(low)


def bare(K: Tensor, y: Tensor) -> Tensor:
    """What regression without ridge leaves over, for a kernel matrix."""
    rows = torch.arange(len(y)).double()[:, None]
    return kernel_regression(lambda a, b: K, rows, y).residual


@claim(
    by="identity",
    sources=("D-368",),
    budget=0.5,
    short=r"\dot f = K (y - f) \Rightarrow f_t = (I - e^{-K t})\, y \to K K^+ y",
)
def ridgeless_limit_of_flow(
    dynamics: Literal["flow", "ridge"] = "flow", end: float = 0.0, rate: float = 1.0
):
    r"""Gradient flow in the NTK limit is ridgeless kernel regression.

    Gradient flow of $\frac12 \|f - y\|^2$ with a constant kernel, $\dot f = K (y - f)$ from 0,
    applies the filter $1 - e^{-\lambda_i t}$ to the target, and ends for $t \to \infty$ at kernel
    regression *without* ridge: interpolation if $K$ is invertible, else the projection $K K^+ y$.
    Kernel ridge regression, with the filter $\lambda_i / (\lambda_i + \alpha)$ and the residual
    $\alpha (K + \alpha I)^{-1} y$, comes from explicit regularisation only. No single $\alpha$
    reproduces the flow at a time $t > 0$ if $K$ has two different eigenvalues, since $\alpha =
    \lambda / (e^{\lambda t} - 1)$ would have to vary with $\lambda$: for the eigenvalues 0.1, 1 and
    10 at $t = 1$ the filters differ by 0.054 or more, whatever $\alpha$.

    `spectral_filter` is compared with the exponential of the matrix, with the iterates of gradient
    descent, whose filter is $1 - (1 - \eta \lambda)^T$, and with a linear solve.

    Knobs:
        dynamics: Which filter is said to be that of the flow at $t = 1$: its own, or a ridge's.
        end: The ridge of the regression at which the flow is said to end.
        rate: The factor of $\lambda t$ in the exponent.
    """
    lam = torch.tensor([0.1, 1.0, 10.0])
    alpha, distance = best_ridge(lam, 1.0)
    phi = spectral_filter(lam, t=1.0) if dynamics == "flow" else spectral_filter(lam, alpha=alpha)
    U = torch.linalg.qr(torch.randn(3, 3)).Q
    flow = U.T @ (U - torch.matrix_exp(-(U * lam) @ U.T) @ U)  # what it does to eigenvectors
    gap = (phi - flow.diagonal()).abs().max()
    yield equals("distance of the filter from the flow at 0.1, 1, 10", gap, 0.0, tol=1e-10)
    yield equals("least distance of a ridge from the flow", distance, 0.054, tol=5e-4)  # 3 digits
    ridges = torch.logspace(-3, 3, 3001)[:, None]  # filters change by 0.0012 at most between them
    away = (spectral_filter(lam, alpha=ridges) - flow.diagonal()).abs().amax(1)
    yield equals("least distance of 3001 ridges", away.min(), distance, tol=1.2e-3)
    for t in (0.3, 1.0):
        own = lam / torch.expm1(lam * t)
        same = spectral_filter(lam, alpha=own)
        yield equals("filter with a ridge of its own", same, -torch.expm1(-lam * t), tol=1e-12, t=t)
        yield at_least("largest of these ridges over the least", own.max() / own.min(), 1.5, t=t)
    for n, zeros in ((5, 0), (7, 3)):
        lam = torch.cat([torch.zeros(zeros), 0.5 + 2.5 * torch.rand(n - zeros)])
        K = with_eigenvalues(lam)
        found, U = torch.linalg.eigh(K)
        y = torch.randn(n)
        parts = U.T @ y
        for t in (0.0, 0.4, 2.0):
            exact = y - torch.matrix_exp(-K * t) @ y
            learned = U @ (spectral_filter(found, t=rate * t) * parts)
            yield equals("output of the flow", learned, exact, tol=1e-10, n=n, t=t)
        f, eta = torch.zeros(n), 0.6
        for T in range(5):
            learned = U @ (spectral_filter(found, eta=eta, T=T) * parts)
            yield equals("output of descent", learned, f, tol=1e-10, n=n, T=T)
            f = f + eta * K @ (y - f)
        ridge = torch.linalg.solve(K + 0.5 * torch.eye(n), 0.5 * y)
        left = y - U @ (spectral_filter(found, alpha=0.5) * parts)
        yield equals("residual of ridge 0.5", left, ridge, tol=1e-10, n=n)
        rest = torch.matrix_exp(-K * 80.0) @ y  # e^-40 of what the kernel can express
        last = torch.linalg.solve(K + end * torch.eye(n), end * y) if end else bare(K, y)
        yield equals("residual of the flow at the end", rest, last, tol=1e-10, n=n)


ridgeless_limit_of_flow.foil("the flow ends at ridge regression", end=0.5)
ridgeless_limit_of_flow.foil(r"the filter $1 - e^{-2 \lambda t}$", rate=2.0)
ridgeless_limit_of_flow.erratum(
    "D-368",
    printed=r"The training dynamics become identical to Kernel Ridge Regression with kernel"
    r" $k_\infty$",
    right=r"The training dynamics end at kernel regression with kernel $k_\infty$, without ridge",
    why=r"Flow without a penalty interpolates, and on the way has the filter $1 - e^{-\lambda t}$;"
    r" $\lambda / (\lambda + \alpha)$ would need another $\alpha = \lambda / (e^{\lambda t} - 1)$"
    r" for every eigenvalue: for 0.1, 1, 10 at $t = 1$ the filters differ by 0.054 whatever"
    r" $\alpha$. The flow printed below it, $\dot f = K (y - f)$, has no ridge.",
    weight="hard",
    refuted_by="distance of the filter from the flow at 0.1, 1, 10",
    dynamics="ridge",
)
