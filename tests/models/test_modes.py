"""Evaluation for a while: one path for attention, and models that are left as they were."""

import io
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from tests.gradients.nets import slowly
from vademecum.gradients import (
    functional,
    gradient,
    gradient_norms,
    hessian,
    jacobian,
    per_example_gradients,
)
from vademecum.models import evaluation
from vademecum.testing.laws import changes, snapshot

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 1, 0])


class Remembers(nn.Module):
    """Keeps in attributes what it has seen, in every way that a module can."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.longest, self.last, self.total = 0, None, torch.zeros(2)
        self.seen, self.table, self.kinds = [], {"a": 1}, {1}
        self.nested, self.gone = {"deep": []}, "here"
        self.counts, self.sums = [torch.zeros(2)], {"all": torch.zeros(2)}
        vars(self.layer)["counts"] = self.counts  # the same list
        self.register_buffer("scale", torch.ones(2), persistent=False)

    def forward(self, x):
        if len(x) > self.longest:
            self.longest = len(x)
            self.scale = torch.full((2,), float(len(x)))
            self.register_buffer("cache", torch.ones(len(x)), persistent=False)
        self.last, self.new = x, x
        self.seen.append(x)
        self.table["b"] = x
        self.table["a"] = 2
        self.kinds.add(2)
        self.__dict__.pop("gone", None)
        with torch.no_grad():
            self.total += 1
            self.counts[0] += 1
            self.sums["all"] += 1
        if len(self._forward_hooks) == 0:
            self.register_forward_hook(lambda module, args, z: None)
        return torch.tanh(self.layer(x)) * self.total


def old_weight_norm():
    with pytest.warns(FutureWarning, match="weight_norm"):
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 2)), nn.Tanh())


def pruned():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    prune.random_unstructured(net[0], "weight", 0.5)
    return net


INSTRUMENTS = {
    "functional": lambda net: functional(net)(functional(net).theta, X),
    "gradient": lambda net: gradient(net, X, Y),
    "hessian": lambda net: hessian(net, X, Y).dense(),
    "jacobian": lambda net: jacobian(net, X).dense(),
    "jacobian in x": lambda net: jacobian(net, X, wrt="x").dense(),
    "per_example_gradients": lambda net: per_example_gradients(net, X, Y),
    "gradient_norms": lambda net: gradient_norms(net, X, Y),
}
MODELS = {"remembers": Remembers, "weight_norm": old_weight_norm, "pruned": pruned}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", INSTRUMENTS)
def test_attributes_are_left_as_they_were(name, model):
    net = MODELS[model]()
    before = snapshot(net)
    assert before["torch.save of the module"]
    with slowly(False):
        INSTRUMENTS[name](net)
    assert not list(changes(before, snapshot(net)))
    torch.save(net, io.BytesIO())


def test_attributes_come_back_after_an_error():
    net = Remembers()
    whole = nn.Sequential(net, nn.Linear(3, 1))
    before = snapshot(net)
    with pytest.raises(RuntimeError, match="shapes"):
        INSTRUMENTS["functional"](whole)
    assert not list(changes(before, snapshot(net)))


@pytest.mark.parametrize("fast", [True, False])
def test_attention_takes_one_path(fast):
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)
    net = nn.TransformerEncoder(layer, 2).eval().double()
    mask = torch.tensor([[False, False, False], [False, False, True]])
    x = {"src": torch.randn(2, 3, 4).double(), "src_key_padding_mask": mask}
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        J = jacobian(net, x, wrt="src")
        plain = functional(net)(functional(net).theta, x)
        assert torch.backends.mha.get_fastpath_enabled() is fast
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    torch.testing.assert_close(J.output, plain)
    v, step = torch.randn(24).double(), 1e-5
    moved = [
        jacobian(net, {**x, "src": x["src"] + s * step * v.view(2, 3, 4)}, wrt="src").output
        for s in (1, -1)
    ]
    wanted = (moved[0] - moved[1]).flatten() / (2 * step)
    torch.testing.assert_close(J @ v, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("fused", [True, False])
def test_fused_kernels_are_for_attention_alone(fused):
    with evaluation(nn.Linear(2, 2), fused=fused):
        assert torch.backends.cuda.flash_sdp_enabled() is fused
        assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.mha.get_fastpath_enabled()


def test_buffers_that_code_registers_anew_come_back():
    class Longest(nn.Linear):
        def forward(self, input):
            self.register_buffer("longest", torch.tensor(len(input)))
            return super().forward(input)

    net = Longest(3, 2)
    net.register_buffer("longest", torch.tensor(0))
    before = net.longest
    with evaluation(net):
        net(torch.ones(4, 3))
    assert net.longest is before


def test_threads_leave_global_flags_as_they_were():
    met = [Barrier(2, timeout=60) for _ in range(2)]

    class Meets(nn.Linear):
        times: int

        def forward(self, input):
            for barrier in met[: self.times]:
                barrier.wait()  # both are within, and the one that came first leaves first
            plain.append(not torch.backends.mha.get_fastpath_enabled())
            return super().forward(input)

    def measure(times):
        net = Meets(3, 2)
        vars(net)["times"] = times
        gradient(net, X, Y)
        if times == 1:
            met[1].wait()

    plain: list[bool] = []
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(measure, [1, 2]))
    assert plain == [True, True]
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()


def test_global_flags_may_be_frozen(monkeypatch):
    flags: Any = torch.backends.flags_frozen
    monkeypatch.setitem(flags.__globals__, "__allow_nonbracketed_mutation_flag", False)
    assert torch.backends.flags_frozen()
    x, before = torch.randn(2, 3, 4), torch.backends.cudnn.enabled
    found = gradient(nn.LSTM(4, 2), x, None, output=0, loss=lambda z, y: z.sum())
    assert found.shape == (64,)
    assert torch.backends.cudnn.enabled is before


class Draws(nn.Linear):
    def forward(self, input):
        return super().forward(input) + torch.rand(())


def test_random_numbers_are_the_same_each_time():
    net = Draws(3, 2)
    before = snapshot(net)
    f = functional(net)
    found = f(f.theta, X)
    assert not list(changes(before, snapshot(net)))
    torch.testing.assert_close(found, net(X))
    J = jacobian(net, X, wrt="x")
    torch.testing.assert_close(J.output, f(f.theta, X))
    assert torch.rand(()) != torch.rand(())


def test_recurrent_layers_keep_their_list_of_weights():
    net = nn.LSTM(3, 2)
    gradient(net, X[None], None, output=0, loss=lambda z, y: z.sum())
    assert all(p is q for p, q in zip(net._flat_weights, net.parameters(), strict=True))
