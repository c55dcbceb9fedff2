"""Rows of the room `gradients`: per-example gradients, dense Jacobians, Hessian products.

Of a LeNet with images; `bench.gradients_transformers` has transformers.
"""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn.functional import cross_entropy

from bench import gradients_transformers
from bench.harness import Row, Skipped, in_turn
from vademecum.data import load
from vademecum.gradients.example_norms import gradient_norms
from vademecum.gradients.jacobian_operator import jacobian
from vademecum.gradients.network_function import functional
from vademecum.gradients.per_example import per_example_gradients
from vademecum.gradients.products import hessian

__all__ = ["rows"]

Peers = dict[str, Callable[[], Any]]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_images(device), gradients_transformers.rows(device))


def _images(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    images = load("fashion_mnist")
    n = 512 if device.type == "cpu" else 4096
    x, y = images.x[:n].view(n, 1, 28, 28).float().to(device), images.y[:n].long().to(device)
    net = _lenet().to(device)
    yield from _per_example(net, x, y)
    yield _in_theta(net, x[: n // 8])
    yield _in_x(net, x[: n // 8] if device.type == "cpu" else x)
    yield from _hessian(net, x, y)


def _lenet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def _installed(make: Callable[..., Peers], *arguments: Any) -> Peers:
    """Peers of a library that may be missing, which is then said."""
    try:
        return make(*arguments)
    except ImportError as error:
        print(f"left out, since {error.name} is not installed: {make.__name__.strip('_')}")
        return {}


def _close(mine: Tensor, other: Tensor) -> None:
    """Equal on the whole: rounding may send a gradient through another entry of a pool."""
    gap = float((mine - other).norm() / other.norm())
    assert gap < 1e-3, f"results differ by {gap:.2g}"


def _per_example(net: nn.Module, x: Tensor, y: Tensor) -> Iterator[Row]:
    f = functional(net)
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(net, parameters, (x[None],)), y[None])

    def mapped() -> list[Tensor]:
        return list(vmap(grad(loss), (None, 0, 0))(parameters, x, y).values())

    def agree(ours: Tensor, peer: list[Tensor]) -> None:
        for mine, other in zip(f.unravel(ours).values(), peer, strict=True):
            _close(mine, other)

    peers: Peers = {"torch.func vmap(grad)": mapped}
    peers |= _installed(_backpack, net, x, y) | _installed(_opacus, net, x, y)
    yield Row(f"per_example_gradients, LeNet, {len(x)} images",
              partial(per_example_gradients, net, x, y, loss=cross_entropy), peers, agree,
              f"{len(x) * f.size * 4 / 1e6:.0f} MB written")  # fmt: skip

    def norms(call: Callable[[], list[Tensor]]) -> Tensor:
        return torch.stack([g.flatten(1).square().sum(1) for g in call()]).sum(0).sqrt()

    peers = {name: partial(norms, call) for name, call in peers.items()}
    yield Row(f"gradient_norms, LeNet, {len(x)} images",
              partial(gradient_norms, net, x, y, loss=cross_entropy), peers,
              partial(torch.testing.assert_close, rtol=1e-3, atol=1e-4))  # fmt: skip


def _backpack(net: nn.Module, x: Tensor, y: Tensor) -> Peers:
    backpack = importlib.import_module("backpack")
    extension = importlib.import_module("backpack.extensions").BatchGrad
    extended = _lenet().to(x.device)
    extended.load_state_dict(net.state_dict())
    extended = backpack.extend(extended)
    loss = backpack.extend(nn.CrossEntropyLoss(reduction="sum"))

    def call() -> list[Tensor]:
        extended.zero_grad()
        value = loss(extended(x), y)
        with backpack.backpack(extension()):
            value.backward()
        found = [p.grad_batch for p in extended.parameters()]  # pyright: ignore
        for p in extended.parameters():
            del p.grad_batch
        return found

    return {"BackPACK BatchGrad": call}


def _opacus(net: nn.Module, x: Tensor, y: Tensor) -> Peers:
    wrapper = importlib.import_module("opacus.grad_sample").GradSampleModule
    wrapped = wrapper(_lenet().to(x.device), loss_reduction="sum")
    wrapped._module.load_state_dict(net.state_dict())

    def call() -> list[Tensor]:
        cross_entropy(wrapped(x), y, reduction="sum").backward()
        found = [p.grad_sample for p in wrapped.parameters()]
        for p in wrapped.parameters():
            p.grad_sample = p.grad = None
        return found

    return {"Opacus": call}


def _in_theta(net: nn.Module, x: Tensor) -> Row:
    f = functional(net)

    def agree(ours: Tensor, peer: dict[str, Tensor]) -> None:
        for mine, other in zip(f.unravel(ours).values(), peer.values(), strict=True):
            _close(mine.view_as(other), other)

    return Row(f"jacobian in theta, dense, LeNet, {len(x)} images",
               lambda: jacobian(net, x).blocks(),
               {"torch.func vmap(jacrev)": _mapped_jacobian(net, x, 0)}, agree,
               f"{len(x) * 10 * f.size * 4 / 1e6:.0f} MB written")  # fmt: skip


def _in_x(net: nn.Module, x: Tensor) -> Row:
    def agree(ours: Tensor, peer: Tensor) -> None:
        _close(ours, peer.flatten(2))

    return Row(f"jacobian in x, blocks, LeNet, {len(x)} images",
               lambda: jacobian(net, x, wrt="x").blocks(),
               {"torch.func vmap(jacrev)": _mapped_jacobian(net, x, 1)}, agree)  # fmt: skip


def _mapped_jacobian(net: nn.Module, x: Tensor, wrt: int) -> Callable[[], Any]:
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def forward(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(net, parameters, (x[None],))[0]

    return partial(vmap(jacrev(forward, argnums=wrt), (None, 0)), parameters, x)


def _hessian(net: nn.Module, x: Tensor, y: Tensor) -> Iterator[Row]:
    parameters = list(net.parameters())
    v = torch.randn(functional(net).size, device=x.device)
    parts = list(functional(net).unravel(v).values())

    def joined(found: Any) -> Tensor:
        return torch.cat([g.flatten() for g in found])

    def again() -> Tensor:
        g = torch.autograd.grad(cross_entropy(net(x), y), parameters, create_graph=True)
        return joined(torch.autograd.grad(g, parameters, parts))

    kept = torch.autograd.grad(cross_entropy(net(x), y), parameters, create_graph=True)
    H = hessian(net, x, y, loss=cross_entropy)
    peers: Peers = {
        "torch, graph kept": lambda: joined(
            torch.autograd.grad(kept, parameters, parts, retain_graph=True)
        ),
        "torch, double backward": again,
    }
    peers |= _installed(_curvlinops, net, x, y, v)
    peers |= _installed(_backpack_product, net, x, y, parts)
    yield Row(f"hessian product, LeNet, {len(x)} images", lambda: H @ v, peers,
              partial(torch.testing.assert_close, rtol=1e-2, atol=1e-3))  # fmt: skip


def _curvlinops(net: nn.Module, x: Tensor, y: Tensor, v: Tensor) -> Peers:
    kind = importlib.import_module("curvlinops").HessianLinearOperator
    operator = kind(net, nn.CrossEntropyLoss(), list(net.parameters()), [(x, y)])
    return {"curvlinops": lambda: operator @ v}


def _backpack_product(net: nn.Module, x: Tensor, y: Tensor, parts: list[Tensor]) -> Peers:
    product = importlib.import_module("backpack.hessianfree.hvp").hessian_vector_product
    parameters = list(net.parameters())

    def call() -> Tensor:
        found = product(cross_entropy(net(x), y), parameters, parts)
        return torch.cat([g.flatten() for g in found])

    return {"BackPACK hessian_vector_product": call}
