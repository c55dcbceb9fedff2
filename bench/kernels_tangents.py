"""Rows of the room `kernels`: tangent kernels of networks as they come.

Peers are neural-tangents with the same weights (structured derivatives, vectorised over examples),
`torch.func` as in torch's tutorial and with one symmetric product for each parameter, and fifteen
lines by hand for a perceptron. Where a Jacobian of all outputs would not fit, `torch.func` goes
from output to output.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap

from bench import neural_tangents
from bench.gradients_transformers import Logits, _bert
from bench.harness import PeerNotFoundError, Row, Skipped
from vademecum.convolution import ResNet
from vademecum.kernels import empirical_ntk

__all__ = ["rows"]

Peers = dict[str, Callable[[], Any]]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    if device.type == "cpu":
        yield from _perceptron()
        yield _convolutions(128, device)
    else:
        yield _convolutions(512, device)
        yield _resnet(256, device)
        yield _transformer(256, device)


def _perceptron() -> Iterator[Row | Skipped]:
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 10),
    )  # fmt: skip
    x = torch.rand(256, 1, 28, 28)
    by_hand: Peers = {"15 lines by hand": partial(_by_hand, net, x)}
    name = "MLP 784-512-512-10, 256 images"
    yield _row(f"{name}, all outputs", net, x, "full", by_hand, limit="41 ms: 6.8 GFLOP")
    traces: Peers = {"15 lines by hand": partial(_by_hand, net, x, trace=True)}
    yield _row(f"{name}, trace", net, x, "trace", traces)
    few, many = x[:64], torch.rand(10_000, 784)
    peers: Peers = {"torch.func": partial(_contracted, net, few)}
    yield _row("the same MLP, 64 images, all outputs", net, few, "full", peers, peer=False)
    name = "the same MLP, 10,000 images, trace"
    traces = {"15 lines by hand": partial(_by_hand, net, many, trace=True)}
    row = _row(name, net, many, "trace", traces, peer=False, limit="8 s: 1.2 TFLOP")
    row.rounds = 1
    yield row


def _convolutions(n: int, device: torch.device) -> Row:
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1600, 10),
    ).to(device)  # fmt: skip
    x = torch.rand(n, 1, 28, 28, device=device)
    peers = {
        "torch.func": partial(_contracted, net, x),
        "torch.func, a symmetric product each": partial(_symmetric, net, x),
    }
    name = f"CNN conv32-conv64-fc10, {n} images, all outputs"
    limit = "0.2 s: 30 GFLOP" if device.type == "cpu" else ""
    return _row(name, net, x, "full", peers, peer=device.type == "cpu", limit=limit)


def _resnet(n: int, device: torch.device) -> Row:
    net, x = ResNet(18, 10).to(device).eval(), torch.rand(n, 3, 64, 64, device=device)
    peers = {"torch.func, output by output": partial(_by_outputs, net, x, 10, trace=True)}
    name = f"ResNet-18, {n} images of 64 x 64, trace"
    return _row(name, net, x, "trace", peers, peer=False)


def _transformer(n: int, device: torch.device) -> Row:
    case = _bert(n, device)
    plain, ids = Logits(case.model), case.x["input_ids"]
    peers = {"torch.func, output by output": partial(_by_outputs, plain, ids, 4, trace=False)}
    name = f"BERT of 6 layers, 256 wide, {n} sequences of 64, 4 classes, all outputs"
    return _row(name, case.model, case.x, "full", peers, peer=False)


def _row(
    name: str, net: Any, x: Any, outputs: Any, peers: Peers, *, peer: bool = True, limit: str = ""
) -> Row:
    if peer:
        try:
            peers = {
                **peers,
                "neural-tangents": neural_tangents.empirical_ntk(net, x, outputs=outputs),
            }
        except PeerNotFoundError:
            if not peers:
                raise
    return Row(name, partial(empirical_ntk, net, x, outputs=outputs), peers, _agree, limit=limit)


def _agree(ours: Tensor, theirs: Any) -> None:
    wanted = theirs if isinstance(theirs, Tensor) else theirs.ntk
    gap = float((ours - wanted).abs().max() / wanted.abs().max())
    assert gap <= 1e-4, gap


def _jacobians(net: nn.Module, x: Tensor) -> list[Tensor]:
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def of_one(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(net, p, (x[None],))[0]

    return [J.flatten(2) for J in vmap(jacrev(of_one), (None, 0))(parameters, x).values()]


def _contracted(net: nn.Module, x: Tensor) -> Tensor:
    """As in torch's tutorial."""
    each = _jacobians(net, x)
    return torch.stack([torch.einsum("Naf,Mbf->NMab", J, J) for J in each]).sum(0)


def _symmetric(net: nn.Module, x: Tensor) -> Tensor:
    total: Any = 0
    for J in _jacobians(net, x):
        flat = J.flatten(0, 1)
        total = total + flat @ flat.T
    n = len(x)
    return total.view(n, -1, n, total.shape[0] // n).transpose(1, 2)


def _by_outputs(net: nn.Module, x: Tensor, k: int, *, trace: bool) -> Tensor:
    """Gradients of one output of all examples at a time; all at once where pairs need them."""
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def output(p: dict[str, Tensor], x: Tensor, c: int) -> Tensor:
        return functional_call(net, p, (x[None],))[0, c]

    def gradients(c: int) -> list[Tensor]:
        found = vmap(grad(output), (None, 0, None), chunk_size=64)(parameters, x, c)
        return [g.flatten(1) for g in found.values()]

    n = len(x)
    if trace:
        return torch.stack([sum_of(g @ g.T for g in gradients(c)) for c in range(k)]).sum(0)
    each = [torch.stack(g, 1).flatten(0, 1) for g in zip(*map(gradients, range(k)), strict=True)]
    return sum_of(g @ g.T for g in each).view(n, k, n, k).transpose(1, 2)


def sum_of(terms: Iterator[Tensor]) -> Tensor:
    total = next(terms)
    for term in terms:
        total = total + term
    return total


def _by_hand(net: Any, x: Tensor, *, trace: bool = False) -> Tensor:
    """Gram matrices of activations times those of backward signals, all pairs of both."""
    with torch.no_grad():
        layers, n = [net[1], net[3], net[5]], len(x)
        acts, masks = [x.flatten(1)], []
        for layer in layers[:2]:
            z = layer(acts[-1])
            masks.append((z > 0).float())
            acts.append(z.relu())
        g, total = torch.eye(10).expand(n, 10, 10), 0
        for i in (2, 1, 0):
            flat, weights = g.reshape(n if trace else n * 10, -1), acts[i] @ acts[i].T + 1
            if trace:
                total = total + (flat @ flat.T) * weights
            else:
                gram = (flat @ flat.T).view(n, 10, n, 10)
                total = total + gram * weights[:, None, :, None]
            if i:
                g = (g @ layers[i].weight) * masks[i - 1][:, None]
        assert isinstance(total, Tensor)
        return total if trace else total.permute(0, 2, 1, 3)
