"""Data as a product of codes and loadings: the template, and its best fit."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF
from torch import Tensor

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.generative import BernoulliNMF, RestrictedBoltzmannMachine
from vademecum.generative.claims._binary_states import bits, joint
from vademecum.linear import PCA


def codes(x: Tensor, B: Tensor, kind: Literal["one-hot", "simplex"]) -> Tensor:
    """The nearest loading of each row, or the nearest point between it and another one."""
    order = torch.cdist(x, B).argsort(1)
    Z = torch.nn.functional.one_hot(order[:, 0], len(B)).to(x)
    if kind == "one-hot":
        return Z
    second = torch.nn.functional.one_hot(order[:, 1], len(B)).to(x)
    along = (second - Z) @ B
    t = ((x - Z @ B) * along).sum(1) / along.square().sum(1)
    return Z + t.clamp(0, 1)[:, None] * (second - Z)


@claim(
    by="identity",
    sources=("E-264", "E-265", "E-266", "E-267", "E-273"),
    budget=0.5,
    short=r"X \approx f(Z B),\quad Z \in \mathbb R^{N \times K},\ B \in \mathbb R^{K \times D},"
    r"\ K \ll D",
)
def factor_template(kind: Literal["one-hot", "simplex"] = "one-hot", link: bool = True):
    r"""Matrix-factor template of unsupervised learning.

    Many unsupervised methods fit $X \approx f(Z B)$ with data $X \in \mathbb R^{N \times D}$,
    per-sample codes $Z \in \mathbb R^{N \times K}$ and shared loadings $B \in \mathbb R^{K \times
    D}$, $K \ll D$; the link $f$ and the constraints on $Z, B$ name the method (identity: PCA and
    factor analysis; one-hot rows of $Z$: k-means; nonnegative factors: NMF; binary codes: RBM).
    Implicit models drop $Z$ and $B$ and put everything into the map, whose size does not grow with
    $N$ (quoted).

    *Checked*: a product with $K = 3$, $D = 50$ has rank 3, is its own truncated singular value
    decomposition, and a row of $Z$ changes only its row. With one-hot $Z$ the least squares $B =
    (Z^\top Z)^{-1} Z^\top X$ are the means of clusters, and $\|X - Z B\|_F^2$ is the cost that
    scikit-learn's `KMeans` tells. What `PCA`, scikit-learn's `NMF` and `BernoulliNMF` reconstruct
    is $Z B$ (plus the mean), with factors as the table says; the visible units of a
    `RestrictedBoltzmannMachine` have, by counting all states, the means $\sigma(Z B + a)$ for
    binary $Z$.

    Knobs:
        kind: What rows of k-means' codes may be: one-hot, or anywhere in the simplex.
        link: Whether the machine's visible means have the link, or are the product itself.
    """
    N, K, D = 20, 3, 50
    Z, B = torch.randn(N, K), torch.randn(K, D)
    X = Z @ B
    yield equals("rank of the product", torch.linalg.matrix_rank(X), K, N=N, D=D)
    U, s, V = torch.linalg.svd(X, full_matrices=False)
    yield equals("truncated decomposition", (U[:, :K] * s[:K]) @ V[:K], X, tol=1e-10, N=N, D=D)
    i = int(torch.randint(N, ()))
    other = Z.clone()
    other[i] += 1.0
    changed = (other @ B != X).any(1).nonzero().flatten()
    yield equals("rows that a code changes", changed, torch.tensor([i]))
    centres = 4 * torch.randn(K, 6)
    x = centres[torch.arange(30) % K] + torch.randn(30, 6)
    options: dict[str, Any] = {"init": x[:K].numpy(), "n_init": 1, "tol": 0.0}
    means = KMeans(K, **options).fit(x.numpy())
    labels, loadings = (
        torch.from_numpy(means.labels_).long(),
        torch.from_numpy(means.cluster_centers_),
    )
    Z = codes(x, loadings, kind)
    onehot = torch.nn.functional.one_hot(labels, K).double()
    best = torch.linalg.lstsq(onehot, x).solution
    own = torch.stack([x[labels == k].mean(0) for k in range(K)])
    yield equals("least squares with one-hot codes", best, own, N=30, D=6)
    yield equals("squares left", (x - Z @ loadings).square().sum(), means.inertia_, N=30, D=6)
    yield from _methods(x, link)


def _methods(x: Tensor, link: bool) -> Iterator[Evidence]:
    """Each method's reconstruction as a product of its factors."""
    pca = PCA(2).fit(x)
    product = pca.transform(x) @ pca.components_ + x.mean(0)
    yield equals("PCA: Z B and the mean", pca.inverse_transform(pca.transform(x)), product, K=2)
    positive = x.abs().numpy()
    two: Any = 2
    nmf = NMF(two, init="nndsvda", max_iter=50, tol=0.0)
    Z = nmf.fit_transform(positive)
    yield equals("NMF: Z B", nmf.inverse_transform(Z), Z @ nmf.components_, K=2)
    yield at_least("NMF: least entry of the factors", min(Z.min(), nmf.components_.min()), 0.0)
    binary = (x > 0).double()
    aspects = BernoulliNMF(2, max_iter=40, random_state=0).fit(binary)
    probabilities = aspects.inverse_transform(aspects.codes_)
    yield equals("Bernoulli: Z B", probabilities, aspects.codes_ @ aspects.components_, K=2)
    value = torch.distributions.Bernoulli(probabilities).log_prob(binary).sum()
    yield equals("Bernoulli: log-likelihood of Z B", aspects.log_likelihood_, value, K=2)
    W, a, b = torch.randn(2, 4), torch.randn(4), torch.randn(2)
    law = joint(W, a, b)
    means = law.T @ bits(4) / law.sum(0)[:, None]
    machine = RestrictedBoltzmannMachine.from_parameters(W, a, b)
    inside = bits(2) @ machine.components_ + machine.intercept_visible_
    yield equals("RBM: means given binary codes", torch.sigmoid(inside) if link else inside, means)


