"""Probabilistic PCA: its equation, its solution, its noise."""

import math
from typing import Any, Literal

import numpy as np
import torch
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, complex_step, equals, with_eigenvalues
from vademecum.generative import ProbabilisticPCA
from vademecum.generative.claims._planted_factors import likelihood, planted, with_covariance


@claim(
    by="identity",
    sources=("E-249",),
    budget=0.2,
    short=r"w_i \perp w_j:\; (\sigma^2 I + W W^\top)^{-1} W = W\, \mathrm{diag}\big(\tfrac1"
    r"{\sigma^2 + \|w_i\|^2}\big)",
)
def orthogonal_loadings_inverse(tilt: float = 0.0, power: float = 2.0):
    r"""The inverse covariance on orthogonal loadings.

    If the columns of $W$ are pairwise orthogonal with lengths $\rho_i$, then $(\sigma^2 I + W
    W^\top)^{-1} W = W\, \mathrm{diag}(\frac1{\sigma^2 + \rho_i^2})$.

    *Proof.* $(\sigma^2 I + W W^\top) W = W\, \mathrm{diag}(\sigma^2 + \rho_i^2)$. *Checked* against
    a linear solve, and for the posterior means of a model with these parameters at the unit
    vectors; a length may be zero.

    Knobs:
        tilt: How much of the first column is added to the second.
        power: The power of the lengths.
    """
    for n, m, noise in ((6, 3, 0.4), (5, 5, 1.7), (4, 2, 0.1)):
        rho = 0.3 + 2 * torch.rand(m)
        rho[-1] *= n != 4
        Q = torch.linalg.qr(torch.randn(n, n)).Q[:, :m]
        Q[:, 1] = (Q[:, 1] + tilt * Q[:, 0]) / math.sqrt(1 + tilt**2)
        W = Q * rho
        right = W / (noise + rho**power)
        exact = torch.linalg.solve(noise * torch.eye(n) + W @ W.T, W)
        at = {"n": n, "m": m}
        yield equals("inverse covariance times loadings", exact, right, tol=1e-12, **at)
        means = planted(W, torch.full((n,), noise)).transform(torch.eye(n))
        yield equals("posterior means at unit vectors", means, right, tol=1e-12, **at)


orthogonal_loadings_inverse.foil("columns that are not orthogonal", tilt=0.2)
orthogonal_loadings_inverse.foil("lengths that are not squared", power=1.0)


def slope(S: Tensor, W: Tensor, noise: float) -> Tensor:
    """The gradient of the mean log-likelihood in the loadings, by the complex step."""
    Sigma = noise * torch.eye(len(S))
    return complex_step(lambda V: likelihood(S, V @ V.T + Sigma), W)


