"""Minimal radii by bisection, against closed forms and against a grid of the plane."""
# pyright: reportArgumentType=false

import math
from functools import partial

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from tests.robustness.digit_networks import digits, honest
from vademecum.robustness import Attack, deepfool, fgsm, minimal_radius, pgd
from vademecum.robustness.radii_by_bisection import _Search

DUAL = {"linf": 1, "l2": 2, "l1": float("inf")}


def linear(d: int, k: int, dtype: torch.dtype) -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(d + k)
        return nn.Linear(d, k).to(dtype)


def closed_form(model: nn.Linear, x: torch.Tensor, norm: str) -> torch.Tensor:
    W, b = model.weight.detach().double(), model.bias.detach().double()
    z = x.double() @ W.T + b
    c = z.argmax(1)
    gap = z.gather(1, c[:, None]) - z
    size = torch.linalg.vector_norm(W[c][:, None] - W, DUAL[norm], dim=2)
    return (gap / size).masked_fill(gap == 0, torch.inf).amin(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_minimal_radius_of_linear_models(norm, dtype):
    model = linear(6, 2, dtype)
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    y = model(x).argmax(1)
    knobs = {"norm": norm, "box": None, "largest": 20.0, "tol": 1e-3}
    found = minimal_radius(model, x, y, attack=fgsm, **knobs)
    exact = closed_form(model, x, norm)
    many = minimal_radius(model, x, y, **knobs).radius
    assert (many >= exact * (1 - 1e-5)).all()
    assert (many <= exact * 1.05).all()
    assert found.converged.all()
    assert found.radius.dtype == torch.float64
    assert (found.radius >= exact * (1 - 1e-5)).all()
    assert (found.radius <= exact * 1.0021).all()
    assert (found.failed < found.radius).all()
    assert (found.radius <= found.failed * 1.001).all()
    moved = (found.x.double() - x.double()).flatten(1)
    p = {"linf": torch.inf, "l2": 2}[norm]
    assert torch.allclose(torch.linalg.vector_norm(moved, p, dim=1), found.radius, rtol=1e-12)
    assert (model(found.x).argmax(1) != y).all()


def test_minimal_radius_in_l1_takes_one_entry():
    model = linear(5, 2, torch.float64)
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(1)).double()
    y = model(x).argmax(1)
    found = minimal_radius(model, x, y, norm="l1", attack=fgsm, box=None, largest=50.0, tol=1e-2)
    exact = closed_form(model, x, "l1")
    assert (found.radius >= exact * (1 - 1e-9)).all()
    assert (found.radius <= exact * 1.011).all()
    assert ((found.x != x).sum(1) == 1).all()


def test_minimal_radius_of_an_exact_attack_is_a_bisection():
    """An attack that knows the boundary: all that is left is the search itself."""
    exact = torch.tensor([0.003, 0.01, 0.2, 0.77, 5.0]).double()
    radii, asked = [], []

    def oracle(model, x, y, *, radius, **knobs):
        mine = exact[x[:, 0].long()]
        fooled = mine <= radius
        radii.append(radius)
        asked.append(list(zip(x[:, 0].long().tolist(), radius, strict=True)))
        return Attack(x + 1, fooled, torch.where(fooled, radius, 0), y, y)

    x = torch.arange(5.0).double()[:, None].expand(5, 2).clone()
    y = torch.zeros(5).long()
    knobs = {"box": None, "largest": 1.0}
    found = minimal_radius(nn.Identity(), x, y, attack=oracle, tol=1e-4, **knobs)
    assert found.radius[4] == torch.inf
    assert (found.x[4] == x[4]).all()
    assert (found.x[:4] == x[:4] + 1).all()
    assert (found.radius[:4] >= exact[:4]).all()
    assert (found.radius[:4] <= exact[:4] * 1.0001).all()
    assert (found.failed[:4] < exact[:4]).all()
    assert found.failed[4] == 1
    assert radii[0].max() == radii[0].min() == 4.0**-3
    assert found.calls == len(radii) < 25
    assert found.converged.all()
    tried = [float(radius) for own in asked for i, radius in own if i == 3]
    assert tried[:6] == [1 / 64, 1 / 16, 1 / 4, 1.0, 1 / 2, 0.5**0.5]  # then geometric means
    assert [float(radius) for own in asked for i, radius in own if i == 0][:2] == [1 / 64, 1 / 256]


def test_the_largest_radius_is_that_of_the_box():
    for norm, reach in (("linf", 3.0), ("l2", 3.0 * 6**0.5), ("l1", 18.0)):
        radii = []

        def never(model, x, y, *, radius, radii=radii, **knobs):
            radii.append(radius)
            return Attack(x, torch.zeros(len(x)).bool(), 0 * radius, y, y)

        x, y = torch.rand(2, 2, 3).double(), torch.zeros(2).long()
        found = minimal_radius(nn.Flatten(), x, y, attack=never, norm=norm, box=(-1.0, 2.0))
        assert radii[-1][0] == pytest.approx(reach, rel=1e-12)
        assert found.radius.isinf().all()
        assert found.converged.all()
        assert [float(r[0] / radii[0][0]) for r in radii] == pytest.approx([1, 4, 16, 64])


