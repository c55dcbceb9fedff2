"""Strides and dilation: and the number of windows that fit."""

from collections.abc import Callable
from itertools import product
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional as F

from vademecum.claims import claim, equals
from vademecum.convolution import conv_matrix, conv_output_size, correlate
from vademecum.convolution.claims._signals import crooked, whole


@claim(
    by="identity", sources=("C-111", "D-223", "D-224"), budget=0.7,
    short=r"y[u] = \textstyle\sum_t w[t]\, x[S u + t]",
)  # fmt: skip
def stride(skips: Literal["outputs", "inputs"] = "outputs"):
    r"""Stride.

    The stride $S$ is the step of the kernel between neighbouring outputs: a strided convolution is
    the dense one with every $S$-th output kept, so sub-sampling is evaluation on a coarser grid of
    output positions. It skips outputs, not inputs; all inputs still enter some window as long as
    $S \le K$ and the windows reach the border, $n - K$ divisible by $S$. Exact in whole numbers,
    in one and two dimensions.

    Knobs:
        skips: What is left out, all but every $S$-th: outputs of the dense convolution, or inputs
            before it.
    """
    others = [pair for pair in product(range(1, 6), range(1, 5)) if pair != (3, 2)]
    for K, S in [(3, 2), *others]:
        n = K + 3 * S * 2  # windows reach the border
        x, w, at = whole(n), crooked(K) if K > 1 else torch.tensor([3]), {"K": K, "S": S}
        layer = F.conv1d(x.double().view(1, 1, n), w.double().view(1, 1, K), stride=S)[0, 0]
        if skips == "outputs":
            stated = correlate(x, w, mode="valid")[::S]
        else:
            stated = correlate(F.pad(x[::S], (0, K)), w, mode="valid")[: len(layer)]
        yield equals("strided layer", layer, stated.double(), tol=0.0, **at)
        conv = nn.Conv1d(1, 1, K, stride=S, bias=False)
        conv.weight.data.fill_(1.0)
        unseen = int((conv_matrix(conv, (1, n)).dense() == 0).all(0).sum())
        kept = len(range(0, n, S)) if skips == "inputs" else n
        if S <= K:
            yield equals("inputs that no window sees", unseen, n - kept, **at)
        else:
            yield equals("inputs that no window sees", unseen, 6 * (S - K), **at)
    for (K, L), (S, R) in (((2, 3), (2, 1)), ((3, 1), (1, 3)), ((4, 2), (3, 2))):
        x, w = whole(9, 8), crooked(K, L)
        layer = F.conv2d(x.double()[None, None], w.double()[None, None], stride=(S, R))[0, 0]
        seen = x if skips == "outputs" else F.pad(x[::S, ::R], (0, 9, 0, 9))
        dense = correlate(seen, w, mode="valid")
        stated = dense[::S, ::R] if skips == "outputs" else dense[: len(layer), : layer.shape[1]]
        yield equals("strided layer of two dimensions", layer, stated.double(), tol=0.0, K=K, S=S)


stride.foil("leaving out inputs first", refuted_by="strided layer", skips="inputs")
stride.erratum(
    "D-224",
    printed="describes stride as leaving out input values and as a number of steps per dimension",
    right="the length of a step between neighbouring outputs",
    why=r"Stride skips output positions (skipping inputs inside the window is dilation): with $K ="
    r" 3, S = 2$ every input still enters a window. It is the length of a step; the number of steps"
    r" is the output size.",
    weight="soft",
    refuted_by="inputs that no window sees",
    skips="inputs",
)


