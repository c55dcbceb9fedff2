"""Aligned networks: permutations that were made are found again, and trained networks meet."""

from itertools import permutations, product

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.generalization.landscape_models import (
    MODELS,
    convolutional,
    digits,
    inputs,
    same_state,
    seeded,
    state,
    trained,
)
from vademecum.generalization import align
from vademecum.generalization.alignment._assignments import reordered
from vademecum.generalization.alignment._correlations import _Moments
from vademecum.models import evaluation, mlp
from vademecum.regularization import permute_units


@pytest.mark.parametrize("by", ["weights", "activations"])
@pytest.mark.parametrize("name", MODELS)
def test_align_finds_a_permutation_again(name, by):
    a, x = seeded(MODELS[name][0], 1).double(), inputs(name, n=40)
    for m in a.modules():  # units that never fire have no correlation
        if isinstance(m, nn.Linear | nn.Conv2d) and m.bias is not None:
            nn.init.constant_(m.bias, 0.3)
    change = permute_units(a, x[:1], generator=torch.Generator().manual_seed(4))
    b = change.model
    kept = [state(m) for m in (a, b)]
    found = align(a, b, x, by=by)
    for layer, order in change.layers.items():
        assert torch.equal(order[found.permutations[layer]], torch.arange(len(order)))
    assert all(same_state(m, before) for m, before in zip((a, b), kept, strict=True))
    assert same_state(found.model, kept[0])
    assert found.distance == 0 < found.distance_before
    assert found.converged
    assert found.left == change.left


def gap(one, other):
    """The distance of all parameters."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return float(torch.stack([(p - q).detach().square().sum() for p, q in pairs]).sum().sqrt())


@pytest.mark.parametrize("name", MODELS)
def test_the_aligned_copy_is_the_same_function(name):
    a, b = (seeded(MODELS[name][0], seed).double() for seed in (1, 2))
    x = inputs(name)
    found = align(a, b, x)
    with evaluation(b), evaluation(found.model), torch.no_grad():
        torch.testing.assert_close(found.model(x), b(x), rtol=1e-9, atol=1e-11)
    assert found.distance == pytest.approx(gap(a, found.model), rel=1e-9)
    assert found.distance_before == pytest.approx(gap(a, b), rel=1e-9)
    assert found.distance < found.distance_before


def test_no_better_order_of_one_layer_is_overlooked():
    """Against all orders of two layers: what is found is a minimum in each, and near the least."""
    a, b = (seeded(lambda: mlp([3, 4, 3, 2]), seed) for seed in (1, 2))
    x = torch.ones(1, 3)
    ours = [p.detach() for p in a.parameters()]
    W, c, V, d, U, e = (p.detach() for p in b.parameters())

    def distance(one, two):
        p, q = list(one), list(two)
        moved = W[p], c[p], V[q][:, p], d[q], U[:, q], e
        return float(sum((s - t).square().sum() for s, t in zip(ours, moved, strict=True))) ** 0.5

    found = align(a, b, x)
    one, two = (tuple(found.permutations[layer].tolist()) for layer in ("0", "2"))
    every = {
        (p, q): distance(p, q) for p, q in product(permutations(range(4)), permutations(range(3)))
    }
    assert found.distance == pytest.approx(every[one, two], rel=1e-5)
    assert found.distance <= min(every[p, two] for p in permutations(range(4))) + 1e-5
    assert found.distance <= min(every[one, q] for q in permutations(range(3))) + 1e-5
    assert found.distance <= sorted(every.values())[len(every) // 10]


def test_activations_by_hand():
    """Two units whose activations are each other's."""
    a = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh(), nn.Linear(2, 1))
    b = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh(), nn.Linear(2, 1))
    a[0].weight.data = torch.eye(2)
    b[0].weight.data = torch.tensor([[0.1, 30.0], [30.0, 0.1]])
    found = align(a, b, torch.randn(50, 2), by="activations")
    assert found.permutations["0"].tolist() == [1, 0]


def test_batches_of_a_loader_count_together():
    a, b = (seeded(convolutional, seed).double() for seed in (1, 2))
    x = inputs("convolutional", n=60)
    one = align(a, b, x, by="activations")
    other = align(a, b, DataLoader(TensorDataset(x), batch_size=13), by="activations")
    for layer, order in one.permutations.items():
        assert torch.equal(order, other.permutations[layer])


