"""Nonnegative factors: of counts by multiplicative updates, of bits by EM."""

import itertools
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import xlogy
from scipy.stats import poisson
from sklearn.decomposition import NMF
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.generative import BernoulliNMF


def divergence(X: Tensor, P: Tensor) -> float:
    r"""The $D(X \| P)$, with $0 \log 0 = 0$."""
    x, p = X.numpy(), P.numpy()
    return float((xlogy(x, x) - xlogy(x, p) - x + p).sum())


def updated(
    X: Tensor, Z: Tensor, B: Tensor, *, new: bool, normalised: bool
) -> tuple[Tensor, Tensor]:
    """Both updates of Lee and Seung; that of Z with the new B, or with the old one."""
    ones = torch.ones_like(X)
    R = X / (Z @ B)
    below = (Z.T @ ones, ones @ B.T) if normalised else (1.0, 1.0)
    after = B * (Z.T @ R) / below[0]
    if new:
        B = after
        R, below = X / (Z @ B), (0, ones @ B.T if normalised else 1.0)
    return Z * (R @ B.T) / below[1], after


@claim(
    by="sampling",
    sources=("E-268",),
    budget=0.4,
    short=r"B \leftarrow B \odot \frac{Z^\top (X / Z B)}{Z^\top 1},\ Z \leftarrow Z \odot"
    r" \frac{(X / Z B) B^\top}{1 B^\top}",
)
def nmf_multiplicative_updates(new: bool = True, normalised: bool = True, iterations: int = 200):
    r"""Nonnegative matrix factorisation.

    With $Z, B \ge 0$ and a Poisson observation model one minimises $D(X \| Z B) = \sum_{ij}
    \big(X_{ij} \log \frac{X_{ij}}{(Z B)_{ij}} - X_{ij} + (Z B)_{ij}\big)$. The Lee-Seung updates $B
    \leftarrow B \odot \frac{Z^\top (X / Z B)}{Z^\top 1}$, then $Z \leftarrow Z \odot \frac{(X / Z
    B) B^\top}{1 B^\top}$ with the *new* $B$, never increase it and keep all entries nonnegative.

    *Checked* for counts, some of them 0, in $20 \times 15$ and $9 \times 12$ matrices with $K = 3$
    and 2: the objective is the negative log-likelihood of Poisson variables up to a constant, no
    update raises it beyond rounding, and ten of them are what scikit-learn's `NMF` does with the
    transposed matrix, whose first factor it updates first.

    Knobs:
        new: Whether $Z$ is updated with the new $B$, or both at once.
        normalised: Whether updates are divided by the sums of the other factor.
        iterations: How many updates of both factors are made.
    """
    for n, d, k in ((20, 15, 3), (9, 12, 2)):
        X = torch.poisson(6 * torch.rand(n, d) + 0.5)
        X[0] += 1  # no row or column is empty
        X[:, 0] += 1
        Z, B = torch.rand(n, k) + 0.1, torch.rand(k, d) + 0.1
        at = {"n": n, "d": d, "K": k}
        constants = []
        for z, b in ((Z, B), (2 * Z, B), (torch.rand(n, k), torch.rand(k, d))):
            likelihood = poisson.logpmf(X.numpy(), (z @ b).numpy()).sum()
            constants.append(divergence(X, z @ b) + likelihood)
        yield equals("objective plus log-likelihood", constants, constants[0], tol=1e-10, **at)
        options: dict[str, Any] = {"init": "custom", "solver": "mu", "max_iter": 10, "tol": 0.0}
        peer = NMF(**options | {"n_components": k, "beta_loss": "kullback-leibler"})
        first = peer.fit_transform(
            X.T.numpy(), W=B.T.numpy().copy(order="C"), H=Z.T.numpy().copy(order="C")
        )
        values, least = [divergence(X, Z @ B)], np.inf
        for t in range(iterations):
            Z, B = updated(X, Z, B, new=new, normalised=normalised)
            values.append(divergence(X, Z @ B))
            least = min(least, float(Z.min()), float(B.min()))
            if t == 9:
                yield equals("B after ten updates, against NMF", B, first.T, tol=1e-6, **at)
                yield equals(
                    "Z after ten updates, against NMF", Z, peer.components_.T, tol=1e-6, **at
                )
        rise = np.diff(values) / np.array(values[:-1])
        yield at_most("relative rise of the objective", rise, 0.0, tol=1e-9, **at)
        yield at_least("least entry of the factors", least, 0.0, **at)


nmf_multiplicative_updates.foil(
    "both factors at once", new=False, refuted_by="relative rise of the objective"
)
nmf_multiplicative_updates.foil("without the sums of the other factor", normalised=False)


