"""Simple and gated networks: laws of parts, torch's layers, derivatives twice and mapped."""

from typing import Any

import pytest
import torch
from torch import nn

from vademecum.recurrence import CourseGRU, CourseLSTM, ElmanRNN
from vademecum.testing import check_part

NETS: dict[str, Any] = {
    "ElmanRNN": lambda: ElmanRNN(3, 4, 2),
    "ElmanRNN without readout": lambda: ElmanRNN(3, 4, activation="sigmoid", bias=False),
    "CourseLSTM": lambda: CourseLSTM(3, 4, 2),
    "CourseLSTM, standard": lambda: CourseLSTM(3, 4, mixing=False, bias=False),
    "CourseGRU": lambda: CourseGRU(3, 4, 2),
    "CourseGRU, reset after": lambda: CourseGRU(3, 4, reset="after"),
    "CourseGRU without biases": lambda: CourseGRU(3, 4, reset="after", bias=False),
}


def tensors(state) -> tuple[torch.Tensor, ...]:
    return tuple(state) if isinstance(state, tuple) else (state,)


def start(net, n=5) -> Any:
    h, c = torch.randn(2, n, 4).double()
    return (h, c) if isinstance(net, CourseLSTM) else h


@pytest.mark.parametrize("name", NETS)
def test_laws(name):
    check_part(NETS[name](), torch.randn(3, 5, 3), devices=("cpu", "meta"))


