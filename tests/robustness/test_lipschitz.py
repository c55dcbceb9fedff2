"""The Lipschitz sandwich against dense matrices, exact regions and pairs of points."""
# pyright: reportCallIssue=false

import math

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from tests.robustness.exact_ranges import random_mlp
from vademecum.approximation import input_plane, linear_regions
from vademecum.robustness import lipschitz
from vademecum.testing.laws import changes, snapshot

NORMS = pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
ORDER = {"l2": 2, "linf": math.inf, "l1": 1}


def jacobian(model, x):
    return torch.autograd.functional.jacobian(lambda z: model(z[None])[0].flatten(), x).flatten(1)


def slope(model, points, norm):
    """How much farther apart the images of two points are, in double precision."""
    model, (a, b) = model.double().eval(), points.double()
    moved = torch.linalg.vector_norm((model(a[None]) - model(b[None])).flatten(), ORDER[norm])
    return float(moved.detach() / torch.linalg.vector_norm((a - b).flatten(), ORDER[norm]))


@NORMS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_layer_is_known(norm, dtype):
    torch.manual_seed(0)
    layer = nn.Linear(6, 4, dtype=dtype)
    wanted = float(torch.linalg.matrix_norm(layer.weight.detach().double(), ORDER[norm]))
    for found in (
        lipschitz(layer, norm=norm),
        lipschitz(layer, torch.rand(3, 6, dtype=dtype), norm=norm, radius=0.1),
    ):
        assert (found.lower <= wanted * (1 + 1e-15)).all()
        assert (found.upper >= wanted).all()
        assert (found.gap < 1 + 1e-4).all()
        assert found.points.dtype == dtype


CONVOLUTIONS = [
    (3, 1, 1, 1, 1), (4, 1, 1, 1, 1), (4, 2, 1, 1, 1), (5, 3, 2, 1, 1), (3, 1, 0, 2, 1),
    (2, 2, 0, 1, 1), (3, 2, 1, 1, 2), (1, 1, 0, 1, 1), (4, 1, 2, 2, 1),
]  # fmt: skip


@NORMS
@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation", "groups"), CONVOLUTIONS)
def test_convolutions_from_above(norm, kernel, stride, padding, dilation, groups):
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 4, kernel, stride, padding, dilation, groups)
    x = torch.rand(1, 2, 9, 8)
    exact = float(torch.linalg.matrix_norm(jacobian(layer, x[0]).double(), ORDER[norm]))
    found = float(lipschitz(layer, x, norm=norm).upper)
    assert found >= exact * (1 - 1e-6)
    assert found <= exact * (1.4 if norm == "l2" else 1 + 1e-6)


def test_the_reshaped_kernel_is_no_bound():
    """What torch divides by is smaller than the norm of the convolution: the product is none."""
    torch.manual_seed(0)
    layer, x = nn.Conv2d(3, 4, 3, padding=1, bias=False), torch.rand(1, 3, 8, 8)
    kernel = float(torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2))
    normed = spectral_norm(layer, n_power_iterations=200).eval()
    exact = float(torch.linalg.matrix_norm(jacobian(normed, x[0]), 2))
    assert float(torch.linalg.matrix_norm(normed.weight.detach().flatten(1), 2)) < 1.01
    assert exact > 1.5  # though torch calls it 1
    found = lipschitz(normed, x, norm="l2")
    assert float(found.lower) > 1.5
    assert exact * (1 - 1e-6) <= float(found.upper) < 1.3 * exact
    assert kernel > 0


@NORMS
def test_pairs_attain_the_lower_bound(norm):
    torch.manual_seed(0)
    model = random_mlp(5, 12, 9, 3)
    x = torch.rand(4, 5).double()
    found = lipschitz(model, x, norm=norm)
    assert slope(model, found.points, norm) == pytest.approx(float(found.lower), rel=1e-9)
    assert slope(model, found.points, norm) == pytest.approx(float(found.slope), rel=1e-12)
    assert found.lower <= found.slope
    assert found.lower <= found.upper
    local = lipschitz(model, x, norm=norm, radius=0.2)
    assert (local.lower <= local.upper).all()
    assert (local.upper <= found.upper).all()
    for i in range(4):
        steep = slope(model, local.points[i], norm)
        assert steep == pytest.approx(float(local.lower[i]), rel=1e-9)
        assert steep == pytest.approx(float(local.slope[i]), rel=1e-12)
        gap = (local.points[i] - x[i]).flatten(1)
        assert (torch.linalg.vector_norm(gap, ORDER[norm], dim=1) <= 0.2).all()
        assert ((local.points[i] >= 0) & (local.points[i] <= 1)).all()


