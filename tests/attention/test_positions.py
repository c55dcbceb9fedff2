"""Encodings of positions against their scalar formula, shifts, and scores of offsets only."""

import math
from unittest import mock

import pytest
import torch

from vademecum.attention import encoding_rotation, rotary, sinusoidal_encoding


@pytest.mark.parametrize(("T", "n", "base"), [(7, 2, 10000.0), (30, 6, 10000.0), (5, 12, 50.0)])
def test_sinusoidal_encoding_is_the_scalar_formula(T, n, base):
    p = sinusoidal_encoding(T, n, base=base, dtype=torch.float64)
    assert p.shape == (T, n)
    for t in range(T):
        for k in range(n):
            angle = t / base ** (2 * (k // 2) / n)
            stated = math.cos(angle) if k % 2 else math.sin(angle)
            assert p[t, k].item() == pytest.approx(stated, abs=1e-14)


def test_sinusoidal_encoding_is_exact_far_out_in_single_precision():
    """Angles of a million radians would lose six digits in float32."""
    p = sinusoidal_encoding(10**6 + 1, 2)[-1]
    assert p.dtype == torch.float32
    assert p.tolist() == pytest.approx([math.sin(10**6), math.cos(10**6)], abs=1e-7)


@pytest.mark.parametrize("delta", [1, -4, 0.5, 17])
@pytest.mark.parametrize("base", [10000.0, 7.0])
def test_encoding_rotation_shifts_every_position(delta, base):
    n, options = 10, {"base": base, "dtype": torch.float64}
    R = encoding_rotation(delta, n, **options)
    fine = sinusoidal_encoding(80, n, **options)
    if delta == int(delta):
        first = max(0, -int(delta))
        shifted = fine[first : 80 - max(0, int(delta))] @ R.T
        assert shifted.sub(fine[first + int(delta) :][: len(shifted)]).abs().max() < 1e-12
    assert (R @ R.T - torch.eye(n, dtype=torch.float64)).abs().max() < 1e-14
    twice = encoding_rotation(2 * delta, n, **options)
    assert (R @ R - twice).abs().max() < 1e-13


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_rotary_is_the_scalar_formula(pairing, dtype):
    x, at, d, base = torch.randn(2, 3, 5, 6).to(dtype), torch.tensor([0, 3, 4, 9, 100]), 6, 300.0
    y = rotary(x, at, base=base, pairing=pairing)
    assert y.dtype == dtype
    stated = torch.empty(x.shape, dtype=torch.float64)
    for j, t in enumerate(at.tolist()):
        for i in range(d // 2):
            a, b = (2 * i, 2 * i + 1) if pairing == "adjacent" else (i, i + d // 2)
            turn = t * base ** (-2 * i / d)
            u, v = x[..., j, a].double(), x[..., j, b].double()
            stated[..., j, a] = u * math.cos(turn) - v * math.sin(turn)
            stated[..., j, b] = u * math.sin(turn) + v * math.cos(turn)
    gap, eps = (y.double() - stated).abs(), torch.finfo(dtype).eps
    assert gap.max() < 8 * eps * (1 + x.abs().max())
    if dtype.itemsize == 2:  # computed in single precision and rounded once
        assert (gap <= 0.51 * eps * stated.abs() + 1e-6).all()


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
def test_rotary_scores_depend_on_offsets_only(pairing):
    q, k = torch.randn(2, 4, 9, 8, dtype=torch.float64).unbind()
    at = torch.arange(9)

    def scores(shift):
        turned = [rotary(x, at + shift, pairing=pairing) for x in (q, k)]
        return turned[0] @ turned[1].mT

    assert (scores(0) - scores(5000)).abs().max() < 1e-11
    assert (scores(0) - q @ k.mT).abs().max() > 0.1


def test_rotary_takes_positions_of_each_row():
    x = torch.randn(3, 2, 4, 6)
    at = torch.randint(50, (3, 4))
    y = rotary(x, at[:, None])
    for row, each, whole in zip(x, at, y, strict=True):
        assert torch.equal(rotary(row, each), whole)
    assert torch.equal(rotary(x, torch.arange(4)), rotary(x, torch.arange(4.0)))


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
def test_rotary_takes_fractions_and_large_positions(pairing):
    """Such as single precision cannot hold, also where the features are of single precision."""
    at = torch.tensor([0.1, 2**25 + 1, -(2**30) - 0.5], dtype=torch.float64)
    stated = torch.tensor([[math.cos(t), math.sin(t)] for t in at.tolist()], dtype=torch.float64)
    for dtype, tol in ((torch.float32, 1e-7), (torch.float64, 1e-15)):
        x = torch.tensor([1, 0], dtype=dtype).expand(3, 2)
        assert (rotary(x, at, pairing=pairing) - stated).abs().max() < tol


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
def test_rotary_takes_views(pairing):
    """Of any strides and offsets, also such that cannot be seen as complex numbers."""
    x, at = torch.randn(2, 5, 3, 9), torch.arange(5)
    for view in (x.transpose(1, 2)[..., :8], x.transpose(1, 2)[..., 1:], x[:1, :, 0, 1:]):
        y = rotary(view, at[: view.shape[-2]], pairing=pairing)
        assert torch.equal(y, rotary(view.contiguous(), at[: view.shape[-2]], pairing=pairing))


def test_rotary_of_a_compiler_is_the_same():
    x, at = torch.randn(2, 5, 6), torch.arange(5)
    with mock.patch("torch.compiler.is_compiling", return_value=True):
        assert (rotary(x, at) - rotary(x.double(), at)).abs().max() < 1e-6
    assert (rotary(x, at) - rotary(x.double(), at)).abs().max() < 1e-6


def test_rotary_has_the_gradient_of_a_rotation():
    x = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    at = torch.tensor([2.5, -1, 0, 7])
    assert torch.autograd.gradcheck(lambda x: rotary(x, at), (x,))
    assert torch.autograd.gradcheck(lambda x: rotary(x, at, pairing="halves"), (x,))


X, AT = torch.zeros(2, 4, 6), torch.arange(4)
BAD = {
    "T": (lambda: sinusoidal_encoding(0, 4), "T must be >= 1, got 0"),
    "odd n": (lambda: sinusoidal_encoding(3, 5), "n must be even, a sine and a cosine for each"),
    "base": (lambda: sinusoidal_encoding(3, 4, base=0.0), "base must be > 0, got 0.0"),
    "dtype": (lambda: sinusoidal_encoding(3, 4, dtype=torch.int64), "dtype must be a floating-point"
              " one, got torch.int64"),
    "dtype of a shift": (lambda: encoding_rotation(1, 4, dtype=torch.cfloat), "got torch.complex"),
    "nan": (lambda: encoding_rotation(math.nan, 4), "delta must be a number, got nan"),
    "odd n of a shift": (lambda: encoding_rotation(1, 3), "n must be even"),
    "odd features": (lambda: rotary(X[..., :5], AT), "the last axis of x must be even"),
    "integers": (lambda: rotary(X.long(), AT), "x must be a floating-point tensor"),
    "a vector": (lambda: rotary(torch.zeros(4), AT), "(..., T, d), got torch.float32 (4,)"),
    "bool": (lambda: rotary(X, AT > 0), "positions must be a tensor of real numbers, got torch"),
    "list": (lambda: rotary(X, [0, 1]), "positions must be a tensor of real numbers, got list"),  # pyright: ignore
    "few": (lambda: rotary(X, AT[:3]), "positions must be (4,), or broadcast to the axes (2, 4)"),
    "one": (lambda: rotary(X, AT[:1]), "positions must be (4,), or broadcast to the axes (2, 4)"),
    "rows": (lambda: rotary(X, AT.expand(3, 4)), "got (3, 4)"),
    "axes": (lambda: rotary(X, AT.expand(1, 2, 4)), "got (1, 2, 4)"),
    "device": (lambda: rotary(X, AT.to("meta")), "positions must be on x's device cpu, got meta"),
    "pairing": (lambda: rotary(X, AT, pairing="thirds"), "pairing must be one of"),  # pyright: ignore
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case, unchecked):
    call, message = BAD[case]
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    assert message in str(error.value)
