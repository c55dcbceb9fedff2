"""Rows of the room `kernels`: Gram matrices of plain kernels, beside those of three libraries."""

import importlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.harness import Row, Skipped
from vademecum.kernels import Kernel, MaternKernel, RBFKernel, gram

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    n = 2_000 if device.type == "cpu" else 20_000
    for dtype, name in ((torch.float32, "float32"), (torch.float64, "float64")):
        for d in (10, 784):
            x = torch.randn(n, d, dtype=dtype, device=device)
            for nu in (math.inf, 1.5, 0.5):
                yield _row(x, nu, f"n = {n:,}, d = {d}, {name}")


def _row(x: Tensor, nu: float, name: str) -> Row:
    ell = math.sqrt(x.shape[1])
    ours: Kernel = (
        RBFKernel(lengthscale=ell) if nu == math.inf else MaternKernel(nu=nu, lengthscale=ell)
    )
    peers: dict[str, Callable[[], Any]] = {"GPyTorch": _gpytorch(x, nu, ell)}
    if x.device.type == "cpu":
        peers["scikit-learn"] = partial(_sklearn(nu, ell), x.numpy())
        peers["SciPy cdist"] = partial(_cdist, x.numpy(), nu, ell)
    kernel = "RBF" if nu == math.inf else f"Matern {nu}"
    return Row(f"Gram matrix of {kernel}, {name}", partial(gram, ours, x), peers, _agree)


def _sklearn(nu: float, ell: float) -> Any:
    from sklearn.gaussian_process.kernels import RBF, Matern

    return RBF(ell) if nu == math.inf else Matern(ell, nu=nu)


def _cdist(x: np.ndarray, nu: float, ell: float) -> np.ndarray:
    """As one writes it with SciPy's distances."""
    from scipy.spatial.distance import cdist

    if nu == math.inf:
        return np.exp(cdist(x, x, "sqeuclidean") / (-2 * ell**2))
    s = cdist(x, x) * (math.sqrt(2 * nu) / ell)
    return np.exp(-s) if nu == 0.5 else (1 + s) * np.exp(-s)


def _gpytorch(x: Tensor, nu: float, ell: float) -> Callable[[], Tensor]:
    theirs: Any = importlib.import_module("gpytorch.kernels")
    kernel = theirs.RBFKernel() if nu == math.inf else theirs.MaternKernel(nu=nu)
    kernel = kernel.to(x)
    kernel.lengthscale = torch.tensor(ell, dtype=x.dtype)  # a number would be rounded to float32

    def dense() -> Tensor:
        with torch.no_grad():
            return kernel(x).to_dense()

    return dense


def _agree(ours: Tensor, theirs: Any) -> None:
    """GPyTorch's distances lose half of the digits near 0, where a kernel with a cusp shows it."""
    theirs = torch.as_tensor(theirs).to(ours)
    off = (ours - theirs).abs()
    off.fill_diagonal_(0)
    tol = 2e-4 if ours.dtype == torch.float32 else 1e-10
    assert float(off.max()) < tol, float(off.max())
