"""Rows of the room `kernels`: steps of linearised networks, and predictions of gradient flow."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from bench.harness import Row, Skipped
from vademecum.convolution import ResNet
from vademecum.kernels import LinearizedNetwork, RBFKernel, ntk_predict
from vademecum.models import mlp

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    cpu = device.type == "cpu"
    n = 256 if cpu else 8192
    yield _step(f"MLP, {n} inputs", mlp([784, 512, 512, 10]).to(device), torch.randn(n, 784))
    n, size = (8, 64) if cpu else (128, 224)
    x = torch.randn(n, 3, size, size)
    yield _step(f"ResNet-18, {n} images of {size}", ResNet(18, 10).to(device), x)
    yield _predictions(800 if cpu else 4000, device)


def _step(name: str, net: nn.Module, x: Tensor) -> Row:
    """A value and a gradient; a layer takes five products, and a plain step three."""
    net.eval()
    x = x.to(next(net.parameters()).device)
    h = LinearizedNetwork(net)
    with torch.no_grad():
        for p in h.parameters():
            p.normal_().mul_(1e-3)
    theta = {key: p.detach() for key, p in net.named_parameters()}
    beta = {
        key: p.detach().clone().requires_grad_()
        for key, p in zip(theta, h.parameters(), strict=True)
    }
    return Row(
        f"a step of a linearised {name}",
        partial(_ours, h, x),
        {"torch.func.jvp of functional_call": partial(_theirs, net, theta, beta, x)},
        _agree,
        limit="5 products a layer; 3 in a plain step",
    )


def _ours(h: LinearizedNetwork, x: Tensor) -> tuple[Tensor, Tensor]:
    for p in h.parameters():
        p.grad = None
    z = h(x)
    z.square().mean().backward()
    return z.detach(), torch.cat([p.grad.flatten() for p in h.parameters() if p.grad is not None])


def _theirs(
    net: nn.Module, theta: dict[str, Tensor], beta: dict[str, Tensor], x: Tensor
) -> tuple[Tensor, Tensor]:
    for p in beta.values():
        p.grad = None
    moved: Any = jvp(lambda t: functional_call(net, t, (x,)), (theta,), (beta,))
    z = moved[0] + moved[1]
    z.square().mean().backward()
    return z.detach(), torch.cat([p.grad.flatten() for p in beta.values() if p.grad is not None])


def _predictions(n: int, device: torch.device) -> Row:
    """Twenty times of training, mean and variance: exponentials of matrices, or one spectrum."""
    X, y, x = torch.randn(n, 10), torch.randn(n, 1), torch.randn(n // 4, 10)
    X, y, x = (t.double().to(device) for t in (X, y, x))
    t = torch.logspace(-3, 3, 20, dtype=torch.float64, device=device)
    kernel, prior = RBFKernel(lengthscale=2.0), RBFKernel(lengthscale=3.0)

    def ours() -> tuple[Tensor, Tensor]:
        found = ntk_predict(kernel, X, y, x, t=t, nngp=prior)
        assert found.variance is not None
        return found.mean, found.variance

    def by_exponentials() -> tuple[Tensor, Tensor]:
        K, k = kernel(X), kernel(x, X)
        C, c = prior(X), prior(x, X)
        eye, means, spreads = torch.eye(n).to(K), [], []
        half = torch.linalg.solve(K, k.T).T
        for s in t:
            A = half @ (eye - torch.matrix_exp(-K * s))
            means.append(A @ y)
            own = prior.diagonal(x) + ((A @ C - 2 * c) * A).sum(1)
            spreads.append(own[:, None])
        return torch.stack(means), torch.stack(spreads)

    return Row(
        f"20 times of training on {n} inputs, mean and variance",
        ours,
        {"a matrix exponential for each": by_exponentials},
        _same_predictions,
        rounds=3,
    )


def _agree(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))


def _same_predictions(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
