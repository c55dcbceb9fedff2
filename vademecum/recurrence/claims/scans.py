"""Parallel scans: a linear recurrence in a logarithmic number of levels."""

import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vademecum.claims import Evidence, claim, equals
from vademecum.recurrence import LRU, scan

PRIME = 2**31 - 1


class Affine(NamedTuple):
    """The map of h to a h + b."""

    a: int
    b: int


def after(second: Affine, first: Affine) -> Affine:
    """Both maps in a row, modulo a prime."""
    return Affine(second.a * first.a % PRIME, (second.a * first.b + second.b) % PRIME)


def prefixes(
    maps: list[Affine], combine: Callable[[Affine, Affine], Affine]
) -> tuple[list[Affine], int]:
    """All compositions from the first map on, level by level, and how many levels there were."""
    span, levels = 1, 0
    while span < len(maps):
        maps = [combine(m, maps[t - span]) if t >= span else m for t, m in enumerate(maps)]
        span, levels = 2 * span, levels + 1
    return maps, levels


def one_by_one(a: Tensor, b: Tensor, start: Tensor, *, bent: bool = False) -> Tensor:
    """The states of the recurrence, step after step; through tanh where it is bent."""
    h, states = start, []
    for t in range(b.shape[-2]):
        h = a[..., t, :] * h + b[..., t, :]
        h = torch.tanh(h) if bent else h
        states.append(h)
    return torch.stack(states, -2)


@claim(
    by="identity", sources=("C-151", "D-290"), budget=1.0,
    short=r"(a_2, b_2) \circ (a_1, b_1) = (a_2 a_1, a_2 b_1 + b_2): \quad"
    r" \lceil \log_2 T \rceil\ \text{levels}",
)  # fmt: skip
def parallel_scan(
    order: Literal["later last", "later first"] = "later last",
    recurrence: Literal["linear", "tanh"] = "linear",
    rounded: Literal["up", "down"] = "up",
) -> Iterator[Evidence]:
    r"""A linear recurrence is a parallel scan.

    Affine maps compose associatively, $(a_2, b_2) \circ (a_1, b_1) = (a_2 a_1, a_2 b_1 + b_2)$, so
    a linear recurrence $h_t = a_t h_{t-1} + b_t$ over $T$ steps can be evaluated by a prefix scan
    in $\lceil \log_2 T \rceil$ levels of compositions instead of $T$ steps in sequence. This gives
    linear recurrent units parallel training, together with steps of constant cost at inference.

    *Proof.* Functions compose associatively; after level $l$ each entry is the composition of its
    last $2^l$ maps. Checked modulo a prime for every $T \le 40$ and $T = 1000$, and for `scan` with
    complex $|a| \le 1$ against the loop, in both directions, with factors that are constant or not,
    with a start, and step by step. That levels run in parallel is quoted.

    Knobs:
        order: How two maps are composed.
        recurrence: Whose states the scan is said to give.
        rounded: How $\log_2 T$ is rounded to the number of levels.
    """
    for T in (*range(1, 41), 1000):
        pairs = torch.randint(1, PRIME, (T, 2)).tolist()
        maps = [Affine(*pair) for pair in pairs]
        h, wanted = 12345, []
        for a, b in pairs:
            h = (a * h + b) % PRIME
            wanted.append(h)
        combine = after if order == "later last" else lambda m, n: after(n, m)
        made, levels = prefixes(maps, combine)
        found = [(m.a * 12345 + m.b) % PRIME for m in made]
        yield equals("states modulo a prime", found, wanted, T=T)
        log = math.log2(T)
        stated = math.ceil(log) if rounded == "up" else math.floor(log)
        yield equals("levels of compositions", levels, stated, T=T)
        x, y, z = (Affine(*pair) for pair in torch.randint(1, PRIME, (3, 2)).tolist())
        both = list(after(after(z, y), x)), list(after(z, after(y, x)))
        yield equals("composition of three maps", *both, T=T)
        yield from against_the_loop(T, bent=recurrence == "tanh")
    net = LRU(3, 5, layers=2, r_min=0.5).requires_grad_(False)
    x = torch.randn(4, 60, 3)
    state, steps = None, []
    for t in range(60):
        y, state = net.step(x[:, t], state)
        steps.append(y)
    yield equals("unit, step by step", torch.stack(steps, 1), net(x).output, tol=1e-10)


def against_the_loop(T: int, *, bent: bool) -> list[Evidence]:
    """The library's scan and the loop, with constant factors and others, forwards and backwards."""
    b, start = torch.randn(2, T, 3, dtype=torch.complex128), torch.randn(2, 3).to(torch.complex128)
    constant = torch.polar(torch.rand(3).sqrt(), 6 * torch.rand(3))
    each = torch.polar(torch.rand(2, T, 3).sqrt(), 6 * torch.rand(2, T, 3))
    found = []
    for kind, a in (("constant", constant), ("of each step", each)):
        full = a.expand(2, T, 3)
        states, at = scan(a, b, initial=start), {"T": T, "factors": kind}
        wanted = one_by_one(full, b, start, bent=bent)
        found.append(equals("states", states, wanted, tol=1e-10, **at))
        back = one_by_one(full.flip(1), b.flip(1), start, bent=bent).flip(1)
        other = scan(a, b, initial=start, reverse=True)
        found.append(equals("states from the end", other, back, tol=1e-10, **at))
        cut = T // 2
        if cut:
            late = a if a.ndim == 1 else a[:, cut:]
            rest = scan(late, b[:, cut:], initial=states[:, cut - 1])
            found.append(equals("states from a stored one on", rest, wanted[:, cut:], tol=1e-10,
                                **at))  # fmt: skip
    return found


parallel_scan.foil("maps composed the wrong way round", order="later first")
parallel_scan.foil("the recurrence through tanh", recurrence="tanh")
parallel_scan.foil("levels rounded down: 1, not 2, for three steps", rounded="down")
