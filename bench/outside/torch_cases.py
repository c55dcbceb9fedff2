"""Models made of torch's own layers, with what trips whoever looks into modules."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, rnn
from torch.nn.utils import spectral_norm as old_spectral_norm
from torch.nn.utils import weight_norm as old_weight_norm

from bench.outside.cases import DIGITS, Case, Subject

__all__ = ["CASES"]

N, T, D, K = 3, 4, 6, 2  # examples, steps, features, outputs
DOUBLE = torch.float64


class Pooled(nn.Module):
    """A layer over steps, the mean over them, and a dense layer."""

    def __init__(self, layer: nn.Module, width: int, read: Callable[[Any], Tensor] = lambda z: z):
        super().__init__()
        self.layer, self.read, self.head = layer, read, nn.Linear(width, K)

    def forward(self, *x: Any) -> Tensor:
        return self.head(self.read(self.layer(*x)).mean(1))


class SelfAttention(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self, **options: Any):
        super().__init__()
        self.attention = nn.MultiheadAttention(D, 2, batch_first=True, **options)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.attention(x, x, x, key_padding_mask=mask)[0]


class Packs(nn.Module):
    """A recurrent layer over sequences of several lengths, packed inside."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(5, K)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        z, _ = rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=T)
        return self.head(z.mean(1))


def _late(build: Callable[[], nn.Module], shape: tuple[int, ...] = (D,), dtype=DOUBLE, **more: Any):
    """A subject whose model is built when it is made, so that each has its own numbers."""

    def make() -> Subject:
        model = build().to(dtype)
        x = torch.randn(N, *shape, dtype=dtype)
        with torch.no_grad():
            y = torch.randn_like(model.eval()(x))
        model.train()
        return Subject(model, x, y, **more)

    return make


def _mlp(*middle: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(D, 5), *middle, nn.Linear(5, K))


def _conv() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 3, groups=1), nn.LeakyReLU(0.1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(), nn.Linear(4, K),
    )  # fmt: skip


def _normed(norm: Callable[..., nn.Module], **options: Any) -> nn.Module:
    return nn.Sequential(
        norm(nn.Linear(D, 5), **options), nn.Tanh(), norm(nn.Linear(5, K), **options)
    )


def _pruned() -> nn.Module:
    model = _mlp(nn.Tanh())
    prune.l1_unstructured(model[0], "weight", 0.5)
    prune.random_structured(model[2], "weight", 0.5, dim=1)
    return model


def _masked(build: Callable[[], nn.Module], **more: Any) -> Callable[[], Subject]:
    """A model of sequences the last of which are shorter than the others."""

    def make() -> Subject:
        x = torch.randn(N, T, D, dtype=DOUBLE)
        mask = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1]]).bool()
        return Subject(build().to(DOUBLE), (x, mask), torch.randn(N, T, D, dtype=DOUBLE), wrt="",
                       **more)  # fmt: skip

    return make


