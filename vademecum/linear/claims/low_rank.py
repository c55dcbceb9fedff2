"""Low rank: best approximations and principal components."""

from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, lowest
from vademecum.linear import PCA, LinearAutoencoder
from vademecum.linear.claims.autoencoder import autoencoder_of, orthogonal


@claim(
    by="sampling",
    sources=("B-088", "C-292", "E-106"),
    budget=0.5,
    full={"starts": 200},
    short=r"\min_{\operatorname{rk} Y \le r} \|X - Y\|_F = \|X - X_r\|_F"
    r" = \big(\textstyle\sum_{i > r} \sigma_i^2\big)^{1/2}",
)
def eckart_young(
    truncation: Literal["largest", "smallest", "orthogonal"] = "largest",
    rows: int = 8,
    columns: int = 6,
    starts: int = 6,
):
    r"""The truncated singular value decomposition is the best approximation of low rank.

    With $X = U \Sigma V^\top$,
    $$\min_{\operatorname{rank} Y \le r} \|X - Y\|_F = \|X - X_r\|_F =
    \Big( \sum_{i > r} \sigma_i^2 \Big)^{1/2}, \qquad X_r = U_r \Sigma_r V_r^\top ,$$
    and the minimiser is unique exactly if $\sigma_r > \sigma_{r+1}$ or $X$ itself has rank at most
    $r$.

    *Proof.* Eckart and Young (1936); the sheets spell the former Eckhart. Uniqueness: with
    $P, Q$ the projections off the leading singular vectors and $W$ the polar factor of $P Y Q$, the
    theorem applied to $X_r + \sigma_r W$ gives $2 \sigma_r \|P Y Q\|_* \le \|Y - X_r\|_F^2$, hence
    $\|X - Y\|_F^2 \ge \sum_{i > r} \sigma_i^2 + (1 - \sigma_{r+1} / \sigma_r) \|Y - X_r\|_F^2$,
    which is checked too.

    Knobs:
        truncation: Which part of the decomposition is taken for the best.
        rows: How many rows $X$ has.
        columns: How many columns it has.
        starts: How many starts alternating least squares has at each rank.
    """
    lowest("rows", rows, columns)
    x = torch.randn(rows, columns)
    u, sigma, vh = torch.linalg.svd(x, full_matrices=False)
    for r in range(1, columns):
        tail = sigma[r:].square().sum()
        if truncation == "largest":
            best = LinearAutoencoder(columns, r).set_optimum(x)(x).detach()
        elif truncation == "smallest":
            best = (u[:, -r:] * sigma[-r:]) @ vh[-r:]
        else:
            best = u[:, :r] @ vh[:r]
        error = (x - best).square().sum()
        yield equals("squared error of the best", error, tail, rank=r)
        for chosen in map(list, combinations(range(columns), r)):
            other = (u[:, chosen] * sigma[chosen]) @ vh[chosen]
            worse = (x - other).square().sum()
            yield at_least("squared error of other singular triples", worse, error, rank=r)
        d = torch.randn(starts, rows, r)
        for _ in range(5):  # alternating least squares: on the way to the minimum, at any rank
            d = torch.linalg.qr(d).Q
            c = d.mT @ x
            y = d @ c
            d = x @ torch.linalg.pinv(c)
            distance = (y - (u[:, :r] * sigma[:r]) @ vh[:r]).square().sum((1, 2))
            bound = tail + (1 - sigma[r] / sigma[r - 1]) * distance
            worse = (x - y).square().sum((1, 2))
            yield at_least("squared error of any other of that rank", worse, bound, rank=r)
    equal = torch.diag(torch.tensor([2.0, 1.0, 1.0]))
    for kept in (1, 2):  # not unique where singular values coincide
        y = torch.diag(torch.tensor([2.0, kept == 1, kept == 2]))
        error = (equal - y).square().sum()
        yield equals("squared error of either where values coincide", error, 1.0, kept=kept)


eckart_young.foil("the smallest singular values kept", truncation="smallest")
eckart_young.foil("the singular values forgotten, U_r V_r'", truncation="orthogonal")


def angle(a: Tensor, b: Tensor) -> Tensor:
    """The sine of the largest principal angle between the spans of columns."""
    a, b = torch.linalg.qr(a).Q, torch.linalg.qr(b).Q
    return torch.linalg.matrix_norm(a - b @ (b.mT @ a), 2)


def descend(model: LinearAutoencoder, x: Tensor, rate: float, steps: int) -> None:
    """Plain gradient descent on the loss."""
    weights = list(model.parameters())
    for _ in range(steps):
        slopes = torch.autograd.grad(model.loss(x), weights)
        with torch.no_grad():
            for w, slope in zip(weights, slopes, strict=True):
                w.sub_(slope, alpha=rate)


