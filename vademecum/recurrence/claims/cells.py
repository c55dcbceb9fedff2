"""The cells of LSTM and GRU: their equations, number by number and as torch has them."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.recurrence import CourseGRU, CourseLSTM, GRUTrace, LSTMTrace
from vademecum.recurrence.claims._scalar_cells import gru as gru_by_hand
from vademecum.recurrence.claims._scalar_cells import listed, slope_of
from vademecum.recurrence.claims._scalar_cells import lstm as lstm_by_hand
from vademecum.recurrence.claims.gating import traced


def slopes(net: nn.Module, x: Tensor, by_hand: Callable[[Any, Any], Any]) -> tuple[Tensor, float]:
    """The slope of a weighted sum of outputs along random weights: autograd's, and by hand."""
    along = {name: torch.randn_like(p) for name, p in net.named_parameters()}
    y = net(x).output
    readout = torch.randn_like(y)
    found = torch.autograd.grad((y * readout).sum(), list(net.parameters()))
    slope = torch.stack([(g * along[n]).sum() for g, n in zip(found, along, strict=True)]).sum()
    w, total = listed(net, along), 0.0
    for one, weights in zip(x.tolist(), readout.tolist(), strict=True):
        outputs = by_hand(w, one)
        for y_t, r_t in zip(outputs, weights, strict=True):
            total += sum(slope_of(v) * r for v, r in zip(y_t["y"], r_t, strict=True))
    return slope, total


@claim(
    by="identity",
    sources=("A-236", "B-373", "B-374", "B-375", "B-376", "C-135", "C-136", "C-137", "D-283",
             "D-284", "D-285", "D-286"),
    short=r"C^t = f \odot C^{t-1} + i \odot \tilde C,\quad h^t = o \odot \tanh(U C^t),\quad"
    r" |h^t| < 1",
)  # fmt: skip
def lstm(
    shows: Literal["tanh(Uc)", "tanh(c)", "Uc"] = "tanh(Uc)",
    forgets: Literal["cell", "candidate"] = "cell",
):
    r"""The cell of an LSTM, as the sheets write it and as torch has it.

    With $\tilde x^t = [x^t; h^{t-1}]$ and biases: forget gate $f = \sigma(F \tilde x^t)$, input
    gate $i = \sigma(G \tilde x^t)$, candidate $\tilde C = \tanh(V \tilde x^t)$, output gate
    $o = \sigma(H \tilde x^t)$; cell $C^t = f \odot C^{t-1} + i \odot \tilde C$ and exposed state
    $h^t = o \odot \tanh(C^t)$, so $|h^t| < 1$. The sheets' variant $h^t = o \odot \tanh(U C^t)$
    reduces to the standard cell for $U = I$; block weights on the concatenation are separate input
    and recurrent matrices, as torch keeps them.

    Checked for 3 inputs, 4 cells, $T = 10$, from any state, with and without biases, $U$ and an
    output matrix: every gate number by number, and torch's `nn.LSTM` with the same weights. Slopes
    along random weights are found by a complex step through plain Python.

    Knobs:
        shows: What the output gate multiplies.
        forgets: What the forget gate multiplies; the input gate multiplies the other.
    """
    d, m, T = 3, 4, 10
    for k, mixing, bias in ((2, True, True), (None, True, False), (None, False, True)):
        net, at = CourseLSTM(d, m, k, mixing=mixing, bias=bias), {"U": mixing, "bias": bias}
        x, h, c = torch.randn(2, T, d), torch.randn(2, m), torch.randn(2, m)
        trace, y = traced(net, x, (h, c)), net(x, (h, c)).output.detach()
        for one in range(2):
            steps = lstm_by_hand(listed(net), x[one].tolist(), h[one].tolist(), c[one].tolist(),
                                 shows=shows, forgets=forgets)  # fmt: skip
            for name in LSTMTrace._fields:
                wanted = [step[name] for step in steps]
                yield equals(f"{name}, number by number", getattr(trace, name)[one], wanted,
                             tol=1e-12, **at)  # fmt: skip
            yield equals("outputs", y[one], [step["y"] for step in steps], tol=1e-12, **at)
        yield at_most("exposed states", trace.h.abs(), trace.o, tol=0.0, **at)
        yield at_most("output gates", trace.o, 1.0, tol=0.0, **at)
        found, wanted = slopes(net, x, lambda w, one: lstm_by_hand(
            w, one, [0.0] * m, [0.0] * m, shows=shows, forgets=forgets))  # fmt: skip
        yield equals("slope of outputs along weights", found, wanted, tol=1e-10, **at)
    identity = CourseLSTM(d, m)
    assert identity.U is not None
    identity.U.data = torch.eye(m)
    for net in (identity, CourseLSTM(d, m, mixing=False, bias=False)):
        peer, x, start = net.to_torch(), torch.randn(2, T, d), torch.randn(2, 2, m)
        with torch.no_grad():
            y, (h_n, c_n) = peer(x, (start[:1], start[1:]))
            found, (last_h, last_c) = net(x, (start[0], start[1]))
        yield equals("outputs of torch's layer", y, found, tol=1e-12)
        yield equals("last state of torch's layer", h_n[0], last_h, tol=1e-12)
        yield equals("last cell of torch's layer", c_n[0], last_c, tol=1e-12)
        ours, theirs = traced(net, x), traced(peer, x)
        for name in LSTMTrace._fields:
            yield equals(f"{name} of torch's layer", getattr(theirs, name), getattr(ours, name),
                         tol=1e-12)  # fmt: skip


