"""Signs of masked gradients: five maskers are seen, ten honest networks are not accused."""
# pyright: reportArgumentType=false

import math

import pytest
import torch
from scipy.stats import binomtest
from torch import nn

from tests.robustness.digit_networks import HONEST, MASKS, RADIUS, Masked, digits, honest
from vademecum.robustness import gradient_masking
from vademecum.robustness._threat import as_threat
from vademecum.robustness.masking._symptoms import LIMITS, _reach, _rivals

NAMES = [
    *("zero gradients", "changing outputs", "single step wins", "unbounded attack fails"),
    *("square wins", "smaller logits help", "loss falls"),
]


def examine(model, **knobs):
    x, y = (t[:90] for t in digits()[2:])
    given = {"norm": "linf", "radius": RADIUS, "generator": torch.Generator().manual_seed(0)}
    return gradient_masking(model, x, y, **given | knobs)


@pytest.mark.parametrize("name", HONEST)
def test_gradient_masking_does_not_accuse(name):
    found = examine(honest(name))
    assert [test.name for test in found.tests] == NAMES
    assert not found.masked, [test for test in found.tests if test.flag]
    assert (honest(name)(digits()[2]).argmax(1) == digits()[3]).float().mean() > 0.7


@pytest.mark.parametrize("name", ["convolutions", "robust"])
def test_nor_does_it_in_l2(name):
    assert not examine(honest(name), norm="l2", radius=0.6).masked


def test_linear_models_are_not_accused():
    """Of several classes in few dimensions, and with so large logits that far away nothing is left
    of the cross-entropy's gradient."""
    model = nn.Linear(8, 20)
    model.weight.data.normal_()
    x = torch.randn(600, 8)
    y = model(x).argmax(1)
    assert not gradient_masking(model, x, y, norm="linf", radius=0.2, box=None).masked
    steep = nn.Linear(2, 2, bias=False)
    steep.weight.data = torch.tensor([[25.0, 0.0], [-25.0, 0.0]])
    x = torch.randn(200, 2).clamp(-2, 2)
    y = steep(x).argmax(1)
    assert not gradient_masking(steep, x, y, norm="linf", radius=0.2, box=None).masked


SEEN = {
    "scaled": {"zero gradients", "smaller logits help"},
    "sine": {"single step wins"},
    "zero backward": {"zero gradients", "unbounded attack fails"},
    "rounded": {"zero gradients", "unbounded attack fails"},
    "dropout": {"changing outputs"},
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("name", ["relu", "convolutions"])
def test_maskers_are_seen(name, kind):
    masked = Masked(honest(name), kind).eval()
    found = examine(masked)
    flags = {test.name for test in found.tests if test.flag}
    assert found.masked
    assert SEEN[kind] <= flags
    if kind == "dropout":  # no prediction can be repeated, so nothing is attacked
        assert [test.name for test in found.tests] == [*NAMES[:2], "loss falls"]


def test_a_mask_changes_hardly_any_decision():
    _, _, x, _ = digits()
    model = honest("relu")
    for kind in MASKS[:-1]:
        same = Masked(model, kind)(x).argmax(1) == model(x).argmax(1)
        assert same.float().mean() > 0.98


def test_what_is_no_function_of_autograd_is_masked():
    class Detached(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = honest("relu")

        def forward(self, x):
            return self.model(x.detach())

    found = examine(Detached())
    assert found.tests[0].number == 1.0
    assert found.tests[0].flag
    assert math.isnan(found.tests[-1].number)
    assert not found.tests[-1].flag

    class Odd(nn.Module):  # the mask may also lie before the model
        def forward(self, x):
            return (16 * x.detach()).round() / 16

    assert examine(honest("relu"), preprocess=Odd()).masked


def test_intervals_and_flags():
    found = examine(Masked(honest("relu"), "scaled"), confidence=0.9)
    n = 90
    first = found.tests[0]
    exact = binomtest(round(first.number * n), n).proportion_ci(0.9)
    assert first.interval.low == pytest.approx(exact.low, abs=1e-9)
    assert first.interval.high == pytest.approx(exact.high, abs=1e-9)
    for test in found.tests:
        assert test.flag == (test.interval.low > test.limit)
        assert test.limit == LIMITS[test.name]
    one, other = torch.tensor([1, 1, 1, 0, 0]).bool(), torch.tensor([0, 0, 1, 1, 0]).bool()
    assert _rivals("single step wins", one, other)[1:] == (2, 3)


def test_zero_gradients_are_counted_one_by_one():
    class Half(nn.Module):
        def forward(self, x):
            flat = x[:, :1] < 0.5
            return torch.where(flat, x.detach().round(), x) * torch.tensor([1.0, 3.0])

    x = torch.linspace(0.05, 0.95, 60)[:, None].expand(60, 2).contiguous()
    y = torch.ones(60).long()
    found = gradient_masking(Half(), x, y, radius=0.1)
    assert found.tests[0].number == 0.5

    class First(nn.Module):  # does not look at the second entry, which is no mask
        def forward(self, x):
            return torch.stack([x[:, 0], 1 - x[:, 0]], 1)

    assert gradient_masking(First(), x, y, radius=0.1).tests[0].number == 0.0


def test_no_box_needs_a_reach():
    _, _, x, y = digits()
    centre, scale = x.mean(), x.std()
    model = nn.Sequential(nn.Flatten(), nn.Unflatten(1, (1, 8, 8)), honest("relu"))
    knobs = {"norm": "linf", "radius": RADIUS / float(scale), "box": None}
    given = (x - centre) / scale
    found = gradient_masking(model, given, y, preprocess=lambda z: z * scale + centre, **knobs)
    assert found.tests[3].number == 0.0
    assert not found.masked


def test_unbounded_radii_reach_everything():
    x = torch.rand(5, 1, 2, 8).double()
    for norm, wanted in (("linf", 3.0), ("l2", 12.0)):
        assert _reach(as_threat(x, norm, 0.1, (-1.0, 2.0)), x) == pytest.approx(wanted)
        free = _reach(as_threat(x, norm, 0.1, None), x)
        p = torch.inf if norm == "linf" else 2
        assert free > torch.cdist(x.flatten(1), x.flatten(1), p=p).max()


def test_networks_are_left_as_they_were():
    _, _, x, y = digits()
    model = Masked(honest("pooling"), "dropout").train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()
    gradient_masking(model, x[:20], y[:20], radius=0.1)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert model.training
    assert model.model.training
    assert state.equal(torch.get_rng_state())
    model.eval()


def test_bad_arguments_are_refused(unchecked):
    _, _, x, y = digits()
    model = honest("linear")
    with pytest.raises(ValueError, match=r"radius must be > 0, got 0.0"):
        gradient_masking(model, x, y, radius=0.0)
    with pytest.raises(ValueError, match="norm must be one of 'linf', 'l2', got 'l1'"):
        gradient_masking(model, x, y, norm="l1", radius=0.1)
    with pytest.raises(ValueError, match=r"confidence must be > 0, got 0"):
        gradient_masking(model, x, y, radius=0.1, confidence=0.0)
    with pytest.raises(ValueError, match="y must be between 0 and 9"):
        gradient_masking(model, x, y + 1, radius=0.1)
    with pytest.raises(ValueError, match="x must lie in box"):
        gradient_masking(model, x + 1, y, radius=0.1)
