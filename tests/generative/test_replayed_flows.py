"""Graphs of autoregressive flows: what they must notice, and that they go with their flow."""

import copy
import weakref
from functools import partial

import pytest
import torch
from torch import nn

from vademecum.generative import IAF, MAF
from vademecum.generative.flows._replayed import _GRAPHS, replayed
from vademecum.generative.flows.autoregressive import unrolled

SIZES = {"transforms": 2, "hidden": (16, 16)}


def maf(context: int = 0, d: int = 6) -> MAF:
    torch.manual_seed(7)
    return MAF(d, context=context, **SIZES).double()


def asked(flow, z, context=None):
    """What a GPU does, here: a graph is then a step that is taken again."""
    given = tuple(reversed(flow.networks)), flow.max_log_scale
    return replayed(flow, partial(unrolled, buffers=True), z, context, given)


def captured(flow) -> bool:
    return flow in _GRAPHS and _GRAPHS[flow].replay is not None


def test_replaying_reads_parameters_and_inputs_where_they_lie():
    """The same sizes again, other numbers, other weights, other sizes."""
    flow, seen = maf(2), []
    for n in (4, 4, 4, 6, 6, 4):
        with torch.no_grad():
            for p in flow.parameters():
                p.mul_(1.1)
            z, given = torch.randn(n, 6).double(), torch.randn(n, 2).double()
            found, wanted = asked(flow, z, given), flow.inverse(z, given)
        torch.testing.assert_close(found, wanted)
        seen.append(captured(flow))
    assert seen == [False, True, True, False, True, False]


def elsewhere(flow):
    flow.networks[0].layers[0].weight.data = 2 * flow.networks[0].layers[0].weight.data


CHANGES = {
    "limit": lambda flow: setattr(flow, "max_log_scale", 0.1),
    "activation": lambda flow: setattr(flow.networks[1], "activation", nn.Tanh()),
    "layers": lambda flow: setattr(flow, "networks", nn.ModuleList(reversed(flow.networks))),
    "places": elsewhere,
    "mode": lambda flow: flow.eval(),
}


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_graph_holds_fixed_makes_a_new_one(change):
    flow, z = maf(), torch.randn(5, 6).double()
    before = [asked(flow, z) for _ in range(3)][-1]
    assert captured(flow)
    CHANGES[change](flow)
    found = asked(flow, z)
    assert not captured(flow)
    torch.testing.assert_close(found, flow.inverse(z))
    assert torch.allclose(found.value, before.value) == (change == "mode")


def test_graphs_go_with_their_flow():
    flow, z = maf(), torch.randn(5, 6).double()
    for _ in range(3):
        asked(flow, z)
    twin, there = copy.deepcopy(flow), weakref.ref(flow)
    assert captured(flow)
    assert not captured(twin)
    count = len(_GRAPHS)
    del flow
    assert there() is None, "a graph keeps its flow alive"
    assert len(_GRAPHS) == count - 1


def test_graphs_made_in_inference_mode_serve_later_calls():
    flow, z = maf(), torch.randn(5, 6).double()
    with torch.inference_mode():
        for _ in range(3):
            asked(flow, z)
    assert captured(flow)
    torch.testing.assert_close(asked(flow, 2 * z), flow.inverse(2 * z))
    with torch.inference_mode():
        torch.testing.assert_close(asked(flow, 3 * z), flow.inverse(3 * z))


def test_precision_may_be_set_the_new_way():
    """Torch refuses to say the precision of the old interface once the new one was used."""
    flow, z = maf(), torch.randn(5, 6).double()
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        for _ in range(2):
            asked(flow, z)
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        torch.testing.assert_close(asked(flow, z), flow.inverse(z))
        assert not captured(flow)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


@pytest.mark.parametrize("make", [MAF, IAF])
def test_forward_derivatives_pass_through_both_ways(make):
    torch.manual_seed(0)
    flow = make(4, **SIZES).double().requires_grad_(False)
    z, step = torch.randn(3, 4).double(), torch.randn(3, 4).double()
    for f in (flow, flow.inverse):
        wanted = torch.autograd.functional.jvp(lambda v, f=f: f(v).value, z, step)[1]
        found = torch.func.jvp(lambda v, f=f: f(v).value, (z,), (step,))[1]
        torch.testing.assert_close(found, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("context", [0, 2])
def test_replayed_samples_on_gpus_are_those_of_cpus(context):
    """Eagerly, captured and replayed; after training in place, and for other sizes."""
    flow, there = maf(context), maf(context).cuda()
    for n in (50, 50, 50, 20, 50):
        with torch.no_grad():
            for p in flow.parameters():
                p.mul_(1.1)
        there.load_state_dict(flow.state_dict())
        z, given = torch.randn(n, 6).double(), torch.randn(n, context).double() if context else None
        with torch.no_grad():
            wanted = flow.inverse(z, given)
            found = there.inverse(z.cuda(), None if given is None else given.cuda())
        torch.testing.assert_close(found.value.cpu(), wanted.value)
        torch.testing.assert_close(found.log_det.cpu(), wanted.log_det)


@pytest.mark.gpu
def test_graphs_on_gpus_notice_what_changed():
    """Steps of an optimiser, dtypes, limits, copies, modes, derivatives; each asked three times."""
    flow, z = maf().cuda(), torch.randn(40, 6).double().cuda()

    def same(flow, z):
        with torch.no_grad():
            wanted = copy.deepcopy(flow).cpu().inverse(z.cpu())
            for _ in range(3):
                found = flow.inverse(z)
                torch.testing.assert_close(found.value.cpu(), wanted.value)
                torch.testing.assert_close(found.log_det.cpu(), wanted.log_det)

    same(flow, z)
    adam = torch.optim.Adam(flow.parameters(), 1e-2)
    for _ in range(3):
        adam.zero_grad()
        (-flow.log_prob(z).mean()).backward()
        adam.step()
        same(flow, z)
    flow.max_log_scale = 0.1
    same(flow, z)
    twin = copy.deepcopy(flow)
    with torch.no_grad():
        for p in twin.parameters():
            p.mul_(0.5)
    same(twin, z)
    same(flow, z)
    same(flow.double(), z)
    flow.requires_grad_(False)
    with torch.inference_mode():
        same(flow, z[:7])
    same(flow, z[:7])
    step = torch.randn_like(z)
    wanted = torch.autograd.functional.jvp(lambda v: flow.inverse(v).value, z, step)[1]
    for _ in range(3):
        found = torch.func.jvp(lambda v: flow.inverse(v).value, (z,), (step,))[1]
        torch.testing.assert_close(found, wanted)


@pytest.mark.gpu
def test_memory_of_graphs_is_given_back():
    """Flows that come and go, and sizes that change, leave nothing behind."""

    def left(n):
        for _ in range(3):
            asked_often(maf(d=8).cuda(), n)
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    def asked_often(flow, n):
        for m in (n, n, n, n + 1, n + 1, n + 1):
            flow.sample(m)

    for _ in range(8):  # streams, of which torch has 32, have workspaces of their own
        left(10)
    before = left(20_000)
    assert left(20_000) - before < 1e6, "bytes; a graph of this size has 6.4 million"
