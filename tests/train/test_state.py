"""A run that is captured and put back into a fresh one goes on with the same bits."""

import random
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import lr_scheduler

from tests.train.runs import (
    cosine,
    fingerprint,
    insist_on_same_end,
    make_run,
    network,
    saved,
    take_steps,
)
from vademecum.errors import UsageError
from vademecum.train._generators import generator_states, set_generators
from vademecum.train._state import capture, restore


def test_scaler_of_losses(tmp_path):
    run = make_run(everything=False)
    run.scaler = GradScaler("cpu", init_scale=512.0, growth_interval=3)
    run.scaler.scale(torch.ones(()))
    run.scaler._growth_tracker.fill_(2)  # pyright: ignore
    checkpoint = saved(run, tmp_path)
    other = make_run(everything=False)
    other.scaler = GradScaler("cpu")
    restore(other, checkpoint)
    assert other.scaler.state_dict() == run.scaler.state_dict()
    with pytest.raises(UsageError, match="another precision"):
        restore(make_run(everything=False), checkpoint)


def draws() -> list[Any]:
    """Numbers of all generators; NumPy and Python keep the second of two normal numbers."""
    normal = np.random.normal
    return [(torch.rand(3).tolist(), normal(), random.gauss()) for _ in range(3)]


def test_all_generators(tmp_path):
    for _ in range(2):
        run = make_run()
        checkpoint = saved(run, tmp_path)
        after = draws()
        restore(run, checkpoint)
        first = draws()
        restore(run, checkpoint)
        assert draws() == first
        # Type checks, which run in tests alone, have drawn from Python's in between.
        assert [entry[:2] for entry in first] == [entry[:2] for entry in after]


def test_the_second_of_two_normal_numbers_is_kept():
    device = torch.device("cpu")
    random.seed(1)
    random.gauss()
    second = random.getstate()[2]
    np.random.seed(1)  # noqa: NPY002
    np.random.normal()  # noqa: NPY002
    states = generator_states(device)
    random.seed(9)
    np.random.seed(9)  # noqa: NPY002
    set_generators(states, device)
    again = generator_states(device)
    assert states["python_normal"].tolist() == [1, second]
    for name in ("python_normal", "numpy_normal", "numpy"):
        assert torch.equal(states[name], again[name])


def test_a_lost_generator_is_an_error(tmp_path):
    checkpoint = saved(make_run(), tmp_path)
    del checkpoint.document["state"]["random"]["0"]["numpy"]
    with pytest.raises(UsageError, match="'numpy' is missing"):
        restore(make_run(), checkpoint)


# What others have lost


def test_moments_that_a_fresh_optimiser_lacks_are_there(tmp_path):
    run = take_steps(make_run(), 2)
    other = make_run()
    assert not other.optimizers["model"].state
    restore(other, saved(run, tmp_path))
    states = other.optimizers["model"].state_dict()["state"]
    assert [set(state) for state in states.values()] == 6 * [{"step", "exp_avg", "exp_avg_sq"}]


def test_no_moments_are_made_up_for_what_had_no_gradient(tmp_path):
    model = network()
    model[0].requires_grad_(False)  # pyright: ignore
    run = take_steps(make_run(model), 2)
    other = make_run()
    restore(other, saved(run, tmp_path))
    assert sorted(other.optimizers["model"].state_dict()["state"]) == [2, 3, 4, 5]
    assert [p.requires_grad for p in other.objective.parameters()] == [False] * 2 + [True] * 4
    model[0].requires_grad_(True)  # pyright: ignore
    other.objective[0].requires_grad_(True)  # pyright: ignore
    state = torch.get_rng_state()
    end = fingerprint(take_steps(run, 2))
    torch.set_rng_state(state)
    assert fingerprint(take_steps(other, 2)) == end


def test_state_of_frozen_parameters_is_kept(tmp_path):
    run = take_steps(make_run(), 3)
    run.objective[0].requires_grad_(False)  # pyright: ignore
    other = make_run()
    restore(other, saved(run, tmp_path))
    weight = other.objective[0].weight  # pyright: ignore
    kept = run.optimizers["model"].state[run.objective[0].weight]  # pyright: ignore
    assert kept["exp_avg"].abs().sum() > 0
    assert torch.equal(other.optimizers["model"].state[weight]["exp_avg"], kept["exp_avg"])


def test_states_keep_their_dtype_beside_narrow_parameters(tmp_path):
    class Wide(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure=None) -> Any:
            for p in self.param_groups[0]["params"]:
                state = self.state[p]
                state.setdefault("sum", torch.full_like(p, 1 / 3, dtype=torch.float64))
                state.setdefault("count", torch.tensor(2**40 + 1))

    run = make_run(nn.Linear(3, 2).bfloat16(), Wide, everything=False)
    run.optimizers["model"].step()
    other = make_run(nn.Linear(3, 2).bfloat16(), Wide, everything=False)
    restore(other, saved(run, tmp_path))
    assert fingerprint(other) == fingerprint(run)


