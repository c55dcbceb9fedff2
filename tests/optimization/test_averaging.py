"""Averages of iterates against NumPy's, and models that show them for a while."""

import copy
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vademecum.optimization import HeavyBall, PolyakAveraging, averaged


def walked(values, *, dtype=torch.float64, **options):
    """A layer whose weight takes these values, one a step."""
    model = nn.Linear(2, 1, bias=False, dtype=dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    averaging = PolyakAveraging(optimizer, **options)
    for value in values:
        with torch.no_grad():
            model.weight.copy_(torch.as_tensor(value))
        optimizer.step()
    return model, optimizer, averaging


VALUES = np.random.default_rng(0).normal(size=(9, 1, 2))


def shown(model: nn.Linear, **options) -> np.ndarray:
    with averaged(model, **options):
        return model.weight.detach().clone().numpy()


@pytest.mark.parametrize("start", [0, 3])
def test_polyak_averaging_is_the_mean(start):
    model, _, _ = walked(VALUES, start=start)
    assert shown(model) == pytest.approx(VALUES[start:].mean(0), rel=1e-13)
    assert (model.weight.detach().numpy() == VALUES[-1]).all()


def test_the_exponential_average_forgets():
    model, _, averaging = walked(VALUES, kind="exponential", decay=0.75)
    wanted = VALUES[0]
    for value in VALUES[1:]:
        wanted = 0.75 * wanted + 0.25 * value
    assert shown(model) == pytest.approx(wanted, rel=1e-13)
    assert averaging.weight == 0.25
    assert repr(averaging) == "PolyakAveraging(SGD, kind='exponential', decay=0.75)"


def test_the_first_iterate_weighs_all():
    for options, later in (({}, 0.5), ({"kind": "exponential", "decay": 0.75}, 0.25)):
        found = [walked(VALUES[:t], start=1, **options)[2].weight for t in range(4)]
        assert found == [0, 0, 1, later]


def test_frozen_parameters_have_no_average_and_means_are_copies():
    model, optimizer, averaging = walked(VALUES)
    frozen = nn.Parameter(torch.ones(1), requires_grad=False)
    optimizer.add_param_group({"params": [frozen]})
    optimizer.step()
    with pytest.raises(ValueError, match="got one that has no average yet"):
        averaging.mean(frozen)
    averaging.mean(model.weight).zero_()
    assert shown(model).any()


def test_averages_of_halves_are_wide():
    model, _, averaging = walked([[[256.0, 1.0]], [[257.0, 1.0]]] * 8, dtype=torch.bfloat16)
    assert averaging.mean(model.weight).dtype == torch.float32
    assert averaging.mean(model.weight).tolist() == [[256.0, 1.0]]  # 257 is 256 in bfloat16
    model, _, averaging = walked([[[1.0, 1.0]]] + [[[2.0, 1.0]]] * 2047, dtype=torch.bfloat16)
    assert averaging.mean(model.weight)[0, 0].item() == pytest.approx(2 - 1 / 2048, abs=1e-5)


def test_training_is_as_without_averages_and_waits_while_they_are_shown():
    def train(average: bool):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = HeavyBall(model.parameters(), lr=0.1)
        if average:
            PolyakAveraging(optimizer)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().sum().backward()
            optimizer.step()
            if average:
                with averaged(model):
                    model(torch.ones(4, 3))
        return model, optimizer

    (one, _), (other, optimizer) = train(False), train(True)
    assert all(map(torch.equal, one.parameters(), other.parameters()))
    with averaged(other):
        with averaged(other):
            pass
        with pytest.raises(ValueError, match="a step must wait until"):
            optimizer.step()
    optimizer.step()


def test_errors_put_the_iterate_back():
    model, _, _ = walked(VALUES)
    with pytest.raises(KeyError), averaged(model):
        raise KeyError
    assert (model.weight.detach().numpy() == VALUES[-1]).all()
    with averaged(model), averaged(model):
        pass
    assert (model.weight.detach().numpy() == VALUES[-1]).all()


def test_states_go_on():
    model, optimizer, averaging = walked(VALUES[:4])
    saved = averaging.state_dict()
    frozen = copy.deepcopy(saved)
    other, its, again = walked([])
    again.load_state_dict(saved)
    for value in VALUES[4:]:
        for m, o in ((model, optimizer), (other, its)):
            with torch.no_grad():
                m.weight.copy_(torch.as_tensor(value))
            o.step()
    assert (shown(model) == shown(other)).all()
    assert torch.equal(saved["means"][0], frozen["means"][0])


def test_averages_live_as_long_as_the_parameters():
    model, optimizer, averaging = walked(VALUES)
    gone = weakref.ref(averaging)
    del optimizer, averaging
    gc.collect()
    assert shown(model) == pytest.approx(VALUES.mean(0))
    del model
    gc.collect()
    assert gone() is None


def test_groups_added_later_start_with_their_first_iterate():
    _, optimizer, averaging = walked(VALUES[:2])
    late = nn.Parameter(torch.tensor([5.0]))
    optimizer.add_param_group({"params": [late]})
    optimizer.step()
    assert averaging.mean(late).item() == 5.0


def test_statistics_are_taken_anew_on_request():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    PolyakAveraging(optimizer)
    x = torch.randn(10, 3)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    model[2].eval()
    before = copy.deepcopy(model.state_dict())
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    loader = DataLoader(TensorDataset(x), batch_size=4)
    state = torch.get_rng_state()
    for data in (x, loader):  # 4, 4 and 2 of ten
        with averaged(model, data):
            wanted = model[0](x).mean(0)
            torch.testing.assert_close(norm.running_mean, wanted.detach())
            assert norm.momentum == 0.1
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in model.modules()] == [True, True, True, False]
    after = model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
    with averaged(model):
        torch.testing.assert_close(norm.running_mean, before["1.running_mean"])


def two_averagings():
    model, optimizer, _ = walked(VALUES)
    second = PolyakAveraging(optimizer, kind="exponential")
    optimizer.step()
    assert shown(model, by=second) == pytest.approx(VALUES[-1])
    with averaged(model):
        pass


def not_its_own():
    averaging = walked(VALUES)[2]
    averaging.mean(torch.zeros(2))


def another_size():
    _model, _, averaging = walked(VALUES)
    averaging.load_state_dict({"t": 1, "means": []})


def empty_loader():
    model = walked(VALUES)[0]
    nothing: Any = []
    with averaged(model, DataLoader(nothing)):
        pass


def begin(model):
    with averaged(model):
        pass


WRONG: Any = nn.Linear(1, 1)
ERRORS = [
    (lambda: begin(nn.Linear(1, 1)), "model must be averaged by one PolyakAveraging, got 0"),
    (two_averagings, "by one PolyakAveraging, got 2: say by which"),
    (lambda: begin(walked([])[0]), "model must have averages, and no step has been averaged yet"),
    (lambda: walked(VALUES, decay=1.0), "decay must be < 1, got 1.0"),
    (lambda: walked(VALUES, decay=-0.5), "decay must be >= 0, got -0.5"),
    (lambda: walked(VALUES, kind="mean"), "kind must be one of 'uniform', 'exponential'"),
    (lambda: walked(VALUES, start=-1), "start must be >= 0, got -1"),
    (lambda: PolyakAveraging(WRONG), "optimizer must be a torch.optim.Optimizer"),
    (not_its_own, "got one that is none of the optimizer's"),
    (another_size, "state_dict must hold 1 averages, one a parameter, got 0"),
    (empty_loader, "x must hold batches, got an empty DataLoader"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()
