"""Rows of the room `bayes`: Laplace's approximation of a last layer, and diagnostics of chains.

The last layer has no bias: laplace-torch gives that a block of its own, so that laws would differ.
"""

import importlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped
from vademecum.bayes import ess, laplace, rhat

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from _last_layer(device)
    if device.type == "cpu":
        yield from _diagnostics()


def _ours(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return laplace(model, x, y, likelihood="categorical").probabilities(x)


def _dense(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The same factors with torch alone, and the covariances of each input written out."""
    with torch.no_grad():
        z = model(x)
        p = z.softmax(1)
        (b, QB), (a, QA) = (
            torch.linalg.eigh(M) for M in (torch.diag(p.mean(0)) - p.T @ p / len(p), x.T @ x)
        )
        v = (x @ QA).square() @ (1 / (b[:, None] * a + 1)).T
        variance = torch.stack([((QB * row) * QB).sum(1) for row in v])
        return (z / (1 + torch.pi / 8 * variance).sqrt()).softmax(1)


def _theirs(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    peer: Any = importlib.import_module("laplace")
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=len(x))
    wrapped = nn.Sequential(nn.Identity(), model)
    made = peer.Laplace(wrapped, "classification", subset_of_weights="last_layer",
                        hessian_structure="kron", prior_precision=1.0)  # fmt: skip
    made.fit(data)
    return made(x, pred_type="glm", link_approx="probit")


def _alike(mine: Tensor, other: Tensor) -> None:
    assert (mine - other).abs().max() < 1e-4


def _last_layer(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    for d, k, n in ((512, 10, 1000), (512, 1000, 1000)):
        model, x = nn.Linear(d, k, bias=False).to(device), torch.randn(n, d, device=device)
        y = torch.randint(k, (n,), device=device)
        asked: dict[str, Any] = {"torch, covariances one by one": partial(_dense, model, x, y)}
        if k < 100:  # it writes out a Jacobian (n, k, d k)
            asked["laplace-torch"] = partial(_theirs, model, x, y)
        yield Row(f"Laplace, last layer {d} x {k}, {n} inputs", partial(_ours, model, x, y), asked,
                  _alike)  # fmt: skip


def _diagnostics() -> Iterator[Row | Skipped]:
    try:
        peer: Any = importlib.import_module("arviz_stats.base").array_stats
    except ImportError:
        yield Skipped("ESS and R-hat of 500 parameters", "pip install arviz-stats==0.8.0")
        return
    draws = torch.randn(4, 1000, 500, generator=torch.Generator().manual_seed(0)).double()
    columns = [np.ascontiguousarray(c) for c in draws.permute(2, 0, 1).numpy()]
    pairs: dict[str, tuple[Any, Any]] = {"ESS, bulk": (ess, peer._ess_bulk),
                                         "R-hat": (rhat, peer._rhat_rank)}  # fmt: skip
    for name, (ours, theirs) in pairs.items():
        loop = partial(_each, theirs, columns)
        yield Row(f"{name} of 500 parameters, 4 chains of 1,000", partial(ours, draws),
                  {"arviz-stats": loop}, _same)  # fmt: skip


def _each(f: Any, columns: list[np.ndarray]) -> Tensor:
    return torch.tensor([f(c) for c in columns])


def _same(mine: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(mine, other, rtol=1e-10, atol=0)
