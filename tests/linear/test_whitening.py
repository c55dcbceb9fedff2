"""Whitening against covariances, and what is left where variance lacks."""

import inspect
import math

import pytest
import torch

from vademecum.linear.whitening import whiten


def data(n, d, rank=None):
    rank = d if rank is None else rank
    return torch.randn(n, rank).double() @ torch.randn(rank, d).double() + torch.randn(d).double()


@pytest.mark.parametrize("method", ["pca", "zca", "cholesky"])
@pytest.mark.parametrize(("n", "d"), [(30, 4), (2, 1), (6, 5)])
def test_white_and_back(n, d, method):
    x = data(n, d)
    white = whiten(x, method=method)
    torch.testing.assert_close(white.z.mean(0), torch.zeros(d).double())
    torch.testing.assert_close(white.z.T @ white.z / n, torch.eye(d).double())
    torch.testing.assert_close(white.z @ white.inverse.T + white.mean, x)
    torch.testing.assert_close(white.transform @ white.inverse, torch.eye(d).double())
    assert white.rank == d


def test_each_method_is_its_formula():
    x = data(50, 4)
    covariance = torch.cov(x.T, correction=0)
    zca = whiten(x).transform
    torch.testing.assert_close(zca, zca.T)
    torch.testing.assert_close(zca @ zca @ covariance, torch.eye(4).double())
    assert (torch.linalg.eigvalsh(zca) > 0).all()
    cholesky = whiten(x, method="cholesky")
    torch.testing.assert_close(cholesky.inverse, torch.linalg.cholesky(covariance))
    torch.testing.assert_close(cholesky.transform, cholesky.transform.tril())
    pca = whiten(x, method="pca")
    spread = pca.inverse.square().sum(0)
    torch.testing.assert_close(spread, torch.linalg.eigvalsh(covariance).flip(0))
    torch.testing.assert_close(covariance @ pca.inverse, pca.inverse * spread)


@pytest.mark.parametrize(("n", "d", "rank"), [(30, 6, 2), (4, 9, 9), (30, 6, 1)])
def test_deficient_rank(n, d, rank):
    x = data(n, d, rank)
    rank = min(rank, n - 1)
    pca, zca = (whiten(x, method=method) for method in ("pca", "zca"))
    assert pca.rank == zca.rank == rank
    assert pca.z.shape == (n, rank)
    torch.testing.assert_close(pca.z.T @ pca.z / n, torch.eye(rank).double())
    moment = zca.z.T @ zca.z / n
    torch.testing.assert_close(moment @ moment, moment)
    assert float(moment.trace()) == pytest.approx(rank)
    for white in (pca, zca):
        torch.testing.assert_close(white.z @ white.inverse.T + white.mean, x)
        torch.testing.assert_close(white.inverse, torch.linalg.pinv(white.transform, rtol=1e-9))


def test_constant_columns_are_left_out():
    x = torch.cat([data(20, 2), torch.full((20, 1), 0.1).double()], 1)
    white = whiten(x)
    assert white.rank == 2
    assert white.z[:, 2].abs().max() < 1e-12


def test_single_precision():
    x = data(200, 5).float()
    white = whiten(x)
    assert {part.dtype for part in white[:-1]} == {torch.float32}
    torch.testing.assert_close(white.z.T @ white.z / 200, torch.eye(5), atol=1e-4, rtol=1e-4)


X = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
ERRORS = [
    ((X * math.nan,), {}, "x must be finite"),
    ((X[0],), {}, "x must have 2 axes"),
    ((X[:0],), {}, "x must not be empty"),
    ((X.long(),), {}, "x must be floating point"),
    ((X + 0j,), {}, "x must be real, got torch.complex64"),
    ((X,), {"method": "ica"}, "method must be one of 'pca', 'zca', 'cholesky', got 'ica'"),
    ((X[[0, 0, 0]],), {}, "x must have variance, got 3 equal rows"),
    ((X[:, :1].expand(3, 2),), {"method": "cholesky"}, "x must have rank 2 .*, got rank 1"),
]


@pytest.mark.parametrize(("args", "options", "message"), ERRORS)
def test_errors(args, options, message, unchecked):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(whiten)(*args, **options)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("method", ["zca", "cholesky"])
def test_cuda(method):
    x = data(100, 5)
    gpu, cpu = whiten(x.cuda(), method=method), whiten(x, method=method)
    assert gpu.z.is_cuda
    torch.testing.assert_close(gpu.z.cpu(), cpu.z)
