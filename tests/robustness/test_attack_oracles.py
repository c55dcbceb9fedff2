"""Attacks against closed forms of linear models, dense loops and each other."""

import math
import warnings
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from tests.robustness.attacked import ATTACKS, attack, examples, logits, network
from vademecum.robustness import apgd, auto_attack, deepfool, fgsm, linear_radius, pgd
from vademecum.robustness.attacks._goals import Goal
from vademecum.robustness.attacks.adaptive_ascent import checkpoints


def linear(k: int = 3, d: int = 6, n: int = 30) -> tuple[nn.Linear, Tensor, Tensor]:
    """A linear model in double precision, and points that it has right."""
    model, x = nn.Linear(d, k).double(), torch.randn(n, d, dtype=torch.float64)
    return model, x, model(x).argmax(1)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_linear_models_fall_exactly_at_their_radius(norm):
    """With two classes the boundary is a plane: attacks win just beyond it and never before."""
    model, x, y = linear(2, n=20)
    exact = linear_radius(model.weight.detach(), model.bias.detach(), x, norm=norm)
    knobs = {"norm": norm, "box": None, "loss": "margin"}
    for name in ("fgsm", "pgd", "apgd"):
        if norm == "l1" and name == "apgd":
            continue  # whose steps have several entries
        more = {"steps": 60, "random_start": False} if name == "pgd" else {}
        more = {"steps": 60} if name == "apgd" else more
        f = {"fgsm": fgsm, "pgd": pgd, "apgd": apgd}[name]
        assert not f(model, x, y, radius=exact * (1 - 1e-9), **knobs, **more).fooled.any()
        margin = 1e-9 if name == "fgsm" else 1e-3
        assert f(model, x, y, radius=exact * (1 + margin), **knobs, **more).fooled.all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_deepfool_is_exact_on_linear_models(norm):
    model, x, y = linear(5)
    exact = linear_radius(model.weight.detach(), model.bias.detach(), x, norm=norm)
    for overshoot in (0.0, 0.02, 0.5):
        found = deepfool(model, x, y, norm=norm, box=None, overshoot=overshoot)
        assert found.fooled.all()
        torch.testing.assert_close(found.distance, (1 + overshoot) * exact, rtol=1e-9, atol=1e-9)
        assert found.steps.tolist() == [1] * len(x)
    for part, wins in ((0.99, False), (1.01, True)):  # cut back to the radius, and asked again
        short = deepfool(model, x, y, norm=norm, box=None, radius=part * exact, overshoot=0.02)
        assert short.fooled.tolist() == [wins] * len(x)
        assert bool((short.distance <= part * exact).all())
    two = deepfool(model, x, y, norm=norm, box=None, candidates=2)
    assert bool((two.distance >= found.distance / 1.5 - 1e-9).all())
    assert bool((two.distance > 1.05 * exact).any())
    target = (y + 1) % 5
    aimed = deepfool(model, x, y, norm=norm, box=None, target=target)
    assert bool((model(aimed.x).argmax(1) == target).all())
    assert aimed.fooled.all()


def test_deepfool_steps_over_the_boundary_of_networks():
    """Half of the results of a known implementation are not adversarial; ours all are."""
    for dtype in (torch.float32, torch.float64):
        net = network(dtype)
        x, y = examples(net, dtype=dtype)
        for norm in ("l2", "linf"):
            found = attack("deepfool", net, x, y, norm, radius=None)
            assert bool((logits(net, found.x).argmax(1) != y).all())
            assert found.fooled.all()
            top, clean = logits(net, found.x).topk(2).values, logits(net, x).topk(2).values
            ratio = (top[:, 0] - top[:, 1]) / (clean[:, 0] - clean[:, 1])
            assert float(ratio.median()) < 0.05
            none = attack("deepfool", net, x, y, norm, radius=None, overshoot=0.0)
            assert none.fooled.all()
            assert float(none.distance.median()) <= float(found.distance.median())


