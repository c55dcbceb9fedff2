"""Bounds hold for the network that runs; those of real numbers do not, and searches show it."""

import itertools

import pytest
import torch
from torch import nn

from tests.robustness.exact_ranges import random_mlp
from vademecum.robustness import certified_accuracy, crown_bounds, interval_bounds, pgd
from vademecum.robustness._threat import as_threat
from vademecum.robustness.bounds._network import read_network
from vademecum.robustness.bounds._region import as_region
from vademecum.robustness.bounds._rounding import (
    read_arithmetic,
)
from vademecum.robustness.bounds._solver import Solver

BOTH = pytest.mark.parametrize("bounds", [interval_bounds, crown_bounds])


def attacked_at_the_corner(d: int, trials: int):
    """Linear classifiers whose margin at the worst corner is just above 0, as Jin et al. have them.

    Inputs and radius are multiples of 2**-10, so that the corner is a float and the margin there,
    computed in fractions, is exact to 1e-12.
    """
    torch.manual_seed(0)
    for _ in range(trials):
        w = torch.randn(d)
        x = torch.randint(100, 900, (1, d)) / 1024
        corner = x - torch.sign(w) * 2**-7
        layer = nn.Linear(d, 2, bias=False)
        layer.weight.data = torch.stack([w, torch.zeros(d)])
        layer.bias = nn.Parameter(torch.zeros(2))
        layer.bias.data[1] = torch.nextafter(
            (corner.double() @ w.double()).float()[0], torch.tensor(-torch.inf)
        )
        exact = float((corner.double() @ w.double())[0] - layer.bias.data[1].double())
        assert exact > 0
        yield layer, x, corner, exact


def double(z):
    return z.detach().double()


@BOTH
def test_rounding_breaks_exact_certificates_and_not_ours(bounds):
    spec, broken = torch.tensor([[1.0, -1.0]]), 0
    for layer, x, corner, exact in attacked_at_the_corner(d=200, trials=40):
        knobs = {"norm": "linf", "radius": 2**-7, "spec": spec}
        real = bounds(layer, x, arithmetic="real", **knobs)
        assert float(real.lower) == pytest.approx(exact, rel=1e-6, abs=1e-11)
        run = [layer(corner), layer(corner.repeat(5, 1))[:1]]
        run += [layer.weight.data @ corner[0] + layer.bias.data]
        run += [torch.stack([(corner * row).cumsum(1)[0, -1] for row in layer.weight.data])
                + layer.bias.data]  # fmt: skip
        margins = [float(z.flatten()[0] - z.flatten()[1]) for z in map(double, run)]
        broken += float(real.lower) > 0 and min(margins) <= 0
        floats = bounds(layer, x, arithmetic="float", **knobs)
        assert float(floats.lower) <= min(margins)
        assert max(margins) <= float(floats.upper)
        assert float(floats.lower) > float(real.lower) - 1e-2  # and not by being useless
    assert broken >= 10


