"""Gradients through time: laws, bad input, drawings, models of others, and a GPU."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.recurrence.recurrent_models import KINDS, STEPPING, Tokens
from vademecum.recurrence import bptt, draw_jacobian_profile, jacobian_profile
from vademecum.testing import check_instrument

D, M, T, N = 3, 4, 7, 2
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


def made(kind: str, **knobs: Any) -> nn.RNNBase:
    model = KINDS[kind](D, M, **knobs).double()
    if kind == "relu":  # or all units may be silent
        for name, p in model.named_parameters():
            p.data.add_(2.0 if "bias_ih" in name else 0.0)
    return model


class Steps(nn.Module):
    """A module whose step is any function."""

    def __init__(self, step: Any):
        super().__init__()
        self.step, self.w = step, nn.Parameter(torch.ones(()))


class Doubled(nn.GRU):
    """A layer with a forward of its own."""

    def forward(self, input, hx=None):
        y, state = super().forward(input, hx)
        return 2 * y, state


X = torch.zeros(N, T, D)
RNN = nn.RNN(D, M, batch_first=True)
BAD: dict[str, Any] = {
    "no module": (lambda x, s: x, X, r"model must be an nn.Module, got function"),
    "not recurrent": (nn.Linear(D, M), X, r"model must be a recurrent layer .* got Linear"),
    "another forward": (Doubled(D, M), X, r"got Doubled with a forward of its own"),
    "no numbers": (nn.RNN(D, M, device="meta"), X.to("meta"), r"x must hold numbers, got"),
    "no tensor": (RNN, [1.0], r"x must be a tensor of shape \(n, T, d\), got list"),
    "packed": (
        RNN,
        nn.utils.rnn.pack_sequence([X[0]]),
        r"x must be a tensor .* got PackedSequence",
    ),
    "no steps": (RNN, X[:, :0], r"x must have the shape \(n, T, d\), T >= 1, got \(2, 0, 3\)"),
    "no sequences": (RNN, X[:0], r"x must have the shape .* got \(0, 7, 3\)"),
    "axes": (RNN, X[None], r"x must have the shape \(n, T, d\), T >= 1, got \(1, 2, 7, 3\)"),
    "axes of a cell": (nn.GRUCell(D, M), X[0], r"x must have the shape \(n, T, d\).*got \(7, 3\)"),
    "time first": (nn.RNN(D, M), X[None], r"x must have the shape \(T, n, d\), T >= 1"),
    "width": (RNN, X[:, :, :2], r"x must be 3 wide, got shape \(2, 7, 2\)"),
    "width of a cell": (nn.LSTMCell(D, M), X[:, :, :2], r"x must be 3 wide"),
    "integers": (RNN, X.long(), r"x must be floating point, got torch.int64"),
    "precision": (RNN, X.double(), r"x must be torch.float32 as weight_ih_l0 of model is, got"),
    "half": (STEPPING["tuple"](), X.half(), r"x must be torch.float32 as A of model is"),
    "NaN": (RNN, X.clone().index_fill_(1, torch.tensor(2), math.nan), r"x must be finite, got nan"),
    "device": (RNN, X.to("meta"), r"x must be on cpu as model is, got meta"),
    "no pair": (Steps(lambda x, s: x), X, r"model.step must give \(output, state\), got"),
    "no output": (Steps(lambda x, s: (None, x)), X, r"model.step must give \(output, state\), got"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    model, x, message = BAD[case]
    for call in (lambda: bptt(model, x, None, loss=lambda z, _: z.sum()),
                 lambda: jacobian_profile(model, x)):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()


def growing(x: Tensor, state: Any) -> Any:
    return x, x if state is None else torch.cat([state, x], 1)


def shared(x: Tensor, state: Any) -> Any:
    return x, x.sum(0)


def exploding(x: Tensor, state: Any) -> Any:
    return x, x + 1 if state is None else state * 1e30


def mixing(x: Tensor, state: Any) -> Any:
    state = x if state is None else (x + state).softmax(0)
    return state, state


BOTH = nn.RNN(D, M, bidirectional=True)
OTHERS: dict[str, Any] = {
    "one step": (lambda: jacobian_profile(RNN, X[:, :1]), r"x must have at least 2 steps, got 1"),
    "memory": (lambda: jacobian_profile(RNN, X, memory=0), r"memory must be >= 1, got 0"),
    "no state": (lambda: jacobian_profile(Steps(lambda x, s: (x, None)), X),
                 r"state of model must hold floating-point tensors, got none"),
    "growing": (lambda: jacobian_profile(Steps(growing), X), r"state of model must keep its size"),
    "shared": (lambda: jacobian_profile(Steps(shared), X), r"must have one axis for the sequences"),
    "mixing": (lambda: jacobian_profile(Steps(mixing), X + torch.randn(N, T, D)),
               r"model must treat examples independently"),
    "overflow": (lambda: jacobian_profile(Steps(exploding), X),
                 r"states of model must be finite, and are not after step 3"),
    "truncate": (lambda: bptt(RNN, X, X, truncate=0), r"truncate must be >= 1, got 0"),
    "part": (lambda: bptt(RNN, X, X, truncate=1.5),  # pyright: ignore
             r"truncate must be an integer, got 1.5"),
    "both ways": (lambda: bptt(BOTH, X, X, truncate=2),
                  r"truncate must be None for a model in two directions, got 2"),
    "targets": (lambda: bptt(RNN, X, X), r"y must be shaped like the output, \(2, 7, 4\)"),
    "loss": (lambda: bptt(RNN, X, X, loss=lambda z, y: z), r"loss must give one"),
    "constant": (lambda: bptt(RNN, X, X, loss=lambda z, y: y.sum()), r"loss must give one differ"),
    "numbers": (lambda: bptt(Steps(lambda x, s: (x.long(), x)), X, X),
                r"outputs of model must be floating point, got torch.int64"),
}  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("case", OTHERS)
def test_bad_arguments(case):
    call, message = OTHERS[case]
    with pytest.raises(ValueError, match=message):
        call()


class Watched(nn.LSTM):
    """A layer of somebody else's, with a hook, a weight norm and attributes."""

    def __init__(self):
        super().__init__(D, M, num_layers=2, bidirectional=True)
        self.calls = []
        self.register_forward_hook(lambda *_: self.calls.append(1))


