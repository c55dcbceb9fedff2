"""The tape against autograd, on the operations and on networks; its counts by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from vademecum.gradients.tape import Tape, draw_tape

X, Y = (2, 3), (2, 3)
LOWER = torch.ones(4, 4, dtype=torch.bool).tril()
MODES: Any = ("forward", "reverse")
PROGRAMS: Any = {
    "add": (lambda x, y: x + y, X, Y),
    "broadcast": (lambda x, y: x * y - y / 3 + 2, X, (3,)),
    "broadcast_column": (lambda x, y: x / y + (1 - x), X, (2, 1)),
    "scalar": (lambda x, y: 2 / (1 + x * x) - y, X, ()),
    "neg_abs": (lambda x: -x.abs() + abs_of(x) * 3, X),
    "exp_log": (lambda x: torch.log(1 + x.exp()), X),
    "trigonometry": (lambda x: x.sin() * torch.cos(x), X),
    "squash": (lambda x: x.tanh() + torch.sigmoid(x) * F.relu(x), X),
    "powers": (lambda x: x**3 + x**0 + x.square() + (1 + x**2).sqrt() + (2 + x.sin()) ** -1.5, X),
    "reuse": (lambda x: x * x * x + x, X),
    "sums": (lambda x: x.sum(0) * x.mean() + x.sum() + x.mean(0), X),
    "sum_keepdim": (lambda x: x.sum(-1, keepdim=True) + x.sum(dim=(0, 2), keepdim=True), (2, 3, 2)),
    "sum_middle": (lambda x: x.sum((0, 2)), (2, 3, 2)),
    "max": (lambda x: x.amax(1) * x.max() + torch.amax(x, (0, 1)), X),
    "max_tie": (lambda x: torch.cat([x, x]).amax(0), X),
    "logsumexp": (lambda x: x.logsumexp(1) * torch.logsumexp(x, 0, keepdim=True).sum(), X),
    "softmax": (lambda x: x.softmax(0) * F.softmax(x, dim=1) + F.log_softmax(x, dim=-1), X),
    "shapes": (lambda x: x.reshape(3, 2).T.flatten()[1:].unsqueeze(0).view(5, 1).squeeze(1), X),
    "flatten": (lambda x: x.flatten().sin() * x.flatten(1)[1, 7], (2, 3, 4)),
    "t": (lambda x: x.t() @ x * x[0].t(), X),
    "permute": (lambda x: x.permute(2, 0, 1).transpose(0, 2) * x.flatten(1).sum(), (2, 3, 4)),
    "index": (lambda x: x[torch.tensor([1, 1, 0])] * x[..., :1] + x[0, 2], (3, 3)),
    "expand": (lambda x: x.expand(4, 3) * x, (1, 3)),
    "cat": (lambda x, y: torch.cat([x, y, x], -1) @ torch.ones(9, dtype=x.dtype), X, Y),
    "matmul": (lambda x, y: x @ y, (2, 3), (3, 4)),
    "matmul_batch": (lambda x, y: x @ y, (5, 2, 3), (3, 4)),
    "matmul_vectors": (lambda x, y: (x @ y) * y, (3,), (3,)),
    "matrix_vector": (lambda x, y: x @ y, (2, 3), (3,)),
    "vector_matrix": (lambda x, y: y @ x, (3, 2), (3,)),
    "conv1d": (lambda x, w: F.conv1d(x, w, stride=2, padding=1), (2, 3, 7), (4, 3, 3)),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, dilation=2), (2, 2, 6, 5), (3, 2, 2, 2), (3,)),
    "conv2d_groups": (lambda x, w: F.conv2d(x, w, groups=2), (2, 4, 4, 4), (6, 2, 3, 2)),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=(1, 0, 2)), (2, 1, 3, 2, 2), (2, 1, 2, 1, 3)),
    "linear": (F.linear, (5, 3), (2, 3), (2,)),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.tensor([2, 0])), X),
    "mse": (lambda x, y: F.mse_loss(x, y) + F.mse_loss(x, y, reduction="sum"), X, Y),
    "attention": (F.scaled_dot_product_attention, (2, 5, 3), (2, 4, 3), (2, 4, 6)),
    "causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
               (5, 3), (4, 3), (4, 2)),
    "masked": (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.3),
               (5, 3), (4, 3), (4, 2), (5, 4)),
    "masked_by_truth": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, LOWER),
                        (4, 3), (4, 3), (4, 2)),
    "heads_masked_by_truth": (lambda x, w, b, o: F.multi_head_attention_forward(
        x, x, x, 6, 2, w, b, None, None, False, 0.0, o, None, attn_mask=~LOWER,
        key_padding_mask=(torch.arange(4) == 3).expand(2, 4))[0],
        (4, 2, 6), (18, 6), (18,), (6, 6)),
    "sizes": (lambda x: x * x.dim() + x.size(1) * x.sum(x.dim() - 1, keepdim=True) / x.numel(), X),
    "divisions": (lambda x, y: torch.div(x, 2 + y.cos()) + x.div(3) + torch.true_divide(2, 3 + x)
                  + torch.divide(x, 4) + torch.ones(2, 3, dtype=x.dtype) / (3 + y.sin())
                  + x / torch.tensor([1, 2, 3]) + (2 + y.sin()).reciprocal()
                  + (2 + x.sin()).rsqrt()
                  + x / np.float64(3) + np.float64(2) / (3 + x.cos()), X, Y),
    "alpha": (lambda x, y: torch.add(x, y.sin(), alpha=2) - torch.sub(x * y, y, alpha=-0.5), X, Y),
    "gelu": (lambda x: F.gelu(x) + nn.GELU("tanh")(x) * torch.erf(x) + F.silu(x), X),
    "max_places": (lambda x: x.max(1).values * x.max(0, keepdim=True)[0].sum() + x.min(1)[0], X),
    "extremes": (lambda x, y: torch.maximum(x, y) * torch.minimum(x, y[0]) + x.min()
                 + x.amin(0) + torch.max(x, y) * torch.min(x, y), X, Y),
    "unflatten": (lambda x: x.unflatten(1, (2, -1)).mT.flatten() @ x.flatten(), (3, 4)),
    "pieces": (lambda x: x.chunk(2, 1)[0] * torch.split(x, [1, 2], -1)[1][:, :1]
               + torch.stack(x.unbind(1)[:2], -1).contiguous() * x.split(2, 1)[0], X),
    "clone": (lambda x: (x * 2).clone().relu_() * x.sin().sigmoid_(), X),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (3, 4), w, b) * F.layer_norm(x, (4,)),
                   (2, 3, 4), (3, 4), (3, 4)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
                   (5, 3, 2), (3,), (3,)),
    "norms_with_eps": (lambda x: F.layer_norm(x, (2,), eps=0.5) + F.batch_norm(
        x, torch.tensor([1.0, 2.0]).to(x.dtype), torch.tensor([0.5, 3.0]).to(x.dtype), eps=0.5)
        * F.batch_norm(x, None, None, training=True, eps=0.5), (5, 2)),
    "single_numbers": (lambda x: x.sum(0) * x.amax(0) + x.logsumexp(-1) + x.sum(), ()),
    "in_place": (lambda x: in_place(x * 2), X),
    "constant_that_changes": (lambda x: with_changing_constant(x), X),
    "unused": (lambda x, y: x.sum() * 2, X, Y),
    "identity": (lambda x, y: x, X, Y),
}  # fmt: skip


def abs_of(x):
    return torch.abs(x)


def in_place(h):
    before = h + 3
    F.relu(h, inplace=True)
    return before * h


def with_changing_constant(x):
    c = torch.ones((), dtype=x.dtype)
    y = x + c
    return y.sin() * (x * c.add_(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_both_modes_equal_autograd(name, dtype):
    f, shapes = PROGRAMS[name][0], PROGRAMS[name][1:]
    inputs = [torch.randn(shape, dtype=dtype) for shape in shapes]
    tape = Tape(f, *inputs)
    tangents = [torch.randn_like(x) for x in inputs]
    eps = 100 * torch.finfo(dtype).eps
    oracle: Any = torch.func.jvp(f, tuple(inputs), tuple(tangents))
    output, wanted = oracle
    pushed = tape.push(*tangents)
    torch.testing.assert_close(pushed.output, output, rtol=eps, atol=eps)
    torch.testing.assert_close(pushed.tangent, wanted, rtol=eps, atol=10 * eps)
    adjoint = torch.randn_like(output)
    oracle = torch.func.vjp(f, *inputs)
    output, pullback = oracle
    pulled = tape.pull(adjoint)
    torch.testing.assert_close(pulled.output, output, rtol=eps, atol=eps)
    torch.testing.assert_close(pulled.gradients, pullback(adjoint), rtol=eps, atol=10 * eps)


def test_a_tied_parameter_is_one_leaf():
    layer = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    tape = Tape(lambda x: layer(layer(x).tanh()).sum(), x)
    assert len(tape.leaves) == 3
    wanted = torch.autograd.grad(layer(layer(x).tanh()).sum(), tape.parameters)
    torch.testing.assert_close(tape.pull().gradients[1:], wanted)


def test_kinks_follow_autograd():
    x = torch.tensor([0.0, -1.0, 2.0, 2.0])
    f = lambda x: (  # noqa: E731
        x.abs() + x.relu() + x.max() + x.min() + x.max(0).values + (-x).min(0).values * 3
        + torch.maximum(x, 2 * x.sigmoid()) + torch.minimum(x, x[3]) + x**0 + x**1 + x**2
    )  # fmt: skip
    wanted = torch.func.jacrev(f)(x)
    for mode in MODES:
        torch.testing.assert_close(Tape(f, x).jacobian(mode=mode).matrix, wanted)


def test_only_what_the_output_needs_is_kept():
    def f(x):
        torch.exp(x)
        return x.sin()

    assert [step.label for step in Tape(f, torch.ones(2)).steps] == ["input", "sin"]


def test_jacobian():
    x, y = torch.randn(2), torch.randn(3)
    f = lambda x, y: torch.cat([x.sum() * y, x.sin()])  # noqa: E731
    wanted = torch.cat(torch.func.jacrev(f, (0, 1))(x, y), 1)
    for mode in MODES:  # five entries each, in and out
        found = Tape(f, x, y).jacobian(mode=mode)
        torch.testing.assert_close(found.matrix, wanted)
        assert found.cost.edges == 5 * Tape(f, x, y).edges


def test_draw_tape():
    tape = Tape(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)), torch.randn(3, 6))
    figure = draw_tape(tape)
    texts = [t.get_text() for t in figure.axes[0].texts]
    for step in tape.steps:
        assert any(text.startswith(step.label) for text in texts)
    assert "3 × 6" in " ".join(texts)
    arrows = [t for t in texts if not t]
    assert len(arrows) == sum(len(step.parents) for step in tape.steps)


ONE = torch.ones(2)
BAD_MODE: Any = "sideways"
ERRORS = [
    (lambda: Tape(lambda x: x, torch.tensor([1])), "inputs must be floating point"),
    (lambda: Tape(lambda x: x, torch.tensor([math.nan])), "inputs must be finite, got nan"),
    (lambda: Tape(lambda x: x, torch.zeros(0)), "inputs must not be empty"),
    (lambda: Tape(torch.sin, ONE * 1j), "inputs must be real and of one dtype, got torch.co"),
    (lambda: Tape(torch.add, ONE, ONE.double()), "inputs must be real and of one dtype"),
    (lambda: Tape(lambda x: ONE, ONE), "f must give one tensor .* got Tensor"),
    (lambda: Tape(lambda: ONE), "f must give one tensor that depends on its inputs, got Tensor"),
    (lambda: Tape(lambda x: F.scaled_dot_product_attention(x, x, x, torch.ones(2, 2), 0.0, True),
                  torch.ones(2, 2)), "must have attn_mask or is_causal, got both"),
    (lambda: Tape(lambda x: F.scaled_dot_product_attention(x, x, x, None, 0.5), torch.ones(2, 2)),
     "attention on the tape must do without dropout_p, got 0.5"),
    (lambda: Tape(lambda x: (x, x), ONE), "f must give one tensor .* got tuple"),
    (lambda: Tape(lambda x: nn.Parameter(ONE).exp() * x, ONE), "must be computed on the tape"),
    (lambda: Tape(torch.erfc, ONE), "the tape has no rule for 'erfc'; it has rules for abs,"),
    (lambda: Tape(lambda x: torch.div(x, 2, rounding_mode="floor"), ONE),
     "div on the tape must do without rounding_mode, got 'floor'"),
    (lambda: Tape(lambda x: F.gelu(x, approximate="erf"), ONE), "approximate must be one of"),
    (lambda: Tape(nn.BatchNorm1d(2), torch.ones(3, 2)), "batch_norm on the tape .* training"),
    (lambda: Tape(lambda x: nn.LSTM(2, 2, 2, dropout=0.5)(x)[0], torch.ones(3, 2)),
     "lstm on the tape must do without dropout, got 0.5"),
    (lambda: Tape(lambda x: nn.GRU(2, 2)(PackedSequence(x, torch.tensor([2, 1])))[0].data,
                  torch.ones(3, 2)), "gru on the tape must do without packed sequences"),
    (lambda: Tape(lambda x: nn.MultiheadAttention(2, 1, add_bias_kv=True)(x, x, x)[0],
                  torch.ones(3, 2)), "attention on the tape must do without bias_k"),
    (lambda: Tape(lambda x: x + ONE.double(), ONE), "must be torch.float32, got torch.float64"),
    (lambda: Tape(lambda x: x + "a", ONE), "must be torch.float32, got str"),
    (lambda: Tape(lambda x: x**x, ONE), "exponent must be a number, got Node"),
    (lambda: Tape(lambda x: x**ONE, ONE), "exponent must be a number, got Tensor"),
    (lambda: Tape(lambda x: x.t(), torch.ones(1, 1, 1)), "t on the tape must be of at most 2 axes"),
    (lambda: Tape(F.dropout, ONE), "dropout on the tape must do without training"),
    (lambda: Tape(lambda x: F.conv1d(x, torch.ones(1, 1, 1)), torch.ones(1, 3)), "a batch axis"),
    (lambda: Tape(lambda x: F.conv1d(x, torch.ones(1, 1, 1), padding="same"), torch.ones(1, 1, 3)),
     "padding in numbers, got an input of shape .* and padding 'same'"),
    (lambda: Tape(lambda x: F.cross_entropy(x, torch.ones(2, 2)), torch.ones(2, 2)), "a class"),
    (lambda: Tape(lambda x: x.sum(1), ONE), "dim must be an axis of a tensor with 1, got 1"),
    (lambda: Tape(lambda x: x.permute(1), ONE), "dim must be an axis of a tensor with 1"),
    (lambda: Tape(lambda x: F.softmax(x, 0, dtype=torch.double), ONE), "must do without dtype"),
    (lambda: Tape(lambda x: F.log_softmax(x, 0, dtype=torch.double), ONE), "do without dtype"),
    (lambda: Tape(lambda x: F.cross_entropy(x, torch.tensor([0, -1])), torch.ones(2, 2)),
     r"target must be from 0 to 1, got \[0, -1\]"),
    (lambda: Tape(lambda x: F.cross_entropy(x, torch.tensor([0, 2])), torch.ones(2, 2)),
     r"target must be from 0 to 1, got \[0, 2\]"),
    (lambda: Tape(lambda x: F.cross_entropy(x, torch.tensor([0])), torch.ones(2, 2)), "a class"),
    (lambda: Tape(lambda x: F.cross_entropy(x, torch.tensor([0, 1]), ignore_index=1),
                  torch.ones(2, 2)), "a class"),
    (lambda: Tape(lambda x: F.cross_entropy(x, ONE.long(), weight=ONE), torch.ones(2, 2)),
     "cross_entropy on the tape must do without weight"),
    (lambda: Tape(lambda x: torch.relu_(x[:1]), ONE), "in place on the tape must be .* views"),
    (lambda: Tape(lambda x: x[:1] + torch.relu_(x), ONE), "in place on the tape must be .* views"),
    (lambda: Tape(lambda x: x if x else -x, ONE), "neither true nor false: ask for node.value"),
    (lambda: Tape(lambda x: x if x.sum() == 2 else -x, ONE), "neither true nor false"),
    (lambda: Tape(torch.sin, ONE).pull(), r"adjoint must be given for outputs of shape \(2,\)"),
    (lambda: Tape(torch.sin, ONE).pull(torch.ones(3)), r"adjoint must be .*\(2,\), got"),
    (lambda: Tape(torch.sin, ONE).push(ONE, ONE), "tangents must be one for each of 1 inputs"),
    (lambda: Tape(torch.sin, ONE).push(ONE * math.inf), "tangents must be finite"),
    (lambda: Tape(torch.sin, ONE).push(ONE.double()), "tangents must be torch.float32"),
    (lambda: Tape(torch.sin, ONE).jacobian(mode=BAD_MODE), "mode must be one of 'forward'"),
    (lambda: Tape(lambda x: Tape(lambda y: x + y, ONE), ONE), "different tapes"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_method_without_a_rule_is_no_attribute():
    with pytest.raises(AttributeError, match="no rule for 'erfinv'"):
        Tape(lambda x: x.erfinv(), ONE)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", ["conv2d", "attention", "index", "softmax"])
def test_cuda(name):
    f, shapes = PROGRAMS[name][0], PROGRAMS[name][1:]
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    here, there = Tape(f, *inputs), Tape(f, *(x.cuda() for x in inputs))
    torch.testing.assert_close(there.push().tangent.cpu(), here.push().tangent)
    adjoint = torch.randn_like(here.push().output)
    for one, other in zip(
        there.pull(adjoint.cuda()).gradients, here.pull(adjoint).gradients, strict=True
    ):
        torch.testing.assert_close(one.cpu(), other)
