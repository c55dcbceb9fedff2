"""Losses at the worst inputs: closed forms, the two modes of a model, TRADES by hand, refusals."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from vademecum.robustness import adversarial_loss

DUALS = {"l1": math.inf, "l2": 2.0, "linf": 1.0}


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def binary(dtype: torch.dtype = torch.float64, d: int = 6) -> tuple[Any, Tensor, Tensor]:
    torch.manual_seed(0)
    return nn.Linear(d, 2).to(dtype), torch.rand(5, d).to(dtype), torch.tensor([0, 1, 1, 0, 1])


@pytest.mark.parametrize("way", [1, -1])
def test_steps_of_l1_go_where_the_box_leaves_room(way):
    """The steepest entry is at its end of the box: the next one moves, as far as the radius."""
    model = nn.Linear(2, 2, bias=False)
    model.weight.data = way * torch.tensor([[0.0, 0.0], [3.0, 2.0]])
    x, y = torch.tensor([[1.0 if way > 0 else 0.0, 0.5]]), torch.tensor([0])
    found = adversarial_loss(model, x, y, norm="l1", radius=0.25, random_start=False)
    worst = way * (3 * float(x[0, 0]) + 2 * (0.5 + way * 0.25))
    assert float(found.detach()) == pytest.approx(math.log1p(math.exp(worst)), rel=1e-5)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_the_model_sees_no_input_outside_of_ball_and_box(norm):
    """Not even at the random start, half of which lies beyond an end of the box."""
    model, x, y = binary()
    x, seen, own = x.round(), list[Tensor](), model.forward
    model.forward = lambda z: (seen.append(z.detach().clone()), own(z))[1]
    adversarial_loss(model, x, y, norm=norm, radius=0.5, steps=3)
    size = {"linf": math.inf, "l2": 2, "l1": 1}[norm]
    for z in seen:
        assert 0 <= float(z.min()) <= float(z.max()) <= 1
        if len(z) == len(x):
            assert float(torch.linalg.vector_norm(z - x, size, 1).max()) <= 0.5 + 1e-9


@pytest.mark.parametrize("method", ["pgd", "fgsm", "trades"])
def test_inputs_that_ask_for_gradients_get_none(method):
    model, x, y = binary()
    x.requires_grad_()
    adversarial_loss(model, x, y, method=method, radius=0.1).backward()
    assert x.grad is None
    assert model.weight.grad is not None


def test_what_lies_before_the_model_is_in_the_inner_problem():
    """Twice the negative: the worst inputs of the model alone would be the best ones."""
    model, x, y = binary()
    w, b = model.weight[1] - model.weight[0], model.bias[1] - model.bias[0]
    margin = (2 * y - 1) * (-2 * x @ w + b)
    wanted = softplus(-margin + 0.3 * 2 * w.abs().sum()).mean()
    for method in ("pgd", "fgsm"):
        found = adversarial_loss(
            model, x, y, method=method, radius=0.3, box=None, preprocess=lambda z: -2 * z
        )
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("norm", DUALS)
@pytest.mark.parametrize("method", ["pgd", "fgsm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_models_in_closed_form(norm, method, dtype):
    """Radii of their own for the examples, one of them 0; and the gradient of the closed form."""
    model, x, y = binary(dtype)
    radius = torch.tensor([0.0, 0.1, 0.2, 0.5, 1.0], dtype=dtype)
    w, b = model.weight[1] - model.weight[0], model.bias[1] - model.bias[0]
    margin = (2 * y - 1) * (x @ w + b)
    wanted = softplus(-margin + radius * torch.linalg.vector_norm(w, DUALS[norm])).mean()
    slopes = torch.autograd.grad(wanted, model.parameters())
    knobs = {"norm": norm, "radius": radius, "box": None, "steps": 40, "step_size": 1.0}
    found = adversarial_loss(model, x, y, method=method, **knobs)
    torch.testing.assert_close(found, wanted)
    found.backward()
    for p, slope in zip(model.parameters(), slopes, strict=True):
        torch.testing.assert_close(p.grad, slope)


def test_steps_of_the_default_length_cross_the_ball():
    """2.5 radii in all, however many they are; a step of a given length is one."""
    model, x, y = binary()
    knobs: Any = {"radius": 0.3, "box": None, "random_start": False}
    far = adversarial_loss(model, x, y, method="fgsm", **knobs)
    torch.testing.assert_close(adversarial_loss(model, x, y, steps=5, **knobs), far)
    one, same = (
        adversarial_loss(model, x, y, **knobs, steps=1, step_size=0.1),
        adversarial_loss(model, x, y, **knobs | {"radius": 0.1}, method="fgsm"),
    )
    torch.testing.assert_close(one, same)
    assert adversarial_loss(model, x, y, steps=100, **knobs) == far
    smooth = network().eval()
    labels = torch.tensor([0, 1, 2, 0, 1])
    one, same = (
        adversarial_loss(smooth, x, labels, **knobs, steps=7, norm="l2", step_size=size)
        for size in (None, 2.5 * 0.3 / 7)
    )
    torch.testing.assert_close(one, same)


@pytest.mark.parametrize("norm", DUALS)
def test_inputs_stay_in_ball_and_box(norm):
    """Those that the outer pass sees, measured in double precision."""
    seen: list[Tensor] = []

    class Seen(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                seen.append(x.detach().double())
            return self.layer(x)

    x, y = torch.rand(20, 6, generator=source()), torch.arange(20) % 3
    for method in ("pgd", "fgsm", "trades"):
        seen.clear()
        adversarial_loss(Seen(), x, y, method=method, norm=norm, radius=0.3)
        moved = seen[-1]
        assert float(moved.min()) >= 0
        assert float(moved.max()) <= 1
        p = {"l1": 1, "l2": 2, "linf": math.inf}[norm]
        lengths = torch.linalg.vector_norm(moved - x.double(), p, dim=1)
        assert float(lengths.max()) <= 0.3
        assert float(lengths.min()) > 0.05
        assert len(seen) == 1 + (method == "trades")
        assert not seen[0].equal(seen[-1]) or method != "trades"


def network() -> Any:
    torch.manual_seed(1)
    layers = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3)
    return nn.Sequential(*layers).double()


def test_the_attack_goes_all_the_way():
    """It does not stop where the class changes: more steps, a larger loss."""
    model, x, y = network().eval(), torch.rand(30, 6).double(), torch.arange(30) % 3
    losses = [
        float(adversarial_loss(model, x, y, radius=0.5, steps=k, generator=source()).detach())
        for k in (1, 5, 20)
    ]
    assert losses[0] < losses[1] <= losses[2] + 1e-3
    clean = float(cross_entropy(model(x), y).detach())
    found = adversarial_loss(model, x, y, radius=0.0).detach()
    assert float(found) == pytest.approx(clean)
    still = {"radius": 0.5, "random_start": False, "steps": 1, "step_size": 1e-12}
    assert float(adversarial_loss(model, x, y, **still).detach()) == pytest.approx(clean)


def test_the_attack_sees_evaluation_mode_and_the_outer_loss_the_models_own():
    model, x, y = network(), torch.rand(30, 6).double(), torch.arange(30) % 3
    modes: list[tuple[bool, bool]] = []
    model.register_forward_hook(lambda m, a, z: modes.append((m.training, z.requires_grad)))
    counted = model[1].num_batches_tracked.clone()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    loss = adversarial_loss(model, x, y, radius=0.1, steps=3)
    assert [mode for mode, _ in modes].count(True) == 1
    assert modes[-1] == (True, True)
    assert model.training
    assert model[1].num_batches_tracked == counted + 1
    assert all(p.grad.equal(torch.ones_like(p)) and p.requires_grad for p in model.parameters())
    loss.backward()
    assert not any(p.grad.equal(torch.ones_like(p)) for p in (model[0].weight, model[4].weight))
    model.eval()
    modes.clear()
    adversarial_loss(model, x, y, radius=0.1, steps=3)
    assert not any(mode for mode, _ in modes)


def test_trades_is_the_clean_loss_and_the_change():
    """With no step to speak of from a known start; and its gradient goes through both terms."""
    model, x, y = network().eval(), torch.rand(4, 6).double(), torch.tensor([0, 1, 2, 0])
    knobs = {"method": "trades", "radius": 0.3, "steps": 1, "step_size": 1e-13, "box": None}
    start = (torch.empty_like(x).uniform_(-1, 1, generator=source(7)) * 0.3) + x
    p, q = model(x).softmax(1), model(start).softmax(1)
    wanted = cross_entropy(model(x), y) + 2.5 * (p * (p / q).log()).sum(1).mean()
    found = adversarial_loss(model, x, y, beta=2.5, generator=source(7), **knobs)
    torch.testing.assert_close(found, wanted)
    slopes = [torch.autograd.grad(loss, model[0].weight)[0] for loss in (found, wanted)]
    torch.testing.assert_close(*slopes)
    more = adversarial_loss(
        model, x, y, beta=2.5, method="trades", radius=0.3, box=None, steps=40, generator=source(7)
    )
    others = torch.empty(5000, 4, 6).double().uniform_(-0.3, 0.3, generator=source()) + x
    q = model(others.flatten(0, 1)).softmax(1).view(5000, 4, 3)
    best = (p * (p / q).log()).sum(-1).amax(0).mean()  # of many points of the ball
    assert more > cross_entropy(model(x), y) + 2.5 * best
    clean = adversarial_loss(model, x, y, beta=0.0, method="trades", radius=0.3)
    torch.testing.assert_close(clean, cross_entropy(model(x), y))


def test_starts_differ_from_step_to_step():
    """From the global generator, which training moves on; and are those of a generator given."""
    model, x, y = network().eval(), torch.rand(9, 6).double(), torch.arange(9) % 3
    torch.manual_seed(3)
    one, other = (adversarial_loss(model, x, y, radius=0.3, steps=1).item() for _ in range(2))
    assert one != other
    torch.manual_seed(3)
    assert adversarial_loss(model, x, y, radius=0.3, steps=1).item() == one
    same = [
        adversarial_loss(model, x, y, radius=0.3, steps=1, generator=source(4)).item()
        for _ in range(2)
    ]
    assert same[0] == same[1]


def test_what_lies_before_the_model_counts():
    model, x, y = binary()
    scaled = nn.Linear(6, 2).double()
    scaled.load_state_dict(model.state_dict())
    scaled.weight.data.mul_(10)
    wanted = adversarial_loss(scaled, x, y, method="fgsm", radius=0.1)
    found = adversarial_loss(model, x, y, method="fgsm", radius=0.1, preprocess=lambda x: 10 * x)
    torch.testing.assert_close(found, wanted)


GOOD = torch.tensor([[0.1, 0.9, 0.4], [0.7, 0.2, 0.6]])
REFUSED = [
    ({"method": "cw"}, "method must be one of 'pgd', 'fgsm', 'trades', got 'cw'"),
    ({"norm": "l0"}, "norm must be one of 'linf', 'l2', 'l1', got 'l0'"),
    ({"radius": -0.1}, "radius must be >= 0, got -0.1"),
    ({"radius": torch.tensor([0.1, math.nan])}, "radius must be >= 0 and finite, got nan"),
    ({"radius": torch.ones(3)}, r"radius must be a number or 2 of them"),
    ({"steps": 0}, "steps must be >= 1, got 0"),
    ({"step_size": 0.0}, "step_size must be > 0, got 0.0"),
    ({"beta": -1.0}, "beta must be >= 0, got -1.0"),
    ({"x": 3 + GOOD}, "x must lie in box, from 0 to 1, got entries from 3"),
    ({"x": torch.ones(2, 3).long()}, "x must be floating point, got torch.int64"),
    ({"y": torch.tensor([0, 2])}, "y must be between 0 and 1, as model has 2 classes"),
    ({"y": torch.tensor([0.0, 1.0])}, "y must be 2 integers, one for each example, got torch.flo"),
    ({"method": "trades", "random_start": False}, 'random_start must be True for method "trades"'),
    ({"model": nn.Linear(3, 1)}, "with k >= 2 classes, got shape"),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
@pytest.mark.usefixtures("unchecked")
def test_refusals(wrong, message):
    knobs = {"radius": 0.1, "model": nn.Linear(3, 2), "x": GOOD, "y": torch.tensor([0, 1])} | wrong
    model, x, y = (knobs.pop(name) for name in ("model", "x", "y"))
    with pytest.raises(ValueError, match=message):
        adversarial_loss(model, x, y, **knobs)


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["pgd", "fgsm", "trades"])
def test_on_a_gpu(method):
    model, x, y = network().eval(), torch.rand(9, 6).double(), torch.arange(9) % 3
    here = adversarial_loss(model, x, y, method=method, radius=0.1, generator=source())
    there = adversarial_loss(
        model.cuda(), x.cuda(), y.cuda(), method=method, radius=0.1, generator=source()
    )
    torch.testing.assert_close(there.cpu(), here.cpu(), rtol=1e-4, atol=1e-5)
