"""Probabilistic PCA as its noise vanishes: the pseudo-inverse, and ordinary PCA."""

from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals, slope, with_eigenvalues
from vademecum.generative import ProbabilisticPCA
from vademecum.generative.claims._planted_factors import planted, with_covariance
from vademecum.linear import PCA


def gain(W: Tensor, noise: float) -> Tensor:
    """The matrix of posterior means, read off a model at the unit vectors."""
    return planted(W, torch.full((len(W),), noise)).transform(torch.eye(len(W))).T


def with_singular_values(n: int, values: Tensor) -> Tensor:
    """Loadings with these singular values and random singular vectors."""
    m = len(values)
    U, V = (torch.linalg.qr(torch.randn(k, k)).Q for k in (n, m))
    return (U[:, :m] * values) @ V.T


@claim(
    by="identity",
    sources=("D-414", "D-415"),
    budget=0.3,
    short=r"\sigma \to 0:\quad W^\top (W W^\top + \sigma^2 I)^{-1} \to W^+, \quad \mathrm{Cov}[z |"
    r" x] \to I - W^+ W",
)
def ppca_zero_noise(
    length: float = 1.0, limit: Literal["pseudo-inverse", "transpose"] = "pseudo-inverse"
):
    r"""Without noise the posterior mean is the pseudo-inverse.

    As $\sigma \to 0$, $W^\top (W W^\top + \sigma^2 I)^{-1} \to W^+$, the pseudo-inverse of Moore
    and Penrose. Hence $\mathbb E[z \mid x] \to W^+ (x - \mu)$ and $\mathrm{Cov}[z \mid x] \to I -
    W^+ W$, which is 0 for full column rank. $W^+ = W^\top$ holds when the columns of $W$ are
    orthonormal.

    *Proof.* A singular value $s > 0$ becomes $s / (s^2 + \sigma^2)$, which differs from $1 / s$ by
    at most $\sigma^2 / s^3$. *Checked* for models with that noise, $\sigma^2 = 10^{-4}, 10^{-6},
    10^{-8}$ and singular values in $[\frac12, 2]$, of full rank and not, against torch's
    pseudo-inverse with that bound; for orthonormal columns against the transpose.

    Knobs:
        length: The length of the orthogonal columns.
        limit: What is called the limit for any loadings.
    """
    for n, m in ((4, 2), (5, 5)):
        W = length * torch.eye(n)[:, :m]
        found = gain(W, 1e-8)
        yield equals("posterior-mean matrix of orthogonal columns", found, W.T, tol=1e-7, n=n, m=m)
        W = length * torch.linalg.qr(torch.randn(n, m)).Q
        found = gain(W, 1e-8)
        yield equals("the same in random directions", found, W.T, tol=1e-7, n=n, m=m)
    for n, m, rank in ((6, 3, 3), (4, 4, 4), (5, 4, 2), (3, 5, 3)):
        s = 0.5 + 1.5 * torch.rand(min(n, m))
        s[rank:] = 0
        W = with_singular_values(max(n, m), s) if n >= m else with_singular_values(m, s).T
        wanted = torch.linalg.pinv(W, rtol=1e-9) if limit == "pseudo-inverse" else W.T
        rest = torch.eye(m) - torch.linalg.pinv(W, rtol=1e-9) @ W
        for noise in (1e-4, 1e-6, 1e-8):
            at = {"n": n, "m": m, "rank": rank, "noise": noise}
            off = torch.linalg.matrix_norm(gain(W, noise) - wanted, 2)
            yield at_most("distance to the limit", off, noise / 0.5**3, tol=1e-7, **at)
            model = planted(W, torch.full((n,), noise))
            spread = model.posterior(torch.randn(2, n)).covariance
            off = torch.linalg.matrix_norm(spread - rest, 2)
            yield at_most("distance of the covariance to its", off, noise / 0.5**2, tol=1e-7, **at)


