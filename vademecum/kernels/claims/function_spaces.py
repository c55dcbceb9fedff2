"""The space of a kernel: its functions, and the norm in it."""

import math
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals
from vademecum.kernels import (
    LinearKernel,
    MaternKernel,
    kernel_regression,
    rkhs_inner,
)
from vademecum.kernels import rkhs_norm as hilbert_norm


class Features:
    r"""The kernel of random features $A \tanh(B x)$, of which there may be more than functions."""

    def __init__(self, d: int, m: int, p: int, size: float = 1.0):
        self.B = torch.randn(d, p)
        self.A = size * torch.linalg.qr(torch.randn(m, p)).Q

    def of(self, x: Tensor) -> Tensor:
        """The features, a row for each input."""
        return torch.tanh(x @ self.B) @ self.A.T

    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        """The matrix of all pairs."""
        return self.of(x) @ self.of(z).T


@claim(
    by="identity",
    sources=("C-250",),
    budget=0.3,
    short=r"\langle f, k(x, \cdot) \rangle = f(x),\quad"
    r" \|\sum_i \alpha_i k(x_i, \cdot)\|^2 = \alpha^\top K \alpha",
)
def rkhs(product: Literal["kernel", "coefficients"] = "kernel", root: float = 0.5):
    r"""Reproducing kernel Hilbert space of a feature model.

    Functions $f(x) = \langle \theta, \varphi(x) \rangle$ of a model that is linear in $\theta$,
    such as a linearised network, live in the space $\mathcal H$ of the kernel $k(x, \xi) = \langle
    \varphi(x), \varphi(\xi) \rangle$, with $\langle \sum_i \alpha_i k(x_i, \cdot), \sum_j \beta_j
    k(z_j, \cdot) \rangle = \sum_{ij} \alpha_i \beta_j k(x_i, z_j)$. It reproduces: $\langle f, k(x,
    \cdot) \rangle = f(x)$; so $\|f\|^2 = \alpha^\top K \alpha$ for $f = \sum_i \alpha_i k(x_i,
    \cdot)$, and $|f(x)| \le \|f\| \sqrt{k(x, x)}$, with equality for $f = k(x, \cdot)$.

    `rkhs_inner` and `rkhs_norm` are checked for finite feature maps against the inner product of
    parameters $\theta = \sum_i \alpha_i \varphi(x_i)$, small features and large ones; and for a
    Matern kernel against values of the function.

    Knobs:
        product: What is summed: $\alpha_i k(x_i, x_j) \beta_j$, or $\alpha_i \beta_i$ alone.
        root: The power of $k(x, x)$ in the bound.
    """
    for d, m, n, size in ((2, 6, 5, 0.3), (3, 4, 7, 5.0)):
        k = Features(d, m, m, size)
        x, z, alpha, beta = (torch.randn(s) for s in ((n, d), (n + 1, d), (n,), (n + 1,)))
        theta, other = (c @ k.of(p) for c, p in ((alpha, x), (beta, z)))

        def inner(k, x: Tensor, a: Tensor, z: Tensor, b: Tensor) -> Tensor:
            return rkhs_inner(k, x, a, z, b) if product == "kernel" else a @ b[: len(a)]

        scale = float(theta.norm() * other.norm())
        found = inner(k, x, alpha, z, beta) / scale
        yield equals("inner product", found, theta @ other / scale, tol=1e-12, m=m, n=n)
        one = torch.eye(n)[2]  # the function k(x_2, .)
        value = k.of(x)[2] @ theta
        yield equals("product with k(x, .)", inner(k, x, alpha, x, one), value, tol=1e-11, m=m)
        norm = hilbert_norm(k, x, alpha)
        yield equals("norm", norm, theta.norm(), tol=1e-11, m=m, n=n)
        many = k.of(torch.randn(1000, d))
        ceiling = norm * many.square().sum(1) ** root
        yield at_most("values", (many @ theta).abs(), ceiling, tol=1e-12, m=m)
        for i in range(n):
            own = k.of(x)[i]
            bound = hilbert_norm(k, x[i : i + 1], torch.ones(1)) * (own @ own) ** root
            yield equals("value of k(x, .) at x", own @ own, bound, tol=1e-12, m=m)
    kernel, x, alpha = MaternKernel(nu=0.5), torch.randn(6, 2), torch.randn(6)
    for z in torch.randn(4, 2):
        value = math.fsum(
            a * math.exp(-math.dist(p, z.tolist()))
            for a, p in zip(alpha.tolist(), x.tolist(), strict=True)
        )
        found = rkhs_inner(kernel, x, alpha, z[None], torch.ones(1))
        yield equals("value of a function of a Matern kernel", found, value, tol=1e-12)


