"""Masks of every shape, lengths, and rows that are padded: each gives what it gives alone."""

import pytest
import torch
from torch import nn

from vademecum.attention import MultiHeadAttention, TransformerDecoder, TransformerEncoder

LENGTHS = [5, 1, 3, 0]


def layer(**knobs):
    return MultiHeadAttention(8, 4, **knobs).double()


def padded(T=7, fill=100.0):
    """Rows of lengths 5, 1, 3 and 0, with large numbers where nothing should look."""
    x = torch.full((4, T, 8), fill).double()
    for row, length in zip(x, LENGTHS, strict=True):
        row[:length] = torch.randn(length, 8)
    return x, torch.tensor(LENGTHS)


MASKS = [(5, 6), (1, 6), (5, 1), (3, 5, 6), (3, 1, 6), (1, 5, 6), (3, 4, 5, 6), (3, 1, 1, 6),
         (1, 4, 5, 6), (1, 4, 1, 6), (3, 4, 5, 1), (1, 1, 1, 1)]  # fmt: skip


@pytest.mark.parametrize("shape", MASKS, ids=str)
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_masks_of_every_shape_are_the_full_one(shape, kv_heads):
    net = layer(kv_heads=kv_heads)
    x, z = torch.randn(3, 5, 8).double(), torch.randn(3, 6, 8).double()
    mask = torch.rand(shape) < 0.6
    full = mask[:, None] if mask.ndim == 3 else mask
    full = full.expand(3, 4, 5, 6)
    rows = torch.zeros(3, 5, 8).double()
    for i in range(3):
        for t in range(5):
            allowed = full[i, None, :, t, None]
            rows[i, t] = net(x[i, t][None, None], z[i : i + 1], mask=allowed)
    for weights in (False, True):
        found = net(x, z, mask=mask, weights=weights)
        found = found.output if weights else found
        assert torch.allclose(found, rows, rtol=0, atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("knobs", [{}, {"kv_heads": 1}, {"rotary": 10.0, "d_k": 4}], ids=str)
def test_a_padded_row_gives_what_it_gives_alone(knobs, causal):
    net = layer(**knobs)
    x, lengths = padded()
    by_mask = (torch.arange(7) < lengths[:, None])[:, None]
    for how in ({"lengths": lengths}, {"mask": by_mask}):
        together = net(x, causal=causal, **how)
        for i, length in enumerate(LENGTHS[:3]):
            alone = net(x[i : i + 1, :length], causal=causal)[0]
            assert torch.allclose(together[i, :length], alone, rtol=0, atol=1e-13)
        nothing = net.out_proj.bias.expand(7, 8)
        assert torch.equal(together[3], nothing), "no key, so no head says anything"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("T", [1, 6])
@pytest.mark.parametrize("weights", [False, True])
def test_queries_without_keys_give_zeros_and_no_gradient(dtype, kv_heads, T, weights):
    net = layer(kv_heads=kv_heads).to(dtype)
    x = torch.randn(2, T, 8).to(dtype).requires_grad_()
    z = torch.randn(2, 6, 8).to(dtype).requires_grad_()
    mask = torch.ones(2, T, 6, dtype=torch.bool)
    mask[1, 0] = False
    y = net(x, z, mask=mask, weights=weights)
    y = y.output if weights else y
    assert not y[1, 0].any()
    params = [net.in_proj_weight, x, z]
    grads = torch.autograd.grad(y[1, 0].sum(), params, retain_graph=True)
    assert not any(g.any() for g in grads)
    grads = torch.autograd.grad(y.square().sum(), [*net.parameters(), x, z])
    assert all(g.isfinite().all() for g in grads)
    assert not grads[-2][1, 0].any()


def test_a_mask_and_lengths_both_count():
    net, lengths = layer(), torch.tensor([5, 2, 6])
    x, z, mask = (
        torch.randn(3, 5, 8).double(),
        torch.randn(3, 6, 8).double(),
        torch.rand(5, 6) < 0.7,
    )
    both = mask & (torch.arange(6) < lengths[:, None])[:, None]
    for causal in (False, True):
        found = net(x, z, mask=mask, lengths=lengths, causal=causal)
        assert torch.equal(found, net(x, z, mask=both, causal=causal))
    assert not torch.equal(net(x, z, mask=mask), net(x, z, mask=both))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
def test_lengths_may_be_small_integers(dtype):
    net, x = layer(), torch.randn(2, 300, 8).double()
    lengths = torch.tensor([50, 120])
    found = net(x, lengths=lengths.to(dtype))
    assert torch.equal(found, net(x, lengths=lengths))


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_encoder_keeps_the_length_and_ignores_padding(norm_first):
    net = TransformerEncoder(8, 2, depth=2, norm_first=norm_first).double().eval()
    x, lengths = padded()
    with torch.no_grad():
        together = net(x, lengths=lengths)
        assert together.shape == x.shape, "although two positions are padding in every row"
        for i, length in enumerate(LENGTHS[:3]):
            alone = net(x[i : i + 1, :length])[0]
            assert torch.allclose(together[i, :length], alone, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_torch_agrees_where_nothing_is_padding():
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    theirs = nn.TransformerEncoder(block, 1).eval()
    ours = TransformerEncoder(8, 2, depth=1, hidden=16, final_norm=False).eval()
    ours.load_state_dict(theirs.state_dict())
    x, lengths = padded(fill=0.0)
    x, lengths = x[:3].float(), lengths[:3]
    with torch.no_grad():
        wanted = theirs(x, src_key_padding_mask=torch.arange(7) >= lengths[:, None])
    found = ours(x, lengths=lengths)
    assert found.shape == x.shape
    for i, length in enumerate(LENGTHS[:3]):
        assert torch.allclose(found[i, :length], wanted[i, :length], rtol=0, atol=1e-6)


def test_transformer_decoder_ignores_padding_of_both():
    net = TransformerDecoder(8, 2, depth=2).double().eval()
    (x, lengths), memory = padded(), torch.randn(4, 6, 8).double()
    others = torch.tensor([2, 6, 4, 1])
    with torch.no_grad():
        together = net(x, memory, lengths=lengths, source_lengths=others)
        for i, (length, other) in enumerate(zip(LENGTHS[:3], others.tolist()[:3], strict=True)):
            alone = net(x[i : i + 1, :length], memory[i : i + 1, :other])[0]
            assert torch.allclose(together[i, :length], alone, rtol=0, atol=1e-12)


def test_causal_attention_over_more_keys_is_aligned_at_the_end():
    net = layer()
    x = torch.randn(2, 6, 8).double()
    whole = net(x, causal=True)
    for T in (1, 2, 5, 6):
        assert torch.allclose(net(x[:, -T:], x, causal=True), whole[:, -T:], rtol=0, atol=1e-13)
    late = net(x, x[:, -2:], causal=True)
    assert torch.equal(late[:, :4], net.out_proj.bias.expand(2, 4, 8))
    assert torch.allclose(late[:, 5], net(x[:, 5:], x[:, -2:])[:, 0], rtol=0, atol=1e-13)
