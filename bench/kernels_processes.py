"""Rows of the room `kernels`: Gaussian processes and kernel ridge regression."""

import importlib
import math
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bench.harness import Row, Skipped, in_turn
from vademecum.kernels import GaussianProcess, KernelRidge, RBFKernel

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    warnings.simplefilter("ignore")  # of the peer, that few iterations were made
    yield from in_turn(_processes(device), _ridge(device))


class _Found(NamedTuple):
    """Hyperparameters that were learnt, and the data less the mean."""

    scale: float
    lengthscale: float
    variance: float
    x: Tensor
    y: Tensor

    def objective(self) -> float:
        """Minus the log marginal likelihood a target, exactly, in double precision."""
        x, y = self.x.double(), self.y.double()
        K = self.scale * torch.exp(-0.5 * (torch.cdist(x, x) / self.lengthscale) ** 2)
        L = torch.linalg.cholesky(K + self.variance * torch.eye(len(x)).to(K))
        fit = torch.linalg.solve_triangular(L, y[:, None], upper=False).square().sum() / 2
        total = fit + L.diagonal().log().sum() + len(x) / 2 * math.log(2 * math.pi)
        return float(total) / len(x)


def _data(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(n, 10)).astype(np.float32)
    y = np.sin(6 * x[:, 0]) + 2 * x[:, 1] + np.cos(4 * x[:, 2] * x[:, 3])
    y = (y + 0.1 * rng.normal(size=n)).astype(np.float32)
    return torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)


def _processes(device: torch.device) -> Iterator[Row]:
    """Ours learns until it has converged, which is beyond where 50 steps of Adam get."""
    x, y = _data(2000, device)

    def agree(ours: _Found, theirs: _Found) -> None:
        a, b = ours.objective(), theirs.objective()
        assert a <= b + 1e-3, f"the exact objective is {a:.4f} a target, the peer's {b:.4f}"

    def ours() -> _Found:
        model = GaussianProcess(0.7 * RBFKernel(lengthscale=0.7)).fit(x, y - y.mean())
        values: Any = model.kernel_.hyperparameters()
        return _Found(values["scale"], values["lengthscale"], model.noise_**2, x, y - y.mean())

    limit = "15 times 11 GFLOP, most in double precision: 1.6 s" if device.type == "cpu" else ""
    for name, size in (("default", None), ("Cholesky", 100_000)):
        peer = {f"GPyTorch, {name}, 50 steps of Adam": partial(_gpytorch, x, y, size)}
        yield Row(f"GaussianProcess, 2000 x 10, beside {name}", ours, peer, agree, limit, rounds=1)


def _gpytorch(x: Tensor, y: Tensor, cholesky: int | None) -> _Found:
    gpytorch: Any = importlib.import_module("gpytorch")

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            mean, covariance = self.mean_module(x), self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(mean, covariance)

    with gpytorch.settings.max_cholesky_size(cholesky or 800):
        likelihood: Any = gpytorch.likelihoods.GaussianLikelihood().to(x)
        model: Any = Model(likelihood).to(x)
        model.train()
        likelihood.train()
        adam = torch.optim.Adam(model.parameters(), 0.1)
        objective: Any = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        for _ in range(50):
            adam.zero_grad()
            loss = -objective(model(x), y)
            loss.backward()
            adam.step()
    kernel, mean = model.covar_module, model.mean_module.constant.detach()
    numbers = kernel.outputscale, kernel.base_kernel.lengthscale, likelihood.noise
    scale, lengthscale, variance = (float(v) for v in numbers)
    return _Found(scale, lengthscale, variance, x, y - mean)


def _ridge(device: torch.device) -> Iterator[Row]:
    from sklearn.kernel_ridge import KernelRidge as Theirs

    options: Any = {"alpha": 0.1, "kernel": "rbf", "gamma": 0.05}
    peer, rng = Theirs(**options), np.random.default_rng(0)
    x, new = rng.normal(size=(4000, 20)), rng.normal(size=(1000, 20))
    y = np.sin(x[:, :10]) + 0.1 * rng.normal(size=(4000, 10))
    cpu = device.type == "cpu"
    train, targets, test = (v if cpu else torch.from_numpy(v).to(device) for v in (x, y, new))

    def ours() -> np.ndarray:
        model = KernelRidge(RBFKernel(lengthscale=math.sqrt(10)), alpha=0.1).fit(train, targets)
        found = model.predict(test)
        return found.cpu().numpy() if isinstance(found, Tensor) else found

    def theirs() -> np.ndarray:
        return peer.fit(x, y).predict(new)

    def agree(a: np.ndarray, b: np.ndarray) -> None:
        np.testing.assert_allclose(a, b, atol=1e-8)

    limit = "21 GFLOP: 0.26 s at 82 GFLOP/s" if cpu else ""
    name = "KernelRidge, 4000 x 20, 10 targets, 1000 predictions"
    yield Row(name, ours, {"scikit-learn": theirs}, agree, limit, rounds=3)
