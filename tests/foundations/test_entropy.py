"""Entropy and cross-entropy against SciPy, loops, exact bits and autograd."""

import math

import pytest
import scipy.stats
import torch

from vademecum.foundations._finite_laws import laws, nats
from vademecum.foundations.entropies import cross_entropy, entropy
from vademecum.foundations.huffman import huffman_code

DTYPES = [torch.float32, torch.float64]


def random_laws(*shape: int, zeros: float = 0.3, dtype: torch.dtype = torch.float64):
    """Laws along the last axis, with zeros at random, but never all."""
    weights = torch.rand(shape, dtype=dtype) * (torch.rand(shape) > zeros)
    weights[..., 0] += 0.1
    return weights / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("base", [2, math.e, 10.0])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_against_scipy(dtype, base, dim):
    p = random_laws(3, 4, 5, dtype=dtype).movedim(-1, dim)
    expected = torch.as_tensor(scipy.stats.entropy(p.double().numpy(), base=base, axis=dim))
    measured = entropy(p, base=base, dim=dim)
    assert measured.dtype == dtype
    torch.testing.assert_close(
        measured.double(), expected, rtol=0, atol=30 * torch.finfo(dtype).eps
    )


def test_exact_bits():
    p = torch.tensor([[0.5, 0.25, 0.125, 0.125], [0.25, 0.25, 0.25, 0.25], [0, 0, 1.0, 0]])
    assert entropy(p, base=2).tolist() == pytest.approx([1.75, 2.0, 0.0], abs=1e-6)
    assert str(entropy(p[2])) == "tensor(0.)"
    assert cross_entropy(p[0], p[1], base=2).item() == pytest.approx(2.0)
    assert cross_entropy(p[2], p[0], base=2).item() == pytest.approx(3.0)


def loop(p: torch.Tensor, q: torch.Tensor) -> float:
    total = 0.0
    for a, b in zip(p.tolist(), q.tolist(), strict=True):
        if a > 0:
            total += -a * math.log(b) if b > 0 else math.inf
    return total


def test_cross_entropy_against_a_loop_with_broadcasting():
    p, q = random_laws(7, 1, 4), random_laws(5, 4)
    expected = torch.tensor([[loop(p[i, 0], q[j]) for j in range(5)] for i in range(7)]).double()
    assert expected.isinf().any()
    assert not expected.isinf().all()
    torch.testing.assert_close(cross_entropy(p, q), expected)
    moved = cross_entropy(p.movedim(-1, 0), q[None].movedim(-1, 0), dim=0)
    torch.testing.assert_close(moved, expected)


