"""Fitting factor analysis: EM, and the condition for a maximum."""

from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, complex_step, equals, with_eigenvalues
from vademecum.generative import ProbabilisticPCA
from vademecum.generative.claims._planted_factors import drawn, fitted, likelihood, with_covariance


def step_of_em(
    x: Tensor, W: Tensor, noise: Tensor, mean: Tensor, spread: bool
) -> tuple[Tensor, Tensor]:
    """Loadings and noise after a step of EM, from posterior moments of every single row.

    Loadings by least squares of features on factors, in expectation; noise by what is left of every
    entry. `spread` says whether the factors' posterior covariance counts.
    """
    k, A = W.shape[1], W @ W.T + noise.diag()
    gain = torch.linalg.solve(A, W).T
    rest = (torch.eye(k) - gain @ W) * spread
    second, cross = torch.zeros(k, k), torch.zeros(len(W), k)
    for row in x - mean:
        z = gain @ row
        second += torch.outer(z, z) + rest
        cross += torch.outer(row, z)
    V = torch.linalg.solve(second, cross.T).T
    left = sum(
        (row - V @ (gain @ row)).square() + ((V @ rest) * V).sum(1) for row in x - mean
    ) / len(x)
    return V, torch.as_tensor(left)


@claim(
    by="identity",
    sources=("A-345", "B-477", "D-416"),
    budget=0.6,
    full={"steps": 2000},
    short=r"\text{EM: } z | x \text{ for each } x, \text{ then least squares for } W, \Sigma; \;"
    r" \log p(S) \text{ never falls}",
)
def factor_em(spread: bool = True, steps: int = 60, shape: tuple[int, int] = (200, 6)):
    r"""Factor analysis is fitted by EM.

    Maximum likelihood, $\arg\max_{\mu, W, \Sigma} \log p(S \mid \mu, W, \Sigma)$, has no closed
    form for the loadings when $\Sigma$ is a general diagonal matrix (quoted). EM alternates the
    posterior moments $\mathbb E[z \mid x]$, $\mathbb E[z z^\top \mid x]$ with least squares for $W$
    and $\Sigma$. It never lowers the likelihood, and loadings that it leaves as they are satisfy $S
    (\Sigma + W W^\top)^{-1} W = W$.

    *Checked* for `FactorAnalysis`, which needs the covariance of the data only: single steps
    against posterior moments and sums of squares taken row by row; the path of the likelihood; at
    the maximum that it finds, with a gradient below $10^{-7}$, a step of EM leaves the loadings as
    they are and the condition holds. (A sheet writes $\mu, W \leftarrow \log p(\mu, W \mid S)$:
    that is a posterior, which needs a prior, and the maximum is not written.)

    Knobs:
        spread: Whether $\mathbb E[z z^\top]$ contains the posterior covariance.
        steps: How many steps of EM are made.
        shape: The numbers of examples and features.
    """
    n, d = shape
    for k in (1, 2):
        W, noise, mean = drawn(d, k)
        x = mean + torch.randn(n, k) @ W.T + torch.randn(n, d) * noise.sqrt()
        em: Any = {"quasi_newton": False, "tol": 1e-12}
        fits = [fitted(x, k, max_iter=m, **em) for m in (1, 2, 7, 8)]
        for before, after in zip(fits[::2], fits[1::2], strict=True):
            start = before.components_.T, before.noise_variance_, before.mean_
            V, left = step_of_em(x, *start, spread)
            at = {"k": k, "step": after.n_iter_}
            wanted = V @ V.T + left.diag()
            yield equals("covariance after a step of EM", after.get_covariance(), wanted, **at)
            yield equals("noise after a step of EM", after.noise_variance_, left, **at)
        model = fitted(x, k, max_iter=steps, min_noise=1e-3, **em)
        rise = torch.tensor(model.loglike_).diff()
        yield at_least("rise of the mean log-likelihood in a step", rise, 0.0, tol=1e-12, k=k)
        best = fitted(x, k, min_noise=1e-3, tol=1e-7)
        low = torch.tensor(model.loglike_[-1])
        yield at_most("log-likelihood of EM and the maximum", low, best.loglike_[-1] + 1e-6, k=k)
        A, W = best.get_covariance(), best.components_.T
        S = (x - x.mean(0)).T @ (x - x.mean(0)) / n
        # The gradient in units of the noise, of at least 1e-3 of a variance, is below 1e-7, and the
        # residual is the covariance times it.
        slack = 1e-7 * d * float(S.abs().max()) / (1e-3 * float(S.diagonal().min())) ** 0.5
        residual = S @ torch.linalg.solve(A, W) - W
        yield at_most("residual of the condition", residual.abs(), slack, tol=0.0, k=k)
        # So is what a step moves: loadings are below the features' deviations, for each factor.
        V, _ = step_of_em(x, W, best.noise_variance_, best.mean_, spread)
        deviation = S.diagonal().sqrt()
        moved = (V @ V.T - W @ W.T) / deviation / deviation[:, None]
        yield equals("what a step of EM moves at the maximum", moved, 0.0, tol=1e-6, k=k)