ppca_zero_noise.foil("the transpose, for any loadings", limit="transpose")
ppca_zero_noise.erratum(
    "D-414",
    printed=r"the pseudo-inverse of $W$ converges (if $W$ has orthogonal columns $W^+=W^\top$)",
    right=r"the matrix of posterior means converges to $W^+$, which is $W^\top$ if the columns of"
    r" $W$ are orthonormal",
    why=r"Orthogonal is not enough: for $W = 2 I$ the limit is $W^+ = \frac12 I$ and not $W^\top ="
    r" 2 I$, and the sheet's own solution $w_i = \rho_i u_i$ has columns of lengths $\rho_i \ne 1$."
    " Also it is the matrix of posterior means that converges, to the pseudo-inverse.",
    weight="hard",
    refuted_by="posterior-mean matrix of orthogonal columns",
    length=2.0,
)


@claim(
    by="fit",
    sources=("D-419", "E-253"),
    budget=0.4,
    short=r"\sigma^2 \to 0:\; W\, \mathbb E[z | x] + \mu \to \text{projection on } m \text{ leading"
    r" eigenvectors}",
)
def ppca_to_pca(
    shrink: Literal["eigenvalue", "eigenvalue and noise", "none"] = "eigenvalue", rate: float = 1.0
):
    r"""PCA is probabilistic PCA without noise.

    For $\sigma^2 \to 0$ the reconstruction $W\, \mathbb E[z \mid x] + \mu$ of probabilistic PCA
    with that noise converges to the orthogonal projection on the $m$ leading eigenvectors of the
    covariance, which is PCA's, with an error proportional to $\sigma^2$: it is $-\sum_{i \le m}
    \frac{\sigma^2}{\lambda_i} u_i u_i^\top (x - \mu)$ as long as $\sigma^2 \le \lambda_m$.

    *Proof.* $w_i = \rho_i u_i$ gives the factor $\rho_i^2 / (\rho_i^2 + \sigma^2) = 1 - \sigma^2 /
    \lambda_i$. *Checked* for `ProbabilisticPCA` and `PCA` on examples with a gap in the spectrum,
    at new points, with noise from $10^{-6}$ to $10^{-2}$, and $\frac12$.

    Knobs:
        shrink: What divides $\sigma^2$ in the error.
        rate: The power of $\sigma^2$ to which the error is proportional.
    """
    for d, m in ((5, 2), (6, 4)):
        values = torch.cat([1 + torch.arange(m) + torch.rand(m) / 2, 0.6 * torch.rand(d - m)])
        x = with_covariance(with_eigenvalues(values)) + torch.randn(d)
        pca, y = PCA(m).fit(x), x.mean(0) + 2 * torch.randn(20, d)
        plain = pca.inverse_transform(pca.transform(y))
        lam, U = (
            part.flip(-1)[..., :m] for part in torch.linalg.eigh(torch.cov(x.T, correction=0))
        )
        noises, errors = torch.logspace(-2, -6, 9), []
        for noise in (torch.tensor(0.5), *noises):
            model = ProbabilisticPCA(m, noise_variance=float(noise)).fit(x)
            off = model.inverse_transform(model.transform(y)) - plain
            share = {"eigenvalue": noise / lam, "none": 0 * lam}
            share["eigenvalue and noise"] = noise / (lam + noise)
            wanted = -((y - x.mean(0)) @ U * share[shrink]) @ U.T
            at = {"d": d, "m": m, "noise": float(noise)}
            yield equals("error of the reconstruction over the noise", off / noise, wanted / noise,
                         tol=1e-7, **at)  # fmt: skip
            errors.append(torch.linalg.matrix_norm(off))
        yield slope("error by noise", noises, torch.stack(errors[1:]), rate, d=d, m=m)


ppca_to_pca.foil("the noise counted twice", shrink="eigenvalue and noise")
ppca_to_pca.foil("no shrinkage at any noise", shrink="none")
ppca_to_pca.foil("a rate that is a fifth larger", rate=1.2)
