"""Layers and networks of torch on the tape, against autograd."""

from typing import Any

import pytest
import torch
from torch import nn

from vademecum.gradients.tape import Tape


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(6, 4, bias=False) for _ in range(3))

    def forward(self, x):
        return torch.softmax(self.q(x) @ self.k(x).mT / 2, -1) @ self.v(x)


MODELS: Any = {
    "mlp": (lambda: nn.Sequential(
        nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.Softmax(-1)), (3, 6)),
    "cnn": (lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU(inplace=True), nn.Flatten(), nn.Dropout(),
        nn.Linear(12, 4)).eval(), (2, 2, 4, 4)),
    "attention": (Attention, (2, 5, 6)),
    "batch_norm": (lambda: trained(nn.BatchNorm1d(6)), (4, 6)),
    "batch_norm_plain": (lambda: trained(nn.BatchNorm1d(5, affine=False)), (2, 5, 6)),
    "layer_norm": (lambda: nn.LayerNorm(6), (2, 5, 6)),
    "lstm": (lambda: nn.LSTM(6, 4, num_layers=2, bidirectional=True), (5, 2, 6)),
    "lstm_batch_first": (lambda: nn.LSTM(6, 4, batch_first=True, bias=False), (2, 5, 6)),
    "lstm_projected": (lambda: nn.LSTM(6, 4, proj_size=3, num_layers=2, dropout=0.5), (5, 6)),
    "gru": (lambda: nn.GRU(6, 4, num_layers=2, bidirectional=True, batch_first=True), (2, 5, 6)),
    "rnn": (lambda: nn.Sequential(nn.RNN(6, 4), First(), nn.RNN(4, 3, nonlinearity="relu")),
            (5, 2, 6)),
    "heads": (lambda: SelfAttention(6, 3, batch_first=True), (2, 5, 6)),
    "heads_alone": (lambda: SelfAttention(6, 2, bias=False), (5, 6)),
    "encoder": (lambda: nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), (2, 5, 6)),
    "encoder_gelu": (lambda: nn.TransformerEncoderLayer(
        6, 3, 8, activation="gelu", norm_first=True), (5, 2, 6)),
}  # fmt: skip


class First(nn.Module):
    def forward(self, pair):
        return pair[0]


class SelfAttention(nn.Module):
    """Its output times its weights, with a mask of each kind."""

    def __init__(self, *sizes, **options):
        super().__init__()
        self.heads: Any = nn.MultiheadAttention(*sizes, **options)

    def forward(self, x):
        n = x.shape[-2]
        causal, padding = torch.ones(n, n, dtype=torch.bool).triu(1), torch.arange(n) == n - 1
        padding = padding if x.ndim == 2 else padding.expand(len(x), n)
        out, shares = self.heads(x, x, x, attn_mask=causal, key_padding_mask=padding)
        return shares @ out


def trained(layer):
    """Statistics, weights and biases that are not those of the start."""
    for tensor in (*layer.parameters(), layer.running_mean, layer.running_var):
        nn.init.uniform_(tensor, 0.5, 2)
    return layer


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", MODELS)
def test_modules(name):
    build, shape = MODELS[name]
    module, x = build().eval(), torch.randn(shape)

    def model(x):
        out = module(x)
        parts = [out] if not isinstance(out, tuple) else [out[0], *(
            out[1] if isinstance(out[1], tuple) else [out[1]])]  # fmt: skip
        return torch.cat([part.sin().flatten() for part in parts])

    tape = Tape(lambda x: model(x).square().mean(), x)
    assert {id(p) for p in tape.parameters} == {id(p) for p in module.parameters()}
    torch.testing.assert_close(tape.push().output, model(x).square().mean())
    x.requires_grad_()
    wanted = torch.autograd.grad(model(x).square().mean(), [x, *tape.parameters])
    torch.testing.assert_close(tape.pull().gradients, wanted)
    moves = [torch.randn_like(leaf) for leaf in (x, *tape.parameters)]
    slope = sum((g * t).sum() for g, t in zip(wanted, moves, strict=True))
    torch.testing.assert_close(tape.push(*moves).tangent, slope)
    torch.testing.assert_close(tape.push(moves[0]).tangent, (wanted[0] * moves[0]).sum())