def test_parameters_in_another_order_find_their_states(tmp_path):
    def backwards(params):
        return torch.optim.Adam(list(params)[::-1])

    run, other = take_steps(make_run(), 2), make_run(optimizer=backwards)
    run.optimizers["model"].param_groups[0].pop("decoupled_weight_decay")
    restore(other, saved(run, tmp_path))
    for mine, its in zip(run.objective.parameters(), other.objective.parameters(), strict=True):
        states = [r.optimizers["model"].state[p] for r, p in ((run, mine), (other, its))]
        assert torch.equal(states[0]["exp_avg"], states[1]["exp_avg"])


class Counting(nn.Module):
    """Tied weights, a buffer that its state dict leaves out, and a state that is no tensor."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
        self.two.weight = self.one.weight
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.register_buffer("mask", torch.full((2,), -torch.inf))
        self.calls: Any = 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.sum()
        self.calls += 1
        return self.two(self.one(x)) + self.seen + self.calls

    def get_extra_state(self) -> Any:
        return {"calls": self.calls}

    def set_extra_state(self, state: Any) -> None:
        self.calls = state["calls"]


def test_complex_weights(tmp_path):
    class Turning(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, 2, dtype=torch.complex128))

        def forward(self, x: Tensor) -> Tensor:
            return torch.view_as_real(x.to(self.w.dtype) @ self.w)

    insist_on_same_end(lambda seed: make_run(Turning(), seed=seed), tmp_path)


def test_modules_of_any_kind(tmp_path):
    insist_on_same_end(lambda seed: make_run(Counting(), seed=seed), tmp_path)


def test_weights_are_read_by_safetensors_itself(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.ModuleDict({"module": nn.Linear(3, 3), "_orig_mod": nn.LSTM(3, 3)})
            self.head = nn.Linear(3, 3, bias=False)
            self.head.weight = self.body["module"].weight  # pyright: ignore

    model = Tied()
    checkpoint = saved(make_run(model), tmp_path)
    names = set(checkpoint.tensors["model"])
    assert {"body.module.weight", "body._orig_mod.weight_ih_l0"} <= names
    assert "head.weight" not in names
    other = Tied()
    safetensors.torch.load_model(other, checkpoint.path / "model.safetensors")
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )


def test_names_are_those_of_the_plain_module(tmp_path):
    plain = network()
    model = nn.Sequential(torch.compile(plain[0], backend="eager"), *plain[1:])  # pyright: ignore
    assert any("_orig_mod" in name for name in model.state_dict())
    run = make_run(model)
    checkpoint = saved(run, tmp_path)
    assert set(checkpoint.tensors["model"]) == set(plain.state_dict())
    other = make_run(network())
    restore(other, checkpoint)
    restore(run, checkpoint)
    assert torch.equal(other.objective[0].weight, plain[0].weight)  # pyright: ignore


# What does not fit


def changed(**layers: nn.Module) -> nn.Module:
    model = network()
    for place, layer in layers.items():
        model.add_module(place.removeprefix("_"), layer)
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_run(changed(_0=nn.Linear(5, 4))), r"0.weight has the shape \(4, 3\), and"),
        (lambda: make_run(changed(_5=nn.Linear(2, 2))), "it has no parameter 5.weight"),
        (lambda: make_run(changed(_4=nn.Identity())), "its parameter 4.weight is unknown here"),
        (lambda: make_run(network().double()), "0.weight has the dtype torch.float32, and here"),
        (lambda: make_run(changed(_1=nn.Identity())), "its parameter 1.weight is unknown"),
        (
            lambda: make_run(changed(_1=nn.BatchNorm1d(4, track_running_stats=False))),
            "its buffer 1.running_mean is unknown",
        ),
        (lambda: make_run(everything=False), "it has an average for 'model'"),
        (
            lambda: make_run(optimizer=lambda p: torch.optim.AdamW([{"params": q} for q in p])),
            "has 1 groups, and here 6",
        ),
        (
            lambda: make_run(optimizer=lambda p: torch.optim.AdamW(list(p)[:3])),
            "1.bias in group 0 of its optimizer of 'model' is unknown here",
        ),
        (lambda: make_run(schedule=cosine), "it has no schedule for 'model'"),
    ],
)
def test_first_difference_is_named_and_nothing_changes(make, message, tmp_path):
    checkpoint = saved(take_steps(make_run(), 2), tmp_path)
    other = make()
    before = fingerprint(other)
    with pytest.raises(UsageError, match=message):
        restore(other, checkpoint)
    assert fingerprint(other) == before


def test_parameters_outside_the_objective_are_refused():
    run = make_run(everything=False)
    run.optimizers["model"].add_param_group({"params": [nn.Parameter(torch.ones(7))]})
    with pytest.raises(ValueError, match=r"alone, since no others are saved, got one of shape \(7"):
        capture(run)


def test_what_cannot_be_written_is_named():
    run = make_run(schedule=lambda o: lr_scheduler.StepLR(o, 3))
    run.schedules["model"].rule = len  # pyright: ignore
    with pytest.raises(ValueError, match="builtin_function_or_method in schedules/model/rule"):
        capture(run)
