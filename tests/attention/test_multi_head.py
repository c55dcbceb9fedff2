"""Multi-head attention against loops over heads, torch's layer, and its own dense path."""

from typing import Any

import pytest
import torch
from torch import nn

from vademecum.attention import Attention, MultiHeadAttention, attention, rotary

LAYERS = [
    {},
    {"bias": False},
    {"kv_heads": 2},
    {"kv_heads": 1, "bias": False},
    {"d_k": 3, "d_v": 6},
    {"d_k": 5, "kv_heads": 2},
    {"kdim": 7, "vdim": 7},
    {"kdim": 7, "vdim": 5},
    {"rotary": 100.0},
    {"rotary": 10000.0, "kv_heads": 2, "d_k": 6},
]


def made(dtype=torch.float64, **knobs):
    layer = MultiHeadAttention(16, 4, **knobs).to(dtype)
    for p in layer.parameters():
        nn.init.normal_(p, 0, 0.4)
    return layer


def inputs(layer, n=3, T=5, S=7):
    """Of self-attention where widths allow it, else of cross-attention."""
    x = torch.randn(n, T, 16).double()
    if layer.in_proj_weight is not None:
        return {"x": x}
    keys, values = torch.randn(n, S, layer.kdim), torch.randn(n, S, layer.vdim)
    return {"x": x, "keys": keys.double(), "values": values.double()}


def by_heads(layer, x, keys=None, values=None, mask=None, *, causal=False):
    """The formula, one row and one head after the other."""
    keys = x if keys is None else keys
    values = keys if values is None else values
    state, sizes = layer.state_dict(), layer.rows
    if "in_proj_weight" in state:
        maps = state["in_proj_weight"].split(sizes)
    else:
        maps = [state[f"{letter}_proj_weight"] for letter in "qkv"]
    bias = state.get("in_proj_bias", torch.zeros(sum(sizes)).double()).split(sizes)
    share, rows = layer.heads // layer.kv_heads, []
    for i in range(len(x)):
        heads = []
        for h in range(layer.heads):
            g = h // share
            mine = [slice(j * d, (j + 1) * d) for j, d in
                    ((h, layer.d_k), (g, layer.d_k), (g, layer.d_v))]  # fmt: skip
            q, k, v = (
                z[i] @ w[at].T + b[at]
                for z, w, b, at in zip((x, keys, values), maps, bias, mine, strict=True)
            )
            if layer.rotary is not None:
                q, k = (rotary(z, torch.arange(len(z)), base=layer.rotary) for z in (q, k))
            allowed = None if mask is None else mask[i, h]
            heads.append(attention(q, k, v, mask=allowed, causal=causal).output)
        rows.append(layer.out_proj(torch.cat(heads, 1)))
    return torch.stack(rows)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("knobs", LAYERS, ids=str)
def test_multi_head_attention_is_attention_head_by_head(knobs, masked, causal):
    layer = made(**knobs)
    given = inputs(layer)
    S = 7 if "keys" in given else 5
    mask = torch.rand(3, 4, 5, S) < 0.6 if masked else None
    wanted = by_heads(layer, **given, mask=mask, causal=causal)
    fused = layer(**given, mask=mask, causal=causal)
    dense = layer(**given, mask=mask, causal=causal, weights=True)
    assert torch.allclose(fused, wanted, rtol=0, atol=1e-12)
    assert torch.allclose(dense.output, wanted, rtol=0, atol=1e-12)
    assert dense.weights.shape == (3, 4, 5, S)


@pytest.mark.parametrize("knobs", [k for k in LAYERS if "rotary" not in k], ids=str)
def test_cross_attention_is_attention_head_by_head(knobs):
    layer = made(**knobs)
    x, keys = torch.randn(2, 5, 16).double(), torch.randn(2, 3, layer.kdim).double()
    values = torch.randn(2, 3, layer.vdim).double()
    assert torch.allclose(
        layer(x, keys, values=values), by_heads(layer, x, keys, values), atol=1e-12
    )
    if layer.kdim == layer.vdim:
        assert torch.allclose(layer(x, keys), by_heads(layer, x, keys), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dense_and_fused_paths_agree(dtype):
    layer = MultiHeadAttention(64, 4, kv_heads=2).to(dtype)
    x, mask = torch.randn(2, 30, 64).to(dtype), torch.rand(2, 30, 30) < 0.5
    fused, dense = layer(x, mask=mask), layer(x, mask=mask, weights=True)
    assert isinstance(dense, Attention)
    tol = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 0.02}[dtype]
    assert torch.allclose(fused, dense.output, rtol=0, atol=tol)
    assert fused.dtype == dense.weights.dtype == dtype
    sums = dense.weights.double().sum(-1)
    assert torch.allclose(sums, torch.ones_like(sums), rtol=0, atol=tol)