def test_pgd_is_its_iteration():
    """With momentum, for both norms and a box, against the lines of the docstring."""
    net = network(torch.float64)
    x, _ = examples(net, dtype=torch.float64)
    with torch.no_grad():
        net[-1].bias[0] += 1e3  # nothing is fooled
    y = torch.zeros(len(x), dtype=torch.long)
    for norm, momentum in product(("linf", "l2"), (0.0, 0.7)):
        radius, alpha = (0.05, 0.02) if norm == "linf" else (0.4, 0.15)
        z, v, path = x.clone(), torch.zeros_like(x), []
        for _ in range(5):
            z.requires_grad_()
            (g,) = torch.autograd.grad(Goal(y).loss(net.eval()(z), "margin").sum(), z)
            v = momentum * v + g / g.abs().flatten(1).sum(1).view(-1, 1, 1, 1)
            step = v.sign() if norm == "linf" else v / v.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
            w = (z.detach() + alpha * step) - x
            if norm == "linf":
                z = (x + w.clamp(-radius, radius)).clamp(0, 1)
            else:
                z = nearest_by_bisection(x, w, radius)
            path.append(z)
        values = torch.stack([Goal(y).margin(net(z)) for z in path])
        wanted = torch.stack(path)[values.argmax(0), torch.arange(len(x))]
        found = pgd(net, x, y, norm=norm, radius=radius, steps=5, step_size=alpha, loss="margin",
                    momentum=momentum, random_start=False)  # fmt: skip
        torch.testing.assert_close(found.x, wanted, rtol=0, atol=1e-8)
        assert found.steps.tolist() == [5] * len(x)


def nearest_by_bisection(x: Tensor, v: Tensor, radius: float) -> Tensor:
    """The nearest point of ball and box: clip(x + s v) with the largest s that stays inside."""
    low, high = torch.zeros(len(x), 1, 1, 1).double(), torch.ones(len(x), 1, 1, 1).double()
    size = lambda s: ((x + s * v).clamp(0, 1) - x).flatten(1).norm(dim=1).view(-1, 1, 1, 1)  # noqa: E731
    low = torch.where(size(high) <= radius, high, low)
    for _ in range(60):
        middle = (low + high) / 2
        inside = size(middle) <= radius
        low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
    return (x + low * v).clamp(0, 1)


def test_default_steps_cover_the_ball_and_restarts_help():
    net = network()
    x, y = examples(net)
    plain = pgd(net, x, y, norm="linf", radius=0.03, generator=torch.Generator().manual_seed(0))
    same = pgd(net, x, y, norm="linf", radius=0.03, step_size=2.5 * 0.03 / 40,
               generator=torch.Generator().manual_seed(0))  # fmt: skip
    torch.testing.assert_close(plain.x, same.x)
    one, many = (
        pgd(net, x, y, norm="linf", radius=0.02, steps=2, restarts=r, random_start=False)
        for r in (1, 8)
    )
    assert bool((many.fooled | ~one.fooled).all())
    assert int(many.queries.max()) > 3 * int(one.queries.max())


def test_kept_best_never_falls():
    net = network(torch.float64)
    x, y = examples(net, dtype=torch.float64)
    with torch.no_grad():
        net[-1].bias.add_(torch.nn.functional.one_hot(y, 5).double().mean(0))
    best = torch.full((len(x),), -math.inf, dtype=torch.float64)
    for steps in range(1, 8):
        found = pgd(net, x, y, norm="l2", radius=0.2, steps=steps, step_size=0.2,
                    random_start=False)  # fmt: skip
        value = Goal(y).loss(logits(net, found.x), "ce")
        stays = ~found.fooled
        assert bool((value[stays] >= best[stays] - 1e-12).all())
        best = torch.where(stays, value, best)


def dense_loss(z: Tensor, y: int, kind: str, target: int | None) -> float:
    """The losses of one example, from their definitions."""
    values = z.tolist()
    order = sorted(values, reverse=True)
    others = [v for j, v in enumerate(values) if j != (y if target is None else target)]
    if kind == "ce":
        label = y if target is None else target
        ce = math.log(sum(math.exp(v) for v in values)) - values[label]
        return ce if target is None else -ce
    if kind == "margin":
        return max(others) - values[y] if target is None else values[target] - max(others)
    if target is None:
        return (max(others) - values[y]) / (order[0] - order[2])
    return (values[target] - values[y]) / (order[0] - (order[2] + order[3]) / 2)


@pytest.mark.parametrize("kind", ["ce", "margin", "dlr"])
@pytest.mark.parametrize("targeted", [False, True])
def test_losses_are_their_definitions(kind, targeted):
    z = 3 * torch.randn(40, 6, dtype=torch.float64)
    y = torch.randint(0, 6, (40,))
    t = (y + torch.randint(1, 6, (40,))) % 6
    goal = Goal(y, t) if targeted else Goal(y)
    wanted = [dense_loss(z[i], int(y[i]), kind, int(t[i]) if targeted else None) for i in range(40)]
    torch.testing.assert_close(goal.loss(z, kind), torch.tensor(wanted, dtype=torch.float64))
    if targeted:  # aiming at a class without insisting on it
        aimed = Goal(y, None, t)
        torch.testing.assert_close(aimed.loss(z, kind), goal.loss(z, kind))
        torch.testing.assert_close(aimed.margin(z), Goal(y).margin(z))


