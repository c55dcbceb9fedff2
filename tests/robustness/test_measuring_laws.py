"""What measures robustness keeps the laws of instruments, on awkward models, and on a GPU."""

from functools import partial

import pytest
import torch
from torch import nn

from vademecum import robustness
from vademecum.randomness import own_randomness
from vademecum.robustness.masking import _symptoms
from vademecum.testing import check_instrument

X = torch.rand(6, 2, 3, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 0, 1, 2])
with own_randomness(0):
    MINE = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
SHORT = partial(robustness.pgd, steps=3, random_start=False)


def radii(model, data):
    found = robustness.minimal_radius(model, *data, attack=SHORT, tol=0.5)
    return found.radius.clamp(max=9), found.x, found.failed


def accuracy(model, data):
    found = robustness.robust_accuracy(model, *data, radii=[0.0, 0.2], attack=SHORT)
    return found[:4]


def average(model, data):
    return robustness.average_robustness(model, *data).ratio.clamp(max=9)


def transfer(model, data):
    return robustness.transfer_matrix([model, model], *data, radius=0.2)[1:]


def masking(model, data):
    tests = robustness.gradient_masking(model, *data, radius=0.2).tests
    return [test.interval for test in tests]


def alignment(model, data):
    return robustness.gradient_alignment(model, *data)


def detector(model, data):
    found = robustness.margin_detector(model, data[0], alpha=0.5)
    return found.threshold, found(data[0]).float(), found.margins(data[0])


MEASURES = [radii, accuracy, average, transfer, masking, alignment, detector]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_laws(measure, dtype, monkeypatch):
    monkeypatch.setattr(_symptoms, "_TRIES", 20)
    check_instrument(measure, MINE.to(dtype), (X.to(dtype), Y))
    MINE.float()


@pytest.mark.parametrize("name", ["minimal_radius", "gradient_alignment"])
def test_examples_do_not_influence_each_other(name):
    def ask(model, data):
        if name == "gradient_alignment":  # whose class means are those of all
            return robustness.margin_detector(model, X, alpha=0.5).margins(data[0])
        found = robustness.minimal_radius(model, *data, attack=SHORT, tol=0.5, max_iter=99)
        assert len(data[0]) < len(X) or found.radius.isfinite().sum() > 3
        return found.radius.clamp(max=9)

    check_instrument(ask, MINE, (X, Y), per_example=True, outputs=None, tol=1e-4)


STRANGE = {
    "one output": (nn.Sequential(nn.Flatten(), nn.Linear(6, 1)), "k >= 2 classes"),
    "not a number": (nn.Sequential(nn.Flatten(), nn.Linear(6, 3), nn.Threshold(9e9, torch.nan)),
                     "logits of model must be finite"),
    "no statistics": (nn.Sequential(nn.Flatten(), nn.BatchNorm1d(6, track_running_stats=False)),
                      "has no running statistics"),
}  # fmt: skip


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("name", STRANGE)
def test_strange_models_are_refused(measure, name, unchecked):
    model, message = STRANGE[name]
    with pytest.raises(ValueError, match=message):
        measure(model, (X, Y))


@pytest.mark.parametrize("measure", [radii, accuracy, average, transfer, alignment, detector])
def test_outputs_that_change_are_refused(measure):
    class Noisy(nn.Module):
        def forward(self, x):
            return MINE(nn.functional.dropout(x, training=True))

    with pytest.raises(ValueError, match=r"model must treat examples independently|differ"):
        measure(Noisy(), (X, Y))
    assert robustness.gradient_masking(Noisy(), X, Y, radius=0.2).tests[1].flag


WRONG = [
    (X.long(), Y, "x must be floating point, got torch.int64"),
    (X * torch.nan, Y, "x must be finite, got nan"),
    (X + 5, Y, "x must lie in box, from 0 to 1, got entries from 5"),
    (X, Y + 1, "y must be between 0 and 2, as model has 3 classes, got labels from 1 to 3"),
    (X, Y.float(), "y must be 6 integers, one for each example, got torch.float32"),
    (X, Y[:4], "y must be 6 integers, one for each example"),
    (X[:0], Y[:0], "x must not be empty"),
    (X.double(), Y, "x must be torch.float32 as model is, got torch.float64"),
]


@pytest.mark.parametrize("measure", [radii, accuracy, average, transfer, masking])
@pytest.mark.parametrize(("x", "y", "message"), WRONG)
def test_bad_inputs_are_refused(measure, x, y, message, unchecked):
    with pytest.raises(ValueError, match=message):
        measure(MINE, (x, y))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("measure", [radii, accuracy, average, alignment, detector])
def test_a_gpu_gives_the_same(measure):
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    here = measure(model, (X.double(), Y))
    there = measure(model.cuda(), (X.double().cuda(), Y.cuda()))
    for one, other in zip(here, there, strict=True):
        one, other = torch.as_tensor(one), torch.as_tensor(other)
        assert torch.allclose(one.double(), other.cpu().double(), atol=1e-6, equal_nan=True)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("measure", MEASURES)
def test_one_example_without_logits_is_told(measure):
    """Not the first, the middle or the last, which all look at before they begin."""

    class Holes(nn.Module):
        def forward(self, x):
            z = x.flatten(1)[:, :3]
            return z + (z.amin(1, keepdim=True) - 0.01).sqrt()

    x = X.clamp(min=0.1)
    x[1, 0, 0] = 0.0
    with pytest.raises(ValueError, match="logits of model must be finite, got nan"):
        measure(Holes(), (x, Y))
