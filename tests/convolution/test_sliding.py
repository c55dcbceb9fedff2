"""Convolution and correlation against SciPy, in all modes and by both methods."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal
from torch import nn

from vademecum.convolution import convolve, correlate, rot180

SIZES = [
    ((7,), (3,)), ((7,), (4,)), ((3,), (5,)), ((1,), (1,)), ((300,), (70,)), ((40,), (40,)),
    ((30000,), (20,)), ((20000,), (90,)),
    ((6, 5), (3, 2)), ((4, 9), (4, 1)), ((2, 3), (3, 5)), ((90, 60), (9, 8)), ((700, 40), (5, 3)),
    ((4, 5, 6), (2, 3, 1)), ((9, 8, 30), (4, 3, 12)), ((2, 150, 140), (1, 3, 4)),
]  # fmt: skip
MODES, METHODS = ("full", "same", "valid"), ("direct", "fft", "auto")


def fits(n, k):
    return all(a >= b for a, b in zip(n, k, strict=True))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_convolve_and_correlate_are_scipys(n, k, method):
    x, h = torch.randn(n).double(), torch.randn(k).double()
    for mode in MODES if fits(n, k) else MODES[:2]:
        for ours, peer in ((convolve, signal.convolve), (correlate, signal.correlate)):
            wanted = peer(x.numpy(), h.numpy(), mode=mode, method="fft")
            found = ours(x, h, mode=mode, method=method)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n", "k"), [pair for pair in SIZES if fits(*pair)])
def test_circular_ones_are_sums_of_rolled_signals(n, k, method):
    x, h = torch.randn(n).double(), torch.randn(k).double()
    axes = tuple(range(len(n)))
    pairs = [(t, float(h[t])) for t in np.ndindex(*k)]
    wanted = sum(w * np.roll(x.numpy(), t, axes) for t, w in pairs)
    found = convolve(x, h, mode="circular", method=method)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11)
    wanted = sum(w * np.roll(x.numpy(), [-i for i in t], axes) for t, w in pairs)
    found = correlate(x, h, mode="circular", method=method)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("method", ["direct", "fft"])
@pytest.mark.parametrize(("complex_x", "complex_h"), [(True, True), (True, False), (False, True)])
def test_complex_numbers(complex_x, complex_h, method):
    kinds = {True: torch.complex128, False: torch.float64}
    for n, k in (((9,), (4,)), ((8, 30), (2, 20))):
        x = torch.randn(n, dtype=kinds[complex_x])
        h = torch.randn(k, dtype=kinds[complex_h])
        for ours, peer in ((convolve, signal.convolve), (correlate, signal.correlate)):
            for mode in MODES:
                wanted = peer(x.numpy(), h.numpy(), mode=mode)
                np.testing.assert_allclose(ours(x, h, mode=mode, method=method), wanted, atol=1e-12)
    y = correlate(x, h, mode="circular", method=method)
    assert torch.allclose(y[0, 0], (h.conj() * x[:2, :20]).sum(), atol=1e-12)


def test_leading_axes_are_a_batch():
    x, h = torch.randn(3, 2, 40).double(), torch.randn(35).double()
    for method in METHODS:
        for mode in (*MODES, "circular"):
            found = convolve(x, h, mode=mode, method=method)
            wanted = torch.stack([convolve(row, h, mode=mode) for row in x.flatten(0, 1)])
            assert torch.allclose(found, wanted.unflatten(0, (3, 2)), rtol=0, atol=1e-12)
    x, h = torch.randn(2, 3, 12, 11), torch.randn(4, 9)
    found = correlate(x, h, mode="valid", method="direct")
    wanted = nn.functional.conv2d(x.flatten(0, 1)[:, None], h[None, None])[:, 0]
    assert torch.allclose(found.flatten(0, 1), wanted, atol=1e-5)


# Integers


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_are_exact_and_do_not_wrap(dtype, method):
    top = min(torch.iinfo(dtype).max, 10**5)
    x, h = (torch.randint(0, top + 1, size, dtype=dtype) for size in ((400,), (60,)))
    found = convolve(x, h, method=method)
    assert found.dtype == torch.int64
    assert found.tolist() == np.convolve(x.long().numpy(), h.long().numpy()).tolist()


def test_large_integers_are_exact():
    x, h = torch.randint(-(2**40), 2**40, (9, 7)), torch.randint(-(2**17), 2**17, (3, 4))
    full, wrapped = np.zeros((11, 10), int), np.zeros((9, 7), int)
    for i, j in np.ndindex(3, 4):
        full[i : i + 9, j : j + 7] += int(h[i, j]) * x.numpy()
        wrapped += int(h[i, j]) * np.roll(x.numpy(), (i, j), (0, 1))
    assert np.array_equal(convolve(x, h), full)
    assert np.array_equal(convolve(x, h, mode="same"), full[1:10, 1:8])
    assert np.array_equal(convolve(x, h, mode="valid"), full[2:9, 3:7])
    assert np.array_equal(convolve(x, h, mode="circular"), wrapped)


def test_integers_by_transforms_are_right_up_to_where_they_are_refused():
    x, h = torch.randint(-(2 * 10**5), 2 * 10**5, (2, 500))
    assert torch.equal(convolve(x, h, method="fft"), convolve(x, h, method="direct"))
    with pytest.raises(ValueError, match="must not round to a wrong integer, got numbers for"):
        convolve(10 * x, h, method="fft")


# Dtypes and derivatives


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("method", METHODS)
def test_half_precision_is_computed_in_float32(dtype, method):
    x, h = torch.randn(50).to(dtype), torch.randn(40).to(dtype)
    found = convolve(x, h, method=method)
    assert found.dtype == dtype
    wanted = convolve(x.double(), h.double())
    error = torch.finfo(dtype).eps * wanted.abs().max() + 1e-4
    assert float((found.double() - wanted).abs().max()) < error


def test_of_different_dtypes_the_wider_one_counts():
    x, h = torch.ones(3), torch.ones(2)
    assert convolve(x, h.double()).dtype == torch.float64
    assert convolve(x, h.long()).dtype == torch.float32
    assert convolve(x, h.to(torch.complex64)).dtype == torch.complex64


@pytest.mark.parametrize("method", ["direct", "fft"])
@pytest.mark.parametrize(
    ("n", "k"), [((6,), (3,)), ((40,), (35,)), ((4, 3), (2, 2)), ((2, 3, 2), (2, 2, 1))]
)
def test_derivatives_of_both_orders(n, k, method):
    x, h = torch.randn(2, *n).double().requires_grad_(), torch.randn(k).double().requires_grad_()
    for f in (convolve, correlate):
        for mode in (*MODES, "circular"):

            def call(x, h, f=f, mode=mode):
                return f(x, h, mode=mode, method=method)

            assert torch.autograd.gradcheck(call, (x, h), fast_mode=True)
    assert torch.autograd.gradgradcheck(
        lambda x, h: convolve(x, h, method=method), (x, h), fast_mode=True
    )


@pytest.mark.parametrize("n", [(20000,), (300, 300)])
def test_derivatives_through_tiles_are_correlations(n):
    x, h = torch.randn(n).double().requires_grad_(), torch.randn([5] * len(n)).double()
    y = convolve(x, h.requires_grad_(), method="fft")
    g = torch.randn_like(y)
    dx, dh = torch.autograd.grad(y, (x, h), g)
    wanted = signal.correlate(g.numpy(), h.detach().numpy(), mode="valid")
    np.testing.assert_allclose(dx, wanted, atol=1e-10)
    wanted = signal.correlate(g.numpy(), x.detach().numpy(), mode="valid")
    np.testing.assert_allclose(dh, wanted, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_torchs_same_padding_begins_one_later_if_the_kernel_is_even():
    x, h = torch.randn(8).double(), torch.randn(4).double()
    layer = nn.functional.conv1d(x[None, None], h[None, None], padding="same")[0, 0]
    assert torch.allclose(layer, correlate(x, h)[2:10])
    assert torch.allclose(correlate(x, h, mode="same"), correlate(x, h)[1:9])


@given(st.integers(1, 30), st.integers(1, 30), st.sampled_from(MODES))
def test_sizes_of_results(n, k, mode):
    if mode == "valid" and k > n:
        return
    x, h = torch.arange(n), torch.arange(k)
    wanted = signal.convolve(x.numpy(), h.numpy(), mode=mode, method="direct")
    assert convolve(x, h, mode=mode).tolist() == wanted.tolist()


def test_rot180_turns_the_axes_asked_for():
    x = torch.arange(24).view(2, 3, 4)
    assert np.array_equal(rot180(x), np.flip(x.numpy()))
    assert np.array_equal(rot180(x[0]), np.rot90(x[0].numpy(), 2))
    assert torch.equal(rot180(x, axes=1), x.flip(2))
    assert torch.equal(rot180(x, axes=0), x)
    with pytest.raises(ValueError, match="axes must be <= 3, got 4"):
        rot180(x, axes=4)


ONE = torch.ones(3)
ERRORS = [
    ({"x": torch.ones(0)}, "x must not be empty"),
    ({"x": torch.ones(0, dtype=torch.long)}, "x must not be empty"),
    ({"x": [1.0]}, "x must be a tensor, got list"),
    ({"x": torch.tensor([1.0, float("nan")])}, "x must be finite, got nan at"),
    ({"x": torch.ones(3, dtype=torch.bool)}, "x must be floating point, got torch.bool"),
    ({"kernel": torch.tensor(1.0)}, "kernel must have 1 to 3 axes, and at most as many as x"),
    ({"kernel": torch.ones(1, 2)}, "kernel must have 1 to 3 axes, and at most as many as x"),
    ({"x": torch.ones(1, 1, 1, 1), "kernel": torch.ones(1, 1, 1, 1)}, "1 to 3 axes"),
    ({"kernel": torch.ones(4), "mode": "valid"}, r"as large as the signal for mode='valid', got"),
    ({"kernel": torch.ones(4), "mode": "circular"}, r"\(4,\) and \(3,\)"),
    ({"mode": "reflect"}, "mode must be one of 'full', 'same', 'valid', 'circular', got 'reflect'"),
    ({"method": "slow"}, "method must be one of 'auto', 'direct', 'fft', got 'slow'"),
    ({"x": torch.tensor([2**62]), "kernel": torch.tensor([4])}, "have a result within int64"),
    ({"kernel": torch.ones(2, device="meta")}, "kernel must be on cpu, like x, got one on meta"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("given", "message"), ERRORS)
def test_bad_input(given, message):
    for f in (convolve, correlate):
        with pytest.raises(ValueError, match=message):
            f(**{"x": ONE, "kernel": ONE, **given})


@pytest.mark.usefixtures("unchecked")
def test_leading_axes_are_the_batch_that_vmap_would_be():
    x, h = torch.arange(6.0).view(2, 3), torch.ones(2)
    with pytest.raises(ValueError, match=r"x must not be mapped by torch.vmap, since its values"):
        torch.vmap(convolve, in_dims=(0, None))(x, h)
    with pytest.raises(ValueError, match=r"kernel must not be mapped by torch.vmap"):
        torch.vmap(correlate, in_dims=(None, 0))(x, x)
    assert convolve(x, h).tolist() == [[0, 1, 3, 2], [3, 7, 9, 5]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("method", METHODS)
def test_cuda(method):
    for n, k in SIZES:
        x, h = torch.randn(n).double(), torch.randn(k).double()
        found = convolve(x.cuda(), h.cuda(), method=method)
        assert torch.allclose(found.cpu(), convolve(x, h, method=method), atol=1e-10)
    x, h = torch.randint(-(2**40), 2**40, (9, 7)), torch.randint(-(2**17), 2**17, (3, 4))
    assert torch.equal(convolve(x.cuda(), h.cuda()).cpu(), convolve(x, h))