@claim(
    by="identity",
    sources=("D-418", "E-250", "E-251"),
    budget=0.3,
    short=r"S w_i = (\sigma^2 + \rho_i^2)\, w_i, \quad S W = W\, \mathrm{diag}(\lambda)",
)
def ppca_eigen_equation(rows: bool = False, excess: float = 1.0):
    r"""Loadings of probabilistic PCA are eigenvectors of the covariance.

    For $\Sigma = \sigma^2 I$ and $W$ with orthogonal columns of lengths $\rho_i$ the likelihood is
    stationary iff $S w_i = (\sigma^2 + \rho_i^2) w_i$: each column is zero or an eigenvector of the
    sample covariance with the eigenvalue $\lambda_i = \sigma^2 + \rho_i^2$. As matrices $S W = W\,
    \mathrm{diag}(\lambda)$, with the diagonal matrix on the right, since it scales columns.

    *Checked* at the solution of `ProbabilisticPCA`, whose columns are the leading eigenvectors; at
    any choice of eigenvectors and zeros, where the gradient by the complex step vanishes; at random
    orthogonal columns, where it is $(\sigma^2 I + W W^\top)^{-1} (S W\, \mathrm{diag}(\sigma^2 +
    \rho_i^2)^{-1} - W)$.

    Knobs:
        rows: Whether the diagonal matrix stands on the left, with all eigenvalues of $S$.
        excess: The factor of $\rho_i^2$ in the eigenvalue.
    """
    for n, m in ((5, 2), (6, 3)):
        values = torch.cat(
            [0.05 + 0.2 * torch.rand(n - m), 0.6 + torch.arange(m) + torch.rand(m) / 2]
        )
        S, noise, at = with_eigenvalues(values), 0.3, {"n": n, "m": m}
        W = ProbabilisticPCA(m, noise_variance=noise).fit(with_covariance(S)).components_.T
        rho2 = W.square().sum(0)
        leading = values.sort(descending=True).values
        right = leading[:, None] * W if rows else W * (noise + excess * rho2)
        yield equals("S W and W diag(lambda)", S @ W, right, tol=1e-11, **at)
        yield equals("noise plus squared lengths", noise + rho2, leading[:m], tol=1e-11, **at)
        exact = torch.linalg.eigh(S).eigenvectors.flip(1)[:, :m]
        overlap = (exact * W / rho2.sqrt()).sum(0).abs()
        yield equals("cosine to the leading eigenvectors", overlap, 1.0, **at)
        vectors = torch.linalg.eigh(S).eigenvectors
        some = vectors[:, [n - 1, n - m]] * (values.sort().values[[n - 1, n - m]] - noise).sqrt()
        some = torch.cat([some, torch.zeros(n, 1)], 1)
        yield equals("gradient at other eigenvectors and zero", slope(S, some, noise), 0.0, **at)
        V = torch.linalg.qr(torch.randn(n, m)).Q * (0.5 + torch.rand(m))
        A = noise * torch.eye(n) + V @ V.T
        wanted = S @ V / (noise + excess * V.square().sum(0)) - V
        yield equals("A times the gradient at orthogonal columns", A @ slope(S, V, noise), wanted,
                     **at)  # fmt: skip


ppca_eigen_equation.foil("twice the squared length", excess=2.0)
ppca_eigen_equation.erratum(
    "E-251",
    printed=r"$\mathbf{Sw}=\mathrm{diag}(\lambda)\mathbf W$",
    right=r"$S W = W\, \mathrm{diag}(\lambda)$",
    why=r"With $W \in \mathbb R^{n \times m}$ and $m < n$ eigenvalues the product does not conform,"
    r" and with all $n$ of them it scales rows, not columns: an entry of $S W$ is not that of"
    r" $\mathrm{diag}(\lambda) W$. (A slip of the scan cannot be fully excluded.)",
    weight="scan",
    refuted_by="S W and W diag(lambda)",
    rows=True,
)


def solution(x: Tensor, m: int, noise: float, rule: str) -> Tensor:
    """The loadings for given noise: of the model, or by a rule that a sheet prints."""
    if rule == "covariance":
        return ProbabilisticPCA(m, noise_variance=noise).fit(x).components_.T
    matrix = x.T @ x if rule == "sums" else torch.cov(x.T, correction=int(rule == "unbiased"))
    values, vectors = torch.linalg.eigh(matrix)
    excess = values.flip(0)[:m] - noise
    inside = (
        excess.sqrt().maximum(torch.tensor(0.0)) if rule == "root first" else excess.relu().sqrt()
    )
    return vectors.flip(1)[:, :m] * inside


