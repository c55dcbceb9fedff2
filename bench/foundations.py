"""Rows of the room `foundations`: extreme eigenvalues and traces of operators never formed."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.harness import Row
from vademecum.foundations.extreme_eigenvalues import Eigenpairs, eigsh
from vademecum.foundations.operators import LinearOperator
from vademecum.foundations.stochastic_trace import trace

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    if device.type == "cpu":  # ARPACK has no other, and products on the GPU are next to free
        yield from _eigsh()
        yield from _crowded()
        yield from _laplacian()
        yield from _trace()
    else:
        yield from _eigsh_dense(device)


class Hessian:
    """Like that of a trained network: eigenvalues that fall like 1 / i, over a bulk of small ones.

    It counts the vectors that it is applied to.
    """

    def __init__(
        self,
        n: int,
        rank: int,
        bulk: float,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ):
        where = {"device": device, "dtype": dtype}
        weights = 1 / torch.arange(1, rank + 1, **where)
        self.J = torch.randn(rank, n, **where) * (weights / n).sqrt()[:, None]
        self.d = bulk * torch.rand(n, 1, **where) ** 2
        self.applications = 0
        self.op = LinearOperator((n, n), self, self, **where)

    def __call__(self, x: Tensor) -> Tensor:
        self.applications += x.shape[1]
        return self.J.T @ (self.J @ x) + self.d * x

    def count(self, call: Callable[[], object]) -> int:
        before = self.applications
        call()
        return self.applications - before


def _eigsh() -> Iterator[Row]:
    from scipy.sparse.linalg import eigsh as peer

    n, k, tol = 100_000, 5, 1e-6
    hessian = Hessian(n, 100, 0.1, torch.device("cpu"), torch.float64)
    on_arrays = hessian.op.scipy()

    def theirs() -> tuple[np.ndarray, np.ndarray]:
        return peer(on_arrays, k, which="LA", tol=tol)  # pyright: ignore

    values = theirs()[0]
    ours_tol = tol * float(values.min() / values.max())  # ARPACK's is relative to each eigenvalue

    def agree(ours: Eigenpairs, peer: tuple[np.ndarray, np.ndarray]) -> None:
        theirs = (torch.as_tensor(part[..., ::-1].copy()) for part in peer)
        for theta, x in ((ours.values, ours.vectors), tuple(theirs)):
            torch.testing.assert_close(theta, ours.values, rtol=1e-5, atol=0)
            assert ((hessian.op @ x - x * theta).norm(dim=0) <= 1.1 * tol * theta).all()

    def ours(degenerate: bool = False) -> Eigenpairs:
        return eigsh(hessian.op, k, tol=ours_tol, degenerate=degenerate)

    limit = f"{hessian.count(ours)} products, SciPy {hessian.count(theirs)}; ours with the search"
    limit += f" for copies, which SciPy does not make, {hessian.count(lambda: ours(True))}"
    yield Row(f"eigsh, {k} largest of n = {n}, residuals 1e-6", ours,
              {"scipy.sparse.linalg.eigsh": theirs}, agree, limit)  # fmt: skip


def _crowded() -> Iterator[Row]:
    from scipy.sparse.linalg import LinearOperator as Peer
    from scipy.sparse.linalg import eigsh as peer

    n, k, tol = 20_000, 5, 1e-6
    d = torch.linspace(0, 1, n, dtype=torch.float64) ** 3
    op = LinearOperator((n, n), lambda x: d[:, None] * x, dtype=torch.float64)
    array = d.numpy()
    on_arrays = Peer((n, n), lambda x: array * x.ravel())

    def ours() -> Eigenpairs:
        return eigsh(op, k, tol=tol, degenerate=False)

    def theirs() -> np.ndarray:
        return peer(on_arrays, k, which="LA", tol=tol)[0]  # pyright: ignore

    def agree(ours: Eigenpairs, peer: np.ndarray) -> None:
        for found in (ours.values, torch.as_tensor(peer[::-1].copy())):
            torch.testing.assert_close(found, d.flip(0)[:k], rtol=0, atol=tol)

    name = f"eigsh, {k} largest of n = {n}, crowded: (i / n)^3"
    limit = f"{ours().applications} products, which cost next to nothing here"
    yield Row(name, ours, {"scipy.sparse.linalg.eigsh": theirs}, agree, limit)


def _laplacian() -> Iterator[Row]:
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import eigsh as peer

    n, k = 3000, 6
    steps: Any = eye_array(n - 1, n, k=1) - eye_array(n - 1, n)
    L = (steps.T @ steps).tocsc()
    exact = 2 - 2 * torch.cos(torch.pi * torch.arange(k, dtype=torch.float64) / n)

    def theirs() -> np.ndarray:
        return peer(L, k, sigma=-1e-6)[0]  # pyright: ignore

    def agree(ours: Eigenpairs, peer: np.ndarray) -> None:
        for found in (ours.values, torch.as_tensor(peer)):
            torch.testing.assert_close(found, exact, rtol=0, atol=1e-9)

    yield Row(f"eigsh, {k} smallest of the Laplacian of a path of {n}",
              lambda: eigsh(L, k, which="smallest"),
              {"scipy.sparse.linalg.eigsh, given a good shift": theirs}, agree,
              "ours finds the shift")  # fmt: skip


def _eigsh_dense(device: torch.device) -> Iterator[Row]:
    n, k, tol = 16_384, 5, 1e-4
    hessian = Hessian(n, 100, 0.1, device)
    A = hessian.op.dense()
    A = (A + A.T) / 2

    def theirs() -> tuple[Tensor, Tensor]:
        return torch.lobpcg(A, k, tol=tol)

    def agree(ours: Eigenpairs, peer: tuple[Tensor, Tensor]) -> None:
        torch.testing.assert_close(ours.values, peer[0], rtol=1e-4, atol=0)

    def ours() -> Eigenpairs:
        return eigsh(A, k, tol=tol)

    counts = f"{ours().applications} products"
    yield Row(
        f"eigsh, {k} largest of a dense n = {n}", ours, {"torch.lobpcg": theirs}, agree, counts
    )


def _trace() -> Iterator[Row]:
    n, share = 20_000, 0.01
    hessian = Hessian(n, 400, 0.0, torch.device("cpu"))
    gram, diagonal = hessian.J @ hessian.J.T, hessian.J.square().sum(0)
    exact = float(diagonal.sum())
    variance = 2 * float(gram.square().sum() - diagonal.square().sum()) / exact**2

    def spread(budget: int) -> float:
        runs = torch.stack([trace(hessian.op, applications=budget).value for _ in range(20)])
        return float((runs / exact - 1).square().mean())

    budgets = {"xtrace": 16, "hutchinson": round(variance / share**2)}
    while spread(budgets["xtrace"]) > share**2:
        budgets["xtrace"] += 8

    def estimate(method: str) -> Callable[[], float]:
        return lambda: float(trace(hessian.op, applications=budgets[method], method=method).value)

    def agree(ours: float, peer: float) -> None:
        assert abs(ours - peer) <= 7 * share * exact

    limit = f"{budgets['xtrace']} products for {budgets['hutchinson']}; with 96 products the"
    limit += f" variance is smaller {variance / 96 / spread(96):.0f} times"
    yield Row(f"trace to 1 %, n = {n}", estimate("xtrace"),
              {"Hutchinson": estimate("hutchinson")}, agree, limit)  # fmt: skip
