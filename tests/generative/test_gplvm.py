"""The Gaussian process latent variable model against normal densities, PCA and autograd."""

import warnings

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.generative import GPLVM
from vademecum.generative.process_embeddings._evidence import columns, likelihood
from vademecum.kernels import LinearKernel, MaternKernel, RBFKernel


@parametrize_with_checks([GPLVM(1, tol=0.1), GPLVM(1, kernel=LinearKernel(), noise=0.1)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def drawn(n=12, d=7):
    x = torch.randn(n, 3).double() @ torch.randn(3, d).double() + 0.3 * torch.randn(n, d).double()
    return x - x.mean(0)


def parabola(n=30):
    t = torch.linspace(-1, 1, n).double()
    x = torch.stack([t, 2 * t.square(), 0.5 * t], 1) + 0.02 * torch.randn(n, 3).double()
    return t, x - x.mean(0)


KERNELS = {
    "rbf": lambda: 2.0 * RBFKernel(lengthscale=0.8),
    "ard": lambda: RBFKernel(lengthscale=torch.tensor([0.5, 2.0]).double()),
    "matern": lambda: MaternKernel(nu=1.5),
    "rough": lambda: MaternKernel(nu=0.5) + LinearKernel(bias=0.3),
    "linear": lambda: LinearKernel(),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("n", "d"), [(6, 9), (7, 3)])
def test_the_likelihood_is_that_of_normal_columns(name, n, d):
    x, Z, kernel, noise = drawn(n, d), torch.randn(n, 2).double(), KERNELS[name](), 0.7
    found = likelihood(kernel, noise, Z, columns(x), d)
    assert found is not None
    A = kernel(Z) + noise**2 * torch.eye(n).double()
    law = multivariate_normal(np.zeros(n), A.numpy())
    assert found.value == pytest.approx(law.logpdf(x.T.numpy()).sum(), rel=1e-10)
    # All derivatives against central differences of densities.
    h = 1e-6

    def density(kernel, noise, Z):
        A = (kernel(Z) + noise**2 * torch.eye(n).double()).numpy()
        return multivariate_normal(np.zeros(n), A).logpdf(x.T.numpy()).sum()

    for i, j in ((0, 0), (2, 1), (n - 1, 0)):
        step = torch.zeros_like(Z)
        step[i, j] = h
        slope = (density(kernel, noise, Z + step) - density(kernel, noise, Z - step)) / (2 * h)
        assert float(found.points[i, j]) == pytest.approx(slope, rel=1e-5, abs=1e-5)
    up, down = (density(kernel, noise * np.exp(s * h), Z) for s in (1, -1))
    assert found.log_noise == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-5)
    for key, value in kernel.hyperparameters().items():
        value = torch.as_tensor(value).double()
        up, down = (
            density(kernel.replaced({key: value * np.exp(s * h)}), noise, Z) for s in (1, -1)
        )
        slope = float(found.logs[key].sum())  # all lengthscales at once
        assert slope == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(("n", "d", "q"), [(12, 7, 2), (6, 20, 3), (30, 4, 1)])
def test_the_closed_form_is_a_maximum(n, d, q):
    x = drawn(n, d)
    model = GPLVM(q, kernel=LinearKernel()).fit(x)
    value, slopes = model.log_likelihood(gradient=True)
    assert value == model.log_likelihood_
    assert slopes.abs().max() < 1e-9 * abs(value)
    values = torch.linalg.eigvalsh(x @ x.T / d).flip(0)
    assert model.noise_**2 == pytest.approx(float(values[q:].sum()) / (n - q), rel=1e-10)
    law = multivariate_normal(
        np.zeros(n),
        (model.embedding_ @ model.embedding_.T + model.noise_**2 * torch.eye(n).double()).numpy(),
    )
    assert value == pytest.approx(law.logpdf(x.T.numpy()).sum(), rel=1e-10)
    for noise in (0.9 * model.noise_, 1.1 * model.noise_):
        other = GPLVM(q, kernel=LinearKernel(), noise=noise).fit(x)
        assert other.log_likelihood_ < value
        assert other.noise_ == noise
    for _ in range(50):
        near = model.embedding_ + 10 ** float(-3 * torch.rand(())) * torch.randn(n, q).double()
        assert model.log_likelihood(near) < value
    scores = np.linalg.svd(x.numpy())[0][:, :q]
    assert subspace_angles(scores, model.embedding_.numpy()).max() < 1e-6


def test_much_noise_leaves_no_points():
    model = GPLVM(2, kernel=LinearKernel(), noise=100.0).fit(drawn())
    assert not model.embedding_.any()


def test_ascent_finds_the_closed_form():
    """A scaled linear kernel is not known in closed form here, and has the same maximum."""
    x = drawn()
    known = GPLVM(2, kernel=LinearKernel()).fit(x)
    found = GPLVM(2, kernel=1.0 * LinearKernel(), tol=1e-7).fit(x)
    assert found.n_iter_ > 1
    assert found.log_likelihood_ == pytest.approx(known.log_likelihood_, rel=1e-6)
    assert found.noise_ == pytest.approx(known.noise_, rel=1e-3)


def test_a_curve_is_one_coordinate():
    t, x = parabola()
    linear = GPLVM(1, kernel=LinearKernel()).fit(x)
    curved = GPLVM(1).fit(x)
    assert curved.converged_
    assert curved.log_likelihood_ > linear.log_likelihood_ + 20
    order = np.argsort(curved.embedding_[:, 0].numpy())
    ranks = np.corrcoef(np.argsort(order), np.argsort(t.numpy()))[0, 1]
    assert abs(ranks) > 0.9
    back, std = curved.inverse_transform(curved.embedding_, return_std=True)
    assert (back - x).abs().max() < 0.2
    assert std.shape == back.shape
    # The decoder by the formula of a process' mean.
    K = curved.kernel_(curved.embedding_)
    mean = K @ torch.linalg.solve(K + curved.noise_**2 * torch.eye(30).double(), x)
    torch.testing.assert_close(back, mean, rtol=1e-6, atol=1e-8)
    fixed = GPLVM(1, kernel=0.5 * RBFKernel(), noise=0.1, learn=False).fit(x)
    assert repr(fixed.kernel_) == repr(0.5 * RBFKernel())
    assert fixed.noise_ == 0.1


def test_means_kinds_and_functions():
    _, x = parabola(15)
    shifted = (x + torch.tensor([5.0, -3.0, 2.0])).float()
    tensor = GPLVM(1, tol=1e-3).fit(shifted)
    array = GPLVM(1, tol=1e-3).fit(shifted.numpy())
    assert tensor.embedding_.dtype == torch.float32
    assert isinstance(array.embedding_, np.ndarray)
    np.testing.assert_array_equal(array.embedding_, tensor.embedding_)
    torch.testing.assert_close(tensor.mean_, shifted.mean(0))
    back = tensor.inverse_transform(tensor.embedding_)
    assert back.dtype == torch.float32
    assert (back - shifted).abs().max() < 0.3
    assert isinstance(array.inverse_transform(array.embedding_), np.ndarray)

    def squared(a, b):
        return torch.exp(-torch.cdist(a, b).square() / 2)

    own = GPLVM(1, kernel=squared, noise=0.1, tol=1e-3).fit(x)
    ours = GPLVM(1, kernel=RBFKernel(), noise=0.1, learn=False, tol=1e-3).fit(x)
    assert own.log_likelihood_ == pytest.approx(ours.log_likelihood_, rel=1e-3)
    assert own.get_feature_names_out().tolist() == ["gplvm0"]


def test_noise_has_a_floor():
    t = torch.linspace(-1, 1, 8).double()[:, None]
    with warnings.catch_warnings():  # hardly any noise is hard to climb
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GPLVM(1, tol=1e-2, max_iter=50).fit(torch.cat([t, t, t], 1))
    assert 1e-3 <= model.noise_ / float(t.square().mean().sqrt()) * (1 + 1e-9) < 0.02


def test_unfinished_work_is_said():
    with pytest.warns(ConvergenceWarning, match="max_iter=2 reached with a derivative of"):
        model = GPLVM(2, max_iter=2).fit(drawn())
    assert not model.converged_
    assert model.n_iter_ == 2


BAD = [
    (GPLVM(1), torch.ones(1, 3), "X must have at least 2 rows, got 1"),
    (GPLVM(1), torch.ones(4, 3), "X must not be constant"),
    (GPLVM(1), torch.ones(4, 3) * 1j, "X must be real"),
    (GPLVM(4), torch.eye(5, 3), "n_components must be <= 3, got 4"),
    (GPLVM(1, noise=0.0), torch.eye(3), "noise must be > 0, got 0"),
    (GPLVM(1, max_iter=0), torch.eye(3), "max_iter must be >= 1"),
    (GPLVM(1, tol=0.0), torch.eye(3), "tol must be > 0"),
    (GPLVM(1, kernel="rbf"), torch.eye(3), "kernel must be a Kernel or a function .* 'rbf'"),
    (GPLVM(2, kernel=LinearKernel()), torch.eye(3), "noise must be given: 2 components leave"),
]


@pytest.mark.parametrize(("model", "x", "message"), BAD)
def test_refusals(model, x, message):
    with pytest.raises(ValueError, match=message):
        model.fit(x)


def test_refusals_of_points():
    model = GPLVM(1, kernel=LinearKernel()).fit(drawn())
    with pytest.raises(ValueError, match="Z must have 12 rows, one for each example, got 3"):
        model.log_likelihood(torch.ones(3, 1))
    with pytest.raises(ValueError, match="X must be 1 wide"):
        model.inverse_transform(torch.ones(3, 2))


@pytest.mark.gpu
def test_on_a_gpu():
    _, x = parabola()
    here, there = GPLVM(1).fit(x), GPLVM(1).fit(x.cuda())
    assert there.embedding_.is_cuda
    assert there.log_likelihood_ == pytest.approx(here.log_likelihood_, rel=1e-3)
    assert there.inverse_transform(there.embedding_).is_cuda
