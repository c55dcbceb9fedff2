"""Decay on quadratics: what is left of each direction, how much is best, what noise is fitted."""

import math
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals, slope
from vademecum.linear import RidgeRegression
from vademecum.regularization import optimal_weight_decay as best_decay
from vademecum.regularization import spectral_shrinkage as shrink
from vademecum.regularization import weight_decay_effect


def planted(values: Tensor) -> tuple[Tensor, Tensor]:
    """A symmetric matrix with these eigenvalues, and its eigenvectors."""
    Q = torch.linalg.qr(torch.randn(len(values), len(values))).Q
    H = (Q * values) @ Q.T
    return (H + H.T) / 2, Q


def away_from_zero(d: int) -> Tensor:
    """Random numbers with sizes between 1/2 and 3/2."""
    return torch.randn(d).sign() * (0.5 + torch.rand(d))


@claim(
    by="identity",
    sources=("A-147", "A-148", "A-149", "B-324", "B-327", "B-328", "B-329", "C-214", "C-215"),
    budget=0.3,
    short=r"\theta_\mu = (H + \mu I)^{-1} H \theta^* = Q\, \mathrm{diag}\big("
    r"\tfrac{\lambda_i}{\lambda_i + \mu}\big) Q^\top \theta^*",
)
def spectral_shrinkage(
    kept: Literal["lambda", "mu"] = "lambda", factor: float = 1.0, order: float = 3.0
):
    r"""L2 regularisation shrinks along the eigenbasis of the Hessian.

    In the quadratic model $E(\theta) \approx E(\theta^*) + \frac12 (\theta - \theta^*)^\top H
    (\theta - \theta^*)$ at a minimum, $H = Q \Lambda Q^\top \succeq 0$, whose error is cubic in the
    distance, the minimum of $E + \frac\mu2 \|\theta\|^2$ is $(H + \mu I)^{-1} H \theta^* = Q\,
    \mathrm{diag}(\frac{\lambda_i}{\lambda_i + \mu})\, Q^\top \theta^*$. Directions with $\lambda_i
    \gg \mu$ are hardly touched, flat ones with $\lambda_i \ll \mu$ shrink to about $\lambda_i /
    \mu$ of what they were; the norm of the solution never rises with $\mu$.

    *Proof.* The gradient $H (\theta - \theta^*) + \mu \theta$ vanishes there. Checked for
    `spectral_shrinkage` against a solver on planted spectra, one of them singular; the order of the
    error for $\sum_i e^{a_i \cdot \theta} - a_i \cdot \theta$, all $a_i$ positive, at its minimum.

    Knobs:
        kept: What stands above the line in the factor.
        factor: The factor of $\mu$ below the line.
        order: The power of the distance in the error of the quadratic model.
    """
    for values in ((0.3, 1.0, 4.0), (0.0, 0.001, 0.2, 1.0, 50.0)):
        lam, d = torch.tensor(values), len(values)
        H, Q = planted(lam)
        c = away_from_zero(d)
        minimum, norms = Q @ c, []
        for mu in torch.logspace(-3, 3, 13).tolist():
            found = shrink(H, minimum, decay=mu)
            solved = np.linalg.solve((H + mu * torch.eye(d)).numpy(), (H @ minimum).numpy())
            at = {"d": d, "mu": mu}
            yield equals("minimum with the penalty", found.theta, solved, tol=1e-10, **at)
            slack = H @ (found.theta - minimum) + mu * found.theta
            yield equals("gradient there", slack, 0.0, tol=1e-10 * (1 + mu), **at)
            share = (lam if kept == "lambda" else mu) / (lam + factor * mu)
            left = Q.T @ torch.as_tensor(solved) / c
            yield equals("share left of each direction", left, share, tol=1e-10, **at)
            yield equals("factors that are reported", found.factors, share, tol=1e-10, **at)
            back = (found.directions * found.eigenvalues) @ found.directions.T
            yield equals("Hessian put together again", back, H, tol=1e-12, **at)
            norms.append(found.theta.norm())
        rise = torch.stack(norms).diff()
        yield at_most("rise of the norm with the decay", rise, 0.0, tol=1e-14, d=d)
    H, Q = planted(torch.tensor([1e-3, 1e3]))
    low, high = shrink(H, Q.sum(1), decay=1.0).factors
    yield at_most("share left of a direction a thousand times flatter", low, 1e-3, tol=0.0)
    yield at_least("share left of one a thousand times steeper", high, 0.999, tol=1e-9)
    a, u = 0.5 + torch.rand(6, 3), nn.functional.normalize(torch.rand(3) + 0.1, dim=0)
    z = a @ u
    r = torch.logspace(-3, -1, 9)
    gaps = [((s * z).exp() - s * z - 1).sum() - s**2 / 2 * z @ z for s in r]
    # the next term is at most r max(z) / 4 of the leading one, with max(z) < 3
    yield slope("error of the quadratic model", r, torch.stack(gaps), order, tol=0.08)


