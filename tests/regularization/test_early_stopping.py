"""Early stopping: what counts as better, what is kept, and going on after an interruption."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vademecum.regularization import EarlyStopping

NAN, INF = math.nan, math.inf


def weight(value: float = 0.0) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, value)
    return model


def run(stopping: EarlyStopping, values, first: int = 1) -> tuple[int, float]:
    """The step at which it stops, and the weight that comes back: the number of the best step."""
    model = weight()
    for step, value in enumerate(values, first):
        nn.init.constant_(model.weight, step)
        if stopping(value, model):
            break
    stopping.restore(model)
    return stopping.step, model.weight.item()


CURVES = [
    ([3, 2, 1, 2, 3, 4], {}, 5, 3),
    ([3, 2, 2, 2, 9], {}, 4, 2),
    ([5, 4.5, 4.0, 3.5, 3.0], {"min_delta": 1.0}, 3, 1),  # 4 is not better by more than 1
    ([5, 4.0, 3.0], {"min_delta": 1.0}, 3, 3),  # but 3 is
    ([NAN, 2, NAN, 1, NAN, NAN, 0], {}, 6, 4),
    ([INF, 2.0, INF, INF], {}, 4, 2),
    ([-INF, -INF, 1.0], {}, 3, 1),
    ([1, 2, 3, 2, 1], {"maximize": True}, 5, 3),
    ([-INF, NAN, 0.5], {"maximize": True, "patience": 3}, 3, 3),
]


@pytest.mark.parametrize(("values", "knobs", "last", "best"), CURVES)
def test_early_stopping_stops_and_restores(values, knobs, last, best):
    stopping = EarlyStopping(**{"patience": 2, **knobs})
    assert run(stopping, values) == (last, best)
    assert stopping.best_step == best


def test_small_improvements_wait_for_each_other():
    """Each is compared with the best that counted, not with the value before."""
    stopping = EarlyStopping(3, 1.0)
    assert run(stopping, [5.0, 4.5, 4.2, 3.9, 3.8, 3.7, 3.5]) == (7, 4)
    assert stopping.best == 3.9


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", [torch.tensor, np.float32, lambda v: torch.tensor([[v]])])
def test_values_of_any_kind(kind):
    values = [kind(v) for v in (2.0, NAN, 1.0, 3.0, 4.0)]
    assert run(EarlyStopping(2), values) == (5, 3.0)


def normed() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Linear(3, 3))
    net[3].weight = net[2].weight
    return net


def test_buffers_and_ties_come_back():
    net: Any = normed()
    stopping = EarlyStopping(1)
    net(torch.randn(8, 2))
    before = {name: t.clone() for name, t in net.state_dict().items()}
    stopping(1.0, net)
    net(torch.randn(8, 2))
    nn.init.ones_(net[2].weight)
    stopping(2.0, net)
    stopping.restore(net)
    for name, t in net.state_dict().items():
        assert t.equal(before[name]), name
    assert net[2].weight is net[3].weight


def test_what_is_kept_is_a_copy_into_the_same_memory():
    model, stopping = weight(1.0), EarlyStopping(5)
    stopping(3.0, model)
    kept = stopping._weights["weight"]
    nn.init.constant_(model.weight, 2.0)
    assert kept.item() == 1.0
    stopping(2.0, model)
    assert stopping._weights["weight"] is kept
    assert kept.item() == 2.0
    assert not kept.requires_grad
    model.double()
    stopping(1.0, model)
    assert stopping._weights["weight"].dtype == torch.float64


@pytest.mark.parametrize("cut", range(1, 7))
def test_a_state_dict_resumes_exactly(cut, tmp_path):
    from safetensors.torch import load_file, save_file

    values = [3.0, NAN, 2.0, 2.5, 2.2, 4.0, 0.0]
    whole = EarlyStopping(3, 0.1)
    wanted = run(whole, values)
    first = EarlyStopping(3, 0.1)
    model = weight()
    for step, value in enumerate(values[:cut], 1):
        nn.init.constant_(model.weight, step)
        first(value, model)
    save_file(first.state_dict(), tmp_path / "stopping.safetensors")
    again = EarlyStopping(3, 0.1)
    again.load_state_dict(load_file(tmp_path / "stopping.safetensors"))
    if not again.stopped:
        assert run(again, values[cut:], first=cut + 1) == wanted
    assert (again.best, again.best_step) == (whole.best, whole.best_step)
    again.restore(model)
    assert model.weight.item() == wanted[1]


def test_a_state_dict_is_a_copy_in_both_directions():
    model, stopping = weight(1.0), EarlyStopping(2)
    stopping(1.0, model)
    state = stopping.state_dict()
    state["weights.weight"].fill_(9.0)
    other = EarlyStopping(2)
    other.load_state_dict(state)
    state["weights.weight"].fill_(8.0)
    for one, value in ((stopping, 1.0), (other, 9.0)):
        one.restore(model)
        assert model.weight.item() == value


def test_strided_weights_can_be_saved(tmp_path):
    from safetensors.torch import save_file

    net = nn.Conv2d(3, 4, 3)
    net.weight.data = net.weight.data.contiguous(memory_format=torch.channels_last)
    stopping = EarlyStopping(2)
    stopping(1.0, net)
    stopping(0.5, net)
    save_file(stopping.state_dict(), tmp_path / "stopping.safetensors")
    stopping.restore(net)


class Counting(nn.Module):
    """A state that is no tensor."""

    def __init__(self):
        super().__init__()
        self.seen = [0]

    def get_extra_state(self):
        return {"seen": self.seen}

    def set_extra_state(self, state):
        self.seen = state["seen"]


def test_states_of_other_kinds_are_kept():
    model, stopping = Counting(), EarlyStopping(2)
    stopping(1.0, model)
    model.seen[0] = 7
    stopping.restore(model)
    assert model.seen == [0]


def test_wrappers_of_torch_compile_do_not_count():
    model, stopping = weight(1.0), EarlyStopping(2)
    stopping(1.0, torch.compile(model, backend="eager"))  # pyright: ignore[reportArgumentType]
    nn.init.zeros_(model.weight)
    stopping.restore(model)
    assert model.weight.item() == 1.0


def test_its_repr_tells_where_it_stands():
    stopping = EarlyStopping(3, maximize=True)
    assert repr(stopping) == (
        "EarlyStopping(patience=3, min_delta=0.0, maximize=True, best=-inf at step 0 of 0)"
    )


@pytest.mark.usefixtures("unchecked")
def test_errors():
    model, stopping = weight(), EarlyStopping(2)
    stopping(NAN, model)
    odd: dict[str, torch.Tensor] = {"best": torch.tensor(1.0)}
    half: Any = 1.5
    word: Any = "low"
    table = [
        (lambda: EarlyStopping(0), "patience must be >= 1, got 0"),
        (lambda: EarlyStopping(half), "patience must be an integer, got 1.5"),
        (lambda: EarlyStopping(1, -0.1), "min_delta must be >= 0, got -0.1"),
        (lambda: EarlyStopping(1, NAN), "min_delta must be"),
        (lambda: stopping(word, model), "value must be a number, got 'low'"),
        (
            lambda: stopping(torch.ones(2), model),
            "value must be one real number, got torch.float32",
        ),
        (lambda: stopping.restore(model), "an improvement, got none among 1"),
        (lambda: stopping.load_state_dict(odd), "must have the entries .'best_step', 'step'."),
    ]
    for act, message in table:
        with pytest.raises(ValueError, match=message):
            act()
    assert stopping.step == 1  # values that are none do not count
