"""Rows of `train`: `fit` against the same steps written by hand, Lightning and Accelerate.

All take the same batches in the same order, so that they must end with the same loss. On the CPU
LeNet-5 goes once through Fashion-MNIST, 64 images a step; on the GPU some steps are taken of GPT-2
with 124 million parameters (bfloat16, compiled), of ResNet-50 and of a diffusion model.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.harness import Row, Skipped, in_turn
from vademecum.convolution import LeNet5, ResNet
from vademecum.data import load
from vademecum.generative import DDPM, ConditionalUNet
from vademecum.language import GPT
from vademecum.randomness import own_randomness
from vademecum.train import Supervised, fit
from vademecum.train._order import Order, seed_for

__all__ = ["rows"]


class _Work(NamedTuple):
    """Steps to take: the objective, its data, and how."""

    objective: Any
    data: tuple[Tensor, ...]
    batch_size: int
    steps: int
    optimizer: Callable[[Any], torch.optim.Optimizer]
    start: dict[str, Tensor]
    precision: str = "float32"
    compile: bool = False


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_on_cpu() if device.type == "cpu" else _on_gpu(device))


def _on_cpu() -> Iterator[Row | Skipped]:
    x, y, _ = load("fashion_mnist")
    torch.manual_seed(0)
    objective = Supervised(LeNet5(size=28, padding=2), F.cross_entropy)
    work = _work(objective, (x, y), 64, -(-len(x) // 64), partial(torch.optim.SGD, lr=0.05))
    peers = {"plain loop": _by_hand, "accelerate": _accelerate, "lightning": _lightning}
    calls = {name: partial(peer, work) for name, peer in peers.items()}
    name = "LeNet-5, Fashion-MNIST, an epoch of 938 steps"
    yield Row(name, partial(_fit, work), calls, _alike, rounds=9)


def _on_gpu(device: torch.device) -> Iterator[Row | Skipped]:
    adamw = partial(torch.optim.AdamW, lr=1e-4, fused=True)
    torch.manual_seed(0)
    tokens = torch.randint(50257, (16 * 30, 1025), device=device)
    gpt = _work(_Next(GPT()).to(device), (tokens,), 16, 30, adamw, "bfloat16", compile=True)
    yield _against_hand("GPT-2 124M, bfloat16, compiled: 30 steps of 16 x 1,024 tokens", gpt)
    images = torch.randn(128 * 20, 3, 224, 224, device=device)
    labels = torch.randint(1000, (len(images),), device=device)
    net = Supervised(ResNet(50), F.cross_entropy).to(device)
    resnet = _work(net, (images, labels), 128, 20, adamw, "bfloat16")
    yield _against_hand("ResNet-50, bfloat16: 20 steps of 128 images of 224 x 224", resnet)
    small = torch.randn(128 * 60, 1, 28, 28, device=device)
    ddpm = _work(_Denoising().to(device), (small,), 128, 60, adamw)
    yield _against_hand("DDPM, U-Net of 64 maps: 60 steps of 128 images of 28 x 28", ddpm)


class _Next(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def losses(self, batch: tuple[Tensor]) -> dict[str, Tensor]:
        (windows,) = batch
        logits = self.model(windows[:, :-1]).flatten(0, 1)
        return {"model": F.cross_entropy(logits, windows[:, 1:].flatten())}


class _Denoising(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = DDPM(ConditionalUNet(1, width=64), (1, 28, 28))

    def losses(self, batch: tuple[Tensor]) -> dict[str, Tensor]:
        return {"model": self.model.loss(*batch)}


def _work(
    objective: nn.Module, data: tuple[Tensor, ...], batch_size: int, steps: int, optimizer: Any,
    precision: str = "float32", *, compile: bool = False,
) -> _Work:  # fmt: skip
    start = {name: tensor.clone() for name, tensor in objective.state_dict().items()}
    return _Work(objective, data, batch_size, steps, optimizer, start, precision, compile)


def _against_hand(name: str, work: _Work) -> Row:
    return Row(name, partial(_fit, work), {"plain loop": partial(_by_hand, work)}, _alike, rounds=5)


def _alike(mine: float, other: float) -> None:
    assert abs(mine - other) <= 0.02 * abs(other), (mine, other)


def _fit(work: _Work) -> float:
    work.objective.load_state_dict(work.start)
    run = fit(work.objective, work.data, optimizer=work.optimizer, batch_size=work.batch_size,
              steps=work.steps, precision=work.precision, compile=work.compile)  # fmt: skip
    return float(run.history["loss"][-20:].mean())


def _batches(work: _Work) -> Iterator[tuple[Tensor, ...]]:
    order, device = Order(len(work.data[0]), work.batch_size, 0), work.data[0].device
    for step in range(work.steps):
        (part,) = order.parts(step)
        rows = part.examples.to(device)
        yield tuple(tensor[rows] for tensor in work.data)


def _by_hand(work: _Work) -> float:
    objective = work.objective
    objective.load_state_dict(work.start)
    optimizer = work.optimizer(objective.parameters())
    losses = torch.compile(objective.losses) if work.compile else objective.losses
    kind = work.data[0].device.type
    narrow = torch.autocast(kind, torch.bfloat16) if work.precision != "float32" else nullcontext()
    seen = []
    with own_randomness(seed_for(0, "global", 0)):
        for batch in _batches(work):
            optimizer.zero_grad()
            with narrow:
                loss = losses(batch)["model"]
            loss.backward()
            optimizer.step()
            seen.append(loss.detach())
    return float(torch.stack(seen[-20:]).mean())


def _accelerate(work: _Work) -> float:
    from accelerate import Accelerator  # pyright: ignore[reportMissingImports]

    work.objective.load_state_dict(work.start)
    accelerator = Accelerator(cpu=True)
    optimizer = work.optimizer(work.objective.parameters())
    model, optimizer = accelerator.prepare(work.objective.model, optimizer)
    seen = []
    for x, y in _batches(work):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        seen.append(loss.detach())
    return float(torch.stack(seen[-20:]).mean())


def _lightning(work: _Work) -> float:
    import lightning  # pyright: ignore[reportMissingImports]

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.seen = work.objective.model, []

        def training_step(self, batch: Any, _: int) -> Tensor:
            loss = F.cross_entropy(self.model(batch[0]), batch[1])
            self.seen.append(loss.detach())
            return loss

        def configure_optimizers(self) -> Any:
            return work.optimizer(self.parameters())

    class Batches(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
            return _batches(work)

    work.objective.load_state_dict(work.start)
    module = Module()
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar",
                           "enable_model_summary"), False)  # fmt: skip
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", **quiet)
    trainer.fit(module, torch.utils.data.DataLoader(Batches(), batch_size=None))
    return float(torch.stack(module.seen[-20:]).mean())
