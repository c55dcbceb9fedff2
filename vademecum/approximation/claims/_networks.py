"""Networks with given weights, for claims to be checked on."""

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from vademecum.approximation import AbsUnit, Maxout

__all__ = ["dense", "piecewise_linear", "rectified"]


def dense(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A dense layer with given weights, and given biases or none."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    return layer


def rectified(weight: Tensor, bias: Tensor | None = None) -> nn.Sequential:
    """One layer of ReLUs with given weights."""
    return nn.Sequential(dense(weight, bias), nn.ReLU())


class Branches(nn.Module):
    """Branches that meet again, with piecewise-linear functions in between."""

    def __init__(self, n: int, m: int):
        super().__init__()
        self.first, self.last = nn.Linear(n, 4), nn.Linear(12, m)

    def forward(self, x: Tensor) -> Tensor:
        """The values."""
        h = self.first(x)
        high, low = torch.maximum(h, 0.5 * h - 0.2), torch.minimum(h, 1 - h)
        parts = [leaky_relu(high, 0.1) - low.abs(), h.clamp(-0.5, 0.8) / 2, -low + h]
        return self.last(torch.cat(parts, 1))


def piecewise_linear() -> dict[str, tuple[nn.Module, Tensor]]:
    """Piecewise-linear networks of many layers in evaluation, and inputs for them."""
    norm = nn.BatchNorm2d(3)
    norm.running_mean, norm.running_var = torch.randn(3), 0.5 + torch.rand(3)
    plane = [nn.Conv2d(2, 3, 2, padding=1), norm, nn.LeakyReLU(0.2), nn.MaxPool2d(2, padding=1)]
    units = [nn.Linear(2, 6), nn.Hardtanh(-0.7, 0.4), nn.Linear(6, 4), nn.PReLU(4, 0.3)]
    line = [nn.Conv1d(1, 2, 3, dilation=2), nn.Softshrink(0.1), nn.AvgPool1d(2, stride=1)]
    found: dict[str, tuple[nn.Module, Tensor]] = {
        "images": (nn.Sequential(*plane, nn.Flatten(), nn.Linear(27, 2)), torch.randn(5, 2, 3, 4)),
        "units": (
            nn.Sequential(*units, Maxout(4, 3, 3), AbsUnit(), nn.Hardsigmoid(), nn.Linear(3, 5)),
            torch.randn(5, 2),
        ),
        "lines": (
            nn.Sequential(*line, nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.ReLU6()),
            torch.randn(5, 1, 8),
        ),
        "branches": (Branches(3, 2), torch.randn(5, 3)),
    }
    return {name: (model.eval(), x) for name, (model, x) in found.items()}
