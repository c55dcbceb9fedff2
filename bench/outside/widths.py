"""The limit of a model's architecture, against draws of the model itself.

The oracle draws weights and biases of linear layers and convolutions anew, each over the root of
its fan-in, and averages products of outputs and of gradients. A model of width m is off its limit
by about depth / m, which is allowed; a lost layer, slope or bias is more.
"""

import copy
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from bench.outside.cases import Subject
from bench.outside.derivatives import Check
from bench.outside.oracles import Oracle
from vademecum.kernels import infinite_width

__all__ = ["WIDTHS"]

DRAWS = 400
WEIGHT, BIAS = 1.5, 0.2
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _limit(s: Subject, o: Oracle) -> Iterator[str]:
    x = s.x[:3]
    limit = infinite_width(s.model, weight_variance=WEIGHT, bias_variance=BIAS, output=s.output)
    found = limit.nngp(x), limit.ntk(x)
    for name, K, drawn in zip(("covariances", "tangent kernel"), found, _drawn(s, x), strict=True):
        error = drawn.std(0) / math.sqrt(DRAWS)
        layers = [m for m in s.model.modules() if isinstance(m, LAYERS)]
        narrow = min([m.weight.shape[0] for m in layers[:-1]], default=10**9)
        size = drawn.mean(0).diagonal()
        room = 6 * error + 2 * len(layers) / narrow * torch.outer(size, size).sqrt()
        gap = (K.double() - drawn.mean(0)).abs()
        if not bool((gap <= room).all()):
            yield f"{name} are {K.tolist()}, not {drawn.mean(0).tolist()} as drawn"


def _drawn(s: Subject, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean products of outputs over units, and of gradients of the first unit, for each draw."""
    model = copy.deepcopy(getattr(s.model, "_orig_mod", s.model)).double().eval()
    scales: dict[Tensor, float] = {}
    for m in model.modules():
        if isinstance(m, LAYERS):
            scales[m.weight] = math.sqrt(WEIGHT / m.weight[0].numel())
            if m.bias is not None:
                scales[m.bias] = math.sqrt(BIAS)
    chance = torch.Generator().manual_seed(0)
    learned, products, kernels = [p for p in scales if p.requires_grad], [], []
    for _ in range(DRAWS):
        with torch.no_grad():
            for p, scale in scales.items():
                p.copy_(scale * torch.randn(p.shape, generator=chance, dtype=torch.float64))
        z = s.read(model(x.double())).flatten(1)
        products.append((z @ z.T / z.shape[1]).detach())
        rows = []
        for v in z[:, 0]:
            grads = torch.autograd.grad(v, learned, retain_graph=True)
            rows.append(
                torch.cat([scales[p] * g.flatten() for p, g in zip(learned, grads, strict=True)])
            )
        J = torch.stack(rows)
        kernels.append(J @ J.T)
    return torch.stack(products), torch.stack(kernels)


WIDTHS: dict[str, Check] = {"infinite_width": _limit}
"""What asks the instrument, by its name."""
