"""The instruments of `approximation`, which read a model as piecewise linear, against autograd."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bench.outside.answers import complaint
from bench.outside.cases import Subject
from bench.outside.derivatives import Check
from bench.outside.oracles import Oracle
from vademecum.approximation import (
    Plane,
    Regions,
    activation_pattern,
    certify_regions,
    dc_split,
    dead_units,
    fit_readout,
    linear_regions,
    local_affine_map,
    plane_through,
    regions_along,
)

__all__ = ["PIECES"]


def _affine(s: Subject, o: Oracle) -> Iterator[str]:
    A, b = local_affine_map(s.model, s.x, output=s.output)
    n = len(s.x)
    rows = o.in_x.view(n, -1, n, s.x[0].numel())
    wanted = torch.stack([rows[i, :, i] for i in range(n)])
    yield complaint("A", A, wanted, o.case.coarse)
    value = o.output.reshape(n, -1)
    yield complaint("A x + b", torch.einsum("nkd,nd->nk", A, s.x.flatten(1)) + b, value,
                    o.case.coarse)  # fmt: skip


def _slopes(o: Oracle, x: Tensor) -> Tensor:
    """For each point, the gradient of a random combination of its outputs."""
    leaf = x.detach().clone().requires_grad_()
    z = o.output_of(leaf).flatten(1)
    u = torch.linspace(1, 2, z.shape[1], dtype=z.dtype)
    return torch.autograd.grad((z * u).sum(), leaf)[0].flatten(1)


def _pattern(s: Subject, o: Oracle) -> Iterator[str]:
    """Points with equal patterns have equal slopes, and a point close by has the same pattern."""
    a, b = s.x[:1], s.x[1:2]
    r = torch.tensor([0.0, 1e-13, 1e-3, 2e-3, 0.3, 1.0]).to(a).view(-1, *[1] * (a.ndim - 1))
    x = torch.lerp(a, b, r)
    pattern, slopes = activation_pattern(s.model, x, output=s.output), _slopes(o, x)
    if not torch.equal(pattern[0], pattern[1]):
        yield "the pattern changes within 1e-13"
    for i in range(len(x)):
        for j in range(i):
            same = torch.equal(pattern[i], pattern[j])
            if same:
                yield complaint("slope within a cell", slopes[i], slopes[j], o.case.coarse)


def _plane(s: Subject, radius: float) -> Plane:
    plane = plane_through(*(p.double() for p in s.x[:3]))
    return plane._replace(low=(-radius, -radius), high=(radius, radius))


def _found(s: Subject) -> Regions:
    """Regions on a rectangle so small that there are not too many."""
    radius = 0.1
    while True:
        try:
            return linear_regions(s.model, _plane(s, radius), max_regions=100, output=s.output)
        except ValueError as error:
            if "max_regions" not in str(error) or radius < 1e-6:
                raise
            radius /= 4


def _regions(s: Subject, o: Oracle) -> Iterator[str]:
    found = _found(s)
    plane, size = found.plane, (found.plane.high[0] - found.plane.low[0]) ** 2
    yield complaint("sum of the areas", found.areas.sum(), torch.tensor(size), o.case.coarse)
    at = found.areas.argsort(descending=True)[:8]
    st = found.centres[at]
    x = plane.at(st).to(s.x.dtype).view(-1, *s.x.shape[1:])
    value = o.output_of(x).detach().flatten(1)
    ours = found.maps[at] @ torch.cat([torch.ones_like(st[:, :1]), st], 1)[..., None]
    yield complaint("value on regions", ours[..., 0], value, s.x.dtype)
    u = torch.linspace(1, 2, value.shape[1], dtype=s.x.dtype)
    basis = torch.stack([plane.u, plane.v]).flatten(1).to(s.x)
    wanted = _slopes(o, x) @ basis.T
    slopes = torch.einsum("nkd,k->nd", found.maps[at, :, 1:].to(u), u)
    yield complaint("slope on regions", slopes, wanted, s.x.dtype)


def _certified(s: Subject, o: Oracle) -> Iterator[str]:
    found = certify_regions(
        s.model, _found(s), generator=torch.Generator().manual_seed(0), output=s.output
    )
    if not found.holds:
        yield f"{found}"


def _along(s: Subject, o: Oracle) -> Iterator[str]:
    a, b = s.x[0], torch.lerp(s.x[0], s.x[1], 0.01)
    found = regions_along(s.model, a, b, output=s.output)
    ends = torch.cat([found.breaks.new_zeros(1), found.breaks, found.breaks.new_ones(1)])
    if not bool((ends.diff() > 0).all()):
        yield "breaks do not increase"
    at = ends.diff().argsort(descending=True)[:8]
    r = ((ends[:-1] + ends[1:]) / 2)[at]
    x = torch.stack([torch.lerp(a, b, float(each)) for each in r])
    value = o.output_of(x).detach().flatten(1)
    ours = found.maps[at, :, 0] + r[:, None] * found.maps[at, :, 1]
    yield complaint("value between breaks", ours, value, s.x.dtype)
    u = torch.linspace(1, 2, value.shape[1], dtype=s.x.dtype)
    wanted = _slopes(o, x) @ (b - a).flatten()
    yield complaint("slope between breaks", found.maps[at, :, 1].to(u) @ u, wanted, s.x.dtype)


class _Rectifiers(TorchDispatchMode):
    """Counts the entries of rectifiers that are flat for all examples, at the level of ATen."""

    def __init__(self):
        super().__init__()
        self.dead = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.rstrip("_")
        if name == "relu":
            self.dead += int((args[0] <= 0).all(0).sum())
        elif name in ("hardtanh", "clamp", "clamp_min"):
            low, high = (*args[1:], None, None)[:2]
            flat = args[0] <= (low if low is not None else -1.0)
            flat |= args[0] > high if high is not None else False
            self.dead += int(flat.all(0).sum())
        return func(*args, **(kwargs or {}))


def _dead(s: Subject, o: Oracle) -> Iterator[str]:
    found = sum(int(layer.dead.sum()) for layer in dead_units(s.model, s.x, output=s.output))
    with torch.no_grad(), _Rectifiers() as seen:
        o.model(s.x)
    if found != seen.dead:
        yield f"{found} dead units, not {seen.dead}"


def _split(s: Subject, o: Oracle) -> Iterator[str]:
    g, h, _ = dc_split(s.model, s.x, output=s.output)
    with torch.no_grad():
        gap = float((g(s.x) - h(s.x) - o.output).abs().max())
        size = s.x[0].numel() + sum(o.sizes)
        allowed = 10 * size**0.5 * torch.finfo(s.x.dtype).eps * float(g(s.x).abs().max())
        if gap > allowed:
            yield f"g - h is off by {gap:.2g}, where {allowed:.2g} is the rounding of the parts"
        a, b = s.x, s.x.roll(1, 0)
        for name, part in (("g", g), ("h", h)):
            middle, mean = part((a + b) / 2), (part(a) + part(b)) / 2
            slack = torch.finfo(s.x.dtype).eps ** 0.5 * float(mean.abs().max())
            if bool((middle > mean + slack).any()):
                yield f"{name} is not convex"


def _readout(s: Subject, o: Oracle) -> Iterator[str]:
    if o.output.ndim != 2:
        return
    y = torch.linspace(-1, 1, len(s.x), dtype=s.x.dtype)
    layer = fit_readout(s.model, s.x, y)
    columns = torch.cat([torch.ones_like(o.output[:, :1]), o.output], 1).double()
    wanted = columns @ torch.linalg.pinv(columns) @ y.double()
    found = layer(o.output).detach()[:, 0]
    found, wanted = (torch.cat([z.double(), y.double()]) for z in (found, wanted))
    yield complaint("predictions", found, wanted, o.case.coarse)  # a projection rounds like y


PIECES: dict[str, Check] = {
    "local_affine_map": _affine, "activation_pattern": _pattern, "linear_regions": _regions,
    "certify_regions": _certified, "regions_along": _along, "dead_units": _dead,
    "dc_split": _split, "fit_readout": _readout,
}  # fmt: skip
"""What asks each instrument, by its name."""
