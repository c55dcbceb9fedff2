"""`bptt` against autograd through torch's own layers and cells, and loops that detach."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.recurrence.recurrent_models import (
    CELLS,
    KINDS,
    SHAPES,
    STEPPING,
    Tokens,
    torch_step,
    unrolled,
)
from vademecum.models import map_tensors
from vademecum.recurrence import bptt
from vademecum.testing import check_instrument

D, M, T, N = 3, 4, 6, 2
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


def close(a: Tensor, b: Tensor, tol: float = 1e-12) -> bool:
    return a.shape == b.shape and float((a - b).detach().abs().max()) <= tol


def made(kind: str, shape: str = "one layer", dtype: torch.dtype = torch.float64, **knobs: Any):
    model = KINDS[kind](D, M, **SHAPES[shape], **knobs).to(dtype)
    model.train()
    return model


def square(y: Tensor, target: Tensor) -> Tensor:
    return ((y - target) ** 2).sum()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_first", [True, False])
def test_bptt_is_autograd(kind, shape, batch_first):
    model = made(kind, shape, batch_first=batch_first).eval()
    x = torch.randn(N, T, D).double() if batch_first else torch.randn(T, N, D).double()
    z = model(x.requires_grad_())[0]
    y = torch.randn_like(z)
    wanted = torch.autograd.grad(square(z, y), [x, *model.parameters()])
    found = bptt(model.train(), x.detach(), y, loss=square)
    assert close(found.outputs, z)
    assert close(found.loss, square(z, y))
    assert found.input_gradient is not None
    assert close(found.input_gradient, wanted[0])
    names = [name for name, _ in model.named_parameters()]
    assert list(found.gradients) == names
    assert all(close(found.gradients[k], g) for k, g in zip(names, wanted[1:], strict=True))
    assert all(len(g) == T for g in found.step_gradients.values())


@pytest.mark.parametrize("kind", KINDS)
def test_bptt_in_single_precision(kind):
    model = made(kind, "all", torch.float32).eval()
    x, y = torch.randn(40, N, D), torch.randn(40, N, 2 * (2 if kind == "projected" else M))
    wanted = torch.autograd.grad(F.mse_loss(model(x)[0], y), list(model.parameters()))
    found = bptt(model, x, y).gradients
    for g, w in zip(found.values(), wanted, strict=True):
        assert g.dtype == torch.float32
        assert close(g, w, 1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_adjoints_are_gradients_in_the_states(kind, shape):
    model = made(kind, shape)
    x = torch.randn(T, N, D).double()
    outputs, states = unrolled(model, x)
    y = torch.randn_like(outputs)
    flat = [z for zs in states.values() for z in zs]
    wanted = iter(torch.autograd.grad(square(outputs, y), flat, materialize_grads=True))
    found = bptt(model, x, y, loss=square)
    assert list(found.states) == list(states)
    for name, zs in states.items():
        assert close(found.states[name], torch.stack(zs).detach())
        assert close(found.adjoints[name], torch.stack([next(wanted) for _ in zs]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [1, 2, 4, T, T + 5])
def test_truncated_bptt_is_the_loop_that_detaches(kind, cut):
    for shape in ("one layer", "stacked"):
        model = made(kind, shape).eval()
        x = torch.randn(T, N, D).double()
        y = torch.randn_like(model(x)[0])
        found = bptt(model, x, y, loss=square, truncate=cut)
        state, loss = None, torch.zeros((), dtype=torch.float64)
        for i in range(0, T, cut):  # as everybody writes it
            out, state = model(x[i : i + cut], state)
            loss = loss + square(out, y[i : i + cut])
            state = (
                tuple(s.detach() for s in state)
                if kind in ("lstm", "projected")
                else state.detach()
            )
        wanted = torch.autograd.grad(loss, list(model.parameters()))
        for g, w in zip(found.gradients.values(), wanted, strict=True):
            assert close(g, w)
        outputs, states = unrolled(model, x, cut)
        flat = [z for zs in states.values() for z in zs]
        adjoints = torch.autograd.grad(square(outputs, y), flat, materialize_grads=True)
        assert close(torch.cat([a.flatten() for a in found.adjoints.values()]),
                     torch.cat([a.flatten() for a in adjoints]))  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_step_gradients_are_those_of_untied_copies(kind):
    model = made(kind, "stacked")
    x = torch.randn(T, N, D).double()
    y = torch.randn(T, N, 2 if kind == "projected" else M).double()
    found = bptt(model, x, y, loss=square)
    copies = [deepcopy(model) for _ in x]
    h = [torch.zeros(N, model.proj_size or M).double() for _ in range(3)]
    c = [torch.zeros(N, M).double() for _ in range(3)]
    outputs = []
    for x_t, own in zip(x, copies, strict=True):
        for i in range(3):
            h[i], c[i] = torch_step(own, f"l{i}", x_t, h[i], c[i])
            x_t = h[i]
        outputs.append(x_t)
    loss = square(torch.stack(outputs), y)
    for t, own in enumerate(copies):
        wanted = torch.autograd.grad(loss, list(own.parameters()), retain_graph=True)
        for g, w in zip(found.step_gradients.values(), wanted, strict=True):
            assert close(g[t], w)


@pytest.mark.parametrize("kind", KINDS)
def test_step_gradients_of_the_backward_direction_lie_at_their_inputs(kind):
    both, one = made(kind, "both ways"), made(kind)
    own = both.state_dict()
    one.load_state_dict({k: own[f"{k}_reverse"] for k in one.state_dict()})
    x, m = torch.randn(T, N, D).double(), both.proj_size or M
    y = torch.randn(T, N, 2 * m).double()
    found = bptt(both, x, y, loss=square).step_gradients
    alone = bptt(one, x.flip(0), y[..., m:].flip(0), loss=square).step_gradients
    assert all(close(found[f"{k}_reverse"], g.flip(0)) for k, g in alone.items())


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind, bias):
    cell = CELLS[kind](D, M, bias=bias).double()
    x, y = torch.randn(N, T, D).double(), torch.randn(N, M).double()
    state: Any = None
    seen = []
    for x_t in x.unbind(1):
        state = cell(x_t, state)
        seen.append(state)
    last = state[0] if isinstance(state, tuple) else state
    loss = ((last - y) ** 2).sum()
    found = bptt(cell, x, y, loss=lambda z, y: ((z[:, -1] - y) ** 2).sum())
    wanted = torch.autograd.grad(loss, list(cell.parameters()), retain_graph=True)
    for g, w in zip(found.gradients.values(), wanted, strict=True):
        assert close(g, w)
    for i, name in enumerate(found.adjoints):
        at = [s[i] if isinstance(s, tuple) else s for s in seen]
        grads = torch.autograd.grad(loss, at, retain_graph=True, allow_unused=True)
        grads = [torch.zeros_like(last) if g is None else g for g in grads]
        assert close(found.adjoints[name], torch.stack(grads))


def by_steps(model: nn.Module, x: Tensor, cut: int | None = None) -> Tensor:
    state, outputs = None, []
    for t, x_t in enumerate(x.unbind(1)):
        if cut is not None and t and t % cut == 0:
            state = map_tensors(state, Tensor.detach)
        state = map_tensors(state, Tensor.clone)
        y, state = model.step(x_t, state)  # pyright: ignore
        outputs.append(y.clone())
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("name", STEPPING)
@pytest.mark.parametrize("cut", [None, 1, 3])
def test_modules_with_steps(name, cut):
    model = STEPPING[name]()
    model = model.double() if name != "complex" else model
    x = torch.randn(N, T, D, dtype=torch.float32 if name == "complex" else torch.float64)
    wanted = torch.autograd.grad(by_steps(model, x, cut).cos().sum(), list(model.parameters()))
    found = bptt(model, x, None, loss=lambda z, _: z.cos().sum(), truncate=cut)
    tol = 1e-5 if name == "complex" else 1e-12
    for g, w in zip(found.gradients.values(), wanted, strict=True):
        assert close(g, w, tol)


def test_names_and_shapes_of_states():
    found = bptt(STEPPING["tuple"](), torch.randn(N, T, D), None, loss=lambda z, _: z.sum())
    shapes = {name: tuple(z.shape) for name, z in found.adjoints.items()}
    assert shapes == {"state[0]": (T, 4, N), "state[1]['slow']": (T, N, 4)}


def test_outputs_count_in_adjoints_of_states_that_are_stacked():
    model, x = STEPPING["complex"](), torch.randn(N, T, D)
    found = bptt(model, x, None, loss=lambda z, _: z.cos().sum())
    state, seen, outputs = None, [], []
    for x_t in x.unbind(1):  # the same with a state in two parts, which autograd can see
        state = torch.zeros(2, N, 5, dtype=torch.complex64) if state is None else state
        own = []
        for a, h in zip(model.a, state, strict=True):
            h = a * h + x_t @ model.B
            x_t = torch.tanh(h.real @ model.C) + x_t
            own.append(h)
        seen.append(own)
        outputs.append(x_t)
        state = own
    loss = torch.stack(outputs).cos().sum()
    wanted = torch.autograd.grad(loss, [h for own in seen for h in own])
    assert close(found.adjoints["state"].flatten(0, 1), torch.stack(wanted), 1e-5)
    assert float(found.adjoints["state"][-1].abs().min()) > 0


def test_tokens():
    model, x = Tokens(), torch.randint(7, (N, T))
    y = torch.randint(7, (N, T))
    loss = lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten())  # noqa: E731
    wanted = torch.autograd.grad(loss(by_steps(model, x), y), list(model.parameters()))
    found = bptt(model, x, y, loss=loss)
    assert found.input_gradient is None
    for g, w in zip(found.gradients.values(), wanted, strict=True):
        assert close(g, w, 1e-6)


def test_a_frozen_and_a_tied_model():
    model = made("lstm", "stacked")
    model.weight_hh_l1 = model.weight_hh_l0
    model.bias_hh_l0.requires_grad_(False)
    x, y = torch.randn(T, D).double(), torch.randn(T, M).double()  # one sequence, without an axis
    found = bptt(model, x, y)
    assert "weight_hh_l1" not in found.gradients
    model.bias_hh_l0.requires_grad_()
    model.eval()
    wanted = torch.autograd.grad(F.mse_loss(model(x)[0], y), list(model.parameters()))
    assert all(close(g, w) for g, w in zip(found.gradients.values(), wanted, strict=True))


@pytest.mark.parametrize("shape", ["stacked", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_laws(kind, shape):
    model = made(kind, shape, batch_first=True)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    held = check_instrument(
        lambda m, x: bptt(m, x, None, loss=lambda z, _: z.sum())._asdict(), model,
        torch.randn(N, T, D).double(), outputs=None,
    )  # fmt: skip
    assert held == ("finite", "untouched", "repeatable")
