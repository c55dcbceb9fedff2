"""Models that look at the whole batch, at times or in hiding: right by example, or refused."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.gradients.nets import slowly
from tests.gradients.test_jacobian import by_rows
from tests.gradients.test_per_example import loop
from vademecum.gradients._independent_rows import _KINDS, _STUDIED, Plan
from vademecum.gradients.example_norms import gradient_norms
from vademecum.gradients.jacobian_operator import jacobian
from vademecum.gradients.per_example import per_example_gradients

N, D = 9, 4
OUTLIER = 6  # neither the first nor the last nor the one in the middle


class Batch(nn.Module):
    """Two layers, and something that happens to the whole batch in between."""

    def __init__(self, between, *, hidden=False, by_hand=False):
        super().__init__()
        self.first, self.second = nn.Linear(D, D), nn.Linear(D, 3)
        self.between, self.by_hand = between, by_hand
        if hidden:
            nn.init.zeros_(self.second.weight)

    def forward(self, x):
        h = self.between(self.first(x), x)
        z = self.second(h)
        return (self.second.weight @ h.mT).mT + z if self.by_hand else z


class Calling(Batch):
    """One whose layers are called in between as well."""

    def forward(self, x):
        return self.second(self.between(self.first(x), x, self))


def scaled(h, x):
    return h / x.abs().max() if x.abs().max() > 10 else h


def centred(h, x):
    return h - h.mean(0)


def dropped(h, x):
    return F.dropout(h, 0.5)


def another_way(h, x, net):
    """By the largest, with one more call of a layer."""
    return net.first(h / x.abs().max()) if x.abs().max() > 10 else h


def to_the_one_before(h):
    return torch.cat([h[1:], torch.zeros_like(h[:1])])


def in_secret(h):
    """Zeros whose derivatives are not."""
    return h.mean(0) - h.mean(0).detach()


def data(outlier=False):
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[OUTLIER] *= 50 if outlier else 1
    return x, torch.arange(N) % 3


REFUSED = {
    "by the largest": (lambda: Batch(scaled), True),
    "by chance": (lambda: Batch(dropped), False),
    "by chance, without rules": (lambda: Batch(dropped, by_hand=True), False),
    "by chance, in hiding": (lambda: Batch(dropped, hidden=True), False),
    "by chance, without rules, in hiding": (
        lambda: Batch(dropped, hidden=True, by_hand=True),
        False,
    ),
}


@pytest.mark.parametrize("portion", [2**24, 200])
@pytest.mark.parametrize("instrument", [per_example_gradients, gradient_norms])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, instrument, portion, monkeypatch):
    build, outlier = REFUSED[name]
    monkeypatch.setattr("vademecum.gradients._independent_rows._PORTION", {"cpu": portion})
    monkeypatch.setattr("vademecum.gradients._independent_rows._MANY", 2)
    with pytest.raises(ValueError, match=r"model must .* in evaluation mode"):
        instrument(build().double(), *data(outlier), loss=F.cross_entropy)


def test_chance_is_seen_where_it_changes_nothing_by_chance():
    """Few units and a small probability: for nearly all seeds no two passes would differ."""
    net, (x, y) = Batch(lambda h, x: F.dropout(h, 1e-6)).double(), data()
    for instrument in (per_example_gradients, gradient_norms):
        with pytest.raises(ValueError, match="it draws random numbers"):
            instrument(net, x, y, loss=F.cross_entropy)
        assert not net._forward_hooks
        assert not net._forward_pre_hooks


RIGHT = {
    "centred, in hiding": lambda: Batch(centred, hidden=True),
    "centred, without rules, in hiding": lambda: Batch(centred, hidden=True, by_hand=True),
    "by the largest, in hiding": lambda: Batch(scaled, hidden=True),
    "from the next, in hiding": lambda: Batch(lambda h, x: to_the_one_before(h), hidden=True),
    "in secret, if there are many": lambda: Batch(
        lambda h, x: h + in_secret(h) if len(h) > 3 else h
    ),
    "by the largest, another way, in hiding": lambda: Calling(another_way, hidden=True),
}


@pytest.mark.parametrize("name", RIGHT)
def test_each_example_goes_by_itself(name):
    """Its gradient is that of a batch of one."""
    net, (x, y) = RIGHT[name]().double(), data(outlier=True)
    wanted = loop(net, x, y)
    with slowly("largest" in name):  # a choice by values
        found = per_example_gradients(net, x, y, loss=F.cross_entropy)
        norms = gradient_norms(net, x, y, loss=F.cross_entropy)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(norms, wanted.norm(dim=1))


class Sometimes(nn.Module):
    """Parameters without a layer that change no output, used if the batch is of a certain kind."""

    def __init__(self, choice, *, by_hand):
        super().__init__()
        self.first, self.second, self.choice = nn.Linear(D, D), nn.Linear(D, 3), choice
        self.always, self.at_times = (nn.Parameter(torch.eye(D)) for _ in range(2))
        self.scale, self.by_hand = nn.Parameter(torch.ones(D)), by_hand

    def forward(self, x):
        h = self.first(x) * self.scale
        h = F.linear(h, self.always) if self.by_hand else h
        if self.choice(x.abs().amax(1)):
            h = F.linear(h, self.at_times) if self.by_hand else h * self.scale
        return self.second(torch.tanh(h))


SOMETIMES = {
    "one is large": (lambda sizes: sizes.max() > 10, False, N, [OUTLIER]),
    "one is large, by hand": (lambda sizes: sizes.max() > 10, True, N, [OUTLIER]),
    "one is large, of three": (lambda sizes: sizes.max() > 10, False, 3, [0]),
    "one is large, of three, by hand": (lambda sizes: sizes.max() > 10, True, 3, [0]),
    "all are large, by hand": (lambda sizes: sizes.min() > 10, True, 15, [3, 5]),
}


@pytest.mark.parametrize("name", SOMETIMES)
def test_parameters_that_are_used_at_times(name, monkeypatch):
    choice, by_hand, n, large = SOMETIMES[name]
    monkeypatch.setattr(Plan, "step", lambda *_: 3 if n > N else n)
    net = Sometimes(choice, by_hand=by_hand).double()
    x, y = torch.randn(n, D, dtype=torch.float64), torch.arange(n) % 3
    per_example_gradients(net, x, y, loss=F.cross_entropy)
    x[large] *= 100 / x[large].abs().amax(1, keepdim=True)
    with slowly(True):
        found = per_example_gradients(net, x, y, loss=F.cross_entropy)
    torch.testing.assert_close(found, loop(net, x, y))


def clamped(h, x):
    """The same operations for every batch."""
    return h / x.abs().max().clamp(min=10)


@pytest.mark.parametrize("portion", [2**24, 200])
@pytest.mark.parametrize("instrument", [per_example_gradients, gradient_norms])
def test_what_went_well_is_examined_again(instrument, portion, monkeypatch):
    monkeypatch.setattr("vademecum.gradients._independent_rows._PORTION", {"cpu": portion})
    monkeypatch.setattr("vademecum.gradients._independent_rows._MANY", 2)
    net = Batch(clamped).double()
    for _ in range(2):
        instrument(net, *data(), loss=F.cross_entropy)
    with pytest.raises(ValueError, match=r"model must .* in evaluation mode"):
        instrument(net, *data(outlier=True), loss=F.cross_entropy)


class Gated(nn.Module):
    """What one example has from others goes through a gate."""

    def __init__(self, mix):
        super().__init__()
        self.first, self.second, self.mix, self.more = nn.Linear(D, D), nn.Linear(D, 3), mix, 0.0
        self.gate = nn.Buffer(torch.zeros(()))

    def forward(self, x, also=0.0):
        h = self.first(x)
        return self.second(torch.tanh(h + (self.gate + self.more + also) * self.mix(h)))


OPENED = {
    "buffer": lambda net: net.gate.fill_(0.1),
    "buffer, a little": lambda net: net.gate.fill_(1e-5),
    "another buffer": lambda net: setattr(net, "gate", torch.full_like(net.gate, 0.1)),
    "attribute": lambda net: setattr(net, "more", 0.1),
}
INSTRUMENTS = {
    "gradients": lambda net, x, y: per_example_gradients(net, x, y, loss=F.cross_entropy),
    "norms": lambda net, x, y: gradient_norms(net, x, y, loss=F.cross_entropy),
    "jacobian": lambda net, x, y: jacobian(net, x).blocks(),
}


@pytest.mark.parametrize("mix", [lambda h: h.mean(0), in_secret, to_the_one_before])
@pytest.mark.parametrize("opened", OPENED)
@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_a_gate_that_opens_later(instrument, opened, mix):
    """As long as it is shut, nothing comes back from one example to another."""
    net, (x, y) = Gated(mix).double(), data()
    _, found = (INSTRUMENTS[instrument](net, x, y) for _ in range(2))
    if instrument == "gradients":
        torch.testing.assert_close(found, loop(net, x, y))
    OPENED[opened](net)
    with pytest.raises(ValueError, match="model must treat examples independently"):
        INSTRUMENTS[instrument](net, x, y)


def test_a_gate_among_the_inputs():
    net, (x, y) = Gated(in_secret).double(), data()
    for _ in range(2):
        per_example_gradients(net, {"x": x, "also": 0.0}, y, loss=F.cross_entropy)
    with pytest.raises(ValueError, match="model must treat examples independently"):
        per_example_gradients(net, {"x": x, "also": 0.1}, y, loss=F.cross_entropy)


def test_a_model_that_is_constant_later():
    attached = [True]
    net, (x, y) = Batch(lambda h, x: h).double(), data()
    net.second.register_forward_hook(lambda *call: call[2] if attached else call[2].detach())
    per_example_gradients(net, x, y, loss=F.cross_entropy)
    attached.clear()
    with pytest.raises(ValueError, match="outputs of model must be differentiable"):
        per_example_gradients(net, x, y, loss=F.cross_entropy)


def test_another_way_is_studied_anew():
    """A model that was easy, and is now one that no rules cover or that mixes its examples."""
    net, (x, y) = Batch(lambda h, x: h).double(), data()
    per_example_gradients(net, x, y, loss=F.cross_entropy)
    net.by_hand = True
    found = per_example_gradients(net, x, y, loss=F.cross_entropy)
    torch.testing.assert_close(found, loop(net, x, y))
    net.between = centred
    with pytest.raises(ValueError, match="model must treat examples independently"):
        per_example_gradients(net, x, y, loss=F.cross_entropy)


def test_not_all_shapes_are_remembered():
    net = nn.Sequential(nn.Linear(D, 3), nn.Flatten(), nn.AdaptiveAvgPool1d(3)).double()
    for t in range(1, 2 * _KINDS):
        x = torch.randn(3, t, D, dtype=torch.float64)
        gradient_norms(net, x, torch.arange(3), loss=F.cross_entropy)
        assert 0 < len(_STUDIED[net]) <= _KINDS


def test_nothing_keeps_a_model_alive():
    net, (x, y) = nn.Linear(D, 3).double(), data()
    gradient_norms(net, x, y, loss=F.cross_entropy)
    seen = weakref.ref(net)
    del net
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("wrt", ["theta", "x"])
@pytest.mark.parametrize("by_hand", [False, True])
def test_jacobians_are_those_of_the_batch(wrt, by_hand):
    net, (x, _) = Batch(scaled, by_hand=by_hand).double(), data(outlier=True)
    J = jacobian(net, x, wrt=wrt)
    with pytest.raises(ValueError, match="model must treat examples independently"):
        J.blocks()
    if wrt == "theta":
        wanted = by_rows(net, x)
    else:
        wanted = torch.autograd.functional.jacobian(net, x).reshape(3 * N, -1)
    torch.testing.assert_close(J.dense(), wanted)
