"""Alignment of input gradients, against linear classifiers and finite differences."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

from tests.robustness.digit_networks import digits, honest
from vademecum.robustness import gradient_alignment


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_alignment_of_the_nearest_mean_is_1(dtype):
    torch.manual_seed(0)
    means = 3 * torch.randn(4, 7).to(dtype)
    y = torch.arange(40) % 4
    x = means[y] + torch.randn(40, 7).to(dtype)
    own = torch.stack([x[y == k].mean(0) for k in range(4)])
    model = nn.Linear(7, 4).to(dtype)
    model.weight.data, model.bias.data = own, -own.square().sum(1) / 2
    found = gradient_alignment(model, x, y)
    assert torch.allclose(found.with_classes, torch.ones(40).to(dtype), atol=1e-5)
    assert found.mean == pytest.approx(1, abs=1e-5)


def test_cosines_are_those_of_dense_gradients():
    _, _, x, y = digits()
    x, y = x[:50], y[:50]
    model = honest("convolutions")
    found = gradient_alignment(model, x, y)
    means = {int(k): x[y == k].mean(0).flatten() for k in y.unique()}
    for i in range(0, 50, 7):
        at = x[i : i + 1].clone().requires_grad_()
        z = model(at)[0]
        rivals = [k for k in means if k != int(y[i])]
        j = max(rivals, key=z.detach().__getitem__)
        g = torch.autograd.grad(z[y[i]] - z[j], at)[0].flatten()
        wanted = cosine_similarity(g, means[int(y[i])] - means[j], dim=0)
        assert float(found.with_classes[i]) == pytest.approx(float(wanted), abs=1e-5)
        wanted = cosine_similarity(g, x[i].flatten(), dim=0).abs()
        assert float(found.with_input[i]) == pytest.approx(float(wanted), abs=1e-5)
    assert (found.with_input >= 0).all()
    assert found.mean == pytest.approx(float(found.with_classes.mean()), abs=1e-6)
    error = float(found.with_classes.std()) / math.sqrt(50)
    assert found.standard_error == pytest.approx(error, abs=1e-6)


def test_rivals_are_classes_that_occur():
    model = nn.Linear(2, 3, bias=False)
    model.weight.data = torch.tensor([[1.0, 0.0], [0.0, 5.0], [-1.0, 0.5]])
    x, y = torch.tensor([[1.0, 1.0], [-1.0, 1.0]]), torch.tensor([0, 2])
    found = gradient_alignment(model, x, y)
    assert torch.allclose(found.with_classes, torch.full((2,), 2 / 4.25**0.5))
    wrong = gradient_alignment(model, x, y.flip(0))  # whose margins are negative
    assert torch.allclose(wrong.with_classes, -found.with_classes)
    assert torch.allclose(wrong.with_input, torch.tensor([1.5, 2.5]) / 8.5**0.5)


def test_robust_networks_are_better_aligned():
    _, _, x, y = digits()
    plain, robust = (gradient_alignment(honest(name), x, y) for name in ("relu", "robust"))
    assert robust.mean > plain.mean + 5 * plain.standard_error
    assert robust.with_input.mean() > plain.with_input.mean()


def test_scales_do_not_matter_and_zero_gradients_count_as_0():
    class Scaled(nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.scale = scale

        def forward(self, x):
            return self.scale * torch.stack([x[:, 0] + x[:, 1], x[:, 0]], 1)

    x, y = torch.tensor([[1.0, 3.0], [0.5, -1.0]]), torch.tensor([0, 1])
    plain = gradient_alignment(Scaled(1.0), x, y)
    for scale in (1e-25, 1e25):
        assert torch.allclose(gradient_alignment(Scaled(scale), x, y)[2], plain[2])
    zero = gradient_alignment(Scaled(0.0), x, y)
    assert (zero.with_classes == 0).all()
    assert (zero.with_input == 0).all()


def test_memory_and_preprocessing():
    _, _, x, y = digits()
    x, y = x[:40], y[:40]
    model = honest("relu")
    whole = gradient_alignment(model, x, y)
    parts = gradient_alignment(model, x, y, memory=40_000)
    assert torch.allclose(whole.with_classes, parts.with_classes, atol=1e-6)
    shifted = gradient_alignment(model, x / 2, y, preprocess=lambda x: 2 * x)
    assert torch.allclose(whole.with_classes, shifted.with_classes, atol=1e-5)
    with pytest.raises(ValueError, match=r"memory must be >= \d+ bytes for one example, got 10"):
        gradient_alignment(model, x, y, memory=10)


def test_bad_arguments_are_refused(unchecked):
    model, x = nn.Linear(2, 3), torch.rand(4, 2)
    with pytest.raises(ValueError, match="y must have at least two classes, got only 1"):
        gradient_alignment(model, x, torch.ones(4).long())
    with pytest.raises(ValueError, match="y must be between 0 and 2"):
        gradient_alignment(model, x, torch.arange(4))
    with pytest.raises(ValueError, match="x must be finite, got nan"):
        gradient_alignment(model, x * float("nan"), torch.arange(4) % 2)
    with pytest.raises(ValueError, match=r"logits of shape \(.*\) with k >= 2 classes"):
        gradient_alignment(nn.Linear(2, 1), x, torch.arange(4) % 2)