@NORMS
def test_what_rounding_leaves_nothing_of_is_still_told(norm):
    """In 40 layers boxes grow so far that they enclose any slope; the steepest pair is given."""
    torch.manual_seed(0)
    model, x = random_mlp(5, *[60] * 40, 3), torch.rand(4, 5).double()
    found = lipschitz(model, x, norm=norm)
    assert float(found.lower) == 0
    assert float(found.slope) == pytest.approx(slope(model, found.points, norm), rel=1e-6)
    single = [float(lipschitz(model, each[None], norm=norm).slope) for each in x]
    assert 0 < min(single) < 0.99 * max(single)
    assert float(found.slope) == pytest.approx(max(single), rel=1e-3)  # 60 steps, each rounded


@NORMS
def test_pairs_climb_to_where_a_network_is_steepest(norm):
    """A sigmoidal step of slope 8 at 0.7, far from where the search begins, at 0.5."""
    model = nn.Sequential(nn.Linear(1, 1), nn.Tanh()).double()
    model[0].weight.data, model[0].bias.data = (torch.tensor(v).double() for v in ([[8.0]], [-5.6]))
    found = lipschitz(model, torch.tensor([[0.5]]).double(), norm=norm, radius=0.3)
    assert 7.5 < float(found.lower) <= 8 <= float(found.upper) < 8.01
    assert float(found.points.mean()) == pytest.approx(0.7, abs=0.03)


@NORMS
def test_the_steepest_of_all_inputs_counts(norm):
    torch.manual_seed(0)
    model, x = random_mlp(5, 12, 3, unit=nn.Tanh), torch.rand(6, 5).double()
    alone = [float(lipschitz(model, each[None], norm=norm).lower) for each in x]
    assert max(alone) > 1.01 * min(alone)
    assert float(lipschitz(model, x, norm=norm).lower) == pytest.approx(max(alone), rel=1e-6)


def test_a_ball_without_room_has_no_pair():
    found = lipschitz(nn.Linear(3, 2), torch.rand(2, 3), norm="l2", radius=0.0)
    assert found.lower.tolist() == found.slope.tolist() == [0.0, 0.0]


def nets():
    torch.manual_seed(0)
    yield random_mlp(4, 10, 8, 3, unit=nn.Tanh), (4,)
    yield random_mlp(4, 10, 8, 3, unit=nn.GELU), (4,)
    yield random_mlp(4, 10, 8, 3, unit=lambda: nn.LeakyReLU(-0.5)), (4,)
    yield random_mlp(4, 10, 8, 3, unit=nn.ELU), (4,)
    conv = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 2), nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip
    yield conv.double().eval(), (1, 6, 6)
    overlapping = nn.Sequential(
        nn.MaxPool2d(3, stride=2, padding=1), nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(27, 2)
    )
    yield overlapping.double(), (2, 8, 8)


@NORMS
def test_no_jacobian_of_a_ball_exceeds_the_local_bound(norm):
    for model, shape in nets():
        x = torch.rand(2, *shape).double()
        found = lipschitz(model, x, norm=norm, radius=0.1)
        total = lipschitz(model, x, norm=norm)
        assert (found.lower <= found.upper).all()
        assert found.lower.max() > 0.02 * float(found.upper.max())
        for i in range(2):
            for _ in range(12):
                z = (x[i] + 0.1 * (2 * torch.rand(shape) - 1).double() / x[i].numel()).clamp(0, 1)
                size = float(torch.linalg.matrix_norm(jacobian(model, z), ORDER[norm]))
                assert size <= float(found.upper[i]) * (1 + 1e-12)
                assert size <= float(total.upper) * (1 + 1e-12)


@NORMS
def test_within_one_region_all_is_exact(norm):
    torch.manual_seed(3)
    model, x = random_mlp(2, 7, 6, 2), torch.tensor([[0.2, 0.4]]).double()
    low, high = (tuple((x[0] + s * 1e-4).tolist()) for s in (-1, 1))
    regions = linear_regions(model, input_plane(low=low, high=high))
    assert len(regions.maps) == 1
    wanted = float(torch.linalg.matrix_norm(regions.maps[0, :, 1:], ORDER[norm]))
    found = lipschitz(model, x, norm=norm, radius=1e-4)
    assert float(found.upper) == pytest.approx(wanted, rel=1e-6)
    assert float(found.lower) == pytest.approx(wanted, rel=1e-4)


