"""The restricted Boltzmann machine against all of its states, one by one."""

import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neural_network import BernoulliRBM
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.generative.binary_machines import bits, drawn, table
from vademecum.generative import RestrictedBoltzmannMachine
from vademecum.generative.boltzmann._contrast import ascend
from vademecum.generative.boltzmann._units import Units

QUICK = {"binarize": 0.0, "n_iter": 2}


@parametrize_with_checks(
    [
        RestrictedBoltzmannMachine(4, **QUICK),
        RestrictedBoltzmannMachine(3, persistent=False, gibbs_steps=2, **QUICK),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("m", "d"), [(3, 5), (6, 2), (4, 4), (1, 3), (9, 11), (12, 10)])
def test_likelihoods_are_those_of_all_states(m, d):
    parts = drawn(m, d)
    machine, joint = RestrictedBoltzmannMachine.from_parameters(*parts), table(*parts)
    found = machine.log_partition()
    assert found.value == pytest.approx(float(joint.sum().log()), rel=1e-12)
    assert found[1:] == (0.0, True, math.inf)
    marginal = joint.sum(1) / joint.sum()
    v = bits(d)
    torch.testing.assert_close(machine.score_samples(v).exp(), marginal, rtol=1e-10, atol=0)
    torch.testing.assert_close(machine.free_energy(v), -joint.sum(1).log())
    given = joint @ bits(m) / joint.sum(1, keepdim=True)
    torch.testing.assert_close(machine.transform(v), given)
    assert machine.score(v) == pytest.approx(float(marginal.log().mean()))


@pytest.mark.parametrize(("m", "d"), [(2, 4), (5, 3)])
def test_draws_follow_the_law(m, d):
    parts = drawn(m, d)
    machine, joint = RestrictedBoltzmannMachine.from_parameters(*parts), table(*parts)
    p = (joint.sum(1) / joint.sum()).numpy()
    place = 2.0 ** torch.arange(d - 1, -1, -1).double()
    n = 50_000
    start = machine.sample(n, random_state=3)
    moved = machine.gibbs(start, n_steps=3, random_state=4)  # keeps the law
    for x in (start, moved):
        shares = torch.bincount((x @ place).long(), minlength=2**d).numpy() / n
        assert (np.abs(shares - p) < 5.5 * np.sqrt(p * (1 - p) / n) + 1e-4).all()
    assert not moved.equal(start)
    assert machine.sample(5, random_state=3).equal(machine.sample(5, random_state=3))


def test_a_long_chain_gives_the_likelihood_gradient():
    """The mean update of CD-k with many steps is the gradient, by automatic differentiation."""
    W, a, b = drawn(3, 4, 0.8)
    x = (torch.rand(6, 4) < 0.4).double()
    leaves = [part.clone().requires_grad_() for part in (W, a, b)]
    likelihood = Units(*leaves).log_weight(x).mean() - Units(*leaves).log_weight(bits(4)).logsumexp(
        0
    )
    wanted = torch.autograd.grad(likelihood, leaves)
    repeats, generator = 4000, torch.Generator().manual_seed(0)
    many = x.repeat(repeats, 1)
    for persistent in (False, True):
        eta = 1.0 if not persistent else 1e-9
        units, moved, count = Units(W.clone(), a.clone(), b.clone()), [0.0, 0.0, 0.0], 1
        ascend(
            units, many, torch.ones(len(many), 3).double() if persistent else None, passes=1,
            size=len(many), eta=eta, steps=40, persistent=persistent, falling=False,
            generator=generator, progress=False,
        )  # fmt: skip
        moved = [(new - old) / eta for new, old in zip(units, (W, a, b), strict=True)]
        for got, want in zip(moved, wanted, strict=True):
            assert (got - want).abs().max() < 5 * 0.5 / (6 * repeats) ** 0.5 * count


@pytest.mark.parametrize("options", [{}, {"persistent": False}, {"gibbs_steps": 3}])
def test_learning_finds_a_law(options):
    """Two patterns that are equally likely: 2 log 2 / 2 a row is the best there is."""
    x = np.repeat([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], 100, axis=0)
    machine = RestrictedBoltzmannMachine(
        4, learning_rate=0.05, batch_size=20, n_iter=120, random_state=0, **options
    ).fit(x)
    assert machine.score(x) > -1.2  # -4.16 for coins, -0.69 for the law itself
    drawn = machine.sample(500, random_state=1)
    pure = (drawn == [1, 1, 1, 0, 0, 0]).all(1) | (drawn == [0, 0, 0, 1, 1, 1]).all(1)
    assert pure.mean() > 0.6
    assert 0.05 < drawn[pure][:, 0].mean() < 0.95
    assert isinstance(drawn, np.ndarray)


@pytest.mark.parametrize("draw", [0, 1, 2])
def test_likelier_than_scikit_learn(draw):
    """After as many passes with the same rate, which ours lowers: by 1.5 to 6 over six seeds."""
    x = (load_digits(return_X_y=True)[0] > 7).astype(np.float64)
    ours = RestrictedBoltzmannMachine(16, n_iter=10, random_state=draw).fit(x)
    peer = BernoulliRBM(16, n_iter=10, random_state=draw).fit(x)
    parts = peer.components_, peer.intercept_visible_, peer.intercept_hidden_
    copied = RestrictedBoltzmannMachine.from_parameters(*parts)
    np.testing.assert_allclose(copied.transform(x), peer.transform(x), atol=1e-12)
    assert ours.score(x) > copied.score(x) + 0.5


def test_learning_goes_on():
    x = (torch.rand(60, 5) < 0.3).float()
    parts = RestrictedBoltzmannMachine(3, random_state=0)
    for _ in range(3):
        copy = pickle.loads(pickle.dumps(parts)).partial_fit(x)  # leaves no trace in the other
        assert parts.partial_fit(x).components_.equal(copy.components_)
    assert parts._partition is None
    assert parts._chains is not None
    assert parts._chains.shape == (10, 3)
    before = parts.score(x)
    assert parts.partial_fit(x).score(x) != before
    wide = pickle.loads(pickle.dumps(parts)).partial_fit(x.double())
    assert wide.components_.dtype == torch.float64
    first = (x.sum(0) + 0.5) / 61
    torch.testing.assert_close(parts._base, first.logit())


def test_where_chains_begin():
    """Layers that copy each other: chains from an example end there, persistent ones stay."""
    x, low = torch.eye(2).double(), torch.full((2,), -50.0).double()
    for persistent in (False, True):
        units = Units(100 * torch.eye(2).double(), low.clone(), low.clone())
        ascend(
            units, x, None, passes=1, size=1, eta=0.1, steps=1, falling=False,
            persistent=persistent, generator=torch.Generator().manual_seed(0), progress=False,
        )  # fmt: skip
        moved = (units.visible - low).abs().max()
        assert float(moved) == pytest.approx(0.1 if persistent else 0.0, abs=1e-9)


def test_steps_fall_to_zero():
    """Of four updates, whose draws do not depend on it, the last one has half a step."""
    x, parts = torch.tensor([[1.0, 0.0], [1.0, 0.0]]).double(), drawn(2, 2)
    moves = []
    for falling, passes in ((True, 4), (False, 4), (False, 3)):
        units = Units(*(part.clone() for part in parts))
        ascend(
            units, x, None, passes=passes, size=2, eta=1e-9, steps=1, falling=falling,
            persistent=False, generator=torch.Generator().manual_seed(0), progress=False,
        )  # fmt: skip
        moves.append((units.weights - parts[0]) / 1e-9)
    first, both = moves[2], moves[1]
    torch.testing.assert_close(moves[0], first + (both - first) / 2, atol=1e-5, rtol=0)


def test_bits_of_any_kind():
    x = torch.rand(30, 4) < 0.5
    fitted = [
        RestrictedBoltzmannMachine(2, n_iter=1, random_state=0).fit(kind)
        for kind in (x, x.long(), x.float(), x.numpy().astype(np.float32))
    ]
    for machine in fitted[1:]:
        np.testing.assert_array_equal(np.asarray(machine.components_), fitted[0].components_)
    assert isinstance(fitted[3].components_, np.ndarray)
    grey = RestrictedBoltzmannMachine(2, n_iter=1, random_state=0, binarize=0.5).fit(0.2 + 0.6 * x)
    assert grey.components_.equal(fitted[0].components_)
    assert fitted[0].get_feature_names_out().tolist()[0] == "restrictedboltzmannmachine0"


BAD = [
    (
        {},
        [[0.5, 1.0]],
        r"entries of X must be 0 or 1, or binarize a threshold, got 0.5 at \(0, 0\)",
    ),
    ({"n_components": 0}, None, "n_components must be >= 1, got 0"),
    ({"learning_rate": 0.0}, None, "learning_rate must be > 0, got 0.0"),
    ({"learning_rate": 1e39}, None, "learning_rate must be <= 1000"),
    ({"batch_size": 0}, None, "batch_size must be >= 1"),
    ({"n_iter": 0}, None, "n_iter must be >= 1"),
    ({"gibbs_steps": 0}, None, "gibbs_steps must be >= 1"),
    ({"binarize": "half"}, None, "binarize must be a number, got 'half'"),
    ({}, [[math.nan, 1.0]], "NaN"),
    ({}, torch.ones(1, 2) * 1j, "X must be real"),
]


@pytest.mark.parametrize(("options", "x", "message"), BAD)
def test_refusals(options, x, message):
    x = np.eye(4) if x is None else x
    with pytest.raises(ValueError, match=message):
        RestrictedBoltzmannMachine(**({"n_components": 2} | options)).fit(x)


def test_refusals_of_a_machine():
    with pytest.raises(ValueError, match="intercept_hidden must be 3 wide"):
        RestrictedBoltzmannMachine.from_parameters(torch.ones(3, 2), torch.ones(2), torch.ones(2))
    with pytest.raises(ValueError, match="components must be finite"):
        RestrictedBoltzmannMachine.from_parameters(np.full((1, 1), np.inf), np.ones(1), np.ones(1))
    machine = RestrictedBoltzmannMachine.from_parameters(*drawn(2, 3))
    with pytest.raises(ValueError, match="n_samples must be >= 1"):
        machine.sample(0)
    with pytest.raises(ValueError, match="n_steps must be >= 1"):
        machine.gibbs(torch.ones(1, 3), n_steps=0)
    with pytest.raises(ValueError, match="X must be 3 wide"):
        machine.transform(torch.ones(1, 2))
    large = RestrictedBoltzmannMachine.from_parameters(*drawn(21, 22))
    with pytest.raises(ValueError, match="n_chains must be >= 2"):
        large.log_partition(n_chains=1)
    with pytest.raises(ValueError, match="n_temperatures must be >= 1"):
        large.log_partition(n_temperatures=0)


@pytest.mark.gpu
def test_on_a_gpu():
    x = (torch.rand(200, 12) < 0.3).float()
    machine = RestrictedBoltzmannMachine(8, n_iter=5, random_state=0).fit(x.cuda())
    assert machine.components_.is_cuda
    copied = RestrictedBoltzmannMachine.from_parameters(
        *(
            p.cpu()
            for p in (machine.components_, machine.intercept_visible_, machine.intercept_hidden_)
        )
    )
    torch.testing.assert_close(machine.score_samples(x.cuda()).cpu(), copied.score_samples(x))
    assert machine.sample(7, random_state=0).is_cuda
    large = RestrictedBoltzmannMachine.from_parameters(*(0.1 * p.cuda() for p in drawn(30, 25)))
    assert large.log_partition(n_temperatures=50).error < 0.1
    assert large.sample(3, random_state=0).shape == (3, 25)
