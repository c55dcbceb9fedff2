"""Bias, variance and noise, against closed forms, all sign vectors and other draws."""

import math
import re
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.tree import DecisionTreeRegressor

from vademecum.generalization import bias_variance
from vademecum.linear import RidgeRegression

X = torch.linspace(-1, 1, 9).double()[:, None]
AT = torch.tensor([[-0.7], [0.1], [1.3]]).double()


def cube(x):
    return x[:, 0] ** 3 - x[:, 0]


def ridge(X, y):
    """Ridge regression on 1 and x."""
    A = torch.cat([torch.ones_like(X), X], 1)
    w = torch.linalg.solve(A.T @ A + 0.3 * torch.eye(2).to(X), A.T @ y)
    return lambda x: w[0] + w[1] * x


def weights() -> np.ndarray:
    A = np.c_[np.ones(9), X.numpy()]
    return np.c_[np.ones(3), AT.numpy()] @ np.linalg.inv(A.T @ A + 0.3 * np.eye(2)) @ A.T


def test_bias_variance_of_a_linear_smoother_is_exact():
    found = bias_variance(ridge, X, AT, truth=cube, noise=0.5, linear=True)
    a, signs = weights(), np.array([*product((-0.5, 0.5), repeat=9)])
    fits = (cube(X).numpy() + signs) @ a.T  # of all training sets with noise +-1/2
    np.testing.assert_allclose(found.variance, fits.var(0), rtol=1e-10)
    bias = fits.mean(0) - cube(AT).numpy()
    np.testing.assert_allclose(found.bias_squared, bias**2, rtol=1e-10)
    y = np.array([-0.5, 0.5])[:, None, None]
    error = ((fits - cube(AT).numpy() - y) ** 2).mean((0, 1))
    np.testing.assert_allclose(found.error, error, rtol=1e-10)
    assert found.noise == 0.25
    assert found.exact
    assert found.fits == 11
    assert not found.variance_error.any()


def test_draws_agree_with_the_exact_parts_and_their_errors_are_honest():
    exact = bias_variance(ridge, X, AT, truth=cube, noise=0.5, linear=True)
    off = {"bias_squared": [], "variance": []}
    for _ in range(40):
        found = bias_variance(ridge, X, AT, truth=cube, noise=0.5, repeats=60)
        torch.testing.assert_close(
            found.error, found.bias_squared + found.variance + 0.25, rtol=1e-12, atol=0.0
        )
        for name, list_ in off.items():
            gap = getattr(found, name) - getattr(exact, name)
            list_.append(gap / getattr(found, f"{name}_error"))
        assert not found.exact
    for list_ in off.values():
        z = torch.stack(list_)
        assert z.mean(0).abs().max() < 1.0  # 40 runs: 6 errors, or so, of a mean
        assert 0.5 < float(z.std()) < 2.0


def test_estimates_have_no_bias():
    exact = bias_variance(ridge, X, AT, truth=cube, noise=2.0, linear=True)
    few = [bias_variance(ridge, X, AT, truth=cube, noise=2.0, repeats=4) for _ in range(500)]
    for name in ("bias_squared", "variance", "error"):
        z = torch.stack([getattr(f, name) for f in few])
        off = (z.mean(0) - getattr(exact, name)) / (z.std(0) / len(few) ** 0.5)
        assert off.abs().max() < 5, name  # a division by R or no correction is 13 errors off


def test_standard_errors_by_hand():
    """Errors of 1, 1, -1, -1, and of those less 2: their fourth moment is 1 both times."""
    for shift in (0.0, 2.0):
        values = iter((1.0 - shift, 1.0 - shift, -1.0 - shift, -1.0 - shift))

        def fit(X, y, values=values):
            v = next(values)
            return lambda x: v + 0 * x

        nothing = {"truth": lambda x: 0 * x[:, 0], "noise": 0.5}
        found = bias_variance(fit, X, AT[:1], repeats=4, **nothing)
        s2 = 4 / 3
        assert float(found.variance) == pytest.approx(s2)
        assert float(found.bias_squared) == pytest.approx(shift**2 - s2 / 4)
        wanted = math.sqrt(4 * shift**2 * s2 / 4 + 2 * s2**2 / 12)
        assert float(found.bias_squared_error) == pytest.approx(wanted)
        assert float(found.variance_error) == pytest.approx(math.sqrt((1 - s2**2 / 3) / 4))


