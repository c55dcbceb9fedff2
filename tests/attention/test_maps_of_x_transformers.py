"""Attention maps of x-transformers, fused or not, are those that its own eager mode returns."""

import pytest
import torch

from vademecum.attention import attention_maps

library = pytest.importorskip("x_transformers", reason="pip install x-transformers")


def wrapped(kind, *, fused):
    layers = kind(dim=32, depth=3, heads=4, attn_dim_head=8, attn_flash=fused)
    return library.TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=layers).eval()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", ["Decoder", "Encoder"])
def test_maps_are_those_of_the_eager_mode(kind, fused):
    kind = getattr(library, kind)
    model, eager = wrapped(kind, fused=fused), wrapped(kind, fused=False)
    eager.load_state_dict(model.state_dict())
    tokens = torch.randint(50, (2, 9))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = attention_maps(model, tokens)
    with torch.no_grad():
        _, wanted = eager(tokens, return_attn=True)
    assert not found.unseen
    assert len(found.weights) == len(wanted) == 3
    for maps, truth in zip(found.weights, wanted, strict=True):
        torch.testing.assert_close(maps, truth, rtol=0, atol=1e-6)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