lstm.foil(r"no second tanh, $h = o \odot U C$", shows="Uc")
lstm.foil("$U$ left out where there is one", shows="tanh(c)")
lstm.foil("the forget gate applied to the candidate", forgets="candidate")


@claim(
    by="identity",
    sources=("A-238", "B-377", "C-138", "C-139", "C-140", "C-141", "D-287", "D-289"),
    short=r"z^t = (1 - \Gamma_u) \odot z^{t-1} + \Gamma_u \odot \tanh(V [x^t; \Gamma_r \odot"
    r" z^{t-1}])",
)
def gru(
    reset: Literal["before", "after"] = "before", update: Literal["writes", "keeps"] = "writes"
):
    r"""The cell of a GRU, as the sheets write it and as torch has it.

    Update gate $\Gamma_u = \sigma(G [x^t; z^{t-1}])$, reset gate
    $\Gamma_r = \sigma(H [x^t; z^{t-1}])$, candidate
    $\tilde z^t = \tanh(V [x^t; \Gamma_r \odot z^{t-1}])$ and
    $z^t = (1 - \Gamma_u) \odot z^{t-1} + \Gamma_u \odot \tilde z^t$, with or without biases: a
    simplified LSTM with forget and input gates tied and one vector as state and output. The reset
    gate acts before the matrix product; a closed one makes the candidate forget the state. torch
    exchanges the roles of $\Gamma_u$ and $1 - \Gamma_u$ and applies the reset after the product.

    Checked for 3 inputs, 4 units, $T = 10$, from any state: every gate number by number, with and
    without biases and an output matrix, and torch's `nn.GRU` number by number in its own form.
    Slopes along random weights are found by a complex step through plain Python.

    Knobs:
        reset: Whether the reset gate acts before or after the product.
        update: Whether the update gate is what is written of the candidate, or kept of the state.
    """
    d, m, T = 3, 4, 10
    for k, bias in ((2, True), (None, False)):
        net, at = CourseGRU(d, m, k, bias=bias), {"k": k or 0, "bias": bias}
        x, z = torch.randn(2, T, d), torch.randn(2, m)
        trace, y = traced(net, x, z), net(x, z).output.detach()
        for one in range(2):
            steps = gru_by_hand(listed(net), x[one].tolist(), z[one].tolist(), reset=reset,
                                update=update)  # fmt: skip
            stated = {name: torch.tensor([step[name] for step in steps]) for name in steps[0]}
            yield equals("candidate, number by number", trace.n[one], stated["n"], tol=1e-12, **at)
            yield equals("reset gate", trace.r[one], stated["r"], tol=1e-12, **at)
            kept = 1 - stated["u"] if update == "writes" else stated["u"]
            yield equals("share that is kept", trace.z[one], kept, tol=1e-12, **at)
            yield equals("states, number by number", trace.h[one], stated["h"], tol=1e-12, **at)
            yield equals("outputs", y[one], stated["y"], tol=1e-12, **at)
        found, wanted = slopes(net, x, lambda w, one: gru_by_hand(
            w, one, [0.0] * m, reset=reset, update=update))  # fmt: skip
        yield equals("slope of outputs along weights", found, wanted, tol=1e-10, **at)
        net.H.data.zero_()
        if net.bias is not None:
            net.bias.data[1] = -1000.0
            one, other = (traced(net, x[:, :1], state).n for state in (z, z.flip(0) + 1))
            yield equals("candidate behind a closed reset gate", one, other, tol=1e-15)
    yield from _as_torch_has_it(d, m, T)


