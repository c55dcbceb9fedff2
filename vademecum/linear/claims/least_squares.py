"""What the course claims of least squares, its solutions and its likelihood."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Laplace, MultivariateNormal, Normal

from vademecum.claims import at_least, at_most, claim, complex_step, equals, row_reduce
from vademecum.linear.claims.maps import integers
from vademecum.linear.least_squares import LinearRegression
from vademecum.linear.ridge import RidgeRegression


def solution(x: Tensor, y: Tensor, estimator: Any = None) -> Tensor:
    """The weights that an estimator without intercept finds."""
    return (estimator or LinearRegression(fit_intercept=False)).fit(x, y).coef_


@claim(by="identity", sources=("B-201", "C-028", "C-029", "C-033"), budget=0.5, full={"sets": 100})
def least_squares(
    gradient: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, y, w: (
        x.T @ (x @ w - y) / len(x)
    ),
    sets: int = 4,
):
    r"""The least-squares loss and its gradient.

    For a design matrix $X \in \mathbb{R}^{s \times n}$ linear regression minimises
    $h(w) = \frac1{2 s} \|X w - y\|^2$, the mean of the squared losses
    $\frac12 (w^\top x_i - y_i)^2$, each with derivative (prediction minus target). Its gradient is
    $\nabla h(w) = \frac1s X^\top (X w - y)$, minus the mean of residual $y_i - w^\top x_i$ times
    input.

    *Proof.* The chain rule.
    """
    s, n = 7, 3
    for k in range(sets):
        x, y, w = torch.randn(s, n), torch.randn(s), torch.randn(n)

        def h(w: Tensor, x: Tensor = x, y: Tensor = y) -> Tensor:
            return ((x.to(w) @ w - y) ** 2).sum() / (2 * s)

        each = [(float(x[i] @ w) - float(y[i])) ** 2 / 2 for i in range(s)]
        yield equals(h(w), math.fsum(each) / s, tol=1e-13, set=k)
        yield equals(gradient(x, y, w), complex_step(h, w), tol=1e-12, set=k)
        best = solution(x, y)
        yield equals(complex_step(h, best), 0.0, tol=1e-12, set=k)
        yield at_least(torch.stack([h(v) for v in best + torch.randn(20, n)]), h(best), set=k)


least_squares.foil(
    "residual times input without the minus sign",
    gradient=lambda x, y, w: x.T @ (y - x @ w) / len(x),
)
least_squares.erratum(
    "C-029",
    printed=r"$\nabla h = 2 X^\top X w - 2 X^\top y$ for $h = \frac1{2 s} \|X w - y\|^2$",
    right=r"$\nabla h = \frac1s (X^\top X w - X^\top y)$",
    why=r"That is the gradient of $\|X w - y\|^2$, too large by $2 s$: with $s = 1$, $X = 1$, "
    "$y = 0$, $w = 1$ the derivative of $w^2 / 2$ is 1, printed 2.",
    gradient=lambda x, y, w: 2 * x.T @ x @ w - 2 * x.T @ y,
)


def rational(x: Tensor, y: Tensor) -> list[Fraction]:
    """The solution of the normal equations for integer data, over the rationals."""
    table = torch.cat([x.T @ x, (x.T @ y)[:, None]], 1)
    return [row[-1] for row in row_reduce(table.tolist()).rows]


@claim(by="identity", sources=("C-033", "E-078", "E-079"), budget=0.5, full={"sets": 100})
def normal_equations(intercept: bool = True, estimator: Any = None, sets: int = 4):
    r"""The normal equations.

    If $X$ has full column rank, $\|X w - y\|^2$ has the unique minimiser
    $w^* = (X^\top X)^{-1} X^\top y$, characterised by a residual orthogonal to all columns,
    $X^\top (y - X w^*) = 0$. A model $f(x) = w^\top x + b$ with intercept needs a column of ones in
    $X$ (or centred inputs and targets).

    *Proof.* The gradient vanishes exactly there, and the Hessian $2 X^\top X$ is positive definite.
    """
    n = 3
    apart = torch.cat([7 * torch.eye(n, dtype=torch.int64), torch.zeros(1, n, dtype=torch.int64)])
    unit = estimator or LinearRegression(fit_intercept=intercept)
    for k in range(sets):
        x, y = torch.cat([apart, integers(4, n)]), integers(8)
        ones = torch.cat([x, torch.ones(8, 1, dtype=torch.int64)], 1)
        exact = rational(ones, y)
        residual = [
            int(t) - sum(a * b for a, b in zip(exact, row, strict=True))
            for t, row in zip(y, ones.tolist(), strict=True)
        ]
        for column in ones.T.tolist():
            left = sum(a * r for a, r in zip(column, residual, strict=True))
            yield equals(int(left * math.lcm(*(v.denominator for v in residual))), 0, set=k)
        unit.fit(x.double(), y.double())
        yield equals(_both(unit), [float(v) for v in exact], set=k)
        off = y - unit.predict(x.double())
        yield equals(ones.double().T @ off, 0.0, set=k)
        truth = integers(n + 1)
        yield equals(_both(unit.fit(x.double(), (ones @ truth).double())), truth.double(), set=k)
    unit.fit(torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 1.0]))
    yield equals(_both(unit), [0.0, 1.0])


def _both(unit: Any) -> Tensor:
    return torch.cat([unit.coef_, torch.as_tensor(unit.intercept_).reshape(1).double()])


normal_equations.foil(
    "a penalised solution leaves a residual that is not orthogonal",
    estimator=RidgeRegression(alphas=0.1),
)
normal_equations.erratum(
    "E-079",
    printed=r"model $f(x) = w^\top x + b$, solution $w^* = (X^\top X)^{-1} X^\top y$",
    right=r"the same for $X$ of full column rank with a column of ones, or centred data",
    why="The intercept is dropped: for $x = (1, 2)$, $y = (1, 1)$ the optimum is $w = 0$, $b = 1$, "
    "the formula gives 3/5 and no $b$. Nor is full column rank required.",
    weight="soft",
    intercept=False,
)


def basic(x: Tensor, y: Tensor) -> Tensor:
    """A minimiser with zeros in all but the first two coordinates, for a design of rank two."""
    few = torch.linalg.lstsq(x[:, :2], y[:, None]).solution[:, 0]
    return torch.cat([few, torch.zeros(x.shape[1] - 2)])


@claim(by="identity", sources=("C-030",), budget=0.5, full={"sets": 100})
def minimum_norm_solution(
    solve: Callable[[Tensor, Tensor], Tensor] = solution,
    dimension: Callable[[int, int], int] = lambda d, rank: d - rank,
    sets: int = 4,
):
    r"""The pseudo-inverse gives the least-norm least-squares solution.

    For any $X$ and $y$, $w^* = X^+ y$ is the minimiser of $\|X w - y\|$ with the smallest Euclidean
    norm; the set of all minimisers is $X^+ y + \ker X$, a single point iff $X$ has full column
    rank.

    *Proof.* $X w$ is the same at all minimisers, the projection of $y$ onto the image of $X$, and
    $X^+ y$ is orthogonal to $\ker X$. (Penrose, 1956.)
    """
    for k, (n, d) in enumerate([(6, 4), (2, 5), (30, 6)] * sets):
        u, v = (torch.linalg.qr(torch.randn(size, 2)).Q for size in (n, d))
        x, y = u * torch.tensor([2.0, 1.0]) @ v.T, torch.randn(n)
        unit = LinearRegression(fit_intercept=False).fit(x, y)
        w = solve(x, y)
        yield equals(unit.rank_, 2, set=k)
        yield equals(w, torch.linalg.pinv(x) @ y, set=k)
        kernel = torch.linalg.svd(x).Vh[2:]
        loss = (x @ w - y).square().sum()
        kept = ((w + kernel) @ x.T - y).square().sum(1)
        yield equals(int(((kept - loss).abs() < 1e-9).sum()), dimension(d, 2), set=k)
        step = torch.randn(len(kernel)) @ kernel
        rise = (w + step).square().sum() - w.square().sum()
        yield equals(rise, step.square().sum(), set=k)
    row, one = torch.tensor([[1.0, 1.0]]), torch.tensor([1.0])
    yield equals(solve(row, one), 0.5)
    yield equals(row @ torch.tensor([1.0, 0.0]), one)


minimum_norm_solution.foil(
    "the basic solution, zeros in the other coordinates, is longer", solve=basic
)
minimum_norm_solution.erratum(
    "C-030",
    printed=r"$w^* = X^+ y = \operatorname{argmin}_w h[w]$",
    right=r"$X^+ y + \ker X = \operatorname{argmin}_w h[w]$, and $X^+ y$ is the shortest of these",
    why="Exactly where the pseudo-inverse is needed the minimiser is not unique: for "
    "$X = (1\\ 1)$, $y = 1$ every $w$ with $w_1 + w_2 = 1$ minimises.",
    weight="soft",
    dimension=lambda d, rank: 0,
)


@claim(by="identity", sources=("C-031",), budget=0.5, full={"sets": 100})
def pseudo_inverse_limit(order: str = "right", sigma: float = 1.0, sets: int = 3):
    r"""The pseudo-inverse as a ridge limit.

    For every matrix $X$, also when $X^\top X$ is singular,
    $X^+ = \lim_{\epsilon \downarrow 0} (X^\top X + \epsilon I)^{-1} X^\top$; the error in the
    spectral norm is exactly $\epsilon / (\sigma (\sigma^2 + \epsilon))$ with $\sigma$ the smallest
    non-zero singular value.

    *Proof.* On a singular vector, $\frac1\sigma - \frac\sigma{\sigma^2 + \epsilon} =
    \frac\epsilon{\sigma (\sigma^2 + \epsilon)}$, which falls in $\sigma$.
    """
    for k in range(sets):
        u, v = (torch.linalg.qr(torch.randn(4, 4)).Q for _ in range(2))
        x = u[:, :2] * torch.tensor([2.0, 1.0]) @ v[:, :2].T
        exact = v[:, :2] / torch.tensor([2.0, 1.0]) @ u[:, :2].T
        yield equals(solution(x, torch.eye(4)).T, exact, set=k)
        for epsilon in (1e-2, 1e-3, 1e-4):
            ridge = (
                RidgeRegression(alphas=epsilon, fit_intercept=False).fit(x, torch.eye(4)).coef_.T
            )
            if order == "wrong":
                ridge = torch.linalg.solve(x @ x.T + epsilon * torch.eye(4), x.T)
            gap = torch.linalg.matrix_norm(ridge - exact, 2)
            yield equals(gap, epsilon / (sigma * (sigma**2 + epsilon)), set=k, epsilon=epsilon)


pseudo_inverse_limit.foil(
    r"the factors in the wrong order, $(X X^\top + \epsilon I)^{-1} X^\top$, grow like "
    r"$1 / \epsilon$ unless the singular vectors agree",
    order="wrong",
)
pseudo_inverse_limit.foil("the smallest singular value counts, not the largest", sigma=2.0)


@claim(by="identity", sources=("B-206", "C-035", "C-036"), budget=0.5, full={"weights": 2000})
def gaussian_likelihood(factor: float = 0.5, noise: Callable[..., Any] = Normal, weights: int = 20):
    r"""Least squares is Gaussian maximum likelihood.

    If $y_i = w^\top x_i + \epsilon_i$ with independent $\epsilon_i \sim \mathcal N(0, \sigma^2)$,
    then $-\log p(y \mid X, w) = \frac1{2 \sigma^2} \|X w - y\|^2 + \frac s2 \log(2 \pi \sigma^2)$,
    so maximum likelihood and least squares have the same minimisers; likewise
    $-\log \mathcal N(y; v, I) = \frac12 \|y - v\|^2 + \frac m2 \log 2 \pi$ for a vector output.

    *Proof.* The logarithm of the density, summed over independent observations.
    """
    s, n = 12, 3
    x, y = torch.randn(s, n), torch.randn(s)
    for sigma in (0.3, 1.0, 2.0):
        w = torch.randn(weights, n)
        measured = -noise(w @ x.T, sigma).log_prob(y).sum(1)
        squares = (w @ x.T - y).square().sum(1)
        formula = factor / sigma**2 * squares
        offset = measured - formula
        scale = measured.abs().max()
        yield equals(offset / scale, offset[0] / scale, tol=1e-12, sigma=sigma)
        yield equals(offset, s / 2 * math.log(2 * math.pi * sigma**2), sigma=sigma)
        best = solution(x, y)
        top = -noise(x @ best, sigma).log_prob(y).sum()
        yield at_most(top, measured.min(), sigma=sigma)
    for m in (1, 4):
        v, target = torch.randn(2, m)
        measured = -MultivariateNormal(v, torch.eye(m)).log_prob(target)
        formula = factor * (target - v).square().sum() + m / 2 * math.log(2 * math.pi)
        yield equals(measured, formula, m=m)


gaussian_likelihood.foil(r"the factor $1 / \sigma^2$: the difference varies with $w$", factor=1.0)
gaussian_likelihood.foil("the squared loss does not fit Laplace noise", noise=Laplace)