@claim(
    by="training",
    sources=("A-338", "B-089", "C-292", "C-293"),
    budget=1.0,
    full={"starts": 20},
    short=r"C = U_m^\top,\; D = U_m \implies D C X = X_m,"
    r"\quad \|X - X_m\|_F^2 = \textstyle\sum_{i > m} \sigma_i^2",
)
def autoencoder_pca(
    data: Literal["centred", "far away"] = "centred",
    keep: Literal["top", "bottom"] = "top",
    s: int = 12,
    starts: int = 2,
    steps: int = 400,
):
    r"""The optimal linear autoencoder is principal component analysis, and descent finds it.

    With $X = U \Sigma V^\top \in \mathbb R^{n \times s}$ the choice $C = U_m^\top$, $D = U_m$
    reconstructs $D C X = U_m U_m^\top X = X_m$, hence is optimal by Eckart and Young with the
    squared error $\sum_{i > m} \sigma_i^2$. For centred data and $\sigma_m > \sigma_{m+1}$ every
    optimal decoder spans the space of the first $m$ principal directions. All other critical points
    are saddles with a direction of descent (Baldi and Hornik, 1989), so that gradient descent from
    a random start ends at an optimum.

    Here $\sigma = (5, 4, 2, 2)$ and $m = 2$. At the optimum $C = D^\top$ the Hessian couples
    directions $h \le m < i$ by the blocks
    $\frac1s \begin{pmatrix} \sigma_h^2 & -\sigma_i^2 \\ -\sigma_i^2 & \sigma_i^2 \end{pmatrix}$,
    whose eigenvalues are at least $2.79 / s$, and at a saddle $-7.1 / s$ is among them. At the rate
    $s / 50$ errors shrink by $e^{-0.056}$ a step, to $10^{-5}$ in 205 of the 400; the others leave
    any saddle that the start is not closer to than $10^{-11}$. It has a quarter of the usual size,
    so that the rate is small enough there too.

    Knobs:
        data: Whether the data are centred.
        keep: Which singular vectors are kept.
        s: How many examples there are.
        starts: From how many random starts gradient descent runs.
        steps: How many steps it takes.
    """
    lowest("s", s, 5)
    lowest("steps", steps, 400)
    n, m, sigma = 4, 2, torch.tensor([5.0, 4.0, 2.0, 2.0])
    v = torch.linalg.qr(torch.cat([torch.ones(s, 1), torch.randn(s, n)], 1)).Q[:, 1:]
    directions = orthogonal(n)
    centred = (v * sigma) @ directions.mT  # rows are examples, as columns of X are
    spread = (sigma.square().sum() / s).sqrt()
    x = centred + (0.0 if data == "centred" else 10.0) * spread * directions[:, -1]
    u = torch.linalg.svd(x.mT, full_matrices=False)[0]
    best = LinearAutoencoder(n, m).set_optimum(x)
    if keep == "bottom":
        best = autoencoder_of(u[:, -m:].mT, u[:, -m:])
    yield equals("optimal reconstruction", best(x), (u[:, :m] @ u[:, :m].mT @ x.mT).mT)
    least = torch.linalg.svdvals(x)[m:].square().sum()
    yield equals("squared error of the optimum", 2 * s * best.loss(x), least)
    pca = PCA(m, whiten=True).fit(x)
    principal = torch.as_tensor(pca.components_).mT
    gap = angle(principal, directions[:, :m])
    yield at_most("sine between PCA and the planted directions", gap, 0.0)
    gap = angle(best.D.detach(), principal)
    yield at_most("sine between the optimal decoder and PCA", gap, 0.0)
    yield from _solvers()
    code = torch.as_tensor(pca.transform(x))
    yield equals("covariance of whitened components", torch.cov(code.mT), torch.eye(m))
    for _ in range(starts):
        model = autoencoder_of(torch.randn(m, n) / 8, torch.randn(n, m) / 8)
        descend(model, x, s / (2 * 25.0), steps)
        yield equals("loss after descent", model.loss(x), best.loss(x), tol=1e-8)
        gap = angle(model.D.detach(), principal)
        yield at_most("sine between the decoder after descent and PCA", gap, 1e-4)


def _solvers(s: int = 50, n: int = 40, rank: int = 3):
    """Every way to principal directions, against the singular value decomposition."""
    x = torch.randn(s, rank) @ torch.randn(rank, n) + torch.randn(n)
    mean = x.mean(0)
    _, sigma, vh = torch.linalg.svd(x - mean, full_matrices=False)
    vh = vh * vh.gather(1, vh.abs().argmax(1, keepdim=True)).sign()
    total = sigma.square().sum()
    share = float(sigma[:2].square().sum() / total) - 1e-6
    for solver, k in (("full", 2), ("covariance_eigh", 2), ("randomized", 2), ("auto", share)):
        for whiten in (False, True):
            options = {"svd_solver": solver, "n_oversamples": 2, "iterated_power": 1}
            pca = PCA(k, whiten=whiten, random_state=0, **options).fit(x)
            at = {"solver": solver, "whiten": whiten}
            # The Gram matrix squares the condition: half of the digits are left.
            yield equals("principal directions", pca.components_, vh[:2], tol=1e-7, **at)
            yield equals("singular values", pca.singular_values_, sigma[:2], tol=1e-7, **at)
            variances = sigma[:2].square() / (s - 1)
            yield equals("variances", pca.explained_variance_, variances, **at)
            shares = sigma[:2].square() / total
            yield equals("shares of the variance", pca.explained_variance_ratio_, shares, **at)
            noise = (total - sigma[:2].square().sum()) / (s - 1) / (n - 2)
            yield equals("variance left, in the mean", pca.noise_variance_, noise, **at)
            code = (x - mean) @ vh[:2].mT / (variances.sqrt() if whiten else 1)
            yield equals("components", pca.transform(x), code, tol=1e-7, **at)
            back = (x - mean) @ vh[:2].mT @ vh[:2] + mean
            found = pca.inverse_transform(pca.transform(x))
            yield equals("data from the components", found, back, tol=1e-7, **at)


autoencoder_pca.foil(
    "data that are not centred: the mean is the first direction",
    refuted_by="sine between the optimal decoder and PCA",
    data="far away",
)
autoencoder_pca.foil("the last singular vectors", keep="bottom")