def test_gradients_where_there_are_zeros():
    p = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([0.25, 0.5, 0.25, 0.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(entropy(p), p)
    assert slope.tolist() == pytest.approx([math.log(2) - 1] * 2 + [0.0] * 2)
    by_p, by_q = torch.autograd.grad(cross_entropy(p, q, base=2), (p, q))
    assert by_p.tolist() == pytest.approx([2.0, 1.0, 2.0, 0.0])
    assert by_q.tolist() == pytest.approx([-2.0 / math.log(2), -1.0 / math.log(2), 0.0, 0.0])


def test_gradients_through_softmax_survive_underflow():
    z = torch.tensor([0.0, 1.0, -2000.0], dtype=torch.float64, requires_grad=True)
    p = z.softmax(-1)
    assert p[2] == 0
    (slope,) = torch.autograd.grad(entropy(p), z)
    p = p.detach()
    expected = -p * (torch.special.xlogy(torch.sign(p), p) + entropy(p))  # -p (ln p + H)
    torch.testing.assert_close(slope, expected)
    target = torch.tensor([0.25, 0.75, 0.0], dtype=torch.float64)
    (slope,) = torch.autograd.grad(cross_entropy(target, z.softmax(-1)), z)
    torch.testing.assert_close(slope, p - target)


def test_second_derivatives():
    z = torch.randn(4, dtype=torch.float64, requires_grad=True)
    target = random_laws(4)
    assert torch.autograd.gradgradcheck(lambda z: entropy(z.softmax(-1)), z)
    assert torch.autograd.gradgradcheck(lambda z: cross_entropy(target, z.softmax(-1)), z)


def test_huffman_code_is_optimal_among_all_lengths():
    """Kraft: every set of lengths with sum 2^-l <= 1 has a prefix code, so search them all."""
    for n in (2, 3, 4, 5):
        p = random_laws(n, zeros=0.2)
        grid = torch.cartesian_prod(*[torch.arange(1, n)] * n) if n > 2 else torch.ones(1, 2)
        kraft = grid[(0.5 ** grid.double()).sum(1) <= 1].double()
        code = huffman_code(p)
        assert float(p @ code.lengths.double()) == pytest.approx(float((kraft @ p).min()))
        assert sum(0.5 ** len(w) for w in code.words) == 1.0
        for word in code.words:
            assert sum(other.startswith(word) for other in code.words) == 1
        mean = float(p @ code.lengths.double())
        assert entropy(p, base=2) - 1e-12 <= mean < entropy(p, base=2) + 1


def test_huffman_code_of_ties_and_of_one_symbol():
    assert huffman_code(torch.tensor([1.0])).words == ("",)
    assert huffman_code(torch.tensor([0.0, 1.0])).words == ("0", "1")
    tied = torch.tensor([0.4, 0.2, 0.2, 0.1, 0.1])  # also 1, 2, 3, 4, 4 has the mean length 2.2
    assert sorted(huffman_code(tied).lengths.tolist()) == [2, 2, 2, 3, 3]
    assert huffman_code(tied).lengths.dtype == torch.int64


P = torch.tensor([0.5, 0.5])
ERRORS = [
    (entropy, (torch.tensor([0.5, 0.6]),), {}, "p must sum to one along axis -1, got a sum of 1.1"),
    (entropy, (torch.tensor([1.5, -0.5]),), {}, r"entries of p must be >= 0, got -0.5 at \(1,\)"),
    (entropy, (torch.tensor([math.nan, 1.0]),), {}, "p must be finite, got nan"),
    (entropy, (torch.tensor([1, 0]),), {}, "p must be floating point, got torch.int64"),
    (entropy, (torch.zeros(0),), {}, "p must not be empty"),
    (entropy, (P,), {"dim": 1}, "p must have an axis 1"),
    (entropy, (P,), {"base": 1}, "base must be > 1, got 1"),
    (entropy, (P,), {"base": math.inf}, "base must be finite, got inf"),
    (entropy, (P,), {"base": -2.0}, "base must be > 1, got -2.0"),
    (entropy, ([0.5, 0.5],), {}, "p must be a tensor, got list"),
    (
        cross_entropy,
        (P, P.double()),
        {},
        "q must be torch.float32 on cpu like p, got torch.float64",
    ),
    (cross_entropy, (P, torch.ones(1)), {}, r"q must have 2 outcomes like p, got shape \(1,\)"),
    (cross_entropy, (P.expand(3, 2), P.expand(2, 2)), {}, r"batch shapes must broadcast, got p: "),
    (cross_entropy, (P.expand(2, 2), P), {"dim": 0}, "p must sum|dim must be negative"),
    (laws, (0,), {"p": P, "q": P[:, None]}, "dim must be negative where laws differ"),
    (cross_entropy, (P, P / 2), {}, "q must sum to one"),
    (huffman_code, (P.expand(2, 2),), {}, "p must have 1 axes"),
    (huffman_code, (P / 3,), {}, "p must sum to one"),
    (nats, (math.nan,), {}, "base must be"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "arguments", "knobs", "message"), ERRORS)
def test_errors(function, arguments, knobs, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments, **knobs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda(dtype):
    p, q = random_laws(9, 5, dtype=dtype), random_laws(9, 5, dtype=dtype, zeros=0.0)
    torch.testing.assert_close(entropy(p.cuda()).cpu(), entropy(p))
    torch.testing.assert_close(cross_entropy(p.cuda(), q.cuda()).cpu(), cross_entropy(p, q))
    assert huffman_code(p[0].cuda()).lengths.cpu().tolist() == huffman_code(p[0]).lengths.tolist()