@claim(
    by="identity",
    sources=("A-346", "B-478", "D-417", "D-418", "E-252"),
    budget=0.6,
    full={"others": 2000},
    short=r"w_i = \sqrt{\max\{0, \lambda_i - \sigma^2\}}\, u_i, \quad \tfrac1s \bar X \bar X^\top"
    r" u_i = \lambda_i u_i",
)
def ppca_solution(
    rule: Literal["covariance", "unbiased", "sums", "root first"] = "covariance", others: int = 300
):
    r"""The most likely loadings of probabilistic PCA.

    For $\Sigma = \sigma^2 I$ with given $\sigma^2$ they are $w_i = \rho_i u_i$, $\rho_i =
    \sqrt{\max\{0, \lambda_i - \sigma^2\}}$, up to a rotation of the factors, where $(\lambda_i,
    u_i)$ are the leading eigenpairs of the covariance $\frac1s \bar X \bar X^\top$ of the $s$
    examples about their mean. Duplicating the examples leaves them as they are.

    *Checked* for `ProbabilisticPCA`: the gradient by the complex step vanishes, no random and no
    nearby loadings are more likely, the lengths are those of a search by BFGS for 100 points with
    the covariance $\mathrm{diag}(2, \frac12)$ and $\sigma^2 = \frac12$, where $\|w\|^2 = 1.5$;
    duplicates; a $\sigma^2$ between two eigenvalues gives a column of zeros.

    Knobs:
        rule: Of which matrix the eigenvalues are, and whether the maximum is inside the root.
        others: How many random, and how many nearby, loadings are tried.
    """
    x = with_covariance(torch.tensor([2.0, 0.5]).diag()).repeat(25, 1)
    S = torch.tensor([2.0, 0.5]).diag()
    exact = minimize(
        lambda w: -float(likelihood(S, torch.outer(*[torch.from_numpy(w)] * 2) + torch.eye(2) / 2)),
        np.array([1.0, 0.3]), options={"gtol": 1e-7},
    ).x  # fmt: skip
    found = solution(x, 1, 0.5, rule).square().sum()
    yield equals("squared length of the loadings for 100 points", found, (exact**2).sum(), tol=1e-6)
    for d, m in ((5, 2), (4, 3)):
        values = (0.3 + torch.arange(d) + torch.rand(d) / 2).flip(0)
        x = with_covariance(with_eigenvalues(values)) + 3 * torch.randn(d)
        s, S = len(x), torch.cov(x.T, correction=0)
        for place, noise in enumerate((values[m - 1] / 2, (values[m - 2] + values[m - 1]) / 2)):
            W, at = solution(x, m, float(noise), rule), {"s": s, "d": d, "m": m, "zeros": place}
            yield equals("loadings that are no numbers", int(W.isnan().sum()), 0, **at)
            lengths = (values[:m] - noise).clamp(min=0)
            yield equals("squared lengths over the largest eigenvalue",
                         W.square().sum(0) / values[0], lengths / values[0], **at)  # fmt: skip
            steep = slope(S, W, float(noise)) * noise.sqrt()
            yield equals("gradient in units of the noise", steep, 0.0, tol=1e-8, **at)
            twice = solution(torch.cat([x, x]), m, float(noise), rule)
            yield equals("loadings of duplicated examples", twice @ twice.T, W @ W.T, **at)
            far = values[0].sqrt() * torch.randn(others, d, m)
            near = W + noise.sqrt() * torch.randn(others, d, m) * torch.rand(others, 1, 1) ** 4
            V, top = torch.cat([far, near]), likelihood(S, W @ W.T + noise * torch.eye(d))
            less = likelihood(S, V @ V.mT + noise * torch.eye(d))
            yield at_most("log-likelihood of other loadings", less, top, **at)


ppca_solution.foil("the covariance with the divisor s - 1", rule="unbiased")
ppca_solution.erratum(
    "A-346",
    printed=r"$(\lambda_i,u_i)$ the i'th eigenvalue/-vector of $XX^\top\in\mathbb R^{n\times n}$",
    right=r"$(\lambda_i, u_i)$ the eigenpairs of $\frac1s \bar X \bar X^\top$, examples centred",
    why=r"The eigenvalues of $X X^\top$ grow with the number of examples, which must be centred:"
    r" duplicating each leaves the maximiser as it is and doubles the printed $\lambda_i$. For"
    r" 100 centred points with the covariance $\mathrm{diag}(2, \frac12)$ and $\sigma^2 ="
    r" \frac12$ the maximiser has $\|w\|^2 = 1.5$, and the printed rule gives 199.5.",
    weight="hard",
    refuted_by="squared length of the loadings for 100 points",
    rule="sums",
)
ppca_solution.erratum(
    "D-417",
    printed=r"$\rho_i=\max\{0,\sqrt{\lambda_i-\sigma^2}\}$",
    right=r"$\rho_i = \sqrt{\max\{0, \lambda_i - \sigma^2\}}$",
    why=r"The maximum belongs inside the root: for $\lambda_i < \sigma^2$ the printed form takes"
    " the root of a negative number. Where it is defined it agrees.",
    weight="soft",
    refuted_by="loadings that are no numbers",
    rule="root first",
)

