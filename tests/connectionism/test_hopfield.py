"""The network: fields, energy, asynchronous and synchronous retrieval, against plain loops."""

from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from vademecum.connectionism.hopfield import HopfieldNetwork, overlap
from vademecum.testing import check_part

RULES = ("hebbian", "pseudo-inverse", "perceptron")
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def signs(*shape):
    return 2 * torch.randint(2, shape) - 1


def integers(n, *, symmetric=True):
    w = torch.randint(-4, 5, (n, n)).double()
    w = w.triu(1) + w.triu(1).T if symmetric else w
    return w, torch.randint(-3, 4, (n,)).double()


def one_sweep(w, theta, x):
    """Unit after unit, example after example."""
    x = x.clone()
    for state in x:
        for i in range(len(w)):
            field = float(w[i] @ state + theta[i])
            if field != 0:
                state[i] = 1.0 if field > 0 else -1.0
    return x


@pytest.mark.parametrize("rule", RULES)
def test_fields_and_energy_are_those_of_the_dense_matrix(rule):
    theta = torch.randn(30, dtype=torch.float64)
    net = HopfieldNetwork(signs(7, 30), rule=rule, theta=theta, dtype=torch.float64)
    x, w = signs(4, 5, 30).double(), net.weights
    assert w.diagonal().eq(0).all()
    torch.testing.assert_close(net.fields(x), x @ w.T + theta)
    quadratic = torch.einsum("...i,ij,...j->...", x, w, x)
    torch.testing.assert_close(net.energy(x), -quadratic / 2 - x @ theta)
    dense = HopfieldNetwork(weights=w, theta=theta)
    torch.testing.assert_close(dense.fields(x), net.fields(x))
    assert net.symmetric == (rule != "perceptron")


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("n", [1, 7, 64, 150])
def test_a_blocked_sweep_is_the_sequential_rule(n, symmetric):
    w, theta = integers(n, symmetric=symmetric)
    x = signs(20, n).double()
    net = HopfieldNetwork(weights=w, theta=theta)
    expected = one_sweep(w, theta, x)
    now = net.step(x, order="fixed")
    assert now.equal(expected)
    for _ in range(4):
        expected, now = one_sweep(w, theta, expected), net.step(now, order="fixed")
        assert now.equal(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rule", ["hebbian", "perceptron"])
def test_factors_sweep_like_the_sequential_rule(rule, dtype):
    patterns = signs(12, 150)
    net = HopfieldNetwork(patterns, rule=rule, dtype=dtype)
    whole = (150 * net.weights.double()).round()
    x = signs(16, 150).double()
    end = net.step(x, order="fixed")
    assert end.dtype == dtype
    assert end.double().equal(one_sweep(whole, torch.zeros(150).double(), x))


def test_random_orders_come_from_the_generator():
    net, x = HopfieldNetwork(signs(30, 100)), signs(5, 100)
    one, two = (
        net.retrieve(x, generator=torch.Generator().manual_seed(3)).states for _ in range(2)
    )
    assert one.equal(two)
    dice, state = torch.Generator().manual_seed(3), x
    for _ in range(20):
        state = net.step(state, generator=dice)
    assert state.equal(one)  # what is at rest stays there, whatever the order
    ends = [net.retrieve(x).states for _ in range(5)]
    assert any(not end.equal(ends[0]) for end in ends)


def test_asynchronous_energy_falls_until_no_flip_lowers_it():
    w, theta = integers(40)
    net, x = HopfieldNetwork(weights=w, theta=theta), signs(64, 40)
    end = net.retrieve(x, trajectory=True)
    assert end.converged.all()
    assert end.trajectory is not None
    assert end.energies is not None
    assert (end.energies.diff(dim=0) <= 0).all()
    torch.testing.assert_close(net.energy(end.trajectory), end.energies)
    assert end.trajectory[0].equal(x.double())
    assert end.trajectory[-1].equal(end.states)
    assert end.energies.shape == (int(end.n_iter.max()) + 1, 64)
    for i in range(40):
        flipped = end.states.clone()
        flipped[:, i] *= -1
        assert (net.energy(flipped) >= net.energy(end.states)).all()


def test_states_of_a_batch_do_not_see_each_other():
    net, x = HopfieldNetwork(signs(20, 80)), signs(6, 80)
    together = net.retrieve(x, order="fixed")
    alone = [net.retrieve(state, order="fixed") for state in x]
    assert together.states.equal(torch.stack([one.states for one in alone]))
    assert together.n_iter.equal(torch.stack([one.n_iter for one in alone]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int8])
def test_overlap(dtype):
    x = torch.ones(2, 300).to(dtype)
    x[1, :100] = -1
    found = overlap(x, torch.ones(2, 300).to(dtype))
    wanted = torch.float64 if dtype == torch.float64 else torch.float32
    torch.testing.assert_close(found, torch.tensor([1, 1 / 3], dtype=wanted))


def test_a_digit_is_completed_from_its_upper_half():
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    digits = torch.stack([torch.tensor(images[labels == k][0]) for k in range(10)])
    patterns = torch.where(digits > 8, 1, -1)
    start = patterns.clone()
    start[:, 48:] = -1
    net = HopfieldNetwork(patterns, rule="pseudo-inverse")
    assert (overlap(net.retrieve(start).states, patterns) == 1).sum() >= 8


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("length", [3, 4, 7])
def test_cycles_of_any_length_are_found(length, mode):
    """Units in a ring, each copying its neighbour: a single +1 travels."""
    w = torch.eye(length).roll(1, 0)
    x = torch.full((length,), -1)
    x[0] = 1
    end = HopfieldNetwork(weights=w).retrieve(x, mode=mode, order="fixed")
    assert int(end.period) == (length if mode == "synchronous" else 1)
    assert bool(end.converged) == (mode == "asynchronous")
    with pytest.warns(ConvergenceWarning, match="max_iter=2 reached: 1 of 1 states still move"):
        cut = HopfieldNetwork(weights=w).retrieve(x, mode="synchronous", max_iter=2)
    assert (int(cut.period), int(cut.n_iter), bool(cut.converged)) == (0, 2, False)


def test_a_tie_keeps_the_state():
    net = HopfieldNetwork(weights=torch.zeros(3, 3))
    for mode in ("synchronous", "asynchronous"):
        end = net.retrieve(torch.tensor([1, -1, 1]), mode=mode)
        assert end.states.tolist() == [1, -1, 1]
        assert int(end.n_iter) == 0


def test_asynchronous_cycle_of_asymmetric_couplings():
    net = HopfieldNetwork(weights=torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    end = net.retrieve(torch.tensor([1, 1]), order="fixed")
    assert int(end.period) == 2
    with pytest.warns(ConvergenceWarning, match="max_iter=100 reached"):
        assert int(net.retrieve(torch.tensor([1, 1]), order="random").period) == 0


def test_large_networks_never_build_the_matrix():
    patterns = signs(50, 10_000).float()
    net = HopfieldNetwork(patterns)
    assert max(b.numel() for b in net.buffers()) == patterns.numel()
    start = torch.where(torch.rand(4, 10_000) < 0.2, -1, 1) * patterns[:4]
    assert net.retrieve(start).states.equal(patterns[:4])


@pytest.mark.parametrize("rule", RULES)
def test_laws_of_parts(rule):
    net = HopfieldNetwork(signs(3, 20), rule=rule)
    check_part(net, signs(6, 20).float())
    other = HopfieldNetwork(signs(3, 20))
    other.load_state_dict(net.state_dict())
    assert other.weights.equal(net.weights)
    assert other.symmetric == net.symmetric


P, W = torch.ones(2, 4), torch.zeros(4, 4)
LIST: Any = [[1, -1]]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: HopfieldNetwork(), "either patterns or weights must be given"),
        (lambda: HopfieldNetwork(P, weights=W), "either patterns or weights must be given"),
        (lambda: HopfieldNetwork(torch.tensor([[1, 0]])), r"patterns must be -1 or \+1, got 0"),
        (lambda: HopfieldNetwork(P * torch.nan), r"patterns must be -1 or \+1, got nan"),
        (lambda: HopfieldNetwork(torch.ones(4)), r"patterns must have 2 axes, got shape \(4,\)"),
        (lambda: HopfieldNetwork(LIST), "patterns must be a tensor, got list"),
        (lambda: HopfieldNetwork(torch.ones(0, 4)), "patterns must not be empty"),
        (lambda: HopfieldNetwork(P, rule="hebb"), "rule must be one of 'hebbian', .* got 'hebb'"),
        (lambda: HopfieldNetwork(P, theta=torch.ones(3)), "theta must be 4 wide"),
        (lambda: HopfieldNetwork(P, theta=torch.full((4,), torch.inf)), "theta must be finite"),
        (lambda: HopfieldNetwork(P, dtype=torch.float16), "dtype must be float32 or float64"),
        (lambda: HopfieldNetwork(P, rule="perceptron", margin=-1), "margin must be >= 0, got -1"),
        (lambda: HopfieldNetwork(P, rule="perceptron", max_iter=0), "max_iter must be >= 1"),
        (lambda: HopfieldNetwork(weights=W * torch.nan), "weights must be finite, got nan"),
        (lambda: HopfieldNetwork(weights=torch.ones(3, 4)), "weights must be square"),
        (lambda: HopfieldNetwork(P).retrieve(torch.ones(2, 3)), "states must be 4 wide"),
        (lambda: HopfieldNetwork(P).retrieve(torch.zeros(4)), r"states must be -1 or \+1, got 0"),
        (lambda: HopfieldNetwork(P).energy(torch.ones(0, 4)), "states must not be empty"),
        (lambda: HopfieldNetwork(P).fields(2 * torch.ones(4)), r"states must be -1 or \+1, got 2"),
        (lambda: HopfieldNetwork(P).retrieve(P, mode="both"), "mode must be one of"),
        (lambda: HopfieldNetwork(P).retrieve(P, order="down"), "order must be one of"),
        (lambda: HopfieldNetwork(P).retrieve(P, max_iter=0), "max_iter must be >= 1, got 0"),
        (lambda: HopfieldNetwork(P).half().retrieve(P), "dtype must be float32 or float64"),
        (lambda: overlap(P, torch.ones(2, 4) * 2), r"entries of y must be -1 or \+1"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_input(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.gpu
@CUDA
@pytest.mark.filterwarnings("ignore:max_iter=100 reached")  # of all units at once
@pytest.mark.parametrize("rule", RULES)
def test_cuda_agrees(rule):
    patterns, x = signs(60, 700), signs(40, 700)
    here = HopfieldNetwork(patterns, rule=rule)
    there = HopfieldNetwork(patterns.cuda(), rule=rule)
    torch.testing.assert_close(there.weights.cpu(), here.weights)
    if rule == "pseudo-inverse":  # not exact: far starts could round to another side
        x = torch.where(torch.rand(60, 700) < 0.1, -patterns, patterns)
    one, two = here.retrieve(x, order="fixed"), there.retrieve(x.cuda(), order="fixed")
    assert one.states.equal(two.states.cpu())
    assert one.n_iter.equal(two.n_iter.cpu())
    moved = here.cuda().retrieve(x.cuda(), mode="synchronous", generator=torch.Generator())
    assert moved.states.is_cuda
    with pytest.raises(ValueError, match="states must be on cuda:0, got cpu"):
        there.retrieve(x)
