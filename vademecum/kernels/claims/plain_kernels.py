"""Kernels: what they are, the linear one and the Gaussian one."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.arrays import rational_determinant, rational_rank
from vademecum.claims import at_least, at_most, claim, equals, integers
from vademecum.kernels import (
    ArcCosineKernel,
    LinearKernel,
    MaternKernel,
    RBFKernel,
    gram,
    kernel_regression,
)


def least(K: Tensor) -> Tensor:
    """The smallest eigenvalue, by LAPACK."""
    return torch.linalg.eigvalsh(K)[0]


def family(name: str):
    """A symmetric function of two numbers, of which only the first is a kernel."""
    return {
        "gaussian": RBFKernel(lengthscale=2.0),
        "distance": lambda x, z: 1 - (x - z.T).abs(),
        "tanh": lambda x, z: torch.tanh(x * z.T - 1),
    }[name]


@claim(
    by="identity",
    sources=("D-071", "E-051"),
    budget=0.4,
    short=r"k \text{ is a kernel} \iff k \text{ symmetric}, \sum_{ij} c_i"
    r" c_j k(x_i, x_j) \ge 0 \text{ for all } n, x_i, c_i",
)
def positive_semidefinite_kernel(
    function: Literal["gaussian", "distance", "tanh"] = "gaussian", sign: float = 1.0
):
    r"""Positive semidefinite kernel.

    A kernel is a symmetric *function* $k$ of two inputs such that for every finite set of points
    the matrix $K_{ij} = k(x_i, x_j)$ is positive semidefinite. The matrix is the kernel on a
    sample, and one such matrix proves nothing about $k$: $1 - |x - z|$ and $\tanh(x z - 1)$ pass on
    the point 1. Sums, products and positive multiples of kernels are kernels.

    Checked for all kernels of this room and combinations of them on random sets of 1 to 30 points,
    some repeated, in 2 and 3 dimensions. Entries are right to $10^{-13}$ here, so that an
    eigenvalue is off by at most $n\, 10^{-13}$ or as much times the largest.

    Knobs:
        function: A function of two numbers that is tried on sets of points.
        sign: The factor with which a kernel is added to another.
    """
    x = torch.tensor([[0.0], [1.0], [2.0], [5.0]])
    k = family(function)
    for name, points in (("0", x[:1]), ("1", x[1:2]), ("0, 1, 2, 5", x)):
        yield at_least(f"smallest eigenvalue on {name}", least(gram(k, points)), 0.0, tol=1e-12)
    for d, nu in ((2, 0.5), (3, 2.5)):
        rough, line = MaternKernel(nu=nu, lengthscale=0.7), LinearKernel(bias=0.3)
        smooth = RBFKernel(lengthscale=0.5 + torch.rand(d))
        kernels = [rough, smooth, line, *(ArcCosineKernel(order=n) for n in (0, 1, 2))]
        kernels += [MaternKernel(nu=1.5), 2.0 * rough + smooth, rough * line * 0.1, line * line]
        kernels += [lambda a, b, s=smooth, r=rough: r(a, b) + sign * s(a, b)]
        for n in (1, 2, 5, 13, 30):
            x = torch.randn(n, d)
            x[n // 2] = x[0]
            low = []
            for kernel in kernels:
                lam = torch.linalg.eigvalsh(gram(kernel, x))
                low.append(lam[0] / max(1.0, float(lam[-1])))
            found = torch.stack(low)
            yield at_least("smallest eigenvalue, in the largest", found, 0.0, tol=n * 1e-13, n=n)
        a, b = torch.randn(d), torch.randn(d)
        kernel = 2.0 * rough * line + 0.5 * smooth * smooth
        r = math.dist(a.tolist(), b.tolist()) / 0.7
        rbf = math.exp(-float((((a - b) / smooth.lengthscale) ** 2).sum()))  # squared
        s = math.sqrt(5) * r
        matern = math.exp(-r) if nu == 0.5 else (1 + s + s * s / 3) * math.exp(-s)
        value = 2 * matern * (math.fsum((a * b).tolist()) + 0.3) + 0.5 * rbf
        yield equals("value of a sum of products", kernel(a[None], b[None]), value, tol=1e-12, d=d)


positive_semidefinite_kernel.foil("differences of kernels are kernels", sign=-1.0)
positive_semidefinite_kernel.erratum(
    "D-071",
    printed="Kernels are positive semi-definite matrices.",
    right="Kernels are functions, all of whose Gram matrices are positive semi-definite.",
    why="Only the Gram matrices of a kernel are matrices, and one of them does not make a kernel:"
    r" $1 - |x - z|$ has the matrix 1 on every single point, and on 0, 1, 2, 5 one with the"
    r" eigenvalue $-4.70$.",
    weight="soft",
    refuted_by="smallest eigenvalue on 0, 1, 2, 5",
    function="distance",
)
positive_semidefinite_kernel.erratum(
    "E-051",
    printed="Kernels are positive semi-definite matrices.",
    right="Kernels are functions, all of whose Gram matrices are positive semi-definite.",
    why="A kernel on the real line has infinitely many pairs of points, and being positive"
    r" semidefinite is a statement about all its Gram matrices: $\tanh(x z - 1)$ has the matrix 0"
    r" on the point 1, and $\tanh(-1) = -0.76$ on the point 0.",
    weight="soft",
    refuted_by="smallest eigenvalue on 0",
    function="tanh",
)


@claim(
    by="identity",
    sources=("C-269",),
    budget=0.3,
    short=r"k(x, \xi) = x^\top \xi,\quad \mathrm{rank}\, X X^\top \le d",
)
def linear_kernel(definite: bool = False, ridge: float = 1.0):
    r"""Linear kernel.

    $k(x, \xi) = x^\top \xi$ is the covariance of $f(x) = w^\top x$ for $w$ with mean 0 and
    covariance $I$, a Gaussian for instance; with a bias of variance $b$, $x^\top \xi + b$. The Gram
    matrix $X X^\top$ of $s$ points in $d$ dimensions has rank at most $d$, $\min(s, d)$ if the
    points are in general position: it is not invertible for $s > d$. Regression with this kernel is
    linear regression: $k(z, X) (X X^\top + \alpha I)^{-1} y = z^\top (X^\top X + \alpha I)^{-1}
    X^\top y$, and without ridge the weights of least norm.

    The covariance is taken over all $w \in \{-1, 1\}^d$, whose covariance is $I$ as well. The rank
    is counted in fractions, for integer points with a dominant diagonal.

    Knobs:
        definite: Whether the matrix of any number of distinct points is said to be invertible.
        ridge: The factor between the ridges of both forms.
    """
    for s, d in ((7, 3), (4, 6)):
        X = integers(s, d)
        X[: min(s, d), : min(s, d)] += 100 * torch.eye(min(s, d))  # the rank is full
        K = gram(LinearKernel(), X)
        rank = rational_rank(K.tolist())
        yield equals("rank of the Gram matrix", rank, s if definite else min(s, d), s=s, d=d)
        W = torch.tensor(list(product((-1.0, 1.0), repeat=d)))
        for bias in (0.0, 4.0):
            f = torch.cat([W @ X.T - math.sqrt(bias), W @ X.T + math.sqrt(bias)])
            mean = f.T @ f / len(f)
            kernel = LinearKernel(bias=bias)
            yield equals("covariance of random lines", kernel(X), mean, tol=0.0, s=s, bias=bias)
            yield equals("variance of random lines", kernel.diagonal(X), mean.diagonal(), tol=0.0)
        Z, x, y = torch.randn(5, d), torch.randn(s, d), torch.randn(s)
        alpha = 0.1
        dual = torch.linalg.solve(gram(LinearKernel(), x) + alpha * torch.eye(s), y)
        primal = torch.linalg.solve(x.T @ x + ridge * alpha * torch.eye(d), x.T @ y)
        found = gram(LinearKernel(), Z, x) @ dual
        yield equals("ridge predictions", found, Z @ primal, tol=1e-10, s=s, d=d)
        bare = kernel_regression(LinearKernel(), x, y)
        yield equals("rank of regression without ridge", bare.rank, min(s, d), s=s, d=d)
        w = torch.linalg.lstsq(x, y[:, None], driver="gelsd").solution[:, 0]
        # relative to the condition of x, squared by the Gram matrix: rarely beyond 1e4
        size = 1e-12 * float(torch.linalg.cond(x)) ** 2
        yield equals("predictions without ridge", bare.predict(Z), Z @ w, tol=size, s=s, d=d)


linear_kernel.foil("the matrix of distinct points is invertible", definite=True)
linear_kernel.foil("the ridge of the weights is twice that of the kernel", ridge=2.0)


@claim(
    by="identity",
    sources=("C-270",),
    budget=0.5,
    short=r"k(x, \xi) = e^{-\gamma \|x - \xi\|^2},\ \gamma > 0,\quad"
    r" \det K > 0 \text{ for distinct points}",
)
def rbf_kernel(power: float = 1.0, distinct: bool = True, factor: float = 2.0):
    r"""Gaussian (RBF) kernel.

    $k(x, \xi) = e^{-\gamma \|x - \xi\|^2}$ with $\gamma > 0$ (lengthscale $\ell = (2
    \gamma)^{-1/2}$) is strictly positive definite: its Gram matrix is invertible for distinct
    points, though badly conditioned for small $\gamma$. On points of the integer grid in $d$
    dimensions with $\gamma = 1$ the smallest eigenvalue is at least $(1 + 2 \sum_{m \ge 1} (-1)^m
    e^{-m^2})^d = 0.3006^d$: the matrix is part of a convolution with this smallest Fourier
    coefficient.

    Checked: entries against a double loop; the determinant of five distinct points, in fractions,
    with entries to 80 digits; both for three $\gamma$.

    Knobs:
        power: The power of the kernel that is looked at; -1 is $e^{+\gamma \|x - \xi\|^2}$.
        distinct: Whether the five points are distinct, or the last repeats the first.
        factor: The c in $\ell = (c\, \gamma)^{-1/2}$.
    """
    for gamma, d in ((0.1, 2), (1.0, 3), (3.0, 2)):
        kernel = RBFKernel(lengthscale=(factor * gamma) ** -0.5)
        x, z = torch.randn(7, d), torch.randn(4, d)
        loop = [[-gamma * math.dist(a, b) ** 2 for b in z.tolist()] for a in x.tolist()]
        K = kernel(x, z) ** power
        yield equals("kernel", K, np.exp(loop), tol=1e-12, gamma=gamma)
        two = kernel(torch.tensor([[0.0], [1.0]])) ** power
        yield equals("smallest eigenvalue on 0 and 1", least(two), -math.expm1(-gamma), gamma=gamma)
        # integer points, so that distinct ones differ by 1 at least, and fractions stay short
        steps = torch.randint(1, 4, (5,)).cumsum(0).double()
        points = torch.stack([steps, *integers(d - 1, 5, most=3)], 1)
        points[4] = points[4] if distinct else points[0]
        exact = precise(points, gamma)
        entries = torch.tensor([[float(v) for v in row] for row in exact])
        yield equals("kernel of five points", kernel(points) ** power, entries, tol=1e-13, d=d)
        # entries are off by 1e-80; determinants of distinct points here are beyond 1e-12
        found = float(rational_determinant(exact))
        yield at_least("determinant of five points over 1e-40", found / 1e-40, 1.0, gamma=gamma)
    floor = 1 + 2 * sum((-1) ** m * math.exp(-m * m) for m in range(1, 8))
    kernel = RBFKernel(lengthscale=(factor * 1.0) ** -0.5)
    for d, side in ((1, 20), (2, 5)):
        grid = torch.cartesian_prod(*[torch.arange(side)] * d).view(-1, d).double()
        some = grid[torch.randperm(len(grid))[:14]]
        for points in (grid, some):
            low = least(kernel(points) ** power)
            yield at_least("smallest eigenvalue on the grid", low, floor**d, d=d)
        # of the whole side: a section of n has it within (pi / n)^2 times the symbol's curvature
        near = floor**d * (1 + 2 * (math.pi / side) ** 2 * d)
        yield at_most("smallest eigenvalue on all of it", least(kernel(grid)), near, d=d)
        twice = torch.cat([some, some[:1]])
        yield equals("smallest eigenvalue with a repeat", least(kernel(twice)), 0.0, tol=1e-13)


def precise(points: Tensor, gamma: float) -> list[list[Fraction]]:
    """The Gram matrix of integer points to 80 digits."""
    rows = [[int(v) for v in row] for row in points.tolist()]
    with localcontext() as context:
        context.prec = 80
        rate = Decimal(gamma)
        return [
            [Fraction((-rate * sum((a - b) ** 2 for a, b in zip(p, q, strict=True))).exp())
             for q in rows] for p in rows
        ]  # fmt: skip


rbf_kernel.foil("the exponent with a plus", power=-1.0)
rbf_kernel.foil("also for repeated points", distinct=False)
rbf_kernel.foil(r"$\ell = \gamma^{-1/2}$, without the 2", factor=1.0)
