"""Correlations: convolutions with a flipped signal, mirrored when their arguments are swapped."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.claims import claim, equals
from vademecum.convolution import convolve, correlate, rot180
from vademecum.convolution.claims._signals import (
    by_definition,
    correlation_by_definition,
    crooked,
    flipped,
    whole,
)

SIZES = ((1, 3), (4, 2), (3, 3), (2, 7), (6, 5))


@claim(
    by="identity",
    sources=("A-123", "A-124", "B-269", "B-270", "C-108", "D-198", "D-199", "D-200"), budget=0.5,
    short=r"(f \star h)[u] = \textstyle\sum_t f[t]\, h[u + t] = (\bar f * h)[u],\quad"
    r" \bar f[t] = f[-t]",
)  # fmt: skip
def cross_correlation(flips: Literal["first", "second"] = "first"):
    r"""Cross-correlation is convolution with a flipped signal.

    $(f \star h)[u] = \sum_t f[t]\, h[u + t] = (\bar f * h)[u]$ with $\bar f[t] = f[-t]$ (real
    signals): the inner product of one signal with the windows of the other. Deep-learning layers
    called convolutions compute this sliding inner product of the kernel with the input. Exact in
    whole numbers, at the lags $u = -(\mathrm{len} f - 1), \dots, \mathrm{len} h - 1$.

    Knobs:
        flips: Which of the two signals is flipped before they are convolved.
    """
    for a, b in SIZES:
        f, h = crooked(a), crooked(b) if b > 1 else whole(b) + 10
        stated, at = correlation_by_definition(f, h), {"len f": a, "len h": b}
        pair = (flipped(f), h) if flips == "first" else (f, flipped(h))
        yield equals("convolution of a flipped signal", convolve(*pair), stated, **at)
        yield equals("correlate", correlate(h, f), stated, **at)
        yield equals("NumPy's correlate", np.correlate(h.numpy(), f.numpy(), "full"), stated, **at)
        if a <= b:
            layer = F.conv1d(h.double()[None, None], f.double()[None, None])[0, 0]
            name = "layer of torch, at the lags of complete overlaps"
            yield equals(name, layer, stated[a - 1 : b].double(), tol=0.0, **at)
            found = correlate(h, f, mode="valid")
            yield equals("correlate, at these lags", found, stated[a - 1 : b], **at)
    f, h = crooked(3, 2), crooked(4, 5)
    stated = correlation_by_definition(f, h)
    yield equals("correlate, in two dimensions", correlate(h, f), stated)


cross_correlation.foil("flipping the other one gives the mirror image", flips="second")


@claim(
    by="identity", sources=("B-269", "C-108", "D-200"), budget=0.5,
    short=r"(h \star f)[u] = (f \star h)[-u]",
)  # fmt: skip
def correlation_mirror(
    swapped: Literal["mirrored", "equal"] = "mirrored",
    conjugate: Literal["taken", "dropped"] = "taken",
):
    r"""Swapping the arguments of a correlation mirrors it.

    $(h \star f)[u] = (f \star h)[-u]$ for real signals: unlike convolution, cross-correlation is
    not commutative, but exchanging its arguments reverses the lag axis; with complex signals, $(f
    \star h)[u] = \sum_t \overline{f[t]}\, h[u + t]$, the conjugate appears as well. Exact in whole
    numbers, real and complex.

    Knobs:
        swapped: What becomes of the lags.
        conjugate: Whether the conjugate is taken of complex correlations.
    """
    pairs = [(torch.tensor([1, 2]), torch.tensor([1, 0, 3]))]
    pairs += [(crooked(a), crooked(b) if b > 1 else whole(b)) for a, b in SIZES]
    for f, h in pairs:
        at = {"len f": len(f), "len h": len(h)}
        found = correlate(f, h)  # whose kernel is h: that of h with f
        stated = correlation_by_definition(f, h)
        stated = flipped(stated) if swapped == "mirrored" else stated
        yield equals("correlation with its arguments swapped", found, stated, **at)
    for a, b in ((3, 4), (5, 2)):
        f, h = (torch.complex(whole(n).double(), crooked(n).double()) for n in (a, b))
        found = correlate(f, h)
        stated = correlation_by_definition(f.conj(), h).flip(0)
        stated = stated.conj() if conjugate == "taken" else stated
        yield equals("complex correlation with its arguments swapped", found, stated, tol=1e-12,
                     a=a, b=b)  # fmt: skip


correlation_mirror.foil("correlations do not commute", swapped="equal")
correlation_mirror.foil(
    "complex ones are conjugated, too", refuted_by="complex correlation with its arguments swapped",
    conjugate="dropped",
)  # fmt: skip


def centred(shape: tuple[int, ...], symmetry: str) -> Tensor:
    """A kernel of odd sizes that is symmetric in the way said."""
    h = crooked(*shape)
    if symmetry == "transposition" and len(shape) == 2:
        return h + h.T
    return h + flipped(h) if symmetry == "rotation" else h


@claim(
    by="identity", sources=("D-201",), budget=0.5,
    short=r"h \star f = h * f \ \forall f \iff h[t] = h[-t] \ \forall t",
)  # fmt: skip
def symmetric_kernel(symmetry: Literal["rotation", "transposition", "none"] = "rotation"):
    r"""Symmetric kernels make correlation and convolution equal.

    If $h[t] = h[-t]$ for all $t$ then $h \star f = h * f$ for every signal $f$, and conversely
    equality for all $f$, already for $f = \delta$, forces the symmetry. In $d$ dimensions the
    condition is invariance under reversal of all axes at once. Exact in whole numbers, for kernels
    centred at 0 in one, two and three dimensions.

    Knobs:
        symmetry: What leaves the kernel as it is: a reversal of all axes, an exchange of two axes
            (where there are two of one size), or nothing.
    """
    for size, shape in (((7,), (3,)), ((6, 5), (3, 3)), ((6, 5), (3, 3)), ((3, 4, 5), (3, 1, 3))):
        h = centred(shape, symmetry if len(shape) == 2 or symmetry == "none" else "rotation")
        if symmetry == "transposition" and len(shape) == 2:
            h[0, 0] = h[-1, -1] + 5  # or a random one may have both symmetries
        f = whole(*size)
        at: dict[str, Any] = {"axes": len(size)}
        convolution = by_definition(h, f)
        correlation = correlation_by_definition(h, f)
        yield equals("correlation with the kernel", correlation, convolution, **at)
        found = correlate(f, h, mode="same")
        yield equals("correlate", found, convolve(f, h, mode="same"), **at)
        impulse = torch.zeros(shape).long()
        impulse[tuple(k // 2 for k in shape)] = 1
        gap = correlate(impulse, h, mode="same") - convolve(impulse, h, mode="same")
        yield equals("what an impulse shows", gap, flipped(h) - h, **at)
        odd = crooked(*shape)
        gap = correlate(impulse, odd, mode="same") - convolve(impulse, odd, mode="same")
        yield equals("what it shows of a kernel without symmetry", gap, flipped(odd) - odd, **at)


symmetric_kernel.foil("an asymmetric kernel", symmetry="none")
symmetric_kernel.foil("symmetric under transposition only", symmetry="transposition")


@claim(
    by="identity", sources=("B-286", "D-219"), budget=0.5,
    short=r"\operatorname{rot}_\pi(x)_i = x_{-i},\quad"
    r" x * \operatorname{rot}_\pi(w) = w \star x",
)  # fmt: skip
def rotation_by_pi(
    turn: Literal["by 180 degrees", "transposed", "by 90 degrees"] = "by 180 degrees",
):
    r"""Rotation of a kernel by 180 degrees.

    $\mathrm{rot}_\pi(A)$ reverses the order along every axis, $\mathrm{rot}_\pi(x)_i = x_{-i}$ for
    every (multi-)index; in two dimensions rows and columns are both reversed. It is an involution
    and turns convolution with $w$ into correlation with $w$. Exact in whole numbers, in one to
    three dimensions.

    Knobs:
        turn: What is done to a square kernel.
    """
    for n, k in (((8,), (3,)), ((5, 6), (3, 3)), ((4, 5), (2, 3)), ((3, 4, 3), (2, 3, 2))):
        x, w = whole(*n), crooked(*k)
        if k == (3, 3):
            w[0, 1], w[1, 0] = 20, -20  # no symmetry whatsoever
        rotated = rot180(w)
        if k == (3, 3) and turn != "by 180 degrees":
            rotated = w.T if turn == "transposed" else torch.rot90(w)
        at: dict[str, Any] = {"axes": len(n), "kernel": " by ".join(map(str, k))}
        yield equals("rotated kernel", rotated, np.flip(w.numpy()).copy(), **at)
        if len(k) == 2:
            yield equals("rotated twice by 90 degrees", rotated, np.rot90(w.numpy(), 2).copy())
        yield equals("rotated twice", rot180(rotated), w, **at)
        stated = correlation_by_definition(w, x)
        name = "convolution with the rotated kernel"
        yield equals(name, convolve(x, rotated, method="direct"), stated, **at)


rotation_by_pi.foil("a transposed kernel", refuted_by="convolution with the rotated kernel",
                    turn="transposed")  # fmt: skip
rotation_by_pi.foil("a quarter turn", refuted_by="convolution with the rotated kernel",
                    turn="by 90 degrees")  # fmt: skip
