"""Rows of the room `regularization`: InfoNCE against the matrix of all scores."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from bench.harness import Row, Skipped
from vademecum.regularization.contrast import info_nce_loss

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    sizes = (8_192,) if device.type == "cpu" else (8_192, 65_536)
    for N in sizes:
        torch.manual_seed(0)
        q = F.normalize(torch.randn(N, 512, device=device))
        k = F.normalize(q + torch.randn_like(q) / 20)
        yield Row(f"InfoNCE, N = {N:,}, d = 512, forward and backward",
                  partial(_step, info_nce_loss, q, k), {"dense": partial(_step, _dense, q, k)},
                  _close, rounds=5)  # fmt: skip


def _dense(q: Tensor, k: Tensor, *, temperature: float) -> Tensor:
    return F.cross_entropy(q @ k.T / temperature, torch.arange(len(q), device=q.device))


def _step(loss, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k = q.detach().requires_grad_(), k.detach().requires_grad_()
    value = loss(q, k, temperature=0.1)
    value.backward()
    assert q.grad is not None
    assert k.grad is not None
    return value.detach(), q.grad, k.grad


def _close(mine: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> None:
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4 * float(b.abs().max()))
