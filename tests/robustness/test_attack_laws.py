"""Laws that every attack keeps: honest distances and successes, models and neighbours untouched."""

import copy
import types
from functools import partial

import pytest
import torch
from torch import nn

from tests.robustness.attacked import ATTACKS, CASES, RADIUS, attack, examples, logits, network
from vademecum.robustness._logits import as_classifier, rounding_gap
from vademecum.testing import check_instrument

DTYPES = [torch.float32, torch.float64]


def away(x0, x, norm):
    gap = (x.double() - x0.double()).abs().flatten(1)
    if norm == "l0":
        return (gap > 0).sum(1).double()
    return {"linf": gap.amax(1), "l2": gap.square().sum(1).sqrt(), "l1": gap.sum(1)}[norm]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "norm"), CASES)
def test_results_keep_to_radius_and_box_and_fool_when_asked_again(name, norm, dtype):
    net = network(dtype)
    x, y = examples(net, dtype=dtype)
    x[0].clamp_(0.0, 0.0)  # examples at the edge of the box
    x[1].clamp_(1.0, 1.0)
    y = logits(net, x).argmax(1)
    factors = torch.linspace(0, 2, len(x), dtype=torch.float64)
    radius = (RADIUS[norm] * factors).round() if norm == "l0" else RADIUS[norm] * factors
    for r in (RADIUS[norm], radius):
        found = attack(name, net, x, y, norm, radius=r)
        limit = torch.as_tensor(r, dtype=torch.float64)
        assert bool((away(x, found.x, norm) <= limit).all())
        torch.testing.assert_close(found.distance, away(x, found.x, norm), rtol=1e-14, atol=0)
        assert float(found.x.min()) >= 0
        assert float(found.x.max()) <= 1
        assert found.x.dtype == dtype
        z = logits(net, found.x)
        wrong = z.argmax(1) != y
        assert bool((wrong | ~found.fooled).all())
        top = z.topk(2, dim=1).values
        clear = (top[:, 0] - top[:, 1]) > 3 * rounding_gap(z)
        assert torch.equal((wrong & clear)[clear], found.fooled[clear])
        one_by_one = torch.cat([logits(net, row[None]) for row in found.x])
        assert bool((one_by_one.argmax(1) != y)[found.fooled].all())
    assert 0 < int(found.fooled.sum()) < len(x)  # neither trivial nor hopeless


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_examples_do_not_influence_each_other(name, norm):
    """Other neighbours, of which all are fooled at once, change nothing."""
    net = network(torch.float64)
    x, y = examples(net, dtype=torch.float64)
    found = attack(name, net, x, y, norm)
    others = x.clone()
    others[1::2] = torch.rand_like(x[1::2])
    labels = y.clone()
    labels[1::2] = (logits(net, others).argmax(1)[1::2] + 1) % 5
    again = attack(name, net, others, labels, norm)
    torch.testing.assert_close(again.x[::2], found.x[::2], rtol=0, atol=1e-9)
    assert torch.equal(again.fooled[::2], found.fooled[::2])
    assert torch.equal(again.queries[::2], found.queries[::2])
    assert torch.equal(again.steps[::2], found.steps[::2])


@pytest.mark.parametrize(("name", "norm"), [("fgsm", "linf"), ("deepfool", "l2"), ("pgd", "l0")])
def test_a_batch_is_its_examples_one_by_one(name, norm):
    net = network(torch.float64)
    x, y = examples(net, 8, dtype=torch.float64)
    found = attack(name, net, x, y, norm)
    for i in range(8):
        one = attack(name, net, x[i : i + 1], y[i : i + 1], norm)
        torch.testing.assert_close(one.x[0], found.x[i], rtol=0, atol=1e-9)
        assert int(one.queries) == int(found.queries[i])


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_models_are_left_as_they_were(name, norm):
    net = network().train()
    net[0].weight.grad = torch.ones_like(net[0].weight)
    net[6].bias.requires_grad_(False)
    x, y = examples(net, 8)
    before = copy.deepcopy(net.state_dict())
    ids = [id(p) for p in net.parameters()]
    kept = x.clone()
    attack(name, net, x, y, norm)
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), net.state_dict().values(), strict=True)
    )
    assert ids == [id(p) for p in net.parameters()]
    assert all(m.training for m in net.modules())
    assert [p.requires_grad for p in net.parameters()].count(False) == 1
    assert torch.equal(net[0].weight.grad, torch.ones_like(net[0].weight))
    assert net[-1].weight.grad is None
    assert torch.equal(x, kept)
    assert not x.requires_grad