spectral_shrinkage.foil("the roles swapped", kept="mu")
spectral_shrinkage.foil("the penalty without its half", factor=2.0)
spectral_shrinkage.foil("an error whose order is lower by a fifth", order=2.4)


@claim(
    by="identity",
    sources=("C-216", "C-217"),
    budget=0.5,
    short=r"\mathbb E \|w_\mu - w\|^2 \text{ is least at } \mu = \sigma^2 / u^2;"
    r" \text{for a mean over } s: \sigma^2 / (s u^2)",
)
def optimal_weight_decay(upside_down: bool = False, divided: bool = True):
    r"""Optimal weight decay.

    For linear regression with the loss $\frac12 \|X w - y\|^2$, noise of variance $\sigma^2$ and a
    teacher with uncorrelated weights of mean 0 and variance $u^2$ each, the expected error of ridge
    regression, of the weights and on test inputs of any covariance, is least at $\mu = \sigma^2 /
    u^2$, whatever the design: inversely proportional to the ratio of signal and noise. For the loss
    averaged over $s$ samples divide by $s$.

    *Proof.* In the eigenbasis of $X^\top X$ the error is $\sum_i c_i (u^2 \mu^2 + \sigma^2
    \lambda_i) / (\lambda_i + \mu)^2$ with $c_i \ge 0$, and each term has the derivative $2 c_i
    \lambda_i (u^2 \mu - \sigma^2) / (\lambda_i + \mu)^3$. Checked for `optimal_weight_decay`
    against SciPy's minimum of the expected error by its definition, for tall and wide designs.

    Knobs:
        upside_down: Whether the ratio is turned over.
        divided: Whether the loss averaged over samples has a value of its own.
    """
    from scipy.optimize import minimize_scalar

    pairs = ((0.5, 2.0), (2.0, 0.5), (0.1, 1.0), (3.0, 1.0), (0.04, 0.3), (7.0, 0.9))
    for (noise, signal), (s, d) in zip(pairs, 2 * ((20, 5), (9, 4), (5, 8)), strict=True):
        X = torch.randn(s, d)
        C, _ = planted(0.2 + torch.rand(d))
        for mean in (False, True):
            for law, test in (("weights", torch.eye(d)), ("test outputs", C)):

                def risk(log_mu: float, X=X, test=test, s=s, d=d, mean=mean) -> float:
                    share = s if mean else 1
                    A = X.T @ X / share + math.exp(log_mu) * torch.eye(d)
                    M = torch.linalg.solve(A, X.T / share)
                    bias = M @ X - torch.eye(d)
                    spread = signal * bias @ bias.T + noise * M @ M.T  # noqa: B023
                    return float((test * spread).sum())

                found: Any = minimize_scalar(risk, bracket=(-4.0, 1.0), tol=1e-10)
                given = (signal, noise) if upside_down else (noise, signal)
                said = best_decay(*given, n=s if mean and divided else None)
                at = {"error": law, "mean": mean, "noise": noise, "signal": signal, "s": s}
                # a minimum is found up to the root of the rounding of the error
                yield equals("best decay over the formula", math.exp(found.x) / said, 1.0,
                             tol=1e-5, **at)  # fmt: skip


optimal_weight_decay.foil("the ratio upside down", upside_down=True)
optimal_weight_decay.foil("the value of the sum for the mean over samples", divided=False)


def relu_network(L: int) -> tuple[list[Tensor], Tensor]:
    """Weights of L layers of random widths, and inputs for the first."""
    widths = [int(w) for w in torch.randint(2, 6, (L + 1,))]
    weights = [torch.randn(k, d) / d**0.5 for d, k in pairwise(widths)]
    return weights, torch.randn(40, widths[0])


def through(weights: list[Tensor], x: Tensor) -> Tensor:
    """The outputs: linear layers with ReLUs between them."""
    for W in weights[:-1]:
        x = (x @ W.T).relu()
    return x @ weights[-1].T