def test_wrong_examples_have_radius_0_and_the_box_is_kept():
    _, _, x, y = digits()
    model = honest("relu")
    x, y = x[:30], (y[:30] + (torch.arange(30) < 3)) % 10
    wrong = model(x).argmax(1) != y
    found = minimal_radius(model, x, y, attack=partial(pgd, steps=10), tol=0.05)
    assert wrong.sum() >= 3
    assert (found.radius[wrong] == 0).all()
    assert (found.x[wrong] == x[wrong]).all()
    assert (found.radius[~wrong] > 0).all()
    assert found.x.min() >= 0
    assert found.x.max() <= 1
    assert (model(found.x).argmax(1) != y).all()


def test_minimal_radius_improves_on_one_step_and_on_deepfool():
    _, _, x, y = digits()
    model = honest("tanh")
    x, y = x[:40], y[:40]
    many = minimal_radius(model, x, y, tol=0.02)
    one = minimal_radius(model, x, y, attack=fgsm, tol=0.02)
    near = deepfool(model, x, y, norm="linf")
    assert many.radius.median() <= one.radius.median() * 1.02
    assert many.radius.median() <= near.distance.median() * 1.02


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_the_default_is_no_longer_than_what_its_parts_find(norm):
    """The margin alone aims at one class, and was half as long again as others for some digits."""
    _, _, x, y = digits()
    model, knobs = honest("convolutions"), {"norm": norm, "tol": 0.01}
    x, y = x[:24], y[:24]
    result = minimal_radius(model, x, y, **knobs)
    found, p = result.radius, {"linf": torch.inf, "l2": 2, "l1": 1}[norm]
    way = (result.x.double() - x.double()).flatten(1)
    torch.testing.assert_close(torch.linalg.vector_norm(way, p, dim=1), found)
    assert (model(result.x).argmax(1) != y).all()
    for loss in ("ce", "margin"):
        climb = partial(pgd, steps=20, loss=loss, random_start=False)
        other = minimal_radius(model, x, y, attack=climb, **knobs).radius
        ratio = (found / other).nan_to_num(1.0)  # of examples that are wrong without
        assert ratio.mean() <= 1.02  # both to one part in a hundred
    if norm != "l1":
        assert (found <= deepfool(model, x, y, norm=norm).distance).all()


def test_not_converged_is_said():
    model, x = linear(3, 2, torch.float32), torch.rand(4, 3)
    y = model(x).argmax(1)
    with pytest.warns(ConvergenceWarning, match="minimal_radius did not converge in 2 iterations"):
        found = minimal_radius(model, x, y, box=None, largest=1e4, max_iter=2)
    assert not found.converged.any()
    assert found.calls == 2


BAD = [
    ({"norm": "l3"}, "norm must be one of 'linf', 'l2', 'l1', got 'l3'"),
    ({"tol": 0.0}, "tol must be > 0, got 0.0"),
    ({"max_iter": 0}, "max_iter must be >= 1, got 0"),
    ({"box": None}, "largest must be given where there is no box, got None"),
    ({"largest": -1.0}, "largest must be > 0, got -1.0"),
    ({"largest": float("nan")}, "largest must be > 0, got nan"),
    ({"box": (0.4, 1.0)}, "x must lie in box, from 0.4 to 1, got entries from"),
]


@pytest.mark.parametrize(("knobs", "message"), BAD)
def test_bad_arguments_are_refused(knobs, message, unchecked):
    x = torch.linspace(0.1, 0.9, 6).view(2, 3)
    with pytest.raises(ValueError, match=message):
        minimal_radius(linear(3, 2, torch.float32), x, torch.zeros(2).long(), **knobs)


@pytest.mark.parametrize("true", [0.9, 0.3, 1e-3])
def test_a_first_guess_that_is_much_too_long_costs_few_calls(true):
    """Steps down grow: 1.15, its square, its fourth and eighth power, then 4; bisections follow."""
    x = torch.zeros(1, 3, dtype=torch.float64)
    search, rows, tried = _Search(x, 1.0, 0.01), torch.arange(1), list[float]()
    search.shrink.fill_(1.15)
    search.keep(rows, Attack(x, torch.tensor([True]), torch.ones(1), rows, rows))
    while len(search.rows()):
        radius = search.next_radii(rows)
        tried.append(1 / float(radius))
        search.learn(rows, radius, Attack(x, radius >= true, radius, rows, rows))
    down = [1.15, 1.15**3, 1.15**7, 1.15**15]
    down += [4.0**k * down[-1] for k in range(1, 6)]
    first = next(i for i, factor in enumerate(down) if factor > 1 / true)
    assert tried[: first + 1] == pytest.approx(down[: first + 1])
    between = math.log(down[first] / ([1.0, *down][first])) / math.log(1.01)
    assert len(tried) == first + 1 + math.ceil(math.log2(between))
    assert true <= float(search.found) <= 1.01 * true
