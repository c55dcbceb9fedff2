"""The command that classifies Fashion-MNIST with one kernel matrix, on a part of it."""

import math

import pytest
import torch

from bench.kernels_fashion import accuracy, chosen, convolutional, decompose, dense, main, solve
from vademecum.data import DataNotFoundError, load
from vademecum.kernels import RBFKernel


@pytest.mark.parametrize("block", [1, 7, 16, 60, 100])
def test_the_decomposition_in_place_is_that_of_linalg(block):
    dice = torch.Generator().manual_seed(0)
    A = torch.randn(60, 60, generator=dice, dtype=torch.float64)
    A = A @ A.T + torch.eye(60, dtype=torch.float64)
    b = torch.randn(60, 3, generator=dice, dtype=torch.float64)
    L, done = A.clone(), []
    decompose(L, block=block, tick=done.append)
    torch.testing.assert_close(L.tril(), torch.linalg.cholesky(A), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(solve(L, b, block=block), torch.linalg.solve(A, b))
    assert sum(done) == 60


def test_accuracy_is_that_of_ridge_regression_with_a_solved_system():
    dice = torch.Generator().manual_seed(0)
    x, test = (torch.randn(n, 2, generator=dice, dtype=torch.float64) for n in (40, 30))
    y, labels = ((t[:, 0] > 0).long() + 2 * (t[:, 1] > 0).long() for t in (x, test))
    kernel, ridges = RBFKernel(lengthscale=2.0), (0.01, 3.0)
    one_hot = torch.nn.functional.one_hot(y, 10).double() - 0.1
    for found, ridge in zip(accuracy(kernel, x, y, test, labels, ridges), ridges, strict=True):
        K = kernel(x) + ridge * torch.eye(40, dtype=torch.float64)  # the diagonal of K is 1
        wanted = (kernel(test, x) @ torch.linalg.solve(K, one_hot)).argmax(1).eq(labels)
        assert math.isclose(found, float(wanted.double().mean()))
    assert chosen(kernel, x, y) > 0


def test_the_kernels_are_those_of_the_networks_they_name():
    x = torch.ones(1, 784, dtype=torch.float64)
    # a ReLU with variance 2 keeps the diagonal; each of four layers adds 0.01 for its biases
    assert math.isclose(float(dense("nngp", 3)(x)), 2 + 4 * 0.01, rel_tol=1e-12)
    assert float(dense("ntk", 3)(x)) > float(dense("nngp", 3)(x))
    assert convolutional("ntk", 2)(x.view(1, 1, 28, 28)).shape == (1, 1)


def test_the_command_prints_its_accuracy(capsys):
    try:
        load("fashion_mnist", split="test")
    except DataNotFoundError as missing:
        pytest.skip(str(missing))
    main(["--images", "300", "--test-images", "200"])
    line = capsys.readouterr().out
    assert line.startswith("ntk of 3 hidden layers, 300 images in float64 on cpu: accuracy 0.")
    assert float(line.partition("accuracy ")[2][:6]) > 0.65
