"""The definition of attention against loops, torch and automatic differentiation."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from vademecum.attention import attention


def by_loops(q, k, v, allowed, scale):
    """Attention, one query after the other, in Python's own numbers."""
    output = torch.zeros(len(q), v.shape[1], dtype=torch.float64)
    weights = torch.zeros(len(q), len(k), dtype=torch.float64)
    for t in range(len(q)):
        seen = [s for s in range(len(k)) if allowed(t, s)]
        scores = [scale * math.fsum(a * b for a, b in zip(q[t].tolist(), k[s].tolist(),
                  strict=True)) for s in seen]  # fmt: skip
        total = math.fsum(math.exp(x - max(scores)) for x in scores)
        for s, x in zip(seen, scores, strict=True):
            weights[t, s] = math.exp(x - max(scores)) / total
            output[t] += weights[t, s] * v[s]
    return output, weights


def drawn(T=4, S=6, d=3, dv=5):
    return torch.randn(T, d).double(), torch.randn(S, d).double(), torch.randn(S, dv).double()


@pytest.mark.parametrize("scale", [None, 0.7, 0.0, -2.0])
@pytest.mark.parametrize("kind", ["all", "mask", "causal", "both"])
@pytest.mark.parametrize(("T", "S"), [(4, 6), (6, 4), (5, 5), (1, 4), (3, 1)])
def test_attention_is_what_loops_give(scale, kind, T, S):
    q, k, v = drawn(T, S)
    mask = torch.rand(T, S) < 0.6

    def allowed(t, s):
        causal = kind in ("all", "mask") or s - S <= t - T  # the ends belong together
        return causal and (kind in ("all", "causal") or bool(mask[t, s]))

    wanted = by_loops(q, k, v, allowed, 3**-0.5 if scale is None else scale)
    knobs = {
        "mask": mask if kind in ("mask", "both") else None,
        "causal": kind in ("causal", "both"),
    }
    found = attention(q, k, v, **knobs, scale=scale)
    for a, b in zip(found, wanted, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-14)


def test_leading_axes_broadcast_and_torch_agrees():
    q, k = torch.randn(2, 3, 4, 8).double(), torch.randn(2, 1, 6, 8).double()
    v, mask = torch.randn(1, 3, 6, 5).double(), torch.rand(2, 1, 4, 6) < 0.7
    mask[..., 0] = True
    wanted = scaled_dot_product_attention(q, k.expand(2, 3, 6, 8), v.expand(2, 3, 6, 5), mask)
    found = attention(q, k, v, mask=mask)
    assert found.weights.shape == (2, 3, 4, 6)
    assert torch.allclose(found.output, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_query_without_keys_gives_zeros_and_no_gradient(dtype):
    q, k, v = (x.to(dtype).requires_grad_() for x in drawn())
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[1] = False
    found = attention(q, k, v, mask=mask)
    assert found.output.dtype == found.weights.dtype == dtype
    assert not found.output[1].any()
    assert not found.weights[1].any()
    found.output[1].sum().backward(retain_graph=True)
    assert all(x.grad is not None and not x.grad.any() for x in (q, k, v))
    found.output.float().square().sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (q, k, v))
    assert q.grad is not None
    assert not q.grad[1].any()
    assert q.grad[0].any()


def test_more_queries_than_keys_leave_the_first_ones_without():
    q, k, v = drawn(5, 2)
    found = attention(q, k, v, causal=True)
    assert not found.weights[:3].any()
    assert found.weights[3].tolist() == [1.0, 0.0]


def test_no_key_at_all():
    q, k, v = drawn()
    found = attention(q, k[:0], v[:0])
    assert found.weights.shape == (4, 0)
    assert torch.equal(found.output, torch.zeros(4, 5).double())


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_finite_differences(causal):
    tensors = [x.requires_grad_() for x in drawn(3, 4, 2, 2)]
    mask = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])

    def call(q, k, v):
        return tuple(attention(q, k, v, mask=mask, causal=causal))

    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


def test_large_scores_do_not_overflow():
    q, k, v = drawn()
    found = attention(1e4 * q, 1e4 * k, v)
    assert found.output.isfinite().all()
    best = (q @ k.T).argmax(1)
    assert torch.allclose(found.output, v[best], rtol=0, atol=1e-12)


def test_half_precision_rounds_once():
    q, k, v = (x.bfloat16() for x in drawn(16, 32, 8, 4))
    wide = attention(q.double(), k.double(), v.double()).output
    found = attention(q, k, v).output
    assert ((found.double() - wide).abs() <= 2**-8 * wide.abs() + 1e-6).all()  # half a unit
