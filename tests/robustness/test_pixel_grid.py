"""Perturbations on the grid of pixels: whole steps within radius and box."""

import pytest
import torch

from tests.robustness.test_threats import ALL, away, threat
from vademecum.robustness import deepfool
from vademecum.robustness.attacks._pixel_grid import _value, on_grid, snapped


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", ALL)
def test_points_on_the_grid_lie_in_ball_and_box(norm, dtype):
    q = 1 / 255
    x = torch.randint(0, 256, (20, 3, 4)).to(dtype) / 255
    radius = {"linf": 8.3 / 255, "l2": 0.2, "l1": 0.7, "l0": 3}[norm]
    rule = threat(x, norm, radius)
    assert on_grid(q, x) == q
    point = snapped(rule, x, rule.project(x, x + 0.3 * torch.randn_like(x)), q)
    assert torch.equal((point.double() * 255).round().to(dtype) / 255, point)
    assert bool((away(x, point, norm) <= radius).all())
    assert float(point.min()) >= 0
    assert float(point.max()) <= 1
    assert bool(
        (away(x, point, norm) >= (0.8 if norm != "linf" else 8 / 8.3) * radius - 1e-6).all()
    )
    assert torch.equal(snapped(rule, x, x, q), x)


def test_steps_on_the_grid_are_whole_and_nearest():
    x = torch.tensor([[0.0, 0.25, 0.5, 0.75]])
    rule = threat(x, "linf", 0.3)
    z = rule.project(x, x + torch.tensor([[0.2, -0.11, 0.13, 0.3]]))
    found = snapped(rule, x, z, 0.25)
    torch.testing.assert_close(found, torch.tensor([[0.25, 0.25, 0.75, 1.0]]))
    other = snapped(threat(x, "linf", 0.2), x, z, 0.25)  # no whole step fits
    assert torch.equal(other, x)
    wide = snapped(threat(x, "l1", 0.6), x, x + torch.tensor([[0.24, -0.1, 0.2, 0.0]]), 0.25)
    torch.testing.assert_close(wide, torch.tensor([[0.25, 0.25, 0.75, 0.75]]))


@pytest.mark.parametrize("norm", ALL)
@pytest.mark.parametrize(("dtype", "high"), [(torch.float32, 0.3), (torch.float16, 0.7)])
def test_points_of_the_grid_are_not_rounded_out_of_the_box(norm, dtype, high):
    """The multiple 3 of 0.1 is above 0.3 in single precision, so that 0.2 is the last one inside.

    As 7 of them are in half precision.
    """
    last = round(10 * high)
    assert torch.tensor(last / 10, dtype=dtype).double() > high
    x = (torch.arange(last).repeat(4, 1) / 10).to(dtype)
    rule = threat(x, norm, 2 if norm == "l0" else 0.25, box=(0.0, high))
    found = snapped(rule, x, rule.project(x, x + 1), 0.1)
    assert float(found.double().max()) <= high
    assert torch.equal(found[:, -1], x[:, -1])
    assert not torch.equal(found, x)
    assert bool((away(x, found, norm) <= rule.radius.double()).all())


def test_inputs_off_the_grid_are_refused():
    with pytest.raises(ValueError, match=r"x must lie on the grid of quantum = 0.25, got 0.3"):
        on_grid(0.25, torch.tensor([[0.25, 0.3]]))
    with pytest.raises(ValueError, match=r"x must lie on the grid of quantum = 0.25"):
        on_grid(0.25, torch.tensor([[0.5 * (1 + 100 * 2.0**-23)]]))  # a hundred roundings off
    on_grid(0.1, torch.tensor([[0.1 + 0.1 + 0.1, 0.7]]))  # and a few
    with pytest.raises(ValueError, match="quantum must be > 0, got 0"):
        on_grid(0, torch.zeros(1, 1))


def test_steps_of_the_grid_are_rounded_as_far_as_the_radius_goes():
    q, x = 1 / 8, torch.full((1, 5), 0.5, dtype=torch.float64)
    z = x + q * torch.tensor([[1.5, 0.6, 0.2, -2.0, -0.3]], dtype=torch.float64)
    for norm, radius, wanted in (
        ("linf", 1.9 * q, [1, 1, 0, -1, 0]),
        ("l2", 9 * q, [2, 1, 0, -2, -1]),
        ("l2", 3 * q, [2, 1, 0, -2, 0]),  # 4 + 1 + 4, and 1 more would be too much
        ("l1", 5 * q, [2, 1, 0, -2, 0]),
        ("l1", 3 * q, [1, 0, 0, -2, 0]),
    ):
        allowed = threat(x, norm, radius * (1 + 1e-9))
        near = allowed.nearest(x, z) if norm == "linf" else z
        assert ((snapped(allowed, x, near, q) - x) / q).round().tolist() == [wanted], (norm, radius)


def test_steps_that_lead_far_out_of_the_ball_end_on_the_grid_at_its_edge():
    """`deepfool` goes as far as it must; within two steps of the grid nothing changes the class."""
    model = torch.nn.Linear(3, 2, bias=False)
    model.weight.data = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    x = torch.full((2, 3), 100 / 255)
    found = deepfool(model, x, torch.zeros(2).long(), norm="linf", radius=2.5 / 255,
                     quantum=1 / 255)  # fmt: skip
    assert not found.fooled.any()
    torch.testing.assert_close(found.x * 255, torch.full((2, 3), 98.0))


def test_pixels_in_double_precision_are_whole_numbers_over_255():
    """Not whole numbers times a rounded 1/255, which are others; a step of 0.3 is what it is."""
    k = torch.arange(256, dtype=torch.float64)
    assert _value(k, 1 / 255, k).equal(k / 255)
    assert not (k * (1 / 255)).equal(k / 255)
    assert _value(k, 0.3, k).equal(k * 0.3)
