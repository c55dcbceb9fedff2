r"""Rows of the room `robustness`: bounds of a convolutional network with strides, Fashion-MNIST.

The network has two convolutions and two linear layers and is trained for two passes; bounded are
the nine margins of each image's label within 2/255. The peer is auto_LiRPA, which is given its
model once, outside of what is timed, and asked for lower bounds alone. Our bounds are for the run
in floats, from both sides, so they are lower by what rounding may cost; asked for real numbers, as
theirs are meant, they must certify no fewer images. Our own times include reading the model.
"""

import importlib
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped, in_turn
from vademecum.data import load
from vademecum.robustness import Bounds, crown_bounds, interval_bounds

__all__ = ["rows"]

RADIUS = 2 / 255
_SLACK = 0.01  # of a margin: what single precision does to theirs


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    """Intervals, linear functions, and these with better slopes."""
    yield from in_turn(_rows(device))


def _rows(device: torch.device) -> Iterator[Row]:
    net, x, spec = _network(device)
    many = 1 if device.type == "cpu" else 32
    works: list[tuple[str, int, Callable[..., Bounds], str, int]] = [
        ("intervals", 512, interval_bounds, "IBP", 15),
        ("linear functions (CROWN)", 64 * many, crown_bounds, "CROWN", 5),
        ("better slopes (alpha-CROWN, 20 steps)", 16, partial(crown_bounds, max_iter=20),
         "CROWN-Optimized", 1),
    ]  # fmt: skip
    for name, n, bounds, method, rounds in works:
        ours = partial(bounds, net, x[:n], norm="linf", radius=RADIUS, box=None, spec=spec[:n])
        peers = {"auto_LiRPA": _theirs(device, method, n)}
        agree = partial(_agree, partial(ours, arithmetic="real"))
        yield Row(f"bounds by {name}, {n:,} images", ours, peers, agree, rounds=rounds)


@lru_cache(1)
def _network(device: torch.device) -> tuple[nn.Sequential, Tensor, Tensor]:
    """The network, images, and the margins of their labels as functions of the logits."""
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(1, 16, 4, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(32 * 49, 100), nn.ReLU(), nn.Linear(100, 10)),
    )
    train, test = (load("fashion_mnist", split=split) for split in ("train", "test"))
    images, labels = train.x, train.y
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(2):
        for at in torch.randperm(len(images)).split(256):
            adam.zero_grad()
            nn.functional.cross_entropy(net(images[at]), labels[at]).backward()
            adam.step()
    x, y = test.x[:2048], test.y[:2048]
    eye = torch.eye(10)
    rows = (eye[y][:, None] - eye)[eye[y] == 0].view(len(y), 9, 10)
    return net.eval().requires_grad_(False).to(device), x.to(device), rows.to(device)


def _theirs(device: torch.device, method: str, n: int) -> Callable[[], Tensor]:
    library = _library()
    net, x, spec = _network(device)
    bounded = library.BoundedModule(net, x[:2], device=str(device))
    ball = library.perturbations.PerturbationLpNorm(norm=np.inf, eps=RADIUS)
    inputs = library.BoundedTensor(x[:n], ball)
    knobs = {"C": spec[:n], "method": method, "bound_upper": False}

    def call() -> Tensor:
        with torch.set_grad_enabled("Optimized" in method):
            return bounded.compute_bounds(x=(inputs,), **knobs)[0].detach()

    return call


@lru_cache(1)
def _library() -> Any:
    """auto_LiRPA 0.3, with what newer versions of NumPy and torch have taken away."""
    sets: Any = types.ModuleType("numpy.lib.arraysetops")
    sets.isin = np.isin
    sys.modules["numpy.lib.arraysetops"] = sets
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        helper: Any = importlib.import_module("torch.onnx.symbolic_helper")
        where = "torch.onnx._internal.torchscript_exporter._globals"
        known: Any = importlib.import_module(where).GLOBALS
        helper._set_opset_version = lambda v: setattr(known, "export_onnx_opset_version", v)
        onnx: Any = importlib.import_module("torch.onnx")
        core: Any = torch._C
        core.Node.__getitem__ = lambda self, k: getattr(self, self.kindOf(k))(k)
        if not hasattr(onnx, "OperatorExportTypes"):
            onnx.OperatorExportTypes = core._onnx.OperatorExportTypes
        return importlib.import_module("auto_LiRPA")


def _agree(exact: Callable[[], Bounds], ours: Bounds, theirs: Tensor) -> None:
    """Ours for real numbers, as theirs are, are as high and certify no fewer; timed ones lie below.

    Single precision is theirs alone here, and both may be right in other ways.
    """
    real = exact().lower
    assert bool((ours.lower <= real).all())
    gap = float((theirs - real).median())
    assert gap < _SLACK, gap
    certified = [int((lower.amin(1) > 0).sum()) for lower in (real, theirs, ours.lower)]
    print(f"      certified: {certified[0]}, theirs {certified[1]};"
          f" with rounding {certified[2]} of {len(theirs)}", file=sys.stderr)  # fmt: skip
    assert certified[0] >= certified[1], certified
