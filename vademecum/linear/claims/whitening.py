"""White data: where least squares is the approximation of a matrix."""

from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.claims import claim, equals, lowest
from vademecum.linear import LinearRegression, whiten


def correlated(s: int, n: int) -> Tensor:
    """Examples as rows, with correlations, variances between about 0.3 and 6, and a mean."""
    mixing = torch.linalg.qr(torch.randn(n, n)).Q * torch.linspace(0.5, 2.5, n)
    return torch.randn(s, n) @ mixing.T + torch.randn(n) + 1


@claim(
    by="identity",
    sources=("A-033", "B-090"),
    budget=0.5,
    full={"n": 30, "s": 2000},
    short=r"\tfrac1s X X^\top = U \Lambda U^\top,\; Z = \Lambda^{-1/2} U^\top X"
    r" \implies \tfrac1s Z Z^\top = I",
)
def whitening(centre: bool = True, power: float = 0.5, n: int = 4, s: int = 200):
    r"""The whitening transform.

    For centred data $X \in \mathbb{R}^{n \times s}$ of full rank with
    $\frac1s X X^\top = U \Lambda U^\top$, the map $X \mapsto \Lambda^{-1/2} U^\top X$ gives data
    with $\frac1s X X^\top = I_n$ (PCA whitening); any further rotation, e.g. ZCA
    $U \Lambda^{-1/2} U^\top$, also whitens. The unnormalised convention asks $X X^\top = I_n$
    instead, which is the same up to a factor $\sqrt s$.

    *Proof.* If $Q Q^\top = I$ and $T = Q \Lambda^{-1/2} U^\top$, then
    $T\, U \Lambda U^\top T^\top = I$.

    Knobs:
        centre: Whether the mean is taken away first.
        power: The power of $\Lambda$ that divides.
        n: How many features there are.
        s: How many examples there are.
    """
    lowest("n", n, 2)
    lowest("s", s, 2 * n)
    x = correlated(s, n)
    covariance = torch.cov(x.T, correction=0)
    lambdas, u = torch.linalg.eigh(covariance)
    for method in ("pca", "zca", "cholesky"):
        white = whiten(x, method=method)
        z = (x - centre * white.mean) @ white.transform.T @ _matrix_power(white.transform, power)
        yield equals("mean of the white data", z.mean(0), 0.0, method=method)
        yield equals("second moment", z.T @ z / s, torch.eye(n), method=method)
        yield equals("mean that is taken away", white.mean, x.mean(0), method=method)
        yield equals("white data, as returned", white.z, z, method=method)
        back = white.z @ white.inverse.T + white.mean
        yield equals("data that come back", back, x, method=method)
    zca, pca = whiten(x), whiten(x, method="pca")
    yield equals("transform of ZCA", zca.transform, u * lambdas.rsqrt() @ u.T)
    spread = (u.T @ pca.inverse).square().sum(1)
    yield equals("variances along the principal axes", spread, lambdas)
    root = torch.linalg.cholesky(covariance)
    yield equals("inverse transform of Cholesky", whiten(x, method="cholesky").inverse, root)


def _matrix_power(transform: Tensor, power: float) -> Tensor:
    r"""The $\Lambda^{1/2 - p}$ in the coordinates of the white data, the identity for $p = 1/2$."""
    lambdas, q = torch.linalg.eigh(transform @ transform.T)  # which are the inverse variances
    return q * lambdas ** (power - 0.5) @ q.T


whitening.foil(
    r"$\Lambda^{-1} U^\top X$, the square root forgotten, has second moment $\Lambda^{-1}$",
    refuted_by="second moment",
    power=1.0,
)
whitening.foil(
    "whitening without centring leaves a mean", refuted_by="mean of the white data", centre=False
)