@pytest.mark.parametrize("knobs", [{}, {"bias": False}, {"kdim": 7, "vdim": 5}, {"dropout": 0.2}])
@pytest.mark.parametrize("training", [False, True])
def test_weights_from_torch_and_to_torch(knobs, training):
    theirs = nn.MultiheadAttention(16, 4, **knobs, batch_first=True).train(training)
    for p in theirs.parameters():
        nn.init.normal_(p, 0, 0.3)
    state = torch.get_rng_state()
    ours = MultiHeadAttention.from_torch(theirs)
    back = ours.to_torch()
    assert torch.equal(state, torch.get_rng_state())
    for module in (ours, back):
        assert module.training == training
        assert module.dropout == knobs.get("dropout", 0.0)
        assert module.state_dict().keys() == theirs.state_dict().keys()
        for name, p in module.named_parameters():
            assert torch.equal(p, theirs.get_parameter(name))
            assert p.data_ptr() != theirs.get_parameter(name).data_ptr()
            assert p.requires_grad
    theirs.out_proj.requires_grad_(False)
    frozen = MultiHeadAttention.from_torch(theirs)
    for module in (frozen, frozen.to_torch()):
        left = {name for name, p in module.named_parameters() if not p.requires_grad}
        assert left == {name for name in theirs.state_dict() if "out_proj" in name}
    x, y = torch.randn(3, 5, 16), torch.randn(3, 6, ours.kdim)
    z = torch.randn(3, 6, ours.vdim)
    mask = torch.rand(5, 6) < 0.7
    mask[:, 0] = True
    ours, theirs, back = ours.eval(), theirs.eval(), back.eval()
    wanted, maps = theirs(x, y, z, attn_mask=~mask, average_attn_weights=False)
    found = ours(x, y, values=z, mask=mask, weights=True)
    assert torch.allclose(found.output, wanted, rtol=0, atol=1e-6)
    assert torch.allclose(found.weights, maps, rtol=0, atol=1e-6)
    assert torch.allclose(ours(x, y, values=z, mask=mask), wanted, rtol=0, atol=1e-6)
    assert torch.equal(back(x, y, z, attn_mask=~mask)[0], theirs(x, y, z, attn_mask=~mask)[0])


def test_parameters_are_drawn_as_those_of_torch():
    options: list[dict[str, Any]] = [{}, {"bias": False}, {"kdim": 7, "vdim": 5}]
    for knobs in options:
        torch.manual_seed(3)
        ours = MultiHeadAttention(16, 4, **knobs)
        torch.manual_seed(3)
        theirs = nn.MultiheadAttention(16, 4, **knobs)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        for name, p in ours.named_parameters():
            assert torch.equal(p, theirs.get_parameter(name))


def test_dropout_is_for_training_alone_and_keeps_the_mean():
    layer = made(dropout=0.5)
    x = torch.randn(1, 4, 16).double()
    wanted = layer.eval()(x)
    assert torch.equal(wanted, layer(x))
    layer.train()
    for weights in (False, True):
        many = [layer(x, weights=weights) for _ in range(2000)]
        drawn = torch.stack([y.output if weights else y for y in many])
        assert drawn.std(0).min() > 0.01
        error = (drawn.mean(0) - wanted).abs() / (drawn.std(0) / 2000**0.5)
        assert error.max() < 6
    maps = [layer(x, weights=True).weights for _ in range(2)]
    assert torch.equal(*maps), "weights are told before some are dropped"


@pytest.mark.parametrize("knobs", [{}, {"kv_heads": 2, "rotary": 50.0}], ids=str)
def test_gradients_are_those_of_the_dense_path(knobs):
    layer = made(**knobs)
    x, mask = torch.randn(2, 5, 16).double().requires_grad_(), torch.rand(2, 5, 5) < 0.5
    weights = torch.randn(2, 5, 16).double()
    wanted = torch.autograd.grad((layer(x, mask=mask, weights=True).output * weights).sum(),
                                 [x, *layer.parameters()])  # fmt: skip
    found = torch.autograd.grad((layer(x, mask=mask) * weights).sum(), [x, *layer.parameters()])
    for a, b in zip(found, wanted, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


def test_rotary_scores_depend_on_offsets_alone():
    layer = made(rotary=100.0)
    x = torch.randn(2, 6, 16).double()
    moved = layer(x, positions=torch.arange(6) + 1000)
    assert torch.allclose(layer(x), moved, rtol=0, atol=1e-10)
    rows = torch.stack([torch.arange(6), torch.arange(6) * 2])
    each = torch.cat([layer(x[i : i + 1], positions=rows[i]) for i in range(2)])
    assert torch.allclose(layer(x, positions=rows), each, rtol=0, atol=1e-12)
    assert not torch.allclose(layer(x)[1], each[1], atol=1e-3)


def test_repr_tells_what_differs():
    text = repr(MultiHeadAttention(16, 4, kv_heads=2, dropout=0.1, rotary=10.0, bias=False))
    assert "(16, 4, kv_heads=2, bias=False, dropout=0.1, rotary=10.0" in text.replace("\n  ", "")
