"""Several chains: backwards in time beside forwards, and layers above layers."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, claim, equals
from vademecum.recurrence import ElmanRNN, RNNTrace, gates
from vademecum.recurrence.claims._scalar_cells import affine, elman, tanh

Chain = dict[str, Any]


def chain(layer: nn.RNN, end: str) -> Chain:
    """The weights of one direction of one layer of torch, under the names of the course."""
    found = dict(layer.named_parameters())
    w = {"U": found[f"weight_hh{end}"].tolist(), "V": found[f"weight_ih{end}"].tolist()}
    biases = [found[f"bias_{part}{end}"] for part in ("ih", "hh")] if layer.bias else []
    return w | {"b": sum(biases).tolist()} if biases else w  # type: ignore[union-attr]


def alone(layer: nn.RNN, way: str, d: int, m: int) -> ElmanRNN:
    """One direction of a layer of torch without biases, as a network of its own."""
    found, net = dict(layer.named_parameters()), ElmanRNN(d, m, bias=False)
    net.load_state_dict({"U": found[f"weight_hh_l0{way}"], "V": found[f"weight_ih_l0{way}"]})
    return net


@claim(
    by="identity",
    sources=("A-232", "B-368", "C-134", "D-280"),
    short=r"\tilde z^t = \phi(\tilde U \tilde z^{t+1} + \tilde V x^t),\quad y^t = \psi(W z^t +"
    r" \tilde W \tilde z^t)",
)
@torch.no_grad()
def bidirectional(reversed_again: bool = True, swapped: bool = True):
    r"""A bidirectional network has a second chain that runs backwards in time.

    $\tilde z^t = \phi(\tilde U \tilde z^{t+1} + \tilde V x^t)$ with $\tilde z^{T+1} = 0$, and both
    states are combined, $y^t = \psi(W z^t + \tilde W \tilde z^t)$, so every output sees past and
    future inputs. Reversing the input and exchanging the two parameter sets reverses the outputs.

    *Proof.* The second chain is a network on the reversed sequence, whose states are reversed
    again.

    Checked for torch's `nn.RNN(bidirectional=True)`, $\psi = \tanh$, $T = 7$, number by number,
    and against two simple networks. That every output sees every input is checked where all weights
    are positive: no terms can cancel, and the derivative is at least the product along one path.

    Knobs:
        reversed_again: Whether the states of the second chain are brought into the order of time.
        swapped: Whether the parameter sets are exchanged when the input is reversed.
    """
    T = 7
    for d, m, k in ((3, 4, 2), (2, 3, 4)):
        layer = nn.RNN(d, m, bidirectional=True, batch_first=True, bias=False)
        W, W_back = torch.randn(2, k, m)
        x, at = torch.randn(2, T, d), {"d": d, "m": m}
        forth, back = layer(x)[0].split(m, -1)
        y = torch.tanh(forth @ W.T + back @ W_back.T)
        for one in range(2):
            rows = x[one].tolist()
            ahead, _ = elman(chain(layer, "_l0"), rows, [0.0] * m)
            behind, _ = elman(chain(layer, "_l0_reverse"), rows[::-1], [0.0] * m)
            behind = behind[::-1] if reversed_again else behind
            by_hand = [
                [tanh(p + q) for p, q in zip(affine(W.tolist(), a), affine(W_back.tolist(), b),
                                             strict=True)]
                for a, b in zip(ahead, behind, strict=True)
            ]  # fmt: skip
            yield equals("outputs, number by number", y[one], by_hand, tol=1e-12, **at)
        one, other = (alone(layer, way, d, m) for way in ("", "_reverse"))
        states = other(x.flip(1)).output
        states = states.flip(1) if reversed_again else states
        yield equals("states of the backward chain", back, states, tol=1e-12, **at)
        yield equals("states of the forward chain", forth, one(x).output, tol=1e-12, **at)
        (trace,) = gates(layer, x).layers
        yield equals("backward states, from its gates", trace[1].h, states, tol=1e-12, **at)
        mirrored = _mirrored(layer) if swapped else layer
        back_too, forth_too = mirrored(x.flip(1))[0].split(m, -1)
        sums = back_too @ W_back.T + forth_too @ W.T
        yield equals("outputs of the reversed input", torch.tanh(sums), y.flip(1), tol=1e-12, **at)
    yield from _every_input_is_seen(T)


def _mirrored(layer: nn.RNN) -> nn.RNN:
    """The layer with its parameter sets exchanged."""
    other = nn.RNN(layer.input_size, layer.hidden_size, bidirectional=True, batch_first=True,
                   bias=False)  # fmt: skip
    own = layer.state_dict()
    ends = {"_l0": "_l0_reverse", "_l0_reverse": "_l0"}
    names = ("weight_ih", "weight_hh")
    other.load_state_dict({f"{n}{a}": own[f"{n}{b}"] for n in names for a, b in ends.items()})
    return other


def _every_input_is_seen(T: int) -> Iterator[Evidence]:
    d, m = 2, 3
    layer = nn.RNN(d, m, bidirectional=True, batch_first=True, bias=False)
    for p in layer.parameters():
        nn.init.uniform_(p, 0.3, 0.5)
    x = 2 * torch.rand(1, T, d) - 1
    largest = 0.5 * (d + m)  # of a sum of d inputs and m states
    slope = 1 - tanh(largest) ** 2

    def sums(x: Tensor) -> Tensor:
        return layer(x)[0].sum(-1)[0]

    with torch.enable_grad():
        found: Any = torch.autograd.functional.jacobian(sums, x)
    for s in range(T):
        for t in range(T):
            least = (0.3 * m * slope) ** (abs(t - s) + 1)
            seen = found[t, 0, s]
            yield at_least("derivative of an output by an input", seen, least, tol=0.0, s=s, t=t)


bidirectional.foil("the backward states left in reversed order", reversed_again=False)
bidirectional.foil("the parameter sets not exchanged", swapped=False)


def by_time(nets: list[ElmanRNN], x: Tensor, lower: str) -> Tensor:
    """Outputs of stacked networks, all layers at each step; a layer reads the one below it."""
    states: list[Any] = [None] * len(nets)
    tops = []
    for now in x.unbind(1):
        before, entering = list(states), now
        for i, net in enumerate(nets):
            _, states[i] = net.step(entering, states[i])
            entering = states[i]
            if lower == "before":
                entering = torch.zeros_like(states[i]) if before[i] is None else before[i]
        tops.append(states[-1])
    return torch.stack(tops, 1)


@claim(
    by="identity",
    sources=("A-233", "B-369", "D-281"),
    short=r"z^{t,l} = \phi(U^l z^{t-1,l} + V^l z^{t,l-1}),\quad z^{t,0} = x^t,\quad y^t = \psi(W"
    r" z^{t,L})",
)
@torch.no_grad()
def stacked(
    lower: Literal["present", "before"] = "present", read: Literal["top", "bottom"] = "top"
):
    r"""A deep recurrent network feeds the states of one layer to the next.

    $z^{t,l} = \phi(U^l z^{t-1,l} + V^l z^{t,l-1})$ with $z^{t,0} = x^t$, and the output is read
    from the top, $y^t = \psi(W z^{t,L})$. The layers may be computed one after the other, each for
    all times, or all of them at each step; one layer is the simple network.

    *Proof.* State $(t, l)$ needs $(t-1, l)$ and $(t, l-1)$ alone, which both orders compute first.

    Checked for simple networks of widths 5, 3, 4 and 2 above each other, $L \le 4$, and number by
    number for torch's `nn.RNN(num_layers=2)` and 3, with biases and without, layer by layer.

    Knobs:
        lower: Which state of the layer below is read, of this step or of the step before.
        read: Which layer the output is read from.
    """
    d, T = 3, 7
    for depth in (1, 2, 3, 4):
        widths = [d, 5, 3, 4, 2][: depth + 1]
        nets = [ElmanRNN(a, b) for a, b in pairwise(widths)]
        x, W = torch.randn(2, T, d), torch.randn(3, widths[-1])
        layer_by_layer = x
        for net in nets:
            layer_by_layer = net(layer_by_layer).output
        y = torch.tanh(by_time(nets, x, lower) @ W.T)
        wanted = torch.tanh(layer_by_layer @ W.T)
        yield equals("outputs, all layers at each step", y, wanted, tol=1e-12, L=depth)
    for depth, bias in ((1, True), (2, True), (3, False)):
        layer = nn.RNN(d, 4, num_layers=depth, bias=bias, batch_first=True)
        x, W = torch.randn(2, T, d), torch.randn(2, 4)
        trace = gates(layer, x)
        y = torch.tanh(layer(x)[0] @ W.T)
        for one in range(2):
            states, tops = x[one].tolist(), []
            for i in range(depth):
                states, _ = elman(chain(layer, f"_l{i}"), states, [0.0] * 4)
                tops.append(states)
                at = {"L": depth, "l": i + 1}
                (found,) = trace.layers[i]
                assert isinstance(found, RNNTrace)
                yield equals("states of a layer", found.h[one], states, tol=1e-12, **at)
                if lower == "before":
                    states = [[0.0] * 4, *states[:-1]]
            top = tops[-1] if read == "top" else tops[0]
            by_hand = [[tanh(v) for v in affine(W.tolist(), z)] for z in top]
            yield equals("outputs of torch's layers", y[one], by_hand, tol=1e-12, L=depth)


stacked.foil("the lower state of the step before", lower="before")
stacked.foil("the output read from the first layer", read="bottom")
