"""The convolution theorem: and fast convolution by it."""

import math
from typing import Literal

import numpy as np
import torch

from vademecum.claims import at_most, claim, equals
from vademecum.convolution import convolve
from vademecum.convolution.claims._signals import by_definition, whole


def parts(z: np.ndarray) -> np.ndarray:
    """Real and imaginary parts as numbers of their own."""
    return np.stack((np.real(z), np.imag(z)))


def dft(x: np.ndarray) -> np.ndarray:
    r"""$\sum_t x[t] e^{-2 \pi i u t / n}$, by its definition."""
    n = len(x)
    turns = np.outer(np.arange(n), np.arange(n)) % n
    return np.exp(-2j * np.pi * turns / n) @ x


@claim(
    by="identity", sources=("A-126", "C-106", "D-193"), budget=0.5,
    short=r"\mathcal{F}(f * h) = \mathcal{F} f \cdot \mathcal{F} h",
)  # fmt: skip
def convolution_theorem(factors: Literal["of each convention", "none"] = "of each convention"):
    r"""The convolution theorem.

    $\mathcal{F}(f * h) = \mathcal{F} f \cdot \mathcal{F} h$ for $f, h \in L^1$ with the kernel
    $e^{-2 \pi i t u}$, hence $f * h = \mathcal{F}^{-1}(\mathcal{F} f \cdot \mathcal{F} h)$. The
    discrete Fourier transform does the same for circular convolution. The constant 1 depends on the
    convention: the unitary transform of $n$ numbers needs a factor $\sqrt n$, the unitary angular
    transform $\sqrt{2 \pi}$.

    *Proof.* $e^{-2 \pi i u (s + t)}$ is a product, so the double integral is one, too. Checked for
    random complex vectors of every length up to 32 by the defining sums, and for Gaussians.

    Knobs:
        factors: Which constants stand before the product.
    """
    constants = factors == "of each convention"
    for n in range(1, 33):
        f, h = torch.randn(2, n, dtype=torch.complex128)
        image = convolve(f, h, mode="circular").numpy()
        product = dft(f.numpy()) * dft(h.numpy())
        found = dft(image)
        yield equals("transform of a circular convolution", parts(found), parts(product),
                     tol=1e-11, n=n)  # fmt: skip
        back = np.conj(dft(np.conj(product))) / n
        yield equals("inverse transform of the product", parts(back), parts(image), tol=1e-11, n=n)
        unitary = math.sqrt(n) if constants else 1.0
        stated = unitary * product / n
        yield equals("unitary transform of it", parts(found / math.sqrt(n)), parts(stated),
                     tol=1e-11, n=n)  # fmt: skip
    t, u = np.linspace(-16, 16, 641), np.linspace(-1, 1, 9)
    step = t[1] - t[0]
    for v, w in (0.3 + torch.rand(3, 2)).tolist():
        f, h = np.exp(-(t**2) / (2 * v)), np.exp(-((t - 0.5) ** 2) / (2 * w))
        image = np.exp(-((t[:, None] - t - 0.5) ** 2) / (2 * w)) @ f * step
        for turn, size in ((2 * np.pi, 1.0), (1.0, math.sqrt(2 * np.pi))):
            waves = np.exp(-1j * turn * np.outer(u, t)) * step / size
            stated = (size if constants else 1.0) * (waves @ f) * (waves @ h)
            name = "unitary angular transform" if turn == 1 else "transform in ordinary frequency"
            yield equals(f"{name} of two Gaussians", parts(waves @ image), parts(stated),
                         tol=1e-10, v=v, w=w)  # fmt: skip


convolution_theorem.foil(
    "the unitary transform of n numbers needs a root of n", refuted_by="unitary transform of it",
    factors="none",
)  # fmt: skip
convolution_theorem.foil(
    "the unitary angular transform needs a root of 2 pi",
    refuted_by="unitary angular transform of two Gaussians", factors="none",
)  # fmt: skip


@claim(
    by="identity", sources=("A-126", "D-192"), budget=0.7,
    short=r"f * h = \mathcal{F}_N^{-1}(\mathcal{F}_N f \cdot \mathcal{F}_N h),\quad"
    r" N \ge n + k - 1",
)  # fmt: skip
def fft_convolution(missing: int = 0, largest: int = 300, most: int = 999):
    r"""Fast convolution by a zero-padded Fourier transform.

    To convolve sequences of lengths $n$ and $k$, pad both with zeros to at least $n + k - 1$,
    multiply their Fourier transforms pointwise and transform back. Shorter transforms wrap around,
    and at length $n$ the result is the circular convolution. With fast transforms this costs
    $O((n + k) \log(n + k))$ instead of $O(n k)$, which is quoted. Rounding: for whole numbers the
    result lies within $16 (1 + \log_2 N)\, 2^{-53} \|f\| \|h\|$ of an integer, the right one.

    Knobs:
        missing: How many zeros fewer there are than needed.
        largest: The largest length of a sequence.
        most: The largest entry.
    """
    sizes = [(1, 1), (2, 2), (5, 3), (17, 8), (64, 64), (100, 7), (largest - 1, largest // 3)]
    for n, k in sizes:
        f, h = whole(n, most=most), whole(k, most=most)
        f[-1], h[-1] = 1 + f[-1].abs(), 1 + h[-1].abs()  # or what wraps around may be 0
        stated = by_definition(f, h) if n * k < 1000 else torch.from_numpy(
            np.convolve(f.numpy(), h.numpy()))  # fmt: skip
        N = max(n + k - 1 - missing, 1)
        found = np.fft.ifft(np.fft.fft(_folded(f, N)) * np.fft.fft(_folded(h, N))).real
        full = np.concatenate((found, np.zeros(n + k - 1 - N)))
        at = {"n": n, "k": k}
        yield equals("rounded result of a padded transform", np.round(full).astype(int), stated,
                     **at)  # fmt: skip
        error = np.abs(found - np.round(found)).max()
        bound = 16 * (1 + math.log2(N)) * 2.0**-53 * float(f.double().norm() * h.double().norm())
        yield at_most("distance from an integer", error / bound, 1.0, **at)
        yield equals("convolve, by transforms", convolve(f, h, method="fft"), stated, **at)
        if k <= n:
            wrapped = sum(int(h[t]) * f.roll(t) for t in range(k))
            short = np.fft.ifft(np.fft.fft(f) * np.fft.fft(h, n)).real
            yield equals("transform without padding", np.round(short).astype(int), wrapped, **at)
            found = convolve(f, h, mode="circular", method="fft")
            yield equals("convolve, circular, by transforms", found, wrapped, **at)


def _folded(x: torch.Tensor, N: int) -> np.ndarray:
    """Zeros added, or what is too long wrapped around."""
    found = np.zeros(N, int)
    np.add.at(found, np.arange(len(x)) % N, x.numpy())
    return found


fft_convolution.foil("one zero fewer, and the last entry wraps around", missing=1)