class Encoder(nn.TransformerEncoder):
    """Takes the padding as its second argument."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # pyright: ignore
        return super().forward(x, src_key_padding_mask=mask)


def _encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(D, 2, 8, batch_first=True, **options)
    return Encoder(layer, 2)


def _transformer() -> Subject:
    model = nn.Transformer(D, 2, 1, 1, 8, batch_first=True).to(DOUBLE)
    x = (torch.randn(N, T, D, dtype=DOUBLE), torch.randn(N, 3, D, dtype=DOUBLE))
    return Subject(model, x, torch.randn(N, 3, D, dtype=DOUBLE), wrt="")


def _numbers(z: Any) -> Tensor:
    return z[0].data


def _square(z: Any, y: Tensor) -> Tensor:
    return z[0].data.square().sum()


def _packed(direct: bool) -> Callable[[], Subject]:
    def make() -> Subject:
        layer = nn.LSTM(D, 5).to(DOUBLE)
        x = rnn.pack_sequence([torch.randn(n, D, dtype=DOUBLE) for n in (4, 3, 1)])
        return Subject(layer, x if direct else (x,), torch.zeros(3), _square, output=_numbers,
                       read=_numbers, wrt="", whole=None)  # fmt: skip

    return make


def _padded(kind: Callable[..., nn.Module]) -> Callable[[], Subject]:
    def make() -> Subject:
        x = (torch.randn(N, T, D, dtype=DOUBLE), torch.tensor([4, 2, 3]))
        return Subject(Packs(kind(D, 5, batch_first=True)).to(DOUBLE), x,
                       torch.randn(N, K, dtype=DOUBLE), wrt="")  # fmt: skip

    return make


def _recurrent(kind: Callable[..., nn.Module], **options: Any) -> nn.Module:
    layer = kind(D, 5, batch_first=True, **options)
    return Pooled(layer, 10 if options.get("bidirectional") else 5, lambda z: z[0])


def _tuple_of_lstm() -> Subject:
    layer = nn.LSTM(D, 3, batch_first=True).to(DOUBLE)
    x = torch.randn(N, T, D, dtype=DOUBLE)
    return Subject(layer, x, torch.randn(N, T, 3, dtype=DOUBLE), output=0, read=lambda z: z[0])


def _tokens() -> Subject:
    layers = nn.Sequential(nn.Embedding(7, 4, padding_idx=0), nn.Flatten(), nn.Linear(4 * T, K))
    return Subject(layers.to(DOUBLE), torch.randint(0, 7, (N, T)), torch.tensor([0, 1, 1]),
                   nn.functional.cross_entropy, wrt="")  # fmt: skip


def _tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D), nn.Tanh(), nn.Linear(D, K))
    model[2].weight = model[0].weight
    model[4].weight.requires_grad_(False)
    return model


def _compiled() -> Subject:
    subject = _late(lambda: _mlp(nn.Tanh()))()
    return subject._replace(model=torch.compile(subject.model, backend="eager"))


def _scripted() -> Subject:
    subject = _late(lambda: _mlp(nn.Tanh()))()
    return subject._replace(model=torch.jit.script(subject.model))


def _quantised() -> Subject:
    subject = _late(lambda: _mlp(nn.Tanh()), dtype=torch.float32)()
    model = torch.ao.quantization.quantize_dynamic(subject.model.eval(), {nn.Linear})
    return subject._replace(model=model)


def _lazy() -> nn.Module:
    model = nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(K)).to(DOUBLE)
    model(torch.zeros(1, D, dtype=DOUBLE))
    return model


_FEW_DIGITS = {"fit_readout": "a solution of linear equations needs more digits"}
_FEW = ("functional", "gradient", "jacobian_theta", "per_example_gradients", "local_affine_map")

CASES = [
    Case("mlp", _late(lambda: _mlp(nn.ReLU())), kinks=True),
    Case("mlp in float32", _late(lambda: _mlp(nn.ReLU()), dtype=torch.float32), kinks=True,
         coarse=torch.float32),
    Case("mlp in float16", _late(lambda: _mlp(nn.Tanh()), dtype=torch.float16),
         coarse=torch.float16, refused=DIGITS, skip=_FEW_DIGITS),
    Case("mlp in bfloat16", _late(lambda: _mlp(nn.Tanh()), dtype=torch.bfloat16),
         coarse=torch.bfloat16, refused=DIGITS, skip=_FEW_DIGITS),
    Case("convolutions", _late(_conv, (1, 8, 8)), kinks=True),
    Case("tied, frozen", _late(_tied)),
    Case("lazy", _late(_lazy), kinks=True),
    Case("embedding", _tokens),
    Case("batch norm", _late(lambda: _mlp(nn.BatchNorm1d(5), nn.Tanh()))),
    Case("batch norm without statistics", separate=False,
         make=_late(lambda: _mlp(nn.BatchNorm1d(5, track_running_stats=False), nn.ReLU())),
         refused={"[lrd]*_*": "statistics|BatchNorm|example", "activation*": "BatchNorm|example",
                  "certify*": "BatchNorm|example"}),
    Case("group, layer norm", _late(lambda: _mlp(nn.LayerNorm(5), nn.GroupNorm(1, 5), nn.SiLU()))),
    Case("weight_norm", _late(lambda: _normed(parametrizations.weight_norm)), differences=True),
    Case("weight_norm of rows and columns", differences=True,
         make=_late(lambda: _normed(parametrizations.weight_norm, dim=1))),
    Case("weight_norm, old", _late(lambda: _normed(old_weight_norm)), differences=True),
    Case("spectral_norm", _late(lambda: _normed(parametrizations.spectral_norm))),
    Case("spectral_norm, old", _late(lambda: _normed(old_spectral_norm))),
    Case("orthogonal", _late(lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(D, D)),
                                                   nn.Linear(D, K)))),
    Case("pruned", _late(_pruned)),
    Case("rnn", _late(lambda: _recurrent(nn.RNN), (T, D))),
    Case("lstm", _late(lambda: _recurrent(nn.LSTM), (T, D))),
    Case("lstm, two layers, both ways", make=_late(
        lambda: _recurrent(nn.LSTM, num_layers=2, bidirectional=True, dropout=0.5), (T, D))),
    Case("gru", _late(lambda: _recurrent(nn.GRU), (T, D))),
    Case("lstm, an entry of its tuple", _tuple_of_lstm, skip={"backprop": "gives a tuple",
         "fit_readout": "gives a tuple", "tape": "gives a tuple"}),
    Case("lstm, packed inside", _padded(nn.LSTM)),
    Case("gru, packed inside", _padded(nn.GRU)),
    Case("lstm of a packed sequence", _packed(True), separate=False),
    Case("lstm of a tuple of a packed sequence", _packed(False), separate=False),
    Case("attention", _late(SelfAttention, (T, D))),
    Case("attention, padded", _masked(SelfAttention)),
    Case("encoder", _late(_encoder, (T, D))),
    Case("encoder, padded", _masked(_encoder)),
    Case("encoder, norm first, gelu", _late(lambda: _encoder(norm_first=True, activation="gelu"),
                                            (T, D))),
    Case("transformer", _transformer),
    Case("compiled", _compiled),
    Case("scripted", _scripted, refused={"*": "script"}, only=_FEW, kinks=True),
    Case("quantised", _quantised, refused={"*": "quanti"}, only=_FEW, kinks=True),
]  # fmt: skip
"""Models of torch's own layers."""
