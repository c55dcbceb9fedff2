"""Rows of the room `generalization`: simulated double descent, and networks that memorise."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from scipy.linalg import solve_triangular
from torch import Tensor

from bench.harness import Row
from vademecum.generalization import double_descent, memorising_network

__all__ = ["rows"]

SIZES = (10, 20, 30, 60, 80, 160, 400)
FITS, N, D, NOISE = 100, 40, 400, 0.2


def rows(device: torch.device) -> Iterator[Row]:
    yield from _descents(device)
    yield from _memories(device)


def _ours(beta: Tensor) -> Tensor:
    dice = torch.Generator(beta.device).manual_seed(0)
    return double_descent(SIZES, beta, n=N, noise=NOISE, repeats=FITS, generator=dice).draws


def _sets(device: torch.device) -> tuple[np.ndarray, np.ndarray]:
    """The training sets that ours draws."""
    dice = torch.Generator(device).manual_seed(0)
    sets = [
        torch.randn(N, D + 1, dtype=torch.float64, generator=dice, device=device)
        for _ in range(FITS)
    ]
    z = torch.stack(sets).cpu().numpy()
    return z[..., :D], z[..., :D].sum(-1) * 0.05 + NOISE * z[..., D]


def _loop(fit: Callable[[np.ndarray, np.ndarray], np.ndarray], device: torch.device) -> Tensor:
    """Fits one by one, with the same training sets."""
    X, y = _sets(device)
    found = np.empty((FITS, len(SIZES)))
    for r in range(FITS):
        for i, p in enumerate(SIZES):
            b = np.zeros(D)
            b[:p] = fit(X[r, :, :p], y[r])
            found[r, i] = ((b - 0.05) ** 2).sum() + NOISE**2
    return torch.from_numpy(found)


def _batched(device: torch.device) -> Tensor:
    """All fits of a size by torch's own pseudoinverse."""
    X, y = (torch.from_numpy(part).to(device) for part in _sets(device))
    found = []
    for p in SIZES:
        b = torch.linalg.pinv(X[..., :p]) @ y[..., None]
        found.append((b[..., 0] - 0.05).square().sum(1) + (D - p) * 0.05**2 + NOISE**2)
    return torch.stack(found, 1)


def _same(mine: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(mine.cpu(), other.cpu(), rtol=1e-7, atol=1e-9)


def _descents(device: torch.device) -> Iterator[Row]:
    beta = torch.full((D,), 0.05, dtype=torch.float64, device=device)
    yield Row(
        f"double descent, {FITS} training sets of {N}, {len(SIZES)} sizes",
        partial(_ours, beta),
        {
            "numpy lstsq in a loop": lambda: _loop(
                lambda A, b: np.linalg.lstsq(A, b, rcond=None)[0], device
            ),
            "numpy pinv in a loop": lambda: _loop(lambda A, b: np.linalg.pinv(A) @ b, device),
            "torch pinv, all sets at once": lambda: _batched(device),
        },
        _same,
    )


def _triangular(x: Tensor, y: Tensor) -> Tensor:
    """Zhang's proof as it stands: the dense triangular matrix, and its solution."""
    dice = torch.Generator(x.device).manual_seed(0)
    a = torch.randn(x.shape[1], dtype=torch.float64, device=x.device, generator=dice)
    t, order = (x.double() @ a).sort()
    b = torch.cat([t[:1] - (t[-1] - t[0]), t[:-1]])
    A = (t[:, None] - b).clamp(min=0)
    if x.is_cuda:
        w = torch.linalg.solve_triangular(A, y[order, None], upper=False)[:, 0]
    else:
        w = torch.from_numpy(solve_triangular(A.numpy(), y[order].numpy(), lower=True))
    return ((x.double() @ a)[:, None] - b).clamp(min=0) @ w


def _memorised(x: Tensor, y: Tensor) -> Tensor:
    dice = torch.Generator(x.device).manual_seed(0)
    return memorising_network(x, y, generator=dice)(x).detach()


def _memories(device: torch.device) -> Iterator[Row]:
    n, d = (4000, 100) if device.type == "cpu" else (20_000, 784)
    torch.manual_seed(0)
    x = torch.randn(n, d, device=device)
    y = torch.randint(10, (n,), device=device).double()
    yield Row(
        f"a network through {n} random labels, and its values",
        partial(_memorised, x, y),
        {"a dense triangular system": partial(_triangular, x, y)},
        partial(_fitted, y),
    )


def _fitted(y: Tensor, mine: Tensor, other: Tensor) -> None:
    """Both take the labels; the sum of all units in another order costs digits."""
    assert (mine - y).abs().max() < 1e-5
    assert (other - y).abs().max() < 1e-2
