"""Rows of the room `optimization` for curvature as operators: products, blocks, densities.

Of a LeNet with images, as `bench.gradients` has it; on a GPU also of GPT-2 and of a residual net
with random weights, where a gradient takes the place of a peer and memory has a limit.
"""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bench.harness import Row, Skipped, in_turn
from vademecum.convolution import ResNet
from vademecum.data import load
from vademecum.foundations import LinearOperator, spectral_density
from vademecum.gradients import functional, gradient, hessian
from vademecum.optimization import fisher, gauss_newton

__all__ = ["lenet", "rows"]

Peers = dict[str, Callable[[], Any]]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    if device.type == "cuda":
        yield from in_turn(_products(device), _density(device), _gpt2(device), _images(device))
    else:
        yield from in_turn(_products(device), _density(device))


def lenet(device: torch.device) -> tuple[nn.Module, Tensor, Tensor]:
    """A LeNet after some steps on images, so that its curvature is not that of chance, and these.

    It has the 215,000 parameters and 512 images of `gradients`' row on Hessians.
    """
    torch.manual_seed(0)
    images = load("fashion_mnist")
    n = 512 if device.type == "cpu" else 4096
    x, y = images.x[:n].view(n, 1, 28, 28).float().to(device), images.y[:n].long().to(device)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _ in range(20):
        optimizer.zero_grad()
        cross_entropy(net(x[:256]), y[:256]).backward()
        optimizer.step()
    return net.eval(), x, y


def _close(mine: Tensor, other: Tensor) -> None:
    gap = float((mine - other).norm() / other.norm())
    assert gap < 1e-3, f"results differ by {gap:.2g}"


def _curvlinops(kind: str, net: nn.Module, x: Tensor, y: Tensor) -> Any:
    make = getattr(importlib.import_module("curvlinops"), kind)
    loss, parameters = nn.CrossEntropyLoss(), list(net.parameters())
    return make(net, loss, parameters, [(x, y)], check_deterministic=False)


def _kept(net: nn.Module, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    """Products with a Hessian by torch alone, with its graph kept."""
    parameters, sizes = list(net.parameters()), [p.numel() for p in net.parameters()]
    slope = torch.autograd.grad(cross_entropy(net(x), y), parameters, create_graph=True)

    def product(v: Tensor) -> Tensor:
        parts = [s.view_as(p) for s, p in zip(v.split(sizes), parameters, strict=True)]
        found = torch.autograd.grad(slope, parameters, parts, retain_graph=True)
        return torch.cat([g.flatten() for g in found])

    return lambda V: torch.stack([product(v) for v in V.T], 1)


def _products(device: torch.device) -> Iterator[Row]:
    net, x, y = lenet(device)
    v = torch.randn(functional(net).size, 8, device=device)
    yield from _hessian(net, x, y, v)
    yield from _outputs(net, x, y, v[:, 0].contiguous())


def _hessian(net: nn.Module, x: Tensor, y: Tensor, V: Tensor) -> Iterator[Row]:
    H, kept = hessian(net, x, y), _kept(net, x, y)
    peer = _curvlinops("HessianLinearOperator", net, x, y)
    for columns, name in ((1, "one column"), (8, "8 columns")):
        block = V[:, :columns].contiguous()
        peers: Peers = {
            "curvlinops": partial(peer.__matmul__, block),
            "torch, graph kept": partial(kept, block),
        }
        yield Row(f"hessian product, {name}, LeNet, {len(x)} images",
                  partial(H.__matmul__, block), peers, _close)  # fmt: skip


def _outputs(net: nn.Module, x: Tensor, y: Tensor, v: Tensor) -> Iterator[Row]:
    G, peer = gauss_newton(net, x, y), _curvlinops("GGNLinearOperator", net, x, y)
    peers = {"curvlinops": lambda: peer @ v, **_backpack(net, x, y, v)}
    yield Row(f"gauss_newton product, LeNet, {len(x)} images", lambda: G @ v, peers, _close)
    E, other = fisher(net, x, y, kind="empirical"), _curvlinops("EFLinearOperator", net, x, y)
    yield Row(f"empirical fisher product, LeNet, {len(x)} images", lambda: E @ v,
              {"curvlinops": lambda: other @ v}, _close)  # fmt: skip


def _backpack(net: nn.Module, x: Tensor, y: Tensor, v: Tensor) -> Peers:
    product = importlib.import_module("backpack.hessianfree.ggnvp").ggn_vector_product
    parts = list(functional(net).unravel(v).values())

    def call() -> Tensor:
        z = net(x)
        found = product(cross_entropy(z, y), z, net, parts)
        return torch.cat([g.flatten() for g in found])

    return {"BackPACK ggn_vector_product": call}


def _density(device: torch.device) -> Iterator[Row]:
    """64 Lanczos steps from two random vectors, the graph of ours included."""
    net, x, y = lenet(device)
    x, y = x[: len(x) // 4], y[: len(y) // 4]
    spectrum = importlib.import_module("curvlinops.papyan2020traces.spectrum")
    peer = _curvlinops("HessianLinearOperator", net, x, y)

    def ours() -> Tensor:
        density = spectral_density(hessian(net, x, y), probes=2, steps=64)
        return density.nodes.max()

    def lanczos() -> Tensor:
        return torch.stack([spectrum.fast_lanczos(peer, 64)[0].max() for _ in range(2)]).max()

    yield Row(f"spectral density, 2 x 64 steps, LeNet, {len(x)} images", ours,
              {"curvlinops": lanczos}, partial(torch.testing.assert_close, rtol=1e-3, atol=0),
              rounds=3)  # fmt: skip


def _gpt2(device: torch.device) -> Iterator[Row]:
    """At most four gradients, and 40 GB."""
    transformers = importlib.import_module("transformers")
    torch.manual_seed(0)
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config()).to(device).eval()
    x = torch.randint(50257, (8, 1024), device=device)
    y = torch.cat([x[:, 1:], torch.full_like(x[:, :1], -100)], 1)

    def loss(z: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(z.flatten(0, 1), y.flatten())

    v = torch.randn(functional(net).size, device=device)
    G = gauss_newton(net, x, y, loss=loss, memory=32 * 2**30)
    yield Row("gauss_newton product, GPT-2 124M, 8 x 1024 tokens, 32 GiB", lambda: G @ v,
              {"a gradient (no peer)": lambda: gradient(net, x, y, loss=loss)},
              lambda ours, peer: None, "at most 4 gradients, 40 GB")  # fmt: skip


def _images(device: torch.device) -> Iterator[Row]:
    """At most three gradients, within 1 GiB."""
    torch.manual_seed(0)
    net = ResNet(18, 1000).to(device).eval()
    x, y = torch.randn(2048, 3, 32, 32, device=device), torch.randint(1000, (2048,), device=device)
    H: LinearOperator = hessian(net, x, y, memory=2**30)
    v = torch.randn(functional(net).size, device=device)
    peer = _curvlinops("HessianLinearOperator", net, x, y)
    yield Row("hessian product, ResNet-18, 2048 images, 1 GiB", lambda: H @ v,
              {"curvlinops": lambda: peer @ v}, _close, "at most 3 gradients, 1.1 GiB")  # fmt: skip