def absorbing() -> nn.Sequential:
    """The identity for real numbers; in single precision a large constant swallows its input."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
    for p, v in zip(model.parameters(), ([[1.0]], [2.0**26], [[1.0]], [-(2.0**26)]), strict=True):
        p.data = torch.tensor(v)
    return model


@BOTH
def test_a_network_that_behaves_otherwise_in_floats(bounds):
    """As by Szász, Bánhelyi and Jelasity: certified for real numbers, wrong when it runs."""
    model, x = absorbing(), torch.tensor([[3.0], [0.7]])
    run = model(x).detach()
    assert run.flatten().tolist() == [0.0, 0.0]
    knobs = {"norm": "linf", "radius": 0.1, "box": None}
    real = bounds(model, x, arithmetic="real", **knobs)
    torch.testing.assert_close(real.lower, x.double() - 0.1, rtol=0, atol=1e-6)
    assert (run < real.lower).all()
    floats = bounds(model, x, arithmetic="float", **knobs)
    assert (floats.lower <= run).all()
    assert (run <= floats.upper).all()
    double = bounds(model.double(), x.double(), arithmetic="float", **knobs)
    torch.testing.assert_close(double.lower, x.double() - 0.1, rtol=0, atol=1e-6)


@BOTH
def test_a_first_layer_that_cancels(bounds):
    """Its sum is small and its terms are not; the layers after it add nothing to that."""
    model = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1, bias=False))
    for p, v in zip(model.parameters(), ([[1.0, 2.0**26]], [-(2.0**26)], [[1.0]]), strict=True):
        p.data = torch.tensor(v)
    x = torch.tensor([[27.0, 1.0]])
    run = (x[:, :1] + 2.0**26) - 2.0**26  # as a sum from left to right has it
    assert float(run) == 24.0
    knobs = {"norm": "linf", "radius": 0.0, "box": None}
    found, real = bounds(model, x, **knobs), bounds(model, x, arithmetic="real", **knobs)
    assert float(real.lower) == pytest.approx(27, abs=1e-6)
    assert float(found.lower) <= float(run) <= float(found.upper)


@pytest.mark.parametrize("kind", ["dense", "convolution"])
def test_entries_of_a_layer_pay_for_its_rounding(kind):
    """Bounds of single entries start at the rows of a layer; they are those of unit vectors."""
    torch.manual_seed(0)
    if kind == "dense":
        model, x = random_mlp(6, 900, 4, 2, dtype=torch.float32), torch.rand(2, 6)
    else:
        model = nn.Sequential(nn.Conv2d(1, 64, 3), nn.ReLU(), nn.Conv2d(64, 3, 2), nn.ReLU())
        x = torch.rand(2, 1, 6, 6)
    how = read_arithmetic("float", x)
    network = read_network(model, x, how.own)
    region = as_region(x, as_threat(x, "linf", 1e-6, None, outward=True), how)
    with torch.no_grad():
        solver = Solver(network, region, how)
        solver.sweep()
        step, index = network.steps[2], torch.tensor([[0, 2, 1], [1, 0, 2]])
        found = solver.descent.least(solver.descent.entries(2, index))
        rows = torch.eye(torch.Size(network.shapes[step.output]).numel())[index]
        rows = torch.cat([rows, -rows], 1).view(2, 6, *network.shapes[step.output])
        wanted = solver.descent.least(solver.descent.of(step.output, rows))
        slack = solver.descent.passages[2].slack
    assert slack is not None
    assert (found - wanted).abs().max() < 0.05 * float(slack.min())


def test_certificates_follow():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = absorbing()

        def forward(self, x):
            z = self.inner(x)
            return torch.cat([z - 0.5, -z + 0.5], 1)

    x, y = torch.tensor([[1.0]]), torch.tensor([1])  # whom the run, not the function, takes for 1
    knobs = {"norm": "linf", "radius": 0.1, "box": None, "attack": pgd}
    floats = certified_accuracy(Two(), x, y, **knobs)
    assert (floats.certified, floats.clean) == (0.0, 1.0)
    real = certified_accuracy(Two(), x, torch.tensor([0]), arithmetic="real", **knobs)
    assert real.certified == 0.0  # only what the run takes for its label is looked at
    assert real.clean == 0.0


def networks():
    torch.manual_seed(0)
    yield random_mlp(6, 20, 20, 3, dtype=torch.float32), (6,)
    yield random_mlp(6, 15, 15, 15, 3, unit=nn.Tanh, dtype=torch.float32), (6,)
    yield random_mlp(5, 16, 16, 4, unit=nn.GELU, dtype=torch.float32), (5,)
    yield random_mlp(5, 16, 16, 4, unit=lambda: nn.LeakyReLU(0.2), dtype=torch.float32), (5,)
    yield nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 2), nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(5, 3),
    ), (2, 6, 6)  # fmt: skip
    yield nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 9), nn.ReLU(), nn.Linear(9, 3),
    ), (1, 7, 7)  # fmt: skip


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_no_input_leaves_the_bounds(norm, scale):
    """Random, extreme and attacked inputs, with large weights too, all run in single precision."""
    torch.manual_seed(1)
    trials = 0
    for model, shape in networks():
        model.eval()
        with torch.no_grad():
            next(model.parameters()).mul_(scale)
        x = torch.rand(4, *shape)
        radius = torch.tensor([0.0, 1e-4, 0.05, 0.4])
        found = [
            interval_bounds(model, x, norm=norm, radius=radius),
            crown_bounds(model, x, norm=norm, radius=radius),
            crown_bounds(model, x, norm=norm, radius=radius, max_iter=2),
        ]
        points = inside(model, x, radius, norm)
        trials += points.shape[0] * points.shape[1]
        with torch.no_grad():
            images = model(points.flatten(0, 1)).unflatten(0, points.shape[:2])
        for each in found:
            assert (each.lower <= images).all()
            assert (images <= each.upper).all()
    assert trials >= 1_700  # for each of six cases


def inside(model, x, radius, norm):
    """Points of the balls: random ones, corners, and those that a few steps of ascent find."""
    threat, starts = as_threat(x, norm, radius, (0.0, 1.0)), [x]
    starts += [threat.project(x, x + 2 * torch.randn_like(x) * s) for s in (0.01, 0.1, 1) * 18]
    r = radius.view(-1, *[1] * (x.ndim - 1))
    starts += [threat.project(x, x + r * torch.randn_like(x).sign()) for _ in range(10)]
    with torch.no_grad():
        k = model(x).shape[1]
    for out, sign in itertools.product(range(k), (1, -1)):
        z = x.clone()
        for _ in range(3):
            z.requires_grad_()
            (g,) = torch.autograd.grad(sign * model(z)[:, out].sum(), z)
            z = threat.project(x, z.detach() + r * threat.step(g))
        starts.append(z)
    return torch.stack(starts)


def test_sums_in_any_order():
    """The widening counts terms: a large number first, and it swallows all others."""
    layer = nn.Linear(4000, 1, bias=False)
    layer.weight.data = torch.ones(1, 4000)
    x = torch.full((1, 4000), 2.0**-25)
    x[0, 0] = 1.0
    knobs = {"norm": "linf", "radius": 0.0, "box": None}
    total = torch.zeros(())
    for v in x[0].tolist():
        total = total + v
    assert float(total) == 1.0
    real = interval_bounds(layer, x, arithmetic="real", **knobs)
    assert float(real.lower) == pytest.approx(1 + 3999 * 2.0**-25, abs=1e-9)
    for bounds in (interval_bounds, crown_bounds):
        found = bounds(layer, x, **knobs)
        assert float(found.lower) <= float(total) <= float(found.upper)
        assert float(found.lower) > 0.999
