"""Divergences against SciPy, high precision, set functions and autograd."""

import math
from itertools import chain, combinations

import mpmath
import pytest
import scipy.spatial.distance
import scipy.special
import scipy.stats
import torch
from torch.distributions import Categorical
from torch.distributions import kl_divergence as torch_kl

from tests.foundations.test_entropy import random_laws
from vademecum.foundations._relative_entropy import relative_entropy
from vademecum.foundations.divergences import (
    js_distance,
    js_divergence,
    kl_divergence,
    total_variation,
)
from vademecum.foundations.entropies import entropy

FORWARD_MODE = pytest.mark.filterwarnings(  # torch's own rules of it are scripted
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)
DTYPES = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("base", [2.0, math.e])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_kl_against_scipy(dtype, base, dim):
    p, q = (random_laws(3, 4, 5, dtype=dtype).movedim(-1, dim) for _ in "pq")
    a, b = p.double().numpy(), q.double().numpy()
    expected = torch.as_tensor(scipy.special.rel_entr(a, b).sum(dim) / math.log(base))
    assert expected.isinf().any()
    measured = kl_divergence(p, q, base=base, dim=dim)
    assert measured.dtype == dtype
    torch.testing.assert_close(
        measured.double(), expected, rtol=0, atol=99 * torch.finfo(dtype).eps
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_terms_against_scipy_over_all_magnitudes(dtype):
    info = torch.finfo(dtype)
    scale = torch.logspace(math.log10(info.tiny), 0, 40, dtype=dtype)
    values = torch.cat([torch.zeros(1, dtype=dtype), scale, torch.tensor([info.smallest_normal])])
    p, q = torch.meshgrid(values, values.clone(), indexing="ij")
    expected = torch.as_tensor(scipy.special.kl_div(p.double().numpy(), q.double().numpy()))
    measured = relative_entropy(p, q).double()
    torch.testing.assert_close(measured, expected, rtol=20 * info.eps, atol=info.tiny)


def test_subnormal_entries_stay_finite():
    p = torch.tensor([2.0**-149, 1.0])
    q = torch.tensor([0.5, 0.5])
    assert kl_divergence(p, q).item() == pytest.approx(math.log(2))
    assert kl_divergence(q, p).item() == pytest.approx(73.5 * math.log(2))
    assert js_divergence(p, torch.tensor([0.0, 1.0])).item() == pytest.approx(0.0, abs=1e-44)


@pytest.mark.parametrize("exponent", [2, 5, 8, 12])
def test_nearly_equal_laws_keep_their_accuracy(exponent):
    h = 10.0**-exponent
    p = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    q = p + h * torch.tensor([0.5, 0.25, -0.75], dtype=torch.float64)
    with mpmath.workdps(60):
        a, b = ([mpmath.mpf(v) for v in t.tolist()] for t in (p, q))
        kl = mpmath.fsum(x * mpmath.log(x / y) - x + y for x, y in zip(a, b, strict=True))
        js = mpmath.fsum(
            z * mpmath.log(2 * z / (x + y)) for x, y in zip(a, b, strict=True) for z in (x, y)
        )
    # Rounding moves q by an ulp or two, relative to h.
    assert float(kl_divergence(p, q)) == pytest.approx(float(kl), rel=1e-15 / h)
    assert float(js_divergence(p, q)) == pytest.approx(float(js) / 2, rel=1e-14 / h)
    assert float(kl_divergence(p, p)) == 0.0
    assert float(js_divergence(p, p)) == 0.0


def test_kl_against_torch():
    p, q = random_laws(50, 6), random_laws(50, 6, zeros=0.0)
    torch.testing.assert_close(kl_divergence(p, q), torch_kl(Categorical(p), Categorical(q)))


def test_js_against_scipy_and_entropies():
    p, q, r = (random_laws(20, 6) for _ in "pqr")
    expected = [
        scipy.spatial.distance.jensenshannon(a, b, base=2) for a, b in zip(p, q, strict=True)
    ]
    torch.testing.assert_close(js_distance(p, q, base=2), torch.tensor(expected).double())
    torch.testing.assert_close(js_distance(p, q) ** 2, js_divergence(p, q))
    mixture = entropy((p + q + r) / 3) - (entropy(p) + entropy(q) + entropy(r)) / 3
    torch.testing.assert_close(js_divergence(p, q, r), mixture)
    crowd = torch.eye(7, dtype=torch.float64)
    assert float(js_divergence(*crowd, base=7)) == pytest.approx(1.0)
    torch.testing.assert_close(js_divergence(p.T, q.T, dim=0), js_divergence(p, q))


def test_total_variation_is_the_largest_difference_over_events():
    p, q = random_laws(5), random_laws(5)
    events = chain.from_iterable(combinations(range(5), k) for k in range(6))
    largest = max(float((p - q)[list(event)].sum()) for event in events)
    assert float(total_variation(p, q)) == pytest.approx(largest)
    assert float(total_variation(p.expand(2, 5), q)[1]) == pytest.approx(largest)


def test_gradients_along_the_simplex():
    """The derivative by logits of both arguments, where a plain formula is safe."""
    a, b = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)

    def plain(a, b):
        return (a.softmax(-1) * (a.log_softmax(-1) - b.log_softmax(-1))).sum()

    for f, g in [
        (kl_divergence, plain),
        (lambda p, q: kl_divergence(q, p), lambda a, b: plain(b, a)),
    ]:
        measured = torch.autograd.grad(f(a.softmax(-1), b.softmax(-1)), (a, b))
        torch.testing.assert_close(measured, torch.autograd.grad(g(a, b), (a, b)))


