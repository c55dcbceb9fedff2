"""Linear probes: against scikit-learn, on any module, with a control task."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vademecum.language import BERT, GPT, linear_probe
from vademecum.testing import check_instrument

HALF = torch.arange(120) < 60


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return {"scores": x}


def features(net: Layers, x: torch.Tensor) -> list[torch.Tensor]:
    found = []
    for block in net.blocks:
        x = block(x).detach()
        found.append(x)
    return found


def scaled(h: torch.Tensor) -> torch.Tensor:
    own = h[~HALF]
    return (h - own.mean(0)) / own.std(0, correction=0)


def test_linear_probe_for_classes_and_numbers_as_scikit_learn_has_it():
    net, x = Layers().double(), torch.randn(120, 4).double()
    y, r = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 1), x[:, 3] + x[:, 0] ** 2
    classes = linear_probe(net, x, y, held_out=HALF, weight_decay=1e-2)
    numbers = linear_probe(net, x, r, held_out=HALF, weight_decay=1e-2)
    assert classes.names == ("blocks.0", "blocks.1", "blocks.2")
    shares = y[HALF].bincount() / 60
    assert classes.chance == pytest.approx(float(shares.max()))
    for i, h in enumerate(features(net, x)):
        z = scaled(h).numpy()
        fit = LogisticRegression(C=1 / (1e-2 * 60), tol=1e-8, max_iter=2000).fit(z[60:], y[60:])
        assert float(classes.scores[i]) == pytest.approx(fit.score(z[:60], y[:60]), abs=1 / 60)
        ridge = Ridge(alpha=1e-2 * 60).fit(z[60:], r[60:])
        assert float(numbers.scores[i]) == pytest.approx(ridge.score(z[:60], r[:60]), abs=1e-9)
    assert numbers.chance == 0
    assert classes.selectivity.equal(classes.scores - classes.control)


def test_labels_of_tokens_are_read_from_tokens_and_controls_are_by_token():
    net = GPT(V=20, d=32, layers=2, heads=4, context=8)
    x = torch.randint(20, (60, 8))
    y = (x % 2).long()
    found = linear_probe(net, x, y, generator=torch.Generator().manual_seed(0))
    assert found.names == ("transformer.h.0", "transformer.h.1")
    assert bool((found.scores > 0.95).all())  # what a token is can be read in every layer
    assert bool((found.control > 0.9).all())  # and with it any labels by token: nothing is selected


def test_random_labels_of_inputs_are_not_learned():
    found = linear_probe(Layers(), torch.randn(400, 4), torch.randn(400) > 0)
    assert bool((found.scores < 0.5 + 5 * 0.5 / 200**0.5).all())
    assert bool((found.control < 0.5 + 5 * 0.5 / 200**0.5).all())


def test_layers_are_chosen_by_name_and_outputs_reduced():
    net, where = GPT(V=15, d=8, layers=3, heads=2, context=9), "transformer.h"
    x, y = torch.randint(15, (40, 6)), torch.arange(40) % 2
    found = linear_probe(net, x, y, reduce=lambda h: h.mean(1))
    assert len(found.names) == 3
    one = linear_probe(net, x, y, layers=f"{where}.1", reduce=lambda h: h[:, 0])
    assert one.names == (f"{where}.1",)
    flat = linear_probe(net, x, y, layers=f"{where}.1")  # all tokens' numbers as features
    assert flat.scores.shape == (1,)


def test_blocks_that_pack_their_tokens_are_read_token_by_token():
    net = BERT(V=15, d=24, layers=3, heads=2, context=9)
    x = torch.randint(15, (40, 6))
    found = linear_probe(net, x, x % 2)
    assert found.names == ("encoder.layer.0", "encoder.layer.1", "encoder.layer.2")
    assert bool((found.scores > 0.95).all())


def test_layers_of_torch_with_padding_give_plain_tensors():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.TransformerEncoder(layer, 2)
    x = {"src": torch.randn(40, 5, 8), "src_key_padding_mask": torch.zeros(40, 5).bool()}
    x["src_key_padding_mask"][::2, 3:] = True
    found = linear_probe(net, x, x["src"][:, 0, 0], reduce=lambda h: h[:, 0])
    assert found.names == ("layers.0", "layers.1")
    assert bool(found.scores.isfinite().all())


def test_a_loader_brings_inputs_and_labels():
    net, x = Layers(), torch.randn(120, 4)
    y = (x[:, 0] > 0).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=50)
    found = linear_probe(net, loader, held_out=HALF)
    assert found.scores.equal(linear_probe(net, x, y, held_out=HALF).scores)


def test_linear_probe_keeps_the_laws_of_instruments():
    def probe(net: nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return linear_probe(net, *data, generator=generator).scores

    x = torch.randn(30, 4)
    check_instrument(probe, Layers(), (x, x[:, 0] > 0), skip={"no_parameters": "one number a row"})


def test_ignored_tokens_count_for_nothing():
    """A label of -100 is the same as a token that is not there."""
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
    x, y = torch.randn(120, 5, 4), torch.randint(3, (120, 5))
    y[:, -2:] = -100
    knobs = {"held_out": HALF, "generator": torch.Generator().manual_seed(0)}
    found = linear_probe(net, x, y, **knobs)
    short = linear_probe(net, x[:, :3], y[:, :3], **knobs)
    assert found.scores.tolist() == short.scores.tolist()
    assert found.chance == short.chance < 0.5
    with pytest.raises(ValueError, match="2 classes or more"):
        linear_probe(net, x, torch.where(y == 1, y, -100), **knobs)
