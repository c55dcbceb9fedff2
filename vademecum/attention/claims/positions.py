"""Encodings of positions: frequencies in pairs, shifts that are rotations, scores of offsets."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from vademecum.attention import encoding_rotation as rotation_by
from vademecum.attention import rotary
from vademecum.attention import sinusoidal_encoding as encoding
from vademecum.claims import Evidence, at_least, at_most, claim, equals

Frequency = Callable[[int, int, float], float]


def paired(k: int, n: int, C: float) -> float:
    """One frequency for a sine and its cosine."""
    return C ** (-2 * (k // 2) / n)


def growing(k: int, n: int, C: float) -> float:
    """As printed: the exponent has no minus, and every feature has its own."""
    return C ** (k / n)


def falling(k: int, n: int, C: float) -> float:
    """Every feature has its own."""
    return C ** (-k / n)


def table(T: int, n: int, C: float, frequency: Frequency) -> Tensor:
    """The encodings by their scalar formula."""
    bend = (math.sin, math.cos)
    rows = [[bend[k % 2](t * frequency(k, n, C)) for k in range(n)] for t in range(T)]
    return torch.tensor(rows)


def best_map_residual(p: Tensor, delta: int) -> Tensor:
    """What the best linear map from the encoding of t to that of t + delta leaves, at most."""
    before, after = p[:-delta].numpy(), p[delta:].numpy()
    found, *_ = np.linalg.lstsq(before, after, rcond=None)
    return torch.from_numpy(np.abs(before @ found - after).max(keepdims=True))


def halved(k: int, n: int, C: float) -> float:
    """The exponent half as large: frequencies end near the root."""
    return C ** (-(k // 2) / n)


@claim(
    by="identity", sources=("A-257", "B-398", "C-163", "C-164"), budget=0.7,
    short=r"p_{t,2i} = \sin t\omega_i,\ p_{t,2i+1} = \cos t\omega_i,\ \omega_i = C^{-2i/n}",
)  # fmt: skip
def sinusoidal_encoding(frequency: Frequency = paired, T: int = 100) -> Iterator[Evidence]:
    r"""Sinusoidal encodings of positions: sines and cosines in pairs of one frequency.

    Position $t$ and feature $k$ of $n$: $p_{tk} = \sin(t \omega_k)$ for even $k$ and $\cos(t
    \omega_k)$ for odd $k$, with $\omega_k = C^{-2 \lfloor k/2 \rfloor / n}$, $C = 10000$. The
    frequencies fall geometrically from 1 to $C^{2/n} / C$, about $1/C$, so that none exceeds what
    whole positions can tell apart, $\pi$. Each sine shares its frequency with the cosine after it:
    their squares sum to 1, and a shift of all positions is a linear map. Neighbours are alike: the
    cosine of the angle between their encodings is $\frac2n \sum_i \cos \omega_i$ everywhere, 0.966
    for $n = 64$. Checked for $n$ from 2 to 64 and two values of $C$.

    Knobs:
        frequency: The frequency $\omega_k$ of feature $k$, of $n$ and $C$.
        T: How many positions there are.
    """
    for n, C in ((4, 1e4), (2, 1e4), (10, 50.0), (64, 1e4)):
        stated, at = table(T, n, C, frequency), {"n": n, "C": C}
        omega = [frequency(k, n, C) for k in range(n)]
        yield at_most("largest frequency, in radians a position", max(omega), math.pi, **at)
        pairs = stated.unflatten(1, (-1, 2)).square().sum(2)
        yield equals("squares of a sine and the cosine after it", pairs, 1.0, tol=1e-13, **at)
        # angles are at most T, so their rounding and that of sines stay below T machine precisions
        found = encoding(T, n, base=C)
        yield equals("encoding", found, stated, tol=T * 2.0**-50, **at)
        turns = torch.atan2(found[1, 0::2], found[1, 1::2])
        yield equals("frequencies that the encoding of 1 shows", turns, omega[::2], **at)
        ends = torch.stack((turns[0], turns[-1]))
        yield equals("first and last frequency", ends, [1.0, C ** (2 / n) / C], **at)
        alike = torch.cosine_similarity(stated[:-1], stated[1:])
        mean = sum(math.cos(w) for w in omega[::2]) * 2 / n
        yield equals("cosine similarity of neighbours", alike, mean, tol=1e-12, **at)
        if n == 64:
            yield at_least("mean cosine similarity of neighbours", alike.mean(), 0.9, **at)
            yield equals("the same, rounded", alike.mean(), 0.966, tol=5e-4, **at)
    residual = best_map_residual(table(4 * T + 3, 8, 1e4, frequency), 3)
    yield at_most("residual of the best linear map that shifts by 3", residual, 0.0, n=8)


sinusoidal_encoding.foil("half the exponent ends near the root of 1/C", frequency=halved)
sinusoidal_encoding.foil(
    "a frequency of its own for each feature",
    frequency=falling, refuted_by="squares of a sine and the cosine after it",
)  # fmt: skip
sinusoidal_encoding.erratum(
    "A-257",
    printed=r"$\omega_k = C^{k/n}$, $C = 10000$, with $\sin(t \omega_k)$ for $k$ even and"
    r" $\cos(t \omega_k)$ for $k$ odd",
    right=r"$\omega_k = C^{-2 \lfloor k/2 \rfloor / n}$",
    why=r"The exponent lacks its minus sign: for $n = 4$ the last two features turn by 100 and 1000"
    r" radians a position, and not by 0.01, far beyond the $\pi$ that whole positions can tell"
    r" apart; and a sine and its cosine must share one frequency. A scanning slip cannot be"
    r" excluded, but three sheets print it.",
    refuted_by="largest frequency, in radians a position",
    frequency=growing,
)
sinusoidal_encoding.erratum(
    "B-398",
    printed=r"$\omega_k = C^{k/n},\ C = 10000$",
    right=r"$\omega_k = C^{-2 \lfloor k/2 \rfloor / n}$",
    why=r"Frequencies grow to 8660 radians a position at $n = 64$, far above the sampling limit"
    r" $\pi$: the mean cosine similarity of neighbouring positions falls from 0.966 to 0.012; sine"
    r" and cosine do not share frequencies, so that shifts are no linear maps.",
    refuted_by="mean cosine similarity of neighbours",
    frequency=growing,
)
sinusoidal_encoding.erratum(
    "C-164",
    printed=r"$\omega_k = C^{k/K}$ (with $C$ undefined)",
    right=r"$\omega_k = C^{-2 \lfloor k/2 \rfloor / K}$, $C = 10^4$",
    why=r"$C$ is not given: with $C < 1$ the frequencies fall, with the customary $C = 10^4$ they"
    r" grow beyond the sampling limit. For either choice each feature has its own frequency, so"
    r" that a sine has no cosine to go with: the best linear map $p_t \mapsto p_{t+3}$ ($K = 8$,"
    r" $C = 10^{-4}$, $t < 400$) leaves residuals up to 0.87, with paired frequencies 5e-15.",
    weight="soft",
    refuted_by="residual of the best linear map that shifts by 3",
    frequency=falling,
)


def unpaired(T: int, n: int, *, base: float) -> Tensor:
    """Encodings with a frequency of its own for each feature."""
    return table(T, n, base, falling)


@claim(
    by="identity", sources=("B-398", "C-163", "C-164"), budget=0.7,
    short=r"p_{t+\Delta} = R_\Delta p_t,\quad p_s \cdot p_t = \textstyle\sum_i \cos\omega_i(s - t)",
)  # fmt: skip
def encoding_shift_rotation(
    encode: Callable[..., Tensor] = encoding,
    sign: int = 1,
    offset: Callable[[Tensor, Tensor], Tensor] = torch.sub,
    T: int = 200,
) -> Iterator[Evidence]:
    r"""Shifting positions rotates the encoding.

    With shared frequencies for each pair, $p_{t + \Delta} = R_\Delta p_t$ for every $t$, where
    $R_\Delta$ is block diagonal with rotations by $\omega_i \Delta$; hence inner products $p_s
    \cdot p_t = \sum_i \cos(\omega_i (s - t))$ depend on the offset only, the matrix of all of them
    is constant along diagonals, and $R_{\Delta + \Delta'} = R_\Delta R_{\Delta'}$. Rotary positions
    turn queries and keys instead: as complex numbers, a pair each, the score of $q$ at $s$ and $k$
    at $t$ is $\mathrm{Re} \sum_i q_i \bar k_i e^{\mathrm i \omega_i (s - t)}$, whichever features
    are a pair. The addition theorems. Checked for $n = 8$ and 16 and shifts of either sign.

    Knobs:
        encode: What makes encodings.
        sign: The sign of the angles of $R_\Delta$.
        offset: What inner products depend on, of $s$ and $t$.
        T: How many positions there are.
    """
    for n, C in ((16, 1e4), (8, 30.0)):
        p, at = encode(T, n, base=C), {"n": n, "C": C}
        omega = C ** (-torch.arange(0, n, 2) / n)
        for delta in (1, 3, 17, -5):
            R, start = rotation_by(sign * delta, n, base=C), max(0, -delta)
            shifted = p[start : T - max(0, delta)] @ R.T
            after = p[start + delta :][: len(shifted)]
            # angles are at most T, and each entry is a sum of two products
            name = "rotated encoding, against that of the shifted position"
            yield equals(name, shifted, after, tol=T * 2.0**-49, delta=delta, **at)
            rest = R.clone()
            for i in range(0, n, 2):
                rest[i : i + 2, i : i + 2] = 0
            yield equals("rotation outside of its blocks", rest, 0.0, tol=0.0, delta=delta, **at)
            twice = rotation_by(sign * 2.5, n, base=C)
            both = rotation_by(sign * (delta + 2.5), n, base=C)
            yield equals("one shift after another", R @ twice, both, tol=1e-13, delta=delta, **at)
        s, t = torch.meshgrid(torch.arange(T), torch.arange(T), indexing="ij")
        stated = torch.cos(omega * offset(s, t)[..., None]).sum(-1)
        gram = p @ p.T
        tol = n * T * 2.0**-50  # n products whose angles are at most T
        yield equals("inner products", gram, stated, tol=tol, **at)
        yield equals("the same along a diagonal", gram[1:, 1:], gram[:-1, :-1], tol=tol, **at)
        yield at_most("residual of the best linear map that shifts by 3",
                      best_map_residual(p, 3), 0.0, **at)  # fmt: skip
        yield from turned(omega, offset, C)


def turned(
    omega: Tensor, offset: Callable[[Tensor, Tensor], Tensor], C: float
) -> Iterator[Evidence]:
    """Scores of rotary queries and keys, against complex numbers."""
    n, (s, t) = 2 * len(omega), torch.randint(300, (2, 40))
    q, k = torch.randn(2, 40, n)
    for pairing in ("adjacent", "halves"):
        scores = rotary(q, s, base=C, pairing=pairing) * rotary(k, t, base=C, pairing=pairing)
        shape = (-1, 2) if pairing == "adjacent" else (2, -1)
        axis = 2 if pairing == "adjacent" else 1
        a, b = (torch.complex(*x.unflatten(1, shape).unbind(axis)) for x in (q, k))
        phases = torch.exp(1j * omega * offset(s, t)[:, None])
        stated = (a * b.conj() * phases).real.sum(1)
        # angles up to 300, n products of normal numbers that stay below 6
        tol = 300 * n * 36 * 2.0**-52
        yield equals("rotary score", scores.sum(1), stated, tol=tol, pairing=pairing, n=n)


encoding_shift_rotation.foil(
    "a frequency of its own for each feature",
    encode=unpaired, refuted_by="residual of the best linear map that shifts by 3",
)  # fmt: skip
encoding_shift_rotation.foil("rotations the other way round", sign=-1)
encoding_shift_rotation.foil("inner products of the sum of the positions", offset=torch.add)
