"""Least squares: normal equations and their solutions."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from vademecum.arrays import row_reduce
from vademecum.claims import at_least, claim, complex_step, equals, integers
from vademecum.linear import LinearRegression, RidgeRegression


def solution(x: Tensor, y: Tensor, estimator: Any = None) -> Tensor:
    """The weights that an estimator without intercept finds."""
    return (estimator or LinearRegression(fit_intercept=False)).fit(x, y).coef_


@claim(
    by="identity",
    sources=("B-201", "C-028", "C-029", "C-033"),
    budget=0.5,
    full={"sets": 100},
    short=r"h(w) = \tfrac1{2s} \|X w - y\|^2,\quad \nabla h(w) = \tfrac1s X^\top (X w - y)",
)
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

    Knobs:
        gradient: The gradient as a function of $X$, $y$ and $w$.
        sets: How many data sets are drawn.
    """
    one = torch.ones(1, 1)
    slope = gradient(one, torch.zeros(1), torch.ones(1))
    yield equals("gradient for $X = 1$, $y = 0$, $w = 1$", slope, 1.0)
    for k in range(sets):
        s, n = ((7, 3), (4, 2), (9, 1))[k % 3]
        x, y, w = torch.randn(s, n), torch.randn(s), torch.randn(n)

        def h(w: Tensor, x: Tensor = x, y: Tensor = y) -> Tensor:
            return ((x.to(w) @ w - y) ** 2).sum() / (2 * len(x))

        each = [(float(x[i] @ w) - float(y[i])) ** 2 / 2 for i in range(s)]
        at = {"s": s, "n": n, "set": k}
        yield equals("loss, one example after the other", h(w), math.fsum(each) / s, **at)
        yield equals("gradient", gradient(x, y, w), complex_step(h, w), tol=1e-12, **at)
        best = solution(x, y)
        yield equals("gradient at the solution found", complex_step(h, best), 0.0, tol=1e-12, **at)
        elsewhere = torch.stack([h(v) for v in best + torch.randn(20, n)])
        yield at_least("loss elsewhere", elsewhere, h(best), **at)


least_squares.foil(
    "residual times input without the minus sign",
    gradient=lambda x, y, w: x.T @ (y - x @ w) / len(x),
)
least_squares.erratum(
    "C-029",
    printed=r"$\nabla h = 2 X^\top X w - 2 X^\top y$ for $h = \frac1{2 s} \|X w - y\|^2$",
    right=r"$\nabla h = \frac1s (X^\top X w - X^\top y)$",
    why=r"that is the gradient of $\|X w - y\|^2$, too large by $2 s$: with $s = 1$, $X = 1$, "
    "$y = 0$, $w = 1$ one has $h = w^2 / 2$ and the derivative 1, printed 2",
    refuted_by="gradient for $X = 1$, $y = 0$, $w = 1$",
    gradient=lambda x, y, w: 2 * x.T @ x @ w - 2 * x.T @ y,
)


def rational(x: Tensor, y: Tensor) -> list[Fraction]:
    """The solution of the normal equations for integer data, over the rationals."""
    table = torch.cat([x.T @ x, (x.T @ y)[:, None]], 1)
    return [row[-1] for row in row_reduce(table.tolist()).rows]


@claim(
    by="identity",
    sources=("C-033", "E-078", "E-079"),
    budget=0.5,
    full={"sets": 100},
    short=r"w^* = (X^\top X)^{-1} X^\top y \iff X^\top (y - X w^*) = 0"
    r"\quad (\operatorname{rk} X = n)",
)
def normal_equations(intercept: bool = True, estimator: Any = None, sets: int = 4):
    r"""The normal equations.

    If $X$ has full column rank, $\|X w - y\|^2$ has the unique minimiser
    $w^* = (X^\top X)^{-1} X^\top y$, characterised by a residual orthogonal to all columns,
    $X^\top (y - X w^*) = 0$. A model $f(x) = w^\top x + b$ with intercept needs a column of ones in
    $X$ (or centred inputs and targets).

    *Proof.* The gradient vanishes exactly there, and the Hessian $2 X^\top X$ is positive definite.

    Checked against the solution in fractions. A step $v \ne 0$ from it raises the squared error by
    $\|X v\|^2 > 0$.

    Knobs:
        intercept: Whether the model has one.
        estimator: What fits the model; `LinearRegression` where it is None.
        sets: How many data sets are drawn.
    """
    n = 3
    apart = torch.cat([7 * torch.eye(n), torch.zeros(1, n)]).long()
    unit = estimator or LinearRegression(fit_intercept=intercept)
    for k in range(sets):
        x, y = torch.cat([apart, integers(4, n, most=4).long()]), integers(8, most=4).long()
        ones = torch.cat([x, torch.ones(8, 1, dtype=torch.int64)], 1)
        exact = [float(v) for v in rational(ones, y)]
        unit.fit(x.double(), y.double())
        yield equals("weights and intercept", _both(unit), exact, set=k)
        products = ones.double().T @ (y - unit.predict(x.double()))
        yield equals("products of the columns with the residual", products, 0.0, set=k)
        steps = torch.randn(20, n + 1)
        errors = ((_both(unit) + steps) @ ones.T.double() - y).square().sum(1)
        rise = errors - (y - unit.predict(x.double())).square().sum()
        square = (steps @ ones.T.double()).square().sum(1)
        yield equals("rise of the squared error after a step", rise, square, set=k)
        truth = integers(n + 1, most=4)
        again = _both(unit.fit(x.double(), ones.double() @ truth))
        yield equals("weights and intercept of consistent targets", again, truth, set=k)
    unit.fit(torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 1.0]))
    yield equals("weight for $x = (1, 2)$, $y = (1, 1)$", _both(unit)[0], 0.0)
    yield equals("intercept for $x = (1, 2)$, $y = (1, 1)$", _both(unit)[1], 1.0)


