"""What attacks refuse: models, arguments and knobs that make no sense, each by its name."""

import pytest
import torch
from torch import nn

from tests.robustness.attacked import ATTACKS, attack, examples, network
from vademecum.robustness import certified_accuracy


class _Spoilt(nn.Module):
    """What is wrong with a model, by name."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(3, 2)
        if kind == "no statistics":
            self.norm = nn.BatchNorm1d(3, track_running_stats=False)

    def forward(self, x):
        z = self.linear(x)
        return {
            "nan": z / 0 * 0,
            "late nan": torch.where(x[:, :1] > 0.9, torch.nan, z),
            "chance": nn.functional.dropout(z, 0.5, training=True),
            "company": z - z.mean(0),
            "largest": z / x.detach().abs().amax().clamp(min=0.5),
            "one column": z[:, :1],
            "flat": z[:, 0],
            "constant": z.detach(),
            "integers": z.long(),
            "no statistics": z,
            "words": "logits",
        }[self.kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nan", "logits of model must be finite and floating point, got nan"),
        ("late nan", "logits of model must be finite, got nan at what the attack found"),
        ("chance", "model must treat examples independently in evaluation mode"),
        ("company", "model must treat examples independently in evaluation mode"),
        ("one column", r"model must give logits of shape \(3, k\) with k >= 2 classes, got shape"),
        ("flat", r"model must give logits of shape \(3, k\)"),
        ("constant", "model must be differentiable in x, and its logits are constants"),
        ("integers", "logits of model must be finite and floating point, got torch.int64"),
        ("no statistics", "BatchNorm1d 'norm' has no running statistics"),
        ("words", "with k >= 2 classes, got str"),
    ],
)
def test_spoilt_models_are_refused_by_name(kind, message):
    net, x = _Spoilt(kind), torch.linspace(0, 0.8, 15).view(5, 3)
    with torch.no_grad():
        net.linear.bias.copy_(torch.tensor([9.0, 0.0]))
        net.linear.weight.copy_(torch.tensor([[-1.0, 0, 0], [1.0, 0, 0]]))
    with pytest.raises(ValueError, match=message):
        attack("fgsm", net, x, torch.zeros(5, dtype=torch.long), "linf", radius=0.5)


@pytest.mark.parametrize(("n", "place"), [(n, i) for n in (2, 3, 5) for i in range(n)])
def test_one_example_that_all_depend_on(n, place):
    x, y = torch.linspace(0, 0.1, 3 * n).view(n, 3), torch.zeros(n, dtype=torch.long)
    x[place, 1] = 0.9
    with pytest.raises(ValueError, match="model must treat examples independently"):
        attack("fgsm", _Spoilt("largest"), x, y, "linf", radius=0.5)
    with pytest.raises(ValueError, match="model must treat examples independently"):
        certified_accuracy(_Spoilt("largest"), x, y, norm="linf", radius=0.1)


@pytest.mark.parametrize("place", [127, 128, 131])
def test_one_image_that_all_of_its_portion_depend_on(place):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(1, 3, 2)

        def forward(self, x):
            return self.layer(x / x.detach().abs().amax().clamp(min=0.5)).mean((2, 3))

    x = torch.linspace(0.1, 0.2, 132 * 9).view(132, 1, 3, 3)
    x[place, 0, 1, 1] = 0.9
    with pytest.raises(ValueError, match="model must treat examples independently"):
        attack("fgsm", Net(), x, torch.zeros(132, dtype=torch.long), "linf", radius=0.5)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        (
            {"y": torch.tensor([0, 1, 2])},
            "y must be 4 integers, one for each example, got torch.in",
        ),
        (
            {"y": torch.tensor([0.0, 1, 2, 3])},
            "y must be 4 integers, one for each example, got tor",
        ),
        ({"y": torch.tensor([0, 1, 2, 5])}, "y must be between 0 and 4, as model has 5 classes"),
        ({"y": torch.tensor([0, -1, 2, 3])}, "y must be between 0 and 4, as model has 5 classes"),
        ({"target": torch.tensor([0, 1, 2, 9])}, "target must be between 0 and 4"),
        ({"radius": -1.0}, "radius must be >= 0, got -1"),
        ({"box": (0.5, 1.0)}, "x must lie in box, from 0.5 to 1"),
        (
            {"x": torch.zeros(4, 2, 6, 6, dtype=torch.uint8)},
            "x must be floating point, got torch.u",
        ),
        ({"x": torch.full((4, 2, 6, 6), torch.nan)}, "x must be finite, got nan"),
        ({"x": torch.rand(4, 2, 6, 6).double()}, "x must be torch.float32 as model is, got"),
        ({"x": torch.zeros(0, 2, 6, 6)}, "x must not be empty"),
        ({"preprocess": 3}, "preprocess must be a function or module, got 3"),
        ({"quantum": -1.0}, "quantum must be > 0, got -1"),
        ({"memory": 0}, "memory must be >= 1, got 0"),
        ({"norm": "l7"}, "norm must be one of 'linf'"),
        ({"model": len}, "model must be an nn.Module"),
    ],
)
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", ["fgsm", "square"])
def test_arguments_are_refused_by_name(knobs, message, name):
    net = network()
    given = {"model": net, "x": examples(net, 4)[0], "y": torch.tensor([0, 1, 2, 3])}
    given |= {"norm": "linf", "radius": 0.1} | knobs
    if name == "square" and "norm" in knobs:
        message = "norm must be one of 'linf', 'l2', got 'l7'"
    with pytest.raises(ValueError, match=message):
        ATTACKS[name](given.pop("model"), given.pop("x"), given.pop("y"), **given)


@pytest.mark.parametrize(
    ("name", "knobs", "message"),
    [
        ("pgd", {"steps": 0}, "steps must be >= 1, got 0"),
        ("pgd", {"restarts": 0}, "restarts must be >= 1, got 0"),
        ("pgd", {"step_size": 0.0}, "step_size must be > 0, got 0"),
        ("pgd", {"momentum": -0.5}, "momentum must be >= 0, got -0.5"),
        ("pgd", {"loss": "mse"}, "loss must be one of 'ce', 'margin', 'dlr', got 'mse'"),
        ("fgsm", {"loss": "mse"}, "loss must be one of 'ce', 'margin', 'dlr', got 'mse'"),
        ("apgd", {"loss": "mse"}, "loss must be one of 'ce', 'margin', 'dlr', got 'mse'"),
        ("apgd", {"steps": 0}, "steps must be >= 1, got 0"),
        ("apgd", {"restarts": 0}, "restarts must be >= 1, got 0"),
        ("deepfool", {"steps": 0}, "steps must be >= 1, got 0"),
        ("deepfool", {"overshoot": -0.1}, "overshoot must be >= 0, got -0.1"),
        ("deepfool", {"candidates": 1}, "candidates must be >= 2, got 1"),
        ("square", {"steps": 0}, "steps must be >= 1, got 0"),
        ("square", {"share": 0.0}, "share must be > 0, got 0"),
        ("square", {"share": 1.5}, "share must be <= 1, got 1.5"),
        ("auto_attack", {"steps": 0}, "steps must be >= 1, got 0"),
        ("auto_attack", {"classes": 0}, "classes must be >= 1, got 0"),
        ("auto_attack", {"square_steps": 0}, "square_steps must be >= 1, got 0"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_knobs_are_refused_by_name(name, knobs, message):
    net = network()
    x, y = examples(net, 3)
    with pytest.raises(ValueError, match=message):
        attack(name, net, x, y, "linf", **knobs)


def test_sparse_changes_need_a_box():
    net = network()
    x, y = examples(net, 3)
    for labels in (y, (y + 1) % 5):  # whether there is something to change or not
        with pytest.raises(ValueError, match="box must be given for l0"):
            attack("pgd", net, x, labels, "l0", box=None)