@pytest.mark.parametrize("name", NETS)
def test_steps_give_what_the_whole_sequence_gives(name):
    net, x = NETS[name]().double(), torch.randn(5, 7, 3).double()
    state = start(net)
    y, last = net(x, state)
    for t in range(7):
        output, state = net.step(x[:, t], state)
        assert torch.allclose(output, y[:, t], rtol=0, atol=1e-14)
    assert all(a.allclose(b) for a, b in zip(tensors(state), tensors(last), strict=True))
    begun = net(x[:, :3]).state
    assert torch.allclose(net(x[:, 3:], begun).output, net(x).output[:, 3:], rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", NETS)
def test_derivatives_twice(name):
    net, x = NETS[name]().double(), torch.randn(2, 3, 3).double().requires_grad_()
    names, values = zip(*net.named_parameters(), strict=True)

    def outputs(x, *values):
        return torch.func.functional_call(net, dict(zip(names, values, strict=True)), (x,))[0]

    inputs = (x, *(v.detach().requires_grad_() for v in values))
    assert torch.autograd.gradcheck(outputs, inputs)
    assert torch.autograd.gradgradcheck(outputs, inputs)


@pytest.mark.parametrize("name", NETS)
def test_mapped_and_in_forward_mode(name):
    net, x = NETS[name]().double(), torch.randn(4, 2, 5, 3).double()
    mapped = torch.vmap(lambda one: net(one).output)(x)
    assert torch.allclose(mapped, torch.stack([net(one).output for one in x]), rtol=0, atol=1e-13)
    each = torch.vmap(torch.func.jacrev(lambda one: net(one[None]).output[0]))(x[:, 0])
    wanted = torch.func.jacfwd(lambda one: net(one[None]).output[0])(x[2, 0])
    assert torch.allclose(each[2], wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", NETS)
def test_nan_stays_in_its_own_sequence(name):
    net, x = NETS[name](), torch.randn(3, 6, 3)
    wanted = net(x).output
    x[1, 2] = torch.nan
    found = net(x).output
    assert found[[0, 2]].equal(wanted[[0, 2]])
    assert found[1, :2].equal(wanted[1, :2])
    assert found[1, 2:].isnan().all()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_from_and_to_torch(bias, dtype):
    x = torch.randn(5, 7, 3, dtype=dtype)
    tol = 1e-6 if dtype == torch.float32 else 1e-13
    pairs: Any = [(CourseLSTM, nn.LSTM, nn.LSTMCell), (CourseGRU, nn.GRU, nn.GRUCell)]
    for ours, layer, cell in pairs:
        peer = layer(3, 4, bias=bias, batch_first=True, dtype=dtype)
        random = torch.get_rng_state()
        net = ours.from_torch(peer)
        again = net.to_torch()
        assert random.equal(torch.get_rng_state())
        assert torch.allclose(net(x).output, peer(x)[0], rtol=0, atol=tol)
        assert torch.allclose(again(x)[0], peer(x)[0], rtol=0, atol=tol)
        assert again.bias == bias
        one = cell(3, 4, bias=bias, dtype=dtype)
        found, wanted = ours.from_torch(one).step(x[:, 0]).state, one(x[:, 0])
        for a, b in zip(tensors(found), tensors(wanted), strict=True):
            assert torch.allclose(a, b, rtol=0, atol=tol)
        again.weight_ih_l0.data.zero_()
        assert net.V.abs().min() > 0, "weights are shared"


def test_an_identity_between_cell_and_state_is_the_standard_cell():
    net, x = CourseLSTM(3, 4), torch.randn(2, 5, 3)
    assert net.U is not None
    net.U.data = torch.eye(4)
    assert torch.allclose(net.to_torch()(x)[0], net(x).output, rtol=0, atol=1e-6)


def test_reprs():
    assert repr(ElmanRNN(3, 4, 2, output_activation="softmax")) == (
        "ElmanRNN(3, 4, 2, activation='tanh', output_activation='softmax')"
    )
    assert repr(CourseLSTM(3, 4, mixing=False)) == "CourseLSTM(3, 4, mixing=False)"
    assert repr(CourseGRU(3, 4, bias=False)) == "CourseGRU(3, 4, reset='before', bias=False)"


X, Z = torch.zeros(2, 5, 3), torch.zeros(2, 4)
Elman: Any = ElmanRNN
LSTM: Any = CourseLSTM
GRU: Any = CourseGRU
BAD: list[tuple[Any, str]] = [
    (lambda: Elman(0, 4), "d must be >= 1, got 0"),
    (lambda: Elman(3, 4, 0), "k must be >= 1, got 0"),
    (lambda: GRU(3, 0), "m must be >= 1, got 0"),
    (lambda: LSTM(3, 2.5), "m must be an integer, got 2.5"),
    (lambda: Elman(3, 4, activation="gelu"), "activation must be one of 'identity', 'relu'"),
    (lambda: Elman(3, 4, output_activation="max"), "output_activation must be one of"),
    (lambda: GRU(3, 4, reset="late"), "reset must be one of 'before', 'after', got 'late'"),
    (lambda: Elman(3, 4)(X[0]), r"x must have the shape \(n, T, 3\) with T >= 1, got \(5, 3\)"),
    (lambda: LSTM(3, 4)(X[:, :0]), r"T >= 1, got \(2, 0, 3\)"),
    (lambda: GRU(3, 4)(X[..., :2]), r"\(n, T, 3\) with T >= 1, got \(2, 5, 2\)"),
    (lambda: GRU(3, 4)([1.0]), "with T >= 1, got list"),
    (lambda: Elman(3, 4)(X.long()), "x must be floating point, got torch.int64"),
    (lambda: Elman(3, 4)(X.double()), "x must be torch.float32, as the model"),
    (lambda: Elman(3, 4)(X.to("meta")), "x must be on cpu, as the model, got meta"),
    (lambda: Elman(3, 4)(X, Z[:, :3]), r"state must have the shape \(2, 4\), got \(2, 3\)"),
    (lambda: GRU(3, 4)(X, Z.long()), "state must be floating point"),
    (lambda: LSTM(3, 4)(X, Z), r"state must be the pair \(h, c\), got Tensor"),
    (lambda: LSTM(3, 4)(X, (Z, Z[:1])), r"c of state must have the"),
    (lambda: LSTM(3, 4).step(X), r"x must have the shape \(n, 3\), got \(2, 5, 3\)"),
    (lambda: LSTM(3, 4).to_torch(), "U must be the identity"),
    (lambda: LSTM(3, 4, 2, mixing=False).to_torch(), "no output matrix W .* got k=2"),
    (lambda: GRU(3, 4).to_torch(), "reset must be 'after' .* got 'before'"),
    (lambda: GRU(3, 4, 2, reset="after").to_torch(), "no output matrix W .* got k=2"),
    (lambda: LSTM.from_torch(nn.GRU(3, 4)), "layer must be an nn.LSTM or .*, got GRU"),
    (lambda: GRU.from_torch(nn.GRU(3, 4, num_layers=2)), "one direction .*num_layers=2"),
    (lambda: LSTM.from_torch(nn.LSTM(3, 4, bidirectional=True)), "bidirectional=True"),
    (lambda: LSTM.from_torch(nn.LSTM(3, 4, proj_size=2)), "proj_size=2"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", NETS)
def test_laws_on_cuda(name):
    check_part(NETS[name](), torch.randn(3, 5, 3), devices=("cuda", "cpu"))
