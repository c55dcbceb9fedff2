"""Computing with other tensors in the places of a model's own, which is left as it was."""

import copy
import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from vademecum.models import ModelState, insist_on_place
from vademecum.testing.laws import changes, snapshot


class CannotBeCopied(nn.Sequential):
    """Holds a lock, as models with caches or loaders do."""

    def __init__(self, *layers: nn.Module):
        super().__init__(*layers)
        self.lock = threading.Lock()


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    return model


MODELS = {
    "plain": lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)),
    "tied": tied,
    "twice": lambda: nn.Sequential(*[nn.Linear(3, 3)] * 2),
    "statistics": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)),
    "parametrized": lambda: parametrizations.weight_norm(nn.Linear(3, 2)),
    "no copies": lambda: CannotBeCopied(nn.Linear(3, 2), nn.Dropout(0.5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_computes_in_a_wider_dtype_and_in_evaluation(name):
    model, x = MODELS[name](), torch.randn(5, 3)
    before = snapshot(model)
    found = ModelState(model, dtype=torch.float64).run(model, x.double())
    assert not list(changes(before, snapshot(model)))
    if name != "no copies":
        wanted = copy.deepcopy(model).double().eval()(x.double())
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-14)
    torch.testing.assert_close(found.float(), model.eval()(x))


def test_a_model_is_back_when_a_computation_fails():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    before = snapshot(model)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ModelState(model, dtype=torch.float64).run(model, torch.ones(1, 7).double())
    assert not list(changes(before, snapshot(model)))


def test_parameters_are_shared_unless_copies_are_asked_for():
    model, x = nn.Linear(3, 2), torch.ones(1, 3)
    shared, kept = ModelState(model), ModelState(model, copy=True)
    before = model(x).detach()
    with torch.no_grad():
        model.weight += 1
    torch.testing.assert_close(shared.run(model, x), before + 3)
    torch.testing.assert_close(kept.run(model, x), before)
    assert copy.deepcopy(kept) is kept


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def test_buffers_that_code_counts_in_stay_as_they_are():
    model = Counting()
    ModelState(model).run(model, torch.ones(2))
    assert model.calls == 0


def test_derivatives_go_through():
    model, x = MODELS["plain"](), torch.randn(2, 3, requires_grad=True)
    (found,) = torch.autograd.grad(ModelState(model).run(model, x).sum(), x)
    (wanted,) = torch.autograd.grad(model.eval()(x).sum(), x)
    torch.testing.assert_close(found, wanted)


def test_inputs_must_be_where_the_model_is_and_no_narrower():
    model = nn.Linear(3, 2)
    insist_on_place(model, "x", torch.zeros(1, 3))
    insist_on_place(model, "x", torch.zeros(1, 3).double())
    with pytest.raises(ValueError, match=r"x must be torch.float64 as model is, or wider, got"):
        insist_on_place(model.double(), "x", torch.zeros(1, 3))
    with pytest.raises(ValueError, match="x must be on cpu as model is, got meta"):
        insist_on_place(model, "x", torch.zeros(1, 3, device="meta").double())
    insist_on_place(model, "x", torch.zeros(1, 3).double(), wider=False)
    with pytest.raises(ValueError, match=r"x must be torch.float32 as model is, got torch.float64"):
        insist_on_place(model.float(), "x", torch.zeros(1, 3).double(), wider=False)


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_model_is_refused():
    with pytest.raises(ValueError, match=r"model must be an nn\.Module, got function"):
        ModelState(lambda x: x)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="model must be initialised, and weight is not"):
        ModelState(nn.LazyLinear(2))
