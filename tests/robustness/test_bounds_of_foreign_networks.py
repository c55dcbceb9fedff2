"""Bounds go through the residual networks of transformers, and refuse its attention by name."""

import pytest
import torch

from tests.robustness.test_foreign_networks import images, network, predictions
from vademecum.robustness import (
    certified_accuracy,
    crown_bounds,
    interval_bounds,
    lipschitz,
    pgd,
)
from vademecum.testing.laws import changes, snapshot


@pytest.mark.parametrize("bounds", [interval_bounds, crown_bounds])
def test_a_residual_network(bounds):
    model, x = network("resnet"), images()[:3]
    before = snapshot(model)
    found = bounds(model, x, norm="linf", radius=0.001)
    assert list(changes(before, snapshot(model))) == []
    noise = 0.001 * torch.randn(40, *x.shape).sign()
    with torch.no_grad():
        model.eval()
        run = torch.stack([model((x + e).clamp(0, 1)).logits for e in noise])
        model.train()
    assert (found.lower <= run).all()
    assert (run <= found.upper).all()
    point = bounds(model, x, norm="linf", radius=0.0)
    assert (point.upper - point.lower).max() < 0.1  # of logits about one, in single precision


def test_what_follows_for_a_residual_network():
    model, x = network("resnet"), images()[:4]
    y = predictions(model, x)
    found = certified_accuracy(model, x, y, norm="l2", radius=0.001, attack=pgd)
    assert found.certified <= found.attacked <= found.clean == 1.0
    assert "Winograd" in found.assumes
    steep = lipschitz(model, x[:2], norm="l2", radius=0.01)
    assert (steep.lower > 0).all()
    assert (steep.lower <= steep.upper).all()


@pytest.mark.parametrize("bounds", [interval_bounds, crown_bounds, lipschitz])
def test_attention_is_refused_by_name(bounds):
    model, x = network("vit"), images()[:2]
    with pytest.raises(ValueError, match="model must consist of steps whose bounds are known, got"):
        bounds(model, x, norm="linf", radius=0.01)