AVERAGES = {
    "n - m": lambda values, m: values[m:].sum() / (len(values) - m),
    "n": lambda values, m: values[m:].sum() / len(values),
    "largest": lambda values, m: values[m],
}


@claim(
    by="identity",
    sources=("B-478",),
    budget=0.4,
    short=r"\hat\sigma^2 = \tfrac1{n - m} \textstyle\sum_{i > m} \lambda_i",
)
def ppca_noise_mle(average: Literal["n - m", "n", "largest"] = "n - m"):
    r"""The most likely noise of probabilistic PCA is the mean of the eigenvalues left out.

    With $\sigma^2$ free, $\hat\sigma^2 = \frac1{n - m} \sum_{i > m} \lambda_i$, together with the
    loadings built from it. It exceeds no eigenvalue that is kept, so that no length is cut to zero.

    *Checked* for `ProbabilisticPCA` against a scalar search over $\sigma^2$ on the likelihood of
    the best loadings for each, written out with determinant and inverse; the log-likelihood there,
    and less on both sides. EM from a random start finds the same.

    Knobs:
        average: How the eigenvalues left out are averaged.
    """
    for n, m in ((6, 2), (5, 1), (4, 3)):
        values = (0.2 + 3 * torch.rand(n)).sort(descending=True).values
        S = with_eigenvalues(values)
        x, at = with_covariance(S), {"n": n, "m": m}
        noise = float(AVERAGES[average](values, m))
        lam, U = (part.flip(-1) for part in torch.linalg.eigh(S))

        def profile(
            log: float, S: Tensor = S, lam: Tensor = lam, U: Tensor = U, m: int = m
        ) -> float:
            W = U[:, :m] * (lam[:m] - math.exp(log)).clamp(min=0).sqrt()
            return float(likelihood(S, W @ W.T + math.exp(log) * torch.eye(len(S))))

        ends = math.log(float(values[-1]) / 2), math.log(float(values[0]) * 2)
        best: Any = minimize_scalar(lambda t: -profile(t), bounds=ends, options={"xatol": 1e-9})
        yield equals("noise by a search", math.exp(best.x), noise, tol=1e-6, **at)
        model = ProbabilisticPCA(m).fit(x)
        yield equals("noise of the model", model.noise_variance_, noise, **at)
        top = profile(math.log(noise))
        yield equals("log-likelihood of the model", model.score(x), top, **at)
        em = ProbabilisticPCA(m, method="em", tol=1e-7, random_state=0).fit(x)
        # The gradient is below 1e-7: so the noise errs in that order, the likelihood in its square.
        yield equals("noise by EM", em.noise_variance_, noise, tol=1e-5, **at)
        yield equals("log-likelihood by EM", em.score(x), top, **at)
        for factor in (0.8, 0.97, 1.03, 1.3):
            given = ProbabilisticPCA(m, noise_variance=factor * noise).fit(x).score(x)
            yield at_least("fall of the likelihood at other noise", top - given, 1e-5, **at)
        yield at_most("noise and the least eigenvalue that is kept", noise, values[m - 1], **at)
        lengths = torch.linalg.vector_norm(model.components_, dim=1)
        yield at_least("lengths of the loadings", lengths, 0.0, **at)


ppca_noise_mle.foil("the sum divided by n", average="n")
ppca_noise_mle.foil("the largest of those left out", average="largest")