@claim(
    by="sampling",
    sources=("B-324",),
    budget=0.7,
    full={"networks": 50},
    short=r"\mathbb E \|S_\mu \epsilon\|^2 = \sigma^2 \sum_i (\tfrac{\lambda_i}{\lambda_i"
    r" + \mu})^2,\ L_f \le (2 \Omega / L)^{L/2}",
)
def decay_sensitivity(
    fitted: Literal["kept", "lost"] = "kept", doubled: float = 2.0, networks: int = 12
):
    r"""Weight decay lowers sensitivity and the noise that is fitted.

    For ridge regression with the smoother $S_\mu = X (X^\top X + \mu I)^{-1} X^\top$ and the
    eigenvalues $\lambda_i$ of $X^\top X$ the Lipschitz constant $\|w_\mu\|$ of the fit falls
    strictly in $\mu$ (for $X^\top y \ne 0$), and label noise of variance $\sigma^2$ enters the fit
    with $\mathbb E \|S_\mu \epsilon\|^2 = \sigma^2 \sum_i (\frac{\lambda_i}{\lambda_i + \mu})^2$;
    $\mathrm{tr}\, S_\mu$ is the number of directions left alive. For a network of $L$ layers with
    1-Lipschitz activations and $\Omega = \frac12 \sum_l \|W^l\|_F^2$, $\|f(x) - f(x')\| \le \prod_l
    \|W^l\|_F\, \|x - x'\| \le (2 \Omega / L)^{L/2}\, \|x - x'\|$.

    *Proof.* $\|W\|_2 \le \|W\|_F$, and the geometric mean of $\|W^l\|_F^2$ is at most the
    arithmetic one, $2 \Omega / L$. The noise is checked over all signs of 8 labels, the constants
    for `RidgeRegression` and over random ReLU networks of 1 to 4 layers; one unit a layer, equal
    weights and positive inputs attain both bounds.

    Knobs:
        fitted: Whether the noise enters by what the decay leaves, or by what it takes.
        doubled: The factor before $\Omega / L$.
        networks: How many networks are drawn.
    """
    sigma = 0.6
    for n, d in ((8, 3), (30, 8)):
        X, y = torch.randn(n, d), torch.randn(n)
        lam, norms = torch.linalg.eigvalsh(X.T @ X), []
        for mu in torch.logspace(-3, 3, 20).tolist():
            fit = RidgeRegression(alphas=mu, fit_intercept=False).fit(X, y)
            norms.append(fit.coef_.norm())
            S = X @ torch.linalg.solve(X.T @ X + mu * torch.eye(d), X.T)
            share = (lam if fitted == "kept" else mu) / (lam + mu)
            noise, at = sigma**2 * share.square().sum(), {"n": n, "d": d, "mu": mu}
            if n == 8:
                signs = torch.cartesian_prod(*[torch.tensor([-sigma, sigma])] * n)
                mean = (signs @ S.T).square().sum(1).mean()
                yield equals("mean noise in the fit over all signs", mean, noise, **at)
            yield equals("trace of the squared smoother", sigma**2 * S.square().sum(), noise, **at)
        fall = -torch.stack(norms).log().diff()
        yield at_least("fall of the norm's logarithm with the decay", fall, 1e-6, tol=0.0, d=d)
        model = nn.Linear(d, 1, bias=False)
        found = weight_decay_effect(model, X, y[:, None], loss=_half_squares, decay=2.0)
        S = X @ torch.linalg.solve(X.T @ X + 2 * torch.eye(d), X.T)
        yield equals("directions left alive", found.alive, S.trace(), d=d)
    for i in range(networks):
        L = 1 + i % 4
        weights, x = relu_network(L)
        gaps = (through(weights, x[:20]) - through(weights, x[20:])).norm(dim=1)
        quotient = (gaps / (x[:20] - x[20:]).norm(dim=1)).max()
        product = math.prod(float(W.norm()) for W in weights)
        omega = sum(float(W.square().sum()) for W in weights) / 2
        yield at_most("quotient of differences", quotient, product, L=L)
        yield at_most("product of the norms", product, (2 * omega / L) ** (L / 2), L=L)
    for L in (1, 2, 3, 4):
        w = 0.5 + torch.rand(())
        weights, x = [w.view(1, 1)] * L, torch.tensor([[1.0], [3.5]])
        low, high = through(weights, x)[:, 0]
        bound = (doubled * L * w**2 / 2 / L) ** (L / 2)
        yield equals("quotient that is attained", (high - low) / 2.5, bound, tol=1e-12, L=L)


def _half_squares(z: Tensor, y: Tensor) -> Tensor:
    return (z - y).square().sum() / 2


decay_sensitivity.foil("the noise enters by what the decay takes", fitted="lost")
decay_sensitivity.foil("the factor 2 of the halved penalty lost", doubled=1.0)