factor_em.foil(r"$\mathbb E[z]\, \mathbb E[z]^\top$ for $\mathbb E[z z^\top]$", spread=False)

CONDITIONS = {
    "inverse covariance": lambda S, A, W: S @ torch.linalg.solve(A, W) - W,
    "covariance": lambda S, A, W: S @ W - W,
    "noise alone": lambda S, A, W: S @ torch.linalg.solve(A - W @ W.T, W) - W,
}


@claim(
    by="identity",
    sources=("E-248",),
    budget=0.4,
    full={"others": 100},
    short=r"\nabla_W \log p = 0 \iff S (\Sigma + W W^\top)^{-1} W = W",
)
def factor_stationarity(
    condition: Literal["inverse covariance", "covariance", "noise alone"] = "inverse covariance",
    others: int = 10,
):
    r"""The condition for loadings of largest likelihood.

    For fixed noise the likelihood is stationary in $W$ iff $S (\Sigma + W W^\top)^{-1} W = W$.

    *Proof.* With $A = \Sigma + W W^\top$ the gradient of the mean log-likelihood is $A^{-1} (S
    A^{-1} W - W)$, and $A$ is invertible. *Checked* at random loadings, where the residual is $A$
    times the gradient by the complex step; at the loadings of `ProbabilisticPCA`, with given noise
    and with the most likely one, where both vanish (for `FactorAnalysis` by the claim `factor_em`).

    Knobs:
        condition: What is called the condition.
        others: At how many random loadings it is compared with the gradient.
    """
    for d, m in ((4, 2), (5, 3)):
        values = 0.3 + 3 * torch.rand(d).sort().values
        S = with_eigenvalues(values)
        x = with_covariance(S)
        for noise in (None, float(values[-m:].mean())):
            model = ProbabilisticPCA(m, noise_variance=noise).fit(x)
            W, A = model.components_.T, model.get_covariance()
            residual = CONDITIONS[condition](S, A, W)
            which = "most likely" if noise is None else "given"
            yield equals("residual at probabilistic PCA", residual, 0.0, d=d, m=m, noise=which)
            Sigma = model.noise_variance_ * torch.eye(d)
            slope = complex_step(lambda V, S=S, C=Sigma: likelihood(S, V @ V.T + C), W)
            yield equals("gradient at probabilistic PCA", slope, 0.0, d=d, m=m, noise=which)
        for _ in range(others):
            W, psi, _ = drawn(d, m)
            Sigma = psi.diag()
            A = W @ W.T + Sigma
            residual = CONDITIONS[condition](S, A, W)
            slope = complex_step(lambda V, S=S, C=Sigma: likelihood(S, V @ V.T + C), W)
            yield equals("residual, and A times the gradient", residual, A @ slope, d=d, m=m)


factor_stationarity.foil("the covariance in the place of its product", condition="covariance")
factor_stationarity.foil("the inverse of the noise alone", condition="noise alone")
