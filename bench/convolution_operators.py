"""Rows of the room `convolution`: signals against SciPy and torch, singular values of layers.

`python -m bench.convolution_operators` prints how much `auto` loses against the better method.
"""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import signal
from torch import Tensor, nn
from torch.nn import functional as F

from bench.harness import Row, Skipped, in_turn
from vademecum.convolution.networks.resnet import ResNet
from vademecum.convolution.singular_values import conv_singular_values
from vademecum.convolution.sliding import convolve

__all__ = ["choices", "rows"]

SIZES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((100,), (5,)), ((100,), (50,)), ((1000,), (10,)), ((1000,), (200,)), ((10_000,), (20,)),
    ((10_000,), (60,)), ((10_000,), (300,)), ((10_000,), (3000,)), ((100_000,), (30,)),
    ((100_000,), (100,)), ((100_000,), (600,)), ((1_000_000,), (30,)), ((1_000_000,), (200,)),
    ((64, 500), (30,)), ((64, 500), (100,)), ((1000, 100), (20,)), ((32, 32), (3, 3)),
    ((32, 32), (7, 7)), ((128, 128), (5, 5)), ((128, 128), (9, 9)), ((128, 128), (25, 25)),
    ((512, 512), (5, 5)), ((512, 512), (11, 11)), ((512, 512), (21, 21)), ((16, 64, 64), (5, 5)),
    ((16, 64, 64), (9, 9)), ((16, 16, 16), (3, 3, 3)), ((16, 16, 16), (5, 5, 5)),
    ((40, 40, 40), (3, 3, 3)), ((40, 40, 40), (5, 5, 5)),
]  # fmt: skip
"""Of signals and kernels, for which both methods are timed."""


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_signals(device), _norms(device), _network(device))


def _signals(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    for name, n, k in (("1M x 1k", (10**6,), (1000,)), ("1024^2 x 31^2", (1024,) * 2, (31,) * 2)):
        x, h = torch.randn(n), torch.randn(k)
        here = partial(convolve, x.to(device), h.to(device))
        peers: dict[str, Callable] = {
            "SciPy convolve": partial(signal.convolve, x.numpy(), h.numpy()),
            "SciPy oaconvolve": partial(signal.oaconvolve, x.numpy(), h.numpy()),
            "torch": partial(_layer, x.to(device), h.to(device)),
        }
        yield Row(f"convolve, {name}", here, peers, _close)


def _layer(x: Tensor, h: Tensor) -> Tensor:
    flipped = h.flip(tuple(range(h.ndim)))[None, None]
    layer = F.conv1d if h.ndim == 1 else F.conv2d
    return layer(x[None, None], flipped, padding=[k - 1 for k in h.shape])[0, 0]


def _close(mine: Tensor, other: Tensor | np.ndarray) -> None:
    gap = (mine.cpu() - torch.as_tensor(other).cpu()).abs().max() / mine.abs().max().cpu()
    assert float(gap) < 1e-4, f"results differ by {float(gap):.2g}"


def _norms(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    layer = nn.Conv2d(64, 64, 3, padding=1, padding_mode="circular").requires_grad_(False)
    kernels = layer.weight.numpy().transpose(2, 3, 0, 1)

    def numpy() -> np.ndarray:
        spectrum = np.fft.fft2(kernels, (32, 32), axes=(0, 1))
        return np.sort(np.linalg.svd(spectrum, compute_uv=False).flatten())[::-1].copy()

    there = nn.Conv2d(64, 64, 3, padding=1, padding_mode="circular", device=device)
    there.load_state_dict(layer.state_dict())
    there.requires_grad_(False)

    def ours() -> Tensor:
        return conv_singular_values(there, (64, 32, 32)).values

    yield Row("conv_singular_values, 64 to 64, 3 x 3, circular 32 x 32", ours,
              {"NumPy FFT + SVD": numpy}, _close)  # fmt: skip


def _network(device: torch.device) -> Iterator[Row]:
    """The norms of all 53 convolutions of ResNet-50 at 224 x 224: our time is all there is."""
    torch.manual_seed(0)
    net = ResNet(50).eval().requires_grad_(False)
    seen: list[Any] = []
    hooks = [
        m.register_forward_hook(lambda m, x, _: seen.append((m, tuple(x[0].shape[1:]))))
        for m in net.modules()
        if isinstance(m, nn.Conv2d)
    ]
    net(torch.zeros(1, 3, 224, 224))
    for hook in hooks:
        hook.remove()
    net.to(device)

    def ours() -> Tensor:
        return torch.stack([conv_singular_values(m, x, k=1).values[0] for m, x in seen])

    def reshaped() -> Tensor:  # torch's spectral_norm: a lower bound, and another number
        return torch.stack([torch.linalg.matrix_norm(m.weight.flatten(1), 2) for m, _ in seen])

    def bound(mine: Tensor, other: Tensor) -> None:
        wide = torch.tensor([math.sqrt(math.prod(m.kernel_size)) for m, _ in seen])
        assert bool((mine.cpu() <= 1.001 * wide * other.cpu()).all())

    yield Row("conv_singular_values, norms of the 53 layers of ResNet-50", ours,
              {"norm of the reshaped kernel, which bounds it": reshaped}, bound,
              "120 s", rounds=1)  # fmt: skip


def choices(dtype: torch.dtype, turns: int = 9) -> Iterator[tuple[str, float]]:
    """How many times longer `auto` takes than the better method, for each of the sizes."""
    for n, k in SIZES:
        x, h = torch.randn(n, dtype=dtype), torch.randn(k, dtype=dtype)
        seconds: dict[str, list[float]] = {"auto": [], "direct": [], "fft": []}
        for _ in range(turns):
            for method, found in seconds.items():
                start = time.perf_counter()
                convolve(x, h, method=method)
                found.append(time.perf_counter() - start)
        auto, direct, fft = (min(found) for found in seconds.values())
        yield (
            f"{n} x {k}: direct {direct * 1e6:.0f} us, fft {fft * 1e6:.0f} us",
            auto / min(direct, fft),
        )


if __name__ == "__main__":
    for kind in (torch.float32, torch.float64):
        losses = []
        for line, loss in choices(kind):
            print(f"{loss:5.2f}  {line}", flush=True)
            losses.append(loss)
        print(f"worst of {len(losses)} sizes, {kind}: {max(losses):.2f}")
