"""Monte Carlo dropout on BERT of transformers, where it is installed."""

from typing import Any

import pytest
import torch

from vademecum.regularization import mc_dropout
from vademecum.testing.laws import changes, snapshot

KINDS = ["eager", "sdpa"]


def bert(kind: str, *, hidden: float, attention: float) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=12, hidden_dropout_prob=hidden,
        attention_probs_dropout_prob=attention, classifier_dropout=0.0, attn_implementation=kind,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config).eval()
    for p in model.parameters():
        p.data.normal_(0, 0.3)
    return model


def tokens() -> dict[str, Any]:
    mask = torch.ones(3, 7, dtype=torch.long)
    mask[1, -2:] = 0
    return {"input_ids": torch.randint(30, (3, 7)), "attention_mask": mask}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("hidden", "attention"), [(0.0, 0.4), (0.2, 0.0), (0.2, 0.4)])
def test_bert_is_a_loop_in_training_mode_and_left_alone(kind, hidden, attention):
    model, x = bert(kind, hidden=hidden, attention=attention), tokens()
    before = snapshot(model)
    found = mc_dropout(model, x, samples=400)
    assert not list(changes(before, snapshot(model)))
    model.train()
    with torch.no_grad():
        loop = torch.stack([model(**x).logits for _ in range(400)])
    error = ((found.variance + loop.var(0)) / 400).sqrt()
    assert ((found.mean - loop.mean(0)).abs() <= 5 * error).all()
    ratio = found.variance.log() - loop.var(0).log()  # its standard deviation is about 0.1
    assert (ratio.abs() < 0.6).all()


@pytest.mark.parametrize("kind", KINDS)
def test_attention_counts_in_bert(kind):
    x = tokens()
    with pytest.raises(ValueError, match="model must have dropout with a rate above 0"):
        mc_dropout(bert(kind, hidden=0.0, attention=0.0), x)
    alone = mc_dropout(bert(kind, hidden=0.0, attention=0.4), x, samples=20)
    assert (alone.variance > 1e-6).all()
