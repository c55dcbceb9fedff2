"""Patches against loops over pixels, and back again."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vademecum.attention import patchify, unpatchify

SIDES = st.integers(1, 4)


@settings(max_examples=40, deadline=None)
@given(p=SIDES, q=SIDES, rows=SIDES, columns=SIDES, c=SIDES, n=st.integers(0, 2))
def test_patchify_and_unpatchify_are_inverse(p, q, rows, columns, c, n):
    x = torch.randn(*[2, 3][:n], c, rows * p, columns * q)
    tokens = patchify(x, (p, q))
    assert tokens.shape == (*x.shape[:-3], rows * columns, c * p * q)
    assert torch.equal(unpatchify(tokens, (p, q), (rows * p, columns * q)), x)
    assert torch.equal(patchify(unpatchify(tokens, (p, q), x.shape[-2:]), (p, q)), tokens)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bfloat16, torch.bool])
def test_patchify_puts_every_pixel_where_it_belongs(dtype):
    c, p, q, rows, columns = 3, 2, 4, 3, 2
    x = torch.randint(2, (2, c, rows * p, columns * q)).to(dtype)
    x = torch.arange(x.numel()).view(x.shape).to(dtype) if dtype == torch.int64 else x
    tokens = patchify(x, (p, q))
    assert tokens.dtype == dtype
    for i in range(rows):
        for j in range(columns):
            for k in range(c):
                for a in range(p):
                    for b in range(q):
                        place = (i * columns + j, (k * p + a) * q + b)
                        assert tokens[0][place] == x[0, k, i * p + a, j * q + b]


def test_patchify_has_gradients_and_takes_views():
    x = torch.randn(2, 3, 4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: patchify(x, (2, 3)), (x,))
    last = x.detach().to(memory_format=torch.channels_last)
    assert torch.equal(patchify(last, 2), patchify(x.detach(), 2))
    assert torch.equal(patchify(x.detach().mT, 2), patchify(x.detach().mT.contiguous(), 2))


X, TOKENS = torch.zeros(2, 3, 32, 48), torch.zeros(2, 6, 12)
BAD = {
    "height": (lambda: patchify(X[:, :, :30], 16), "x must have a height that is a multiple of 16,"
               " got 30: the nearest are 16 and 32"),
    "width": (lambda: patchify(X, (16, 20)), "a width that is a multiple of 20, got 48: the nearest"
              " are 40 and 60"),
    "small": (lambda: patchify(X, 64), "multiple of 64, got 32: the nearest is 64"),
    "empty": (lambda: patchify(X[..., :0], 16), "a width that is a multiple of 16, got 0"),
    "no channels": (lambda: patchify(X[:, :0], 16), "x must be images (..., channels, height, wid"),
    "two axes": (lambda: patchify(X[0, 0], 16), "x must be images"),
    "list": (lambda: patchify([[1]], 1), "height, width), got list"),  # pyright: ignore
    "patch": (lambda: patchify(X, 0), "patch must be >= 1, got 0"),
    "three": (lambda: patchify(X, (2, 2, 2)), "patch must be one number or two, got (2, 2, 2)"),
    "fraction": (lambda: patchify(X, 1.5), "patch must be an integer, got 1.5"),  # pyright: ignore
    "word": (lambda: patchify(X, "16"), "patch must be an integer, got '16'"),  # pyright: ignore
    "count": (lambda: unpatchify(TOKENS, 2, (4, 4)), "x must be 4 patches (..., patches, cpq)"),
    "size": (lambda: unpatchify(TOKENS, 2, (4, 5)), "size must have a width that is a multiple of"),
    "numbers": (lambda: unpatchify(TOKENS, 5, (10, 15)), "x must be patches of 5 x 5 numbers for"),
    "vector": (lambda: unpatchify(TOKENS[0, 0], 2, (4, 6)), "x must be 6 patches"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case, unchecked):
    call, message = BAD[case]
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    assert message in str(error.value)