def by_counting(X: Tensor, Z: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """One step of EM from the posterior of the hidden component of each entry."""
    (n, d), k = X.shape, len(B)
    used, ones, total = torch.zeros(n, k), torch.zeros(k, d), torch.zeros(k, d)
    for i, j in itertools.product(range(n), range(d)):
        p = torch.stack([Z[i, c] * (B[c, j] if X[i, j] else 1 - B[c, j]) for c in range(k)])
        p = p / p.sum()
        used[i] += p
        total[:, j] += p
        ones[:, j] += p * X[i, j]
    return used / used.sum(1, keepdim=True), ones / total


Updates = Literal["aspect", "one after the other", "poisson"]


def stepped(X: Tensor, Z: Tensor, B: Tensor, updates: Updates) -> tuple[Tensor, Tensor]:
    """One step by the formulas."""
    if updates == "poisson":
        return updated(X, Z, B, new=True, normalised=True)
    one, zero = X / (Z @ B), (1 - X) / (Z @ (1 - B))
    G1, G0 = B * (Z.T @ one), (1 - B) * (Z.T @ zero)
    after = G1 / (G1 + G0)
    if updates == "one after the other":
        B = after
        one, zero = X / (Z @ B), (1 - X) / (Z @ (1 - B))
    return Z * (one @ B.T + zero @ (1 - B).T) / X.shape[1], after


def drawn(n: int, d: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Bits, codes and patterns; no column is constant: its pattern would be, and divide by 0."""
    Z, X = torch.rand(n, k) + 0.1, (torch.rand(n, d) < 0.4).double()
    X[0], X[1] = 0.0, 1.0
    return X, Z / Z.sum(1, keepdim=True), torch.rand(k, d)


@claim(
    by="sampling",
    sources=("E-268",),
    budget=0.6,
    short=r"X \sim \mathrm{Ber}(Z B): Z \leftarrow \tfrac1D Z \odot [\tfrac X{Z B} B^\top + "
    r"\tfrac{1 - X}{Z C} C^\top],\ C = 1 - B",
)
def nmf_bernoulli(updates: Updates = "aspect", iterations: int = 200):
    r"""Nonnegative factors of binary data.

    With a Bernoulli observation model $X_{ij} \sim \mathrm{Ber}((Z B)_{ij})$ the product must stay
    in $[0, 1]$: rows of $Z \ge 0$ sum to 1 and $B \in [0, 1]$ (aspect Bernoulli model), so that $1
    - Z B = Z (1 - B)$. EM gives $B \leftarrow \frac{G^1}{G^1 + G^0}$ with $G^1 = B \odot Z^\top
    (X / Z B)$, $G^0 = (1 - B) \odot Z^\top ((1 - X) / Z (1 - B))$, and $Z \leftarrow \frac1D Z
    \odot \big[(X / Z B) B^\top + ((1 - X) / Z (1 - B)) (1 - B)^\top\big]$, both from the same old
    factors; the likelihood never decreases and the constraints hold by themselves.

    *Checked* for binary $20 \times 15$ and $12 \times 18$ matrices: the formulas and `BernoulliNMF`
    make the step of EM that sums over the hidden component of each entry of $3 \times 2$ and $4
    \times 5$ matrices; along the way the formulas never lower the likelihood beyond rounding, rows
    of $Z$ sum to 1, all products are in $[0, 1]$; and `BernoulliNMF` is where they are after 20
    steps. With its patterns fixed the likelihood is concave in $Z$: the codes that `transform`
    finds are the best, since no factor of their update is above 1.

    Knobs:
        updates: Those of EM, or $Z$ with the new $B$, or those of Lee and Seung for counts.
        iterations: How many are made.
    """

    def model(X: Tensor, Z: Tensor, B: Tensor, most: int) -> BernoulliNMF:
        return BernoulliNMF(len(B), init=(Z, B), max_iter=most, tol=0.0).fit(X)

    for n, d, k in ((20, 15, 3), (12, 18, 2)):
        X, Z, B = start = drawn(n, d, k)
        at, values, sums, highest = {"n": n, "d": d, "K": k}, [], 0.0, 0.0
        for _ in range(iterations):
            Z, B = stepped(X, Z, B, updates)
            P, sums = Z @ B, max(sums, float((Z.sum(1) - 1).abs().max()))
            highest = max(highest, float(P.max()))
            inside = P.clamp(0, 1)
            values.append(float((X.xlogy(inside) + (1 - X).xlogy(1 - inside)).sum()))
        yield at_most("largest entry of Z B", highest, 1.0, tol=1e-12, **at)
        yield equals("largest distance of sums of codes from 1", sums, 0.0, tol=1e-12, **at)
        rise = np.diff(values) / np.abs(values[:-1])
        yield at_least("relative rise of the log-likelihood", rise, 0.0, tol=1e-9, **at)
        found = model(*start, 20)
        yield equals(
            "log-likelihood of BernoulliNMF", found.log_likelihood_, values[19], tol=1e-9, **at
        )
        Z, B = found.set_params(tol=1e-8, max_iter=100).transform(X), found.components_
        factors = ((X / (Z @ B)) @ B.T + ((1 - X) / (Z @ (1 - B))) @ (1 - B).T) / d
        yield at_most("factors of the update of the best codes", factors, 1.0, tol=1e-7, **at)
        chance = torch.where(X > 0, Z @ B, 1 - Z @ B).log().sum(1)
        yield equals("log-likelihood with them", found.score_samples(X), chance, **at)
    for n, d, k in ((3, 2, 2), (4, 5, 3)):
        X, Z, B = drawn(n, d, k)
        at = {"n": n, "d": d, "K": k}
        codes, patterns = by_counting(X, Z, B)
        one = model(X, Z, B, 1)
        yield equals("codes of BernoulliNMF", one.codes_, codes, tol=1e-12, **at)
        yield equals("patterns of BernoulliNMF", one.components_, patterns, tol=1e-12, **at)
        Z, B = stepped(X, Z, B, updates)
        yield equals("formula for codes", Z, codes, tol=1e-12, **at)
        yield equals("formula for patterns", B, patterns, tol=1e-12, **at)


nmf_bernoulli.foil("the updates for counts", updates="poisson", refuted_by="largest entry of Z B")
nmf_bernoulli.foil(
    "codes with the new patterns", updates="one after the other", refuted_by="formula for codes"
)
