"""What the course claims of penalised least squares."""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, complex_step, equals
from vademecum.linear.coordinate_descent import soft_threshold
from vademecum.linear.lasso import Lasso
from vademecum.linear.ridge import RidgeRegression


@claim(
    by="identity",
    sources=("A-153", "B-330", "C-037", "C-038", "E-081", "E-082"),
    budget=0.5,
    full={"sets": 100},
)
def ridge(
    half: Callable[[int], int] = lambda s: s,
    mean: Callable[[int], int] = lambda s: 2 * s,
    free: bool = True,
    sets: int = 3,
):
    r"""Ridge regression.

    For $\lambda > 0$ the objective $\|X w - y\|^2 + \lambda \|w\|^2$ is strictly convex for every
    design and has the unique minimiser $w^* = (X^\top X + \lambda I)^{-1} X^\top y$. The scaling of
    the data term rescales the penalty: $\frac1{2 s} \|X w - y\|^2 + \frac\lambda2 \|w\|^2$ gives
    $(X^\top X + s \lambda I)^{-1} X^\top y$ (its Hessian is at least $\lambda I$) and
    $\frac1{2 s} \|X w - y\|^2 + \lambda \|w\|^2$ gives
    $(X^\top X + 2 s \lambda I)^{-1} X^\top y$. An intercept is normally left unpenalised, so that
    shifted targets give a shifted fit.

    *Proof.* Set the gradient to zero; the Hessian is $X^\top X$ plus a positive multiple of $I$.
    """
    lam, n = 0.3, 3
    for k in range(sets):
        s = (7, 2, 11)[k % 3]  # the second has fewer examples than features
        x, y = torch.randn(s, n), torch.randn(s)
        for data, penalty, alpha in (
            (1.0, lam, lam),
            (1 / (2 * s), lam / 2, half(s) * lam),
            (1 / (2 * s), lam, mean(s) * lam),
        ):

            def objective(
                w: Tensor,
                x: Tensor = x,
                y: Tensor = y,
                data: float = data,
                penalty: float = penalty,
            ) -> Tensor:
                return data * ((x.to(w) @ w - y) ** 2).sum() + penalty * (w**2).sum()

            w = RidgeRegression(alphas=alpha, fit_intercept=False).fit(x, y).coef_
            yield equals(complex_step(objective, w), 0.0, tol=1e-12, set=k)
            stacked = torch.cat([x, (penalty / data) ** 0.5 * torch.eye(n)])
            target = torch.cat([y, torch.zeros(n)])
            yield equals(w, torch.linalg.lstsq(stacked, target[:, None]).solution[:, 0], set=k)
        flat = torch.randn(s, 1) @ torch.randn(1, n)
        hessian = torch.autograd.functional.hessian(
            lambda w, x=flat, s=s: (x @ w).square().sum() / (2 * s) + lam / 2 * w @ w,
            torch.randn(n),
        )
        yield at_least(torch.linalg.eigvalsh(hessian).min(), lam, tol=1e-12, set=k)
        ones = torch.ones(s, int(not free))
        unit, rows = RidgeRegression(alphas=lam, fit_intercept=free), torch.cat([x, ones], 1)
        shift = unit.fit(rows, y + 5).predict(rows) - unit.fit(rows, y).predict(rows)
        yield equals(shift, 5.0, set=k)


ridge.foil("an intercept that is penalised as a weight lags behind a shift", free=False)
ridge.erratum(
    "C-038",
    printed=r"$w^* = (X^\top X + \lambda I)^{-1} X^\top y$ for "
    r"$h_\lambda = \frac1{2 s} \|X w - y\|^2 + \frac\lambda2 \|w\|^2$",
    right=r"$w^* = (X^\top X + s \lambda I)^{-1} X^\top y$",
    why=r"Setting $\frac1s X^\top (X w - y) + \lambda w = 0$ gives $s \lambda$: with "
    r"$X = y = (1, 1)^\top$, $\lambda = 1$ the minimiser is 1/2, printed 2/3.",
    half=lambda s: 1,
)
ridge.erratum(
    "E-082",
    printed=r"$w^* = (X^\top X + \lambda I)^{-1} X^\top y$ for "
    r"$\frac1{2 n} \sum_i (y_i - f(x_i))^2 + \lambda \|w\|^2$",
    right=r"$w^* = (X^\top X + 2 n \lambda I)^{-1} X^\top y$",
    why=r"The gradient vanishes where $(X^\top X + 2 n \lambda I) w = X^\top y$: with $n = 1$, "
    r"$x = y = 1$, $\lambda = 1/2$ the minimiser is 1/2, printed 2/3.",
    mean=lambda s: 1,
)


