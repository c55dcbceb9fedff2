"""Kernel ridge regression: the least squares of functions with a small norm."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import claim, equals
from vademecum.kernels import KernelRidge


def descent(Phi: Tensor, y: Tensor, lam: float) -> Tensor:
    """Where gradient descent on the regularised squares ends, from 0.

    Each step of the inverse of the largest curvature shrinks the error by 1 - lam / curvature at
    least.
    """
    top = float(torch.linalg.matrix_norm(Phi, 2)) ** 2 + lam
    w = torch.zeros(Phi.shape[1], *y.shape[1:])
    for _ in range(int(28 * top / lam)):  # e^-28 is 7e-13
        w = w - (Phi.T @ (Phi @ w - y) + lam * w) / top
    return w


@claim(
    by="identity",
    sources=("C-249",),
    budget=0.8,
    short=r"\arg\min_f \|y - f\|^2 + \lambda \|f\|_H^2 = k(x)^\top (K + \lambda I)^{-1} y",
)
def kernel_ridge(penalised: Literal["function", "coefficients"] = "function", factor: float = 1.0):
    r"""Kernel ridge regression.

    Minimising $\|y - f\|^2 + \lambda \|f\|_{\mathcal H}^2$ gives $f(x) = k(x)^\top (K + \lambda
    I)^{-1} y$, with fitted values $K (K + \lambda I)^{-1} y$ on the training set; for $\lambda \to
    0$ and invertible $K$ it interpolates.

    *Checked* for the kernel $\varphi(x)^\top \varphi(\xi)$ of random features, more than examples,
    whose functions $w^\top \varphi$ have the norm $\|w\|$: the solution of the primal normal
    equations, the end of gradient descent on the primal objective, `KernelRidge` (with a function
    and with a matrix, one target and several with a penalty each) and the formula agree; along the
    eigenvectors of $K$ the fitted values are $y$ shrunk by $\lambda_i / (\lambda_i + \lambda)$;
    $\lambda = 10^{-10}$ reproduces $y$ to $10^{-6}$.

    Knobs:
        penalised: Whether the penalty is on the function, or on its coefficients: then $(K^2 +
            \lambda I)^{-1} K$ takes the place of $(K + \lambda I)^{-1}$.
        factor: The factor before $\lambda$ in the formula.
    """
    for n, p, m, lam in ((5, 17, 3, 0.7), (6, 25, 4, 2.5)):
        phases, angles = torch.randn(p), torch.randn(p, 2)
        x, new, y = 2 * torch.randn(n, 2), 2 * torch.randn(m, 2), torch.randn(n)

        def features(x, angles=angles, phases=phases):
            return torch.cos(x @ angles.T + phases)

        def kernel(a, b, f=features):
            return f(a) @ f(b).T

        Phi, phi = features(x), features(new)
        primal = torch.linalg.solve(Phi.T @ Phi + lam * torch.eye(p), Phi.T @ y)
        K, eye = Phi @ Phi.T, factor * lam * torch.eye(n)
        c = torch.linalg.solve(K + eye, y)
        if penalised == "coefficients":
            c = torch.linalg.solve(K @ K + eye, K @ y)
        fitted = KernelRidge(kernel, alpha=lam).fit(x, y)
        given = KernelRidge("precomputed", alpha=lam).fit(K, y)
        at = {"n": n, "features": p, "lambda": lam}
        expected = phi @ primal
        yield equals("end of gradient descent", phi @ descent(Phi, y, lam), expected, **at)
        yield equals("KernelRidge", fitted.predict(new), expected, **at)
        yield equals("KernelRidge of a matrix", given.predict(phi @ Phi.T), expected, **at)
        yield equals("formula", phi @ Phi.T @ c, expected, **at)
        values, vectors = torch.linalg.eigh(K)
        shrunk = values / (values + lam) * (vectors.T @ y)
        yield equals("fitted values by eigenvector", vectors.T @ fitted.predict(x), shrunk, **at)
        yield equals("formula's fitted values", vectors.T @ (K @ c), shrunk, **at)
        several = torch.stack([y, y.flip(0), y.square()], 1)
        lams = np.array([lam, 3 * lam, lam / 5])
        each = [
            torch.linalg.solve(Phi.T @ Phi + float(a) * torch.eye(p), Phi.T @ column)
            for a, column in zip(lams, several.T, strict=True)
        ]
        found = KernelRidge(kernel, alpha=lams).fit(x, several).predict(new)
        yield equals("several targets", found, phi @ torch.stack(each, 1), **at)
    Phi = torch.linalg.qr(torch.randn(9, 4)).Q.T * torch.tensor([0.5, 1.0, 2.0, 3.0])[:, None]
    y = torch.randn(4)
    found = KernelRidge("precomputed", alpha=1e-10).fit(Phi @ Phi.T, y).predict(Phi @ Phi.T)
    yield equals("fitted values where lambda is 1e-10", found, y, tol=1e-6, n=4)


kernel_ridge.foil("a penalty on the coefficients", penalised="coefficients")
kernel_ridge.foil("a penalty twice as large", factor=2.0)
