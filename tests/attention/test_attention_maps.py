"""Maps of any module against weights that are computed densely, by itself or by hand."""

import re
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.attention import (
    MemoryNetwork,
    MultiHeadAttention,
    Transformer,
    TransformerEncoder,
    ViT,
    attention,
    attention_entropy,
    attention_maps,
    attention_rank,
)

N, T, D, H = 3, 5, 8, 2
INSTRUMENTS = [attention_maps, attention_entropy, attention_rank]


def x_of(*shape):
    return torch.randn(*(shape or (N, T, D)))


def close(found, wanted):
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


class ByHand(nn.Module):
    """Attention with an explicit softmax, in several ways of writing it."""

    def __init__(self, way, dtype=torch.float32):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D, dtype=dtype), nn.Linear(D, D, dtype=dtype)
        self.head = nn.Parameter(torch.randn(D, 4, dtype=dtype))
        self.way, self.soft, self.drop = way, nn.Softmax(-1), nn.Dropout(0.5)
        self.seen = torch.zeros(0)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, H, -1)).permute(2, 0, 3, 1, 4)
        ways = {
            "module": lambda: self.soft((q @ k.mT) / 2),
            "einsum": lambda: torch.einsum("nhtd,nhsd->nhts", q, k).mul_(0.5).softmax(dim=3),
            "function": lambda: F.softmax(torch.matmul(q, k.mT) * 0.5, dim=-1),
            "masked": lambda: self.masked(q, k),
            "joined": lambda: self.joined(q, k),
        }
        weights = self.seen = ways[self.way]()
        if self.way == "joined":
            weights = weights.view(len(x), H, *weights.shape[1:])
            self.seen = weights
        y = self.out((self.drop(weights) @ v).transpose(1, 2).flatten(2))
        return (y @ self.head).softmax(-1)  # which is no attention

    def masked(self, q, k):
        scores = q @ k.transpose(2, 3)
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
        return torch.softmax(scores.float(), -1).to(q.dtype)

    def joined(self, q, k):
        q, k = (z.reshape(-1, T, D // H) for z in (q, k))
        return torch.baddbmm(torch.zeros(len(q), T, T), q, k.mT, alpha=0.5).softmax(-1)


class Fused(nn.Module):
    """Torch's fused attention, called in any way."""

    def __init__(self, **how):
        super().__init__()
        self.how = how

    def forward(self, q, k):
        return F.scaled_dot_product_attention(q, k, k, **self.how)


@pytest.mark.parametrize("way", ["module", "einsum", "function", "masked", "joined"])
def test_attention_maps_of_a_softmax_by_hand(way):
    model, x = ByHand(way), x_of()
    found = attention_maps(model.train(), x)
    assert found.names == ("",)
    assert not len(model.seen)  # which was put back
    model.eval()(x)
    close(found.weights, (model.seen.detach(),))


@pytest.mark.parametrize("memory", [None, 400, 5000])
@pytest.mark.parametrize("kind", ["plain", "causal", "boolean", "rows", "additive", "grouped"])
def test_attention_maps_of_fused_calls(kind, memory):
    q, k = torch.randn(N, 4, T, 6), torch.randn(N, 4, 7, 6)
    mask: Any = None
    how: Any = {}
    if kind == "causal":
        how, mask = {"is_causal": True}, torch.ones(T, 7).tril().bool()
    elif kind == "boolean":
        mask = torch.rand(N, 1, T, 7) > 0.3
        mask[0, 0, 2] = False  # sees nothing
        how = {"attn_mask": mask, "scale": 0.7}
    elif kind == "rows":
        mask = torch.rand(T, 7) > 0.3
        how = {"attn_mask": mask}
    elif kind == "additive":
        bias = torch.randn(4, T, 7)
        found = attention_maps(Fused(attn_mask=bias), (q, k), memory=memory).weights[0]
        return close(found, (q @ k.mT / 6**0.5 + bias).softmax(-1))
    elif kind == "grouped":
        k, how = k[:, :2], {"enable_gqa": True}
    (found,) = attention_maps(Fused(**how), (q, k), memory=memory).weights
    k = k.repeat_interleave(4 // k.shape[1], 1)
    return close(found, attention(q, k, k, mask=mask, scale=how.get("scale")).weights)


@pytest.mark.parametrize("shape", [(N, T, 6), (T, 6), (2, 3, 4, T, 6), (2 * N, T, 6)])
def test_attention_maps_have_four_axes(shape):
    class Flat(nn.Module):
        def forward(self, x, q):
            return F.scaled_dot_product_attention(q, q, q)

    q = torch.randn(shape)
    (found,) = attention_maps(Flat(), (torch.zeros(N, 1), q)).weights
    assert found.ndim == 4
    if len(shape) != 5:
        assert found.shape[:2] == {3: (N, len(q) // N), 2: (1, 1)}[len(shape)]
    close(found.flatten(0, 1), attention(q, q, q).weights.reshape(-1, T, T))


@pytest.mark.parametrize("options", [{}, {"kv_heads": 1}, {"rotary": 100.0}, {"d_k": 6}])
@pytest.mark.parametrize("T", [1, 5])
def test_attention_maps_of_our_layer(options, T):
    layer, x = MultiHeadAttention(D, H, dropout=0.5, **options), x_of(N, T, D)
    mask = torch.rand(N, T, T) > 0.5
    mask[0], mask[1] = True, False  # the second row sees nothing
    call = {"x": x, "mask": mask}
    found = attention_maps(layer, call)
    close(found.weights[0], layer.eval()(**call, weights=True).weights.detach())
    assert not found.weights[0][1].any()
    assert layer.training is False
    cross = {"x": x, "keys": x_of(N, 7, D)}
    if not options.get("rotary"):
        wanted = layer(**cross, weights=True).weights.detach()
        close(attention_maps(layer, cross).weights[0], wanted)


def test_attention_maps_of_our_stacks():
    encoder, x = TransformerEncoder(D, H, depth=3), x_of()
    lengths = torch.tensor([5, 2, 4])
    found = attention_maps(encoder, {"x": x, "lengths": lengths, "causal": True})
    assert found.names == tuple(f"layers.{i}.self_attn" for i in range(3))
    assert not found.unseen
    first = encoder.eval().layers[0].self_attn
    assert isinstance(first, MultiHeadAttention)
    wanted = first(x, lengths=lengths, causal=True, weights=True).weights.detach()
    close(found.weights[0], wanted)
    pair = attention_maps(Transformer(D, H, depth=(1, 2)), (x, x_of(N, 4, D)))
    assert [tuple(w.shape[1:]) for w in pair.weights] == [
        *((H, 5, 5), (H, 4, 4), (H, 4, 5), (H, 4, 4), (H, 4, 5))
    ]
    image = ViT("Ti", size=32, patch=16, width=D, heads=H, depth=2, num_classes=3)
    found = attention_maps(image, x_of(1, 3, 32, 32))
    assert found.names == ("blocks.0.attn", "blocks.1.attn")
    memory = MemoryNetwork(10, hops=2)
    facts, question = torch.randint(10, (N, 4, 2)), torch.randint(10, (N, 1))
    read = memory.read(facts, question).weights.detach()
    found = attention_maps(memory, (facts, question)).weights
    close(torch.cat(found, 1)[:, :, 0], read)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"kdim": 6, "vdim": 7}, {"add_bias_kv": True, "add_zero_attn": True}, {"bias": False}],
)
def test_attention_maps_of_torchs_layer(options, weights, training):
    layer = nn.MultiheadAttention(D, H, 0.5, **options).train(training)
    q, k, v = x_of(T, N, D), x_of(7, N, layer.kdim), x_of(7, N, layer.vdim)
    for p in layer.parameters():
        nn.init.normal_(p)
    call = {
        **{"query": q, "key": k, "value": v},
        "key_padding_mask": torch.arange(7) >= torch.tensor([[7], [4], [1]]),
        "attn_mask": torch.randn(N * H, T, 7),
    }
    call["key_padding_mask"] = torch.zeros(N, 7).masked_fill(call["key_padding_mask"], -torch.inf)
    found = attention_maps(layer, {**call, "need_weights": weights})
    assert layer.training is training
    wanted = layer.eval()(**call, average_attn_weights=False)[1].detach()
    close(found.weights, (wanted,))


def test_attention_maps_of_torchs_layer_without_examples_and_causal():
    layer, x = nn.MultiheadAttention(D, H).eval(), x_of(T, D)
    mask = torch.ones(T, T).triu(1).bool()
    call = {"query": x, "key": x, "value": x, "attn_mask": mask}
    wanted = layer(**call, average_attn_weights=False)[1].detach()
    for how in ({}, {"is_causal": True, "need_weights": False}):
        close(attention_maps(layer, {**call, **how}).weights[0][0], wanted)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_attention_maps_of_torchs_stack_with_padding(nested, training):
    layer = nn.TransformerEncoderLayer(D, H, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).train(training)
    x, padding = x_of(), torch.arange(T) >= torch.tensor([[3], [2], [1]])
    found = attention_maps(model, {"src": x, "src_key_padding_mask": padding})
    assert found.names == ("layers.0.self_attn", "layers.1.self_attn")
    assert found.weights[1].shape == (N, H, T, T)  # also where all are padding
    peer = TransformerEncoder(D, H, depth=2, hidden=16, final_norm=False).eval()
    peer.load_state_dict(model.state_dict())
    close(attention_maps(peer, {"x": x, "lengths": (~padding).sum(1)}).weights, found.weights)


def test_attention_maps_in_half_precision():
    layer, x = MultiHeadAttention(D, H).bfloat16(), x_of().bfloat16()
    (found,) = attention_maps(layer, x).weights
    assert found.dtype == torch.float32
    q, k = layer.in_proj_weight.chunk(3)[:2]  # pyright: ignore
    q, k = ((x @ w.T).unflatten(-1, (H, -1)).transpose(1, 2).float().detach() for w in (q, k))
    close(found, attention(q, k, k).weights)
    assert attention_entropy(layer, x).entropy[0].dtype == torch.float32
    (double,) = attention_maps(ByHand("module", torch.float64), x_of().double()).weights
    assert double.dtype == torch.float64


class FlexAttention(nn.Module):
    def forward(self, x):
        return x + x.mean(1, keepdim=True)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.custom, self.attn = FlexAttention(), MultiHeadAttention(D, H)
        self.idle = MultiHeadAttention(D, H)

    def forward(self, x):
        return self.attn(self.custom(x)) + self.attn(x)


def test_attention_maps_name_what_was_not_seen():
    found = attention_maps(Both(), x_of())
    assert found.names == ("attn", "attn")
    assert found.unseen == ("custom", "idle")
    assert repr(found) == (
        "AttentionMaps(names=('attn', 'attn'), weights=tuple of 2, unseen=('custom', 'idle'))"
    )


def test_attention_maps_of_some_layers():
    model, x = TransformerEncoder(D, H, depth=4), x_of()
    full = attention_maps(model, x)
    for layers, wanted in [
        (2, [2]),
        ([0, 3], [0, 3]),
        ("layers.1", [1]),
        (["layers.3", 1], [1, 3]),
    ]:
        found = attention_maps(model, x, layers=layers)
        assert found.names == tuple(full.names[i] for i in wanted)
        close(found.weights, tuple(full.weights[i] for i in wanted))
        assert attention_entropy(model, x, layers=layers).by_head.shape == (len(wanted), H)
        assert len(attention_rank(model, x, layers=layers).before) == len(wanted)


MISTAKES = [
    (nn.Linear(D, D), {}, "model must call attention that can be seen, got none"),
    (FlexAttention(), {}, "got none; what looks like it: ''"),
    ("model", {}, "model must be an nn.Module, got str"),
    (Both(), {"layers": "lot"}, "layers must be among the 2 calls of 'attn', 'attn', got 'lot'"),
    (Both(), {"layers": [0, 2]}, "layers must be among the 2 calls of 'attn', 'attn', got 2"),
    (Both(), {"layers": 1.5}, "layers must be names of modules or numbers of calls, got 1.5"),
    (Both(), {"layers": []}, "layers must be names of modules or numbers of calls, got []"),
    (Both(), {"memory": 10}, "memory must be >= "),
    (Both(), {"memory": 1.5}, "memory must be an integer, got 1.5"),
    (Both(), {"x": torch.full((N, T, D), torch.nan)}, "x must be finite, got nan at (0, 0, 0)"),
    (Both(), {"x": "text"}, "x must hold a tensor with examples along its first axis"),
]


@pytest.mark.parametrize("instrument", INSTRUMENTS)
@pytest.mark.parametrize(("model", "options", "message"), MISTAKES)
def test_mistakes_are_named(instrument, model, options, message, unchecked):
    options = {"x": x_of(), **options}
    with pytest.raises(ValueError, match=re.escape(message)):
        instrument(model, **options)
