"""Every step that bounds know, against its matrix or against a fine grid; others are refused."""
# pyright: reportAttributeAccessIssue=false

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vademecum.robustness import crown_bounds, interval_bounds
from vademecum.robustness.bounds import _descent
from vademecum.robustness.bounds._network import read_network
from vademecum.robustness.bounds._rounding import read_arithmetic
from vademecum.robustness.bounds._transposed import transposed
from vademecum.robustness.bounds._unit_steps import UnitStep
from vademecum.testing.laws import changes, snapshot


class Calls(nn.Module):
    """A module that is one function of its input."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def normalised(kind, channels):
    layer = kind(channels).double()
    with torch.no_grad():
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.3, 2)
        layer.weight.normal_()
        layer.bias.normal_()
    return layer


AFFINE = {
    "dense": (lambda: nn.Linear(5, 3), (5,)),
    "dense on rows": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Flatten()), (2, 4)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, padding=1, stride=2), (2, 7)),
    "conv2d": (lambda: nn.Conv2d(2, 4, 3, padding=(1, 2), stride=(2, 1)), (2, 6, 5)),
    "conv2d of one channel": (lambda: nn.Conv2d(1, 3, 4, padding=1, stride=2), (1, 7, 7)),
    "conv2d with groups": (lambda: nn.Conv2d(4, 4, 3, groups=2, dilation=2), (4, 7, 6)),
    "conv2d same": (lambda: nn.Conv2d(1, 2, 3, padding="same", dilation=2), (1, 5, 5)),
    "conv2d circular": (
        lambda: nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), (1, 5, 5)),
    "conv2d reflected": (
        lambda: nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), (1, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2, stride=2), (1, 4, 4, 3)),
    "transposed conv": (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), (2, 3, 4)),
    "batch norm": (lambda: normalised(nn.BatchNorm1d, 4), (4,)),
    "batch norm of images": (lambda: normalised(nn.BatchNorm2d, 3), (3, 4, 2)),
    "average pooling": (lambda: nn.AvgPool2d(3, stride=2, padding=1), (2, 7, 6)),
    "adaptive pooling": (lambda: nn.AdaptiveAvgPool2d((2, 3)), (2, 7, 5)),
    "mean": (lambda: Calls(lambda _, x: x.mean((2, 3))), (3, 4, 2)),
    "sum": (lambda: Calls(lambda _, x: x.sum(-1)), (3, 4)),
    "shortcut": (lambda: Calls(lambda m, x: x + 3 * m.a(x) - m.a(x) / 7, a=nn.Linear(4, 4)), (4,)),
    "side by side": (
        lambda: Calls(lambda m, x: torch.cat([x, -m.a(x), torch.ones(len(x), 1, dtype=x.dtype)], 1),
                      a=nn.Linear(3, 2)), (3,)),
    "pieces": (
        lambda: Calls(lambda m, x: m.a(x[:, 1:4]) + x.chunk(2, 1)[0], a=nn.Linear(3, 3)), (6,)),
    "order": (lambda: Calls(lambda _, x: x.permute(0, 2, 1).reshape(len(x), -1).flip(1)), (2, 3)),
    "shift and scale": (
        lambda: Calls(lambda _, x: (x - 0.3) * torch.tensor([-2.0, 3.0], dtype=x.dtype)), (2,)),
    "broadcast": (lambda: Calls(lambda _, x: x + x.mean(1, keepdim=True)), (4,)),
    "constants": (lambda: Calls(lambda _, x: x + torch.ones(len(x), 4).to(x).type_as(x)), (4,)),
    "matrix": (lambda: Calls(lambda m, x: x @ m.w, w=nn.Parameter(torch.randn(4, 3))), (4,)),
    "offset and matrix": (
        lambda: Calls(lambda m, x: torch.addmm(m.b, x, m.w), w=nn.Parameter(torch.randn(4, 3)),
                      b=nn.Parameter(torch.randn(3))), (4,)),
    "two layers": (lambda: nn.Sequential(nn.Linear(4, 9), nn.Dropout(), nn.Linear(9, 3)), (4,)),
}  # fmt: skip


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", AFFINE)
def test_affine_maps_are_exact(name, norm):
    torch.manual_seed(0)
    make, shape = AFFINE[name]
    model, x = make().double().eval(), torch.randn(2, *shape).double()
    centre = model(x).detach().flatten(1)
    M = torch.autograd.functional.jacobian(lambda z: model(z[None])[0].flatten(), x[0]).flatten(1)
    reach = 0.2 * torch.linalg.vector_norm(M, 1 if norm == "linf" else 2, dim=1)
    knobs = {"norm": norm, "radius": 0.2, "box": None}
    for arithmetic in ("real", "float"):
        found = crown_bounds(model, x, arithmetic=arithmetic, **knobs)
        assert found.lower.shape == model(x).shape
        torch.testing.assert_close(found.lower.flatten(1), centre - reach, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(found.upper.flatten(1), centre + reach, rtol=1e-11, atol=1e-11)
        wide = interval_bounds(model, x, arithmetic=arithmetic, **knobs)
        assert (wide.lower <= found.lower).all()
        assert (wide.upper >= found.upper).all()
    several = ("shortcut", "two layers", "pieces", "broadcast", "conv2d reflected")
    if name not in several and norm == "linf":
        torch.testing.assert_close(wide.lower.flatten(1), centre - reach, rtol=1e-11, atol=1e-11)


UNITS = {
    "relu": nn.ReLU(), "leaky": nn.LeakyReLU(0.1), "very leaky": nn.LeakyReLU(-0.5),
    "steep": nn.LeakyReLU(3.0), "prelu": nn.PReLU(5, init=0.3), "relu6": nn.ReLU6(),
    "hardtanh": nn.Hardtanh(-0.5, 2.0), "hardsigmoid": nn.Hardsigmoid(), "sigmoid": nn.Sigmoid(),
    "tanh": nn.Tanh(), "gelu": nn.GELU(), "gelu by tanh": nn.GELU("tanh"), "silu": nn.SiLU(),
    "elu": nn.ELU(), "other elu": nn.ELU(0.5), "steep elu": nn.ELU(2.0),
    "softplus": nn.Softplus(), "sharp softplus": nn.Softplus(5.0),
    "abs": Calls(lambda _, x: x.abs()),
    "clamp": Calls(lambda _, x: x.clamp(max=0.7)), "above": Calls(lambda _, x: x.clamp(min=-0.2)),
}  # fmt: skip


def intervals(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    middle = 3 * torch.randn(n, 5)
    half = torch.randn(n, 5).abs() * 10 ** torch.linspace(-8, 0.6, n)[:, None]
    return middle - half, middle + half


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", UNITS)
def test_units_run_between_their_lines(name, dtype):
    """Also in floats, at the ends, in the middle and where they bend."""
    model = copy.deepcopy(UNITS[name]).to(dtype)
    step = read_network(model, torch.zeros(1, 5, dtype=dtype), dtype).steps[0]
    assert isinstance(step, UnitStep)
    how = read_arithmetic("float", torch.zeros(1, dtype=dtype))
    l, u = (end.to(dtype) for end in intervals(300))
    with torch.no_grad():
        lines, (low, high) = step.lines((l, u), how), step.box((l, u), how)
        flat, steep = step.slopes((l.double(), u.double()))
    for share in torch.linspace(0, 1, 41):
        z = torch.lerp(l, u, share.to(dtype)).clamp(l, u)
        exact, run = model.double()(z.double()).detach(), model.to(dtype)(z).detach()
        for y in (exact, run.double()):
            assert (low.double() <= y).all()
            assert (y <= high.double()).all()
            below = lines.low_slope.double() * z.double() + lines.low.double()
            above = lines.high_slope.double() * z.double() + lines.high.double()
            here = 4 * 2.0**-52 * (1 + z.double().abs())  # rounding of these two lines
            assert (below <= y + here).all()
            assert (y <= above + here).all()
        z = z.double().requires_grad_()
        (slope,) = torch.autograd.grad(model.double()(z).sum(), z)
        inside = (z > l) & (z < u)
        assert (flat <= slope + 1e-8)[inside].all()
        assert (slope <= steep + 1e-8)[inside].all()
        assert (slope.abs() <= torch.as_tensor(step.unit.steep).double() + 1e-8).all()


TIGHT = {"relu": 0.5, "leaky": 0.45, "tanh": 0.4, "sigmoid": 0.1, "gelu": 0.5, "hardtanh": 0.6}


@pytest.mark.parametrize("name", TIGHT)
def test_lines_are_near(name):
    """On [-1, 1] the lines are nowhere farther apart than the triangle or the chords allow."""
    step = read_network(UNITS[name], torch.zeros(1, 5), torch.float64).steps[0]
    how = read_arithmetic("real", torch.zeros(1))
    l = -torch.ones(1, 5).double()
    with torch.no_grad():
        lines = step.lines((l, -l), how)
    apart = [
        (lines.high - lines.low) + z * (lines.high_slope - lines.low_slope) for z in (-1, 0, 1)
    ]
    assert float(torch.stack(apart)[1].max()) <= TIGHT[name] + 1e-6


def test_a_rectifier_has_the_lines_of_the_paper():
    step = read_network(nn.ReLU(), torch.zeros(1, 4), torch.float64).steps[0]
    l = torch.tensor([[-1.0, -3.0, 1.0, -2.0]]).double()
    u = torch.tensor([[3.0, 1.0, 2.0, -1.0]]).double()
    lines = step.lines((l, u), read_arithmetic("real", torch.zeros(1)))
    assert lines.high_slope.tolist() == [[0.75, 0.25, 1.0, 0.0]]
    torch.testing.assert_close(lines.high, torch.tensor([[0.75, 0.75, 0.0, 0.0]]).double())
    assert lines.low_slope.tolist() == [[1.0, 0.0, 1.0, 0.0]]
    assert lines.low.tolist() == [[0.0, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "pool",
    [nn.MaxPool2d(2), nn.MaxPool2d(3, stride=2, padding=1), nn.MaxPool2d((2, 3), stride=1),
     nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(2, dilation=2, stride=1)],
    ids=str,
)  # fmt: skip
def test_maxima_of_windows(pool):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), pool, nn.Flatten(), nn.LazyLinear(3))
    x = torch.rand(3, 1, 6, 7).double()
    model.double()(x)
    noise = (torch.rand(400, 1, 1, 6, 7).double() * 2 - 1) * 0.1
    images = model((x + noise).clamp(0, 1).flatten(0, 1)).unflatten(0, (400, 3)).detach()
    wide = interval_bounds(model, x, norm="linf", radius=0.1)
    found = crown_bounds(model, x, norm="linf", radius=0.1)
    assert (found.lower <= images.amin(0)).all()
    assert (images.amax(0) <= found.upper).all()
    assert (wide.lower <= found.lower).all()
    small = crown_bounds(model, x, norm="linf", radius=1e-9)  # where maxima are decided
    M = torch.autograd.functional.jacobian(lambda z: model(z[None])[0], x[0]).flatten(1)
    if pool.stride == pool.kernel_size:
        half = (small.upper - small.lower)[0] / 2
        torch.testing.assert_close(half, 1e-9 * M.abs().sum(1), rtol=1e-3, atol=1e-13)


def residual() -> nn.Module:
    torch.manual_seed(0)

    def block(m, x):
        h = m.bn(m.first(x)).relu()
        h = (m.second(h) + m.short(x)).relu_()
        h = torch.cat([h, F.max_pool2d(h, 3, 1, 1)], 1)
        return m.last(F.adaptive_avg_pool2d(h, 1).flatten(1))

    return Calls(
        block, first=nn.Conv2d(2, 3, 3, padding=1, bias=False), bn=normalised(nn.BatchNorm2d, 3),
        second=nn.Conv2d(3, 3, 3, padding=1), short=nn.Conv2d(2, 3, 1), last=nn.Linear(6, 4),
    ).double().eval()  # fmt: skip


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_branches_that_meet_again(norm):
    model, x = residual(), torch.rand(3, 2, 5, 4).double()
    noise = torch.randn(500, 1, *x.shape[1:]).double().flatten(2)
    p = {"linf": math.inf, "l2": 2, "l1": 1}[norm]
    noise = 0.1 * noise / torch.linalg.vector_norm(noise, p, dim=2, keepdim=True)
    points = (x + noise.unflatten(2, x.shape[1:])).clamp(0, 1)
    images = model(points.flatten(0, 1)).unflatten(0, points.shape[:2]).detach()
    wide = interval_bounds(model, x, norm=norm, radius=0.1)
    for max_iter in (0, 3):
        found = crown_bounds(model, x, norm=norm, radius=0.1, max_iter=max_iter)
        assert (found.lower <= images.amin(0)).all()
        assert (images.amax(0) <= found.upper).all()
        assert (found.upper - found.lower).mean() < 0.9 * (wide.upper - wide.lower).mean()


@pytest.mark.parametrize("max_iter", [0, 3])
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_windows_are_only_a_shorter_way(norm, max_iter, monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, (2, 3), stride=2, padding=1),
        nn.LeakyReLU(), nn.Conv2d(4, 4, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3),
    ).double()  # fmt: skip
    x = torch.rand(2, 1, 8, 9).double()
    model(x)
    found = []
    for share in (0.0, 0.5, 2.0):
        monkeypatch.setattr(_descent, "_MOST", share)
        found.append(crown_bounds(model, x, norm=norm, radius=0.1, max_iter=max_iter))
    for other in found[1:]:
        torch.testing.assert_close(found[0].lower, other.lower, rtol=0, atol=1e-10)
        torch.testing.assert_close(found[0].upper, other.upper, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kernel", [2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 2])
def test_transposed_convolutions(kernel, stride, padding):
    torch.manual_seed(0)
    for size, channels in ((9, 1), (10, 3), (11, 8)):
        weight = torch.randn(5, channels, kernel, kernel).double()
        x = torch.randn(2, channels, size, size + 1).double().requires_grad_()
        y = F.conv2d(x, weight, None, stride, padding)
        rows = torch.randn_like(y)
        (wanted,) = torch.autograd.grad(y, x, rows)
        found = transposed(rows, weight, [stride] * 2, [padding] * 2, x.shape[2:])
        torch.testing.assert_close(found, wanted)


def test_models_are_left_as_they_are():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.BatchNorm2d(2),
        nn.ReLU(),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(8, 2),
    )
    model[0].weight.requires_grad_(False)
    model.train()
    x = torch.rand(2, 1, 4, 4)
    model(x).sum().backward()
    before = snapshot(model)
    for bounds in (interval_bounds, crown_bounds):
        for arithmetic in ("real", "float"):
            bounds(model, x, norm="l2", radius=0.1, arithmetic=arithmetic)
    assert list(changes(before, snapshot(model))) == []
