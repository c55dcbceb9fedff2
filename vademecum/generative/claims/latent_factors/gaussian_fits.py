"""Densities in many dimensions: what histograms cannot do, and Gaussians fitted by likelihood."""

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import MultivariateNormal

from vademecum.claims import (
    at_least,
    at_most,
    claim,
    complex_step,
    equals,
    with_eigenvalues,
)
from vademecum.foundations import gaussian_mle
from vademecum.generative.claims._planted_factors import drawn, likelihood, planted


def error_of_histogram(cells: Tensor, K: int) -> float:
    """The L1 distance of the histogram to the uniform law, from the cell of each point."""
    counts = cells.unique(return_counts=True)[1].double()
    return float((counts / len(cells) - 1 / K).abs().sum()) + (K - len(counts)) / K


@claim(
    by="sampling",
    sources=("E-287",),
    budget=0.3,
    full={"n": 4000},
    short=r"\textstyle\sum_c |\hat p_c - \tfrac1K| \ge 2 (1 - \tfrac nK), \quad K = b^d",
)
def curse_of_dimensionality(
    cells: Callable[[int, int], int] = pow, occupied: float = 1.0, n: int = 1000, b: int = 10
):
    r"""Histograms fail in many dimensions.

    With $n$ points and $b$ bins on each of $d$ axes at most $n$ of the $K = b^d$ cells are
    occupied. So the histogram's distance to the uniform law is $\sum_c |\hat p_c - \frac1K| \ge 2
    (1 - \frac nK)$, with equality if no two points share a cell and $n \le K$, whatever the points;
    it tends to its largest value 2 like $n b^{-d}$ as $d$ grows.

    *Proof.* The $K - m$ empty cells lack the mass $1 - \frac mK$, with $m \le n$; what they lack
    the others have too much. *Checked* on uniform points for $d \le 6$, where the mean over
    samples, $K\, \mathbb E |\mathrm{Bin}(n, \frac1K) / n - \frac1K|$, is met up to McDiarmid's
    bound (alarms at a rate of $10^{-7}$; a point moves the distance by at most $2 / n$), for points
    in cells of their own, and against NumPy's histogram of all cells for $d \le 3$.

    Knobs:
        cells: The number K of cells, as a function of b and d.
        occupied: The share of the points that have cells of their own at most.
        n: The number of points.
        b: The number of bins on an axis.
    """
    slack = math.sqrt(2 * math.log(2e7) / n)
    for d in range(1, 7):
        K, x = cells(b, d), torch.rand(n, d)
        place = (x * b).long() @ b ** torch.arange(d)
        found = error_of_histogram(place, b**d)
        if d <= 3:
            counts = np.histogramdd(x.numpy(), b, [(0, 1)] * d)[0]
            yield equals("distance to the uniform law, of all cells", found,
                         np.abs(counts / n - b**-d).sum(), d=d)  # fmt: skip
        least = 2 * max(0.0, 1 - occupied * n / K)
        yield at_least("distance to the uniform law", found, least, tol=1e-12, d=d)
        yield at_most("the same", found, 2.0, tol=1e-12, d=d)
        spread = float(stats.binom(n, 1 / K).expect(lambda c, K=K: abs(c / n - 1 / K)))
        off = abs(found - K * spread)
        yield at_most("distance from the mean over samples", off, slack, tol=1e-9, d=d)
        if n <= b**d:
            alone = error_of_histogram(torch.randperm(b**d)[:n], b**d)
            yield equals("distance of points in cells of their own", alone, least, tol=1e-12, d=d)


curse_of_dimensionality.foil("bins of one axis counted, not cells", cells=lambda b, d: b)
curse_of_dimensionality.foil("bins added up over the axes", cells=lambda b, d: b * d)
curse_of_dimensionality.foil("half as many cells occupied as points", occupied=0.5)


@claim(
    by="identity",
    sources=("E-237", "E-238", "E-239"),
    budget=0.3,
    short=r"\log P(X; A) = -\tfrac k2 \big(\mathrm{Tr}(S A^{-1}) + \log \det A\big) - \tfrac{k n}2"
    r" \log 2 \pi",
)
def gaussian_trace_likelihood(sign: float = 1.0, half: float = 0.5):
    r"""The Gaussian log-likelihood through the empirical covariance.

    For $k$ independent samples of $\mathcal N(0, A)$ in $\mathbb R^n$ with $S = \frac1k \sum_i x_i
    x_i^\top$, $\log P(X; A) = -\frac k2 (\mathrm{Tr}(S A^{-1}) + \log \det A) - \frac{k n}2 \log 2
    \pi$.

    *Proof.* $\sum_i x_i^\top A^{-1} x_i = k\, \mathrm{Tr}(S A^{-1})$, because a trace is cyclic.
    *Checked* against the sums of SciPy's log-densities and of those of `FactorAnalysis`, whose $A$
    is of low rank plus noise, for $A$ and for $2 A$.

    Knobs:
        sign: The sign of $\log \det A$.
        half: The factor before $k$.
    """
    for k, n, m in ((50, 3, 2), (7, 5, 1)):
        W, noise, _ = drawn(n, m)
        X = 2 * torch.randn(k, n)
        S = sum(torch.outer(x, x) for x in X) / k
        rest = []
        for scale in (1.0, 2.0):
            A = scale * (W @ W.T + noise.diag())
            law = stats.multivariate_normal(np.zeros(n), A.numpy())  # pyright: ignore
            total = float(law.logpdf(X.numpy()).sum())
            model = planted(math.sqrt(scale) * W, scale * noise)
            at = {"k": k, "n": n, "scale": scale}
            found = float(model.score_samples(X).sum())
            yield equals("log-likelihood of the model and of SciPy", found, total, **at)
            trace = torch.linalg.solve(A, S).trace()
            rest.append(total + half * k * float(trace + sign * torch.logdet(A)))
            form = float((X @ torch.linalg.inv(A) * X).sum())
            yield equals("sum of quadratic forms", form, k * trace, **at)
        yield equals("change of the difference from A to 2A", rest[1] - rest[0], 0.0, k=k, n=n)
        constant = -k * n / 2 * math.log(2 * math.pi)
        yield equals("log-likelihood less the trace form", rest, constant, k=k, n=n)


