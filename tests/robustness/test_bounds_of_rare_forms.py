"""Bounds hold for tensors that meet themselves, dilated windows, tiny weights and odd slopes."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vademecum.robustness import crown_bounds, interval_bounds, lipschitz

BOTH = pytest.mark.parametrize("bounds", [interval_bounds, crown_bounds])
DUAL = {"linf": 1.0, "l2": 2.0, "l1": math.inf}


class By(nn.Module):
    """A function of the input and of layers."""

    def __init__(self, function, *layers):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x):
        return self.function(x, *self.layers)


@BOTH
@pytest.mark.parametrize("norm", DUAL)
@pytest.mark.parametrize("join", [lambda x: torch.cat([x, x], 1), lambda x: torch.hstack([x, x])])
def test_a_tensor_joined_to_itself(bounds, norm, join):
    layer = nn.Linear(6, 4).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    model = By(lambda x, layer: layer(join(x)), layer)
    found = bounds(model, x, norm=norm, radius=0.5, box=None, arithmetic="real")
    both = (layer.weight[:, :3] + layer.weight[:, 3:]).detach()
    reach = 0.5 * torch.linalg.vector_norm(both, DUAL[norm], dim=1)
    middle = (x @ both.T + layer.bias).detach()
    assert (found.upper >= middle + reach - 1e-12).all()
    assert (found.lower <= middle - reach + 1e-12).all()
    if bounds is crown_bounds:
        torch.testing.assert_close(found.upper, middle + reach, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("norm", "wanted"), [("l2", 2**0.5), ("linf", 1.0), ("l1", 2.0)])
@pytest.mark.parametrize(
    "model",
    [
        By(lambda x: torch.cat([x, x], 1)),
        By(lambda x: F.max_pool1d(x[:, None], 2, stride=2, dilation=2)),  # 0, 2; 2, 4; ...
        By(lambda x: F.max_pool1d(x[:, None], 2, stride=4, dilation=4)),
        By(lambda x: F.max_pool1d(x[:, None], 3, stride=2, dilation=1)),
    ],
    ids=["cat", "two", "four", "plain"],
)
def test_entries_that_count_twice(model, norm, wanted):
    found = lipschitz(model, torch.randn(20, 13, dtype=torch.float64), norm=norm)
    assert found.upper == pytest.approx(wanted)
    assert wanted * 0.999 <= found.lower <= found.upper


@BOTH
@pytest.mark.parametrize("arithmetic", ["real", "float"])
@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1e-25), (torch.float64, 1e-190)])
def test_weights_whose_squares_underflow(bounds, arithmetic, dtype, scale):
    layer = nn.Linear(5, 3, bias=False, dtype=dtype)
    layer.weight.data *= scale
    for model in (layer, nn.Sequential(layer, nn.ReLU())):
        found = bounds(model, torch.zeros(1, 5, dtype=dtype), norm="l2", radius=1.0, box=None,
                       arithmetic=arithmetic)  # fmt: skip
        reach = (layer.weight.detach().double() / scale).norm(dim=1) * scale
        assert (found.upper[0].double() >= reach * (1 - 1e-12)).all()
        assert (found.upper[0].double() <= reach * 1.001).all() or bounds is interval_bounds


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda x: torch.sub(x, x, alpha=0.9999999), "sub"),
        (lambda x: torch.add(x, x, alpha=-0.9999999), "add"),
        (lambda x: F.avg_pool2d(x.view(-1, 1, 2, 2), 2, divisor_override=-3), "avg_pool2d"),
    ],
)
@BOTH
def test_what_is_rounded_more_than_is_left_of_it_is_refused(bounds, function, word):
    with pytest.raises(ValueError, match=word):
        bounds(By(function), torch.rand(3, 4), norm="linf", radius=0.0)


@BOTH
def test_a_tensor_and_itself(bounds):
    x = torch.rand(30, 4)
    for model in (
        By(lambda x: x + x),
        By(lambda x: x - x),
        By(lambda x: torch.add(x, x, alpha=-1)),
    ):
        found = bounds(model, x, norm="linf", radius=0.0)
        assert (found.lower <= model(x)).all()
        assert (found.upper >= model(x)).all()


@BOTH
def test_dilated_windows_share_entries(bounds):
    layer = nn.Linear(1, 5, dtype=torch.float64)  # the middle entry, in both windows, may be large
    layer.weight.data = torch.tensor([[0.05], [0.0], [0.75], [0.0], [0.05]], dtype=torch.float64)
    layer.bias.data = torch.tensor([1.05, 0.0, 1.25, 0.0, 0.05], dtype=torch.float64)
    model = By(lambda x, layer: F.max_pool1d(layer(x)[:, None], 2, stride=2, dilation=2), layer)
    found = bounds(model, torch.zeros(1, 1, dtype=torch.float64), norm="linf", radius=1.0, box=None)
    points = model(torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]).detach()
    assert (points >= found.lower).all()
    assert (points <= found.upper).all()


@pytest.mark.parametrize("slope", [-100.0, -7.0, -1.0, -0.3, 0.1, 0.7, 1.0, 3.0])
@pytest.mark.parametrize("max_iter", [0, 4])
def test_slopes_below_zero_of_any_size(slope, max_iter):
    model = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(slope), nn.Linear(8, 2))
    x = torch.rand(4, 3)
    found = crown_bounds(model, x, norm="linf", radius=0.5, box=None, max_iter=max_iter)
    with torch.no_grad():
        y = model(x + torch.rand(300, 1, 3).sub(0.5)).view(300, 4, 2)
    assert (y >= found.lower).all()
    assert (y <= found.upper).all()


UNITS = {
    **{f"leaky {s}": nn.LeakyReLU(s) for s in (0.01, 0.1, 0.3, 0.7, -0.3, 2.7)},
    "clamp": By(lambda x: x.clamp(-0.1, 0.7)), "gelu": nn.GELU(), "gelu tanh": nn.GELU("tanh"),
    "silu": nn.SiLU(), "elu": nn.ELU(1.7), "softplus": nn.Softplus(3.0), "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(), "hardsigmoid": nn.Hardsigmoid(),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("name", UNITS)
def test_the_run_of_a_unit_alone(bounds, name):
    x = 3 * torch.randn(5000, 1)
    found, y = bounds(UNITS[name], x, norm="linf", radius=0.0, box=None), UNITS[name](x)
    assert (y >= found.lower).all()
    assert (y <= found.upper).all()


@pytest.mark.parametrize("norm", DUAL)
def test_linear_bounds_are_never_wider_not_by_one_unit_in_the_last_place(norm):
    for _ in range(5):
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5))
        x = torch.rand(4, 3)
        wide, narrow = (
            f(model, x, norm=norm, radius=0.01) for f in (interval_bounds, crown_bounds)
        )
        assert (narrow.lower >= wide.lower).all()
        assert (narrow.upper <= wide.upper).all()


@BOTH
@pytest.mark.parametrize("norm", DUAL)
@pytest.mark.parametrize("last", [lambda z: z, torch.relu, torch.sigmoid, lambda z: 2 * z - 1])
def test_one_number_for_each_example(bounds, norm, last):
    """A score without an axis of its own, beside that of a constant class."""

    def scores(x, layer):
        z = last(layer(x).reshape(-1))
        return torch.stack([torch.zeros_like(z), z], 1)

    layer = nn.Linear(3, 1).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    model, spec = By(scores, layer), torch.tensor([[[-1.0, 1.0]]]).double().expand(5, 1, 2)
    knobs = {"norm": norm, "radius": 0.5, "box": None, "arithmetic": "real"}
    found = bounds(model, x, spec=spec, **knobs)
    middle = (x @ layer.weight.T + layer.bias).detach()[:, 0]
    reach = 0.5 * float(torch.linalg.vector_norm(layer.weight.detach(), DUAL[norm]))
    low, high = last(middle - reach), last(middle + reach)
    assert (found.lower[:, 0] <= low + 1e-12).all()
    assert (found.upper[:, 0] >= high - 1e-12).all()
    if last is not torch.sigmoid:  # whose linear bounds are not tight
        slack = 0.0 if last is not torch.relu else reach
        assert (found.lower[:, 0] >= low - slack - 1e-9).all()
        assert (found.upper[:, 0] <= high + slack + 1e-9).all()
