"""States through time: one map at every step, what a state knows, and outputs read from it."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import Evidence, at_least, claim, equals
from vademecum.recurrence import CourseGRU, CourseLSTM, ElmanRNN
from vademecum.recurrence.claims._scalar_cells import ACTIVATIONS, elman, listed
from vademecum.recurrence.claims.gating import traced


def contracting(d: int, m: int, k: int | None = None, norm: float = 0.9) -> ElmanRNN:
    """A simple network with tanh units whose recurrent matrix has the given spectral norm."""
    net = ElmanRNN(d, m, k)
    net.U.data *= norm / torch.linalg.matrix_norm(net.U.data, 2)
    return net


def read(net: ElmanRNN, x: Tensor, state: Tensor | None, clock: float, since: int = 0) -> Tensor:
    """The states of a network that may also read the time, from a step on."""
    times = since + torch.arange(x.shape[1], dtype=x.dtype)
    return net(x + clock * times[:, None], state).output


@claim(
    by="identity",
    sources=("A-217", "B-354", "B-355", "C-120", "C-121", "D-268", "D-272"),
    short=r"z^t = F_\theta(z^{t-1}, x^t),\quad z^0 = 0,\quad \theta\ \text{the same for all}\ t, T",
)
@torch.no_grad()
def state_update(clock: float = 0.0, resumed: Literal["stored", "one earlier"] = "stored"):
    r"""A recurrent network applies one map with shared parameters at every step.

    It processes a sequence $x^1, \dots, x^T$ of any length by one time-invariant map,
    $z^t = F_\theta(z^{t-1}, x^t)$, usually started at $z^0 = 0$. It is Markov in the pair of state
    and input: a stored state suffices to continue, the same state and inputs give the same
    continuation at any later time, and the number of parameters does not depend on $T$.

    *Proof.* By induction over steps from the recursion.

    Checked for simple networks of tanh units with $\|U\|_2 = 0.9$, lengths 1, 7 and 100, where
    rounding (some $m + d$ units a step) adds up to $10 (m + d) \varepsilon$ at most, and for the
    sheets' LSTM and GRU of the library. That the observations are dependent is quoted.

    Knobs:
        clock: How much the update also reads the time.
        resumed: Which state is taken to continue from.
    """
    for d, m in ((3, 5), (4, 2)):
        net = contracting(d, m)
        for T in (1, 7, 100):
            at = {"d": d, "m": m, "T": T}
            x, state = torch.randn(2, T, d), 0.5 * torch.randn(2, m)
            whole = read(net, x, None, clock)
            zero: list[Any] = [0.0] * m
            start = [elman(listed(net), [one[0].tolist()], zero)[0][0] for one in x]
            yield equals("first state against $F(0, x^1)$", whole[:, 0], start, tol=1e-13, **at)
            late = read(net, x, state, clock, since=11)
            at_once = read(net, x, state, clock)
            yield equals("the same state and inputs 11 steps later", late, at_once, tol=1e-13, **at)
            stored = torch.cat((torch.zeros(2, 1, m), whole), 1)
            for t in sorted({1, T // 2, T - 1} - {0, T}):
                kept = stored[:, t if resumed == "stored" else t - 1]
                rest = read(net, x[:, t:], kept, clock, since=t)
                yield equals("resumed after step t", rest, whole[:, t:], tol=1e-13, t=t, **at)
            entries = sum(p.numel() for p in net.parameters())
            yield equals("parameters after T steps", entries, m * (m + d + 1), **at)
    yield from _in_parts()


def _in_parts() -> Iterator[Evidence]:
    nets = (CourseLSTM(3, 4, 2), CourseGRU(3, 5, 2), CourseGRU(3, 5, reset="after"))
    for net in nets:
        x = torch.randn(2, 7, 3)
        y, last = net(x)
        state, outputs = None, []
        for t in range(7):
            output, state = net.step(x[:, t], state)
            outputs.append(output)
        name = type(net).__name__
        yield equals("outputs step by step", torch.stack(outputs, 1), y, tol=1e-12, net=name)
        begun = net(x[:, :4]).state
        rest, end = net(x[:, 4:], begun)
        yield equals("outputs resumed after step 4", rest, y[:, 4:], tol=1e-12, net=name)
        pairs = zip(*(s if isinstance(s, tuple) else (s,) for s in (end, last)), strict=True)
        for one, other in pairs:
            yield equals("last state resumed", one, other, tol=1e-12, net=name)


state_update.foil(
    "an update that also reads the time is not time-invariant", clock=0.01,
    refuted_by="the same state and inputs 11 steps later",
)  # fmt: skip
state_update.foil("continued from the state one step earlier", resumed="one earlier")


def merged(net: ElmanRNN, z: Tensor, goal: Tensor) -> Tensor:
    """The input after which a state is another one: histories that were different meet there."""
    assert net.b is not None
    return torch.linalg.pinv(net.V) @ (torch.atanh(goal) - net.U @ z - net.b)


@claim(
    by="identity",
    sources=("A-218", "B-358", "C-122", "D-268", "D-269"),
    short=r"z^t = f(x^1, \dots, x^t): \partial z^t / \partial x^t = \mathrm{diag}(\phi')"
    r" V, \partial z^t / \partial x^s = 0\ (s > t)",
)
def causal_memory(last: int = 0):
    r"""The state is a function of all inputs up to the present one, and of no later input.

    The state is a fixed-size, in general lossy function of all inputs seen so far,
    $(x^1, \dots, x^t) \mapsto z^t$: it depends on $x^t$, with
    $\partial z^t / \partial x^t = \mathrm{diag}(\phi'(a^t)) V$ in a simple network, and on no later
    input. Histories that lead to the same $z^t$ have the same future. Outputs read from $z^t$
    inherit this causality.

    *Proof.* By induction over $z^t = \phi(U z^{t-1} + V x^t + b)$.

    Checked for simple networks, whose $V$ has full column rank so that no change of $x^t$ is lost,
    and for the sheets' LSTM and GRU: the state on the way through a sequence that goes on otherwise
    against that of a run that stops there. Histories are made to meet where $V$ has full row rank.

    Knobs:
        last: Where the list of inputs is said to end, from the present one on.
    """
    d, T = 3, 8
    nets = (contracting(d, 5, 2), CourseLSTM(d, 4, 2), CourseGRU(d, 4, 2))
    for net in nets:
        x, name = torch.randn(2, T, d), type(net).__name__
        for t in range(2, T + 1):
            other = x.clone()
            other[:, t + last :] += torch.randn(2, T - t - last, d)
            with torch.no_grad():
                stopped, y, y_moved = net(x[:, :t]).state, net(x).output, net(other).output
            stopped = stopped if isinstance(stopped, Tensor) else stopped.h
            on_its_way = traced(net, other).h[:, t - 1]
            yield equals("state after the later inputs are others", on_its_way, stopped, tol=1e-13,
                         t=t, net=name)  # fmt: skip
            yield equals("outputs after the later inputs are others", y_moved[:, :t], y[:, :t],
                         tol=1e-13, t=t, net=name)  # fmt: skip
    net, x = contracting(d, 5), torch.randn(1, T, d)
    for t in range(1, T + 1):
        jacobian = torch.autograd.functional.jacobian(lambda z: net(z).state, x[:, :t])
        jacobian = jacobian[0, :, 0]  # type: ignore[index]
        states, _ = elman(listed(net), x[0].tolist(), [0.0] * 5)
        stated = (1 - torch.tensor(states[t - 1]) ** 2)[:, None] * net.V.detach()
        yield equals("derivative by the present input", jacobian[:, -1], stated, tol=1e-12, t=t)
        least = (1 - torch.tensor(states[t - 1]) ** 2).min() * torch.linalg.svdvals(net.V)[-1]
        found = torch.linalg.svdvals(jacobian[:, -1])[-1]
        yield at_least("least singular value of that derivative", found, least, tol=1e-12, t=t)
    yield from _meeting()


@torch.no_grad()
def _meeting() -> Iterator[Evidence]:
    net = contracting(4, 3, 2)
    for lengths in ((3, 6), (1, 5)):
        goal = 0.9 * (2 * torch.rand(3) - 1)
        states = []
        for T in lengths:
            z = net(torch.randn(1, T, 4)).state
            states.append(net.step(merged(net, z[0], goal)[None], z).state)
            yield equals("size of the state", states[-1].numel(), 3, T=T)
        yield equals("states of two histories that meet", states[0], states[1], tol=1e-12)
        ahead = torch.randn(1, 20, 4)
        one, other = (net(ahead, z).output for z in states)
        yield equals("what follows from there", one, other, tol=1e-12)


causal_memory.foil(
    "a function of the inputs before the present one", last=-1,
    refuted_by="outputs after the later inputs are others",
)  # fmt: skip
causal_memory.erratum(
    "B-358",
    printed=r"$(x^1, \dots, x^{t-1}) \mapsto h^t$ (conceptually)",
    right=r"$(x^1, \dots, x^t) \mapsto h^t$",
    why=r"By the sheet's own recursion $h^t = F(h^{t-1}, x^t)$ the state also depends on the"
    r" current input, $\partial h^t / \partial x^t \ne 0$: with the inputs up to $t - 1$ kept and"
    " $x^t$ changed, the state changes. The list has to end with $x^t$.",
    weight="hard",
    refuted_by="state after the later inputs are others",
    last=-1,
)


@claim(
    by="identity",
    sources=("A-219", "B-356", "B-357", "C-123", "C-124", "D-270", "D-271", "D-272"),
    short=r"z^t = \phi(U z^{t-1} + V x^t + b),\qquad y^t = \psi(W z^t + c)",
)
@torch.no_grad()
def elman_rnn(
    reads: Literal["present", "past"] = "present",
    swapped: bool = False,
    output_of: Literal["present", "past"] = "present",
):
    r"""The simple recurrent network of Elman.

    $z^t = \phi(U z^{t-1} + V x^t + b)$ with recurrent weights $U \in \mathbb{R}^{m \times m}$ and
    input weights $V \in \mathbb{R}^{m \times n}$, and outputs $y^t = \psi(W z^t + c)$ with
    $W \in \mathbb{R}^{q \times m}$ (biases are often omitted): the same three matrices, of
    $m (m + n) + q m$ weights, at every step.

    Checked number by number for $\phi$ tanh, ReLU, logistic and identity and all $\psi$, with and
    without biases, from any $z^0$, for $m = 4$, $n = 3$, $q = 2$ and for $m = n = 4$; and against
    torch's `nn.RNN` with the same weights. With softmax as $\psi$ outputs sum to 1.

    Knobs:
        reads: Which input enters the state, that of this step or of the step before.
        swapped: Whether the two square matrices are exchanged.
        output_of: Which state the output is read from.
    """
    cases: Any = (("tanh", "softmax", True, 3), ("relu", "identity", False, 3),
             ("sigmoid", "tanh", True, 4), ("identity", "sigmoid", False, 4),
             ("tanh", "relu", True, 4))  # fmt: skip
    for phi, psi, bias, n in cases:
        m, q, T = 4, 2, 8
        net = ElmanRNN(n, m, q, activation=phi, output_activation=psi, bias=bias)
        at = {"phi": phi, "psi": psi, "n": n}
        x, z0 = torch.randn(2, T, n), torch.randn(2, m)
        y, last = net(x, z0)
        w = listed(net)
        entered = x if reads == "present" else F.pad(x, (0, 0, 1, 0))[:, :-1]
        if swapped and n == m:
            w["U"], w["V"] = w["V"], w["U"]
        for one in range(2):
            states, outputs = elman(w, entered[one].tolist(), z0[one].tolist(), phi, psi)
            if output_of == "past":
                first = [sum(a * b for a, b in zip(r, z0[one].tolist(), strict=True)) + c
                         for r, c in zip(w["W"], w.get("c", [0.0] * q), strict=True)]  # fmt: skip
                outputs = [ACTIVATIONS[psi](first), *outputs[:-1]]
            yield equals("outputs, number by number", y[one], outputs, tol=1e-12, **at)
            yield equals("last state, number by number", last[one], states[-1], tol=1e-12, **at)
        if psi == "softmax":
            yield equals("sums of softmax outputs", y.sum(-1), 1.0, tol=1e-14)
        entries = sum(p.numel() for p in net.parameters() if p.ndim == 2)
        yield equals("weights", entries, m * (m + n) + q * m, **at)
        if phi in ("tanh", "relu"):
            peer = nn.RNN(n, m, nonlinearity=phi, bias=bias, batch_first=True)
            weights = {"weight_hh_l0": net.U, "weight_ih_l0": net.V}
            if net.b is not None:
                weights |= {"bias_ih_l0": net.b, "bias_hh_l0": torch.zeros(m)}
            peer.load_state_dict(weights)
            yield equals("last state of torch's layer", peer(x, z0[None])[1][0], last, tol=1e-12,
                         **at)  # fmt: skip


elman_rnn.foil("the input of the step before", reads="past")
elman_rnn.foil("input and recurrent weights exchanged", swapped=True)
elman_rnn.foil("the output read before the update", output_of="past")
