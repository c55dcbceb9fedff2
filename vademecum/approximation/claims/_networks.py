"""Networks for claims to be checked on, and what is known of their linear pieces."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from vademecum.approximation import (
    AbsUnit,
    Maxout,
    Plane,
    certify_regions,
    linear_regions,
    local_affine_map,
    regions_along,
)
from vademecum.claims import Evidence, equals

__all__ = ["dense", "local_maps", "piecewise_linear", "rectified"]


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
    wide = nn.Linear(3, 5)
    nn.init.normal_(wide.weight, std=6.0)  # so that units reach both ends
    line = [nn.Conv1d(1, 2, 3, dilation=2), nn.Softshrink(0.1), nn.AvgPool1d(2, stride=1)]
    found: dict[str, tuple[nn.Module, Tensor]] = {
        "images": (nn.Sequential(*plane, nn.Flatten(), nn.Linear(27, 2)), torch.randn(5, 2, 3, 4)),
        "units": (
            nn.Sequential(
                *units, Maxout(4, 3, 3), AbsUnit(), wide, nn.Hardsigmoid(), nn.Linear(5, 5)
            ),
            torch.randn(5, 2),
        ),
        "lines": (
            nn.Sequential(*line, nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.ReLU6()),
            torch.randn(5, 1, 8),
        ),
        "branches": (Branches(3, 2), torch.randn(5, 3)),
    }
    return {name: (model.eval(), x) for name, (model, x) in found.items()}


def local_maps(name: str, model: nn.Module, x: Tensor) -> Iterator[Evidence]:
    """Maps of cells against autograd, at points and along a segment between two of them."""
    A, b = local_affine_map(model, x)
    tol = 1e-7 if name == "units" else 1e-9  # torch's slope of Hardsigmoid is in single precision
    for i, point in enumerate(x):
        slope = torch.autograd.functional.jacobian(lambda v: model(v[None]).flatten(), point)
        wanted, value = slope.flatten(1), model(point[None]).flatten().detach()
        yield equals("matrix of the local affine map", A[i], wanted, tol=tol, network=name, point=i)
        offset = value - wanted @ point.flatten()
        yield equals("offset of the local affine map", b[i], offset, tol=tol, network=name, point=i)
    breaks, maps = regions_along(model, x[0], x[1])
    ends = torch.cat([torch.zeros(1), breaks, torch.ones(1)])
    for share in (0.0, 0.3, 1.0):  # at both ends of each piece, and inside
        r = torch.lerp(ends[:-1], ends[1:], share)
        values = model(torch.stack([torch.lerp(x[0], x[1], v) for v in r.tolist()])).flatten(1)
        line = maps[..., 0] + r[:, None] * maps[..., 1]
        yield equals("values along a segment", line, values, network=name, share=share)
    if x.ndim == 2:
        yield from plane_maps(name, model, x)


def plane_maps(name: str, model: nn.Module, x: Tensor) -> Iterator[Evidence]:
    """Regions on a plane with skew axes: their patterns, maps and slopes."""
    plane = Plane(x[0], x[1] - x[0], (x[1] + x[2]) / 2, (-1.0, -0.5), (1.0, 2.0))
    found = linear_regions(model, plane)
    check = certify_regions(model, found, samples=1)
    yield equals("distinct patterns among regions", check.patterns, check.regions, network=name)
    yield equals("points with another pattern than their region", check.strays, 0, network=name)
    yield equals("area that regions miss", check.area_gap, 0.0, network=name)
    for corner in range(3):
        st = torch.lerp(found.centres, found.corners[:, corner], 0.5)
        value = found.maps[..., 0] + (found.maps[..., 1:] @ st[..., None])[..., 0]
        wanted = model(plane.at(st)).detach()
        yield equals("values on regions of a plane", value, wanted, network=name, corner=corner)
    basis = torch.linalg.qr(torch.stack([plane.u, plane.v], 1)).Q
    slopes = local_affine_map(model, plane.at(found.centres)).A @ basis
    sizes = slopes.square().sum((1, 2)).sqrt()
    yield equals("steepness along the plane", found.gradient_norms, sizes, network=name)