rkhs.foil("the Euclidean product of the coefficients", product="coefficients")
rkhs.foil("the bound without the root", root=1.0)


@claim(
    by="identity",
    sources=("C-251",),
    budget=0.4,
    short=r"\|f\|_{\mathcal H}^2 = \min\{\|\theta\|^2 :"
    r" \langle \theta, \varphi(\cdot) \rangle = f\}",
)
def rkhs_norm(parameters: Literal["least", "any"] = "least", start: float = 0.0):
    r"""RKHS norm as the smallest parameter norm.

    $\|f\|_{\mathcal H}^2 = \min\{\|\theta\|^2 : \langle \theta, \varphi(\cdot) \rangle = f\} \le
    \|\theta\|^2$, with equality exactly for the parameters of least norm, those in the span of the
    features, which gradient descent from zero reaches. A part $v$ that is orthogonal to all
    features leaves the function as it is and adds $\|v\|^2$.

    Checked for features $A \tanh(B x)$ with more features $m$ than functions $p$, and for
    $\varphi(x) = (x, x)$, where $\theta = (1, -1)$ is the function 0. The norm that descent arrives
    at is compared with that of `kernel_regression`.

    Knobs:
        parameters: Whether parameters have no part orthogonal to the features, or any.
        start: How large the orthogonal part is at which gradient descent starts.
    """
    theta = torch.tensor([1.0, -1.0])
    both = torch.ones(2) / math.sqrt(2)  # spans the features of (x, x)
    theta = theta if parameters == "any" else both * (both @ theta)
    x = torch.tensor([[1.0], [-2.0]])
    values = torch.cat([x, x], 1) @ theta
    function = kernel_regression(LinearKernel(), torch.cat([x, x], 1), values)
    yield equals("squared norm of parameters of 0", theta @ theta, function.norm**2, tol=1e-12)
    for d, m, p, n in ((2, 7, 4, 3), (3, 9, 5, 4)):
        k = Features(d, m, p)
        x, alpha = torch.randn(n, d), torch.randn(n)
        Q = torch.linalg.qr(k.A, mode="complete").Q
        v = Q[:, p:] @ torch.randn(m - p)  # orthogonal to all features
        least = alpha @ k.of(x)
        theta = least + v if parameters == "any" else least
        many = k.of(torch.randn(50, d))
        yield equals("change of the function", many @ (least + v), many @ least, tol=1e-12, m=m)
        square = hilbert_norm(k, x, alpha) ** 2
        yield equals("squared norm of parameters", theta @ theta, square, tol=1e-11, m=m, p=p)
        more = (least + v) @ (least + v)
        yield equals("squared norm with another part", more, square + v @ v, tol=1e-11, m=m, p=p)
        # descent, with singular values of the features between 1 and 2
        U, _, V = torch.linalg.svd(torch.randn(n, m), full_matrices=False)
        J, y = (U * torch.linspace(1, 2, n)) @ V, torch.randn(n)
        null = torch.linalg.svd(J, full_matrices=True).Vh[-1]
        w = start * null
        for _ in range(300):  # each shrinks the error by 3/4 or more: 1e-37 in the end
            w = w + 0.25 * J.T @ (y - J @ w)
        found = kernel_regression(LinearKernel(), J, y)
        yield equals("outputs after descent", J @ w, y, tol=1e-11, n=n, m=m)
        yield equals("norm of parameters after descent", w.norm(), found.norm, tol=1e-11, n=n, m=m)


rkhs_norm.foil("descent from anywhere ends at the least norm", start=1.0)
rkhs_norm.erratum(
    "C-251",
    printed=r"$\|\bar F\|_{\mathcal H_K}^2 = \theta^\top \theta$",
    right=r"$\|\bar F\|_{\mathcal H_K}^2 \le \theta^\top \theta$, with equality for the parameters"
    " of least norm",
    why=r"It holds for parameters in the span of the features only, such as after gradient flow"
    r" from zero. With features that repeat it fails: $\varphi(x) = (x, x)$ with $\theta = (1, -1)$"
    r" is the function 0, but $\theta^\top \theta = 2$.",
    weight="soft",
    refuted_by="squared norm of parameters of 0",
    parameters="any",
)
