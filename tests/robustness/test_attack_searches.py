"""What searches keep, where they begin again, what they leave alone and how often they ask."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from tests.robustness.attacked import ATTACKS, attack, examples, logits, network
from vademecum.robustness import deepfool, fgsm, pgd
from vademecum.robustness._logits import Classifier
from vademecum.robustness._threat import as_threat
from vademecum.robustness.attacks._campaign import Battle, Proposal
from vademecum.robustness.attacks._goals import Goal
from vademecum.robustness.attacks._kept import Kept
from vademecum.robustness.attacks.ensemble import _aim


def test_one_step_from_the_input_is_taken_and_what_is_wrong_stays():
    """Even if it lands behind the hill on which the input stands: so one step is `fgsm`."""

    class Hill(nn.Module):
        def forward(self, x):
            value = -(x - 0.51).square().sum(1)
            return torch.stack([torch.full_like(value, 50.0), value], 1)

    x, y = torch.full((3, 2), 0.5), torch.tensor([0, 1, 0])
    for norm in ("linf", "l2"):
        knobs = {"norm": norm, "radius": 0.4, "loss": "margin"}
        found = pgd(Hill(), x, y, steps=1, random_start=False, **knobs)
        torch.testing.assert_close(found.x, fgsm(Hill(), x, y, **knobs).x)
        assert (found.distance > 0).tolist() == [True, False, True]
        assert found.fooled.tolist() == [False, True, False]


def test_what_fools_is_kept_although_another_point_has_more_loss():
    x, y = torch.zeros(2, 3), torch.tensor([0, 0])
    threat = as_threat(x, "linf", 1.0, None)
    model: Any = nn.Identity()
    battle = Battle(model, x, Goal(y), threat, torch.Generator(), y, 2, None, None)
    kept = Kept(battle)
    spread, sharp = torch.tensor([[0.1, 0.0, 0.0]]), torch.tensor([[0.0, 0.5, -9.0]])
    for z, stays in ((spread.expand(2, 3), None), (torch.cat([sharp, spread]), [1])):
        value = Goal(y).loss(z, "ce")
        found = kept.note(z, z, value, Goal(y))
        assert (None if found is None else found.tolist()) == stays
    assert float(Goal(y[:1]).loss(sharp, "ce")) < float(Goal(y[:1]).loss(spread, "ce"))
    found = kept.proposal()
    assert found.fooled.tolist() == [True, False]
    assert torch.equal(found.x, torch.cat([sharp, spread]))


def test_restarts_begin_elsewhere_even_if_the_first_does_not():
    """At the bottom of a valley there is no direction; anywhere else there is."""

    class Valley(nn.Module):
        def forward(self, x):
            value = (x - 0.5).square().sum(1)
            return torch.stack([torch.full_like(value, 0.01), value], 1)

    x, y = torch.full((4, 3), 0.5), torch.zeros(4, dtype=torch.long)
    one, two = (
        pgd(Valley(), x, y, radius=0.2, random_start=False, restarts=restarts)
        for restarts in (1, 2)
    )
    assert not one.fooled.any()
    assert two.fooled.all()


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_who_leaves_takes_nothing_from_those_who_stay(norm):
    """Momentum and step size stay with their examples, whose radii differ."""
    net = network(torch.float64)
    x, y = examples(net, 12, dtype=torch.float64)
    radius = torch.linspace(0.02, 0.3, 12).double() * {"linf": 0.2, "l2": 2, "l1": 8}[norm]
    knobs = {"norm": norm, "steps": 6, "momentum": 0.9, "random_start": False}
    found = pgd(net, x, y, radius=radius, **knobs)
    assert 0 < int(found.fooled.sum()) < 12
    assert len(set(found.steps.tolist())) > 2
    for i in range(12):
        alone = pgd(net, x[i : i + 1], y[i : i + 1], radius=radius[i : i + 1], **knobs)
        torch.testing.assert_close(found.x[i : i + 1], alone.x, rtol=0, atol=1e-9)


def test_steps_in_l1_add_up_and_each_beginning_is_looked_at():
    model = nn.Linear(3, 2, bias=False)
    model.weight.data = torch.tensor([[1.0, 3.0, 2.0], [0.0, 0.0, 0.0]])
    x, y = torch.full((1, 3), 9.0), torch.tensor([0])
    knobs = {"norm": "l1", "radius": 1.0, "box": None, "steps": 4, "step_size": 0.25}
    found = pgd(model, x, y, loss="margin", random_start=False, **knobs)
    torch.testing.assert_close(found.x, torch.tensor([[9.0, 8.0, 9.0]]))
    for restarts, asked in ((1, 4), (2, 4 + 5)):  # the gradient at the input is known
        found = pgd(model, x, y, random_start=False, restarts=restarts, **knobs)
        assert found.queries.item() == 2 + asked


def test_examples_without_room_cost_one_question():
    net = network()
    x, y = examples(net, 6)
    radius = torch.tensor([0.0, 0.1, 0.0, 0.1, 0.0, 0.0])
    for name in ATTACKS:
        found = attack(name, net, x, y, "linf", radius=radius)
        assert found.queries[radius == 0].tolist() == [1] * 4
        assert not found.steps[radius == 0].any()
        assert torch.equal(found.x[radius == 0], x[radius == 0])
        assert found.steps[radius > 0].all()


def test_sparse_changes_grow_with_the_steps():
    """The first step of T takes a T-th part of the entries that may change."""
    model = nn.Linear(6, 2, bias=False)
    model.weight.data = torch.tensor([[1.0, 6.0, 2.0, 5.0, 3.0, 4.0], [0.0] * 6])
    x, y = torch.ones(1, 6), torch.tensor([0])  # 21, of which two entries take 22
    for steps, made, changed in ((1, 1, 4), (2, 1, 2), (4, 2, 2)):
        knobs = {"steps": steps, "loss": "margin", "box": (-1.0, 1.0)}
        found = pgd(model, x, y, norm="l0", radius=4, **knobs)
        assert found.fooled.all()
        assert (found.steps.item(), found.distance.item()) == (made, changed)
        assert found.x[0, 1] == found.x[0, 3] == -1


def test_sparse_steps_are_counted_for_those_that_are_left():
    model = nn.Linear(2, 2, bias=False)
    model.weight.data = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    x, y = torch.tensor([[0.5, 0.25], [1.0, 1.0]]), torch.tensor([0, 0])
    found = pgd(model, x, y, norm="l0", radius=1, steps=3, loss="margin", box=(-0.5, 1.0))
    assert found.fooled.tolist() == [True, False]
    assert found.steps.tolist() == [1, 3]
    assert found.queries.tolist() == [2 + 2, 2 + 4]


def test_examples_are_aimed_at_their_own_rivals_and_the_likeliest_counts():
    x, y = torch.tensor([[10.0, 0.0], [20.0, 0.0], [30.0, 0.0]]), torch.tensor([0, 1, 2])
    classes = torch.tensor([[1, 2, 3], [3, 2, 0], [0, 3, 1]])
    asked = []

    def search(battle):
        aim = battle.goal.aim
        asked.extend(zip(battle.x[:, 0].tolist(), aim.tolist(), strict=True))
        ones = torch.ones_like(aim)
        point = torch.stack([battle.x[:, 0], aim.float()], 1)
        return Proposal(point, ones, 2 * ones, aim != classes[battle.whose, 0])

    model: Any = nn.Identity()
    threat = as_threat(x, "linf", 1.0, None)
    battle = Battle(model, x, Goal(y), threat, torch.Generator(), y, 3, None, None)
    found = Proposal(x.clone(), torch.zeros(3).long(), torch.zeros(3).long(), torch.zeros(3) > 0)
    _aim(found, battle, search, classes)
    assert asked[:3] == [(10.0, 1), (20.0, 3), (30.0, 0)]
    assert sorted(asked[3:]) == [(10.0, 2), (10.0, 3), (20.0, 0), (20.0, 2), (30.0, 1), (30.0, 3)]
    assert torch.equal(found.x, torch.stack([x[:, 0], classes[:, 1].float()], 1))
    assert found.steps.tolist() == [3] * 3
    assert found.queries.tolist() == [6] * 3
    assert found.fooled.all()


def test_the_strongest_begins_with_cross_entropy():
    """What `apgd` fools by it comes back as `apgd` gives it; the others are tried further."""
    net = network()
    x, y = examples(net)
    first = attack("apgd", net, x, y, "linf", radius=0.02, steps=8)
    found = attack("auto_attack", net, x, y, "linf", radius=0.02)
    assert 0 < int(first.fooled.sum()) < len(x)
    assert torch.equal(found.x[first.fooled], first.x[first.fooled])
    assert torch.equal(found.queries[first.fooled], first.queries[first.fooled])
    survived = (
        ~found.fooled
    )  # once by cross-entropy, once aimed at each of four classes, then square
    assert int(survived.sum()) > 5
    assert set(found.steps[survived].tolist()) == {5 * 8 + 30}
    assert set(found.queries[survived].tolist()) == {2 + 5 * 9 + 31}


def test_sparse_attacks_take_what_the_box_leaves():
    model = nn.Linear(3, 2, bias=False)
    model.weight.data = torch.tensor([[3.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    x, y = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([0])
    found = pgd(model, x, y, norm="l0", radius=1, loss="margin")
    torch.testing.assert_close(found.x, torch.tensor([[0.1, 0.0, 0.5]]))  # 1.8, not 0.3
    assert not found.fooled
    assert pgd(model, x, y, norm="l0", radius=2).distance.item() == 2.0


@pytest.mark.parametrize("loss", ["ce", "margin", "dlr"])
def test_a_single_step_climbs_the_loss_that_it_is_told(loss):
    net = network(torch.float64).eval()
    x, y = examples(net, dtype=torch.float64)
    z = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(Goal(y).loss(net(z), loss).sum(), z)
    found = fgsm(net, x, y, norm="linf", radius=0.01, box=None, loss=loss)
    torch.testing.assert_close(found.x, x + 0.01 * slope.sign(), rtol=0, atol=1e-12)
    assert found.steps.tolist() == [1] * len(x)
    assert found.queries.tolist() == [2] * len(x)


def test_weights_that_are_computed_before_each_call_are_left_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older of torch's two ways, by a hook
        layer = nn.utils.weight_norm(nn.Conv2d(2, 4, 3))
    net = nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    x, y = examples(net)
    found = attack("pgd", net, x, y, "linf", radius=0.1)
    assert found.fooled.any()
    assert set(dict(layer.named_parameters())) == {"bias", "weight_g", "weight_v"}
    assert bool((logits(net, found.x).argmax(1) != y)[found.fooled].all())


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_what_left_as_fooled_is_fooled_when_asked_in_other_company(norm):
    """Kernels round otherwise for batches of other sizes: by 4 units of the logits' precision."""
    n = 40

    class Kernels(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network(k=3).eval()

        def forward(self, x):
            z = self.net(x)
            unit = torch.finfo(z.dtype).eps * z.detach().abs().amax(1)
            first = torch.tensor([1.0, 0.0, 0.0])
            return z + (4 if len(x) == n else -4) * unit[:, None] * first

    x = torch.rand(400, 2, 6, 6, generator=torch.Generator().manual_seed(3))
    model = Kernels()
    x = x[logits(model, x).argmax(1) == 0][:n]
    found = deepfool(model, x, torch.zeros(n, dtype=torch.long), norm=norm)
    assert len(x) == n
    assert bool(found.fooled.all())


def test_batches_are_filled_up_to_few_sizes_and_nothing_else_changes():
    net, sizes = network().eval(), list[int]()
    x = torch.rand(37, 2, 6, 6, generator=torch.Generator().manual_seed(3))
    net.register_forward_hook(lambda module, given, out: sizes.append(len(given[0])))
    filled, plain = Classifier(net, rungs=True), Classifier(net)
    for n, size in ((37, 37), (36, 37), (33, 37), (32, 32), (29, 32), (18, 20), (9, 10), (7, 7)):
        one, other = (f.gradient(x[:n], lambda z: z.square().sum(1)) for f in (filled, plain))
        assert sizes[-2:] == [size, n]
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(filled(x[:n]), plain(x[:n]))


def test_what_fills_a_batch_adds_nothing_to_a_gradient():
    """Not even where a derivative is infinite, and infinity times 0 is not a number."""

    class Root(nn.Module):
        def forward(self, x):
            return torch.stack([x[:, 0] + x.sum(1).sqrt(), x[:, 1]], 1)

    x = torch.zeros(12, 2)
    filled = Classifier(Root(), rungs=True)
    filled(x)
    *_, slope = filled.gradient(x[:9], lambda z: z[:, 0])
    assert bool((slope == torch.finfo(torch.float32).max).all())