def test_a_tie_does_not_count_as_fooled():
    z = torch.tensor([[1.0, 1.0], [1.0, 1.0 + 1e-6], [1.0, 1.001], [2.0, 1.0]])
    assert Goal(torch.zeros(4, dtype=torch.long)).reached(z).tolist() == [False, False, True, False]
    tied = nn.Linear(2, 2, bias=False)
    nn.init.ones_(tied.weight)
    found = fgsm(tied, torch.rand(3, 2), torch.tensor([0, 1, 0]), radius=0.1)
    assert not found.fooled.any()


@pytest.mark.parametrize(("k", "targeted", "least"), [(2, False, 3), (3, True, 4)])
def test_too_few_classes_for_the_ratio_are_told(k, targeted, least):
    """An index error elsewhere; here the margin, with a warning."""
    model, x, y = linear(k)
    target = (y + 1) % k if targeted else None
    for f in (pgd, apgd):
        with pytest.warns(UserWarning, match=f"needs {least} classes and model has {k}: 'margin'"):
            found = f(model, x, y, norm="l2", radius=0.5, box=None, loss="dlr", target=target,
                      steps=5, generator=torch.Generator().manual_seed(0))  # fmt: skip
        plain = f(model, x, y, norm="l2", radius=0.5, box=None, loss="margin", target=target,
                  steps=5, generator=torch.Generator().manual_seed(0))  # fmt: skip
        assert torch.equal(found.x, plain.x)
    with pytest.warns(UserWarning, match="needs 4 classes"):
        auto_attack(model, x, y, norm="l2", radius=0.1, box=None, steps=2, square_steps=2)
    model, x, y = linear(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        auto_attack(model, x, y, norm="l2", radius=0.1, box=None, steps=2, square_steps=2)


def test_checkpoints_shrink():
    """The published ones: 22, 41, 57, ... hundredths, never less than 6 apart."""
    assert checkpoints(100)[:5] == [22, 41, 57, 70, 80]
    gaps = [b - a for a, b in zip(checkpoints(1000)[:-1], checkpoints(1000)[1:], strict=True)]
    assert min(gaps) == 60
    assert gaps == sorted(gaps, reverse=True)
    assert checkpoints(3) == [1, 2, 2, 3, 3, 3, 3, 3]


def test_apgd_halves_its_step_where_it_is_too_long():
    """A step of twice the radius jumps to and fro over a hill; only halving gets to the top."""

    class Ridge(nn.Module):
        def forward(self, x):
            value = -(x - torch.tensor([0.213, -0.117])).square().sum(1)
            return torch.stack([torch.full_like(value, 50.0), value], 1)

    x, y = torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)
    knobs = {"norm": "linf", "radius": 1.0, "box": None, "loss": "margin"}
    found = apgd(Ridge(), x, y, steps=100, **knobs)
    assert float(Ridge()(found.x)[:, 1].min()) > -1e-3
    few = apgd(Ridge(), x, y, steps=4, **knobs)
    assert float(Ridge()(few.x)[:, 1].min()) < -1e-3


def test_apgd_and_auto_attack_beat_the_others():
    worse = 0
    for seed in range(4):
        net = network(seed=seed)
        x, y = examples(net, 40)
        share = {
            name: int(attack(name, net, x, y, "linf", radius=0.02, **more).fooled.sum())
            for name, more in {
                "fgsm": {}, "pgd": {}, "apgd": {}, "square": {"steps": 200},
                "auto_attack": {"steps": 25},
            }.items()
        }  # fmt: skip
        assert share["auto_attack"] >= max(share.values())
        assert share["apgd"] >= share["fgsm"]
        assert share["square"] > 0
        worse += share["apgd"] < share["pgd"]
    assert worse <= 1


def test_attacks_agree_across_memory_formats_and_radii_of_zero():
    net = network()
    x, y = examples(net, 6)
    for name in ATTACKS:
        found = attack(name, net, x, y, "linf", radius=0.0)
        assert torch.equal(found.x, x)
        assert not found.fooled.any()


def test_one_example_and_models_without_parameters():
    x, y = torch.tensor([[0.6, 0.5, 0.1, 0.2]]), torch.tensor([0])
    for name in ATTACKS:
        found = attack(name, nn.Identity(), x, y, "linf", radius=0.1)
        assert bool(found.fooled)
        assert repr(found).count("\n") == 0


@pytest.mark.gpu
def test_attacks_on_a_gpu():
    net = network().cuda()
    x, y = (t.cuda() for t in examples(network()))
    for name in ATTACKS:
        found = ATTACKS[name](net, x, y, norm="linf", radius=8 / 255)
        assert found.x.device == x.device
        assert float(found.distance.max()) <= 8 / 255
        assert bool((net.eval()(found.x).argmax(1) != y)[found.fooled].all())