gaussian_trace_likelihood.foil("twice the trace form", half=1.0)
gaussian_trace_likelihood.erratum(
    "E-238",
    printed=r"$-\frac k2\left(\mathrm{Tr}(\mathbf S\mathbf A^{-1})-\log(\det(\mathbf A))\right)+"
    r"\text{const}$",
    right=r"$-\frac k2 (\mathrm{Tr}(S A^{-1}) + \log \det A) + \text{const}$",
    why=r"The normaliser $\det(A)^{-1/2}$ contributes $-\frac k2 \log \det A$, so the inner sign is"
    r" plus: the log-likelihood less the printed form is no constant, it changes by $k n \log 2$"
    r" between $A$ and $2 A$ (104 for $k = 50$, $n = 3$), and the form grows without bound along"
    r" $A = c I$. (As scanned: a misread sign, or a lost exponent in $\log \det A^{-1}$, cannot be"
    " excluded.)",
    weight="scan",
    refuted_by="change of the difference from A to 2A",
    sign=-1.0,
)


@claim(
    by="identity",
    sources=("E-242", "E-243"),
    budget=0.4,
    full={"others": 1000},
    short=r"\nabla_A \log P(X; A) = 0 \iff S A^{-1} = I, \quad \arg\max_A = S",
)
def gaussian_covariance_mle(unbiased: bool = False, less: float = 1.0, others: int = 100):
    r"""The covariance of largest Gaussian likelihood is that of the sample.

    Let $S \succ 0$ be the covariance of $k$ samples about their mean, with the divisor $k$. The
    gradient of the log-likelihood in $A$ is $\frac k2 (A^{-1} S A^{-1} - A^{-1})$, which vanishes
    iff $S A^{-1} = I$. For unrestricted $A \succ 0$ the unique maximiser is $A = S$: with the
    eigenvalues $\ell_i$ of $S^{-1/2} A S^{-1/2}$ another $A$ loses $\frac k2 \sum_i (1 / \ell_i - 1
    + \log \ell_i) \ge 0$, which is zero only if all $\ell_i = 1$.

    *Checked* for the covariance of `gaussian_mle`, gradients by the complex step, losses by torch's
    log-density.

    Knobs:
        unbiased: Whether the covariance with the divisor $k - 1$ is called the maximiser.
        less: The 1 that is subtracted in the loss.
        others: How many other covariances are tried.
    """
    for k, d in ((12, 3), (30, 5)):
        x = torch.randn(k, d) @ with_eigenvalues(0.5 + 2 * torch.rand(d)) + torch.randn(d)
        mean, S = gaussian_mle(x)
        best = gaussian_mle(x, unbiased=unbiased).cov
        gradient = k * complex_step(lambda A, S=S: likelihood(S, A), best)
        size = k * torch.linalg.inv(S).abs().max()
        yield equals("gradient at the maximiser over its terms", gradient / size, 0.0, k=k, d=d)
        other = S + with_eigenvalues(0.1 + torch.rand(d)) * S.trace() / d
        slope = k * complex_step(lambda A, S=S: likelihood(S, A), other)
        yield equals("A (gradient at A) A", other @ slope @ other, k / 2 * (S - other), k=k, d=d)
        root = torch.linalg.cholesky(S)
        top = MultivariateNormal(mean, best).log_prob(x).sum()
        loss, wanted = [], []
        for _ in range(others):
            ell = (3 * torch.rand(d) - 1.5).exp()
            A = root @ with_eigenvalues(ell) @ root.T
            loss.append(top - MultivariateNormal(mean, (A + A.T) / 2).log_prob(x).sum())
            wanted.append(k / 2 * (1 / ell - less + ell.log()).sum())
        yield at_least("loss of another covariance", torch.stack(loss), 0.0, k=k, d=d)
        yield equals("the same by eigenvalues", torch.stack(loss), torch.stack(wanted), k=k, d=d)


gaussian_covariance_mle.foil("the divisor k - 1 as the maximiser", unbiased=True)
gaussian_covariance_mle.foil("the loss without the 1 in each term", less=0.0)