def test_correlations_over_batches_with_other_means():
    """Those of all examples together, by `torch.corrcoef`; a constant unit has none."""
    one, other = torch.randn(3, 40).double(), torch.randn(2, 40).double()
    one[:, 25:] += 5
    other[:, 25:] -= torch.tensor([[3.0], [0.0]])
    moments = _Moments()
    for part in (slice(0, 25), slice(25, 40)):
        moments.add(one[:, part], other[:, part])
    wanted = torch.corrcoef(torch.cat([one, other]))[:3, 3:]
    torch.testing.assert_close(moments.correlation(), wanted)
    moments = _Moments()
    moments.add(torch.ones(1, 5), torch.randn(2, 5))
    assert (moments.correlation() == 0).all()


@pytest.fixture(scope="module")
def pair():
    x, y = digits()
    return x, y, trained(0, 128, 3, x, y), trained(1, 128, 3, x, y)


def barrier(a, b, x, y):
    """By hand: the most that the loss climbs above the line between the ends."""
    t = torch.linspace(0, 1, 11)
    losses = []
    other = mlp([x.shape[1], *[128] * 3, 10])
    with torch.no_grad():
        for s in t:
            for p, u, v in zip(other.parameters(), a.parameters(), b.parameters(), strict=True):
                p.copy_((1 - s) * u + s * v)
            losses.append(F.cross_entropy(other(x), y))
    losses = torch.stack(losses)
    return float((losses - (1 - t) * losses[0] - t * losses[-1]).max())


@pytest.mark.parametrize("by", ["weights", "activations"])
def test_the_barrier_between_trained_networks_falls_to_a_fifth(pair, by):
    x, y, a, b = pair
    before = barrier(a, b, x, y)
    assert before > 0.5
    assert barrier(a, align(a, b, x, by=by).model, x, y) < before / 5


class Twisted(nn.Module):
    """The same parameters as an MLP, used in another order of calls."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 2)
        self.late = False

    def forward(self, x):
        h = self.one(x)
        return self.two(h.tanh() if self.late else h.relu())


def late():
    model = Twisted()
    model.late = True
    return model


def not_finite():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    nn.init.constant_(model.get_parameter("0.bias"), float("inf"))
    return model


def plain():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


X = torch.ones(2, 3)
BAD = {
    "another width": (plain(), nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)), X,
                      r"b must be like a, got 0\.weight with \(5, 3\)"),
    "another depth": (plain(), nn.Sequential(nn.Linear(3, 4)), X,
                      r"b must have the parameters of a, not so: \['2\.bias', '2\.weight'\]"),
    "another dtype": (plain(), plain().double(), X, "b must be like a, got 0.weight with"),
    "another function": (Twisted(), late(), X, "b must compute as a does, got another sequence"),
    "not finite": (plain(), not_finite(), X, "b must have finite parameters, and 0.bias has"),
    "no hidden layer": (nn.Linear(3, 2), nn.Linear(3, 2), X,
                        "a must have units that can be permuted, got none .*outputs of the model"),
    "NaN": (plain(), plain(), torch.full((2, 3), float("nan")), "x must be finite, got nan"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_aligned(name):
    a, b, x, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        align(a, b, x)


def test_bad_knobs():
    with pytest.raises(ValueError, match="by must be one of 'weights', 'activations', got 'luck'"):
        align(plain(), plain(), X, by="luck")
    with pytest.raises(ValueError, match="max_iter must be >= 1, got 0"):
        align(plain(), plain(), X, max_iter=0)


def test_too_few_turns_warn(pair):
    x, _, a, b = pair
    with pytest.warns(ConvergenceWarning, match="max_iter=1 reached with units that would still"):
        found = align(a, b, x, max_iter=1)
    assert not found.converged
    assert found.assignments < align(a, b, x).assignments


def test_units_with_several_entries_in_a_row_move_together():
    """As the channels of a convolution do behind a flattening."""
    row = torch.arange(6.0)[None]
    found = reordered(row, 1, 2, torch.tensor([2, 0, 1]))
    assert found.tolist() == [[4.0, 5.0, 0.0, 1.0, 2.0, 3.0]]
    order = torch.tensor([5, 0, 4, 1, 3, 2])
    assert reordered(row.T, 0, 1, order)[:, 0].tolist() == order.tolist()


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_activations_count_wherever_units_are_seen(order):
    """Functions of one input are all alike before a ReLU, and differ behind it."""
    x, model = torch.linspace(-1, 1, 21)[:, None], mlp([1, 3, 1])
    own = dict(model.named_parameters())
    own["0.weight"].data.fill_(1.0)
    own["0.bias"].data = torch.tensor([0.5, 0.0, -0.5])
    change = permute_units(model, x, permutations={"0": torch.tensor(order)})
    found = align(model, change.model, x, by="activations")
    assert torch.tensor(order)[found.permutations["0"]].tolist() == [0, 1, 2]
