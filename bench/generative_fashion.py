r"""Images of clothes from a diffusion, a VAE and a flow, and how far each is from the real ones.

    python -m bench.generative_fashion --minutes 10 --device cuda --out samples  # the whole of it
    python -m bench.generative_fashion --minutes 1                               # small, on the CPU

A small convolutional network learns the ten classes, and its features measure the Frechet distance
between generated images and the test set of Fashion-MNIST. Most of the time goes to the diffusion
(`ConditionalUNet`, classes as context, weights averaged over time; on a GPU its step is captured as
a graph), the rest to a `VAE` and a `RealNVP`. The diffusion is sampled by 1,000 steps of DDPM, for
fewer images since that is dear, and by 50 steps of DDIM: even ones, and for as few images a grid of
spacings, orders and shares of new noise. A distance grows as images become fewer, so that what is
compared with DDPM is measured on as many images as well.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from bench.harness import Row, Skipped
from vademecum.data import load
from vademecum.generative import DDPM, VAE, ConditionalUNet, RealNVP, frechet_distance
from vademecum.models import Replay

__all__ = ["Run", "classifier", "diffusion", "flow", "main", "rows", "save_grid", "vae"]


def rows(device: torch.device):
    """None: nobody else has such a command."""
    found: list[Row | Skipped] = []
    return iter(found)


class Run(NamedTuple):
    """What a run has: data within [-1, 1], where it runs, and how large things are."""

    x: Tensor
    y: Tensor
    device: torch.device
    small: bool

    def batch(self, n: int) -> tuple[Tensor, Tensor]:
        """Random images and their labels."""
        chosen = torch.randint(len(self.x), (n,), device=self.device)
        return self.x[chosen], self.y[chosen]

    @property
    def memory(self) -> float:
        """How much of an average over steps is left after one more."""
        return 0.9 if self.small else 0.9995

    def fast(self, *, cached: bool = True) -> Any:
        """Reduced precision where the device has units for it; a graph must not cache weights."""
        if self.device.type != "cuda":
            return nullcontext()
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=cached)


def train(
    run: Run, model: nn.Module, loss: Callable[[], Tensor], seconds: float, *, lr: float,
    after: Callable[[], None] = lambda: None, replayed: bool = False,
) -> int:  # fmt: skip
    """Steps of AdamW until the time is over, with a short warm-up; how many there were."""
    cuda, rate = run.device.type == "cuda", torch.tensor(0.0, device=run.device)
    optimizer = torch.optim.AdamW(
        model.parameters(), rate, weight_decay=1e-4, fused=cuda, capturable=cuda
    )

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with run.fast(cached=not replayed):
            value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        after()

    if replayed:  # what runs before the capture trains at the rate 0
        step = Replay(step, [rate])
    start, count = time.perf_counter(), 0
    while True:
        if cuda and count % 20 == 0:
            torch.cuda.synchronize()
        spent = (time.perf_counter() - start) / seconds
        if spent >= 1:
            return count
        rate.fill_(lr * min(1, (count + 1) / 200) * min(1, 4 * (1 - spent)))
        step()
        count += 1


def classifier(run: Run, seconds: float) -> nn.Module:
    """A small network of the classes, without its last layer: the features."""
    features = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 49, 64), nn.ReLU(),
    ).to(run.device)  # fmt: skip
    model = nn.Sequential(features, nn.Linear(64, 10)).to(run.device)

    def loss() -> Tensor:
        x, y = run.batch(256)
        return nn.functional.cross_entropy(model(x), y)

    train(run, model, loss, seconds, lr=2e-3)
    return features.eval()


def diffusion(run: Run, seconds: float) -> tuple[DDPM, int]:
    """The diffusion with averaged weights, and its number of steps."""
    sizes: Any = {"width": 64, "dropout": 0.1}
    if run.small:
        sizes = {"width": 8, "blocks": 1, "multipliers": (1, 2)}
    n = 64 if run.small else 256
    net = ConditionalUNet(1, classes=10, **sizes).to(run.device)
    model = DDPM(net, (1, 28, 28), drop=0.1)
    now: list[Tensor] = [*net.parameters()]
    averaged, average = [p.detach().clone() for p in now], get_ema_multi_avg_fn(run.memory)
    count = train(
        run, model, lambda: model.loss(*run.batch(n)), seconds, lr=4e-4,
        after=lambda: average(averaged, now, 0), replayed=run.device.type == "cuda",
    )  # fmt: skip
    with torch.no_grad():
        for p, mean in zip(now, averaged, strict=True):
            p.copy_(mean)
    return model.eval(), count


def vae(run: Run, seconds: float) -> VAE:
    """A VAE of convolutions with a learned noise."""
    encoder = nn.Sequential(
        nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(64 * 49, 256), nn.ReLU(), nn.Linear(256, 64),
    )  # fmt: skip
    decoder = nn.Sequential(
        nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 64 * 49), nn.ReLU(),
        nn.Unflatten(1, (64, 7, 7)), nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(32, 1, 4, 2, 1),
    )  # fmt: skip
    model = VAE(encoder, decoder, noise="learned", latent=32).to(run.device)

    def loss() -> Tensor:
        with torch.autocast(run.device.type, enabled=False):
            return model.loss(run.batch(256)[0]) / 784

    train(run, model, loss, seconds, lr=1e-3)
    return model.eval()


def flow(run: Run, seconds: float) -> RealNVP:
    """A RealNVP of dequantised pixels."""
    hidden = (128, 128) if run.small else (1024, 1024)
    model = RealNVP(784, transforms=4 if run.small else 12, hidden=hidden).to(run.device)

    def loss() -> Tensor:
        x = run.batch(256)[0].flatten(1)
        x = x + (torch.rand_like(x) - 0.5) * 2 / 255
        with torch.autocast(run.device.type, enabled=False):
            return -model.log_prob(x).mean() / 784

    train(run, model, loss, seconds, lr=5e-4)
    return model.eval()


def save_grid(images: Tensor, file: Path) -> None:
    """The first hundred images, ten in a row, as a PNG."""
    from matplotlib.image import imsave

    across = min(10, len(images))
    down = min(10, len(images) // across)
    grid = images[: across * down].detach().float().cpu().clamp(-1, 1).view(down, across, 28, 28)
    whole = grid.permute(0, 2, 1, 3).reshape(28 * down, 28 * across)
    file.parent.mkdir(parents=True, exist_ok=True)
    imsave(file, whole.numpy(), cmap="gray", vmin=-1, vmax=1)


def in_batches(draw: Callable[[int], Tensor], n: int, batch: int = 500) -> Tensor:
    """Samples, a batch at a time."""
    with torch.no_grad():
        return torch.cat([draw(min(batch, n - i)).float() for i in range(0, n, batch)])


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train a diffusion, a VAE and a flow on Fashion-MNIST, and print their Frechet distances."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="in all, about")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, help="how many to draw; 10,000, or 60 on the CPU")
    parser.add_argument("--ddpm-images", type=int, help="how many by DDPM; 2,000, or 60 on the CPU")
    parser.add_argument("--steps", type=int, help="of DDPM; all 1,000, or 100 on the CPU")
    parser.add_argument("--single", action="store_true", help="sample in single precision")
    parser.add_argument("--out", type=Path, default=Path("samples"), help="folder for the PNGs")
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    device = torch.device(given.device)
    data, test = load("fashion_mnist", split="train"), load("fashion_mnist", split="test")
    small = device.type == "cpu"
    run = Run(2 * data.x.to(device) - 1, data.y.to(device), device, small)
    seconds, n = 60 * given.minutes, given.images or (60 if small else 10_000)
    few = min(n, given.ddpm_images or (60 if small else 2000))
    features = classifier(run, 0.05 * seconds)
    real = 2 * test.x[: max(n, 1000)].to(device) - 1
    found: dict[str, float] = {}

    def tell(name: str, x: Tensor) -> None:
        for k in sorted({len(x), few}, reverse=True):
            row = name if k == n else f"{name}, {k} images"
            far = frechet_distance(x[:k].clamp(-1, 1), real, features=features).value
            found[row] = float(far)
            base = next(iter(found.values()))  # of DDPM, which comes first
            print(f"  {row}: {found[row]:.4g}, {found[row] / base:.3g} of DDPM's", flush=True)
        save_grid(x, given.out / f"{name.lower().replace(' ', '_').replace(',', '')}.png")

    model, count = diffusion(run, 0.55 * seconds)
    print(f"{count} steps on {device}; Frechet distances to {len(real)} test images", flush=True)
    precision = nullcontext if given.single else lambda: run.fast(cached=False)
    for name, x in sampled(run, model, n, few, given.steps or (100 if small else 1000), precision):
        tell(name, x)
    coder = vae(run, 0.1 * seconds)
    tell("VAE", in_batches(lambda k: coder.sample(k, mean=True), n))
    nvp = flow(run, 0.1 * seconds)
    tell("RealNVP", in_batches(nvp.sample, n).view(n, 1, 28, 28))
    tell("training images", run.x[:n])
    return found


def sampled(
    run: Run, model: DDPM, n: int, few: int, steps: int, precision: Callable[[], Any]
) -> Iterator[tuple[str, Tensor]]:
    """Images of the diffusion by each sampler, few of them by DDPM, and the seconds they took."""
    graph = run.device.type == "cuda"
    ways: dict[str, tuple[int, dict[str, Any]]] = {
        f"DDPM, {steps} steps": (few, {"steps": steps, "eta": 1.0}),
        "DDIM, 50 steps": (n, {"steps": 50}),
    }
    for spacing, order, eta in product(("even", "quadratic", "snr"), (1, 2), (0.0, 0.3, 1.0)):
        name = f"DDIM, 50 {spacing} steps, order {order}, eta {eta:g}"
        ways[name] = few, {"steps": 50, "spacing": spacing, "order": order, "eta": eta}
    for name, (many, knobs) in ways.items():
        start = time.perf_counter()

        def draw(k: int, knobs: dict[str, Any] = knobs) -> Tensor:
            labels = torch.randint(10, (k,), device=run.device)
            with precision():
                return model.sample(k, labels, clip=1.0, cuda_graph=graph, **knobs)

        images = in_batches(draw, many)
        spent = time.perf_counter() - start
        print(f"{name}: {many} images in {spent:.1f} s, {many / spent:.0f} a second", flush=True)
        yield name, images


if __name__ == "__main__":
    main()
