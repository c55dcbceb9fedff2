"""Large results: like torch's own in shape, dtype and use, whatever their size."""

import pytest
import torch

from vademecum.arrays import empty

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
