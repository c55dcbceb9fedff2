"""Rows of the room `generative`: diffusion in steps, against diffusers and a plain loop of torch.

Samplers walk with a network that costs nothing, so that what is timed is the walk; on CUDA devices
also with a U-Net, captured as a graph. A training step stands beside the same in bare torch.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped, in_turn
from vademecum.generative import DDPM, ConditionalUNet, NoiseSchedule, ddim_sample, ddpm_sample

__all__ = ["rows"]

SHAPE = (16, 1, 28, 28)


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_ddim(device), _ddpm(device), _training(device), _graphs(device))


def _close(a: Tensor, b: Tensor) -> None:
    scale = float(b.abs().max())
    assert float((a - b).abs().max()) <= 1e-3 * scale, "samples differ by more than 1e-3"


class _Still(nn.Module):
    """A network that costs nothing: it always says the same."""

    def __init__(self, noise: Tensor):
        super().__init__()
        self.noise = nn.Parameter(noise, requires_grad=False)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.noise


def _scheduler(name: str, **knobs: Any) -> Any:
    diffusers = importlib.import_module("diffusers")
    knobs |= {"beta_start": 1e-4, "beta_end": 0.02, "clip_sample": False}
    return getattr(diffusers, name)(num_train_timesteps=1000, **knobs)


def _start(device: torch.device) -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2, *SHAPE, generator=dice).to(device)
    return x, noise


def _walk(
    scheduler: Any, model: Callable[[Tensor, Tensor], Tensor], x: Tensor, **knobs: Any
) -> Tensor:
    n = len(x)
    with torch.no_grad():
        for t in scheduler.timesteps:
            x = scheduler.step(model(x, (t + 1).expand(n).to(x.device)), t, x, **knobs).prev_sample
    return x


def _ddim(device: torch.device) -> Iterator[Row]:
    x, noise = _start(device)
    model, schedule = _Still(0.1 * noise), NoiseSchedule.linear(1000)

    def ours() -> Tensor:
        return ddim_sample(model, SHAPE, schedule=schedule, steps=50, start=x)

    def theirs() -> Tensor:
        scheduler = _scheduler("DDIMScheduler", timestep_spacing="trailing")
        scheduler.set_timesteps(50)
        return _walk(scheduler, model, x)

    yield Row("DDIM, 50 steps of 16 x 1 x 28 x 28", ours, {"diffusers": theirs}, _close, rounds=21)


def _ddpm(device: torch.device) -> Iterator[Row]:
    x, noise = _start(device)
    model, schedule = _Still(0.1 * noise), NoiseSchedule.linear(1000)

    def dice() -> torch.Generator:
        return torch.Generator(device).manual_seed(1)

    def ours() -> Tensor:
        return ddpm_sample(model, SHAPE, schedule=schedule, start=x, generator=dice())

    def theirs() -> Tensor:
        scheduler = _scheduler("DDPMScheduler", variance_type="fixed_small")
        scheduler.set_timesteps(1000)
        return _walk(scheduler, model, x, generator=dice())

    yield Row("DDPM, 1,000 steps of 16 x 1 x 28 x 28", ours, {"diffusers": theirs}, _close)


def _training(device: torch.device) -> Iterator[Row]:
    """One step of Adam on 64 images; the bare loop has its table of alphas at hand."""
    torch.manual_seed(0)
    net = ConditionalUNet(1, width=32, multipliers=(1, 2)).to(device)
    nn.init.normal_(net.last.weight, std=0.1)
    model = DDPM(net, SHAPE[1:])
    x = torch.randn(64, *SHAPE[1:], device=device)
    bar = model.schedule.alpha_bar.float().to(device)

    def dice() -> torch.Generator:
        return torch.Generator(device).manual_seed(2)

    def bare_loss(generator: torch.Generator) -> Tensor:
        t = torch.randint(1, 1001, (64,), generator=generator, device=device)
        noise = torch.randn(x.shape, generator=generator, device=device)
        left = bar[t].view(-1, 1, 1, 1)
        out = net(left.sqrt() * x + (1 - left).sqrt() * noise, t)
        return nn.functional.mse_loss(out, noise)

    def step(loss: Callable[[], Tensor]) -> Tensor:
        net.zero_grad(set_to_none=True)
        loss().backward()
        assert net.first.weight.grad is not None
        return net.first.weight.grad.clone()

    def ours() -> Tensor:
        return step(lambda: model.loss(x, generator=dice()))

    def bare() -> Tensor:
        return step(lambda: bare_loss(dice()))

    name = "DDPM.loss and its gradient, U-Net of width 32, 64 images"
    yield Row(name, ours, {"bare torch": bare}, _close, limit="1.0: the network itself", rounds=15)


def _graphs(device: torch.device) -> Iterator[Row]:
    """The same network and the same steps; ours is captured anew in every call."""
    if device.type != "cuda":
        return
    torch.manual_seed(0)
    net = ConditionalUNet(1, width=32).to(device).eval()
    nn.init.normal_(net.last.weight, std=0.02)
    schedule = NoiseSchedule.linear(1000)
    for n in (16, 256):
        x = torch.randn(n, *SHAPE[1:], device=device)

        def ours(x: Tensor = x) -> Tensor:
            return ddim_sample(net, x.shape, schedule=schedule, steps=50, start=x, cuda_graph=True)

        def theirs(x: Tensor = x) -> Tensor:
            scheduler = _scheduler("DDIMScheduler", timestep_spacing="trailing")
            scheduler.set_timesteps(50, device=device)
            return _walk(scheduler, net, x)

        name = f"DDIM under a CUDA graph, U-Net of width 32, 50 steps, {n} images"
        yield Row(name, ours, {"diffusers": theirs}, _close)
