"""Attacks and draws in half precision, and of tensors that inference mode made."""

import pytest
import torch
from torch import nn

from tests.robustness.attacked import ATTACKS, CASES, RADIUS, attack, examples, logits, network
from tests.robustness.test_attack_laws import away
from vademecum.robustness import fgsm, gradient_alignment, robust_accuracy, sample_ball

HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


@HALF
@pytest.mark.parametrize(("name", "norm"), CASES)
def test_attacks_keep_to_the_radius_and_count_what_they_fool(name, norm, dtype):
    """A gap of 64 units would be half of the largest logit: half of what is fooled."""
    net = network(dtype)
    x, y = examples(net, dtype=dtype)
    radius = RADIUS[norm] * 3
    found = attack(name, net, x, y, norm, radius=radius)
    assert (away(x, found.x, norm) <= radius).all()
    assert found.x.min() >= 0
    assert found.x.max() <= 1
    wrong = logits(net, found.x).argmax(1) != y
    assert (wrong | ~found.fooled).all()
    assert int(found.fooled.sum()) >= int(wrong.sum()) - 3
    assert int(wrong.sum()) >= 3


def test_the_plain_accuracy_is_that_of_half_precision():
    net = network(torch.bfloat16)
    x, y = examples(net, 100, dtype=torch.bfloat16)
    y = torch.where(torch.arange(100) % 2 == 0, y, (y + 1) % 5)
    found = robust_accuracy(net, x, y, radii=[0.0], attack=fgsm)
    assert abs(float(found.accuracy[0]) - 0.5) <= 0.1


@HALF
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("d", [3, 3000, 100_000])
def test_draws_in_half_precision_lie_in_the_ball(norm, d, dtype):
    x = sample_ball(max(4, 1000 // d), (d,), norm=norm, radius=0.1, dtype=dtype)
    size = away(torch.zeros_like(x), x, norm)
    assert size.max() <= 0.1
    if d > 3:
        assert size.min() > 0.09


def test_alignment_in_half_precision_sums_in_single():
    """In 8 bits a sum of a thousand numbers below 1 stays at 256."""
    model = nn.Linear(2, 2, bias=False).bfloat16()
    model.weight.data = torch.eye(2).bfloat16()
    y = (torch.arange(1100) >= 1000).long()
    x = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).bfloat16()[y]
    found = gradient_alignment(model, x, y).with_classes
    torch.testing.assert_close(found, torch.ones(1100), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ATTACKS)
def test_inputs_that_inference_mode_made(name):
    net = network()
    plain, y = examples(net, 6)
    with torch.inference_mode():
        x = plain * 1
    assert torch.equal(attack(name, net, x, y, "linf").x, attack(name, net, plain, y, "linf").x)
