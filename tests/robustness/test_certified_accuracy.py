"""Certified at most attacked at most clean, and what is known of linear models."""

import pytest
import torch
from torch import Tensor, nn

from tests.robustness.exact_ranges import random_mlp
from vademecum.robustness import certified_accuracy, linear_radius, pgd


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_linear_models_are_decided_on_either_side_of_their_radius(norm):
    torch.manual_seed(0)
    layer, x = nn.Linear(6, 4).double(), torch.randn(30, 6).double()
    y = layer(x).argmax(1)
    exact = linear_radius(layer.weight.detach(), layer.bias.detach(), x, norm=norm)
    radius = float(exact.median()) * 1.0001
    found = certified_accuracy(layer, x, y, norm=norm, radius=radius, box=None, attack=pgd)
    assert found.certified == pytest.approx(float((exact > radius).double().mean()))
    assert found.clean == 1.0
    assert ((found.margin > 0) == (exact > radius)).all()
    per = certified_accuracy(layer, x, y, norm=norm, radius=0.999 * exact, box=None, attack=pgd)
    assert per.certified == 1.0
    none = certified_accuracy(layer, x, y, norm=norm, radius=1.001 * exact, box=None, attack=pgd)
    assert none.certified == 0.0


def test_only_what_is_right_and_not_certified_is_attacked_each_with_its_radius():
    """Linear models are decided: what has no certificate is fooled, and nothing else."""
    torch.manual_seed(1)
    layer, x = nn.Linear(6, 2).double(), torch.randn(12, 6).double()
    y = layer(x).argmax(1)
    exact = linear_radius(layer.weight.detach(), layer.bias.detach(), x, norm="linf")
    factor = torch.where(torch.arange(12) % 3 == 2, 1.01, 0.5).double()
    y[3] = 1 - y[3]  # a wrong one, which nobody attacks
    seen: list[dict[str, Tensor]] = []

    def attack(model, x, y, **knobs):
        seen.append({"x": x, "radius": knobs["radius"]})
        return pgd(model, x, y, steps=40, **knobs)

    found = certified_accuracy(
        layer, x, y, norm="linf", radius=factor * exact, box=None, attack=attack
    )
    assert [len(each["x"]) for each in seen] == [4]
    assert seen[0]["x"].equal(x[2::3])
    assert seen[0]["radius"].equal((factor * exact)[2::3])
    assert found.fooled.nonzero()[:, 0].tolist() == [2, 3, 5, 8, 11]
    assert (found.certified, found.attacked, found.clean) == (7 / 12, 7 / 12, 11 / 12)


def test_a_margin_of_zero_is_no_certificate():
    """All logits are equal, whatever the input: the first class is given by chance."""
    layer = nn.Linear(2, 3)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    x, y = torch.rand(4, 2), torch.zeros(4, dtype=torch.long)
    for how in ("real", "float"):
        found = certified_accuracy(layer, x, y, norm="linf", radius=0.1, arithmetic=how, attack=pgd)
        assert (found.certified, found.clean) == (0.0, 1.0)


def test_accuracies_are_in_order_and_attacks_spare_what_is_certified():
    torch.manual_seed(0)
    model, x = random_mlp(4, 16, 16, 3, dtype=torch.float32), torch.rand(60, 4)
    y = model(x).argmax(1)
    y[::10] = (y[::10] + 1) % 3
    seen = []
    for radius in (0.0, 0.02, 0.05, 0.1, 0.3):
        found = certified_accuracy(model, x, y, norm="linf", radius=radius, attack=pgd)
        assert found.certified <= found.attacked <= found.clean == 0.9
        certified = found.margin > 0
        again = pgd(model, x, y, norm="linf", radius=radius, steps=40, restarts=2)
        assert not (certified & again.fooled).any()
        assert not (certified & found.fooled).any()
        assert (found.margin[::10] == -torch.inf).all()
        seen.append((found.certified, found.attacked))
    certified, attacked = zip(*seen, strict=True)
    assert list(certified) == sorted(certified, reverse=True)
    assert certified[0] == attacked[0] == 0.9
    assert certified[-1] < attacked[1]


def test_slopes_certify_no_fewer():
    torch.manual_seed(1)
    model, x = random_mlp(4, 16, 16, 3, dtype=torch.float32), torch.rand(40, 4)
    y = model(x).argmax(1)
    plain = certified_accuracy(model, x, y, norm="linf", radius=0.1, attack=pgd)
    better = certified_accuracy(model, x, y, norm="linf", radius=0.1, attack=pgd, max_iter=10)
    assert (better.margin >= plain.margin - 1e-6).all()
    assert better.margin.sum() > plain.margin.sum() + 1e-3


ERRORS = [
    ({"y": torch.tensor([0, 3])}, "y must be between 0 and 2"),
    ({"y": torch.tensor([0.0, 1.0])}, "y must be 2 integers"),
    ({"radius": -0.1}, "radius must be >= 0"),
    ({"model": nn.Linear(4, 1)}, r"model must give logits of shape \(2, k\) with k >= 2"),
    ({"max_iter": -1}, "max_iter must be >= 0"),
    ({"model": nn.Sequential(nn.Linear(4, 3), nn.Softmax(1))}, "bounds are known"),
    ({"arithmetic": "half"}, "arithmetic must be one of"),
]


@pytest.mark.parametrize(("wrong", "words"), ERRORS, ids=range(len(ERRORS)))
def test_errors(wrong, words, unchecked):
    torch.manual_seed(0)
    model, x = nn.Linear(4, 3), torch.rand(2, 4)
    knobs = {"model": model, "x": x, "y": model(x).argmax(1), "norm": "linf", "radius": 0.1}
    if isinstance(wrong.get("model"), nn.Sequential):
        knobs["y"] = wrong["model"](x).argmax(1)
    with pytest.raises(ValueError, match=words):
        certified_accuracy(**(knobs | wrong))
