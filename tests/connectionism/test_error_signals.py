from itertools import pairwise

import pytest
import torch
from torch import nn

from vademecum.connectionism.error_signals import delta_rule, pdp_update

PHI = {"tanh": torch.tanh, "logistic": torch.sigmoid, "linear": lambda a: a}
CASES = [
    ((3, 2), "tanh"),
    ((3, 4, 2), "tanh"),
    ((2, 5, 4, 3), "logistic"),
    ((4, 3, 3, 5, 1), ("tanh", "logistic", "linear", "tanh")),
    ((1, 1, 1), "linear"),
]


def network(sizes, bias, dtype, seed=0):
    draw = {"generator": torch.Generator().manual_seed(seed), "dtype": dtype}
    weights = [torch.randn(o, i + bias, **draw) for i, o in pairwise(sizes)]
    return weights, torch.randn(6, sizes[0], **draw), torch.randn(6, sizes[-1], **draw)


def by_autograd(weights, x, y, units, bias):
    """Outputs, and gradients in all activations and weights."""
    kinds = [units] * len(weights) if isinstance(units, str) else units
    leaves, activations = [w.clone().requires_grad_() for w in weights], []
    for w, kind in zip(leaves, kinds, strict=True):
        a = nn.functional.linear(x, w[:, :-1], w[:, -1]) if bias else x @ w.T
        a.retain_grad()
        activations.append(a)
        x = PHI[kind](a)
    (0.5 * (x - y).square().sum()).backward()
    signals = [torch.as_tensor(a.grad) for a in activations]
    gradients = [torch.as_tensor(w.grad) for w in leaves]
    return x.detach(), [a.detach() for a in activations], signals, gradients


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("sizes", "units"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rule_is_the_gradient(sizes, units, bias, dtype):
    weights, x, y = network(sizes, bias, dtype)
    rule = delta_rule(weights, x, y, units=units, bias=bias)
    outputs, activations, deltas, gradients = by_autograd(weights, x, y, units, bias)
    torch.testing.assert_close(rule.outputs, outputs)
    for found, wanted in (
        (rule.activations, activations),
        (rule.deltas, deltas),
        (rule.gradients, gradients),
    ):
        assert len(found) == len(weights)
        torch.testing.assert_close(list(found), wanted)


def test_the_rule_sums_over_examples():
    weights, x, y = network((3, 4, 2), True, torch.float64)
    whole = delta_rule(weights, x, y).gradients
    each = [delta_rule(weights, x[i : i + 1], y[i : i + 1]).gradients for i in range(len(x))]
    for layer, gradient in enumerate(whole):
        torch.testing.assert_close(gradient, sum(g[layer] for g in each))


def test_pdp_update_is_that_of_torch():
    weights, x, y = network((3, 4, 2), True, torch.float64)
    theirs = [w.clone().requires_grad_() for w in weights]
    optimiser = torch.optim.SGD(theirs, lr=0.05, momentum=0.9)
    changes = None
    for _ in range(20):
        rule = delta_rule(weights, x, y)
        weights, changes = pdp_update(weights, rule.gradients, changes, rate=0.05, momentum=0.9)
        optimiser.zero_grad()
        _, _, _, gradients = by_autograd([w.detach() for w in theirs], x, y, "tanh", True)
        for w, g in zip(theirs, gradients, strict=True):
            w.grad = g
        optimiser.step()
    torch.testing.assert_close(list(weights), [w.detach() for w in theirs])


@pytest.mark.parametrize("units", ["tanh", "logistic"])
def test_the_rule_learns_xor(units):
    x = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    y = torch.tensor([[0], [1], [1], [0]], dtype=torch.float64)
    for seed in range(4):
        weights, _, _ = network((2, 8, 1), True, torch.float64, seed)
        changes = None
        for _ in range(700):
            rule = delta_rule(weights, x, y, units=(units, "logistic"))
            weights, changes = pdp_update(weights, rule.gradients, changes, rate=0.5, momentum=0.9)
        outputs = delta_rule(weights, x, y, units=(units, "logistic")).outputs
        assert float((outputs - y).abs().max()) < 0.1


W, X, Y = [torch.ones(2, 4), torch.ones(1, 3)], torch.ones(5, 3), torch.ones(5, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: delta_rule([], X, Y), "weights must hold at least one layer"),
        (lambda: delta_rule(W, X, Y, units="relu"), "units must be one of 'tanh', 'logistic'"),
        (lambda: delta_rule(W, X, Y, units=("tanh",)), "units must be 2 names, got 1"),
        (lambda: delta_rule(W, X[:, :2], Y), r"weights\[0\] must be 3 wide, got shape \(2, 4\)"),
        (lambda: delta_rule(W, X, Y, bias=False), r"weights\[0\] must be 3 wide"),
        (lambda: delta_rule(W[:1], X, Y), "y must be 2 wide"),
        (lambda: delta_rule(W, X, Y[:3]), "y must have 5 rows, got 3"),
        (lambda: delta_rule(W, X[:0], Y[:0]), "x must not be empty"),
        (lambda: delta_rule(W, X * torch.nan, Y), r"x must be finite, got nan at \(0, 0\)"),
        (lambda: delta_rule([W[0], W[1] / 0], X, Y), r"weights\[1\] must be finite, got inf"),
        (lambda: delta_rule([X[0]], X, Y), r"weights\[0\] must have 2 axes"),
        (lambda: pdp_update(W, W, rate=0.0), "rate must be > 0, got 0.0"),
        (lambda: pdp_update(W, W, rate=0.1, momentum=1.0), "momentum must be < 1, got 1.0"),
        (lambda: pdp_update(W, W[:1], rate=0.1), r"must be equally many, got \(2, 1, 2\)"),
        (lambda: pdp_update(W, W, [], rate=0.1), r"must be equally many, got \(2, 2, 0\)"),
        (
            lambda: pdp_update(W[:1], W[1:], rate=0.1),
            r"must be alike, got shapes \(\(2, 4\), \(1, 3",
        ),
        (lambda: pdp_update([X], [X], [X[:1]], rate=0.1), r"must be alike, got shapes"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_rule_runs_on_cuda():
    weights, x, y = network((3, 4, 2), True, torch.float64)
    there = delta_rule([w.cuda() for w in weights], x.cuda(), y.cuda())
    here = delta_rule(weights, x, y)
    for one, two in zip(there.gradients, here.gradients, strict=True):
        assert one.is_cuda
        torch.testing.assert_close(one.cpu(), two)
