"""Average relative robustness, against the closed form of linear classifiers."""
# pyright: reportArgumentType=false

import math
from functools import partial

import pytest
import torch
from torch import nn

from tests.robustness.digit_networks import digits, honest
from vademecum.robustness import average_robustness, deepfool


def binary(dtype):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return nn.Linear(4, 2).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("norm", "p", "q"), [("l2", 2, 2), ("linf", math.inf, 1)])
def test_average_robustness_of_linear_classifiers(norm, p, q, dtype):
    model = binary(dtype)
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)).to(dtype) * 3
    w = (model.weight[0] - model.weight[1]).detach()
    score = (x @ w + model.bias[0] - model.bias[1]).detach().abs()
    ratio = score / (torch.linalg.vector_norm(w, q) * torch.linalg.vector_norm(x, p, dim=1))
    found = average_robustness(model, x, norm=norm, box=None)
    assert torch.allclose(found.ratio, 1.02 * ratio.double(), rtol=2e-4)
    assert found.mean == pytest.approx(1.02 * float(ratio.mean()), rel=2e-4)
    assert found.standard_error == pytest.approx(1.02 * float(ratio.std()) / 12**0.5, rel=1e-3)
    assert found.missed == 0


def test_wrong_labels_count_as_0_and_none_are_the_predictions():
    model, x = binary(torch.float64), torch.rand(6, 4).double() + 0.1
    y = model(x).argmax(1)
    found = average_robustness(model, x, box=None)
    assert torch.equal(found.ratio, average_robustness(model, x, y, box=None).ratio)
    y[0] = 1 - y[0]
    other = average_robustness(model, x, y, box=None)
    assert other.ratio[0] == 0
    assert other.mean == pytest.approx(float(found.ratio[1:].sum()) / 6)


def test_missed_examples_are_counted_and_left_out():
    _, _, x, _ = digits()
    model, x = honest("tanh"), x[:20]
    one = average_robustness(model, x, attack=partial(deepfool, steps=1))
    many = average_robustness(model, x)
    assert many.missed == 0 < one.missed == int(one.ratio.isinf().sum())
    kept = one.ratio[one.ratio.isfinite()]
    assert one.mean == pytest.approx(float(kept.mean()))
    assert one.standard_error == pytest.approx(float((kept.var() / len(kept)).sqrt()))

    def never(model, x, y, **knobs):
        found = deepfool(model, x, y, **knobs)
        return found._replace(fooled=torch.zeros_like(found.fooled))

    none = average_robustness(model, x, attack=never)
    assert none.missed == 20
    assert none.mean == math.inf
    assert math.isnan(none.standard_error)


def test_robust_networks_have_more():
    _, _, x, y = digits()
    plain, robust = (
        average_robustness(honest(name), x[:60], y[:60]) for name in ("relu", "robust")
    )
    assert robust.mean > 1.1 * plain.mean


def test_bad_arguments_are_refused(unchecked):
    model, x = binary(torch.float64), torch.rand(3, 4).double()
    with pytest.raises(ValueError, match="norm must be one of 'l2', 'linf', 'l1', got 'l9'"):
        average_robustness(model, x, norm="l9")
    x[1] = 0
    with pytest.raises(ValueError, match="x must have no example that is zero, got one at 1"):
        average_robustness(model, x)
    with pytest.raises(ValueError, match="x must lie in box"):
        average_robustness(model, x - 1)
