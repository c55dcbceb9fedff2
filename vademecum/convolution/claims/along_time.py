"""Convolutions along time: dilation, how far WaveNet looks back, what is computed at once."""

from itertools import product
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, claim, equals
from vademecum.convolution import CausalConv1d, WaveNet
from vademecum.convolution import receptive_field as field_of
from vademecum.convolution.claims._stacks import Layer, extent, seen_by, stack


@claim(
    by="exhaustion",
    sources=("D-259", "D-262"),
    budget=1.0,
    short=r"d = 1, 2, \dots, 2^{L-1}: \ r = 1 + B (K - 1)(2^L - 1); \quad"
    r" \text{one layer: } (K - 1) d + 1",
)
def dilated_receptive_field(growth: Literal["linear", "exponential"] = "linear"):
    r"""Doubling dilations make the receptive field exponential in the number of layers.

    With kernel $K$ and dilations $1, 2, 4, \dots, 2^{L-1}$ a unit sees $1 + (K - 1)(2^L - 1)$
    inputs, at the same cost for every layer; $B$ such blocks in sequence see
    $1 + B (K - 1)(2^L - 1)$. For a single layer the span is linear in the dilation,
    $(K - 1) d + 1$. With $K = 3$: 3, 7, 15, 31, 63 for $L = 1, \dots, 5$, and 3, 5, 9, 17 for
    single layers with $d = 1, 2, 4, 8$.

    *Proof.* $\sum_{l<L} 2^l = 2^L - 1$ in the recursion. There are no holes: a block sees
    $(K - 1) \cdot$ (any number below $2^L$) and what lies between, as $K \ge 2$.

    Checked for all $K \le 4$, $L \le 6$, $B \le 3$ by index, and by the library where $L \le 4$.

    Knobs:
        growth: How the span of one layer is said to grow with its dilation.
    """
    for taps, depth, blocks in product((2, 3, 4), range(1, 7), (1, 2, 3)):
        layers: list[Layer] = [(taps, 1, 2**i) for i in range(depth)] * blocks
        stated = 1 + blocks * (taps - 1) * (2**depth - 1)
        at = {"K": taps, "L": depth, "B": blocks}
        seen = seen_by(layers)
        yield equals("inputs seen", len(seen), stated, **at)
        yield equals("extent", extent(seen), stated, **at)
        if depth <= 4 and blocks < 3:
            field = field_of(stack(layers).to("meta"), (1, stated + 6))
            yield equals("inputs seen, by the library", int(field.mask.sum()), stated, **at)
            yield equals("extent by the library", field.size[0], stated, **at)
    for taps, d in product((2, 3, 4), (1, 2, 4, 8)):
        stated = (taps - 1) * (d if growth == "linear" else 2**d - 1) + 1
        if (taps, d) == (3, 8):
            found = field_of(nn.Conv1d(1, 1, 3, dilation=8), (1, 20)).size[0]
            yield equals("inputs that 3 taps with dilation 8 span", found, stated)
        layer = nn.Conv1d(1, 1, taps, dilation=d)
        yield equals("span of one layer", field_of(layer, (1, 40)).size[0], stated, K=taps, d=d)
        yield equals("span by index", extent(seen_by([(taps, 1, d)])), stated, K=taps, d=d)
    spans = [field_of(nn.Conv1d(1, 1, 3, dilation=d), (1, 20)).size[0] for d in (1, 2, 4, 8)]
    yield equals("spans for K = 3", spans, [3, 5, 9, 17])


dilated_receptive_field.foil(
    "one layer exponential in its dilation: 511 inputs, not 17", growth="exponential"
)
dilated_receptive_field.erratum(
    "D-259",
    printed=r"receptive field exponential in the dilation factor $d$ ($1, 2, 4, 8, \dots$)",
    right=r"exponential in the number of layers, as dilations double; $(K - 1) d + 1$ for one",
    why=r"The span of a layer is $(K - 1) d + 1$, linear in $d$: $K = 3$, $d = 8$ sees 17 inputs."
    " The growth is exponential in the number of layers because the dilations double.",
    weight="hard",
    refuted_by="inputs that 3 taps with dilation 8 span",
    growth="exponential",
)


def looked_back(dilations: list[int], taps: int = 2) -> set[int]:
    """How many steps ago the inputs lie that the present output is made of, step by step."""
    found = {0}
    for d in reversed(dilations):
        found = {t + d * k for t in found for k in range(taps)}
    return found


