"""What kernel methods say of how they ended, and what they do with rare inputs."""

import numpy as np
import pytest
import torch

from tests.kernels.test_kernel_ridge import data
from vademecum.kernels import GaussianProcess, KernelRidge, RBFKernel

EPS = torch.finfo(torch.float64).eps


def test_ends_are_the_worst_of_all_penalties():
    """A singular matrix needs jitter without a penalty, and none with one."""
    x = torch.linspace(0, 1, 50).double()[:, None]
    y = x[:, 0].sin()
    kernel = RBFKernel(lengthscale=3.0)
    hard, easy = (KernelRidge(kernel, alpha=a).fit(x, y) for a in (0.0, 1.0))
    assert EPS <= hard.jitter_ <= 10 * len(x) * EPS
    assert easy.jitter_ == 0
    assert hard.residual_ > 10 * easy.residual_
    assert hard.rounding_ > 10 * easy.rounding_
    for alpha in ([0.0, 1.0], [1.0, 0.0]):
        both = KernelRidge(kernel, alpha=alpha).fit(x, torch.stack([y, y], 1))
        assert both.jitter_ == hard.jitter_
        assert both.residual_ > 5 * easy.residual_
        assert both.rounding_ > 5 * easy.rounding_


def test_a_precomputed_matrix_without_some_examples():
    x, y, _ = data()
    s = np.arange(len(x)) % 3
    K = RBFKernel()(torch.from_numpy(x)).numpy()
    ours = KernelRidge("precomputed", alpha=0.5).fit(K, y, s)
    expected = KernelRidge(RBFKernel(), alpha=0.5).fit(x, y, s)
    np.testing.assert_allclose(ours.dual_coef_, expected.dual_coef_, atol=1e-12)
    assert ours.rounding_ < 1e-12


def test_conflicts_are_those_of_targets_without_penalty():
    x = np.array([[0.0], [1.0], [1.0]])
    y = np.array([[1.0, 1.0], [2.0, 2.0], [2.0, 3.0]])
    KernelRidge(alpha=[0.0, 1.0]).fit(x, y)
    message = "> 0 where equal inputs have different targets, got .* such inputs 1 and 2$"
    for model in (KernelRidge(alpha=0), KernelRidge(alpha=[1.0, 0.0]), GaussianProcess(noise=0)):
        with pytest.raises(ValueError, match=message):
            model.fit(x, y)


def test_a_table_of_penalties_is_refused():
    with pytest.raises(ValueError, match=r"^alpha must be a number or one for each target, got"):
        KernelRidge(alpha=[[1.0]]).fit([[0.0], [1.0]], [0.0, 1.0])


def test_predictions_keep_to_the_memory():
    x, y, _ = data(n=100)
    sizes = []

    def kernel(a, b):
        sizes.append(len(a) * len(b) * a.element_size())
        return torch.exp(-torch.cdist(a, b))

    memory = 2**14
    ours = KernelRidge(kernel, alpha=0.3, memory=memory).fit(x, y)
    sizes.clear()
    found = ours.predict(x)
    assert 3 * max(sizes) <= memory
    np.testing.assert_allclose(
        found, KernelRidge(kernel, alpha=0.3).fit(x, y).predict(x), atol=1e-3
    )


def test_constant_targets_are_their_own_unit():
    x, _, new = data()
    ours = GaussianProcess(RBFKernel(), noise=0.1, learn=False, normalize_y=True)
    mean, std = ours.fit(x, np.full(len(x), 7.0)).predict(new, return_std=True)
    np.testing.assert_array_equal(mean, 7.0)
    assert ((std > 0) & (std <= 1)).all()
