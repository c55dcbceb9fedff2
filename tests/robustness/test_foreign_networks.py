"""Networks of transformers go through every attack, and through what measures robustness."""

from functools import partial

import pytest
import torch

from vademecum import robustness
from vademecum.robustness.masking import _symptoms

library = pytest.importorskip("transformers", reason="pip install transformers")

FEW = {
    "fgsm": {}, "pgd": {"steps": 3}, "apgd": {"steps": 4}, "deepfool": {"steps": 5},
    "square": {"steps": 20}, "auto_attack": {"steps": 3, "square_steps": 5},
}  # fmt: skip


def network(kind: str) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "resnet":
            config = library.ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1],
                                          layer_type="basic", num_labels=5)  # fmt: skip
            return library.ResNetForImageClassification(config).train()
        config = library.ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                   intermediate_size=24, image_size=16, patch_size=8,
                                   num_labels=5)  # fmt: skip
        return library.ViTForImageClassification(config).train()


def images() -> torch.Tensor:
    return torch.rand(12, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def predictions(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        z = model.eval()(x).logits
    model.train()
    return z.argmax(1)


@pytest.mark.parametrize("kind", ["resnet", "vit"])
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", FEW)
def test_attacks(name, norm, kind):
    model, x = network(kind), images()
    y = predictions(model, x)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    radius = 0.1 if norm == "linf" else 2.0
    found = getattr(robustness, name)(model, x, y, norm=norm, radius=radius, **FEW[name])
    p = torch.inf if norm == "linf" else 2
    length = torch.linalg.vector_norm((found.x.double() - x.double()).flatten(1), p, dim=1)
    assert (length <= radius).all()
    assert torch.equal(found.fooled, predictions(model, found.x) != y)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert model.training
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_measures(kind, monkeypatch):
    monkeypatch.setattr(_symptoms, "_TRIES", 10)
    model, x = network(kind), images()
    y = predictions(model, x)
    short = partial(robustness.pgd, steps=3)
    radii = robustness.minimal_radius(model, x, y, attack=short, tol=0.3).radius
    curve = robustness.robust_accuracy(model, x, y, radii=[0.0, 0.1], attack=short)
    assert curve.accuracy[0] == 1
    assert radii.min() > 0
    assert len(robustness.gradient_masking(model, x, y, radius=0.1).tests) == 7
    assert robustness.average_robustness(model, x).ratio.min() > 0
    if len(y.unique()) > 1:
        assert robustness.gradient_alignment(model, x, y).with_classes.abs().max() <= 1
    errors = robustness.transfer_matrix([model, network("vit")], x, y, radius=0.1).error
    assert errors.shape == (2, 2)
