"""Rows of the room `linear`: principal components."""

from collections.abc import Iterator

import numpy as np
import torch
from sklearn.decomposition import PCA as Peer

from bench.harness import Row, Skipped, in_turn
from vademecum.data import load
from vademecum.linear.pca import PCA

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    yield from in_turn(_images(device), *([_wide()] if device.type == "cpu" else []))


def _images(device: torch.device) -> Iterator[Row]:
    x = load("fashion_mnist").x.flatten(1)
    if device.type == "cuda":
        yield from _cuda(x.to(device))
        return
    a = x.numpy()
    peers = {
        f"scikit-learn {solver}": lambda solver=solver: Peer(50, svd_solver=solver).fit(a)
        for solver in ("covariance_eigh", "randomized")
    }
    limit = "37 GFLOP: 0.23 s at 165 GFLOP/s"
    for solver in ("auto", "randomized"):
        name = f"PCA {solver}, 50 components, Fashion-MNIST"
        yield Row(name, lambda solver=solver: PCA(50, svd_solver=solver).fit(a), peers, _agree,
                  limit, rounds=5)  # fmt: skip


def _wide() -> Iterator[Row]:
    """Where the covariance would be dearer than a few products with it."""
    n, d, k = 10_000, 4_000, 20
    scale = 1 / (1 + torch.arange(100.0))
    z = (torch.randn(n, 100) * scale @ torch.randn(100, d) + 0.1 * torch.randn(n, d)).numpy()
    peers = {"scikit-learn randomized": lambda: Peer(k, svd_solver="randomized").fit(z)}
    name = f"PCA randomized, {k} components, {n} x {d}"
    limit = "24 GFLOP (5 products with 30 columns): 0.15 s at 165 GFLOP/s"
    ours = lambda: PCA(k, svd_solver="randomized").fit(z)  # noqa: E731
    yield Row(name, ours, peers, _agree, limit, rounds=5)


def _cuda(x: torch.Tensor) -> Iterator[Row]:
    def decomposition() -> PCA:
        return PCA(50, svd_solver="full").fit(x)

    for solver in ("auto", "randomized"):
        name = f"PCA {solver}, 50 components, Fashion-MNIST"
        yield Row(name, lambda solver=solver: PCA(50, svd_solver=solver).fit(x),
                  {"torch SVD of the centred data": decomposition}, _agree)  # fmt: skip


def _agree(ours, peer) -> None:
    """Ours explains as much, and the strong components are the same."""
    mine, theirs = (np.asarray(torch.as_tensor(m.explained_variance_).cpu()) for m in (ours, peer))
    assert mine.sum() > theirs.sum() * (1 - 1e-4), "we explain less"
    np.testing.assert_allclose(mine[:10], theirs[:10], rtol=1e-3)
    first, second = (torch.as_tensor(m.components_[:5]).cpu() for m in (ours, peer))
    overlaps = (first * second).sum(1).abs()
    assert overlaps.min() > 1 - 1e-3, "directions differ"
