"""Laws of all our optimisers: groups, closures, rates, states, and gradients nobody can use.

A new optimiser needs an entry in `MADE`.
"""

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vademecum.foundations import Box
from vademecum.optimization import SVRG, HeavyBall, Nesterov, ProjectedSGD, SignSGD, _stepping

TARGET = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3)


def wide_box(size: int) -> Box:
    return Box(torch.full((size,), -9.0).double(), torch.full((size,), 9.0).double())


class Problem:
    """A quadratic in two tensors, whose gradients are those of numbered batches."""

    def __init__(self, dtype: torch.dtype = torch.float64):
        self.w = nn.Parameter(torch.linspace(-2, 3, 6).to(dtype).reshape(2, 3))
        self.b = nn.Parameter(torch.tensor([0.5, -1.5]).to(dtype))

    def params(self) -> list[Tensor]:
        return [self.w, self.b]

    def loss(self, t: int = 0) -> Tensor:
        gap = (self.w - TARGET.to(self.w)).square().sum() * 1.5
        return gap + (self.b * self.w.sum(1)).sum() + self.b.square().sum() * 2 + t * self.b.sum()

    def closure(self, t: int = 0) -> Callable[[], Tensor]:
        def evaluate() -> Tensor:
            self.w.grad = self.b.grad = None
            loss = self.loss(t)
            loss.backward()
            return loss

        return evaluate


def svrg(params: Any, problem: Problem, **options: Any) -> SVRG:
    return SVRG(params, **{"lr": 0.05, "period": 3, "full_closure": problem.closure(), **options})


def constrained(params: Any, problem: Problem, **options: Any) -> ProjectedSGD:
    return ProjectedSGD(params, **{"lr": 0.05, "project": lambda x: x.clamp(-9, 9), **options})


Made = Callable[..., Any]
MADE: dict[str, Made] = {
    "HeavyBall": lambda params, problem, **o: HeavyBall(params, **{"lr": 0.05, **o}),
    "Nesterov": lambda params, problem, **o: Nesterov(params, **{"lr": 0.05, **o}),
    "Nesterov, 0.9": lambda params, problem, **o: Nesterov(
        params, **{"lr": 0.05, "momentum": 0.9, **o}
    ),
    "SignSGD": lambda params, problem, **o: SignSGD(params, **{"lr": 0.05, **o}),
    "ProjectedSGD": constrained,
    "SVRG": svrg,
    "SVRG, average": lambda params, problem, **o: svrg(
        params, problem, **{"snapshot": "average", **o}
    ),
}
ALL = pytest.mark.parametrize("make", MADE.values(), ids=MADE)


def run(
    make: Made, count: int = 7, *, dtype: torch.dtype = torch.float64, **options: Any
) -> list[Tensor]:
    """Where some steps lead."""
    problem = Problem(dtype)
    optimizer = make(problem.params(), problem, **options)
    for t in range(count):
        optimizer.step(problem.closure(t))
    return [p.detach().clone() for p in problem.params()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def close(one: list[Tensor], other: list[Tensor], tol: float = 1e-12) -> bool:
    return all(torch.allclose(a, b, rtol=tol, atol=tol) for a, b in zip(one, other, strict=True))


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


@ALL
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_gradient_that_is_not_finite_is_named_and_touches_nothing(make, bad):
    problem = Problem()
    named = [("layer.weight", problem.w), ("layer.bias", problem.b)]
    optimizer = make(named, problem)
    optimizer.step(problem.closure())
    before = [p.detach().clone() for p in problem.params()]
    spoiled = problem.closure()

    def closure() -> Tensor:
        loss = spoiled()
        assert problem.b.grad is not None
        problem.b.grad[1] = bad
        return loss

    with pytest.raises(ValueError, match=r"parameter 1 of group 0 \('layer.bias'\) must be finite"):
        optimizer.step(closure)
    assert same(problem.params(), before)
    optimizer.step(problem.closure())  # and it goes on
    assert problem.w.isfinite().all()


@ALL
def test_off_the_cpu_a_bad_step_is_void_and_told_later(make, monkeypatch):
    monkeypatch.setattr(_stepping, "_may_not_wait", lambda device: True)
    problem, wanted = Problem(), Problem()
    optimizer = make(problem.params(), problem)
    never = make(wanted.params(), wanted)
    for t in range(3):
        optimizer.step(problem.closure(t))
        never.step(wanted.closure(t))
    assert close(problem.params(), run(make, 3), 1e-6)  # the mask is float32
    before = [p.detach().clone() for p in problem.params()]
    state = copy.deepcopy([optimizer.state.get(p, {}) for p in problem.params()])

    def closure() -> Tensor:
        loss = problem.closure()()
        assert problem.w.grad is not None
        problem.w.grad[0, 0] = torch.nan
        return loss

    optimizer.step(closure)
    assert same(problem.params(), before)
    for p, old in zip(problem.params(), state, strict=True):
        now = optimizer.state.get(p, {})
        kept = [
            k for k in old if isinstance(old[k], Tensor) and "full" not in k and k != "snapshot"
        ]
        assert all(torch.equal(old[k], now[k]) for k in kept)
    with pytest.raises(ValueError, match=r"parameter 0 of group 0 must be finite.*earlier step"):
        optimizer.step(problem.closure())
    assert same(problem.params(), before)
    optimizer.step(problem.closure())
    assert all(p.isfinite().all() for p in problem.params())


def test_a_sum_that_overflows_is_no_gradient_that_is_not_finite():
    x = torch.zeros(3, requires_grad=True)
    optimizer = SignSGD([x], lr=1.0)
    x.grad = torch.full((3,), 3e38)
    optimizer.step()
    assert x.tolist() == [-1.0, -1.0, -1.0]


@ALL
def test_sparse_gradients_are_refused(make):
    problem = Problem()
    optimizer = make(problem.params(), problem)

    def closure() -> Tensor:
        loss = problem.closure()()
        problem.w.grad = problem.w.detach().to_sparse()
        return loss

    if isinstance(optimizer, SVRG):
        return  # which makes a dense direction of them
    with pytest.raises(ValueError, match="gradient of parameter 0 of group 0 must be dense"):
        optimizer.step(closure)


@ALL
def test_a_closure_of_many_losses_is_refused(make):
    problem = Problem()
    optimizer = make(problem.params(), problem)

    def closure() -> Tensor:
        problem.closure()()
        return torch.zeros(2)

    with pytest.raises(ValueError, match=r"closure must return one number, got .* shape \(2,\)"):
        optimizer.step(closure)


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
    assert names <= {name.split(",")[0] for name in MADE}


def is_ours(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, torch.optim.Optimizer)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@ALL
def test_no_step_waits_for_the_device(make):
    problem = Problem()
    problem.w, problem.b = (nn.Parameter(p.detach().cuda()) for p in problem.params())
    optimizer = make(problem.params(), problem)
    if isinstance(optimizer, SVRG):  # compares gradients once a period
        return
    optimizer.step(problem.closure())
    torch.cuda.set_sync_debug_mode("error")
    try:
        for t in itertools.count(1):
            problem.closure(t)()
            optimizer.step()
            if t == 6:
                break
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert close([p.detach().cpu() for p in problem.params()], run(make))
