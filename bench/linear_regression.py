"""Rows of the room `linear`: ridge regression and the lasso."""

import math
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.harness import Row, Skipped, in_turn
from vademecum.data import load
from vademecum.linear.lasso import Lasso, lasso_path
from vademecum.linear.ridge import RidgeRegression

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    warnings.simplefilter("ignore")  # the peer's, of an ill-conditioned matrix in single precision
    yield from in_turn(_ridge(device), _lasso(device))


def _arrays(*arrays: np.ndarray, device: torch.device) -> tuple[Any, ...]:
    """What ours is given: arrays on a CPU, as the peers are, else tensors on the device."""
    if device.type == "cpu":
        return arrays
    return tuple(torch.from_numpy(array).to(device) for array in arrays)


def _numpy(value: Any) -> np.ndarray:
    return value.cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _ridge(device: torch.device) -> Iterator[Row]:
    from sklearn.linear_model import Ridge, RidgeCV

    images = load("fashion_mnist")
    x, y = images.x.flatten(1).numpy(), np.eye(10, dtype=np.float32)[images.y.numpy()]
    ours = _arrays(x, y, device=device)
    alphas = np.logspace(0, 6, 100)

    def agree(a, b):
        a, b = (_numpy(v).reshape(-1, 10, 784)[[0, -1]] for v in (a, b))
        fits = np.einsum("nd,atd->ant", x[::100], a - b)  # rounding moves weights more than fits
        assert np.abs(fits - fits.mean(1, keepdims=True)).max() < 2e-3, "the fits differ"

    def coefs(options, attribute="coef_", rows=None):
        return getattr(RidgeRegression(**options).fit(*(v[:rows] for v in ours)), attribute)

    cpu = device.type == "cpu"
    limit = "37 GFLOP for the Gram matrix: 0.22 s at 165 GFLOP/s" if cpu else ""
    peer = {"scikit-learn Ridge": lambda: Ridge(alpha=1.0).fit(x, y).coef_}
    name = "RidgeRegression, Fashion-MNIST, 10 targets"
    yield Row(name, partial(coefs, {"alphas": 1.0}), peer, agree, limit)
    peer = {"100 fits of Ridge": lambda: np.stack([Ridge(alpha=a).fit(x, y).coef_ for a in alphas])}
    path = partial(coefs, {"alphas": alphas}, "coef_path_")
    yield Row(f"{name}, 100 penalties, GCV", path, peer, agree, limit, rounds=1)
    few = 6000  # all would take the peer minutes
    peer = {"RidgeCV": lambda: RidgeCV(alphas=alphas).fit(x[:few], y[:few]).coef_}
    options = {"alphas": alphas, "selection": "loo"}
    best = partial(coefs, options, rows=few)
    limit = "20 GFLOP: 0.12 s at 165 GFLOP/s" if cpu else ""
    yield Row(
        f"{name}, {few} images, 100 penalties, leave one out", best, peer, agree, limit, rounds=1
    )


def _lasso(device: torch.device) -> Iterator[Row]:
    from sklearn.linear_model import Lasso as Peer
    from sklearn.linear_model import lasso_path as peer_path

    for kind, rho, share in (("independent", 0.0, 0.01), ("correlated", 0.9, 0.1)):
        x, y = _sparse(10_000, 2_000, 100, rho)
        alpha = share * float(np.abs(x.T @ (y - y.mean())).max() / len(y))
        ours, columns = _arrays(x, y, device=device), np.asfortranarray(x)
        options = {"alpha": alpha, "tol": 1e-6}

        def fit(ours=ours, options=options):
            return Lasso(**options).fit(*ours).coef_

        def peer(precompute, columns=columns, y=y, options=options):
            return Peer(**options, precompute=precompute).fit(columns, y).coef_

        def agree(a, b, y=y):
            np.testing.assert_allclose(_numpy(a), b, atol=1e-3 * float(np.std(y)))

        peers = {
            "scikit-learn": partial(peer, False),
            "scikit-learn, Gram matrix": partial(peer, True),
        }
        limit = "160 MB of data: 6 ms a pass at 27 GB/s" if device.type == "cpu" else ""
        name = f"Lasso, 10000 x 2000, {kind} features, gap 1e-6"
        yield Row(name, fit, peers, agree, limit)
        if not rho:
            continue
        tensors = tuple(torch.as_tensor(v) for v in ours)
        centred, target = np.asfortranarray(x - x.mean(0)), y - y.mean()

        def agree_path(a, b, y=y):
            agree(a.coefs.T, b[1])

        grid: Any = {"alphas": 100, "eps": 0.01}  # scikit-learn declares text
        path = {
            "scikit-learn": lambda x=centred, y=target, grid=grid: peer_path(x, y, tol=1e-6, **grid)
        }
        ours_path = partial(lasso_path, *tensors, alphas=100, ratio=0.01)
        name = f"lasso_path, 100 penalties, 10000 x 2000, {kind} features, gap 1e-6"
        yield Row(name, ours_path, path, agree_path, limit, rounds=3)


def _sparse(n: int, d: int, informative: int, rho: float) -> tuple[np.ndarray, np.ndarray]:
    """Features with correlation `rho` between neighbours, and targets that few of them decide."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    for j in range(1, d):
        x[:, j] = rho * x[:, j - 1] + math.sqrt(1 - rho**2) * x[:, j]
    w = np.zeros(d)
    w[rng.choice(d, informative, replace=False)] = rng.normal(size=informative)
    return x, x @ w + rng.normal(size=n)
