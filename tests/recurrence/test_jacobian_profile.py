"""`jacobian_profile` against dense Jacobians, closed forms and products that no float holds."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.recurrence.recurrent_models import CELLS, KINDS, STEPPING, torch_step
from vademecum.recurrence import (
    LRU,
    CourseGRU,
    CourseLSTM,
    ElmanRNN,
    LinearRecurrence,
    bptt,
    draw_jacobian_profile,
    jacobian_profile,
)
from vademecum.recurrence.through_time import _product_norms

D, M, T, N = 3, 4, 7, 2
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


def made(kind: str, **knobs: Any) -> nn.RNNBase:
    model = KINDS[kind](D, M, **knobs).double()
    if kind == "relu":  # or all units may be silent
        for name, p in model.named_parameters():
            p.data.add_(2.0 if "bias_ih" in name else 0.0)
    return model


def norm_of(f: Any, *z: Tensor) -> float:
    """The logarithm of the norm of a map's dense Jacobian in all its arguments."""
    sizes = [t.numel() for t in z]

    def flat(v: Tensor) -> Tensor:
        parts = [p.view_as(t) for p, t in zip(v.split(sizes), z, strict=True)]
        return torch.cat([out.flatten() for out in f(*parts)])

    J = torch.autograd.functional.jacobian(flat, torch.cat([t.flatten() for t in z]))
    return math.log(float(torch.linalg.matrix_norm(J, 2)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("batch_first", [True, False])
def test_jacobian_profile_of_layers(kind, layers, batch_first):
    model = made(kind, num_layers=layers, batch_first=batch_first)
    x = torch.randn(N, T, D).double()
    found = jacobian_profile(model, x if batch_first else x.transpose(0, 1))
    assert found.log_norms.shape == (N, 1, T)
    for i in range(N):
        own = x[i : i + 1] if batch_first else x[i, :, None]
        for t in (1, 4, T - 1):
            before, rest = own.split([t, T - t], 1 if batch_first else 0)
            state = model(before)[1]
            if model.mode == "LSTM":
                wanted = norm_of(lambda h, c, rest=rest: model(rest, (h, c))[1], *state)
            else:
                wanted = norm_of(lambda h, rest=rest: (model(rest, h)[1],), state)
            assert abs(float(found.log_norms[i, 0, t - 1]) - wanted) < 1e-9
    assert found.log_norms[:, 0, -1].abs().max() < 1e-12
    assert torch.allclose(found.lyapunov, found.log_norms[:, :, 0] / (T - 1))


def walk(model: nn.RNNBase, place: str, x: Tensor, h: Tensor, *c: Tensor) -> Any:
    """The last state of a layer that starts from another."""
    cells = c[0] if c else h
    for x_t in x:
        h, cells = torch_step(model, place, x_t, h, cells)
    return (h, cells) if c else (h,)


@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind):
    model = made(kind, num_layers=2, bidirectional=True)
    x = torch.randn(T, 1, D).double()
    found = jacobian_profile(model, x)
    assert found.chains == ("l0", "l0_reverse", "l1", "l1_reverse")
    lower = made(kind, bidirectional=True)
    lower.load_state_dict({k: v for k, v in model.state_dict().items() if "_l0" in k})
    seen = {"l0": x, "l0_reverse": x, "l1": lower(x)[0], "l1_reverse": lower(x)[0]}
    for place, own in seen.items():
        order = list(range(T))[:: -1 if "reverse" in place else 1]
        row = found.log_norms[0, found.chains.index(place)]
        for i in (0, 3, T - 1):
            h = torch.zeros(1, model.proj_size or M).double()
            c = torch.zeros(1, M).double()
            for t in order[: i + 1]:
                h, c = torch_step(model, place, own[t], h, c)

            rest = partial(walk, model, place, own[order[i + 1 :]])
            states = (h, c) if model.mode == "LSTM" else (h,)
            wanted = norm_of(rest, *(s.detach() for s in states))
            assert abs(float(row[order[i]]) - wanted) < 1e-9
        assert torch.allclose(found.lyapunov[0, found.chains.index(place)], row[order[0]] / (T - 1))


OWN: dict[str, Any] = {
    "elman": lambda: ElmanRNN(D, M, 2, activation="sigmoid"),
    "lstm": lambda: CourseLSTM(D, M),
    "gru": lambda: CourseGRU(D, M),
    "linear": lambda: LinearRecurrence(torch.randn(M, M) / 2, torch.randn(M, D), torch.eye(M)),
    "tuple": lambda: STEPPING["tuple"](),
    "in place": lambda: STEPPING["in place"](),
    **{f"{name} cell": lambda cell=cell: cell(D, M) for name, cell in CELLS.items()},
}


def steps(model: nn.Module, x_t: Tensor, state: Any) -> Any:
    """The next state."""
    return model.step(x_t, state)[1] if hasattr(model, "step") else model(x_t, state)  # pyright: ignore


@pytest.mark.parametrize("name", OWN)
def test_modules_with_steps_and_cells(name):
    model, x = OWN[name]().double(), torch.randn(1, T, D).double()
    found = jacobian_profile(model, x).log_norms[0, 0]
    if name == "tuple":

        def join(*z: Tensor) -> Any:
            return (z[0], {"slow": z[1], "count": 3})

        def split(state: Any) -> Any:
            return state[0], state[1]["slow"]
    else:

        def join(*z: Tensor) -> Any:
            own = [t.clone() for t in z]
            return tuple(own) if len(own) > 1 else own[0]

        def split(state: Any) -> Any:
            return state if isinstance(state, tuple) else (state,)

    state = None
    for t in range(3):
        state = steps(model, x[:, t], state)

    def rest(*z: Tensor) -> Any:
        state = join(*z)
        for t in range(3, T):
            state = steps(model, x[:, t], state)
        return split(state)

    assert abs(float(found[2]) - norm_of(rest, *(z.detach() for z in split(state)))) < 1e-9


def test_complex_states_count_as_they_are():
    net = LRU(D, 6, r_min=0.2, r_max=0.95)
    found = jacobian_profile(net, torch.randn(N, 40, D))
    largest = float(net.eigenvalues.detach().abs().max().double().log())
    wanted = torch.arange(39.0, -1.0, -1.0, dtype=torch.float64) * largest
    assert torch.allclose(found.log_norms, wanted.expand(N, 1, 40), atol=1e-5)
    assert found.log_bounds is not None
    assert torch.allclose(found.log_bounds, wanted[None], atol=1e-5)
    a = torch.tensor([0.5j, -0.9 + 0.1j], dtype=torch.complex128)
    net = LinearRecurrence(a, torch.ones(2, 1).to(a), torch.ones(1, 2).to(a))
    found = jacobian_profile(net, torch.zeros(1, 5, 1).to(a))
    assert abs(float(found.log_norms[0, 0, 0]) - 4 * math.log(abs(-0.9 + 0.1j))) < 1e-12
    stacked = jacobian_profile(STEPPING["complex"](), torch.randn(N, T, D))
    assert stacked.log_norms.shape == (N, 1, T)
    assert stacked.log_bounds is None


def linear(U: Tensor) -> LinearRecurrence:
    return LinearRecurrence(U, torch.zeros(len(U), 1).to(U), torch.eye(len(U)).to(U))


@pytest.mark.parametrize("m", [1, 5, 100])
def test_numbers_that_no_float_holds(m):
    U = torch.linalg.qr(torch.randn(m, m).double()).Q
    for scale in (0.1, 1.0, 30.0):
        found = jacobian_profile(linear(scale * U), torch.zeros(1, 1001, 1).double())
        wanted = torch.arange(1000.0, -1.0, -1.0).double() * math.log(scale)
        assert torch.allclose(found.log_norms[0, 0], wanted, rtol=1e-12, atol=1e-9)
        assert found.log_bounds is not None
        assert torch.allclose(found.log_bounds[0], wanted, rtol=1e-12, atol=1e-9)
    assert abs(float(jacobian_profile(linear(0.1 * U), torch.zeros(1, 1001, 1).double())
                     .log_norms[0, 0, 0]) + 2302.585092994046) < 1e-6  # fmt: skip


def test_a_product_that_is_zero():
    found = jacobian_profile(linear(torch.tensor([[0.0, 100.0], [0.0, 0.0]])), torch.zeros(1, 5, 1))
    assert found.log_norms[0, 0].exp().round(decimals=9).tolist() == [0.0, 0.0, 0.0, 100.0, 1.0]
    assert float(found.lyapunov) == -math.inf
    assert draw_jacobian_profile(found).axes
    dead: Any = nn.RNN(1, 2, nonlinearity="relu", bias=False)
    for p in dead.parameters():
        nn.init.constant_(p, -1.0)
    found = jacobian_profile(dead, torch.ones(4, 1, 1))
    assert found.log_norms[0, 0, :3].tolist() == [-math.inf] * 3
    dead.weight_hh_l0.data.zero_()
    bounds = jacobian_profile(dead, torch.ones(4, 1, 1)).log_bounds
    assert bounds is not None
    assert bounds[0].tolist() == [-math.inf] * 3 + [0.0]


@pytest.mark.parametrize("spread", [0.0, 0.3, 2.0])
def test_norms_of_large_products_are_exact(spread, monkeypatch):
    m = 120
    assert m > _product_norms._SMALL
    slow = 0
    plain = torch.linalg.eigvalsh

    def counted(A: Tensor) -> Tensor:
        nonlocal slow
        slow += A.shape[-1] == m
        return plain(A)

    monkeypatch.setattr(torch.linalg, "eigvalsh", counted)
    product = _product_norms.GrowingProduct(2, m, torch.device("cpu"))
    P = torch.eye(m).double().repeat(2, 1, 1)
    for _ in range(12):
        Q = torch.linalg.qr(torch.randn(2, m, m).double()).Q
        J = Q * torch.exp(spread * torch.randn(2, 1, m).double())
        P = P @ J
        wanted = torch.linalg.matrix_norm(P, 2).log()
        assert torch.allclose(product.times(J), wanted, rtol=1e-9, atol=1e-9)
    assert slow == 12 if spread == 0 else slow <= 12
    assert slow < 12 or spread < 2  # bounds suffice where a few directions prevail


def test_bounds_hold_and_are_those_of_the_weights():
    for layers in (1, 3):
        model = made("tanh", num_layers=layers)
        found = jacobian_profile(model, torch.randn(30, 5, D).double())
        assert found.log_bounds is not None
        assert bool((found.log_norms <= found.log_bounds + 1e-9).all())
    sizes = {k: float(torch.linalg.matrix_norm(p.detach(), 2)) for k, p in model.named_parameters()
             if "weight" in k}  # fmt: skip
    U, V = ([sizes[f"weight_{name}_l{i}"] for i in range(3)] for name in ("hh", "ih"))
    rows = [[U[0], 0, 0], [V[1] * U[0], U[1], 0], [V[2] * V[1] * U[0], V[2] * U[1], U[2]]]
    N_ = torch.tensor(rows, dtype=torch.float64)
    power = torch.linalg.matrix_norm(torch.linalg.matrix_power(N_, 29), 2).log()
    assert abs(float(found.log_bounds[0, 0] - power)) < 1e-9
    sigmoid = ElmanRNN(D, M, activation="sigmoid")
    bounds = jacobian_profile(sigmoid, torch.randn(1, 3, D)).log_bounds
    assert bounds is not None
    norm = torch.linalg.matrix_norm(sigmoid.U.detach().double(), 2)
    assert torch.allclose(bounds[0], torch.arange(2, -1, -1).double() * (norm / 4).log())
    softmax = ElmanRNN(1, 2, activation="softmax", bias=False).double()
    softmax.U.data = 0.7 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).double()  # norm 1.4
    found = jacobian_profile(softmax, torch.zeros(1, 4, 1).double())  # states stay at (1/2, 1/2)
    assert found.log_bounds is not None
    assert torch.allclose(found.log_norms[0], math.log(0.7) * torch.arange(3, -1, -1).double())
    assert torch.allclose(found.log_bounds, found.log_norms[0])
    assert jacobian_profile(made("gru"), torch.randn(3, 1, D).double()).log_bounds is None
    both = jacobian_profile(made("tanh", bidirectional=True), torch.randn(3, 1, D).double())
    assert both.log_bounds is not None
    assert both.log_bounds[1, 0] == 0
    assert both.log_bounds[0, -1] == 0


def test_memory_changes_nothing():
    model, x = made("lstm", num_layers=2), torch.randn(20, 5, D).double()
    whole = jacobian_profile(model, x)
    for memory in (200_000, 100_000):
        part = jacobian_profile(model, x, memory=memory)
        assert torch.allclose(part.log_norms, whole.log_norms, atol=1e-12)
    with pytest.raises(ValueError, match=r"memory must be >= \d+ bytes for one step, got 100"):
        jacobian_profile(model, x, memory=100)


def test_agrees_with_bptt():
    model, x = made("gru"), torch.randn(T, 1, D).double()
    rows = [
        bptt(model, x, None, loss=lambda y, _, i=i: y[-1, 0, i]).adjoints["h_l0"][2, 0]
        for i in range(M)
    ]
    norm = torch.linalg.matrix_norm(torch.stack(rows), 2).log()
    assert abs(float(jacobian_profile(model, x).log_norms[0, 0, 2] - norm)) < 1e-10
