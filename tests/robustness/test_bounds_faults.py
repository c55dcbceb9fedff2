"""Small torus, large balls and radii of their own: what slips through larger tests."""

# pyright: reportCallIssue=false

import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.robustness import certified_accuracy, crown_bounds, interval_bounds, lipschitz, pgd
from vademecum.robustness.bounds import _descent


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("taps", [(1.0, -1.0), (1.0, -2.0, 1.0), (1.0, 1.0)])
def test_padding_counts_for_the_torus(size, taps):
    conv = nn.Conv1d(1, 1, len(taps), padding=1, bias=False, dtype=torch.float64)
    conv.weight.data = torch.tensor(taps, dtype=torch.float64).view(1, 1, -1)
    columns = conv(torch.eye(size, dtype=torch.float64)[:, None]).detach()[:, 0]
    exact = float(torch.linalg.matrix_norm(columns, 2))
    found = lipschitz(conv, torch.randn(3, 1, size, dtype=torch.float64), norm="l2")
    assert found.upper >= exact * (1 - 1e-12)
    if taps == (1.0, -1.0) and size == 3:  # a path of four, whose circle of three has sqrt(3)
        assert exact == pytest.approx(2 * math.cos(math.pi / 8))


@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
def test_bounds_of_balls_are_never_above_those_of_all_inputs(norm):
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.ReLU())]
    model, x = nn.Sequential(*layers, nn.Linear(8, 8)).double(), torch.randn(3, 8).double()
    ball = lipschitz(model, x, norm=norm, radius=1e4, box=None)
    everywhere = lipschitz(model, x, norm=norm)
    assert (ball.upper <= everywhere.upper).all()


def test_examples_keep_their_own_radii():
    model = nn.Linear(1, 2, bias=False)
    model.weight.data = torch.tensor([[-1.0], [1.0]])
    x = torch.tensor([[-0.5], [0.5], [0.5], [-0.5], [0.5]])  # the label is 1 where x > 0
    radius = torch.tensor([0.1, 0.9, 0.1, 0.1, 0.9])
    y = torch.ones(5, dtype=torch.long)
    found = certified_accuracy(model, x, y, norm="linf", radius=radius, box=None, attack=pgd)
    assert (found.margin > 0).tolist() == [False, False, True, False, False]
    assert found.fooled.tolist() == [True, True, False, True, True]
    assert (found.certified, found.attacked, found.clean) == (0.2, 0.2, 0.6)


@pytest.mark.parametrize("arithmetic", ["real", "float"])
def test_examples_keep_their_own_balls(arithmetic):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(),
                          nn.Linear(16, 2))  # fmt: skip
    x, radius = torch.rand(6, 3), torch.tensor([0.5, 0.0, 0.01, 2.0, 0.1, 1e-6])
    knobs = {"norm": "l2", "box": None, "arithmetic": arithmetic, "max_iter": 2}
    together = crown_bounds(model, x, radius=radius, **knobs)
    for i in range(6):
        alone = crown_bounds(model, x[i : i + 1], radius=float(radius[i]), **knobs)
        torch.testing.assert_close(together.lower[i], alone.lower[0], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(together.upper[i], alone.upper[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
@pytest.mark.parametrize("arithmetic", ["real", "float"])
def test_products_that_cancel_at_the_input(norm, arithmetic):
    torch.manual_seed(0)
    for _ in range(10):
        order = torch.randperm(400)
        a, x = torch.randn(2, 200, dtype=torch.float64)
        a, x = torch.cat([a, -a])[order], torch.cat([x, x])[order]  # whose product is 0
        found = crown_bounds(nn.Flatten(), x[None], norm=norm, radius=1e-200, box=None,
                             spec=a[None], arithmetic=arithmetic)  # fmt: skip
        assert found.lower.item() <= 0 <= found.upper.item()


@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
def test_intervals_of_slopes_are_multiplied(norm):
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1), nn.ReLU()).double()
    for layer, shift in ((model[0], 0.0), (model[2], -0.5)):  # slope 1 above 1/2, else 0
        layer.weight.data.fill_(1.0)
        layer.bias.data.fill_(shift)
    x = torch.zeros(1, 1, dtype=torch.float64)
    found = lipschitz(model, x, norm=norm, radius=1.0, box=None)
    assert 1 - 1e-12 <= found.upper.item() <= 1 + 1e-9


class Doubled(nn.Module):
    """Twice the input where that is above 0."""

    def forward(self, x):
        return x + torch.relu(x)


def test_slopes_of_branches_are_added():
    x = torch.full((1, 2), 2.0, dtype=torch.float64)
    found = lipschitz(Doubled(), x, norm="l2", radius=1.0, box=None)
    assert 2 - 1e-12 <= found.upper.item() <= 2 + 1e-9


@pytest.mark.parametrize("bounds", [interval_bounds, crown_bounds])
def test_means_pay_for_their_rounding(bounds):
    """No coefficient is below 0, so that ends go to ends: yet sums in another order are others."""
    x = torch.rand(8, 1, 200) * 10 ** torch.linspace(-3, 3, 200)
    found = bounds(nn.AvgPool1d(200), x, norm="linf", radius=0.0, box=None)
    orders = [x.flip(2), x.sort(2).values, x.double(), x[..., torch.randperm(200)].cumsum(2)]
    means = [each.mean(2) for each in orders[:3]] + [orders[3][..., -1] / 200]
    assert len({float(mean[0]) for mean in means}) > 1
    for mean in means:
        assert (found.lower[:, 0].double() <= mean).all()
        assert (found.upper[:, 0].double() >= mean).all()


def as_matrices(model: nn.Sequential, x: torch.Tensor) -> nn.Sequential:
    """The same network on flat inputs: convolutions as dense layers, by their images of a basis."""
    layers: list[nn.Module] = []
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, nn.Conv2d):
                shape = x.shape[1:]
                zero = layer(x.new_zeros(1, *shape)).flatten()
                basis = torch.eye(shape.numel(), dtype=x.dtype).view(-1, *shape)
                dense = nn.Linear(shape.numel(), len(zero), dtype=x.dtype)
                dense.weight.copy_((layer(basis).flatten(1) - zero).T)
                dense.bias.copy_(zero)
                layers.append(dense)
            elif not isinstance(layer, nn.Flatten):
                layers.append(layer)
            x = layer(x)
    return nn.Sequential(*layers)


@pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_convolutions_are_bounded_as_their_matrices(norm, share, monkeypatch):
    """Windows begin at strides, and are carried back through others; matrices know of neither.

    The first has no padding, at which the dual norm is that of the whole kernel.
    """
    monkeypatch.setattr(_descent, "_MOST", share)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 3, (3, 2)), nn.ReLU(), nn.Conv2d(3, 3, (2, 3), (2, 1), (1, 0)),
        nn.ReLU(), nn.Conv2d(3, 4, (2, 3), (1, 2), 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3),
    ).double()  # fmt: skip
    x = torch.rand(2, 2, 7, 9).double()
    model(x)
    flat = as_matrices(model, x)
    torch.testing.assert_close(flat(x.flatten(1)), model(x))
    knobs = {"norm": norm, "radius": {"linf": 0.2, "l2": 1.0, "l1": 3.0}[norm]}
    found, wanted = crown_bounds(model, x, **knobs), crown_bounds(flat, x.flatten(1), **knobs)
    torch.testing.assert_close(found.lower, wanted.lower, rtol=0, atol=1e-9)
    torch.testing.assert_close(found.upper, wanted.upper, rtol=0, atol=1e-9)


class _Residual(nn.Module):
    """x + W x, then rectified units and a readout."""

    def __init__(self, together: bool):
        super().__init__()
        W = torch.tensor([[-0.5, 0.25], [0.5, -0.75]], dtype=torch.float64)
        self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2, bias=False)
        self.first.weight.data = W + torch.eye(2).double() if together else W
        self.first.bias.data = torch.tensor([0.1, -0.05]).double()
        self.last.weight.data = torch.tensor([[1.0, -2.0], [0.5, 1.0]]).double()
        self.together = together

    def forward(self, x):
        """The outputs."""
        h = self.first(x) if self.together else x + self.first(x)
        return self.last(h.relu())


def test_a_sum_with_the_input_is_narrowed_as_the_layer_that_it_is():
    """Its intervals are too wide, since both terms hang on the input; linear functions see that."""
    x = torch.tensor([[0.4, 0.3], [0.2, 0.6]]).double()
    knobs: Any = {"norm": "linf", "radius": 0.2, "box": None, "arithmetic": "real"}
    apart, one = (crown_bounds(_Residual(both), x, **knobs) for both in (False, True))
    torch.testing.assert_close(apart.lower, one.lower, rtol=0, atol=1e-12)
    torch.testing.assert_close(apart.upper, one.upper, rtol=0, atol=1e-12)


def test_a_ball_that_a_box_cuts_is_bounded_by_both():
    """Entries at the ends of the box go one way only, whatever the radius."""
    layer = nn.Linear(2, 2, bias=False).double()
    layer.weight.data = torch.eye(2).double()
    x = torch.tensor([[0.0, 1.0]]).double()
    found = interval_bounds(layer, x, norm="l2", radius=0.25, box=(0.0, 1.0), arithmetic="real")
    torch.testing.assert_close(
        found.lower, torch.tensor([[0.0, 0.75]]).double(), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(
        found.upper, torch.tensor([[0.25, 1.0]]).double(), rtol=0, atol=1e-12
    )
