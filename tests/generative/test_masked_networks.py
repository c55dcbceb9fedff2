"""Masked networks, what follows from masks, and coordinates drawn one by one."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tests.generative.flow_makers import jacobians, points
from vademecum.generative import IAF, MADE, MAF
from vademecum.generative.flows._masked_network import MaskedNetwork, Unrolled

SIZES = [(5, (9, 12), 0), (5, (3,), 0), (5, (1,), 0), (4, (), 0), (4, (), 2), (1, (6,), 0),
         (1, (6,), 2), (6, (5, 4, 7), 2), (9, (2,), 1)]  # fmt: skip


def network(d, hidden, context, *, numbers=2, inputs=1, order=None) -> MaskedNetwork:
    torch.manual_seed(0)
    made = {"hidden": hidden, "context": context, "inputs": inputs, "order": order}
    return MaskedNetwork(d, numbers, activation=nn.Tanh, **made).double()


@pytest.mark.parametrize(("d", "hidden", "context"), SIZES)
def test_outputs_see_exactly_the_coordinates_before(d, hidden, context):
    order = torch.randperm(d, generator=torch.Generator().manual_seed(d)).tolist()
    net = network(d, hidden, context, order=order)
    given = points(1, context) if context else None
    for j in range(2):
        J = jacobians(lambda x, j=j: net(x, given)[:, j], points(1, d))[0]
        J = J[order][:, order]  # in the order of positions
        assert not J.triu().any()
        if not hidden or min(hidden) >= d - 1:
            assert (J.abs() > 0).equal(torch.ones(d, d).tril(-1).bool())
        else:
            assert J[-1].count_nonzero() == d - 1, "the last coordinate sees all others"
    if context:
        J = jacobians(lambda c: net(points(1, d), c)[:, 0], points(1, context))[0]
        assert J.abs().min() > 0, "all coordinates see the context"


@pytest.mark.parametrize(("d", "hidden", "context"), SIZES)
def test_unrolled_outputs_are_those_of_one_pass(d, hidden, context):
    order = torch.randperm(d, generator=torch.Generator().manual_seed(d)).tolist()
    net, n = network(d, hidden, context, numbers=3, inputs=2, order=order), 6
    x, given = points(n, 2 * d), points(n, context, seed=2) if context else None
    with torch.no_grad():
        wanted = net(x, given)
        for buffers in (True, False):
            unrolled = Unrolled(net, n, given, buffers=buffers)
            for k, i in enumerate(order):
                torch.testing.assert_close(unrolled.numbers_at(k).T, wanted[:, :, i])
                unrolled.learn(x[:, 2 * i : 2 * i + 2].T)


def test_no_unit_is_wasted():
    """Units that see nothing are there for a context only."""
    for context in (0, 2):
        first: Any = network(6, (11,), context).layers[0]
        mask = first.mask
        assert bool(mask[:, context:].any(1).all()) == (context == 0)


def test_every_unit_is_computed_once():
    """Sampling multiplies no more than one pass does."""
    from torch.utils.flop_counter import FlopCounterMode

    flow = MAF(24, transforms=3, hidden=(64, 64))
    x = torch.randn(50, 24)
    counted = []
    for run in (lambda: flow(x), lambda: flow.inverse(x)):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            run()
        counted.append(counter.get_total_flops())
    assert counted[1] < 0.7 * counted[0]


@pytest.mark.parametrize("kind", ["binary", "categorical"])
def test_discrete_densities_are_normalised_and_sampled(kind):
    torch.manual_seed(1)
    K = {"binary": 2, "categorical": 3}[kind]
    classes = 3 if kind == "categorical" else None
    density = MADE(4, kind=kind, classes=classes, hidden=(30, 20), context=2, order=(2, 0, 3, 1))
    density = density.double()
    for p in density.parameters():
        p.data.mul_(2)
    rows = torch.tensor(list(itertools.product(range(K), repeat=4)))
    context = torch.tensor([0.5, -1.0]).double()
    with torch.no_grad():
        probability = density.log_prob(rows, context).exp()
        drawn = density.sample(20_000, context, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(density.log_prob(rows.double(), context).exp(), probability)
    assert float(probability.sum()) == pytest.approx(1, abs=1e-12)
    cells = (drawn.long() * K ** torch.arange(3, -1, -1)).sum(1)
    counts = torch.bincount(cells, minlength=K**4).numpy()
    expected = 20_000 * probability.numpy()
    assert stats.chisquare(counts, expected / expected.sum() * counts.sum()).pvalue > 1e-6


def test_classes_may_be_bytes():
    """All 256 of them, which bytes cannot be compared with."""
    torch.manual_seed(4)
    density = MADE(2, kind="categorical", classes=256, hidden=(6,))
    x = torch.tensor([[0, 255], [255, 3]], dtype=torch.uint8)
    assert density.log_prob(x).equal(density.log_prob(x.long()))
    assert density.sample(3).dtype == torch.int64


def test_half_precision_counts_all_classes():
    """bfloat16 knows no 257: classes are counted by integers, and drawn with finer numbers."""
    torch.manual_seed(5)
    density = MADE(2, kind="categorical", classes=400, hidden=(6,))
    x = torch.stack((torch.arange(400), torch.arange(400).flip(0)), 1)
    with torch.no_grad():
        for p in density.parameters():
            p.copy_(p.bfloat16())
        wanted = density.log_prob(x)
        found = density.bfloat16().log_prob(x)
        drawn = density.sample(20_000, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.float(), wanted, rtol=0.01, atol=0)
    assert set(drawn.flatten().tolist()) == set(range(400))
    torch.manual_seed(6)
    coins: Any = MADE(2, hidden=(6,))
    coins.network.layers[-1].bias.data.fill_(-9.0)
    coins.network.layers[-1].weight.data.zero_()
    ones = coins.bfloat16().sample(200_000, generator=torch.Generator().manual_seed(0))
    p = torch.sigmoid(torch.tensor(-9.0)).item()
    assert float(ones.double().mean()) == pytest.approx(p, abs=5 * math.sqrt(p / 400_000))


def test_made_gives_the_conditionals_by_enumeration():
    """Each logit is that of the ratio of marginals of the joint table."""
    torch.manual_seed(2)
    density = MADE(3, hidden=(16,), order=(1, 2, 0)).double()
    rows = torch.tensor(list(itertools.product(range(2), repeat=3))).double()
    with torch.no_grad():
        table = density.log_prob(rows).exp().reshape(2, 2, 2).numpy()
        logits = density(rows)[:, 0].numpy()
    for row, found in zip(rows.long().numpy(), logits, strict=True):
        for k, i in enumerate((1, 2, 0)):
            fixed = (1, 2, 0)[:k]
            index = tuple(row[j] if j in fixed else slice(None) for j in range(3))
            kept = [j for j in range(3) if j not in fixed]
            seen = table[index].sum(tuple(a for a, j in enumerate(kept) if j != i))
            assert found[i] == pytest.approx(math.log(seen[1] / seen[0]), abs=1e-9)


def test_gaussian_made_is_a_masked_flow_of_one_layer():
    """The same law, parametrised by mean and deviation: a chain of normal densities."""
    torch.manual_seed(3)
    density = MADE(3, kind="gaussian", hidden=(12,), order=(2, 1, 0), context=1).double()
    x, context = points(5, 3), points(5, 1)
    with torch.no_grad():
        for p in density.parameters():  # far enough for scales to be squashed
            p.mul_(4)
        numbers = density(x, context)
        squashed = numbers[:, 1] / (1 + numbers[:, 1].abs() / math.log(1000))
        wanted = stats.norm.logpdf(x, numbers[:, 0], squashed.exp()).sum(1)
        np.testing.assert_allclose(density.log_prob(x, context), wanted, atol=1e-10)
        drawn = density.sample(5000, context[0], generator=torch.Generator().manual_seed(0))
        numbers = density(drawn, context[0])
        squashed = numbers[:, 1] / (1 + numbers[:, 1].abs() / math.log(1000))
        z = (drawn - numbers[:, 0]) / squashed.exp()
    for column in z.T:
        assert stats.kstest(column.numpy(), "norm").pvalue > 1e-6


def test_masked_and_inverse_flows_are_inverses_of_each_other():
    torch.manual_seed(4)
    maf, iaf = (f(4, transforms=2, hidden=(8,)).double() for f in (MAF, IAF))
    iaf.load_state_dict(maf.state_dict())
    x = points(6, 4)
    order = maf.networks[1], maf.networks[0]
    assert [net.order for net in order] == [[3, 2, 1, 0], [0, 1, 2, 3]]
    iaf.networks = nn.ModuleList(order)  # the inverse undoes the last layer first
    torch.testing.assert_close(maf(x).value, iaf.inverse(x).value)
    torch.testing.assert_close(maf.inverse(x).log_det, iaf(x).log_det)


def test_layers_of_maf_scale_and_shift():
    """A layer written out: one coordinate at a time, from the network's own numbers."""
    torch.manual_seed(5)
    flow = MAF(3, transforms=1, hidden=(8,)).double()
    x = points(4, 3)
    numbers = flow.networks[0](x)
    s = numbers[:, 0] / (1 + numbers[:, 0].abs() / math.log(1000))
    torch.testing.assert_close(flow(x).value, x * s.exp() + numbers[:, 1])
    torch.testing.assert_close(flow(x).log_det, s.sum(1))
