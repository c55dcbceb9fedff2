"""Discrete convolutions: sums that are products of polynomials, and commute and associate."""

import math
from typing import Any, Literal

import numpy as np
import torch
from scipy import signal
from torch import Tensor
from torch.nn import functional as F

from vademecum.claims import Evidence, at_most, claim, equals
from vademecum.convolution import convolve, correlate
from vademecum.convolution.claims._signals import by_definition, crooked, flipped, gauss, whole

DIGIT = 2**64  # larger than twice any coefficient of the products below


def polynomial_product(*factors: Tensor) -> Tensor:
    """The coefficients of a product of polynomials, from one product of large integers.

    The polynomials are evaluated at 2^64 (Kronecker's substitution), so that the digits of the
    product to this base are its coefficients; negative ones borrow from the next digit. Several
    variables take powers of 2^64 that are far enough apart.
    """
    shape = [
        1 - len(factors) + sum(sizes) for sizes in zip(*(f.shape for f in factors), strict=True)
    ]
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    number = math.prod(
        sum(int(v) * DIGIT ** int(np.dot(place, steps)) for place, v in np.ndenumerate(f.numpy()))
        for f in factors
    )
    digits = []
    for _ in range(math.prod(shape)):
        digit = (number + DIGIT // 2) % DIGIT - DIGIT // 2
        digits.append(digit)
        number = (number - digit) // DIGIT
    return torch.tensor(digits).view(shape)


@claim(
    by="identity", sources=("A-121", "B-266", "B-267", "C-107", "D-194", "D-195", "D-196"),
    budget=0.5, short=r"(f * h)[u] = \textstyle\sum_t f[t]\, h[u - t] = \sum_t f[u - t]\, h[t]",
)  # fmt: skip
def discrete_convolution(slides: Literal["flipped", "as it is"] = "flipped", most: int = 12):
    r"""Discrete convolution.

    For $f, h: \mathbb{Z} \to \mathbb{R}$, square brackets marking sampled signals: $(f * h)[u] =
    \sum_{t \in \mathbb{Z}} f[t]\, h[u - t] = \sum_{t \in \mathbb{Z}} f[u - t]\, h[t]$. Kernels have
    finite support in practice, a window of $k$ taps, so each output has at most $k$ terms and a
    signal of length $n$ costs $n k$ multiplications; for finite sequences it is the coefficient
    sequence of the product of polynomials, of length $n + k - 1$. Exact in whole numbers.

    Knobs:
        slides: Which form of the kernel is slid over the signal.
        most: The largest length of a sequence.
    """
    pairs = [(torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4]))]
    for n, k in ((1, 1), (7, 1), (1, 5), (5, 3), (3, most), (most, most)):
        pairs.append((whole(n), crooked(k)))
    for f, h in pairs:
        n, k = len(f), len(h)
        kernel = h if slides == "flipped" else flipped(h)
        stated = polynomial_product(f, h)
        for method in ("direct", "fft"):
            found = convolve(f, kernel, method=method)
            name = "coefficients of the product of polynomials"
            yield equals(name, found, stated, n=n, k=k, method=method)
        yield equals("sum over all t", by_definition(f, kernel), stated, n=n, k=k)
        yield equals("sum over all t, the other way", by_definition(kernel, f), stated, n=n, k=k)
        terms = [[t for t in range(n) if 0 <= u - t < k] for u in range(-5, n + k + 5)]
        yield at_most("terms of an output", [len(t) for t in terms], k, n=n)
        yield equals("multiplications", sum(map(len, terms)), n * k, n=n, k=k)
        yield equals("outputs that are not empty", sum(map(bool, terms)), n + k - 1, n=n, k=k)


discrete_convolution.foil(
    "sliding the kernel as it is gives 4, 10, 17, 8, 3 for (1, 2, 3) and (1, 2, 4)",
    slides="as it is",
)


