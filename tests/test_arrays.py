"""Large results, portions, small blocks, and norms at the ends of the range."""

import math

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from vademecum.arrays import empty, lengths, one_blas_thread, portions, power_of_two, views

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("rows", [0, 3, 2**19 + 1])
def test_an_array_is_a_tensor_like_any_other(rows, dtype):
    x = empty(rows, 5, dtype=dtype, device=CPU)
    assert x.shape == (rows, 5)
    assert x.dtype == dtype
    assert x.device == CPU
    assert x.is_contiguous()
    assert not x.requires_grad
    x.copy_(torch.arange(rows)[:, None] % 100)
    assert torch.equal(x.sum(1, dtype=torch.float64), 5.0 * (torch.arange(rows) % 100))


def test_arrays_do_not_share_memory():
    first, second = (empty(2**21, dtype=torch.float32, device=CPU) for _ in range(2))
    first.fill_(1)
    second.fill_(2)
    assert bool((first == 1).all())


def test_autograd_and_products_take_it():
    x = empty(1500, 1500, dtype=torch.float64, device=CPU).fill_(0.5).requires_grad_()
    (x @ x).sum().backward()
    assert x.grad is not None
    assert bool((x.grad == 1500).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("keepdim", [True, False])
def test_lengths_are_norms_of_vectors_of_any_size(dtype, dim, keepdim):
    x = torch.randn(6, 6, dtype=dtype)
    x[1] = 0
    x[:, 2] = 0
    real = torch.finfo(dtype)
    sizes = [1.0, 1.0, 1.0, real.max**0.9, real.tiny**0.9, real.max / 16]
    scales = torch.tensor(sizes, dtype=torch.float64)
    place = scales[:, None] if dim else scales
    found = lengths((x * place).to(dtype), dim, keepdim=keepdim)
    exact = torch.linalg.vector_norm(x.to(torch.complex128), dim=dim, keepdim=keepdim)
    wanted = exact * scales.reshape(found.shape)
    assert found.dtype == x.abs().dtype
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=0)


def test_lengths_at_the_very_ends():
    largest, least = torch.finfo(torch.float32).max, 2.0**-149
    x = torch.tensor([[largest / 2, 0.0], [3 * least, 4 * least], [math.inf, 1.0], [math.nan, 1.0]])
    found = lengths(x, 1)
    assert found[:2].tolist() == [largest / 2, 5 * least]
    assert found[2] == math.inf
    assert found[3].isnan()
    wide = lengths(x[:2], 1, dtype=torch.float64)
    assert wide.tolist() == [largest / 2, 5 * least]
    assert lengths(torch.zeros(0, 3), 1).shape == (0,)


@pytest.mark.parametrize("power", [-1000, -500, 0, 400, 1000])
def test_lengths_scale_to_the_bit(power):
    x = torch.randn(50, 7, dtype=torch.float64)
    assert torch.equal(lengths(x * 2.0**power, 1), lengths(x, 1) * 2.0**power)


def test_lengths_have_gradients_also_at_zero():
    rows = [[3e30, 4e30], [0.0, 0.0], [3.0, 4.0], [3e-30, 4e-30], [3e-40, 4e-40]]
    wanted = [[0.6, 0.8], [0.0, 0.0], [0.6, 0.8], [0.6, 0.8], [0.6, 0.8]]
    for single in (slice(None), slice(3, 4)):
        x = torch.tensor(rows[single], requires_grad=True)
        lengths(x, 1).sum().backward()
        torch.testing.assert_close(x.grad, torch.tensor(wanted[single]), rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("largest", [0.0, 1.0, 3e-38, 3e37, -1e-20, 1e12])
def test_a_power_of_two_makes_the_largest_entry_moderate(largest, dtype):
    x = torch.tensor([largest, largest / 7], dtype=dtype)
    scale = power_of_two(x, x / 2)
    assert math.frexp(scale)[0] == 0.5
    assert 2.0**-30 <= abs(largest / scale) <= 2.0**30 or largest == 0
    assert math.isfinite(1 / scale)


@pytest.mark.parametrize(("n", "each", "memory", "sizes"), [
    (7, 3, 9, [3, 3, 1]), (7, 3, 2, [1] * 7), (6, 3, 9, [3, 3]), (2, 1, 100, [2]), (0, 1, 1, []),
    (3, 0, 1, [1, 1, 1]),
])  # fmt: skip
def test_portions_cover_everything_once(n, each, memory, sizes):
    parts = portions(n, each=each, memory=memory)
    assert [len(range(n)[part]) for part in parts] == sizes
    assert [i for part in parts for i in range(n)[part]] == list(range(n))


def test_views_share_memory_and_blas_gets_its_threads_back():
    x = torch.zeros(3)
    (array,) = views(x)
    assert isinstance(array, np.ndarray)
    array += 1
    assert x.tolist() == [1, 1, 1]

    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    with one_blas_thread():
        assert set(threads()) == {1}
    assert threads() == before
