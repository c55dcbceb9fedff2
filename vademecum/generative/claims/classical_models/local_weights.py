"""Locally linear embedding: weights that similarities leave alone."""

import numpy as np
import torch
from sklearn.manifold import LocallyLinearEmbedding
from sklearn.neighbors import NearestNeighbors

from vademecum.claims import at_most, claim, equals


def weights(x: np.ndarray, near: np.ndarray, *, constrained: bool) -> np.ndarray:
    """The weights of neighbours that reconstruct a point: with sum 1, or any."""
    if not constrained:
        return np.linalg.lstsq(near.T, x, rcond=None)[0]
    G = (x - near) @ (x - near).T
    w = np.linalg.solve(G, np.ones(len(near)))
    return w / w.sum()


def sheet(connected: bool) -> np.ndarray:
    """Sixty points of a plane, near those of a grid: in one piece, or in two far apart."""
    grid = np.stack(np.meshgrid(np.arange(10.0), np.arange(6.0)), -1).reshape(-1, 2)
    z = grid + (0.3 * torch.rand(60, 2) - 0.15).numpy()
    return z if connected else z + 100.0 * (grid[:, :1] >= 5)


def least_norm(x: np.ndarray, neighbours: int) -> np.ndarray:
    """The matrix of the smallest weights that reconstruct each point exactly, with sum 1."""
    near = NearestNeighbors(n_neighbors=neighbours).fit(x).kneighbors(return_distance=False)
    W = np.zeros((len(x), len(x)))
    for i, row in enumerate(near):
        A = np.vstack([(x[row] - x[i]).T, np.ones(neighbours)])
        W[i, row] = np.linalg.pinv(A, rcond=1e-9)[:, -1]
    return W


@claim(
    by="identity",
    sources=("E-269",),
    budget=0.5,
    short=r"\min_{\sum w = 1} \|x - \sum_j w_j x_j\|^2: w = \frac{G^{-1}"
    r" 1}{1^\top G^{-1} 1},\ G_{ij} = (x - x_i) \cdot (x - x_j)",
)
def lle_weights(constrained: bool = True, connected: bool = True):
    r"""Locally linear embedding.

    LLE reconstructs each point from its neighbours by weights $w = \frac{G^{-1} 1}{1^\top G^{-1}
    1}$, $G$ the Gram matrix of $x - x_j$, which minimise $\|x - \sum_j w_j x_j\|^2$ under $\sum_j
    w_j = 1$; they do not change when point and neighbours are translated, rotated and scaled
    together. The embedding takes the bottom eigenvectors of $(I - W)^\top (I - W)$ after the
    constant one; if the data lie exactly on a $d$-dimensional affine subspace, weights that
    reconstruct exactly put $1$ and the $d$ intrinsic coordinates into its kernel, and these are
    recovered up to an affine map when the kernel has dimension $d + 1$.

    *Checked* for points in $\mathbb R^6$ with 4 neighbours: the weights are those of least squares
    after the constraint is eliminated, stay the same under a random similarity, and 200 others with
    sum 1 are no better. For 60 points of a plane in $\mathbb R^5$, near a grid, with 8 neighbours
    and the exact weights of least norm: $(I - W) [1, z] = 0$, the kernel has dimension 3, and a
    linear readout of $z$ from its vectors is exact; from the coordinates of scikit-learn's
    `LocallyLinearEmbedding`, whose weights are regularised, to $10^{-3}$.

    Knobs:
        constrained: Whether the weights sum to 1.
        connected: Whether the neighbourhood graph is in one piece.
    """
    for n, d in ((4, 6), (3, 5)):
        x, near = torch.randn(d).numpy(), torch.randn(n, d).numpy()
        w = weights(x, near, constrained=constrained)
        base, others = near[-1], near[:-1] - near[-1]
        free = np.linalg.lstsq(others.T, x - base, rcond=None)[0]
        at = {"neighbours": n, "d": d}
        oracle = np.append(free, 1 - free.sum())
        yield equals("weights, by elimination", w, oracle, tol=1e-8, **at)
        Q, shift = torch.linalg.qr(torch.randn(d, d)).Q.numpy(), 3 * torch.randn(d).numpy()
        moved = weights(2.5 * Q @ x + shift, 2.5 * near @ Q.T + shift, constrained=constrained)
        yield equals("weights after a similarity", moved, w, tol=1e-8, **at)
        step = torch.randn(200, n).numpy()
        tried = w + (step - step.mean(1, keepdims=True)) * np.logspace(-3, 0, 200)[:, None]
        errors = np.linalg.norm(x - tried @ near, axis=1)
        yield at_most("distance of the reconstruction", np.linalg.norm(x - w @ near), errors, **at)
    z = sheet(connected)
    frame = torch.linalg.qr(torch.randn(5, 2)).Q.numpy()
    x = z @ frame.T + torch.randn(5).numpy()
    A = np.eye(60) - least_norm(x, 8)
    inside = np.column_stack([np.ones(60), z])
    size = np.abs(inside).max()
    yield equals("(I - W) [1, z]", A @ inside / size, 0.0, tol=1e-10)
    _, values, vectors = np.linalg.svd(A)  # its squares are the eigenvalues, without their rounding
    yield equals("dimension of the kernel", int((values < 1e-9).sum()), 3)
    bottom = vectors[-3:].T
    left = z - bottom @ np.linalg.lstsq(bottom, z, rcond=None)[0]
    yield equals("what a readout from the kernel leaves", left / size, 0.0, tol=1e-6)
    peer = LocallyLinearEmbedding(n_neighbors=8, n_components=2, reg=1e-7, eigen_solver="dense")
    basis = np.column_stack([np.ones(60), peer.fit_transform(x)])
    left = z - basis @ np.linalg.lstsq(basis, z, rcond=None)[0]
    yield equals("what a readout from scikit-learn's leaves", left / size, 0.0, tol=1e-3)


lle_weights.foil("weights without the constraint", constrained=False)
lle_weights.foil("a graph in two pieces", connected=False, refuted_by="dimension of the kernel")
