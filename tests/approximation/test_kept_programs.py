"""A program that is kept sees everything that may happen to its model."""

import gc
import weakref

import pytest
import torch
from torch import nn

from vademecum.approximation.local_affine import local_affine_map
from vademecum.approximation.piecewise import _reader, read_program

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


def tied(model):
    model[0].bias = None


CHANGES = [
    data_in_place, step, data_replaced, parameter_replaced, option, layer_replaced,
    layer_of_the_same_kind, hook, own_forward, tied,
]  # fmt: skip


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
    monkeypatch.setattr(_reader, "Trace", None)
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
    gone = weakref.ref(model[0].weight.untyped_storage())
    assert gone() is not None
    model.float()
    gc.collect()
    assert gone() is None
