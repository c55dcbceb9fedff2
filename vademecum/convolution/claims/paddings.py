"""What stands beyond the border, and how long the output is: valid, same, full and causal."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from scipy import signal
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import at_least, claim, equals
from vademecum.convolution import CausalConv1d, conv_output_size, convolve
from vademecum.convolution.claims._signals import by_definition, crooked, flipped, whole
from vademecum.gradients import conv_input_grad


def twice(p: int) -> int:
    """A half-width on either side."""
    return 2 * p


def once(p: int) -> int:
    """A half-width on one side."""
    return p


@claim(
    by="exhaustion", sources=("B-279", "D-205", "D-264", "E-140", "E-141"), budget=0.7,
    short=r"(m \times n) * ((2p + 1) \times (2q + 1)) \to (m - 2p) \times (n - 2q)",
)  # fmt: skip
def valid_padding(lost: Callable[[int], int] = twice, largest: int = 9):
    r"""The size of the output with valid padding.

    Keeping only the windows that lie completely inside the signal gives $n - k + 1$ outputs per
    axis at stride 1. An $m \times n$ image and an odd filter $(2p + 1) \times (2q + 1)$ give $(m -
    2p) \times (n - 2q)$; an $m \times n \times c$ tensor and $K$ kernels of size $p \times q$ give
    $(m - p + 1) \times (n - q + 1) \times K$. All $m, n$ from 5 on and all half-widths up to 2,
    and even kernels beside.

    Knobs:
        lost: How many positions an axis loses to a filter of half-width $p$.
        largest: The largest $m$ and $n$.
    """
    small = convolve(whole(5, 5), whole(3, 3), mode="valid")
    at: dict[str, Any] = {"m": 5, "n": 5, "p": 1, "q": 1}
    yield equals("shape of the result", list(small.shape), [5 - lost(1)] * 2, **at)
    for m, n in np.ndindex(largest - 4, largest - 4):
        x = whole(m + 5, n + 5)
        for p, q in np.ndindex(3, 3):
            w = whole(2 * p + 1, 2 * q + 1)
            stated, at = [m + 5 - lost(p), n + 5 - lost(q)], {"m": m + 5, "n": n + 5, "p": p}
            valid = signal.convolve2d(x.numpy(), w.numpy(), "valid")
            yield equals("shape of SciPy's result", list(valid.shape), stated, **at, q=q)
            found = convolve(x, w, mode="valid")
            yield equals("shape of the result", list(found.shape), stated, **at, q=q)
            full = signal.convolve2d(x.numpy(), w.numpy())
            inner = full[2 * p : m + 5, 2 * q : n + 5]
            yield equals("interior of the full convolution", found, inner, **at, q=q)
    for p, q, c, K in ((2, 3, 3, 4), (4, 1, 2, 5)):
        y = nn.Conv2d(c, K, (p, q))(torch.zeros(1, c, 6, 7))
        stated = [K, 6 - p + 1, 7 - q + 1]
        yield equals("shape of a layer's output", list(y.shape[1:]), stated, p=p, q=q)


valid_padding.erratum(
    "E-141",
    printed=r"valid padding: $(m - p) \times (n - q)$, for a filter scanned as"
    r" $((p + 1) \times (2q + 1)$ and evidently meant as $(2p + 1) \times (2q + 1)$",
    right=r"$(m - 2p) \times (n - 2q)$",
    why=r"A filter of length $2q + 1$ loses $2q$ positions per axis: $5 \times 5$ with a $3 \times"
    r" 3$ filter ($p = q = 1$) gives $3 \times 3$, the printed rule $4 \times 4$; the sheet's own"
    r" rule for same padding (extend to $m + 2p$) implies $m - 2p$. As scanned: the line before has"
    r" visibly lost a 2, so a scanning slip cannot be excluded here either, though it would have to"
    r" drop two more.",
    weight="scan",
    refuted_by="shape of the result",
    lost=once,
)


@claim(
    by="exhaustion", sources=("B-279", "B-280", "D-204", "E-142"), budget=0.7,
    short=r"p = d (K - 1) / 2 \implies o = i + 2p - d (K - 1) = i",
)  # fmt: skip
def same_padding(
    zeros: Literal["d (K - 1) / 2", "(K - 1) / 2", "1"] = "d (K - 1) / 2", largest: int = 30
):
    r"""Same padding.

    Padding keeps the size at stride 1 when the effective kernel $d (K - 1) + 1$ is odd and $p = d
    (K - 1)/2$ entries are added on each side: $o = i + 2 \lfloor k/2 \rfloor - (k - 1) = i$ for odd
    $k$ and $d = 1$; an $m \times n$ image is extended to $(m + 2p) \times (n + 2q)$ for a $(2p + 1)
    \times (2q + 1)$ filter. No other $p$ does. The name refers to the size; the fill is usually
    zero, but reflected or circular fill is equally same, and an even kernel needs one more entry on
    one side. All $K \le 11$ and $d \le 3$ for which $d (K - 1)$ is even.

    Knobs:
        zeros: How many zeros are added on each side.
        largest: The largest length $i$ of a signal.
    """
    even = [(K, d) for K in range(1, 12) for d in (1, 2, 3) if d * (K - 1) % 2 == 0]
    for K, d in sorted(even, key=lambda pair: pair != (5, 1)):  # five taps first
        half = d * (K - 1) // 2
        p = {"d (K - 1) / 2": half, "(K - 1) / 2": (K - 1) // 2, "1": 1}[zeros]
        sizes = [i for i in range(1, largest + 1) if i + 2 * p > d * (K - 1)]
        w = torch.ones(1, 1, K)
        found = [F.conv1d(torch.zeros(1, 1, i), w, padding=p, dilation=d).shape[2] for i in sizes]
        growth = [o - i for o, i in zip(found, sizes, strict=True)]
        yield equals("growth of the signal", growth, 0, K=K, d=d, p=p)
        others = [q for q in range(half + 8) if q != half and 20 + 2 * q > d * (K - 1)]
        kept = [q for q in others if conv_output_size(20, K, padding=q, dilation=d) == 20]
        yield equals("other paddings that keep the size 20", len(kept), 0, K=K, d=d)
    for p, q in ((0, 1), (1, 2), (3, 1)):
        x, w = whole(7, 8), crooked(2 * p + 1, 2 * q + 1)
        padded = F.pad(x, (q, q, p, p))
        yield equals("extended image", list(padded.shape), [7 + 2 * p, 8 + 2 * q], p=p, q=q)
        stated = signal.convolve2d(x.numpy(), w.numpy(), "same")
        found = convolve(padded, w, mode="valid", method="direct")
        yield equals("valid convolution of the padded image", found, stated, p=p, q=q)
        yield equals("convolve, same", convolve(x, w, mode="same"), stated, p=p, q=q)
    for mode in ("reflect", "replicate", "circular"):
        layer = nn.Conv1d(1, 1, 5, padding=2, padding_mode=mode)
        yield equals("length with another fill", layer(torch.zeros(1, 1, 9)).shape[2], 9, fill=mode)
    for K in (2, 4, 6):
        x = F.pad(torch.zeros(1, 1, 9), (K // 2, K // 2 - 1))
        yield equals("length with one more entry before", x.unfold(2, K, 1).shape[2], 9, K=K)


same_padding.foil("half the taps, whatever the dilation", zeros="(K - 1) / 2")
same_padding.erratum(
    "D-204",
    printed="equates zero padding with same padding",
    right=r"zero padding with $p = d (K - 1)/2$ is one way to keep the size",
    why=r"Zero fill and size preservation are two notions: zero padding with $p = 1$ and a 5-tap"
    r" kernel shrinks the output by 2, with $p = 4$ it grows, and reflect padding with the right"
    r" $p$ is same although its fill is not constant.",
    weight="soft",
    refuted_by="growth of the signal",
    zeros="1",
)


@claim(
    by="exhaustion", sources=("B-281",), budget=0.7,
    short=r"o = i + 2(k - 1) - (k - 1) = i + k - 1",
)  # fmt: skip
def full_padding(extra: int = 0, largest: int = 30):
    r"""Full padding.

    With stride 1 and $p = k - 1$ every partial overlap of kernel and input counts, and $o = i +
    2 (k - 1) - (k - 1) = i + k - 1$. This is the size of the complete convolution of two finite
    sequences and of the input gradient of a valid layer. All $k \le i \le 30$.

    Knobs:
        extra: How many zeros more than $k - 1$ are added on each side.
        largest: The largest $i$.
    """
    for i in range(1, largest + 1):
        f = whole(i)
        for k in range(1, i + 1):
            h, at = whole(k), {"i": i, "k": k}
            stated = torch.from_numpy(np.convolve(f.numpy(), h.numpy()))
            weight = flipped(h).double().view(1, 1, k)
            layer = F.conv1d(f.double().view(1, 1, i), weight, padding=k - 1 + extra)[0, 0]
            yield equals("length of the padded layer's output", len(layer), i + k - 1, **at)
            size = conv_output_size(i, k, padding=k - 1 + extra)
            yield equals("conv_output_size", size, i + k - 1, **at)
            yield equals("length of NumPy's result", len(stated), i + k - 1, **at)
            if len(layer) == len(stated):
                yield equals("values of the layer", layer, stated.double(), tol=0.0, **at)
            yield equals("convolve, full", convolve(f, h), stated, **at)
    for n, k in ((7, 3), (6, 4)):
        g, w = whole(n - k + 1), crooked(k)
        grad = conv_input_grad(w.double().view(1, 1, k), g.double().view(1, 1, -1), n)[0, 0]
        stated = by_definition(g, w).double()
        yield equals("input gradient of a valid layer", grad, stated, tol=0.0, n=n, k=k)


full_padding.foil("one zero more on both sides, and two outputs see nothing", extra=1)


@claim(
    by="identity", sources=("D-261",), budget=0.5,
    short=r"y_t = \textstyle\sum_{j < K} w_j\, x_{t - d (K - 1 - j)}",
)  # fmt: skip
def causal_convolution(padding: Literal["left", "both sides"] = "left", T: int = 12):
    r"""Causal convolution.

    A causal convolution computes the output at time $t$ from inputs up to $t$ (or, shifted by one
    for prediction, from $x_{<t}$ only), by padding $d (K - 1)$ zeros on the left only. A stack of
    causal layers is causal. Changing $x_s$ leaves all earlier outputs the same bit by bit; for
    kernels without zeros it changes output $s$, or $s + 1$ after the shift. One step at a time
    gives what the whole sequence gives.

    Knobs:
        padding: Where the zeros are: all on the left, or as many on both sides.
        T: The length of the sequence.
    """
    stack = [
        CausalConv1d(2 if d == 1 else 3, 3, K, dilation=d) for K, d in ((3, 1), (2, 2), (3, 4))
    ]
    for layer in stack:
        layer.weight.data.abs_().add_(0.1)

    def run(x: Tensor) -> Tensor:
        for layer in stack:
            sides = {"padding": layer.dilation * (layer.kernel_size - 1) // 2}
            same = F.conv1d(x, layer.weight, layer.bias, dilation=layer.dilation, **sides)
            short = F.pad(same, (0, x.shape[2] - same.shape[2]))
            x = layer(x) if padding == "left" else short
        return x

    with torch.no_grad():
        x = torch.randn(2, 2, T)
        y, shifted = run(x), run(F.pad(x, (1, -1)))
        for s in range(T):
            z = x.clone()
            z[:, :, s] += 1.0
            gap = (run(z) - y).abs().amax((0, 1))
            yield equals("change before the time of a change", gap[:s].sum(), 0.0, tol=0.0, s=s)
            yield at_least("change at that time", gap[s], 1e-3, s=s)
            gap = (run(F.pad(z, (1, -1))) - shifted).abs().amax((0, 1))
            name = "change up to that time, after the shift"
            yield equals(name, gap[: s + 1].sum(), 0.0, tol=0.0, s=s)
            if s + 1 < T:
                yield at_least("change one later, after the shift", gap[s + 1], 1e-3, s=s)
        yield from _sums(stack[0], x, run)
        yield from _sums(stack[2], torch.randn(2, 3, T), run)


def _sums(layer: CausalConv1d, x: Tensor, run: Callable[[Tensor], Tensor]) -> list[Any]:
    """A layer against its definition, and steps against the layer."""
    K, d, bias = layer.kernel_size, layer.dilation, layer.bias
    assert bias is not None
    stated = bias[None, :, None].expand(len(x), -1, x.shape[2]).clone()
    for t, j in np.ndindex(x.shape[2], K):
        if t - d * (K - 1 - j) >= 0:
            stated[:, :, t] += x[:, :, t - d * (K - 1 - j)] @ layer.weight[:, :, j].T
    state, steps = layer.initial_state(len(x)), []
    for t in range(x.shape[2]):
        output, state = layer.step(x[:, :, t], state)
        steps.append(output)
    return [
        equals("layer as a sum over the past", layer(x), stated, tol=1e-12, d=d),
        equals("layer step by step", torch.stack(steps, 2), stated, tol=1e-12, d=d),
    ]


causal_convolution.foil("with zeros on both sides the future is seen", padding="both sides",
                        refuted_by="change before the time of a change")  # fmt: skip