def test_inputs_drawn_anew():
    def mean(X, y):
        return lambda x: y.mean().expand(len(x))

    at = torch.tensor([[0.0], [3.0]]).double()
    found = bias_variance(
        mean, lambda g: torch.randn(4, 1, generator=g, dtype=torch.float64), at,
        truth=lambda x: 2 * x[:, 0], noise=1.0, repeats=4000,
    )  # fmt: skip
    variance = (4 + 1) / 4
    assert ((found.variance - variance).abs() < 5 * variance * (2 / 3999) ** 0.5).all()
    wanted = torch.tensor([0.0, 36.0]).double()
    assert ((found.bias_squared - wanted).abs() < 5 * found.bias_squared_error).all()


ESTIMATORS = [
    LinearRegression(),
    make_pipeline(PolynomialFeatures(3), LinearRegression()),
    KNeighborsRegressor(3),
    RidgeRegression(alphas=0.3),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_estimators_of_scikit_learn(estimator):
    found = bias_variance(estimator, X, AT, truth=cube, noise=0.5, linear=True)
    a = np.stack([estimator.fit(X.numpy(), e).predict(AT.numpy()) for e in np.eye(9)], 1)
    np.testing.assert_allclose(found.variance, 0.25 * (a**2).sum(1), rtol=1e-9)
    bias = a @ cube(X).numpy() - cube(AT).numpy()
    np.testing.assert_allclose(found.bias_squared, bias**2, rtol=1e-9, atol=1e-20)


def test_what_an_estimator_draws_comes_from_the_generator():
    trees = RandomForestRegressor(2, max_depth=2)
    forest = make_pipeline(trees)
    runs = [
        bias_variance(forest, X, AT, truth=cube, noise=0.5, repeats=4,
                      generator=torch.Generator().manual_seed(s)).variance
        for s in (0, 0, 1)
    ]  # fmt: skip
    assert runs[0].equal(runs[1])
    assert not runs[0].equal(runs[2])
    assert trees.random_state is None  # a clone was fitted
    assert not hasattr(trees, "estimators_")


def test_a_network_that_is_trained():
    def train(X, y):
        net = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        optimizer = torch.optim.Adam(net.to(X.dtype).parameters(), lr=0.05)
        for _ in range(5):
            optimizer.zero_grad()
            (net(X)[:, 0] - y).square().mean().backward()
            optimizer.step()
        return net  # predictions (m, 1)

    state = torch.get_rng_state()
    dice = torch.Generator().manual_seed(0)
    found = bias_variance(train, X, AT, truth=cube, noise=0.1, repeats=5, generator=dice)
    assert (found.variance > 0.001).all()  # from the initial weights
    assert state.equal(torch.get_rng_state())


def test_single_precision():
    one = bias_variance(ridge, X.float(), AT.float(), truth=cube, noise=0.5, linear=True)
    other = bias_variance(ridge, X, AT, truth=cube, noise=0.5, linear=True)
    assert one.variance.dtype == torch.float32
    torch.testing.assert_close(one.error, other.error.float())


@pytest.mark.usefixtures("unchecked")
def test_what_is_not_linear_is_refused():
    tree = DecisionTreeRegressor(max_depth=1, random_state=0)
    with pytest.raises(ValueError, match="fit must be linear in the targets where linear=True"):
        bias_variance(tree, X, AT, truth=cube, noise=0.5, linear=True)


GOOD = {"fit": ridge, "design": X, "x": AT, "truth": cube, "noise": 0.5}
REFUSED = [
    ({"fit": 3}, "fit must be a function, or have fit and predict, got 3"),
    ({"x": AT[0]}, "x must have 2 axes, got shape (1,)"),
    ({"x": AT[:0]}, "x must not be empty, got shape (0, 1)"),
    ({"design": X.expand(9, 2)}, "design must be 1 wide, got shape (9, 2)"),
    (
        {"design": X.float()},
        "design must be torch.float64 on cpu as x is, got torch.float32 on cpu",
    ),
    ({"noise": -1.0}, "noise must be >= 0, got -1.0"),
    ({"repeats": 3}, "repeats must be >= 4, got 3"),
    ({"truth": lambda x: x.expand(len(x), 2)}, "truth must be one number for each of 3 inputs"),
    ({"truth": lambda x: x[:, 0] * math.nan}, "truth must be finite, got nan at (0,)"),
    (
        {"fit": lambda X, y: lambda x: y},
        "predictions of fit must be one number for each of 3 inputs, got (9,)",
    ),
    (
        {"fit": lambda X, y: lambda x: x[:, 0] / 0},
        "predictions of fit must be finite, got -inf at (0,)",
    ),
    (
        {"design": lambda g: X, "linear": True},
        "design must be a tensor where linear=True, got <function",
    ),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("wrong", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_refused(wrong, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        bias_variance(**{**GOOD, **wrong})


def test_progress(capsys):
    bias_variance(**GOOD, repeats=4, progress=True)
    bias_variance(**GOOD, linear=True, progress=True)
    assert capsys.readouterr().err.count("fits") >= 2
