"""The inverse divergence against hundreds of digits, its derivatives, and what is refused."""

import math
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

from vademecum.generalization import kl_inverse, pac_bayes_bound
from vademecum.generalization._bernoulli_divergence import ERROR, bernoulli_divergence

EPS = 2.0**-52
SIDES: Any = ("upper", "lower")
BOTH: Any = "both"
BEST: Any = "best"
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def kl(q: float, p: float):
    """The divergence of two coins, in 400 digits: 50, and 1 - q for q = 1e-300."""
    with mpmath.workdps(400):
        q, p = mpmath.mpf(q), mpmath.mpf(p)
        first = q * mpmath.log(q / p) if q > 0 and p > 0 else (mpmath.inf if q > 0 else 0)
        rest = 1 - q
        second = rest * mpmath.log(rest / (1 - p)) if rest > 0 and p < 1 else (
            mpmath.inf if rest > 0 else 0)  # fmt: skip
        return first + second


def points(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Frequencies in the middle and at both ends, divergences over 25 decades."""
    g = torch.Generator().manual_seed(seed)
    u = torch.rand(4, n, generator=g).double()
    kinds = u[0], 10 ** (-300 * u[0]), 1 - 10 ** (-16 * u[0]), 10 ** (-12 * u[0])
    which = torch.randint(4, (n,), generator=g)
    q = torch.stack(kinds).gather(0, which[None])[0]
    return q, 10 ** (-21 + 25 * u[1])


@pytest.mark.parametrize("side", SIDES)
def test_kl_inverse_is_never_inside_and_never_far_outside(side):
    q, c = points(2500)
    p = kl_inverse(q, c, side=side)
    for a, b, found in zip(q.tolist(), c.tolist(), p.tolist(), strict=True):
        if 0 < found < 1:
            assert kl(a, found) >= b, (a, b, found)
        inner = math.nextafter(found, a) if found else 2.3e-308  # subnormal numbers become 0
        if inner not in (0.0, 1.0, a):
            assert kl(a, inner) <= b * (1 + 64 * EPS), (a, b, found)


@pytest.mark.parametrize("side", SIDES)
def test_single_precision_is_rounded_outwards_too(side):
    q, c = (v.float() for v in points(800, seed=1))
    p = kl_inverse(q, c, side=side)
    assert p.dtype == torch.float32
    wide = kl_inverse(q.double(), c.double(), side=side)
    assert (p.double() >= wide).all() if side == "upper" else (p.double() <= wide).all()
    away = torch.full_like(p, 0.0 if side == "upper" else 1.0)
    back = torch.nextafter(p, away).double()  # the number before is inside
    assert ((back < wide) if side == "upper" else (back > wide))[(p > 0) & (p < 1)].all()


def test_divergence_is_accurate_to_the_stated_error():
    q, _ = points(600, seed=2)
    g = torch.Generator().manual_seed(3)
    near = q * (1 + 10 ** (-15 * torch.rand(600, generator=g).double()))
    p = torch.where(torch.rand(600, generator=g) < 0.5, near, torch.rand(600, generator=g).double())
    keep = (q > 0) & (q < 1) & (p > 0) & (p < 1) & (p != q)
    found = bernoulli_divergence(q[keep], p[keep])
    for a, b, f in zip(q[keep].tolist(), p[keep].tolist(), found.tolist(), strict=True):
        exact = kl(a, b)
        assert abs(f - exact) <= ERROR * exact + 1e-320, (a, b)


EXACT = [
    (0.0, 0.0, 0.0, 0.0), (0.0, math.inf, 1.0, 0.0), (1.0, 0.0, 1.0, 1.0),
    (1.0, math.inf, 1.0, 0.0), (0.3, 0.0, 0.3, 0.3),
    (0.3, math.inf, 1.0, 0.0), (0.0, 2.0, -math.expm1(-2), 0.0),
    (1.0, 2.0, 1.0, math.exp(-2)), (0.5, 1e6, 1.0, 0.0), (1e-3, 800.0, 1.0, 0.0),
]  # fmt: skip


@pytest.mark.parametrize(("q", "c", "high", "low"), EXACT)
def test_ends(q, c, high, low):
    upper, lower = (kl_inverse(q, c, side=side) for side in SIDES)
    assert upper == pytest.approx(high, rel=1e-14, abs=0)
    assert lower == pytest.approx(low, rel=1e-14, abs=0)
    assert upper >= high
    assert lower <= low


def test_shapes_and_kinds():
    q, c = torch.rand(3, 1), torch.rand(4).double()
    found = kl_inverse(q, c, side="upper")
    assert found.shape == (3, 4)
    assert found.dtype == torch.float64
    one = kl_inverse(q, 0.1, side="upper")
    assert one.dtype == torch.float32
    assert isinstance(kl_inverse(0.1, 0.1, side="lower"), float)
    assert kl_inverse(torch.empty(0), 0.1, side="upper").shape == (0,)
    large = torch.rand(40_000).double()  # more than one portion
    parts = torch.cat([kl_inverse(v, 0.1, side="upper") for v in large.split(7_000)])
    assert torch.equal(kl_inverse(large, 0.1, side="upper"), parts)


@pytest.mark.parametrize("side", SIDES)
def test_derivatives(side):
    q = torch.tensor([0.02, 0.3, 0.5, 0.97]).double().requires_grad_()
    c = torch.tensor([0.3, 0.03, 1.5, 0.2]).double().requires_grad_()

    def f(q, c):
        return kl_inverse(q, c, side=side)

    assert torch.autograd.gradcheck(f, (q, c), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, (q, c))
    q, c = q.detach(), c.detach()
    one = torch.func.vmap(torch.func.grad(f, argnums=(0, 1)))(q, c)
    both = torch.func.jacrev(f, argnums=(0, 1))(q, c)
    for a, b in zip(one, both, strict=True):
        torch.testing.assert_close(a, b.diagonal())
    shared = torch.func.vmap(f, in_dims=(0, None))(q, c[0])
    torch.testing.assert_close(shared, f(q, c[:1]))


@pytest.mark.parametrize("side", SIDES)
def test_derivatives_at_the_ends_are_finite(side):
    q = torch.tensor([0.0, 1.0, 0.4, 0.4, 0.0]).double().requires_grad_()
    c = torch.tensor([0.5, 0.5, 0.0, torch.inf, 0.0]).double().requires_grad_()
    kl_inverse(q, c, side=side).sum().backward()
    assert q.grad is not None
    assert c.grad is not None
    assert q.grad.isfinite().all()
    assert c.grad.isfinite().all()
    want = math.exp(-0.5)  # of 1 - exp(-c) at q = 0, of exp(-c) at q = 1
    at, sign = (0, 1) if side == "upper" else (1, -1)
    assert c.grad[at].item() == pytest.approx(sign * want)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: kl_inverse(-0.1, 1.0, side="upper"), r"q must be in \[0, 1\], got -0.1"),
        (lambda: kl_inverse(1.5, 1.0, side="upper"), r"q must be in \[0, 1\], got 1.5"),
        (lambda: kl_inverse(0.5, -1.0, side="upper"), "c must be >= 0, got -1"),
        (lambda: kl_inverse(0.5, math.nan, side="upper"), "c must be a number, got nan"),
        (lambda: kl_inverse(torch.tensor(math.nan), 1.0, side="upper"), "q must be in .*got nan"),
        (lambda: kl_inverse(0.5, 1.0, side=BOTH), "side must be one of 'upper', 'lower'"),
        (
            lambda: kl_inverse(torch.tensor(1), 1.0, side="upper"),
            "float32 or float64, got torch.int",
        ),
        (lambda: kl_inverse(torch.rand(2), torch.rand(3), side="upper"), "shapes must broadcast"),
        (lambda: pac_bayes_bound(1.5, 1.0, 9, delta=0.1), r"risk must be in \[0, 1\], got 1.5"),
        (lambda: pac_bayes_bound(0.5, -1.0, 9, delta=0.1), "kl must be >= 0, got -1"),
        (lambda: pac_bayes_bound(0.5, 1.0, 0, delta=0.1), "n must be >= 1, got 0"),
        (lambda: pac_bayes_bound(0.5, 1.0, 9, delta=0.0), "delta must be > 0, got 0"),
        (lambda: pac_bayes_bound(0.5, 1.0, 9, delta=1.0), "delta must be < 1, got 1"),
        (lambda: pac_bayes_bound(0.5, 1.0, 9, delta=0.1, kind=BEST), "kind must be one of"),
        (
            lambda: pac_bayes_bound(0.5, 1.0, 9, delta=0.1, C=2.0),
            "C must be None for the kind 'kl'",
        ),
        (lambda: pac_bayes_bound(0.5, 1.0, 9, delta=0.1, kind="catoni", C=0.0), "C must be > 0"),
    ],
)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()


@CUDA
@pytest.mark.gpu
def test_the_same_on_a_gpu():
    q, c = points(2000)
    for side in SIDES:
        here, there = kl_inverse(q, c, side=side), kl_inverse(q.cuda(), c.cuda(), side=side)
        torch.testing.assert_close(there.cpu(), here, rtol=1e-9, atol=0)
