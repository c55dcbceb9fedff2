"""Penalties: ridge and lasso."""

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, complex_step, equals
from vademecum.linear import Lasso, RidgeRegression, lasso_path, soft_threshold


@claim(
    by="identity",
    sources=("A-153", "B-330", "C-037", "C-038", "E-081", "E-082"),
    budget=1.0,
    full={"sets": 100},
    short=r"\arg\min_w \|X w - y\|^2 + \lambda \|w\|^2 = (X^\top X +"
    r" \lambda I)^{-1} X^\top y \quad (\lambda > 0)",
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

    Of several penalties `RidgeRegression` takes the best by the error of leaving one example out,
    or by generalised cross-validation $\frac{s \|y - \hat y\|^2}{(s - \operatorname{tr} H)^2}$
    with $\hat y = H y$; both are checked by fitting again and again, and by the matrix $H$.

    Knobs:
        half: What $\lambda$ is multiplied by in the solution where the data term has
            $\frac1{2 s}$ and the penalty $\frac\lambda2$, a function of $s$.
        mean: The same where the data term has $\frac1{2 s}$ and the penalty $\lambda$.
        free: Whether the intercept is left unpenalised.
        sets: How many data sets are drawn.
    """
    yield from _by_hand(half, mean)
    yield from _selected()
    lam, n = 0.3, 3
    for k in range(sets):
        s = (7, 2, 11)[k % 3]  # the second has fewer examples than features
        x, y = torch.randn(s, n), torch.randn(s)
        for scaling, data, penalty, alpha in (
            ("1 and 1", 1.0, lam, lam),
            ("1/2 s and 1/2", 1 / (2 * s), lam / 2, half(s) * lam),
            ("1/2 s and 1", 1 / (2 * s), lam, mean(s) * lam),
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
            at = {"s": s, "scaling": scaling, "set": k}
            slope = complex_step(objective, w)
            yield equals("gradient at the solution", slope, 0.0, tol=1e-12, **at)
            stacked = torch.cat([x, (penalty / data) ** 0.5 * torch.eye(n)])
            target = torch.cat([y, torch.zeros(n)])
            exact = torch.linalg.lstsq(stacked, target[:, None]).solution[:, 0]
            yield equals("solution, against stacked least squares", w, exact, **at)
        flat = torch.randn(s, 1) @ torch.randn(1, n)
        hessian = torch.autograd.functional.hessian(
            lambda w, x=flat, s=s: (x @ w).square().sum() / (2 * s) + lam / 2 * w @ w,
            torch.randn(n),
        )
        least = torch.linalg.eigvalsh(hessian).min()
        yield at_least("least curvature of a flat design", least, lam, tol=1e-12, set=k)
        ones = torch.ones(s, int(not free))
        unit, rows = RidgeRegression(alphas=lam, fit_intercept=free), torch.cat([x, ones], 1)
        shift = unit.fit(rows, y + 5).predict(rows) - unit.fit(rows, y).predict(rows)
        yield equals("shift of the fit for targets shifted by 5", shift, 5.0, set=k)


def _by_hand(half: Callable[[int], int], mean: Callable[[int], int]):
    """The examples of one weight that can be solved by hand."""
    for name, s, lam, factor in (("1/2 s and 1/2", 2, 1.0, half), ("1/2 s and 1", 1, 0.5, mean)):
        x = torch.ones(s, 1)
        unit = RidgeRegression(alphas=factor(s) * lam, fit_intercept=False).fit(x, x[:, 0])
        found = unit.coef_[0]
        yield equals("solution for inputs and targets of 1", found, 0.5, scaling=name)


def _selected():
    """The choice among several penalties, by its definition, for two targets at once."""
    alphas = torch.logspace(2, -2, 9)
    for s, n, intercept in ((15, 4, True), (6, 9, True), (12, 3, False)):
        x, y = torch.randn(s, n) + 1, torch.randn(s, 2)
        y += x.sum(1, keepdim=True)
        c, d = (v - intercept * v.mean(0) for v in (x, y))
        maps = [torch.linalg.solve(c.T @ c + a * torch.eye(n), c.T) for a in alphas]
        hats = [intercept / s + c @ m for m in maps]
        gcv = [s * (y - h @ y).square().sum() / (s - h.trace()) ** 2 for h in hats]
        left = [_left_out(x, y, float(a), intercept) for a in alphas]
        for selection, errors in (("gcv", gcv), ("loo", left)):
            options = {"alphas": alphas, "selection": selection, "fit_intercept": intercept}
            unit = RidgeRegression(**options).fit(x, y)
            at: Any = {"s": s, "n": n, "selection": selection}
            yield equals("errors of the penalties", unit.scores_, torch.stack(errors), **at)
            best = torch.stack(errors).argmin()
            yield equals("penalty that is chosen", unit.alpha_, alphas[best], **at)
            weights = torch.stack([(m @ d).T for m in maps])
            yield equals("weights of the penalties", unit.coef_path_, weights, **at)
            yield equals("weights that are chosen", unit.coef_, weights[best], **at)


def _left_out(x: Tensor, y: Tensor, alpha: float, intercept: bool) -> Tensor:
    """The mean squared error of each example under the fit to the others."""
    total = torch.zeros(())
    for i in range(len(x)):
        rest = torch.arange(len(x)) != i
        mean_x, mean_y = (intercept * v[rest].mean(0) for v in (x, y))
        cx, cy = x[rest] - mean_x, y[rest] - mean_y
        w = torch.linalg.solve(cx.T @ cx + alpha * torch.eye(x.shape[1]), cx.T @ cy)
        total += (y[i] - mean_y - (x[i] - mean_x) @ w).square().sum()
    return total / len(x)


ridge.foil("an intercept that is penalised as a weight lags behind a shift", free=False)
ridge.erratum(
    "C-038",
    printed=r"$w^* = (X^\top X + \lambda I)^{-1} X^\top y$ for "
    r"$h_\lambda = \frac1{2 s} \|X w - y\|^2 + \frac\lambda2 \|w\|^2$",
    right=r"$w^* = (X^\top X + s \lambda I)^{-1} X^\top y$",
    why=r"setting $\frac1s X^\top (X w - y) + \lambda w = 0$ gives $s \lambda$ instead of "
    r"$\lambda$: with $X = y = (1, 1)^\top$, $\lambda = 1$ the minimiser is 1/2, the printed "
    "formula gives 2/3",
    refuted_by="solution for inputs and targets of 1",
    half=lambda s: 1,
)
ridge.erratum(
    "E-082",
    printed=r"$w^* = (X^\top X + \lambda I)^{-1} X^\top y$ for "
    r"$\frac1{2 n} \sum_i (y_i - f(x_i))^2 + \lambda \|w\|^2$",
    right=r"$w^* = (X^\top X + 2 n \lambda I)^{-1} X^\top y$",
    why=r"the gradient vanishes where $(X^\top X + 2 n \lambda I) w = X^\top y$: with $n = 1$, "
    r"$x = y = 1$, $\lambda = 1/2$ the minimiser is 1/2, the printed formula gives 2/3",
    refuted_by="solution for inputs and targets of 1",
    mean=lambda s: 1,
)


def by_enumeration(x: Tensor, y: Tensor, alpha: float) -> Tensor:
    """The lasso by brute force: the best of the consistent solutions over all sign patterns."""
    n, d = x.shape
    signs = torch.tensor(list(product((-1.0, 0.0, 1.0), repeat=d)))
    on = signs != 0
    rest = torch.diag_embed((~on).double())  # weights that are off stay zero
    gram = torch.where(on[:, :, None] & on[:, None], x.T @ x / n, rest)
    w = torch.linalg.solve(gram, torch.where(on, x.T @ y / n - alpha * signs, 0.0))
    value = (y - w @ x.T).square().sum(1) / (2 * n) + alpha * w.abs().sum(1)
    consistent = (w.sign() == signs).all(1)
    return w[value.masked_fill(~consistent, torch.inf).argmin()]


def optimality(x: Tensor, y: Tensor, w: Tensor, alpha: float) -> Tensor:
    r"""How far each coordinate is from the condition on $\frac1n \langle x_j, y - X w \rangle$."""
    slope = x.T @ (y - x @ w) / len(x)
    return torch.where(w != 0, (slope - alpha * w.sign()).abs(), (slope.abs() - alpha).clamp(min=0))


@claim(
    by="identity",
    sources=("E-083",),
    budget=1.0,
    full={"sets": 20},
    short=r"X^\top X = n I: \arg\min \tfrac1{2n} \|y - X w\|^2 + \lambda"
    r" \|w\|_1 = \mathrm{sign}(\hat w) (|\hat w| - \lambda)_+",
)
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
    $X^\top X / n = I$ it is a sum over the coordinates. (Tibshirani, 1996.)

    Checked against the best over all patterns of signs, with and without an intercept, for one
    penalty and along a path. The solver promises an objective within $g = 10^{-13}$ mean squares of
    the targets of its minimum, so that the weights are within $\sqrt{2 g / \mu}$ of the solution,
    with $\mu$ the least eigenvalue of $X^\top X / n$: that is the tolerance.

    Knobs:
        shrink: What becomes of the least-squares coefficients of an orthonormal design at a
            penalty.
        scale: What the solver's penalty is multiplied by.
        sets: How many data sets are drawn.
    """
    n, d = 20, 4
    for k in range(sets):
        for intercept in (False, True):
            yield from _against_enumeration(n, d, scale, intercept, k)
        q, y = torch.linalg.qr(torch.randn(n, d)).Q * n**0.5, torch.randn(n)
        ordinary = q.T @ y / n
        alpha = float(ordinary.abs().sort().values[1:3].mean())  # two survive
        w = shrink(ordinary, alpha)
        off = optimality(q, y, w, alpha)
        yield at_most("violation by the closed form", off, 0.0, tol=1e-12, set=k)
        unit = Lasso(alpha=alpha, fit_intercept=False, tol=GAP).fit(q, y)
        reach = (2 * GAP * float(y.square().mean())) ** 0.5
        yield equals("weights of an orthonormal design", unit.coef_, w, tol=reach, set=k)
        yield equals("weights that are not zero", int((unit.coef_ != 0).sum()), 2, set=k)
    yield from _many_features(scale)


def _many_features(scale: float, n: int = 40, d: int = 90):
    """More features than examples: the duality gap at the weights, from its definition."""
    x, y = torch.randn(n, d) + torch.randn(n, 1), torch.randn(n)
    cx, cy = x - x.mean(0), y - y.mean()
    top, power = float((cx.T @ cy).abs().max() / n), float(cy.square().mean())
    path = lasso_path(x, y, alphas=7, ratio=0.03, tol=1e-9)
    yield equals("penalties of a path", path.alphas, top * 0.03 ** (torch.arange(7) / 6))
    for i, alpha in enumerate(path.alphas.tolist()):
        unit, share = Lasso(alpha=scale * alpha, tol=1e-9).fit(x, y), {"penalty": alpha / top}
        for w, stated in ((path.coefs[i], path.gaps[i]), (unit.coef_, unit.dual_gap_)):
            r = cy - cx @ w
            primal = r.square().mean() / 2 + alpha * w.abs().sum()
            most = alpha * n / (cx.T @ r).abs().max()  # times r / n, the multipliers are allowed
            u = (cy @ r / (r @ r)).clamp(-most, most) * r
            gap = float(primal - (cy.square() - (cy - u).square()).mean() / 2)
            yield at_most("duality gap, over the mean square", gap / power, 1e-9, **share)
            yield equals("duality gap that is stated", stated, gap, tol=1e-14, **share)
    yield equals("whether all converged", path.converged, 1)


GAP = 1e-13
"""The duality gap that is asked for, in mean squares of the targets: near what rounding allows."""


def _against_enumeration(n: int, d: int, scale: float, intercept: bool, k: int):
    """The solver and the path, beside the best over all patterns of signs."""
    x, y = torch.randn(n, d) + intercept, torch.randn(n) + 3 * intercept
    means = (x.mean(0), y.mean()) if intercept else (torch.zeros(d), torch.zeros(()))
    cx, cy = x - means[0], y - means[1]
    top = float((cx.T @ cy).abs().max() / n)
    mu = torch.linalg.eigvalsh(cx.T @ cx / n)
    reach = (2 * GAP * float(cy.square().mean() / mu[0])) ** 0.5
    at, alphas = {"intercept": intercept, "set": k}, torch.tensor([0.6, 0.3, 0.02]) * top
    path = lasso_path(x, y, alphas=scale * alphas, fit_intercept=intercept, tol=GAP)
    for i, alpha in enumerate(alphas.tolist()):
        exact = by_enumeration(cx, cy, alpha)
        unit = Lasso(alpha=scale * alpha, fit_intercept=intercept, tol=GAP).fit(x, y)
        share = {"penalty": round(alpha / top, 3)} | at
        yield equals("weights of the solver", unit.coef_, exact, tol=reach, **share)
        yield equals("weights along the path", path.coefs[i], exact, tol=reach, **share)
        shift = means[1] - means[0] @ exact
        wide = reach * (1 + float(means[0].norm()))
        yield equals("intercept of the solver", unit.intercept_, shift, tol=wide, **share)
        yield equals("intercept along the path", path.intercepts[i], shift, tol=wide, **share)
        off, slack = optimality(cx, cy, unit.coef_, alpha), float(mu[-1]) * reach
        yield at_most("violation by the solver", off, 0.0, tol=slack, **share)


lasso.foil(
    r"a threshold of $\lambda / 2$, that of the loss without one half",
    shrink=lambda w, a: soft_threshold(w, a / 2),
)
lasso.foil(
    r"hard thresholding $\hat w_j\, 1[|\hat w_j| > \lambda]$", shrink=lambda w, a: w * (w.abs() > a)
)
lasso.foil(r"a penalty $2 \lambda$ shrinks more", scale=2.0)
