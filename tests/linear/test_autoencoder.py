"""The linear autoencoder against products, the singular value decomposition and PCA."""

import math
from typing import cast

import pytest
import torch

from vademecum.data import load
from vademecum.linear.autoencoder import LinearAutoencoder
from vademecum.linear.pca import PCA


def test_is_the_product_of_its_layers():
    model, x = LinearAutoencoder(5, 2), torch.randn(3, 4, 5)
    wanted = torch.einsum("nm,mk,abk->abn", model.D, model.C, x)
    torch.testing.assert_close(model(x), wanted)
    torch.testing.assert_close(model.decode(model.encode(x)), wanted)
    flat = x.flatten(0, 1)
    mean = sum(0.5 * (v - model(v)).square().sum() for v in flat) / len(flat)
    torch.testing.assert_close(model.loss(flat), mean)


@pytest.mark.parametrize(("s", "n", "m"), [(20, 5, 2), (20, 5, 5), (200, 4, 1), (3, 8, 2)])
@pytest.mark.parametrize("centred", [False, True])
def test_optimum(s, n, m, centred):
    x = torch.randn(s, n, dtype=torch.float64) + 3
    x = x - x.mean(0) if centred else x
    best = LinearAutoencoder(n, m).double().set_optimum(x)
    sigma = torch.linalg.svdvals(x)
    torch.testing.assert_close(2 * s * best.loss(x), sigma[m:].square().sum(), atol=1e-10, rtol=0)
    for slope in torch.autograd.grad(best.loss(x), list(best.parameters())):
        assert slope.abs().max() < 1e-12
    if centred:
        torch.testing.assert_close(best.C.detach(), PCA(m).fit(x).components_)


def test_fewer_examples_than_code_numbers():
    x = torch.tensor([[3.0, 4.0, 0.0]])
    best = LinearAutoencoder(3, 2).set_optimum(x)
    torch.testing.assert_close(best(x), x)
    torch.testing.assert_close(best.C.abs(), torch.tensor([[0.6, 0.8, 0.0], [0.0, 0.0, 0.0]]))


def test_gradient_descent_finds_the_optimum_on_digits():
    x = load("digits").x.flatten(1)
    x = (x - x.mean(0))[:, 20:28]
    best = LinearAutoencoder(8, 3).set_optimum(x).loss(x).item()
    model = LinearAutoencoder(8, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = model.loss(x)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert best * (1 - 1e-5) <= model.loss(x).item() <= best * (1 + 1e-4)


X = torch.ones(4, 3)
ERRORS = [
    (lambda: LinearAutoencoder(0, 1), "n must be >= 1, got 0"),
    (lambda: LinearAutoencoder(3, 4), "m must be <= 3, got 4"),
    (lambda: LinearAutoencoder(3, cast(int, 1.5)), "m must be an integer, got 1.5"),
    (lambda: LinearAutoencoder(3, 1)(X[:, :2]), r"x must be 3 wide, got shape \(4, 2\)"),
    (lambda: LinearAutoencoder(3, 1).loss(X[:0]), "x must not be empty"),
    (lambda: LinearAutoencoder(3, 1).set_optimum(X[:, :2]), "x must be 3 wide"),
    (lambda: LinearAutoencoder(3, 1).set_optimum(X * math.nan), "x must be finite, got nan"),
    (lambda: LinearAutoencoder(3, 1).set_optimum(X.long()), "x must be floating point"),
    (lambda: LinearAutoencoder(3, 1).set_optimum(X[:0]), "x must not be empty"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
@pytest.mark.usefixtures("unchecked")
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    x = torch.randn(100, 6, dtype=torch.float64)
    cpu, gpu = LinearAutoencoder(6, 2).double(), LinearAutoencoder(6, 2).double().cuda()
    loss = gpu.set_optimum(x.cuda()).loss(x.cuda())
    assert gpu.C.is_cuda
    torch.testing.assert_close(loss.cpu(), cpu.set_optimum(x).loss(x))