@FORWARD_MODE
@pytest.mark.parametrize("divergence", [kl_divergence, js_divergence, js_distance])
def test_derivatives_of_all_orders_and_modes(divergence):
    def f(a, b):
        return divergence(a.softmax(-1), b.softmax(-1))

    logits = tuple(torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True))
    assert torch.autograd.gradcheck(f, logits, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, logits)
    assert torch.autograd.gradgradcheck(lambda a, b: f(a[:1], b), logits)


@FORWARD_MODE
def test_function_transforms():
    p, q = torch.randn(2, 5, 4, dtype=torch.float64).softmax(-1)

    def f(z):
        return relative_entropy(p[0], z.softmax(-1)).sum()

    torch.testing.assert_close(
        torch.vmap(relative_entropy, in_dims=(0, None))(p, q[0]), relative_entropy(p, q[0])
    )
    z = torch.randn(4, dtype=torch.float64)
    s = z.softmax(-1)
    torch.testing.assert_close(torch.func.grad(f)(z), s - p[0])
    torch.testing.assert_close(torch.func.hessian(f)(z), s.diag() - torch.outer(s, s))


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_give_no_nan_in_gradients(dtype):
    p = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=dtype, requires_grad=True)
    q = torch.tensor([0.25, 0.5, 0.25, 0.0], dtype=dtype, requires_grad=True)
    by_p, by_q = torch.autograd.grad(kl_divergence(p, q), (p, q))
    assert by_p.tolist() == pytest.approx([math.log(2), 0.0, math.log(4), 0.0])
    assert by_q.tolist() == pytest.approx([-1.0, 0.0, 1.0, 1.0])
    assert all(g.isfinite().all() for g in torch.autograd.grad(js_distance(p, q), (p, q)))
    assert torch.autograd.grad(js_distance(p, p), p)[0].tolist() == [0.0] * 4
    z = torch.tensor([0.0, -1.0, -2000.0], dtype=dtype, requires_grad=True)
    tiny = torch.tensor([1.0, 1.0 - 60, 0.0], dtype=dtype, requires_grad=True)
    for one, other in ((z, tiny), (tiny, z)):
        value = js_divergence(one.softmax(-1), other.softmax(-1))
        assert all(g.isfinite().all() for g in torch.autograd.grad(value, (z, tiny)))


P = torch.tensor([0.5, 0.5])
BAD = [
    (torch.tensor([0.5, 0.25]), "{} must sum to one along axis -1, got a sum of 0.75"),
    (torch.tensor([1.25, -0.25]), "entries of {} must be >= 0"),
    (torch.tensor([math.inf, 0.0]), "{} must be finite, got inf"),
    (torch.tensor([1, 0]), "{} must be floating point"),
    (torch.tensor([0.5 + 0j, 0.5]), "{} must be real"),
    (torch.zeros(0, 2), "{} must not be empty"),
    (torch.tensor([[1.0], [1.0]]), "{} must have 2 outcomes like p"),
    (P.double(), "{} must be torch.float32 on cpu like p"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("function", [kl_divergence, js_divergence, js_distance, total_variation])
@pytest.mark.parametrize(("bad", "message"), BAD)
def test_errors(function, bad, message):
    with pytest.raises(ValueError, match=message.format("q")):
        function(P, bad)


@pytest.mark.usefixtures("unchecked")
def test_errors_of_knobs_and_of_more_laws():
    with pytest.raises(ValueError, match=r"others\[1\] must sum to one"):
        js_divergence(P, P, P, P / 2)
    with pytest.raises(ValueError, match="base must be > 1, got 0"):
        kl_divergence(P, P, base=0)
    with pytest.raises(ValueError, match="p must have an axis 3"):
        total_variation(P, P, dim=3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [kl_divergence, js_divergence, js_distance, total_variation])
def test_cuda(function, dtype):
    p, q = (random_laws(9, 5, dtype=dtype) for _ in "pq")
    torch.testing.assert_close(function(p.cuda(), q.cuda()).cpu(), function(p, q))