@NORMS
def test_the_largest_slope_of_all_regions_lies_between(norm):
    torch.manual_seed(4)
    model, x = random_mlp(2, 6, 5, 2), torch.tensor([[0.5, 0.5]]).double()
    regions = linear_regions(model, input_plane(low=(0, 0), high=(1, 1)))
    norms = torch.linalg.matrix_norm(regions.maps[..., 1:], ORDER[norm])
    found = lipschitz(model, x, norm="linf" if norm == "linf" else norm, radius=2.0)
    assert float(found.upper) >= float(norms.max()) * (1 - 1e-9)
    assert float(found.lower) <= float(norms.max()) * (1 + 1e-9)
    assert float(found.lower) >= 0.5 * float(norms.max())


def shortcut() -> nn.Module:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.a.weight.data, self.b.weight.data = 2 * torch.eye(3), torch.eye(3)

        def forward(self, x):
            h = x + self.a(x)  # 3
            return torch.cat([h, 4 * self.b(h)], 1)  # 3 and 12

    return Net()


@pytest.mark.parametrize(
    ("norm", "wanted"), [("l2", 3 * math.sqrt(17)), ("linf", 12.0), ("l1", 15.0)]
)
def test_branches_add_up(norm, wanted):
    found = lipschitz(shortcut(), torch.rand(2, 3), norm=norm)
    assert float(found.upper) == pytest.approx(wanted, rel=1e-9)
    assert float(found.lower) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize(("norm", "wanted"), [("l2", 2.0), ("linf", 1.0), ("l1", 4.0)])
def test_overlapping_maxima(norm, wanted):
    """An entry is the largest of up to four windows of 3 x 3 that are two apart."""
    found = lipschitz(nn.MaxPool2d(3, stride=2), torch.rand(2, 1, 7, 7), norm=norm)
    assert float(found.upper) == pytest.approx(wanted, rel=1e-9)


def test_an_unbounded_gap():
    """Layers that never act together: the network is constant, and the product is 1."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[0].weight.data, model[1].weight.data = torch.diag(torch.tensor([1.0, 0])), torch.diag(
        torch.tensor([0.0, 1]))  # fmt: skip
    found = lipschitz(model, norm="l2")
    assert float(found.lower) == 0
    assert float(found.upper) == pytest.approx(1)
    assert float(found.gap) == math.inf
    local = lipschitz(model, torch.rand(1, 2), norm="l2", radius=0.1)
    assert float(local.upper) < 1e-12


def test_layers_are_told():
    found = lipschitz(nn.Sequential(nn.Linear(2, 3), nn.Sigmoid(), nn.Linear(3, 1)), norm="l2")
    names, constants = zip(*found.layers, strict=True)
    assert names[1] == "submodule '1' (Sigmoid)"
    assert constants[1] == 0.25
    assert float(found.upper) == pytest.approx(math.prod(constants))


def test_portions_and_state():
    torch.manual_seed(0)
    model, x = random_mlp(4, 9, 7, 3), torch.rand(5, 4).double()
    before = snapshot(model)
    knobs = {"norm": "l2", "radius": 0.1}
    found = lipschitz(model, x, generator=torch.Generator().manual_seed(0), **knobs)
    part = lipschitz(
        model, x, memory=6 * 3 * 9 * 8, generator=torch.Generator().manual_seed(0), **knobs
    )
    torch.testing.assert_close(found.upper, part.upper)
    assert torch.equal(found.points, part.points)
    with pytest.raises(ValueError, match="memory must be >= 1296 bytes for one example, got 1000"):
        lipschitz(model, x, memory=1000, **knobs)
    assert list(changes(before, snapshot(model))) == []


ERRORS = [
    ({"norm": "l0"}, "norm must be one of 'linf', 'l2', 'l1', got 'l0'"),
    ({"radius": 0.1, "x": None}, "x must be given with radius"),
    ({"radius": -1.0}, "radius must be >= 0, got -1"),
    ({"radius": 0.1, "box": (0.0, 0.5)}, "x must lie in box"),
    ({"model": nn.Conv1d(1, 1, 2), "x": None}, "x must be given for a model that does not begin"),
    (
        {"model": nn.Sequential(nn.Linear(4, 4), nn.Softmax(1))},
        "bounds are known, got submodule '1'",
    ),
]


@pytest.mark.parametrize(("wrong", "words"), ERRORS, ids=range(len(ERRORS)))
def test_errors(wrong, words, unchecked):
    knobs = {"model": nn.Linear(4, 3), "x": torch.linspace(0, 1, 8).view(2, 4), "norm": "l2"}
    with pytest.raises(ValueError, match=words):
        lipschitz(**(knobs | wrong))
