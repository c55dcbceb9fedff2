"""Rows of the room `optimization`: the top eigenvalue and the trace of a LeNet's Hessian.

All eigenvalues are held to a true residual of 1e-3; power iteration as PyHessian makes it, on the
same graph that is kept, tests the change from step to step instead and stops earlier than that.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bench.gradients import _installed, _lenet
from bench.harness import Row, Skipped, in_turn
from vademecum.data import load
from vademecum.optimization import curvature_trace, sharpness

__all__ = ["rows"]

Peers = dict[str, Callable[[], Any]]
TOL, PROBES = 1e-3, 64


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_rows(device))


def _rows(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    images = load("fashion_mnist")
    n = 512 if device.type == "cpu" else 4096
    x = images.x.view(-1, 1, 28, 28).float()
    net = _trained(_lenet().to(device), x[:8192].to(device), images.y[:8192].long().to(device))
    x, y = x[:n].to(device), images.y[:n].long().to(device)
    peers: Peers = {"PyHessian's power iteration": lambda: _power_iteration(net, x, y)}
    peers |= _installed(_curvlinops, net, x, y)

    def top() -> float:
        return sharpness(net, x, y, loss=cross_entropy, tol=TOL).value

    def total() -> float:
        return curvature_trace(net, x, y, loss=cross_entropy).value

    yield Row(f"sharpness at residual 1e-3, LeNet, {n} images", top, peers, _close)
    probed: Peers = {f"PyHessian's {PROBES} probes": lambda: _probes(net, x, y)}
    yield Row(f"curvature_trace, LeNet, {n} images, and probes", total, probed, _roughly)
    exact = _installed(_backpack, net, x, y)
    if exact:
        yield Row(f"curvature_trace, exact, LeNet, {n} images", total, exact, _close)


def _trained(net: nn.Module, x: Tensor, y: Tensor) -> nn.Module:
    """After an epoch on some of the images a few eigenvalues stand out, as they do in use."""
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for batch in torch.randperm(len(x), device=x.device).split(64):
        optimizer.zero_grad()
        cross_entropy(net(x[batch]), y[batch]).backward()
        optimizer.step()
    return net


def _close(ours: float, peer: float) -> None:
    assert abs(ours / peer - 1) < 5e-3, f"results differ: {ours} and {peer}"


def _roughly(ours: float, peer: float) -> None:
    assert abs(ours / peer - 1) < 0.5, f"results differ: {ours} and {peer}"


class _Kept:
    """Products with the Hessian by the second backward pass alone, as PyHessian has them."""

    def __init__(self, net: nn.Module, x: Tensor, y: Tensor):
        self._parameters = list(net.parameters())
        value = cross_entropy(net(x), y)
        self._slopes = torch.autograd.grad(value, self._parameters, create_graph=True)

    def draw(self, *, signs: bool) -> list[Tensor]:
        if signs:
            return [2.0 * torch.randint_like(p, 2) - 1 for p in self._parameters]
        return [torch.randn_like(p) for p in self._parameters]

    def product(self, v: list[Tensor]) -> list[Tensor]:
        return list(torch.autograd.grad(self._slopes, self._parameters, v, retain_graph=True))


def _inner(u: list[Tensor], v: list[Tensor]) -> Tensor:
    return torch.stack([(a * b).sum() for a, b in zip(u, v, strict=True)]).sum()


def _power_iteration(net: nn.Module, x: Tensor, y: Tensor) -> float:
    kept, value = _Kept(net, x, y), None
    v = kept.draw(signs=False)
    for _ in range(200):
        norm = _inner(v, v).sqrt()
        v = [part / (norm + 1e-6) for part in v]
        image = kept.product(v)
        found, v = float(_inner(image, v)), image
        if value is not None and abs(value - found) / (abs(value) + 1e-6) < TOL:
            return found
        value = found
    raise AssertionError("power iteration has not ended")


def _probes(net: nn.Module, x: Tensor, y: Tensor) -> float:
    kept, found = _Kept(net, x, y), []
    for _ in range(PROBES):
        v = kept.draw(signs=True)
        found.append(float(_inner(v, kept.product(v))))
    return sum(found) / len(found)


def _curvlinops(net: nn.Module, x: Tensor, y: Tensor) -> Peers:
    from scipy.sparse.linalg import eigsh

    kind = importlib.import_module("curvlinops").HessianLinearOperator
    operator = kind(net, nn.CrossEntropyLoss(), list(net.parameters()), [(x, y)]).to_scipy()

    def call() -> float:
        found: Any = eigsh(operator, k=1, which="LA", tol=TOL, return_eigenvectors=False)  # pyright: ignore
        return float(found[0])

    return {"curvlinops + SciPy's eigsh": call}


def _backpack(net: nn.Module, x: Tensor, y: Tensor) -> Peers:
    backpack = importlib.import_module("backpack")
    extensions = importlib.import_module("backpack.extensions")
    extended = _lenet().to(x.device)
    extended.load_state_dict(net.state_dict())
    extended = backpack.extend(extended)
    loss = backpack.extend(nn.CrossEntropyLoss())

    def call(extension: Any, field: str) -> float:
        extended.zero_grad()
        value = loss(extended(x), y)
        with backpack.backpack(extension()):
            value.backward()
        total = sum(float(getattr(p, field).sum()) for p in extended.parameters())
        for p in extended.parameters():
            delattr(p, field)
        return total

    return {
        "BackPACK DiagGGNExact": lambda: call(extensions.DiagGGNExact, "diag_ggn_exact"),
        "BackPACK DiagHessian": lambda: call(extensions.DiagHessian, "diag_h"),
    }