@claim(
    by="exhaustion",
    sources=("D-262",),
    budget=1.0,
    short=r"K = 2,\ d = 1, 2, \dots, 512: \quad 1 + 1023 B\ \text{samples};"
    r" \quad B = 3: 3070,\ 192\,\mathrm{ms}",
)
def wavenet_context(blocks_are: Literal["added", "multiplied", "side by side"] = "added"):
    r"""Blocks of dilated causal layers add their contexts.

    WaveNet repeats blocks of causal layers with kernel 2 and dilations $1, 2, \dots, 512$. One
    block sees 1024 samples, $B$ blocks see $1 + 1023 B$: three cover 3070 samples, which are 192 ms
    of sound at 16 kHz.

    *Proof.* Each block reaches $1 + 2 + \dots + 512 = 1023$ samples further back; every number of
    steps up to that is a sum of distinct powers of two, so there are no holes.

    Checked for one and three blocks, by index and in `WaveNet` itself, and for smaller blocks.

    Knobs:
        blocks_are: How the contexts of blocks are put together.
    """
    for depth, blocks in ((3, 1), (3, 2), (4, 3), (10, 1), (10, 3)):
        one = 2**depth
        stated = {
            "added": 1 + (one - 1) * blocks,
            "multiplied": one**blocks,
            "side by side": one * blocks,
        }[blocks_are]
        at = {"layers a block": depth, "B": blocks}
        seen = looked_back([2**i for i in range(depth)] * blocks)
        yield equals("samples seen, by index", len(seen), stated, **at)
        yield equals("samples from the first to the last", max(seen) + 1, stated, **at)
        with torch.device("meta"):
            net = WaveNet(8, width=2, skip=2, blocks=blocks, depth=depth)
        length = max(seen) + 30
        sound = torch.zeros(1, length, dtype=torch.long, device="meta")
        field = field_of(net, sound, unit=length - 5)
        yield equals("samples seen in WaveNet", int(field.mask.sum()), stated, **at)
        yield equals("extent in WaveNet", field.size[0], stated, **at)
    seconds = len(looked_back([2**i for i in range(10)] * 3)) / 16_000
    yield equals("seconds of sound that three blocks see", seconds, 0.192, tol=5e-4)


wavenet_context.foil("contexts multiplied, $1024^3$", blocks_are="multiplied")
wavenet_context.foil("contexts side by side, 3072", blocks_are="side by side")


def longest_chain(length: int, depth: int, taps: int, *, recurrent: bool) -> int:
    """The longest way through the graph of units, edge by edge, from inputs to outputs."""
    longest = {(0, t): 0 for t in range(length)}
    for layer in range(1, depth + 1):
        for t in range(length):
            sources = [(layer - 1, t - k) for k in range(taps) if t >= k]
            if recurrent:
                sources = [(layer - 1, t), *([(layer, t - 1)] if t else [])]
            longest[layer, t] = 1 + max(longest[s] for s in sources)
    return max(longest.values())


def in_order(layer: CausalConv1d, x: Tensor, order: list[int], taps: int) -> Tensor:
    """The outputs of a layer, one position after the other."""
    y = torch.zeros(x.shape[0], layer.out_channels, x.shape[2])
    for t in order:
        window = x[:, :, max(0, t - taps + 1) : t + 1]
        y[:, :, t] = layer(window)[:, :, -1]
    return y


def recurrent_states(x: Tensor, order: list[int]) -> Tensor:
    """States $h_t = h_{t-1} / 2 + x_t$ of a recurrent layer; a state that is missing reads as 0."""
    h = torch.zeros(x.shape[2] + 1)
    for t in order:
        h[t + 1] = h[t] / 2 + x[0, 0, t]
    return h[1:]


@claim(
    by="identity",
    sources=("D-254",),
    budget=1.0,
    short=r"\text{longest chain of operations: } L\ \text{in } L\ \text{convolutions},"
    r"\ T\ \text{in a recurrent layer}",
)
def parallel_depth(recurrent: Literal["in time", "at once"] = "in time"):
    r"""Convolutions can be computed for all time steps at once, recurrent layers cannot.

    In a stack of $L$ convolutions all steps of a layer can be computed at once: the longest chain
    of operations that wait for each other has length $L$ whatever the length $T$ of the sequence,
    whereas a recurrent layer needs a chain of $T$ steps.

    *Proof.* A unit of a convolution waits for units of the layer before alone; state $t$ of a
    recurrent layer waits for state $t - 1$.

    Checked for $L \le 4$ and $T = 4, 16, 64$, unit by unit; and a causal layer of the library gives
    the same numbers, bit by bit, when its positions are computed in a random order.

    Knobs:
        recurrent: Whether a recurrent layer is said to need its steps in time, or to allow any
            order.
    """
    for depth, length in product((1, 2, 3, 4), (4, 16, 64)):
        at = {"L": depth, "T": length}
        chain = longest_chain(length, depth, 3, recurrent=False)
        yield equals("longest chain in convolutions", chain, depth, **at)
    for length in (4, 16, 64):
        chain = longest_chain(length, 1, 1, recurrent=True)
        stated = length if recurrent == "in time" else 1
        yield equals("longest chain in a recurrent layer", chain, stated, T=length)
        x = torch.randint(1, 9, (1, 1, length)).double()
        layer = CausalConv1d(1, 2, 3)
        for p in layer.parameters():
            p.data = torch.randint(-9, 9, p.shape).double()
        order = torch.randperm(length).tolist()
        if order == sorted(order):
            order.reverse()
        with torch.no_grad():
            found, whole = in_order(layer, x, order, 3), layer(x)
        yield equals("convolution in a random order", found, whole, tol=0.0, T=length)
        states = recurrent_states(x, list(range(length)))
        moved = (recurrent_states(x, order) - states).abs().max()
        if recurrent == "in time":
            yield at_least("change of recurrent states out of order", moved, 0.5, T=length)
        else:
            yield equals("change of recurrent states out of order", moved, 0.0, T=length)


parallel_depth.foil("recurrent layers in any order", recurrent="at once")