def by_enumeration(x: Tensor, y: Tensor, alpha: float) -> Tensor:
    """The lasso by brute force: the best of the consistent solutions over all sign patterns."""
    n, d = x.shape
    best, least = torch.zeros(d), float(y.square().sum() / (2 * n))
    for pattern in product((-1.0, 0.0, 1.0), repeat=d):
        signs = torch.tensor(pattern)
        on = signs != 0
        if not on.any():
            continue
        few = x[:, on]
        w = torch.zeros(d)
        w[on] = torch.linalg.solve(few.T @ few / n, few.T @ y / n - alpha * signs[on])
        value = float((y - x @ w).square().sum() / (2 * n) + alpha * w.abs().sum())
        if torch.equal(w.sign(), signs) and value < least:
            best, least = w, value
    return best


def optimality(x: Tensor, y: Tensor, w: Tensor, alpha: float) -> Tensor:
    r"""How far each coordinate is from the condition on $\frac1n \langle x_j, y - X w \rangle$."""
    slope = x.T @ (y - x @ w) / len(x)
    return torch.where(w != 0, (slope - alpha * w.sign()).abs(), (slope.abs() - alpha).clamp(min=0))


@claim(by="identity", sources=("E-083",), budget=0.5, full={"sets": 20})
def lasso(
    shrink: Callable[[Tensor, float], Tensor] = soft_threshold, scale: float = 1.0, sets: int = 2
):
    r"""The lasso and soft thresholding.

    The lasso minimises $\frac1{2 n} \|y - X w\|^2 + \lambda \|w\|_1$. A point is optimal iff
    $\frac1n X_j^\top (y - X w) = \lambda \operatorname{sign}(w_j)$ on its support and
    $|\frac1n X_j^\top (y - X w)| \le \lambda$ off it, which makes solutions sparse. There is no
    general closed form, but for $X^\top X / n = I$ each coordinate is the soft-thresholded
    least-squares coefficient $\operatorname{sign}(\hat w_j) (|\hat w_j| - \lambda)_+$.

    *Proof.* Zero must be in the subdifferential, and the objective is convex; for
    $X^\top X / n = I$ it is a sum over the coordinates. (Tibshirani, 1996.) The solver's duality
    gap $g$ bounds its distance to the optimum by $\sqrt{2 g / \mu}$ with $\mu$ the least
    eigenvalue of $X^\top X / n$: that is the tolerance.
    """
    n, d = 20, 4
    for k in range(sets):
        x, y = torch.randn(n, d), torch.randn(n)
        alpha = 0.3 * scale * float((x.T @ y).abs().max() / n)
        unit = Lasso(alpha=alpha, fit_intercept=False, tol=1e-13).fit(x, y)
        curvature = torch.linalg.eigvalsh(x.T @ x / n)
        reach = (2 * (max(unit.dual_gap_, 0.0) + 1e-15) / float(curvature[0])) ** 0.5
        yield equals(unit.coef_, by_enumeration(x, y, alpha / scale), tol=reach, set=k)
        slack = float(curvature[-1]) * reach
        yield at_most(optimality(x, y, unit.coef_, alpha), 0.0, tol=slack, set=k)
        q = torch.linalg.qr(torch.randn(n, d)).Q * n**0.5
        ordinary = q.T @ y / n
        alpha = float(ordinary.abs().sort().values[1:3].mean())  # two survive
        w = shrink(ordinary, alpha)
        yield at_most(optimality(q, y, w, alpha), 0.0, tol=1e-8, set=k)
        unit = Lasso(alpha=alpha, fit_intercept=False, tol=1e-13).fit(q, y)
        yield equals(unit.coef_, w, tol=1e-8, set=k)
        yield equals(int((unit.coef_ != 0).sum()), 2, set=k)


lasso.foil(
    r"a threshold of $\lambda / 2$, that of the loss without one half",
    shrink=lambda w, a: soft_threshold(w, a / 2),
)
lasso.foil(
    r"hard thresholding $\hat w_j\, 1[|\hat w_j| > \lambda]$", shrink=lambda w, a: w * (w.abs() > a)
)
lasso.foil(r"a penalty $2 \lambda$ shrinks more", scale=2.0)
