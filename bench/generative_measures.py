"""Rows of the room `generative`: measures of samples, and images drawn pixel by pixel."""

import itertools
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from bench.harness import Row, Skipped, in_turn
from vademecum.generative import (
    PixelCNN,
    feature_moments,
    frechet_distance,
    inception_score,
    kernel_distance,
    precision_recall,
    sliced_wasserstein,
)

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    yield from in_turn(
        _frechet(device), _kernel(device), _score(device), _sliced(device), _covered(device),
        _pixels(device),
    )  # fmt: skip


def _features(n: int, d: int, device: torch.device) -> tuple[Tensor, Tensor]:
    mixing = torch.randn(2, d, d) / d**0.5
    x, y = torch.randn(2, n, d) @ mixing
    return x.to(device), (1.1 * y + 0.1).to(device)


def _frechet(device: torch.device) -> Iterator[Row]:
    _compute_fid: Any = import_module("torchmetrics.image.fid")._compute_fid

    n, d = 10_000, 2048
    x, y = _features(n, d, device)
    a, b = feature_moments(x), feature_moments(y)

    def by_torchmetrics() -> float:
        return float(_compute_fid(a.mean, a.covariance, b.mean, b.covariance))

    def by_scipy() -> float:
        s, r = a.covariance.cpu().numpy(), b.covariance.cpu().numpy()
        gap = ((a.mean - b.mean) ** 2).sum().item()
        root: Any = scipy.linalg.sqrtm(s @ r)
        return float(gap + np.trace(s) + np.trace(r) - 2 * np.trace(np.real(root)))

    peers = {"torchmetrics _compute_fid": by_torchmetrics}
    if device.type == "cpu":
        peers["scipy sqrtm"] = by_scipy
    yield Row(
        f"Frechet distance from moments of {d} features",
        lambda: frechet_distance(a, b).value,
        peers,
        _close,
        limit="Cholesky, two products, tridiagonal reduction: 6 d^3",
        rounds=3,
    )

    def with_statistics() -> float:
        c, e = (t.double() for t in (x, y))
        return float(_compute_fid(c.mean(0), c.T.cov(), e.mean(0), e.T.cov()))

    yield Row(
        f"Frechet distance of {n} x {d} features",
        lambda: frechet_distance(x, y).value,
        {"torch.cov, torchmetrics": with_statistics},
        _close,
        rounds=3,
    )
    few = n // 10
    yield Row(
        f"Frechet distance of {few} x {d} features",
        lambda: frechet_distance(x[:few], y[:few]).value,
        {"torch.cov, torchmetrics": lambda: _of_few(x[:few], y[:few], _compute_fid)},
        _near,
        rounds=3,
    )


def _of_few(x: Tensor, y: Tensor, distance: Any) -> float:
    c, e = (t.double() for t in (x, y))
    return float(distance(c.mean(0), c.T.cov(), e.mean(0), e.T.cov()))


def _kernel(device: torch.device) -> Iterator[Row]:
    poly_mmd: Any = import_module("torchmetrics.image.kid").poly_mmd

    n, d = 4000, 512
    x, y = (t.double() for t in _features(n, d, device))
    yield Row(
        f"kernel distance of {n} x {d} features",
        lambda: kernel_distance(x, y).value,
        {"torchmetrics poly_mmd, no standard error": lambda: float(poly_mmd(x, y))},
        _close,
    )


def _score(device: torch.device) -> Iterator[Row]:
    n, k = 50_000, 1000
    logits = 3 * torch.randn(n, k, device=device)

    def plain() -> float:
        p = logits.double().softmax(1)
        q = p.mean(0)
        return float((p * (p.log() - q.log())).sum(1).mean().exp())

    yield Row(
        f"inception score of {n} x {k} logits",
        lambda: inception_score(logits).value,
        {"plain torch, no standard error": plain},
        _close,
        rounds=3,
    )


def _sliced(device: torch.device) -> Iterator[Row]:
    n, d, lines = 10_000, 64, 256
    x, y = (t.double() for t in _features(n, d, device))

    def ours() -> float:
        return sliced_wasserstein(x, y, projections=lines, generator=_seed(x.device)).value

    def plain() -> float:
        drawn = torch.randn(lines, d, dtype=x.dtype, device=x.device, generator=_seed(x.device))
        theta = drawn / drawn.norm(dim=1, keepdim=True)
        u, v = ((t @ theta.T).sort(0).values for t in (x, y))
        return float((u - v).square().mean().sqrt())

    yield Row(f"{lines} slices of {n} x {d} features", ours, {"plain torch": plain}, _close)


def _seed(device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(0)


def _covered(device: torch.device) -> Iterator[Row]:
    n, d, k = 6000, 64, 3
    x, y = (t.double() for t in _features(n, d, device))

    def plain() -> tuple[float, float]:
        rx, ry = (torch.cdist(t, t).kthvalue(k + 1, 1).values for t in (x, y))
        gaps = torch.cdist(x, y)
        good = (gaps <= rx[:, None]).any(0).double().mean()
        return float(good), float((gaps <= ry).any(1).double().mean())

    def agree(ours: Any, theirs: tuple[float, float]) -> None:
        np.testing.assert_allclose(ours[:2], theirs, atol=1e-3)

    yield Row(
        f"precision and recall of {n} against {n} in {d} dimensions",
        lambda: precision_recall(x, y, k=k),
        {"torch.cdist and kthvalue": plain},
        agree,
        limit="two arrays of pairs at a time",
        rounds=3,
    )
    large = 50_000
    x, y = (t.double() for t in _features(large, d, device))
    small = precision_recall(x, y, k=k, memory=2**30) if device.type != "cpu" else None
    if small is not None:
        yield Row(
            f"precision and recall of {large} against {large} in 1 GiB",
            lambda: precision_recall(x, y, k=k, memory=2**30),
            {"ours, without a limit": lambda: precision_recall(x, y, k=k)},
            lambda one, other: np.testing.assert_allclose(one, other),
            rounds=3,
        )


def _pixels(device: torch.device) -> Iterator[Row]:
    side, n = (10, 8) if device.type == "cpu" else (28, 64)
    net = PixelCNN((1, side, side), 4, width=32, depth=4, head=32).double().to(device)

    @torch.no_grad()
    def whole_passes() -> Tensor:
        u = torch.rand(
            side, side, 1, n, dtype=torch.float64, device=device, generator=_seed(device)
        )
        x = torch.zeros(n, 1, side, side, dtype=torch.long, device=device)
        for i, j in itertools.product(range(side), repeat=2):
            law = net(x)[:, :, 0, i, j].softmax(1).cumsum(1)
            x[:, 0, i, j] = (law < u[i, j, 0][:, None]).sum(1)
        return x

    yield Row(
        f"PixelCNN, {n} samples of {side} x {side}",
        lambda: net.sample(n, generator=_seed(device)),
        {"a whole pass for each pixel": whole_passes},
        _same,
        limit="each activation once",
        rounds=3,
    )


def _close(ours: float, theirs: float) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def _near(ours: float, theirs: float) -> None:
    """Roots of rounding errors of singular covariances, a thousand of them."""
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def _same(ours: Tensor, theirs: Tensor) -> None:
    assert ours.equal(theirs)
