"""What theory knows of single calls, against dense Jacobians, counts and closed forms."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.regularization.signal_models import Code, last
from vademecum.regularization import signal_propagation


def backward_factor(function: Callable[..., Tensor], x: Tensor) -> tuple[float, float]:
    """What a call multiplies the sum of squares of gradients by, and the correlation before it."""
    model = Code(lambda x, a, b: b(function(a(x))), nn.Identity(), nn.Identity())
    first, *_, end = signal_propagation(model, x).rows
    guess, g = first.predicted_backward, end.backward
    assert guess is not None
    assert g is not None
    assert guess.correlation is not None
    ratio = guess.second_moment * math.prod(first.shape) / (g.second_moment * math.prod(end.shape))
    return ratio, guess.correlation


@pytest.mark.parametrize("norm", [nn.GroupNorm(2, 4, eps=1.5), nn.InstanceNorm1d(4, eps=1.5)])
def test_gradients_before_a_norm_of_groups_are_those_of_its_jacobian(norm):
    """The square of its norm over the entries; what eps leaves of a direction is below 1 / d."""
    dice = torch.Generator().manual_seed(0)
    sizes = torch.tensor([0.5, 0.6, 2.0, 3.0], dtype=torch.float64)[:, None]
    x = sizes * torch.randn(2, 4, 60, generator=dice, dtype=torch.float64)
    J: Any = torch.autograd.functional.jacobian(norm.double(), x)
    wanted = float(J.square().sum()) / x.numel()
    assert backward_factor(norm, x)[0] == pytest.approx(wanted, rel=1 / 60)


POOLED: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "mean": (lambda h: h.mean((2, 3)), 1 / 48),
    "adaptive means": (lambda h: F.adaptive_avg_pool2d(h, (4, 2)), 1 / 6),
    "means": (lambda h: F.avg_pool2d(h, (2, 3)), 1 / 6),
    "largest": (lambda h: h.amax((2, 3)), 1.0),
    "adaptive maxima": (lambda h: F.adaptive_max_pool2d(h, (4, 2)), 1.0),
}


@pytest.mark.parametrize("name", POOLED)
def test_pooling_divides_gradients_by_its_entries_or_sends_them_to_one(name):
    x = torch.randn(3, 5, 8, 6, generator=torch.Generator().manual_seed(1)).double()
    pooled, wanted = POOLED[name]
    assert backward_factor(pooled, x)[0] == pytest.approx(wanted)


def test_two_examples_have_their_larger_entry_at_one_place_as_often_as_orthants_say():
    """1/2 + arcsin(c) / pi for the larger of two, whatever the mean.

    Of 40000 entries c is known to 0.005, its law to 0.35 of that; 20000 gradients g choose with
    weights g^2, so that their choice is known to 1/2 sqrt(3 / 20000). Five such errors.
    """
    dice = torch.Generator().manual_seed(2)
    own, common = torch.randn(4, 20000, 2, generator=dice), torch.randn(20000, 2, generator=dice)
    x = (0.8 + 0.6 * common + 0.8 * own).double()  # of correlation 0.36 about the mean
    wanted = 0.5 + math.asin(0.36) / math.pi
    assert backward_factor(lambda h: h.amax(-1), x)[1] == pytest.approx(wanted, abs=0.009)
    found = signal_propagation(Code(lambda x, a: a(x).amax(-1), nn.Identity()), x).rows[0].backward
    assert found is not None
    assert found.correlation == pytest.approx(wanted, abs=0.031)


def added_in_place(h: Tensor) -> Tensor:
    h = h * 1
    h += 3
    return h


def subtracted_in_place(h: Tensor) -> Tensor:
    h = h * 1
    h -= 3
    return h


LINES: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "a number first": (lambda h: torch.mul(-1.5, h), -1.5, 0),  # type: ignore[call-overload]
    "a number before": (lambda h: -1.5 * h, -1.5, 0),
    "divided": (lambda h: h / 4, 0.25, 0),
    "negative": (lambda h: -h, -1, 0),
    "added": (lambda h: 2 + h + 1, 1, 3),
    "added in place": (added_in_place, 1, 3),
    "subtracted in place": (subtracted_in_place, 1, -3),
    "taken from": (lambda h: 3 - h, -1, 3),
    "with a factor": (lambda h: torch.add(h, torch.tensor(2.0), alpha=3), 1, 6),
}


@pytest.mark.parametrize("name", LINES)
def test_lines_go_on_from_what_was_predicted(name):
    """From u of second moment k v q + b^2 and mean b: that of a u + c, not the one measured."""
    line, a, c = LINES[name]
    layer = nn.Linear(4, 3).double()
    nn.init.constant_(layer.bias, 0.7)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(3)).double()
    _, guess = last(Code(lambda x, f, end: end(line(f(x))), layer, nn.Identity()), x)
    spread = float(4 * layer.weight.detach().square().mean() * x.square().mean())
    assert guess.second_moment == pytest.approx(a * a * spread + (a * 0.7 + c) ** 2)
    assert guess.variance == pytest.approx(a * a * spread)


def test_a_sum_in_place_is_a_sum():
    def code(x: Tensor, f: nn.Module, g: nn.Module) -> Tensor:
        h = f(x) * 1
        h += g(x)
        return h

    layers = [nn.Linear(4, 6, bias=False).double() for _ in range(2)]
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(4)).double()
    _, guess = last(Code(code, *layers), x)
    v = sum(float(f.weight.detach().square().mean()) for f in layers)
    assert guess.second_moment == pytest.approx(4 * v * float(x.square().mean()))


@pytest.mark.parametrize("options", [
    {"kernel_size": 3, "padding": 1}, {"kernel_size": 4, "stride": 3}, {"kernel_size": 5,
     "padding": "same"}, {"kernel_size": 2, "dilation": 3, "padding": 2},
])  # fmt: skip
@pytest.mark.parametrize("axes", [1, 3])
def test_inputs_of_convolutions_along_one_and_three_axes_are_counted(axes, options):
    kind, x = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1], torch.ones(1, 2, *(7, 6, 8)[:axes])
    conv, ones = (kind(2, 3, bias=False, **options).double() for _ in range(2))
    nn.init.ones_(ones.weight)
    counts = ones(x.double()).detach().mean()
    v = conv.weight.detach().square().mean()
    assert last(conv, x.double())[1].second_moment == pytest.approx(float(v * counts))


def test_strides_of_one_number_serve_all_axes():
    weight, x = torch.randn(3, 2, 3, 3).double(), torch.ones(2, 2, 9, 7, dtype=torch.float64)

    def code(x: Tensor, a: nn.Module, b: nn.Module) -> Tensor:
        return b(F.conv2d(a(x), weight, stride=(2,), padding=(1,)))

    counts = F.conv2d(x, torch.ones_like(weight), stride=2, padding=1).mean()
    guess = last(Code(code, nn.Identity(), nn.Identity()), x)[1]
    assert guess.second_moment == pytest.approx(float(weight.square().mean() * counts))


@pytest.mark.parametrize("share", [0.75, 1.0])
def test_dropout_of_all_entries_leaves_nothing(share):
    """Else the square grows by 1 / (1 - p), and products of examples, 2, stay."""
    x = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64).repeat(1, 99)

    def code(x: Tensor, a: nn.Module, b: nn.Module) -> Tensor:
        return b(F.dropout(a(x), share))

    _, guess = last(Code(code, nn.Identity(), nn.Identity()), x)
    assert guess.second_moment == pytest.approx(2.5 * (4 if share < 1 else 0))
    assert guess.correlation == (pytest.approx(0.2) if share < 1 else None)


def test_rms_norm_keeps_the_mean_at_its_scale():
    """Rows of second moment 5 and mean 2, eps = 4: u / 3, then u + 1."""
    x = torch.tensor([[1.0, 3.0, 1.0, 3.0], [3.0, 3.0, 1.0, 1.0]], dtype=torch.float64)
    norm = nn.RMSNorm(4, eps=4.0, elementwise_affine=False)
    found, guess = last(Code(lambda x, f, end: end(f(x) + 1), norm, nn.Identity()), x)
    assert found.second_moment == pytest.approx(5 / 9 + 4 / 3 + 1)
    assert guess.second_moment == pytest.approx(found.second_moment)
    assert guess.variance == pytest.approx(1 / 9)
    assert found.variance == pytest.approx(1 / 9)