def _both(unit: Any) -> Tensor:
    return torch.cat([unit.coef_, torch.as_tensor(unit.intercept_).reshape(1).double()])


normal_equations.foil(
    "a penalised solution leaves a residual that is not orthogonal",
    refuted_by="products of the columns with the residual",
    estimator=RidgeRegression(alphas=0.1),
)
normal_equations.erratum(
    "E-079",
    printed=r"model $f(x) = w^\top x + b$, solution $w^* = (X^\top X)^{-1} X^\top y$",
    right=r"the same for $X$ of full column rank with a column of ones, or centred data",
    why="the intercept is silently dropped and full column rank is not required: for $x = (1, 2)$,"
    " $y = (1, 1)$ the optimum is $w = 0$, $b = 1$ with zero error, the formula gives 3/5 and no"
    " $b$",
    weight="soft",
    refuted_by="weight for $x = (1, 2)$, $y = (1, 1)$",
    intercept=False,
)


def basic(x: Tensor, y: Tensor) -> Tensor:
    """A minimiser with zeros in all but the first two coordinates, for a design of rank two."""
    few = torch.linalg.lstsq(x[:, :2], y[:, None]).solution[:, 0]
    return torch.cat([few, torch.zeros(x.shape[1] - 2)])


@claim(
    by="identity",
    sources=("C-030",),
    budget=0.5,
    full={"sets": 100},
    short=r"\arg\min_w \|X w - y\| = X^+ y + \ker X,\quad X^+ y \text{ the shortest}",
)
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

    Checked for designs of rank two, and for one of full rank.

    Knobs:
        solve: The solution, a function of $X$ and $y$.
        dimension: How many independent directions lead to further minimisers, a function of the
            number of weights and the rank.
        sets: How many data sets of each shape are drawn.
    """
    tall, goal = torch.randn(7, 3), torch.randn(7)
    yield equals("weights of a full design", solve(tall, goal), torch.linalg.pinv(tall) @ goal)
    for k, (n, d) in enumerate([(6, 4), (2, 5), (30, 6)] * sets):
        u, v = (torch.linalg.qr(torch.randn(size, 2)).Q for size in (n, d))
        x, y = u * torch.tensor([2.0, 1.0]) @ v.T, torch.randn(n)
        unit = LinearRegression(fit_intercept=False).fit(x, y)
        w = solve(x, y)
        at = {"s": n, "n": d, "set": k}
        yield equals("rank found", unit.rank_, 2, **at)
        yield equals("weights of a design of rank two", w, torch.linalg.pinv(x) @ y, **at)
        products = x.T @ (y - x @ w)
        yield equals("products of the columns with the residual", products, 0.0, **at)
        loss = (x @ w - y).square().sum()
        elsewhere = ((w + torch.randn(20, d)) @ x.T - y).square().sum(1)
        yield at_least("loss elsewhere", elsewhere, loss, **at)
        directions = torch.linalg.svd(x).Vh
        kept = ((w + directions) @ x.T - y).square().sum(1)
        free = int(((kept - loss).abs() < 1e-9).sum())  # the others raise it by 1 or 4
        yield equals("directions that keep the loss", free, dimension(d, 2), **at)
        step = torch.randn(d - 2) @ directions[2:]
        rise = (w + step).square().sum() - w.square().sum()
        yield equals("rise of the squared norm along the kernel", rise, step.square().sum(), **at)
    row, one = torch.tensor([[1.0, 1.0]]), torch.tensor([1.0])
    yield equals("weights for $X = (1\\ 1)$, $y = 1$", solve(row, one), 0.5)
    others = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [3.0, -2.0]])
    free = int(torch.linalg.matrix_rank((others - others[0])[others @ row[0] == one]))
    name = "directions of further minimisers for $X = (1\\ 1)$, $y = 1$"
    yield equals(name, free, dimension(2, 1))


minimum_norm_solution.foil(
    "the basic solution, zeros in the other coordinates, is longer",
    refuted_by="rise of the squared norm along the kernel",
    solve=basic,
)
minimum_norm_solution.erratum(
    "C-030",
    printed=r"$w^* = X^+ y = \operatorname{argmin}_w h[w]$",
    right=r"$X^+ y + \ker X = \operatorname{argmin}_w h[w]$, and $X^+ y$ is the shortest of these",
    why="exactly where the pseudo-inverse is needed the minimiser is not unique: for "
    "$X = (1\\ 1)$, $y = 1$ every $w$ with $w_1 + w_2 = 1$ minimises, $X^+ y = (1/2, 1/2)$ is only "
    "the shortest",
    weight="soft",
    refuted_by="directions of further minimisers for $X = (1\\ 1)$, $y = 1$",
    dimension=lambda d, rank: 0,
)
