"""The dense memory against attention written out, its energy, and its capacity."""

from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from vademecum.connectionism.hopfield import HopfieldNetwork, dense
from vademecum.connectionism.hopfield.dense import DenseHopfield
from vademecum.testing import check_part


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_is_attention(dtype):
    p, x = torch.randn(50, 9, dtype=dtype), torch.randn(3, 7, 9, dtype=dtype)
    wanted = torch.softmax(0.7 * x @ p.T, -1) @ p
    memory = DenseHopfield(p, beta=0.7)
    torch.testing.assert_close(memory.step(x), wanted)
    torch.testing.assert_close(memory.step(x[0, 0]), wanted[0, 0])


@pytest.mark.parametrize("memory", [1, 8 * 50 * 2 * 4, 2**28])  # rows one by one, by four, all
def test_a_step_by_scores_is_the_same(memory, monkeypatch):
    monkeypatch.setattr(dense, "_PORTION", memory)
    p, x = torch.randn(50, 9).double(), torch.randn(21, 9).double()
    seen = []
    new = dense._by_scores(x, p, 0.7, seen)
    torch.testing.assert_close(new, DenseHopfield(p, beta=0.7).step(x))
    torch.testing.assert_close(dense._by_scores(x, p, 0.7, None), new)
    assert [ask() for ask in seen] == [True]
    for bad in (torch.nan, torch.inf, -torch.inf):
        x[20, 8], seen = bad, []
        dense._by_scores(x, p, 0.7, seen)
        assert [ask() for ask in seen] == [False]


def test_energy_is_the_formula_and_falls():
    p, x = torch.randn(20, 6).double(), 3 * torch.randn(100, 6).double()
    memory = DenseHopfield(p, beta=1.5)
    scores = torch.exp(1.5 * x @ p.T).mean(1).log() / 1.5
    expected = x.square().sum(1) / 2 - scores + p.norm(dim=1).max() ** 2 / 2
    torch.testing.assert_close(memory.energy(x), expected)
    for _ in range(20):
        new = memory.step(x)
        drop = memory.energy(x) - memory.energy(new)
        assert (drop >= (new - x).square().sum(1) / 2 - 1e-12).all()
        x = new


def test_gradients_reach_states_and_patterns():
    p = torch.randn(6, 4, dtype=torch.float64)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    memory = DenseHopfield(p, beta=0.8, learnable=True)
    (memory.step(x) ** 2).sum().backward()
    keys, queries = p.clone().requires_grad_(), x.detach().clone().requires_grad_()
    ((torch.softmax(0.8 * queries @ keys.T, -1) @ keys) ** 2).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, queries.grad)
    torch.testing.assert_close(memory.patterns.grad, keys.grad)
    assert not list(DenseHopfield(p).parameters())


def test_it_holds_many_more_patterns_than_units():
    """4096 random patterns in 48 dimensions; Hebb's rule would hold about six."""
    p = 2.0 * torch.randint(2, (4096, 48)) - 1
    start = torch.where(torch.rand(256, 48).argsort(1) < 5, -1, 1) * p[:256]
    end = DenseHopfield(p, beta=2.0).retrieve(start)
    assert end.converged.all()
    # The next pattern has an overlap of 48 - 10 - 26 with the start about once in a million.
    assert ((end.states - p[:256]).norm(dim=1) < 1e-3).float().mean() > 0.9
    hebbian = HopfieldNetwork(p).retrieve(start).states
    assert hebbian.ne(p[:256]).any(1).all()