@claim(
    by="identity", sources=("B-268", "B-284", "D-197"), budget=0.5,
    short=r"(F * G)[i, j] = \textstyle\sum_{k, l} F[i - k, j - l]\, G[k, l]",
)  # fmt: skip
def convolution_nd(
    flips: Literal["all axes", "one axis"] = "all axes",
    domain: Literal["lattice", "space"] = "lattice",
):
    r"""Multidimensional discrete convolution.

    For $f, h: \mathbb{Z}^d \to \mathbb{R}$ with $h$ of finite support: $(f * h)[u] = \sum_{t \in
    \mathbb{Z}^d} f[t]\, h[u - t]$ with multi-indices; for images $(F * G)[i, j] = \sum_{k, l}
    F[i - k, j - l]\, G[k, l]$. Restricted to complete overlaps, a $d \times d$ input and a $q
    \times q$ kernel give the $r \times r$ array, $r = d - q + 1$, with entries $\sum_{k, l = 1}^q
    x_{i + q - k,\, j + q - l}\, w_{k l}$. Exact in whole numbers, in one to three dimensions.

    Knobs:
        flips: Along which axes the kernel runs backwards.
        domain: What the functions are defined on: the lattice $\mathbb{Z}^d$, or $\mathbb{R}^d$,
            where a convolution is an integral.
    """
    for n, k in (((3, 3), (3, 3)), ((4, 5), (2, 3)), ((5, 3), (4, 1)), ((3, 4, 2), (2, 3, 2))):
        f, h = whole(*n), crooked(*k)
        if n == k:
            f, h = torch.zeros(3, 3).long(), torch.arange(1, 10).view(3, 3)
            f[1, 1] = 1
        kernel = h if flips == "all axes" else h.flip(0)
        at: dict[str, Any] = {"axes": len(n), "kernel": " by ".join(map(str, k))}
        stated = polynomial_product(f, h)
        for method in ("direct", "fft"):
            found = convolve(f, kernel, method=method)
            yield equals("coefficients of the product of polynomials", found, stated, **at)
        if all(a >= b for a, b in zip(n, k, strict=True)):
            stated = signal.convolve(f.numpy(), h.numpy(), "valid", method="direct")
            yield equals("complete overlaps", convolve(f, kernel, mode="valid"), stated, **at)
    x, w, q = whole(6, 6), crooked(3, 3), 3
    taps = [(k, m) for k in range(1, q + 1) for m in range(1, q + 1)]
    stated = [
        [sum(int(x[i + q - k - 1, j + q - m - 1] * w[k - 1, m - 1]) for k, m in taps)
         for j in range(1, 5)]
        for i in range(1, 5)
    ]  # fmt: skip
    kernel = w if flips == "all axes" else w.flip(0)
    yield equals("sums over a window", convolve(x, kernel, mode="valid"), stated, d=6, q=q)
    yield two_gaussians(domain)


def two_gaussians(domain: str) -> Evidence:
    """The convolution of exp(-3 |t|^2) with itself in the plane, as a sum or as an integral."""
    t, u = torch.arange(-4.0, 5.0), torch.arange(-4.0, 5.0)
    bell = torch.exp(-3 * t**2)
    image = bell[:, None] * bell
    if domain == "lattice":
        line = (bell * torch.exp(-3 * (u[:, None] - t) ** 2)).sum(1)
    else:
        line = math.sqrt(math.pi / 6) * torch.exp(-1.5 * u**2)
    found = convolve(image, image)[4:13, 4:13]  # where no term is left out but e^{-75}
    return equals("convolution of two Gaussians", found, line[:, None] * line, tol=1e-12)


convolution_nd.foil("flipped along one axis only", flips="one axis")
convolution_nd.erratum(
    "D-197",
    printed=r"For $f, h: \mathbb R^d \to \mathbb R$ we have $(f * h)[u_1, \dots, u_d] ="
    r" \sum_{t_1 = -\infty}^\infty \cdots$",
    right=r"$f, h: \mathbb Z^d \to \mathbb R$",
    why=r"The domain has to be the lattice $\mathbb Z^d$: on $\mathbb R^d$ convolution is an"
    r" integral, and a sum over integer indices never sees the values off the lattice: for"
    r" $e^{-3 |t|^2}$ in the plane the sum at 0 is $1.01$, the integral $\pi/6$.",
    weight="soft",
    refuted_by="convolution of two Gaussians",
    domain="space",
)


