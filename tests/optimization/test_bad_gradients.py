"""Gradients that no step can use: all our optimisers name them and touch nothing."""

import copy

import pytest
import torch
from torch import Tensor, nn

from tests.optimization.optimisers import ALL, Problem, close, run, same
from vademecum.optimization import SVRG, SignSGD, _stepping


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


def test_a_verdict_that_comes_late_is_not_lost(monkeypatch):
    monkeypatch.setattr(_stepping, "_may_not_wait", lambda device: True)
    known: list[object] = []
    monkeypatch.setattr(_stepping._Verdict, "is_known", lambda verdict: verdict in known)
    x = torch.zeros(2, requires_grad=True)
    optimizer = SignSGD([x], lr=1.0)
    for gradient in (torch.nan, 1.0, 1.0):
        x.grad = torch.full((2,), gradient)
        optimizer.step()  # the host runs ahead of the device
    assert x.tolist() == [-2.0, -2.0]
    known += optimizer._pending
    with pytest.raises(ValueError, match=r"must be finite.* in an earlier step"):
        optimizer.step()
    optimizer.step()
    assert x.tolist() == [-3.0, -3.0]


def test_off_the_cpu_large_doubles_are_finite(monkeypatch):
    monkeypatch.setattr(_stepping, "_may_not_wait", lambda device: True)
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = SignSGD([x], lr=1.0)
    x.grad = torch.full_like(x, 1e300)
    for _ in range(2):
        optimizer.step()
    assert x.tolist() == [-2.0, -2.0]


@ALL
@pytest.mark.parametrize("foreach", [None, True, False])
def test_off_the_cpu_half_precision_takes_the_same_steps(make, foreach, monkeypatch):
    wanted = run(make, 3, dtype=torch.bfloat16)
    monkeypatch.setattr(_stepping, "_may_not_wait", lambda device: True)
    tol = 4 * torch.finfo(torch.bfloat16).eps
    assert close(run(make, 3, dtype=torch.bfloat16, foreach=foreach), wanted, tol)


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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@ALL
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_no_step_waits_for_the_device(make):
    problem = Problem()
    problem.w, problem.b = (nn.Parameter(p.detach().cuda()) for p in problem.params())
    optimizer = make(problem.params(), problem)
    if isinstance(optimizer, SVRG):  # compares gradients once a period
        return
    optimizer.step(problem.closure())
    for t in range(1, 7):
        problem.closure(t)()
        torch.cuda.set_sync_debug_mode("error")
        try:
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert close([p.detach().cpu() for p in problem.params()], run(make))