def test_a_layer_with_hooks_and_parametrisations():
    model = nn.utils.parametrizations.weight_norm(Watched(), "weight_hh_l0")
    x = torch.randn(T, N, D)
    before = [p.clone() for p in model.parameters()]
    found = bptt(model, x, None, loss=lambda z, _: z.sin().sum())
    wanted = torch.autograd.grad(model(x)[0].sin().sum(), list(model.parameters()))
    for (name, _), w in zip(model.named_parameters(), wanted, strict=True):
        assert torch.allclose(found.gradients[name], w, atol=1e-5), name
    assert all(a.equal(b) for a, b in zip(before, model.parameters(), strict=True))
    assert model.calls == [1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("both", [False, True])
def test_laws(kind, both):
    model = made(kind, num_layers=2, bidirectional=both, batch_first=True, dropout=0.3).train()
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    held = check_instrument(
        lambda m, x: jacobian_profile(m, x).log_norms, model, torch.randn(3, T, D).double(),
        per_example=True, outputs=None,
    )  # fmt: skip
    assert len(held) == 5
    flags = torch.backends.cudnn.enabled, torch.is_grad_enabled()
    jacobian_profile(model, torch.randn(3, T, D).double())
    assert (torch.backends.cudnn.enabled, torch.is_grad_enabled()) == flags


def test_tokens_and_repr():
    found = jacobian_profile(Tokens(), torch.randint(7, (N, 9)))
    assert repr(found).startswith("JacobianProfile(log_norms=float64[2, 1, 9], log_bounds=None")
    assert "\n" not in repr(found)


def test_draw_jacobian_profile():
    found = jacobian_profile(made("tanh", bidirectional=True), torch.randn(T, N, D).double())
    axes = draw_jacobian_profile(found).axes[0]
    first = axes.lines[0].get_ydata()
    wanted = found.log_norms[:, 0].mean(0) / math.log(10)
    assert torch.allclose(torch.as_tensor(first), wanted)
    assert len(axes.lines) == 4
    assert len(axes.collections) == 2
    assert draw_jacobian_profile(found, axes) is axes.figure


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_the_gpu():
    for kind in KINDS:
        model = made(kind, num_layers=2, bidirectional=kind == "gru")
        x = torch.randn(T, N, D).double()
        here, loss = jacobian_profile(model, x), lambda y, _: y.sin().sum()
        gradients = bptt(model, x, None, loss=loss).gradients
        model.cuda()
        there = jacobian_profile(model, x.cuda())
        assert torch.allclose(there.log_norms.cpu(), here.log_norms, atol=1e-9)
        assert there.log_bounds is None or there.log_bounds.is_cuda
        for name, g in bptt(model, x.cuda(), None, loss=loss).gradients.items():
            assert torch.allclose(g.cpu(), gradients[name], atol=1e-10)
        assert torch.backends.cudnn.enabled
