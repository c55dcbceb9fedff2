"""The tape on random graphs against autograd; its counts by hand."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.gradients.tape import Tape

MODES: Any = ("forward", "reverse")
UNARY: Any = (
    torch.sin, torch.tanh, torch.sigmoid, F.relu, lambda x: (1 + x.square()).log(),
    lambda x: x.softmax(-1), lambda x: x - x.amax(0), lambda x: x.cos().exp(),
)  # fmt: skip
BINARY: Any = (
    torch.add, torch.mul, torch.sub, lambda x, y: x / (2 + y.cos()),
    lambda x, y: (x @ y.mT) @ x / 3,
)  # fmt: skip
SHAPED: Any = (
    lambda x: x.mean(1, keepdim=True).expand(3, 3), lambda x: x.mT,
    lambda x: x[torch.tensor([2, 0, 0])], lambda x: torch.cat([x[1:], x[:1]]).reshape(3, 3),
)  # fmt: skip


def random_graph(steps=12):
    """Random operations on 3 x 3 matrices, each on any that there are, and a parameter at the end.

    Every value is scaled to be at most one, or products of products would overflow.
    """
    kinds = torch.randint(0, 3, (steps,)).tolist()
    places = [torch.randint(0, 3 + k, (2,)).tolist() for k in range(steps)]
    picks = torch.randint(0, 1000, (steps,)).tolist()

    def graph(*inputs):
        *v, parameter = inputs
        for kind, (i, j), pick in zip(kinds, places, picks, strict=True):
            table = (UNARY, BINARY, SHAPED)[kind]
            f = table[pick % len(table)]
            v.append((f(v[i], v[j]) if kind == 1 else f(v[i])).tanh())
        return torch.cat([v[-1] * parameter, v[-2], v[-3] @ v[-1]]).sum(1)

    return graph


@pytest.mark.parametrize("number", range(40))
def test_random_graphs(number):
    graph, leaves = random_graph(), [torch.randn(3, 3).double() for _ in range(4)]
    parameter = nn.Parameter(leaves[3])
    tape = Tape(lambda *x: graph(*x, parameter), *leaves[:3])
    assert [p is parameter for p in tape.parameters] == [True]
    matrices = torch.func.jacrev(graph, (0, 1, 2, 3))(*leaves)
    wanted = torch.cat([matrix.reshape(9, 9) for matrix in matrices], 1)
    # Each of some thirty steps rounds, and has derivatives of at most a few units.
    close: Any = {"rtol": 1e-11, "atol": 1e-12 * (1 + wanted.abs().max().item())}
    for mode in MODES:
        torch.testing.assert_close(tape.jacobian(mode=mode).matrix, wanted[:, :27], **close)
    u, t = torch.randn(9).double(), torch.randn(36).double()
    pulled, pushed = tape.pull(u), tape.push(*t.view(-1, 3, 3))
    torch.testing.assert_close(
        torch.cat([g.flatten() for g in pulled.gradients]), u @ wanted, **close
    )
    torch.testing.assert_close(pushed.tangent, wanted @ t, **close)
    torch.testing.assert_close(pushed.output, graph(*leaves), **close)
    operations = [step for step in tape.steps if step.parents]
    edges = sum(tape.steps[p].active for step in operations for p in step.parents)
    for cost in (pushed.cost, pulled.cost):
        assert (cost.operations, cost.edges) == (len(operations), edges)


def test_counts_by_hand():
    w, x = torch.randn(4, 3), torch.randn(3)
    tape = Tape(lambda x: (w @ x).tanh().sum(), x)  # unsqueeze, matmul, reshape, tanh, sum
    assert [step.label for step in tape.steps if step.parents] == [
        "reshape", "matmul", "reshape", "tanh", "sum",
    ]  # fmt: skip
    assert tape.edges == 5
    pull = tape.pull().cost
    assert (pull.operations, pull.edges, pull.work) == (5, 5, 2 * (12 + 4 + 4))
    # Four tensors while the sum is pulled (tanh, sum and their adjoints); twelve numbers while the
    # tanh is (itself and two adjoints).
    assert (pull.live, pull.numbers) == (4, 12)
    push = tape.push().cost
    assert (push.operations, push.edges, push.work) == (5, 5, 40)
    assert push.numbers == 16  # two vectors of four, with their tangents


def test_counts_of_a_diamond_by_hand():
    # a = x y, b = sin a, c = a b, s = sum c: six edges, of which the constant's is none.
    x, y = torch.randn(5), torch.randn(5)
    tape = Tape(lambda x: ((a := x * y) * a.sin()).sum(), x)
    assert (len(tape.steps), tape.edges) == (6, 5)
    push, pull = tape.push().cost, tape.pull().cost
    # mul 5 (1 + 1), sin 5 (1 + 1), mul 5 (1 + 2), sum 5 (1 + 1)
    assert push.work == pull.work == 10 + 10 + 15 + 10
    assert push.live == 6  # a, b and c with their tangents
    # a and b stay until the product has been pulled, beside the adjoints of c, a and b
    assert (pull.live, pull.numbers) == (5, 25)


WORK: Any = {  # one operation each, by how many scalar ones it counts, and of how many arguments
    "add": (torch.add, 6, (2, 3), (2, 3)),
    "cube": (lambda x: x**3, 6, (2, 3)),
    "softmax": (lambda x: x.softmax(0), 6, (2, 3)),
    "sum": (lambda x: x.sum(0), 6, (2, 3)),
    "amax": (lambda x: x.amax(1), 6, (2, 3)),
    "logsumexp": (lambda x: x.logsumexp(1), 6, (2, 3)),
    "matmul": (torch.matmul, 5 * 2 * 4 * 3, (5, 2, 3), (3, 4)),
    "conv": (lambda x, w: F.conv1d(x, w, None, 2, 1), 2 * 4 * 4 * (3 * 3), (2, 3, 7), (4, 3, 3)),
    "cat": (lambda x, y: torch.cat([x, y]), 0, (2, 3), (2, 3)),
    "expand": (lambda x: x.expand(4, 3), 0, (1, 3)),
    "permute": (lambda x: x.mT, 0, (2, 3)),
    "select": (lambda x: x[0], 0, (2, 3)),
}


@pytest.mark.parametrize("name", WORK)
def test_work_by_hand(name):
    f, work, *shapes = WORK[name]
    tape = Tape(f, *(torch.randn(shape) for shape in shapes))
    pushed = tape.push()
    pulled = tape.pull(torch.ones_like(pushed.output))
    for cost in (pushed.cost, pulled.cost):  # once for the value, and once for each edge
        assert (cost.operations, cost.edges) == (1, len(shapes))
        assert cost.work == (1 + len(shapes)) * work


def test_a_jacobian_adds_counts_and_takes_the_largest_peaks():
    tape = Tape(lambda x: x.sin().exp(), torch.randn(3))
    one = tape.push().cost
    for mode in MODES:  # three passes either way
        cost = tape.jacobian(mode=mode).cost
        assert cost[:3] == (3 * one.operations, 3 * one.edges, 3 * one.work) == (6, 6, 36)
    assert tape.jacobian(mode="forward").cost[3:] == (4, 12)  # two values with their tangents
    assert tape.jacobian(mode="reverse").cost[3:] == (3, 9)  # the exponential and two adjoints


def test_the_values_are_those_of_the_recording():
    x, w = torch.tensor([2.0]), nn.Parameter(torch.tensor([3.0]))
    tape = Tape(lambda x: x * w, x)
    with torch.no_grad():
        x.mul_(10)
        w.mul_(10)
    assert tape.pull(torch.ones(1))[:2] == (torch.tensor([6.0]), (3.0, 2.0))


def test_values_are_kept_only_for_the_pulls_that_need_them():
    k = 50
    tapes = {
        "linear": Tape(lambda x: chain(lambda x: x + x, x, k), torch.tensor(0.1)),
        "sine": Tape(lambda x: chain(torch.sin, x, k), torch.tensor(0.1)),
        "times_constant": Tape(lambda x: chain(lambda x: x * 0.5, x, k), torch.tensor(0.1)),
        "division": Tape(lambda x: chain(lambda x: x / 3, x, k), torch.tensor(0.1)),
        "inverse": Tape(lambda x: chain(lambda x: 3 / x, x, k), torch.tensor(0.1)),
    }
    live = {name: tape.pull().cost.live for name, tape in tapes.items()}
    assert {live[name] for name in ("linear", "times_constant", "division")} == {3}
    assert live["sine"] == k + 2  # all values, and two adjoints while the last is pulled
    assert live["inverse"] == k + 2
    assert all(tape.push().cost.live == 4 for tape in tapes.values())


def chain(f, x, k):
    for _ in range(k):
        x = f(x)
    return x