@pytest.mark.filterwarnings("ignore:loss 'dlr'")
@pytest.mark.parametrize("name", ATTACKS)
def test_the_laws_of_instruments(name):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    x = torch.rand(6, 4)

    def measure(model, x):
        y = torch.zeros(len(x), dtype=torch.long)
        return attack(name, model, x, y, "linf", radius=0.05).distance

    check_instrument(measure, net, x, outputs=3)


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_what_is_wrong_already_stays_as_it_is(name, norm):
    net = network()
    x, y = examples(net, 10)
    y[:5] = (y[:5] + 1) % 5
    found = attack(name, net, x, y, norm)
    assert bool(found.fooled[:5].all())
    assert torch.equal(found.x[:5], x[:5])
    assert found.distance[:5].tolist() == [0.0] * 5
    assert found.steps[:5].tolist() == [0] * 5
    assert found.queries[:5].tolist() == [1] * 5
    again = attack(name, net, x[:5], y[:5], norm)  # nobody is left to attack
    assert torch.equal(again.x, x[:5])


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_targets_are_reached_or_not_counted(name, norm):
    net = network()
    x, y = examples(net)
    target = (y + 2) % 5
    radius = 20 if norm == "l0" else 5 * RADIUS[norm]
    found = attack(name, net, x, y, norm, target=target, radius=radius)
    there = logits(net, found.x).argmax(1) == target
    assert torch.equal(there, found.fooled)
    assert int(there.sum()) >= 2
    target[0] = y[0]
    with pytest.raises(ValueError, match=r"target must differ from y, got \d for both at 0"):
        attack(name, net, x, y, norm, target=target)


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_preprocessing_is_a_part_of_the_model(name, norm):
    """Radius and box are those of the inputs, whatever scale the model sees."""
    net = network(torch.float64)
    x, y = examples(net, dtype=torch.float64)
    mean, std = 0.4, 0.25

    class Raw(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x * std + mean)

    class Normalise(nn.Module):
        def forward(self, x):
            return (x - mean) / std

    plain = attack(name, net, x, y, norm)
    for before in (lambda x: (x - mean) / std, Normalise()):
        found = attack(name, Raw(), x, y, norm, preprocess=before)
        torch.testing.assert_close(found.x, plain.x, rtol=0, atol=1e-7)
    with pytest.raises(ValueError, match=r"x must lie in box, from 0 to 1, got entries from -1\."):
        attack(name, Raw(), (x - mean) / std, y, norm)


@pytest.mark.parametrize("norm", ["linf", "l2", "l0"])
def test_results_on_the_grid_still_fool(norm):
    net = network()
    x, _ = examples(net)
    x = (x * 255).round() / 255
    y = logits(net, x).argmax(1)
    for name in ("pgd",) if norm == "l0" else ATTACKS:
        radius = RADIUS[norm] * (1 if norm == "l0" else 1.01)
        found = attack(name, net, x, y, norm, radius=radius, quantum=1 / 255)
        stored = (found.x * 255).round().to(torch.uint8)
        assert torch.equal(stored.float() / 255, found.x)
        again = logits(net, stored.float() / 255).argmax(1) != y
        assert bool(again[found.fooled].all())
        assert bool((away(x, found.x, norm) <= radius).all())
        free = attack(name, net, x, y, norm, radius=radius)
        assert int(found.fooled.sum()) >= int(free.fooled.sum()) - 3
    with pytest.raises(ValueError, match="x must lie on the grid"):
        attack("pgd", net, x + 0.001 * (1 - x), y, norm, quantum=1 / 255)


@pytest.mark.parametrize("name", ATTACKS)
def test_memory_takes_the_batch_apart(name):
    net = network(torch.float64)
    x, y = examples(net, 12, dtype=torch.float64)
    whole = attack(name, net, x, y, "linf")
    seen = []
    before = lambda x: (seen.append(len(x)), x)[1]  # noqa: E731
    found = attack(name, net, x, y, "linf", memory=120_000, preprocess=before)
    assert max(seen[-len(seen) // 2 :]) < 12
    if name in ("fgsm", "deepfool"):
        torch.testing.assert_close(found.x, whole.x)
    assert abs(int(found.fooled.sum()) - int(whole.fooled.sum())) <= 2
    with pytest.raises(ValueError, match=r"memory must be >= \d+ bytes for one example, got 10"):
        attack(name, net, x, y, "linf", memory=10)


def test_fooled_examples_leave_the_batch():
    net = network()
    x, y = examples(net)
    seen = []
    before = lambda x: (seen.append(len(x)), x)[1]  # noqa: E731
    found = attack("pgd", net, x, y, "l2", radius=0.5, preprocess=before)
    looks = [3, 2, 2, len(x), 1, 1]  # at a few, and at both ends of all by themselves
    assert seen[: len(looks)] == looks
    sizes = seen[len(looks) : -1]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < len(x)
    assert len(x) + sum(seen[len(looks) :]) == int(found.queries.sum())


def test_outputs_with_logits_and_without_grad_mode():
    net = network()
    x, y = examples(net)

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, pixels):
            return types.SimpleNamespace(logits=self.net(pixels), loss=None)

    plain = attack("pgd", net, x, y, "linf")
    with torch.no_grad():
        torch.testing.assert_close(attack("pgd", Wrapped(), x, y, "linf").x, plain.x)
    with torch.inference_mode():
        torch.testing.assert_close(attack("pgd", net, x, y, "linf").x, plain.x)


def test_strides_and_layers_of_ones_own_change_nothing():
    """A model that takes tensors apart by `view` is not given channels in another order."""
    net = network(torch.float64)

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            features = self.net[:4](x)
            return self.net[5:](features.view(len(x), -1))

    x, y = examples(net, dtype=torch.float64)
    other = attack("pgd", Own(), x, y, "linf")
    for wide in (x, x.to(memory_format=torch.channels_last)):
        torch.testing.assert_close(
            attack("pgd", net, wide, y, "linf").x, other.x, rtol=0, atol=1e-9
        )


def test_buffers_that_count_calls_are_given_back():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.linear = nn.Linear(3, 2)

        def forward(self, x):
            self.calls += 1
            return self.linear(x)

    net = Counting()
    attack("pgd", net, torch.rand(4, 3), torch.zeros(4, dtype=torch.long), "linf")
    assert float(net.calls) == 0


def test_a_classifier_counts_no_gradient_of_its_weights():
    net = network()
    x, y = examples(net, 4)
    with as_classifier(net, x, y) as f:
        z, value, gradient = f.gradient(
            x, partial(torch.nn.functional.cross_entropy, target=y, reduction="none")
        )
    x.requires_grad_()
    loss = torch.nn.functional.cross_entropy(net.eval()(x), y, reduction="none")
    torch.testing.assert_close(value, loss.detach())
    (wanted,) = torch.autograd.grad(loss.sum(), x)
    torch.testing.assert_close(gradient, wanted)
    torch.testing.assert_close(z, net(x).detach())
