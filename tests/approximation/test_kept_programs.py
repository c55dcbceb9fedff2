"""A program that is kept sees everything that may happen to its model."""

import gc
import threading
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from vademecum.approximation.local_affine import local_affine_map
from vademecum.approximation.piecewise import read_program
from vademecum.models import tracing

X = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)).double()


def network():
    layers = nn.Linear(3, 5), nn.LeakyReLU(0.1), nn.Linear(5, 4), nn.PReLU(), nn.Dropout()
    return nn.Sequential(*layers, nn.Sequential(nn.Linear(4, 2), nn.Hardtanh(-9.0, 9.0))).double()


def program(model):
    return read_program(model, (3,), X)


def data_in_place(model):
    for p in model.parameters():
        p.data.mul_(1.5)


def step(model):
    with torch.no_grad():
        model[0].weight.add_(0.5)


def data_replaced(model):
    model[2].weight.data = torch.randn(4, 5).double()


def parameter_replaced(model):
    model[0].bias = nn.Parameter(torch.randn(5).double())


def option(model):
    model[1].negative_slope = 0.7


def layer_replaced(model):
    model[1] = nn.Hardtanh(-0.1, 0.1)


def layer_of_the_same_kind(model):
    model[1] = nn.LeakyReLU(0.7)


def hook(model):
    model[0].register_forward_hook(lambda module, given, out: -out)


def own_forward(model):
    vars(model[1])["forward"] = lambda x: -x


def hook_of_all(model):
    GLOBAL.append(
        nn.modules.module.register_module_forward_hook(
            lambda module, given, out: -out if module is model[0] else None
        )
    )


def code_of_a_kind(model):
    GLOBAL.append(patched := pytest.MonkeyPatch())
    patched.setattr(nn.LeakyReLU, "forward", lambda self, x: -x)


def tied(model):
    model[0].bias = None


@pytest.fixture
def undone():
    yield
    while GLOBAL:
        change = GLOBAL.pop()
        change.undo() if isinstance(change, pytest.MonkeyPatch) else change.remove()


GLOBAL = []
CHANGES = [
    data_in_place, step, data_replaced, parameter_replaced, option, layer_replaced,
    layer_of_the_same_kind, hook, own_forward, tied, hook_of_all, code_of_a_kind,
]  # fmt: skip


@pytest.mark.usefixtures("undone")
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_happens_to_the_model_is_seen(change):
    model = network()
    before = local_affine_map(model, X)
    assert program(model) is program(model)
    change(model)
    after = local_affine_map(model, X)
    model.eval()
    jacobian = torch.stack([torch.autograd.functional.jacobian(model, z[None]) for z in X])
    torch.testing.assert_close(after.A, jacobian.reshape(9, 2, 3))
    torch.testing.assert_close(after(X), model(X).detach())
    assert not torch.allclose(after(X), before(X))


def test_nothing_is_read_again_for_nothing(monkeypatch):
    model = network()
    found = local_affine_map(model, X)
    monkeypatch.setattr(tracing, "Trace", None)
    assert torch.equal(local_affine_map(model, X[:4]).A, found.A[:4])
    assert torch.equal(local_affine_map(model.eval(), X).A, found.A)
    with pytest.raises(ValueError, match="'NoneType' object is not callable"):  # to read again
        local_affine_map(model, X[:, None])


def test_other_inputs_and_models_have_programs_of_their_own():
    model = network()
    first = program(model)
    assert read_program(model, (2, 3), X) is not first
    assert program(model) is not first
    with_buffers = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double()
    assert program(with_buffers) is not program(with_buffers)
    assert program(network().float()) is not program(network().float())

    class Foreign(nn.Sequential):
        pass

    foreign = Foreign(nn.Linear(3, 2)).double()
    assert program(foreign) is not program(foreign)


@pytest.mark.parametrize("value", [torch.ones(3), torch.zeros(()), np.zeros(2), [], {1: 2}])
def test_attributes_that_nobody_knows(value):
    model = network()
    found = local_affine_map(model, X)
    model[0].note = value
    assert program(model) is not program(model)
    assert torch.equal(local_affine_map(model, X).A, found.A)


def test_threads_read_one_model():
    model = nn.Sequential(*network(), nn.BatchNorm1d(2).double())
    wanted, found = local_affine_map(model, X).A, []

    def work():
        found.extend(local_affine_map(model, X).A for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40
    assert all(torch.equal(A, wanted) for A in found)
    assert all(m.training and "forward" not in vars(m) for m in model.modules())


def test_no_model_is_kept_alive():
    model = network()
    program(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_no_data_is_kept_alive():
    model = network()
    program(model)
    gone = weakref.ref(next(model.parameters()).untyped_storage())
    assert gone() is not None
    model.float()
    gc.collect()
    assert gone() is None
