"""Storage rules against the double loop, the projector, and linear programming."""

import warnings

import numpy as np
import pytest
import torch
from scipy.linalg import orth
from sklearn.exceptions import ConvergenceWarning

from vademecum.connectionism.hopfield import HopfieldNetwork
from vademecum.connectionism.separability import separable


def signs(*shape):
    return 2 * torch.randint(2, shape) - 1


def test_hebbian_weights_are_the_double_loop():
    p = signs(4, 6)
    w = 6 * HopfieldNetwork(p).weights
    for i in range(6):
        for j in range(6):
            expected = 0 if i == j else sum(int(x[i] * x[j]) for x in p)
            assert w[i, j].item() == pytest.approx(expected)


def test_pseudo_inverse_is_the_projector_without_its_diagonal():
    p = signs(20, 50)
    basis = orth(p.T.double().numpy())
    projector = basis @ basis.T
    expected = torch.from_numpy(projector - np.diag(projector.diagonal()))
    net = HopfieldNetwork(p, rule="pseudo-inverse", dtype=torch.float64)
    torch.testing.assert_close(net.weights, expected)
    torch.testing.assert_close(
        net.fields(p), p * torch.from_numpy(1 - projector.diagonal()), rtol=1e-10, atol=1e-12
    )
    assert net.stored is not None
    assert net.stored.all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pseudo_inverse_holds_correlated_patterns(dtype):
    """Nine tenths of all bits agree; Hebb's rule loses such patterns."""
    p = torch.where(torch.rand(60, 200) < 0.1, -1, 1) * signs(200)
    net, hebbian = HopfieldNetwork(p, rule="pseudo-inverse", dtype=dtype), HopfieldNetwork(p)
    assert net.retrieve(p).states.equal(p.to(dtype))
    assert hebbian.stored is not None
    assert not hebbian.stored.any()
    assert hebbian.retrieve(p).n_iter.gt(0).all()


def test_a_unit_in_the_span_has_no_couplings():
    p = torch.tensor([[1, 1, 1, 1], [1, 1, 1, -1]])
    net = HopfieldNetwork(p, rule="pseudo-inverse")
    assert net.weights[3].eq(0).all()
    torch.testing.assert_close(net.weights[:3, :3], (torch.ones(3, 3) - torch.eye(3)) / 3)
    assert net.retrieve(p).states.equal(p.float())


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (torch.ones(2, 8), "independent .* got pattern 1"),
        (torch.stack([torch.ones(8), torch.arange(8) % 2 * 2.0 - 1, -torch.ones(8)]), "pattern 2"),
        (torch.ones(8, 8), "fewer than the 8 units for the pseudo-inverse, got 8"),
        (torch.ones(9, 4), "fewer than the 4 units for the pseudo-inverse, got 9"),
    ],
)
def test_pseudo_inverse_refuses(p, message):
    with pytest.raises(ValueError, match=message):
        HopfieldNetwork(p, rule="pseudo-inverse")


def test_dependence_is_told_from_closeness():
    """Four patterns with $a + b = c + d$ are dependent; 99 that differ in a bit are not."""
    a, b, c = torch.ones(40), torch.ones(40), torch.ones(40)
    a[:10], b[10:20], c[:20] = -1, -1, -1
    with pytest.raises(ValueError, match="pattern 3 in the span"):
        HopfieldNetwork(torch.stack([a, b, c, torch.ones(40)]), rule="pseudo-inverse")
    close = torch.ones(99, 100) - 2 * torch.eye(99, 100)
    net = HopfieldNetwork(close, rule="pseudo-inverse", dtype=torch.float64)
    assert net.stored is not None
    assert net.stored.all()


@pytest.mark.parametrize("margin", [0.0, 0.5, 3.0])
def test_perceptron_stores_with_a_margin(margin):
    p, theta = signs(40, 60), torch.randn(60)
    net = HopfieldNetwork(p, rule="perceptron", margin=margin, theta=theta)
    assert net.stored is not None
    assert net.stored.all()
    aligned = p * net.fields(p)
    assert (aligned > margin).all()
    least = (p * (p.float() @ net.weights.T + theta)).amin(0)
    torch.testing.assert_close(least, aligned.amin(0), rtol=1e-4, atol=1e-4)


def test_the_first_perceptron_step_is_hebbs_rule():
    p = signs(15, 30)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 reached: .* patterns are not stored"):
        one = HopfieldNetwork(p, rule="perceptron", max_iter=1)
    assert one.weights.equal(HopfieldNetwork(p).weights)


def test_perceptron_reports_what_cannot_be_stored():
    """Two patterns that differ in one unit only: that unit has the same inputs for both."""
    p = signs(6, 30)
    p[5] = p[2]
    p[5, 7] *= -1
    with pytest.warns(ConvergenceWarning, match="max_iter=200 reached: [12] patterns are not"):
        net = HopfieldNetwork(p, rule="perceptron", max_iter=200)
    assert net.stored is not None
    assert net.stored.tolist()[:2] == [True, True]
    assert not (net.stored[2] and net.stored[5])
    aligned = p * net.fields(p)
    assert net.stored.equal((aligned > 0).all(1))
    assert (aligned[:, [i for i in range(30) if i != 7]] > 0).all()


def test_perceptron_units_agree_with_linear_programming():
    p = signs(14, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # whether it can is asked below
        net = HopfieldNetwork(p, rule="perceptron", max_iter=3000)
    learned = (p * net.fields(p) > 0).all(0)
    for i in range(8):
        others = [j for j in range(8) if j != i]
        assert bool(learned[i]) == separable(p[:, others], p[:, i], bias=False).separable


def test_a_bias_can_unsettle_patterns():
    p = torch.ones(1, 5)
    for rule in ("hebbian", "pseudo-inverse"):
        net = HopfieldNetwork(p, rule=rule, theta=torch.full((5,), -2.0))
        assert net.stored is not None
        assert not net.stored.any()
        assert int(net.retrieve(p[0]).n_iter) == 1


def test_given_weights_hold_no_patterns():
    assert HopfieldNetwork(weights=torch.zeros(2, 2)).stored is None


def test_a_network_owns_its_buffers():
    p, w, theta = signs(1, 4).float(), torch.zeros(4, 4), torch.zeros(4)
    one, two = HopfieldNetwork(p, theta=theta), HopfieldNetwork(weights=w, theta=theta)
    before = one.weights
    for given in (p, w, theta):
        given.fill_(7)
    assert one.weights.equal(before)
    assert two.weights.eq(0).all()
    assert two.theta.eq(0).all()