def _as_torch_has_it(d: int, m: int, T: int) -> Iterator[Evidence]:
    for bias in (True, False):
        net, x, z = (
            CourseGRU(d, m, reset="after", bias=bias),
            torch.randn(2, T, d),
            torch.randn(2, m),
        )
        peer = net.to_torch()
        ours, theirs = traced(net, x, z), traced(peer, x, z[None])
        steps = [gru_by_hand(listed(net), x[i].tolist(), z[i].tolist(), reset="after")
                 for i in range(2)]  # fmt: skip
        states = torch.tensor([[step["h"] for step in one] for one in steps])
        written = torch.tensor([[step["u"] for step in one] for one in steps])
        with torch.no_grad():
            yield equals("outputs of torch's layer", peer(x, z[None])[0], states, tol=1e-12)
        yield equals("torch's update gate", theirs.z, 1 - written, tol=1e-12, bias=bias)
        for name in GRUTrace._fields:
            yield equals(f"{name} of torch's layer", getattr(theirs, name), getattr(ours, name),
                         tol=1e-12, bias=bias)  # fmt: skip


gru.foil("the reset gate after the product, as in torch", reset="after")
gru.foil("the update gate with its roles exchanged, as in torch", update="keeps")


@claim(
    by="sampling",
    sources=("B-377", "C-138", "D-288"),
    short=r"\min(z^{t-1}_j, \tilde z^t_j) \le z^t_j \le \max(z^{t-1}_j, \tilde"
    r" z^t_j),\quad |z^t_j| \le 1 \text{ from } z^0 = 0",
)
def gru_convexity(cell: Literal["gru", "lstm"] = "gru", T: int = 1000):
    r"""The state of a GRU is a convex combination of the old state and the candidate.

    Each coordinate of $z^t = (1 - \Gamma_u) \odot z^{t-1} + \Gamma_u \odot \tilde z^t$ lies between
    the old state and the candidate; hence from $z^0 = 0$ all states stay in $[-1, 1]$.
    $\Gamma_u = 0$ freezes and $\Gamma_u = 1$ replaces the state.

    *Proof.* $0 \le \Gamma_u \le 1$ and $|\tanh| \le 1$.

    Checked over a thousand steps with weights of standard deviation 3, for both places of the reset
    gate; the two products and the sum round by less than $10^{-15}$.

    Knobs:
        cell: Whose update it is; the LSTM's cell has gates that are not tied, and open.
        T: The number of steps.
    """
    d, m = 3, 5
    for reset in ("before", "after"):
        if cell == "gru":
            net: Any = CourseGRU(d, m, reset=reset)  # type: ignore[arg-type]
        else:
            net = CourseLSTM(d, m)
        net.requires_grad_(False)
        for p in net.parameters():
            p.normal_(0, 3)
        if cell == "lstm":
            net.bias[:2] = 3.0
        trace = traced(net, torch.randn(2, T, d))
        states, new = (trace.h, trace.n) if cell == "gru" else (trace.c, trace.g)
        old = torch.cat((torch.zeros(2, 1, m), states[:, :-1]), 1)
        at = {"reset": reset, "T": T}
        yield at_least("state", states, torch.minimum(old, new), tol=1e-15, **at)
        yield at_most("state", states, torch.maximum(old, new), tol=1e-15, **at)
        yield at_most("size of a state", states.abs(), 1.0, tol=1e-15, **at)
    net = CourseGRU(d, m).requires_grad_(False)
    assert net.bias is not None
    x, z = torch.randn(2, 4, d), torch.randn(2, m)
    for logit in (-1000.0, 1000.0):
        net.G.zero_()
        net.bias[0] = logit
        trace = traced(net, x, z)
        stated = trace.n if logit > 0 else z[:, None].expand(2, 4, m)
        share = int(logit > 0)
        yield equals("state behind a saturated update gate", trace.h, stated, tol=0.0, share=share)


gru_convexity.foil("untied gates, as an LSTM's cell has them", cell="lstm")
