"""The cascade against the sequential definition, entry after entry."""

import numpy as np
import pytest
import torch

from vademecum.connectionism._cascade import cascade


def fire(a):
    return 0 * a + (a > 0) - 1 * (a < -1)


def one_by_one(drive, lower):
    c = np.zeros_like(drive)
    for i in range(len(drive)):
        c[i] = fire(drive[i] + lower[i] @ c)
    return c


@pytest.mark.parametrize("n", [1, 2, 17, 60])
@pytest.mark.parametrize("draw", range(3))
def test_equals_the_sequential_rule(n, draw):
    rng = np.random.default_rng(draw)
    drive = rng.integers(-3, 4, (n, 5)).astype(float)
    lower = np.tril(rng.integers(-2, 3, (n, n)).astype(float), -1)
    expected = one_by_one(drive, lower)
    np.testing.assert_array_equal(cascade(fire, drive, lower), expected)
    tensors = torch.from_numpy(drive), torch.from_numpy(lower)
    np.testing.assert_array_equal(cascade(fire, *tensors), expected)


def test_the_longest_chain_and_none():
    chain = np.diag(np.ones(39), -1)
    drive = np.zeros((40, 1))
    drive[0] = 1
    calls = []
    c = cascade(lambda a: calls.append(0) or (a > 0) * 1.0, drive, chain)
    assert c.all()
    assert len(calls) == 41  # the start, 39 rounds that reach one more entry, one that confirms
    calls.clear()
    cascade(lambda a: calls.append(0) or (a > 0) * 1.0, -drive, chain)
    assert len(calls) == 2


def test_leaves_its_arguments_alone():
    drive, lower = np.ones((4, 2)), np.tri(4, k=-1)
    cascade(fire, drive, lower)
    np.testing.assert_array_equal(drive, 1)
    np.testing.assert_array_equal(lower, np.tri(4, k=-1))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    drive = torch.randint(-3, 4, (50, 4)).double()
    lower = torch.randint(-2, 3, (50, 50)).double().tril(-1)
    assert torch.equal(cascade(fire, drive.cuda(), lower.cuda()).cpu(), cascade(fire, drive, lower))
