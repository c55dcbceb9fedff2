"""Rows of the room `approximation`: exact linear regions, and the affine maps on them."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from bench.harness import Row
from vademecum.approximation.local_affine import local_affine_map
from vademecum.approximation.regions import Plane, Regions, linear_regions
from vademecum.models import mlp

__all__ = ["rows"]

SIDE = 4096  # points along a side of the grid


def rows(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    model = _network(device)
    yield _regions(model, device)
    yield _maps(model, device)


def _network(device: torch.device) -> nn.Sequential:
    net = mlp((784, 256, 256, 256, 10))
    for dense in net:
        if isinstance(dense, nn.Linear):
            nn.init.kaiming_normal_(dense.weight)
            nn.init.normal_(dense.bias, std=0.1)
    return net.to(device).eval()


def _regions(model: nn.Sequential, device: torch.device) -> Row:
    """Regions on a slice, against a tenth of the grid: a ratio of 1 is ten times its speed."""
    u, v = nn.functional.normalize(torch.randn(2, 784), dim=1).to(device).unbind()
    reach = 28.0
    plane = Plane(torch.randn(784, device=device), u, v, (-reach, -reach), (reach, reach))
    count = len(linear_regions(model, plane).maps)
    side = torch.linspace(-reach, reach, SIDE, device=device)
    code = torch.randint(2**40, (768,), device=device).double()

    @torch.no_grad()
    def grid() -> Tensor:
        """The activation patterns on every tenth line of the grid, each as a number, once."""
        found = []
        for t in side[5::10]:
            h, pattern = plane.at(torch.cartesian_prod(side, t[None])), []
            for layer in model:
                h = layer(h)
                pattern += [h > 0] if isinstance(layer, nn.ReLU) else []
            found.append((torch.cat(pattern, 1).double() @ code).unique())
        return torch.cat(found).unique()

    def agree(ours: Regions, seen: Tensor) -> None:
        area = float(ours.areas.sum()) / (2 * reach) ** 2
        assert abs(area - 1) < 1e-9, "the regions do not tile the rectangle"
        assert len(seen) <= len(ours.maps), "the grid sees more regions than there are"

    flops = (
        16.8e6 * 2 * sum(layer.weight.numel() for layer in model if isinstance(layer, nn.Linear))
    )
    limit = (
        f"the grid's {flops / 1e12:.0f} TFLOP: 68 s at 165 GFLOP/s" if device.type == "cpu" else ""
    )
    return Row(f"linear_regions, 784-256-256-256-10, {count} regions",
               lambda: linear_regions(model, plane), {f"a tenth of a {SIDE} x {SIDE} grid": grid},
               agree, limit, rounds=3)  # fmt: skip


def _maps(model: nn.Sequential, device: torch.device) -> Row:
    x = torch.randn(1000, 784, device=device)

    def value(z: Tensor) -> tuple[Tensor, Tensor]:
        y = model(z)
        return y, y

    def by_jacobian() -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            a, y = torch.func.vmap(torch.func.jacrev(value, has_aux=True))(x)
            return a, y - (a @ x[..., None])[..., 0]

    def agree(ours: tuple[Tensor, Tensor], peer: tuple[Tensor, Tensor]) -> None:
        for mine, theirs in zip(ours, peer, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)

    limit = "7.3 GFLOP: 44 ms at 165 GFLOP/s" if device.type == "cpu" else ""
    peers = {"torch.func vmap(jacrev)": by_jacobian}
    return Row("local_affine_map, 1000 points, 784-256-256-256-10",
               lambda: local_affine_map(model, x), peers, agree, limit)  # fmt: skip