@claim(
    by="identity",
    sources=("A-034", "A-035", "B-091"),
    budget=0.5,
    full={"maps": 10**4},
    short=r"\tfrac1s X X^\top = I \implies \tfrac1{2s} \|Y - \Theta X\|_F^2 ="
    r" \tfrac12 \|\Theta - \tfrac1s Y X^\top\|_F^2 + c",
)
def whitened_least_squares(
    normalised: Callable[[Tensor, Tensor], Tensor] = lambda x, y: y @ x.T / x.shape[1],
    unnormalised: Callable[[Tensor, Tensor], Tensor] = lambda x, y: y @ x.T,
    general: Callable[[Tensor, Tensor], Tensor] = lambda x, y: y @ x.T @ torch.linalg.inv(x @ x.T),
    maps: int = 100,
):
    r"""Least squares on whitened inputs is matrix approximation.

    If $\frac1s X X^\top = I$, then
    $\frac1{2 s} \|Y - \Theta X\|_F^2 = \frac12 \|\Theta - \Gamma\|_F^2 + \text{const}$ with the
    input-output correlation $\Gamma = \frac1s Y X^\top$, so the least-squares solution is
    $\Theta = \Gamma$. If instead $X X^\top = I$, then
    $\frac12 \|Y - \Theta X\|_F^2 = \frac12 \|\Theta - \Gamma\|_F^2 + \text{const}$ with
    $\Gamma = Y X^\top$, without $1 / s$. In general the solution is $Y X^\top (X X^\top)^{-1}$.

    *Proof.* Expand the square: $\|\Theta X\|_F^2 = \operatorname{tr} \Theta X X^\top \Theta^\top$.

    Knobs:
        normalised: The solution where $\frac1s X X^\top = I$, a function of $X$ and $Y$.
        unnormalised: The solution where $X X^\top = I$.
        general: The solution for any inputs of full rank.
        maps: How many $\Theta$ the loss is compared at.
    """
    n, m, s = 3, 2, 50
    raw, y = correlated(s, n).T, torch.randn(m, s)
    yield equals(
        "solution for $X = I$, $Y = 4 I$",
        unnormalised(torch.eye(2), 4 * torch.eye(2)),
        4 * torch.eye(2),
    )
    signs = torch.tensor([[1.0, -1.0]])
    yield equals(r"solution for $x = y = \pm 1$", normalised(signs, signs), 1.0)
    white = whiten(raw.T).z.T
    for name, x, correlation, scale in (
        ("(1/s) X X^T = I", white, normalised, 1 / s),
        ("X X^T = I", white / s**0.5, unnormalised, 1.0),
    ):
        gamma = correlation(x, y)
        theta = torch.randn(maps, m, n)
        loss = scale / 2 * (y - theta @ x).square().sum((1, 2))
        gap = loss - (theta - gamma).square().sum((1, 2)) / 2
        constant = scale / 2 * (y - correlation(x, y) @ x).square().sum()
        yield equals("loss less the distance to the correlation", gap, constant, convention=name)
        solution = LinearRegression(fit_intercept=False).fit(x.T, y.T).coef_
        yield equals("least-squares solution", solution, gamma, convention=name)
    solution = LinearRegression(fit_intercept=False).fit(raw.T, y.T).coef_
    yield equals("least-squares solution", solution, general(raw, y), convention="none")


whitened_least_squares.foil(
    r"with $\frac1{2 s} Y X^\top$ half of the solution",
    normalised=lambda x, y: y @ x.T / 2 / x.shape[1],
)
whitened_least_squares.foil(
    "inputs that are not white need the inverse", general=lambda x, y: y @ x.T / x.shape[1]
)
whitened_least_squares.erratum(
    "A-034",
    printed=r"$X X^\top = I_n$ together with $\Gamma = \frac1s Y X^\top$ (the scan reads "
    r"$\frac16$ for $\frac1s$)",
    right=r"$X X^\top = I_n$ together with $\Gamma = Y X^\top$, or $\frac1s X X^\top = I_n$",
    why=r"as scanned: under $X X^\top = I$, $\|Y - W X\|_F^2 = \|W\|_F^2 - 2 \langle W, Y X^\top"
    r" \rangle + \|Y\|_F^2$, so that the target is $Y X^\top$: for $X = I$ and $Y = 4 I$ of size 2"
    r" it is $4 I$, as scanned $2 I$. The scan misreads $\frac1s$ twice in this line and may have"
    r" lost a third one, before $X X^\top$ (sheet B prints $\frac1s X X^\top = I$)",
    weight="scan",
    refuted_by="solution for $X = I$, $Y = 4 I$",
    unnormalised=lambda x, y: y @ x.T / x.shape[1],
)
whitened_least_squares.erratum(
    "A-035",
    printed=r"$X X^\top = I_n \Rightarrow W \approx \frac1s Y X^\top$ (the scan reads $\frac1c$"
    r" for $\frac1s$)",
    right=r"$X X^\top = I_n \Rightarrow W = Y X^\top$",
    why=r"as scanned: the same mixture of conventions: either the whitening condition is"
    r" $\frac1s X X^\top = I$ or the factor $1/s$ must go. With $n = s = 2$, $X = I$ one has"
    r" $W = Y$, as scanned $Y / 2$",
    weight="scan",
    refuted_by="solution for $X = I$, $Y = 4 I$",
    unnormalised=lambda x, y: y @ x.T / x.shape[1],
)
whitened_least_squares.erratum(
    "B-091",
    printed=r"$\Theta \to \min \frac12 \|\Theta - \Gamma\|_F^2$ with "
    r"$\Gamma := \frac1{2 s} X Y^\top$",
    right=r"$\Gamma := \frac1s Y X^\top$",
    why=r"$X Y^\top$ is the transpose of what fits the shape of $\Theta$, and the extra one half"
    r" makes the minimiser half the least-squares solution: with one input, one output,"
    r" $x = y = \pm 1$ the solution is 1, printed $1/2$",
    refuted_by=r"solution for $x = y = \pm 1$",
    normalised=lambda x, y: x @ y.T / 2 / x.shape[1],
)
