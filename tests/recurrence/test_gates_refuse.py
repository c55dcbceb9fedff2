"""What `gates` refuses, and what it does on a GPU."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from vademecum.recurrence import CourseLSTM, gates

X, H = torch.zeros(5, 2, 3), torch.zeros(1, 2, 4)
NAN = X.clone()
NAN[1, 1, 1] = torch.nan
LSTM: Any = nn.LSTM(3, 4)
GRU = nn.GRU(3, 4, batch_first=True)
META: Any = nn.LSTM(3, 4, device="meta")


class Doubled(nn.LSTM):
    """A layer with a forward of its own."""

    def forward(self, input, hx=None):
        y, state = super().forward(input, hx)
        return 2 * y, state


class Own(nn.RNNCellBase):
    """A cell that torch does not know."""

    def __init__(self):
        super().__init__(3, 4, bias=True, num_chunks=3)


BAD: list[tuple[Any, str]] = [
    (lambda: gates(Doubled(3, 4), X), "torch's layers .*, got Doubled with a forward of its own"),
    (lambda: gates(Own(), X), "got Own with a forward of its own"),
    (lambda: gates(META, X.to("meta")), "x must hold numbers, got a tensor on the device meta"),
    (lambda: gates(LSTM, X.to("meta")), "x must hold numbers, got a tensor on the device meta"),
    (lambda: gates(META, pack_sequence([X[0].to("meta")])), "x.data must hold numbers"),
    (lambda: gates(META, X), "x must be on meta, as the model, got cpu"),
    (lambda: gates(LSTM, X, (H.to("meta"), H)), r"state\[0\] must hold numbers"),
    (lambda: gates(LSTM, X, (H,)), r"state must be the pair \(h, c\), got 1 tensors"),
    (lambda: gates(nn.Linear(3, 4), X), "model must be a recurrent layer or cell .* got Linear"),
    (lambda: gates(nn.Sequential(LSTM), X), "got Sequential; hand in the layer itself"),
    (lambda: gates(LSTM.forward, X), "model must be an nn.Module"),
    (lambda: gates(LSTM, X[..., :2]), r"not empty and 3 wide, got \(5, 2, 2\)"),
    (lambda: gates(LSTM, X[:0]), r"must not be empty, got shape \(0, 2, 3\)"),
    (lambda: gates(LSTM, X[None]), r"2 or 3 axes, .* got \(1, 5, 2, 3\)"),
    (lambda: gates(LSTM, [X]), "x must be a PackedSequence, or a tensor .* got list"),
    (lambda: gates(LSTM, X.long()), "x must be floating point, got torch.int64"),
    (lambda: gates(LSTM, X.double()), "x must be torch.float32, as the model, got torch.float64"),
    (lambda: gates(LSTM, NAN), r"x must be finite, got nan at \(1, 1, 1\)"),
    (lambda: gates(LSTM, pack_sequence([NAN[:, 1]])), "x.data must not hold NaN"),
    (lambda: gates(LSTM, pack_sequence([X[:, 1].long()])), "x must be floating point"),
    (lambda: gates(LSTM, pack_sequence([X[:, 1, :2]])), r"3 wide, got \(5, 2\)"),
    (lambda: gates(LSTM, X, H), r"state must be the pair \(h, c\), got Tensor"),
    (lambda: gates(GRU, X, (H, H)), "state must be a tensor, got tuple"),
    (lambda: gates(GRU, X, H), r"h of state must have the shape \(1, 5, 4\), got \(1, 2, 4\)"),
    (lambda: gates(LSTM, X, (H, H[..., :3])), r"c of state must have the shape \(1, 2, 4\)"),
    (lambda: gates(LSTM, X, (H, H.double())), "state must be torch.float32, as the model"),
    (lambda: gates(LSTM, X, (H, H + torch.nan)), r"state\[1\] must not hold NaN"),
    (lambda: gates(nn.LSTMCell(3, 4), X[0]), r"x must have the shape \(n, T, 3\)"),
    (lambda: gates(CourseLSTM(3, 4), X[0]), r"x must have the shape \(n, T, 3\)"),
    (lambda: gates(CourseLSTM(3, 4), pack_sequence([X[0]])), "got PackedSequence"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_gates_on_cuda(kind):
    model = kind(3, 4, num_layers=2, bidirectional=True).double().cuda()
    lengths = [2, 7, 1, 5, 5]
    rows = [torch.randn(n, 3).double().cuda() for n in lengths]
    x: Any = pack_sequence(rows, enforce_sorted=False)
    found, (y, _) = gates(model, x), model(x)
    assert torch.allclose(found.output.data, y.data, rtol=0, atol=1e-12)
    wanted = gates(model.cpu(), x.cpu())
    for one, other in zip(found.layers, wanted.layers, strict=True):
        for a, b in zip(one, other, strict=True):
            assert all(p.is_cuda and p.cpu().allclose(q) for p, q in zip(a, b, strict=True))
