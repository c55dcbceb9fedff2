"""Retrieval flip by flip: against the rule unit by unit, retrieval itself, and the energy."""

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from vademecum.connectionism import HopfieldNetwork, draw_hopfield_flips, hopfield_flips


def signs(*shape):
    return 2 * torch.randint(2, shape) - 1


def unit_by_unit(w, theta, x, sweeps):
    """The visits and units that flip, in a fixed order, from the definition."""
    x, found = x.double().clone(), []
    for visit in range(sweeps * len(x)):
        i = visit % len(x)
        if x[i] * (w[i] @ x + theta[i]) < 0:
            x[i] *= -1
            found.append((visit, i))
    return found, x


@pytest.mark.parametrize("n", [1, 5, 40])
def test_flips_are_those_of_the_rule(n):
    w = torch.randint(-3, 4, (n, n)).double()
    w = (w + w.T).fill_diagonal_(0)
    theta = torch.randint(-3, 4, (n,)).double()
    x, net = signs(n), HopfieldNetwork(weights=w, theta=theta)
    flips = hopfield_flips(net, x, order="fixed")
    expected, end = unit_by_unit(w, theta, x, 100)
    assert list(zip(flips.visits.tolist(), flips.units.tolist(), strict=True)) == expected
    states = flips.states()
    assert states[0].equal(x.double())
    assert states[-1].equal(end)
    assert (states.diff(dim=0) != 0).sum(1).eq(1).all()
    assert flips.energies.equal(net.energy(states))
    assert (flips.energies.diff() < 0).all()
    assert flips.converged
    before = torch.stack([net.fields(state) * state for state in states])[:-1]
    torch.testing.assert_close(
        flips.energies.diff(), 2 * before.gather(1, flips.units[:, None])[:, 0]
    )


@pytest.mark.parametrize("rule", ["hebbian", "pseudo-inverse", "perceptron"])
def test_it_ends_where_retrieval_ends_with_the_same_orders(rule):
    net, x = HopfieldNetwork(signs(6, 60), rule=rule), signs(60)
    dice = [torch.Generator().manual_seed(5) for _ in range(2)]
    flips = hopfield_flips(net, x, generator=dice[0])
    end = net.retrieve(x, generator=dice[1])
    assert flips.states()[-1].equal(end.states)
    assert int(end.n_iter) == int(flips.visits.max()) // 60 + 1
    assert dice[0].get_state().equal(dice[1].get_state())


def test_the_start_is_left_alone():
    net, x = HopfieldNetwork(signs(1, 30).float()), signs(30).float()
    before = x.clone()
    assert len(hopfield_flips(net, x).units)
    assert x.equal(before)


def test_a_state_at_rest_has_no_flips():
    p = signs(1, 9)
    flips = hopfield_flips(HopfieldNetwork(p), p[0])
    assert (len(flips.units), len(flips.energies), flips.converged) == (0, 1, True)
    assert flips.states().equal(p.float())
    assert draw_hopfield_flips(flips).axes[0].get_title() == "0 flips, at rest"


def test_the_start_is_left_as_it_was():
    state = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0])
    flips = hopfield_flips(HopfieldNetwork(torch.ones(1, 5)), state)
    assert len(flips.units) == 2
    assert state.tolist() == [1.0, -1.0, 1.0, 1.0, -1.0]


def test_what_is_cut_short_says_so():
    ring = HopfieldNetwork(weights=torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))  # never at rest
    with pytest.warns(ConvergenceWarning, match="max_iter=3 reached: . units would still flip"):
        flips = hopfield_flips(ring, torch.tensor([1, 1]), max_iter=3)
    assert not flips.converged
    assert "\n" not in repr(flips)


def test_draw_hopfield_flips_shows_energy_and_units():
    net = HopfieldNetwork(torch.ones(1, 8))
    start = torch.ones(8)
    start[[2, 5]] = -1
    axes = draw_hopfield_flips(hopfield_flips(net, start, order="fixed")).axes[0]
    assert [text.get_text() for text in axes.texts] == ["2", "5"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("units visited", "energy")
    assert list(axes.lines[1].get_xdata()) == [3, 6]  # pyright: ignore


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda net: hopfield_flips(net, torch.ones(2, 3)), "state must have 1 axes"),
        (lambda net: hopfield_flips(net, torch.ones(4)), "state must be 3 wide"),
        (lambda net: hopfield_flips(net, torch.zeros(3)), "entries of state must be -1 or"),
        (lambda net: hopfield_flips(net, torch.ones(3), order="any"), "order must be one of"),
        (lambda net: hopfield_flips(net, torch.ones(3), max_iter=0), "max_iter must be >= 1"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(HopfieldNetwork(torch.ones(1, 3)))