@claim(by="identity", sources=("A-120", "B-261", "C-105", "D-188"), short=r"f * h = h * f",
       budget=0.5)  # fmt: skip
def commutativity(
    operation: Literal["convolution", "correlation"] = "convolution", pairs: int = 20
):
    r"""Convolution commutes.

    $f * h = h * f$ for functions whenever the integral converges absolutely (substitute $t \to u -
    t$), and for sequences with one factor of finite support: signal and kernel may change places.
    Exact in whole numbers, in one and two dimensions; for functions checked with exponentials.

    Knobs:
        operation: Which one is said to commute.
        pairs: How many pairs of sequences there are, and a fifth as many of images.
    """
    slide = convolve if operation == "convolution" else correlate
    given = [(torch.tensor([1, 2]), torch.tensor([1, 0, 3]))]
    for i in range(pairs):
        given.append((whole(1 + i % 7), crooked(2 + i % 5)))
    for i in range(max(1, pairs // 5)):
        given.append((whole(2 + i % 3, 3), crooked(3, 2 + i % 2)))
    for f, h in given:
        at: dict[str, Any] = {
            "f": " by ".join(map(str, f.shape)),
            "h": " by ".join(map(str, h.shape)),
        }
        yield equals("signal and kernel in the other order", slide(f, h), slide(h, f), **at)
        if operation == "convolution":
            yield equals("sum over the kernel's places", slide(f, h), by_definition(h, f), **at)
    sign = 1 if operation == "convolution" else -1
    for u in (0.5, 1.5, 3.0):
        t, w = gauss(0, u) if sign == 1 else gauss(0, 40, 120)
        one = w @ (3 * np.exp(-t) * np.exp(-2 * sign * (u - t)) * (sign * (u - t) > 0))
        other = w @ (np.exp(-2 * t) * 3 * np.exp(-sign * (u - t)) * (sign * (u - t) > 0))
        yield equals("two exponentials in the other order", one, other, tol=1e-10, u=u)


commutativity.foil("correlations do not commute", operation="correlation")


@claim(by="identity", sources=("D-189",), short=r"(f * g) * h = f * (g * h)", budget=0.5)
def associativity(
    operation: Literal["convolution", "correlation"] = "convolution", triples: int = 20
):
    r"""Convolution is associative.

    $(f * g) * h = f * (g * h)$ for integrable functions and for finitely supported sequences. Two
    stacked linear convolution layers are therefore one convolution with the kernel $g * h$. Exact
    in whole numbers for sequences; quoted for functions.

    Knobs:
        operation: Which one is said to associate.
        triples: How many triples of sequences are drawn.
    """
    given = [tuple(torch.tensor(v) for v in ([1, 2], [1, 3], [1, 5]))]
    for i in range(triples):
        given.append((whole(1 + i % 6), crooked(2 + i % 3), crooked(2 + i % 4)))
    for f, g, h in given:
        at: dict[str, Any] = {"sizes": f"{len(f)}, {len(g)}, {len(h)}"}
        if operation == "convolution":
            left, right = convolve(convolve(f, g), h), convolve(f, convolve(g, h))
            yield equals("product of three polynomials", left, polynomial_product(f, g, h), **at)
        else:  # (f . g)[u] is the sum of f[t] g[u + t]
            left, right = correlate(h, correlate(g, f)), correlate(correlate(h, g), f)
        yield equals("brackets on the right", left, right, **at)
    x, g, h = whole(9).double(), crooked(3).double(), crooked(2).double()
    layers = F.conv1d(F.conv1d(x[None, None], g[None, None]), h[None, None])[0, 0]
    kernel = convolve(g, h) if operation == "convolution" else correlate(g, h)
    yield equals("two layers as one", layers, F.conv1d(x[None, None], kernel[None, None])[0, 0],
                 tol=0.0)  # fmt: skip


associativity.foil("correlations do not associate", operation="correlation")
