"""Laws of all our optimisers: groups, closures, rates, states.

A new optimiser needs an entry in `MADE`, which is in `optimisers.py`.
"""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optimization.optimisers import ALL, MADE, Problem, close, run, same
from vademecum.optimization import SVRG


@ALL
def test_a_step_goes_downhill_and_returns_the_loss(make):
    problem = Problem()
    optimizer = make(problem.params(), problem)
    before = problem.loss().item()
    losses = [optimizer.step(problem.closure()).item() for _ in range(5)]
    assert losses[0] == before
    assert losses[-1] < before


@ALL
def test_maximize_is_descent_of_the_negative(make):
    class Negative(Problem):
        def loss(self, t: int = 0) -> Tensor:
            return -super().loss(t)

    problem = Negative()
    optimizer = make(problem.params(), problem, maximize=True)
    for t in range(7):
        optimizer.step(problem.closure(t))
    assert close([p.detach() for p in problem.params()], run(make))


@ALL
def test_foreach_changes_nothing(make):
    default = run(make)
    for foreach in (True, False):
        assert close(run(make, foreach=foreach), default)


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions(make, dtype):
    wanted = [x.to(dtype) for x in run(make, 3)]
    tol = 8 * torch.finfo(dtype).eps
    assert close(run(make, 3, dtype=dtype), wanted, tol)


@ALL
def test_the_rate_may_be_a_tensor(make):
    assert close(run(make, lr=torch.tensor(0.05, dtype=torch.float64)), run(make))


@ALL
def test_groups_have_rates_of_their_own(make):
    problem = Problem()
    optimizer = make([{"params": [problem.w]}, {"params": [problem.b], "lr": 0.0}], problem)
    b = problem.b.detach().clone()
    optimizer.step(problem.closure())
    assert torch.equal(problem.b, b)
    assert not torch.equal(problem.w, Problem().w)


@ALL
def test_a_group_added_later_has_its_state(make):
    problem = Problem()
    optimizer = make([problem.w], problem)
    optimizer.step(problem.closure())
    optimizer.add_param_group({"params": [problem.b]})
    keys = [set(optimizer.state.get(p, {})) for p in problem.params()]
    assert keys[0] == keys[1]
    optimizer.step(problem.closure())
    assert not torch.equal(problem.b, Problem().b)


@ALL
def test_states_are_made_at_once_and_steps_of_length_zero_keep_the_parameters(make):
    problem = Problem()
    optimizer = make(problem.params(), problem, lr=0.0)
    kinds = [{k: type(v) for k, v in optimizer.state.get(p, {}).items()} for p in problem.params()]
    for p in problem.params():
        p.grad = torch.zeros_like(p)
    if not isinstance(optimizer, SVRG):  # whose state is never empty, so nobody asks it to
        optimizer.step()
    assert same(problem.params(), Problem().params())
    for p, known in zip(problem.params(), kinds, strict=True):
        assert set(optimizer.state.get(p, {})) == set(known)


@ALL
@pytest.mark.parametrize("count", [1, 4])
def test_a_state_dict_continues_bit_by_bit(make, count):
    problem = Problem()
    optimizer = make(problem.params(), problem)
    for t in range(count):
        optimizer.step(problem.closure(t))
    saved = optimizer.state_dict()
    frozen = pickle.dumps(saved)  # holds no function
    other = copy.deepcopy(problem)
    fresh = make(other.params(), other, lr=0.7)
    fresh.load_state_dict(saved)
    for t in range(count, 7):
        optimizer.step(problem.closure(t))
        fresh.step(other.closure(t))
    assert same(problem.params(), other.params())
    assert pickle.dumps(saved) == frozen  # neither of the two writes into it


@ALL
def test_states_are_not_shared(make):
    problem = Problem()
    optimizer = make(problem.params(), problem)
    optimizer.step(problem.closure())
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    mine = {x.data_ptr() for state in optimizer.state.values() for x in tensors(state)}
    theirs = {x.data_ptr() for state in saved["state"].values() for x in tensors(state)}
    assert not mine & theirs
    again = {x.data_ptr() for s in optimizer.state_dict()["state"].values() for x in tensors(s)}
    assert not mine & again


def tensors(state: dict[str, Any]) -> list[Tensor]:
    return [x for x in state.values() if isinstance(x, Tensor)]


BAD = [
    ({"lr": -0.1}, "lr must be >= 0, got -0.1"),
    ({"lr": float("nan")}, "lr must be >= 0, got nan"),
    ({"lr": float("inf")}, "lr must be finite, got inf"),
    ({"lr": "fast"}, "lr must be a number, got 'fast'"),
    ({"lr": torch.ones(2)}, r"lr must be a number, got a tensor of shape \(2,\)"),
    ({"lr": torch.tensor(-1.0)}, "lr must be >= 0, got -1.0"),
]


@pytest.mark.usefixtures("unchecked")
@ALL
@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_rates_are_named(make, options, message):
    problem = Problem()
    with pytest.raises(ValueError, match=message):
        make(problem.params(), problem, **options)
    with pytest.raises(ValueError, match=message):
        make([{"params": [problem.w]}, {"params": [problem.b], **options}], problem)


@ALL
def test_a_parameter_without_a_gradient_stays(make):
    problem = Problem()
    extra = nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = make([*problem.params(), extra], problem)
    optimizer.step(problem.closure())
    assert torch.equal(extra, torch.ones(2))
    assert same(problem.params(), run(make, 1))


@ALL
def test_frozen_parameters_stay_and_may_thaw(make):
    problem = Problem()
    problem.b.requires_grad_(False)
    optimizer = make(problem.params(), problem)
    optimizer.step(problem.closure())
    assert torch.equal(problem.b, Problem().b)
    problem.b.requires_grad_(True)
    for t in range(4):
        optimizer.step(problem.closure(t))
    assert not torch.equal(problem.b, Problem().b)


@ALL
def test_a_parameter_frozen_with_a_gradient_moves_as_with_torch_unless_constrained(make):
    class Wider(Problem):
        def __init__(self):
            super().__init__()
            self.extra = nn.Parameter(torch.ones(3, dtype=torch.float64))

        def loss(self, t: int = 0) -> Tensor:
            return super().loss(t) + (2 * self.extra.sum() if self.extra.requires_grad else 0)

    problem, other = Wider(), Wider()
    for one in (problem, other):
        optimizer = make(one.params(), one)
        optimizer.add_param_group({"params": [one.extra]})
        if one is problem:
            one.extra.requires_grad_(False).grad = torch.full((3,), 2.0, dtype=torch.float64)
        optimizer.step(one.closure())
        assert same(one.params(), run(make, 1))
    assert not torch.equal(other.extra, torch.ones(3))
    wanted = torch.ones(3) if make is MADE["ProjectedSGD"] else other.extra
    assert torch.equal(problem.extra, wanted)


@ALL
def test_copies_and_schedules(make):
    problem = Problem()
    optimizer = make(problem.params(), problem)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for t in range(3):
        optimizer.step(problem.closure(t))
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.05 / 8
    twin = copy.deepcopy(optimizer)
    assert type(twin) is type(optimizer)
    assert "lr: 0.00625" in repr(optimizer)


def test_every_optimiser_is_here():
    import vademecum.optimization as room

    names = {n for n in room.__all__ if is_ours(getattr(room, n))}
    others = {"Muon", "NewtonCG"}  # of matrices alone, and of closures without backward
    assert names - others <= {name.split(",")[0] for name in MADE}


def is_ours(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, torch.optim.Optimizer)
