"""`gates` against torch's equations step by step, in all layouts, and untouched models."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence

from vademecum.recurrence import CourseGRU, CourseLSTM, ElmanRNN, gates
from vademecum.recurrence.gated._directions import run_direction
from vademecum.testing import check_instrument

KINDS: dict[str, Any] = {
    "tanh": nn.RNN,
    "relu": lambda *sizes, **knobs: nn.RNN(*sizes, nonlinearity="relu", **knobs),
    "LSTM": nn.LSTM,
    "projected": lambda *sizes, **knobs: nn.LSTM(*sizes, proj_size=2, **knobs),
    "GRU": nn.GRU,
}
FIELDS = {"tanh": "ah", "relu": "ah", "LSTM": "ifogch", "projected": "ifogch", "GRU": "rznh"}
LENGTHS = {"sorted": [7, 5, 5, 2, 1], "unsorted": [2, 7, 1, 5, 5]}


def step_by_torchs_equations(kind, w, x, h, c) -> dict[str, Tensor]:
    """What torch documents of a step, for (n, d) inputs."""
    zero = torch.zeros(len(w["weight_ih"])).double()
    a = x @ w["weight_ih"].T + w.get("bias_ih", zero)
    b = h @ w["weight_hh"].T + w.get("bias_hh", zero)
    if kind in ("tanh", "relu"):
        return {"a": a + b, "h": getattr(torch, kind)(a + b)}
    if kind == "GRU":
        (a_r, a_z, a_n), (b_r, b_z, b_n) = a.chunk(3, 1), b.chunk(3, 1)
        r, z = torch.sigmoid(a_r + b_r), torch.sigmoid(a_z + b_z)
        n = torch.tanh(a_n + r * b_n)
        return {"r": r, "z": z, "n": n, "h": (1 - z) * n + z * h}
    i, f, g, o = (a + b).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * c + i * g
    h = o * c.tanh()
    return {
        "i": i,
        "f": f,
        "o": o,
        "g": g,
        "c": c,
        "h": h @ w["weight_hr"].T if "weight_hr" in w else h,
    }


def one_sequence(kind, model, x, start) -> list[list[dict[str, Tensor]]]:
    """All layers and directions for one sequence (T, d), from a state for each of them."""
    named, found, at = dict(model.named_parameters()), [], 0
    for layer in range(model.num_layers):
        ways = []
        for way in ("", "_reverse")[: 1 + model.bidirectional]:
            end = f"_l{layer}{way}"
            w = {
                k.removesuffix(end): p
                for k, p in named.items()
                if k.endswith(f"h{end}") or k.endswith(f"r{end}")
            }
            h, c = (None if s is None else s[at][None] for s in start)
            steps, at = [], at + 1
            for now in x.flip(0) if way else x:
                steps.append(step_by_torchs_equations(kind, w, now[None], h, c))
                h, c = steps[-1]["h"], steps[-1].get("c")
            steps = steps[::-1] if way else steps
            ways.append({name: torch.cat([s[name] for s in steps]) for name in steps[0]})
        x = torch.cat([w["h"] for w in ways], 1)
        found.append(ways)
    return found


def made(kind, layers=1, both=False, first=False, bias=True) -> Any:
    knobs = {"num_layers": layers, "bidirectional": both, "batch_first": first, "bias": bias}
    return KINDS[kind](3, 4, dropout=0.5 if layers > 1 else 0.0, **knobs).double()


def start_of(kind, model, n=5) -> Any:
    rows = model.num_layers * (1 + model.bidirectional)
    p = 2 if kind == "projected" else 4
    h = torch.randn(rows, n, p).double()
    return (h, torch.randn(rows, n, 4).double()) if "LSTM" in type(model).__name__ else h


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("layers", "both", "first"), list(product((1, 3), (False, True), (False, True)))
)
@pytest.mark.parametrize("lengths", ["equal", "sorted", "unsorted"])
def test_gates_are_those_of_torchs_equations(kind, layers, both, first, lengths):
    model = made(kind, layers, both, first, bias=layers > 1)
    state = start_of(kind, model)
    sizes = LENGTHS.get(lengths, [6] * 5)
    rows = [torch.randn(size, 3).double() for size in sizes]
    if lengths == "equal":
        x: Any = torch.stack(rows, 0 if first else 1)
    else:
        x = pack_sequence(rows, enforce_sorted=lengths == "sorted")
    found = gates(model, x, state)
    y, last = model.eval()(x, state)
    if isinstance(x, PackedSequence):
        assert found.lengths is not None
        assert found.lengths.tolist() == sizes
        assert found.output.batch_sizes.equal(y.batch_sizes)
        assert torch.allclose(found.output.data, y.data, rtol=0, atol=1e-13)
        y = pad_packed_sequence(y, first)[0]
    else:
        assert found.lengths is None
        assert torch.allclose(found.output, y, rtol=0, atol=1e-13)
    assert torch.allclose(torch.cat([way.h for way in found.layers[-1]], -1), y, atol=1e-13)
    for a, b in zip(
        *(s if isinstance(s, tuple) else (s,) for s in (found.state, last)), strict=True
    ):
        assert torch.allclose(a, b, rtol=0, atol=1e-13)
    for one, row in enumerate(rows):
        start = [s[:, one] for s in (state if isinstance(state, tuple) else (state,))]
        wanted = one_sequence(kind, model, row, (*start, None)[:2])
        for layer, way in product(range(layers), range(1 + both)):
            trace = found.layers[layer][way]
            assert "".join(trace._fields) == FIELDS[kind]
            for name in trace._fields:
                got = getattr(trace, name).select(0 if first else 1, one)
                want = wanted[layer][way][name]
                assert torch.allclose(got[: len(row)], want, rtol=0, atol=1e-13), name
                assert not got[len(row) :].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [False, True])
def test_gates_of_one_sequence_without_a_batch(kind, first):
    model = made(kind, 2, both=True, first=first)
    state = start_of(kind, model, 1)
    alone = tuple(s[:, 0] for s in state) if isinstance(state, tuple) else state[:, 0]
    x = torch.randn(6, 3).double()
    found, wanted = gates(model, x, alone), gates(model, x.unsqueeze(1 - first), state)
    y, _ = model.eval()(x, alone)
    assert torch.allclose(found.output, y, rtol=0, atol=1e-13)
    for one, other in zip(found.layers, wanted.layers, strict=True):
        for a, b in zip(one, other, strict=True):
            assert all(p.equal(q.squeeze(1 - first)) for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("bias", [True, False])
def test_gates_of_cells(cell, bias):
    one, x = cell(3, 4, bias=bias).double(), torch.randn(5, 6, 3).double()
    start = torch.randn(2, 5, 4).double()
    state: Any = (start[0], start[1]) if cell is nn.LSTMCell else start[0]
    found = gates(one, x, state)
    for t in range(6):
        state = one(x[:, t], state)
        h, c = state if isinstance(state, tuple) else (state, None)
        trace: Any = found.layers[0][0]
        assert torch.allclose(trace.h[:, t], h, rtol=0, atol=1e-13)
        assert c is None or torch.allclose(trace.c[:, t], c, rtol=0, atol=1e-13)
        assert torch.allclose(found.output[:, t], h, rtol=0, atol=1e-13)
    last = [s if isinstance(s, tuple) else (s,) for s in (found.state, state)]
    for a, b in zip(*last, strict=True):
        assert a.shape == b.shape
        assert torch.allclose(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize("net", [ElmanRNN(3, 4, 2), CourseLSTM(3, 4, 2), CourseGRU(3, 4)])
def test_gates_of_our_own(net):
    x = torch.randn(5, 6, 3)
    found, (y, state) = gates(net, x), net(x)
    assert torch.equal(found.output, y)
    assert all(a.equal(b) for a, b in zip(found.state, state, strict=True))
    trace: Any = found.layers[0][0]
    assert not trace.h.requires_grad
    if isinstance(net, CourseLSTM):
        before = torch.cat((torch.zeros(5, 1, 4), trace.c[:, :-1]), 1)
        assert torch.allclose(trace.c, trace.f * before + trace.i * trace.g, atol=1e-6)
        assert net.U is not None
        assert torch.allclose(trace.h, trace.o * torch.tanh(trace.c @ net.U.T), atol=1e-6)
    if isinstance(net, CourseGRU):
        before = torch.cat((torch.zeros(5, 1, 4), trace.h[:, :-1]), 1)
        assert torch.allclose(trace.h, (1 - trace.z) * trace.n + trace.z * before, atol=1e-6)
    if isinstance(net, ElmanRNN):
        before = torch.cat((torch.zeros(5, 1, 4), trace.h[:, :-1]), 1)
        assert net.b is not None
        assert torch.allclose(trace.a, before @ net.U.T + x @ net.V.T + net.b, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_torchs_layer_and_the_loop_give_the_same(kind):
    model = made(kind)
    named = {k.removesuffix("_l0"): p.detach() for k, p in model.named_parameters()}
    h, c = torch.randn(5, 2 if kind == "projected" else 4).double(), torch.randn(5, 4).double()
    x, lengths = torch.randn(7, 5, 3).double(), torch.tensor(LENGTHS["unsorted"])
    for backward in (False, True):
        one, other = (
            run_direction(model.mode, named, x, h, c, lengths=lengths, backward=backward, fused=f)
            for f in (True, False)
        )
        tensors = zip((*one.trace, one.h, one.c), (*other.trace, other.h, other.c), strict=True)
        assert all(torch.allclose(a, b, rtol=0, atol=1e-13) for a, b in tensors)


def test_float32_is_torchs_to_a_millionth():
    model, x = nn.LSTM(8, 32, num_layers=2, bidirectional=True), torch.randn(200, 4, 8)
    with torch.no_grad():
        assert (gates(model, x).output - model(x)[0]).abs().max() < 1e-6


def test_weights_that_are_computed():
    model: Any = nn.GRU(3, 4, batch_first=True).double()
    spectral_norm(model, "weight_hh_l0")
    x = torch.randn(5, 6, 3).double()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    found = gates(model, x)
    assert all(v.equal(before[k]) for k, v in model.state_dict().items())
    ((trace,),) = found.layers
    R = model.eval().weight_hh_l0
    z = torch.sigmoid(
        x[:, 1] @ model.weight_ih_l0[4:8].T + model.bias_ih_l0[4:8]
        + trace.h[:, 0] @ R[4:8].T + model.bias_hh_l0[4:8]
    )  # fmt: skip
    assert torch.allclose(trace.z[:, 1], z, rtol=0, atol=1e-12)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_gates_keep_the_laws_of_instruments(kind):
    def every(model, x):
        return [tuple(trace) for layer in gates(model, x).layers for trace in layer]

    frozen = made(kind, 2, both=True, first=True)
    frozen.weight_ih_l0.requires_grad_(False)
    for p in frozen.parameters():
        p.grad = torch.randn_like(p)
    models = {"frozen": frozen, "eval": made(kind, 1, first=True).eval()}
    held = check_instrument(
        every, models, torch.randn(5, 6, 3).double(), per_example=True, outputs=None
    )
    assert "permutation" in held


@pytest.mark.parametrize("model", [nn.GRUCell(3, 4), ElmanRNN(3, 4), CourseGRU(3, 4)])
def test_models_that_move_while_their_weights_are_computed(model):
    name = "weight_ih" if isinstance(model, nn.GRUCell) else "V"
    spectral_norm(model.train(), name)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    gates(model, torch.randn(2, 5, 3))
    assert all(v.equal(before[k]) for k, v in model.state_dict().items())
    assert model.training


@pytest.mark.parametrize("fused", [False, True])
def test_nothing_lies_beyond_the_end_of_a_sequence_that_would_overflow(fused):
    weights = {"weight_ih": torch.ones(1, 1), "weight_hh": torch.full((1, 1), 1e20)}
    x, zero = torch.ones(6, 2, 1), torch.zeros(2, 1)
    found = run_direction(
        "RNN_RELU", weights, x, zero, zero, lengths=torch.tensor([1, 6]), fused=fused
    )
    assert found.trace.h[:, 0, 0].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_does_not_act_on_gates(kind):
    model, x = made(kind, 2, both=True), torch.randn(6, 5, 3).double()
    wanted = gates(model, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert gates(model, x).output.equal(wanted.output)
        with pytest.raises(ValueError, match=r"x must be torch\.float64, as the model"):
            gates(model, x.bfloat16())


def test_random_numbers_stay_where_they_are():
    state = torch.get_rng_state()
    gates(
        nn.LSTM(3, 4, num_layers=2, dropout=0.5, device="meta").to_empty(device="cpu"),
        torch.zeros(2, 3),
    )
    assert state.equal(torch.get_rng_state())