def test_retrieval_ends_at_a_fixed_point_of_each_state():
    p, x = torch.randn(30, 5).double(), torch.randn(12, 5).double()
    memory = DenseHopfield(p, beta=1.0)
    end = memory.retrieve(x, max_iter=10_000, tol=1e-12)
    assert end.converged.all()
    assert end.period.eq(1).all()
    assert end.trajectory is None
    torch.testing.assert_close(memory.step(end.states), end.states, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(memory(x), end.states, rtol=1e-4, atol=1e-4)
    alone = memory.retrieve(x[3], max_iter=10_000, tol=1e-12)
    torch.testing.assert_close(alone.states, end.states[3])
    assert int(alone.n_iter) == int(end.n_iter[3])
    with pytest.warns(ConvergenceWarning, match="max_iter=1 reached: 12 of 12 states still move"):
        short = memory.retrieve(x, max_iter=1)
    assert short.n_iter.eq(1).all()
    assert short.period.eq(0).all()
    torch.testing.assert_close(short.states, memory.step(x))


def test_when_a_state_is_at_rest():
    memory, x = DenseHopfield(torch.zeros(1, 2)), torch.tensor([0.003, 0.004])
    assert int(memory.retrieve(x, tol=0.006).n_iter) == 1  # a move by 0.005 <= 0.006 * 1.005
    assert int(memory.retrieve(x, tol=0.004).n_iter) == 2
    assert int(memory.retrieve(1e3 * x, tol=0.9).n_iter) == 1  # by 5 <= 0.9 * 6


def test_overflow_ends_the_retrieval_at_once(monkeypatch):
    memory, steps = DenseHopfield(torch.full((2, 3), 1e30)), []
    attend = memory._attend
    monkeypatch.setattr(memory, "_attend", lambda x: steps.append(1) or attend(x))
    with pytest.raises(ValueError, match="<p, x> must be finite"):
        memory.retrieve(torch.full((3,), 1e30))
    assert len(steps) == 1


def test_a_trajectory_is_the_steps_one_after_the_other():
    memory, x = DenseHopfield(torch.randn(6, 4).double()), torch.randn(5, 4).double()
    end = memory.retrieve(x, trajectory=True)
    assert end.trajectory is not None
    assert end.energies is not None
    assert end.trajectory.shape == (int(end.n_iter.max()) + 1, 5, 4)
    torch.testing.assert_close(end.trajectory[0], x)
    torch.testing.assert_close(end.trajectory[1], memory.step(x))
    torch.testing.assert_close(end.trajectory[-1], end.states)
    torch.testing.assert_close(end.energies, memory.energy(end.trajectory))
    assert (end.energies.diff(dim=0) <= 1e-12).all()
    assert "\n" not in repr(end)


def test_at_low_beta_all_states_go_to_the_mean():
    p = torch.randn(30, 5).double()
    p -= p.mean(0)
    end = DenseHopfield(p, beta=1e-3).retrieve(torch.randn(4, 5).double(), tol=1e-12)
    torch.testing.assert_close(end.states, torch.zeros(4, 5).double(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("learnable", [True, False])
def test_laws_of_parts(learnable):
    check_part(DenseHopfield(torch.randn(8, 5), learnable=learnable), torch.randn(6, 5))


P = torch.ones(2, 3)
LIST: Any = [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DenseHopfield(torch.ones(0, 3)), "patterns must not be empty"),
        (lambda: DenseHopfield(P * torch.inf), "patterns must be finite, got inf"),
        (lambda: DenseHopfield(P, beta=0.0), "beta must be > 0, got 0"),
        (lambda: DenseHopfield(P, beta=float("nan")), "beta must be .* got nan"),
        (lambda: DenseHopfield(P)(torch.ones(2, 4)), "states must be 3 wide"),
        (lambda: DenseHopfield(P)(P * torch.nan), "states must be finite, got nan"),
        (lambda: DenseHopfield(P).step(P * torch.nan), "states must be finite, got nan"),
        (lambda: DenseHopfield(P).step(LIST), "states must be a tensor, got list"),
        (lambda: DenseHopfield(1e30 * P)(1e30 * P), "<p, x> must be finite in torch.float32"),
        (lambda: DenseHopfield(P)(P.double()), "states must be torch.float32 on cpu"),
        (lambda: DenseHopfield(P).energy(torch.ones(0, 3)), "states must not be empty"),
        (lambda: DenseHopfield(P).retrieve(P, max_iter=0), "max_iter must be >= 1, got 0"),
        (lambda: DenseHopfield(P).retrieve(P, tol=-1.0), "tol must be >= 0"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees():
    p, x = torch.randn(500, 64), torch.randn(300, 64)
    here, there = DenseHopfield(p), DenseHopfield(p).cuda()
    torch.testing.assert_close(there.step(x.cuda()).cpu(), here.step(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(there.energy(x.cuda()).cpu(), here.energy(x), rtol=1e-4, atol=1e-3)
    x[299, 63] = torch.nan
    with pytest.raises(ValueError, match=r"states must be finite, got nan at \(299, 63\)"):
        there.step(x.cuda())
