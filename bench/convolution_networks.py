"""Rows of the room `convolution`: networks against the obvious modules, WaveNet's samples."""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bench.harness import Row, Skipped, in_turn
from vademecum.convolution.networks.resnet import ResNet
from vademecum.convolution.networks.unet import UNet
from vademecum.convolution.wavenet.network import WaveNet

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    if device.type == "cuda":
        yield from in_turn(_training(device), _compiled(device), _samples(device))
    else:
        yield from in_turn(_training(device), _samples(device))


def _pass(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The loss, and its gradients in the parameters."""
    for p in net.parameters():
        p.grad = None
    out: Any = net(x)
    loss = cross_entropy(getattr(out, "logits", out), y)
    loss.backward()
    return loss.detach()


def _close(mine: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def _training(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    n, side = (8, 128) if device.type == "cpu" else (128, 224)
    x, y = torch.randn(n, 3, side, side, device=device), torch.randint(10, (n,), device=device)
    net = ResNet(18, 10).to(device)
    peers = {"the obvious module": partial(_pass, _obvious(net).to(device), x, y)}
    peers["transformers"] = partial(_pass, _transformers(net).to(device), x, y)
    yield Row(f"ResNet-18, {n} images of {side}, forward and backward", partial(_pass, net, x, y),
              peers, _close)  # fmt: skip
    n, side = (2, 128) if device.type == "cpu" else (16, 256)
    image = torch.randn(n, 1, side, side, device=device)
    labels = torch.randint(2, (n, side, side), device=device)
    unet = UNet(2, width=16).to(device)
    plain = _PlainUNet(unet).to(device)
    yield Row(f"U-Net of width 16, {n} images of {side}, forward and backward",
              partial(_pass, unet, image, labels),
              {"the obvious module": partial(_pass, plain, image, labels)}, _close)  # fmt: skip


def _compiled(device: torch.device) -> Iterator[Row]:
    """A step of SGD as one trains today: bf16, channels last, compiled."""
    torch.manual_seed(0)
    n = 256
    x = torch.randn(n, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    y = torch.randint(10, (n,), device=device)
    net = ResNet(50, 10)
    peer = _transformers(net)

    def stepping(net: nn.Module) -> Callable[[], Tensor]:
        net = net.to(device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        step = torch.optim.SGD(net.parameters(), 1e-3, 0.9)
        fast: Any = torch.compile(net)

        def call() -> Tensor:
            with torch.autocast("cuda", torch.bfloat16):
                loss = _pass(fast, x, y)
            step.step()
            return loss.float()

        return call

    yield Row(f"ResNet-50, {n} images of 224, compiled training step in bf16", stepping(net),
              {"transformers": stepping(peer)},
              partial(torch.testing.assert_close, rtol=0.05, atol=0.05))  # fmt: skip


class _Block(nn.Module):
    """The basic block as textbooks write it."""

    def __init__(self, maps: int, out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(maps, out, 3, stride, 1, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(out), nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or maps != out:
            conv = nn.Conv2d(maps, out, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


def _obvious(net: ResNet) -> nn.Module:
    plain = nn.Sequential()
    plain.add_module("conv1", nn.Conv2d(3, 64, 7, 2, 3, bias=False))
    plain.add_module("bn1", nn.BatchNorm2d(64))
    plain.add_module("relu", nn.ReLU(inplace=True))
    plain.add_module("maxpool", nn.MaxPool2d(3, 2, 1))
    maps = 64
    for i, out in enumerate((64, 128, 256, 512)):
        blocks = nn.Sequential(_Block(maps, out, 2 if i else 1), _Block(out, out, 1))
        plain.add_module(f"layer{i + 1}", blocks)
        maps = out
    plain.add_module("avgpool", nn.AdaptiveAvgPool2d(1))
    plain.add_module("flatten", nn.Flatten())
    plain.add_module("fc", nn.Linear(512, 10))
    plain.load_state_dict(net.state_dict())
    return plain


def _transformers(net: ResNet) -> nn.Module:
    """The same network of transformers, with our weights in its order."""
    library = importlib.import_module("transformers")
    blocks = [len(layer) for layer in (net.layer1, net.layer2, net.layer3, net.layer4)]
    basic = net.fc.in_features == 512
    config = library.ResNetConfig(
        hidden_sizes=[(64 if basic else 256) * 2**i for i in range(4)], depths=blocks,
        layer_type="basic" if basic else "bottleneck", num_labels=10,
    )  # fmt: skip
    peer = library.ResNetForImageClassification(config).train()
    ours = {name: tensor for name, tensor in net.state_dict().items() if "downsample" not in name}
    shortcuts = [tensor for name, tensor in net.state_dict().items() if "downsample" in name]
    theirs = peer.state_dict()
    plain = [name for name in theirs if "shortcut" not in name]
    for name, tensor in zip(plain, ours.values(), strict=True):
        theirs[name].copy_(tensor)
    for name, tensor in zip([n for n in theirs if "shortcut" in n], shortcuts, strict=True):
        theirs[name].copy_(tensor)
    return peer


class _PlainUNet(nn.Module):
    """U-Net with its levels written one after the other."""

    def __init__(self, net: UNet):
        super().__init__()
        self.net, self.pool = UNet(2, width=16), nn.MaxPool2d(2)
        self.net.load_state_dict(net.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        down, up, merge = self.net.down, self.net.up, self.net.merge
        a = down[0](x)
        b = down[1](self.pool(a))
        c = down[2](self.pool(b))
        d = down[3](self.pool(c))
        y = down[4](self.pool(d))
        for i, detail in enumerate((d, c, b, a)):
            y = merge[i](torch.cat([detail, up[i](y)], 1))
        return self.net.head(y)


def _samples(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    net = WaveNet().to(device).eval()
    n = 400 if device.type == "cpu" else 2000
    start = torch.randint(256, (1, net.field), device=device)

    def ours(n: int = n) -> Tensor:
        return net.generate(n, start=start, temperature=0)

    yield Row(f"WaveNet, {n} samples step by step", ours,
              {"a plain loop with queues": partial(_queues, net, start, n)}, _same)  # fmt: skip
    yield Row("WaveNet, 5 samples", partial(ours, 5),
              {"recomputing": partial(_recomputed, net, start, 5)}, _same, rounds=3)  # fmt: skip


def _same(mine: Tensor, other: Tensor) -> None:
    """All samples, until rounding decides between two classes that are as probable."""
    assert float((mine == other).double().mean()) > 0.5
    assert torch.equal(mine[:, :5], other[:, :5])


@torch.no_grad()
def _queues(net: WaveNet, start: Tensor, n: int) -> Tensor:
    """Each layer with a list of its last inputs, as one writes it down."""
    signal, queues = net.embedding(start[:, :-1]).mT, []
    for layer in net.gated:
        d = layer.conv.dilation
        queues.append(
            [signal[:, :, t].clone() for t in range(signal.shape[2] - d, signal.shape[2])]
        )
        signal, _ = layer(signal, None)
    x, drawn = start[:, -1], []
    weights: list[tuple[Callable[..., Any], Tensor, Tensor]] = [
        (layer, layer.conv.weight[:, :, 0].T, layer.conv.weight[:, :, 1].T) for layer in net.gated
    ]
    for _ in range(n):
        h, total = net.embedding(x), torch.zeros((), device=x.device)
        for (layer, old, new), queue in zip(weights, queues, strict=True):
            gates = queue.pop(0) @ old + h @ new + layer.conv.bias  # pyright: ignore
            queue.append(h)
            a, b = gates.chunk(2, 1)
            z = (torch.tanh(a) * torch.sigmoid(b))[:, :, None]
            total = total + layer.skip(z)  # pyright: ignore
            h = h + layer.residual(z)[:, :, 0] if layer.residual is not None else h  # pyright: ignore
        x = net.logits(torch.relu(net.head(torch.relu(total))))[:, :, 0].argmax(1)
        drawn.append(x)
    return torch.stack(drawn, 1)


@torch.no_grad()
def _recomputed(net: WaveNet, start: Tensor, n: int) -> Tensor:
    x = start
    for _ in range(n):
        x = torch.cat([x, net(x[:, -net.field :])[:, :, -1].argmax(1, keepdim=True)], 1)
    return x[:, -n:]
