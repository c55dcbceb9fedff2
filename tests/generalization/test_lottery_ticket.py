"""Lottery tickets: masks by hand, weights that stay zero, rewinding, the control."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.generalization.landscape_models import Tied, convolutional, inputs, same_state, state
from vademecum.generalization import lottery_ticket
from vademecum.generalization.tickets._masks import Masked, pruned, shuffled
from vademecum.models import mlp

FEW: Any = {"updates": 5, "prunings": 2}


def data(n=40):
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(1))
    return x, (x[:, 0] > 0).long()


def test_the_largest_are_kept_by_hand():
    w = {"a": torch.tensor([[5.0, -1.0], [0.5, 4.0]]), "b": torch.tensor([[2.0, -3.0]])}
    all_ = {k: torch.ones_like(v, dtype=torch.bool) for k, v in w.items()}
    found = pruned(w, all_, 0.5, scope="global")
    assert found["a"].tolist() == [[True, False], [False, True]]
    assert found["b"].tolist() == [[False, True]]
    found = pruned(w, all_, 0.5, scope="layer")
    assert found["a"].tolist() == [[True, False], [False, True]]
    assert found["b"].tolist() == [[False, True]]
    found = pruned({"a": w["a"], "b": 10 * w["b"]}, all_, 0.5, scope="global")
    assert found["b"].tolist() == [[True, True]]
    assert found["a"].tolist() == [[True, False], [False, False]]
    left = {"a": torch.tensor([[False, True], [True, True]]), "b": all_["b"]}
    assert pruned(w, left, 0.5, scope="global")["a"].tolist() == [[False, False], [False, True]]
    assert int(pruned(w, left, 1e-9, scope="global")["a"].sum()) == 1


def test_random_masks_keep_as_many_of_each_tensor():
    masks = {"a": torch.rand(30, 20) < 0.1, "b": torch.rand(5, 7) < 0.5}
    found = shuffled(masks, torch.Generator().manual_seed(0))
    for name, mask in masks.items():
        assert int(found[name].sum()) == int(mask.sum())
        assert found[name].shape == mask.shape
    overlap = (found["a"] & masks["a"]).sum() / masks["a"].sum()
    assert overlap < 0.5


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Rprop])
def test_masked_weights_stay_zero_whatever_the_optimiser_does(kind):
    model: Any = mlp([4, 6, 2])
    x, y = data()
    mask = torch.rand(6, 4, generator=torch.Generator().manual_seed(0)) < 0.5
    with Masked(model, {"0.weight": mask}):
        steps = kind(model.parameters(), lr=0.1)
        for _ in range(5):
            steps.zero_grad()
            F.cross_entropy(model(x), y).backward()
            assert (model[0].weight.detach()[~mask] == 0).all()
            assert (model[0].weight.grad[~mask] == 0).all()
            assert (model[0].weight.grad[mask] != 0).any()
            steps.step()
            with torch.no_grad():
                model[0].weight.add_(0.1)  # as noise would
    assert (model[0].weight.detach()[~mask] == 0).all()
    assert (model[0].weight.detach()[mask] != 0).all()
    assert not model._forward_pre_hooks


def test_lottery_ticket_by_hand():
    """Each round: train from the first weights under the mask, keep the largest that are left."""
    model, (x, y) = mlp([4, 6, 2]), data()
    before = state(model)
    found = lottery_ticket(model, x, y, keep=0.25, eta=0.05, control=False, **FEW)
    assert same_state(model, before)
    assert found.control_scores[0] == found.scores[0]
    assert found.control_scores[1:].isnan().all()
    names, total = ["0.weight", "2.weight"], 36
    masks = {n: torch.ones_like(before[n], dtype=torch.bool) for n in names}
    other = mlp([4, 6, 2])
    for r in range(3):
        other.load_state_dict(before)
        own: dict[str, Any] = dict(other.named_parameters())
        steps = torch.optim.Adam(other.parameters(), 0.05)
        for _ in range(5):
            with torch.no_grad():
                for n in names:
                    own[n].mul_(masks[n])
            steps.zero_grad()
            F.cross_entropy(other(x), y).backward()
            for n in names:
                own[n].grad.mul_(masks[n])
            steps.step()
        with torch.no_grad():
            right = float((other(x).argmax(1) == y).double().mean())
        assert float(found.scores[r]) == right
        if r == 2:
            break
        sizes = torch.cat([(own[n].detach().abs() * masks[n]).flatten() for n in names])
        count = round(total * 0.25 ** ((r + 1) / 2))
        least = sizes.sort(descending=True).values[count - 1]
        masks = {n: (own[n].detach().abs() >= least) & masks[n] for n in names}
        for n in names:
            assert torch.equal(found.masks[r][n], masks[n])
        assert float(found.kept[r + 1]) == pytest.approx(count / total)
    for n in names:
        torch.testing.assert_close(found.model.get_parameter(n), other.get_parameter(n))
        assert torch.equal(found.start.get_parameter(n), before[n] * masks[n])
    assert torch.equal(found.start.get_parameter("0.bias"), before["0.bias"])


def test_rewinding_to_early_weights():
    model, (x, y) = mlp([4, 6, 2]), data()
    found = lottery_ticket(model, x, y, keep=0.5, rewind=2, **FEW)
    early = mlp([4, 6, 2])
    early.load_state_dict(model.state_dict())
    steps = torch.optim.Adam(early.parameters(), 0.01)
    for _ in range(2):
        steps.zero_grad()
        F.cross_entropy(early(x), y).backward()
        steps.step()
    mask = found.masks[-1]["0.weight"]
    wanted = early.get_parameter("0.weight").detach() * mask
    torch.testing.assert_close(found.start.get_parameter("0.weight").detach(), wanted)
    steps = torch.optim.Adam(early.parameters(), 0.01)
    for _ in range(3):  # the rest of five
        steps.zero_grad()
        F.cross_entropy(early(x), y).backward()
        steps.step()
    total: Any = early.get_parameter("2.weight").detach().abs().sum()
    size = lambda net: float(net.get_parameter("2.weight").detach().abs().sum())  # noqa: E731
    found = lottery_ticket(model, x, y, keep=0.5, rewind=2, score=size, **FEW)
    assert float(found.scores[0]) == pytest.approx(float(total), rel=1e-6)


def test_training_is_in_training_mode_and_scores_are_in_evaluation_mode():
    seen = []

    class Tells(nn.Module):
        def forward(self, x):
            seen.append(self.training)
            return x

    x, y = data()
    model = nn.Sequential(Tells(), nn.Linear(4, 2)).eval()
    lottery_ticket(model, x, y, keep=0.5, **FEW)
    assert seen == 5 * [*[True] * 5, False]  # the whole network, two tickets and two controls


def test_functions_that_are_given():
    model, (x, y) = mlp([4, 6, 2]), data()
    seen = []

    def early(net):
        with torch.no_grad():
            net[0].bias.fill_(7.0)

    def train(net):
        seen.append(int((net[0].weight != 0).sum()))
        with torch.no_grad():
            net[0].weight.add_(1.0)

    found = lottery_ticket(
        model, x, y, keep=0.25, prunings=1, prune=["0.weight"], train=train, rewind=early,
        score=lambda net: float(net.get_parameter("0.bias").detach().sum()),
    )  # fmt: skip
    assert seen == [24, 6, 6]
    assert found.scores.tolist() == [42.0, 42.0]
    kept = found.model.get_parameter("0.weight")
    assert int((kept != 0).sum()) == 6
    assert (found.start.get_parameter("0.bias") == 7).all()


def test_the_control_is_another_mask_of_the_same_size_on_the_same_first_weights():
    model, (x, y), seen = mlp([4, 30, 2]), data(), []
    own = {"prune": ["0.weight"], "train": lambda net: seen.append(net[0].weight.detach().clone())}
    found = lottery_ticket(model, x, y, keep=0.25, prunings=1, **own)
    _, ticket, control = seen
    first: Any = model.get_parameter("0.weight").detach()
    assert torch.equal(ticket, first * found.masks[0]["0.weight"])
    assert torch.equal(control, first * (control != 0))
    assert int((control != 0).sum()) == int((ticket != 0).sum()) == 30
    assert int(((control != 0) & (ticket != 0)).sum()) < 25  # 7.5 are expected


@pytest.mark.parametrize("make", [convolutional, Tied])
def test_any_module_is_left_as_it_was(make):
    model = make().double()
    x = inputs("convolutional" if make is convolutional else "tied", n=20)
    y, before = torch.arange(20) % 3, state(model)
    flags = [m.training for m in model.modules()]
    model.get_parameter(next(n for n, _ in model.named_parameters())).grad = None
    random = torch.get_rng_state()
    found = lottery_ticket(model, x, y, keep=0.3, batch=8, **FEW)
    assert torch.equal(random, torch.get_rng_state())
    assert same_state(model, before)
    assert [m.training for m in model.modules()] == flags
    assert [m.training for m in found.model.modules()] == flags
    assert [p.requires_grad for p in found.model.parameters()] == [
        p.requires_grad for p in model.parameters()
    ]
    for name, mask in found.masks[-1].items():
        assert (found.model.get_parameter(name).detach()[~mask] == 0).all()
    assert found.scores.isfinite().all()
    assert found.control_scores.isfinite().all()


def test_each_layer_keeps_its_share():
    model, (x, y) = mlp([4, 6, 2]), data()
    found = lottery_ticket(model, x, y, keep=0.5, scope="layer", **FEW)
    counts = {name: int(mask.sum()) for name, mask in found.masks[-1].items()}
    assert counts == {"0.weight": 12, "2.weight": 6}


def test_a_loader_and_other_examples_for_the_score():
    model, (x, y) = mlp([4, 6, 2]), data()
    loader = DataLoader(TensorDataset(x, y), batch_size=16)
    found = lottery_ticket(
        model, loader, test=(x, 1 - y), keep=0.9, eta=0.1, **FEW | {"updates": 30}
    )
    assert found.scores[0] < 0.2


X, Y = data()
BAD = {
    "keep": ({"keep": 1.0}, "keep must be < 1, got 1.0"),
    "nothing": ({"keep": 0.0}, "keep must be > 0, got 0.0"),
    "prunings": ({"prunings": 0}, "prunings must be >= 1, got 0"),
    "prune": ({"prune": ["3.weight"]}, r"prune must name parameters among \['0.weight', .*'3.wei"),
    "scope": ({"scope": "all"}, "scope must be one of 'global', 'layer', got 'all'"),
    "rewind": ({"rewind": -1}, "rewind must be >= 0, got -1"),
    "too late": ({"rewind": 300}, "rewind must be <= 299, got 300"),
    "both": ({"rewind": 3, "train": print}, "rewind must be a function where train is one, got"),
    "updates": ({"updates": 0}, "updates must be >= 1, got 0"),
    "eta": ({"eta": -1.0}, "eta must be > 0, got -1.0"),
    "batch": ({"batch": 0}, "batch must be >= 1, got 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_knobs(name):
    knobs, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        lottery_ticket(mlp([4, 6, 2]), X, Y, **knobs)


def test_bad_models_and_targets():
    with pytest.raises(ValueError, match="model must have parameters to prune, with two axes"):
        lottery_ticket(nn.BatchNorm1d(4), X, Y)
    with pytest.raises(ValueError, match="score must be given where targets are no classes, got"):
        lottery_ticket(mlp([4, 6, 2]), X, torch.randn(40, 2), updates=1)
    with pytest.raises(ValueError, match="x must be finite, got nan"):
        lottery_ticket(mlp([4, 6, 2]), X * math.nan, Y)
