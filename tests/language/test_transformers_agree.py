"""Random models of transformers, where it is installed: the same logits, and names both ways."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from vademecum.language import BERT, GPT
from vademecum.models import load_weights, save_weights

SIZES: dict[str, Any] = {"V": 65, "d": 24, "layers": 3, "heads": 3, "context": 16, "hidden": 40}


def spread(model: Any) -> Any:
    for p in model.parameters():
        p.data.normal_(0, 0.3)
    return model.eval()


def theirs(kind: str, **options: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    if kind == "GPT2LMHeadModel":
        config = transformers.GPT2Config(
            vocab_size=65, n_positions=16, n_embd=24, n_layer=3, n_head=3, n_inner=40,
            bos_token_id=0, eos_token_id=0, **options,
        )  # fmt: skip
    else:
        config = transformers.BertConfig(
            vocab_size=65, max_position_embeddings=16, hidden_size=24, num_hidden_layers=3,
            num_attention_heads=3, intermediate_size=40, **options,
        )  # fmt: skip
    return spread(getattr(transformers, kind)(config))


def returned(model: Any, peer: Any, folder: Path) -> None:
    """What we save loads strictly there, and gives what it did."""
    before = {name: tensor.clone() for name, tensor in peer.state_dict().items()}
    spread(peer)
    save_weights(model, folder / "a.safetensors")
    peer.load_state_dict(load_file(folder / "a.safetensors"), strict=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in peer.state_dict().items())


@torch.no_grad()
def test_gpt_of_transformers_gives_the_same_logits(tmp_path):
    peer, model = theirs("GPT2LMHeadModel"), GPT(**SIZES).eval()
    load_weights(model, peer.state_dict())
    tokens = torch.randint(65, (4, 16))
    assert (model(tokens) - peer(tokens).logits).abs().max() < 1e-5
    returned(model, peer, tmp_path)


@pytest.mark.parametrize("kind", ["BertModel", "BertForPreTraining"])
@torch.no_grad()
def test_bert_of_transformers_gives_the_same_logits(kind, tmp_path):
    pretraining = kind == "BertForPreTraining"
    peer, model = theirs(kind), BERT(**SIZES, pretraining=pretraining).eval()
    load_weights(model, peer.state_dict())
    tokens, segments = torch.randint(65, (4, 16)), torch.randint(2, (4, 16))
    lengths = torch.tensor([16, 5, 1, 9])
    real = torch.arange(16) < lengths[:, None]
    found = model(tokens, segments, lengths=lengths)
    wanted = peer(tokens, token_type_ids=segments, attention_mask=real.long())
    if pretraining:
        assert (found.logits - wanted.prediction_logits)[real].abs().max() < 1e-5
        assert (found.next_logits - wanted.seq_relationship_logits).abs().max() < 1e-5
    else:
        assert (found.hidden - wanted.last_hidden_state)[real].abs().max() < 1e-5
        assert (found.pooled - wanted.pooler_output).abs().max() < 1e-5
    returned(model, peer, tmp_path)