factor_template.foil("k-means with codes anywhere in the simplex", kind="simplex")
factor_template.foil("the machine without its link", link=False)


@claim(
    by="identity",
    sources=("E-237", "E-267"),
    budget=0.4,
    short=r"\min_{\mathrm{rank} \le m} \tfrac1k \|X - \hat X\|_F^2 = \sum_{i > m} \lambda_i(S),"
    r"\ S = \tfrac1k X X^\top",
)
def pca(centre: bool = True, ddof: int = 0, fits: int = 1000):
    r"""Principal component analysis is the best low-rank fit of centred data.

    For centred data as columns of $X \in \mathbb R^{n \times k}$ with $S = \frac1k X X^\top$, the
    orthogonal projection on the $m$ leading eigenvectors of $S$ minimises $\frac1k \|X - \hat
    X\|_F^2$ over all $\hat X$ of rank at most $m$; the minimum is the sum of the discarded
    eigenvalues $\sum_{i > m} \lambda_i$ (Eckart-Young).

    *Checked* for data with unequal scales about the mean $(10, \dots, 10)$, fewer and more examples
    than features: $S$ is NumPy's covariance with bias, the error of what `linear.PCA` reconstructs
    is the sum of its discarded eigenvalues and that of the truncated singular value decomposition,
    and that of no least squares fit in a random subspace, or one near the best, is smaller.

    Knobs:
        centre: Whether directions are those of the centred data, or of the data as they are.
        ddof: What is subtracted from the number of examples in the normaliser of $S$.
        fits: How many random subspaces are tried.
    """
    for n, k, m in ((5, 200, 2), (7, 40, 3), (9, 6, 2)):
        scales = torch.tensor([9.0, 4.0, 1.0, 0.5, 0.25, 0.2, 0.1, 0.1, 0.1])[:n].sqrt()
        data = 10 + scales[:, None] * torch.randn(n, k)
        X = data - data.mean(1, keepdim=True)
        S = X @ X.T / (k - ddof)
        at = {"n": n, "k": k, "m": m}
        yield equals("S against numpy.cov", S, np.cov(data.numpy(), bias=True).reshape(n, n), **at)
        if centre:
            fitted = PCA(m).fit(data.T)
            left = data.T - fitted.inverse_transform(fitted.transform(data.T))
        else:
            U = torch.linalg.svd(data).U[:, :m]
            left = (X - U @ (U.T @ X)).T
        discarded = torch.linalg.eigvalsh(S)[: n - m].sum()
        error = left.square().sum() / k
        yield equals("error of the projection", error, discarded, tol=1e-10, **at)
        U, s, V = torch.linalg.svd(X, full_matrices=False)
        best = (X - (U[:, :m] * s[:m]) @ V[:m]).square().sum() / k
        yield equals("error of the truncated decomposition", best, error, tol=1e-10, **at)
        Q = torch.linalg.qr(torch.randn(fits, n, m)).Q
        tried = X.square().sum() / k - (Q.mT @ X).square().sum((1, 2)) / k
        yield at_most("error of the projection, by random fits", error, tried, tol=1e-10, **at)
        near = torch.linalg.qr(U[:, :m] + 0.05 * torch.randn(fits, n, m)).Q
        tried = X.square().sum() / k - (near.mT @ X).square().sum((1, 2)) / k
        yield at_most("error of the projection, by fits near it", error, tried, tol=1e-10, **at)


pca.foil("without centring", centre=False, refuted_by="error of the projection")
pca.foil("the covariance without bias", ddof=1)
