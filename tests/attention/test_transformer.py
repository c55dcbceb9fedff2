"""Encoders, decoders and transformers against torch's, with its weights."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.attention import Transformer, TransformerDecoder, TransformerEncoder
from vademecum.models import load_weights

KNOBS = [
    {},
    {"norm_first": True},
    {"activation": "gelu", "bias": False},
    {"norm_first": True, "layer_norm_eps": 1e-2},
]


def torch_s(knobs, **more):
    """The peer with the same knobs, whose encoder warns of nested tensors if it cannot use them."""
    theirs = nn.Transformer(16, 4, 2, 3, 32, 0.0, batch_first=True, **knobs, **more)
    for p in theirs.parameters():
        nn.init.normal_(p, 0, 0.3)
    return theirs


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("knobs", KNOBS, ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_transformer_is_torchs_with_its_weights(knobs, training, dtype):
    theirs = torch_s(knobs, dtype=dtype).train(training)
    ours = Transformer(16, 4, depth=(2, 3), hidden=32, dropout=0.0, **knobs).to(dtype)
    load_weights(ours.train(training), theirs.state_dict())
    x, y = torch.randn(3, 7, 16, dtype=dtype), torch.randn(3, 5, 16, dtype=dtype)
    lengths = torch.tensor([7, 3, 5])
    padding = torch.arange(7) >= lengths[:, None]
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            memory = theirs.encoder(x, src_key_padding_mask=padding)
            wanted = theirs.decoder(y, memory, tgt_mask=later, memory_key_padding_mask=padding)
            found = ours(x, y, source_lengths=lengths)
        assert torch.allclose(found, wanted, rtol=0, atol=2e-6 if dtype == torch.float32 else 1e-12)
    free = theirs(x, y)
    tol = 2e-6 if dtype == torch.float32 else 1e-12
    assert torch.allclose(ours(x, y, causal=False), free, rtol=0, atol=tol)
    theirs.load_state_dict(ours.state_dict())


def test_it_has_as_many_parameters_as_torchs():
    with torch.device("meta"):
        ours, theirs = Transformer(), nn.Transformer(batch_first=True)
    counts = [sum(p.numel() for p in net.parameters()) for net in (ours, theirs)]
    assert counts == [44_140_544, 44_140_544]
    assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_gradients_of_a_training_step_are_torchs():
    theirs = torch_s({}, dtype=torch.float64)
    ours = Transformer(16, 4, depth=(2, 3), hidden=32, dropout=0.0).double()
    load_weights(ours, theirs.state_dict())
    x, y = torch.randn(3, 7, 16).double(), torch.randn(3, 5, 16).double()
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    ours(x, y).square().mean().backward()
    theirs(x, y, tgt_mask=later).square().mean().backward()
    for name, p in ours.named_parameters():
        q = theirs.get_parameter(name)
        assert p.grad is not None
        assert q.grad is not None
        assert torch.allclose(p.grad, q.grad, rtol=0, atol=1e-12), name


@pytest.mark.parametrize("final", [True, False])
def test_blocks_without_a_final_norm(final):
    block = nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True)
    norm = nn.LayerNorm(16) if final else None
    theirs = nn.TransformerEncoder(block, 2, norm, enable_nested_tensor=False).double()
    ours = TransformerEncoder(16, 4, depth=2, hidden=32, dropout=0.0, final_norm=final).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 5, 16).double()
    assert torch.allclose(ours(x), theirs(x), rtol=0, atol=1e-13)
    layer = nn.TransformerDecoderLayer(16, 4, 32, 0.0, batch_first=True)
    theirs = nn.TransformerDecoder(layer, 2, norm).double()
    ours = TransformerDecoder(16, 4, depth=2, hidden=32, dropout=0.0, final_norm=final).double()
    ours.load_state_dict(theirs.state_dict())
    assert torch.allclose(ours(x, x + 1, causal=False), theirs(x, x + 1), rtol=0, atol=1e-13)


def test_masks_reach_the_attention_they_are_for():
    net = TransformerDecoder(16, 4, depth=1, dropout=0.0).double()
    x, memory = torch.randn(2, 5, 16).double(), torch.randn(2, 6, 16).double()
    earlier = torch.ones(5, 5, dtype=torch.bool).tril()
    assert torch.allclose(net(x, memory, causal=False, mask=earlier), net(x, memory), atol=1e-13)
    few = (torch.arange(6) < 2)[None]
    assert torch.allclose(net(x, memory, source_mask=few), net(x, memory[:, :2]), atol=1e-13)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_mask_reaches_every_block_of_an_encoder(norm_first):
    net = TransformerEncoder(16, 4, depth=2, dropout=0.0, norm_first=norm_first).double()
    x, earlier = torch.randn(2, 5, 16).double(), torch.ones(5, 5, dtype=torch.bool).tril()
    assert torch.allclose(net(x, mask=earlier), net(x, causal=True), rtol=0, atol=1e-12)
    alone = torch.cat([net(x[:, t : t + 1]) for t in range(5)], 1)
    assert torch.allclose(net(x, mask=torch.eye(5).bool()), alone, rtol=0, atol=1e-12)


def test_heads_of_keys_are_as_many_as_asked_for():
    encoder, decoder = (kind(16, 4, depth=1, kv_heads=2)
                        for kind in (TransformerEncoder, TransformerDecoder))  # fmt: skip
    blocks: list[Any] = [encoder.layers[0], decoder.layers[0]]
    for layer in (blocks[0].self_attn, blocks[1].self_attn, blocks[1].multihead_attn):
        assert layer.in_proj_weight.shape == (16 + 8 + 8, 16)


def test_a_transformer_is_drawn_by_the_law_of_torchs():
    """Uniform up to the root of 6 over inputs and outputs, which is not that of a linear map."""
    nets = Transformer(16, 4, depth=(2, 2)), nn.Transformer(16, 4, 2, 2, 64, batch_first=True)
    for net in nets:
        for name, p in net.named_parameters():
            if p.ndim > 1:
                bound = (6 / sum(p.shape)) ** 0.5
                assert 0.95 * bound < p.abs().max() <= bound, name
            else:
                assert "linear" in name or p.unique().numel() == 1


def test_lengths_of_targets_count_without_causality():
    net = Transformer(16, 4, depth=(1, 1), dropout=0.0).double()
    x, y, lengths = torch.randn(2, 6, 16).double(), torch.randn(2, 5, 16).double(), [5, 3]
    found = net(x, y, causal=False, target_lengths=torch.tensor(lengths))
    for i, length in enumerate(lengths):
        alone = net(x[i : i + 1], y[i : i + 1, :length], causal=False)[0]
        assert torch.allclose(found[i, :length], alone, rtol=0, atol=1e-12)


def test_rotary_positions_reach_every_block():
    net = TransformerEncoder(16, 4, depth=2, rotary=100.0, dropout=0.0).double()
    x = torch.randn(2, 5, 16).double()
    moved, spread = net(x, positions=torch.arange(5) + 7), net(x, positions=2 * torch.arange(5))
    assert torch.allclose(net(x), moved, rtol=0, atol=1e-11)
    assert not torch.allclose(net(x), spread, rtol=0, atol=1e-3)


def test_activations_are_those_of_torch():
    x = torch.randn(2, 3, 8).double()
    peers: dict[Any, nn.Module] = {
        "gelu": nn.GELU(), "gelu_tanh": nn.GELU("tanh"), "relu": nn.ReLU()
    }  # fmt: skip
    for name, peer in peers.items():
        net = TransformerEncoder(8, 2, depth=1, activation=name).double().eval()
        block: Any = net.layers[0]
        wanted = block.linear2(peer(block.linear1(x)))
        assert torch.allclose(block.feed_forward(x), wanted, rtol=0, atol=1e-14)


def test_dropout_is_where_torch_has_it():
    """After the same seed the same numbers are dropped: one row lies in memory as torch's does."""
    theirs = nn.TransformerEncoderLayer(16, 4, 32, 0.3, batch_first=True)
    ours = TransformerEncoder(16, 4, depth=1, hidden=32, dropout=0.3, final_norm=False)
    load_weights(ours.layers[0], theirs.state_dict())
    x = torch.randn(1, 5, 16)
    found = []
    for net in (ours, theirs):
        torch.manual_seed(5)
        found.append(net(x))
    assert torch.allclose(*found, rtol=0, atol=1e-6)
    assert torch.allclose(ours.eval()(x), theirs.eval()(x), rtol=0, atol=1e-6)


def test_blocks_are_drawn_one_by_one():
    net = TransformerEncoder(16, 4, depth=2)
    state = net.state_dict()
    assert not torch.equal(state["layers.0.linear1.weight"], state["layers.1.linear1.weight"])


COMPILED = """
import torch
from vademecum.attention import TransformerEncoder
net = TransformerEncoder(16, 4, depth=1, dropout=0.0, kv_heads=2)
fast = torch.compile(net, fullgraph=True, backend="eager")
x, lengths = torch.randn(2, 5, 16), torch.tensor([5, 2])
for how in ({}, {"causal": True, "lengths": lengths}, {"mask": torch.rand(5, 5) < 0.5}):
    assert torch.allclose(fast(x, **how), net(x, **how))
print("equal")
"""


def test_compiled_as_one_graph():
    """In a process of its own, without the run-time checks of types that tests have."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip
    assert done.stdout.split() == ["equal"], done.stderr
