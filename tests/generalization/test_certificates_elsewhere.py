"""Certificates of foreign classifiers, where their packages are, and on a GPU."""

import pytest
import torch
from torch import nn

from tests.generalization.test_pac_bayes_certificate import QUICK, X, Y, certify, fixed
from vademecum.generalization import pac_bayes_certificate
from vademecum.testing.laws import changes, snapshot


def test_pac_bayes_certificate_of_foreign_classifiers():
    """Models of transformers and timm without batch normalisation, as they come."""
    transformers = pytest.importorskip("transformers")
    timm = pytest.importorskip("timm")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, num_labels=2,
    )  # fmt: skip
    ids = torch.randint(50, (40, 6), generator=fixed())
    y = (ids[:, 0] > 25).long()
    bert = transformers.BertForSequenceClassification(config).eval()
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, num_classes=2,
                            depth=1, embed_dim=24, num_heads=2).eval()  # fmt: skip
    for model, x in ((bert, {"input_ids": ids}), (vit, torch.randn(40, 3, 32, 32))):
        before = snapshot(model)
        found = certify(model, x, y, prior_lr=1e-3)
        assert not list(changes(before, snapshot(model)))
        assert found.zero_one.risk <= found.zero_one.risk_upper <= found.zero_one.kl
        assert found.kl < 1e3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_pac_bayes_certificate_on_a_gpu(device):
    g = torch.Generator(device).manual_seed(0)
    conv = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Flatten(),
                         nn.Linear(4, 3)).cuda()  # fmt: skip
    found = pac_bayes_certificate(conv, X.cuda(), Y.cuda(), generator=g, **QUICK)
    assert found.draws == 90
    assert found.zero_one.kl < 1.2
    assert next(found.network.parameters()).is_cuda