@claim(
    by="identity", sources=("D-225", "D-258"), budget=0.7,
    short=r"y[u] = \textstyle\sum_t w[t]\, x[u + d t],\quad \text{span } d (K - 1) + 1",
)  # fmt: skip
def dilation(knob: Literal["dilation", "stride"] = "dilation"):
    r"""Dilated convolution.

    Dilation $d$ spaces the kernel taps $d$ apart: $y[u] = \sum_t w[t]\, x[u + d t]$. A $K$-tap
    kernel then spans $d (K - 1) + 1$ inputs with an unchanged number of weights, and with matching
    padding the resolution is kept, so context grows without pooling. Exact in whole numbers, for
    $K \le 5$ and $d \le 4$.

    Knobs:
        knob: Which argument of the layer is set to $d$.
    """
    for K, d in product(range(2, 6), range(1, 5)):
        n, w, at = 24, crooked(K), {"K": K, "d": d}
        x = whole(n)
        knobs: dict[str, Any] = {knob: d}
        weight, signal = w.double().view(1, 1, K), x.double().view(1, 1, n)
        layer = F.conv1d(signal, weight, **knobs)[0, 0].long()
        span = d * (K - 1) + 1
        stuffed = torch.zeros(span).long()
        stuffed[::d] = w
        stated = correlate(x, stuffed, mode="valid")
        yield equals("length of the output", len(layer), n - span + 1, **at)
        if len(layer) == len(stated):
            yield equals("layer with zeros between the taps", layer, stated, **at)
            sums = [sum(int(w[t] * x[u + d * t]) for t in range(K)) for u in range(len(layer))]
            yield equals("layer as a sum", layer, sums, **at)
        conv = nn.Conv1d(1, 1, K, bias=False, **knobs)
        yield equals("weights", sum(p.numel() for p in conv.parameters()), K, **at)
        conv.weight.data.fill_(1.0)
        row = conv_matrix(conv, (1, n)).dense()[0].nonzero().flatten()
        yield equals("places from the first to the last tap", int(row[-1] - row[0]) + 1, span, **at)
        if K % 2:
            kept = F.conv1d(signal, weight, padding=d * (K - 1) // 2, **knobs).shape[2]
            yield equals("length with matching padding", kept, n, **at)


dilation.foil("a stride spaces the outputs", refuted_by="length of the output", knob="stride")


def down(length: int, step: int) -> int:
    """The quotient rounded down."""
    return length // step


def up(length: int, step: int) -> int:
    """The quotient rounded up."""
    return -(-length // step)


@claim(
    by="exhaustion", sources=("A-136", "B-291", "C-110", "D-203", "D-226", "D-228"), budget=1.0,
    short=r"O = \left\lfloor \frac{I + 2P - d (K - 1) - 1}{S} \right\rfloor + 1",
)  # fmt: skip
def output_size(quotient: Callable[[int, int], int] = down, largest: int = 20):
    r"""The output size of a convolution.

    Per axis, with input $I$, padding $P$ on both sides (which enlarges the input by $2P$), kernel
    $K$, dilation $d$ and stride $S$, and $I + 2P \ge d (K - 1) + 1$: $O = \Big\lfloor \frac{I + 2P
    - d (K - 1) - 1}{S} \Big\rfloor + 1$, which for $d = 1$ is $\lfloor (I + 2P - K)/S \rfloor + 1$.
    All settings with $K \le 5$, $P \le 3$, $d \le 3$, $S \le 4$.

    *Proof.* Windows start at $0, S, 2S, \dots$ as long as the last tap stays inside.

    Knobs:
        quotient: How the quotient by the stride is rounded.
        largest: The largest $I$.
    """
    starts = [s for s in range(0, 5, 2) if s + 1 < 5]  # of two taps that go by twos
    yield equals("windows that fit", len(starts), quotient(5 - 2, 2) + 1, I=5, K=2, S=2)
    settings: Any = product(range(1, 6), range(4), range(1, 4), range(1, 5))
    for K, P, d, S in settings:
        sizes = [n for n in range(1, largest + 1) if n + 2 * P >= d * (K - 1) + 1]
        starts = [
            sum(1 for s in range(0, n + 2 * P, S) if s + d * (K - 1) < n + 2 * P) for n in sizes
        ]
        stated = [quotient(n + 2 * P - d * (K - 1) - 1, S) + 1 for n in sizes]
        at = {"K": K, "P": P, "d": d, "S": S}
        yield equals("windows that fit", starts, stated, **at)
        knobs: Any = {"stride": S, "padding": P, "dilation": d}
        found = [conv_output_size(n, K, **knobs) for n in sizes]
        yield equals("conv_output_size", found, starts, **at)
        w = torch.zeros(1, 1, K)
        some = sizes[:: 5 if d > 1 else 2]
        lengths = [F.conv1d(torch.zeros(1, 1, n), w, **knobs).shape[2] for n in some]
        yield equals("length of a layer's output", lengths, starts[:: 5 if d > 1 else 2], **at)
    found = conv_output_size((9, 7), (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 3))
    layer = nn.Conv2d(1, 1, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 3))
    yield equals("two axes", found, list(layer(torch.zeros(1, 1, 9, 7)).shape[2:]))


output_size.erratum(
    "A-136",
    printed=r"$\lceil (\text{input\_width} + 2\,\text{pad} - \text{filter\_width}) /"
    r" \text{stride} \rceil + 1$",
    right=r"$\lfloor (I + 2P - K)/S \rfloor + 1$",
    why="Input 5, filter 2, stride 2 without padding has window starts 0 and 2 only, so 2 outputs;"
    " the ceiling gives 3, whose window would leave the signal. A scanning slip cannot be"
    " excluded.",
    weight="scan",
    refuted_by="windows that fit",
    quotient=up,
)
