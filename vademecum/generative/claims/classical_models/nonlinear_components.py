"""Nonlinear relatives of principal components: geodesic distances and Gaussian processes."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from scipy.linalg import subspace_angles
from scipy.sparse.csgraph import shortest_path
from scipy.stats import multivariate_normal
from sklearn.manifold import Isomap
from torch import Tensor

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.generative import GPLVM
from vademecum.kernels import GaussianProcess, LinearKernel, RBFKernel
from vademecum.linear import PCA


def swiss_roll(along: int = 40, across: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """A rolled sheet, turned at random: its points, and their arc length along the roll."""
    angle = np.linspace(1.5 * np.pi, 4.5 * np.pi, 4001)
    arc = np.concatenate(
        [[0.0], np.cumsum(np.hypot(*np.diff(angle * [np.cos(angle), np.sin(angle)])))]
    )
    s = np.linspace(0, arc[-1], along)
    t = np.interp(s, arc, angle)
    width = np.linspace(0, 10, across)
    roll = np.stack([t * np.cos(t), t * np.sin(t)], 1)
    x = np.concatenate([np.repeat(roll, across, 0), np.tile(width, along)[:, None]], 1)
    turn = torch.linalg.qr(torch.randn(3, 3)).Q.numpy()
    moved = 0.01 * torch.randn(len(x), 3).numpy()  # so that no two neighbours are as near
    return x @ turn + moved, np.repeat(s, across)


def readout(coordinates: np.ndarray, s: np.ndarray) -> float:
    """The correlation of a number with its best linear fit."""
    A = np.column_stack([coordinates, np.ones(len(s))])
    return float(np.corrcoef(A @ np.linalg.lstsq(A, s, rcond=None)[0], s)[0, 1])


def scaled(x: np.ndarray, neighbours: int) -> np.ndarray:
    """The best two coordinates for shortest paths of the neighbourhood graph."""
    gaps = np.linalg.norm(x[:, None] - x, axis=2)
    near = np.argsort(gaps, 1)[:, 1 : neighbours + 1]
    graph = np.zeros_like(gaps)
    np.put_along_axis(graph, near, np.take_along_axis(gaps, near, 1), 1)
    D = shortest_path(graph, directed=False) ** 2
    J = np.eye(len(x)) - 1 / len(x)
    values, vectors = np.linalg.eigh(-J @ D @ J / 2)
    return vectors[:, :-3:-1] * np.sqrt(values[:-3:-1])


@claim(
    by="identity",
    sources=("E-269",),
    budget=1.0,
    short=r"\text{LLE: local weights; Isomap: geodesics; GPLVM: } x = f(z),\ f \sim GP",
)
def nonlinear_embeddings(method: Literal["isomap", "pca"] = "isomap", bend: float = 1.0):
    r"""Nonlinear embeddings: LLE, Isomap, GPLVM.

    Nonlinear relatives of PCA with different mechanisms: LLE preserves local linear reconstruction
    weights (the claim `lle_weights`), Isomap applies classical scaling to shortest-path distances
    of a neighbourhood graph, and the GPLVM replaces the linear decoder by a Gaussian process
    (smooth for an RBF kernel). Isomap unrolls a curved sheet that PCA cannot.

    *Checked* on a Swiss roll of 40 x 8 points, equally spaced in arc length, with 8 neighbours,
    turned and moved by a hundredth at random: arc length is a linear function of two coordinates of
    scikit-learn's `Isomap` with correlation above 0.99 (of `PCA` below 0.9), and these have the
    distances of classical scaling from SciPy's shortest paths. What `GPLVM` with an RBF kernel
    decodes from six latent points has, at 20 points between them, the second derivative of the mean
    of a Gaussian process, which is not 0.

    Knobs:
        method: Whose two coordinates tell the arc length.
        bend: The factor of the decoder's second derivative: 0 for a piecewise linear one.
    """
    x, s = swiss_roll()
    isomap = Isomap(n_neighbors=8, n_components=2, eigen_solver="dense").fit_transform(x)
    own = isomap if method == "isomap" else np.asarray(PCA(2).fit_transform(x))
    yield at_least("correlation of arc length with its readout", readout(own, s), 0.99)
    yield at_most(
        "correlation of arc length with that from PCA",
        readout(np.asarray(PCA(2).fit_transform(x)), s),
        0.9,
    )
    wanted = scaled(x, 8)
    gaps = [np.linalg.norm(z[::40, None] - z[::40], axis=2) for z in (isomap, wanted)]
    yield equals("distances of Isomap's points, by classical scaling", *gaps, tol=1e-6)
    t = torch.linspace(-1, 1, 6)
    data = torch.stack([t, t.square(), (3 * t).sin()], 1) + 0.1 * torch.randn(6, 3)
    model = GPLVM(1, kernel=RBFKernel(), noise=0.1, learn=False, max_iter=50).fit(data)
    Z = model.embedding_[:, 0]
    order = Z.sort().values
    between = torch.cat([torch.lerp(a, b, torch.linspace(0.2, 0.8, 4)) for a, b in pairwise(order)])
    h = 1e-3
    decoded = [model.inverse_transform((between + step)[:, None]) for step in (-h, 0.0, h)]
    measured = (decoded[0] - 2 * decoded[1] + decoded[2]) / h**2
    K = torch.exp(-(Z[:, None] - Z).square() / 2)
    alpha = torch.linalg.solve(K + 0.01 * torch.eye(6), data - data.mean(0))
    r = between[:, None] - Z
    second = ((r.square() - 1) * torch.exp(-r.square() / 2)) @ alpha
    # The fourth derivative of k is at most 3: differences are off by 3 h^2 / 12 times the sum of
    # its coefficients, and by rounding of 1e-13 / h^2 = 1e-7.
    slack = h**2 / 4 * float(alpha.abs().sum(0).max()) + 1e-6
    yield equals("second derivative of the decoder", measured, bend * second, tol=slack)
    yield at_least("largest second derivative", measured.abs().max(), 0.05)


nonlinear_embeddings.foil("principal components unroll the sheet", method="pca")
nonlinear_embeddings.erratum(
    "E-269",
    printed="LLE/Isomap/GPLVM (here we also try to do PCA or Factor analysis with nonlinear"
    " components (with p.w. linear components))",
    right="only LLE is made of locally linear pieces; the decoder of a GPLVM with RBF kernel is"
    " smooth, and Isomap has no decoder",
    why="Only LLE is built from locally linear pieces: a GPLVM with RBF kernel is smooth and"
    " nowhere piecewise linear, and Isomap has no parametric map at all.",
    weight="soft",
    refuted_by="second derivative of the decoder",
    bend=0.0,
)


def density(K: Tensor, x: Tensor, noise: float) -> float:
    """The log-density of independent columns with the covariance K and noise."""
    A: Any = (K + noise**2 * torch.eye(len(K))).numpy()
    law = multivariate_normal(np.zeros(len(K)), A)
    return float(np.sum(law.logpdf(x.T.numpy())))


def slopes(Z: Tensor, x: Tensor, noise: float) -> Tensor:
    r"""The formula $D (K^{-1} S K^{-1} Z - K^{-1} Z)$ for the linear kernel."""
    P = torch.linalg.inv(Z @ Z.T + noise**2 * torch.eye(len(Z)))
    return x.shape[1] * (P @ (x @ x.T / x.shape[1]) @ P @ Z - P @ Z)


@claim(
    by="identity",
    sources=("E-269",),
    budget=0.8,
    short=r"X_{\cdot j} \sim N(0, Z Z^\top + \sigma^2 I):\ \hat Z ="
    r" U_q (\Lambda_q(\tfrac1D X X^\top) - \sigma^2 I)_+^{1/2}",
)
def gplvm(normaliser: Literal["D", "N"] = "D", kernel: Literal["linear", "rbf"] = "linear"):
    r"""Gaussian process latent variable model.

    The GPLVM treats the $D$ columns of the centred data $X \in \mathbb R^{N \times D}$ as
    independent draws of $\mathcal N(0, K(Z) + \sigma^2 I)$ and maximises $-\frac D2 \big(N \log
    2\pi + \log \det K_\sigma + \mathrm{Tr}(K_\sigma^{-1} \tfrac1D X X^\top)\big)$ over the latent
    points $Z \in \mathbb R^{N \times q}$. For the linear kernel $K = Z Z^\top$ the maximum is $Z =
    U_q (\Lambda_q - \sigma^2 I)_+^{1/2} R$ with the leading eigenpairs of $\frac1D X X^\top$ (dual
    probabilistic PCA: the PCA scores up to scale and rotation); other kernels give nonlinear
    embeddings and need gradients (Lawrence 2005).

    *Checked* for $12 \times 7$ data with $q = 2$, for $6 \times 10$ with $q = 3$ of which one
    eigenvalue is below $\sigma^2$: SciPy's normal densities of the columns are the likelihood that
    `GPLVM` tells; the gradient $D (K^{-1} S K^{-1} Z - K^{-1} Z)$ vanishes at the closed form, with
    any rotation, and is that of `GPLVM` and of central differences elsewhere; none of 200
    perturbations of sizes 0.001 to 1 raises the likelihood; the points span PCA's scores. For an
    RBF kernel the gradient is that of differences, and on a noisy parabola the ascent ends above
    the linear model's maximum.

    Knobs:
        normaliser: The number by which $X X^\top$ is divided.
        kernel: For which kernel the points of the closed form are a maximum.
    """
    for n, d, q, other in ((12, 7, 2, 2), (6, 10, 3, 1)):
        x = torch.randn(n, d) * torch.linspace(2, 0.3, d)
        x = x - x.mean(0)
        values, U = torch.linalg.eigh(x @ x.T / (d if normaliser == "D" else n))
        values, U = values.flip(0), U.flip(1)
        true = torch.linalg.eigvalsh(x @ x.T / d).flip(0)
        # Half way from the last eigenvalue kept to the next, or to the one before.
        noise = math.sqrt(float(true[q - 1] + true[other]) / 2)
        at = {"N": n, "D": d, "q": q}
        R = torch.linalg.qr(torch.randn(q, q)).Q
        Z = U[:, :q] * (values[:q] - noise**2).clamp(min=0).sqrt() @ R
        model = GPLVM(q, kernel=LinearKernel(), noise=noise).fit(x)
        if kernel == "linear":
            left = slopes(Z, x, noise)
        else:
            curved = GPLVM(q, kernel=RBFKernel(), noise=noise, learn=False, max_iter=1).fit(x)
            left = curved.log_likelihood(Z, gradient=True)[1]
        yield equals("gradient at the closed form", left, 0.0, tol=1e-8, **at)
        own = model.embedding_
        yield equals("points of GPLVM, by products", own @ own.T, Z @ Z.T, tol=1e-8, **at)
        value = density(own @ own.T, x, noise)
        yield equals("likelihood of GPLVM", model.log_likelihood_, value, **at)
        sizes = 10 ** (-3 * torch.rand(200))
        near = [model.log_likelihood(own + size * torch.randn(n, q)) for size in sizes]
        yield at_most("likelihood of points nearby", near, value, **at)
        kept = (own.norm(dim=0) > 1e-9).sum()
        angles = subspace_angles(np.asarray(PCA(int(kept)).fit_transform(x)), own[:, :kept].numpy())
        yield at_most("angles to the scores of PCA", angles, 1e-6, **at)
        far = torch.randn(n, q)
        found = model.log_likelihood(far, gradient=True)[1]
        yield equals("gradient elsewhere", found, slopes(far, x, noise), tol=1e-9, **at)
        yield equals(
            "the same by differences", found[1, 0], _difference(far, x, noise), tol=1e-6, **at
        )
    yield from _curved()


def _curved() -> Iterator[Evidence]:
    """Kernels whose maximum is not known in closed form."""
    t = torch.linspace(-1, 1, 12)
    x = torch.stack([t, 2 * t.square()], 1) + 0.03 * torch.randn(12, 2)
    curved = GPLVM(1, max_iter=60).fit(x)
    linear = GPLVM(1, kernel=LinearKernel()).fit(x)
    gain = curved.log_likelihood_ - linear.log_likelihood_
    yield at_least("gain of the curved model on a parabola", gain, 1.0)
    fixed = GPLVM(1, kernel=2.0 * RBFKernel(), noise=0.3, learn=False, max_iter=1).fit(x)
    Z, h, x = torch.randn(12, 1), torch.zeros(12, 1), x - x.mean(0)
    h[3] = 1e-5
    found = fixed.log_likelihood(Z, gradient=True)[1][3, 0]
    up, down = (density(fixed.kernel_(Z + step), x, 0.3) for step in (h, -h))
    yield equals("gradient for an RBF kernel, by differences", found, (up - down) / 2e-5, tol=1e-6)
    process = GaussianProcess(curved.kernel_, noise=curved.noise_, learn=False).fit(
        curved.embedding_, x
    )
    yield equals(
        "likelihood by a process' evidence",
        process.log_marginal_likelihood_,
        curved.log_likelihood_,
        tol=1e-6,
    )


def _difference(Z: Tensor, x: Tensor, noise: float) -> float:
    h = torch.zeros_like(Z)
    h[1, 0] = 1e-5
    up, down = (density((Z + step) @ (Z + step).T, x, noise) for step in (h, -h))
    return (up - down) / 2e-5


gplvm.foil(
    r"eigenpairs of $\frac1N X X^\top$", normaliser="N", refuted_by="gradient at the closed form"
)
gplvm.foil(
    "the same points for an RBF kernel", kernel="rbf", refuted_by="gradient at the closed form"
)
