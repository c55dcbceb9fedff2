r"""Sums of encodings: which functions of sets they represent, and with how many numbers."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import chain, combinations, combinations_with_replacement
from math import comb

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, claim, equals
from vademecum.geometry import DeepSets
from vademecum.geometry.claims.elements import Function, How


def subsets(n: int) -> list[tuple[int, ...]]:
    """All subsets of 1, ..., n, the empty one among them."""
    return list(chain.from_iterable(combinations(range(1, n + 1), m) for m in range(n + 1)))


def codes_of(sets: list[tuple[int, ...]], encoder: nn.Module, how: How) -> list[tuple]:
    """Pooled encodings of sets of numbers, exact ones; empty sets have none but for sums."""
    segments = torch.tensor([i for i, s in enumerate(sets) for _ in s])
    x = torch.tensor([float(v) for s in sets for v in s])[:, None]
    net = DeepSets(encoder, nn.Identity(), aggregate=how)
    return [tuple(row) for row in net(x, segments=segments, num_sets=len(sets)).tolist()]


def polynomial(sums: tuple[float, ...]) -> list[Fraction]:
    r"""Coefficients of $\prod_i (t - x_i)$ from power sums, by Newton's identities."""
    p, e = [Fraction(0), *map(Fraction, sums)], [Fraction(1)]
    for k in range(1, len(p)):
        e.append(sum(((-1) ** (i - 1) * e[k - i] * p[i] for i in range(1, k + 1)), Fraction(0)) / k)
    return [(-1) ** k * c for k, c in enumerate(e)]


@claim(
    by="identity", sources=("A-192", "D-333"), budget=0.9,
    short=r"f(X) = \rho\big(\sum_{x \in X} \varphi(x)\big)\ "
    r"\text{for every invariant } f \text{ on a countable universe}",
)  # fmt: skip
def deep_sets_universality(
    aggregate: How = "sum", code: Callable[[Tensor], Tensor] = lambda n: 4.0**-n, fewer: int = 0
) -> Iterator[Evidence]:
    r"""Deep Sets representation theorem.

    Every invariant function of finite subsets of a countable universe has the form
    $\rho(\sum_{x \in X} \varphi(x))$, and every continuous invariant function of at most $M$ real
    numbers from a closed bounded interval has it with continuous $\varphi, \rho$ and latent
    dimension $M$; equivariant functions have the form $\rho(x_i, \sum_j \varphi(x_j))$. The sum is
    the aggregator and $\rho$ a general read-out; too small a latent dimension or maximum
    aggregation does not suffice.

    *Proof.* $\rho$ exists as soon as sums of different sets differ. For numbers $n = 1, 2, \dots$
    take $\varphi(n) = 4^{-n}$, whose sums are numbers in base 4 with digits 0 and 1. For reals, the
    power sums of degrees $1, \dots, M$ give $\prod_i (t - x_i)$ by Newton's identities; an interval
    away from 0 leaves 0 for what a smaller set lacks.

    Checked in exact numbers for all subsets of $\{1, \dots, 10\}$, and for all multisets of at most
    $M = 2, 3, 4$ of the numbers from 1 to 4, 7, 12, among which $M - 1$ power sums do collide;
    continuity and other universes are quoted.

    Knobs:
        aggregate: How encodings are pooled.
        code: The encoder $\varphi$ of a natural number.
        fewer: How many power sums fewer than $M$ there are.
    """
    sets = subsets(10) if aggregate == "sum" else subsets(10)[1:]
    found = codes_of(sets, Function(code), aggregate)
    yield equals("different codes of subsets", len(set(found)), len(sets), universe=10)
    values, table = torch.randn(len(sets)), defaultdict(list)
    for key, value in zip(found, values.tolist(), strict=True):
        table[key].append(value)
    read = torch.tensor([table[key][0] for key in found])
    yield equals("an arbitrary function of subsets", read, values, tol=0.0)
    net = DeepSets(Function(code), nn.Identity(), aggregate=aggregate, equivariant=True)
    some = [s for s in subsets(6) if s]
    x = torch.tensor([float(v) for s in some for v in s])[:, None]
    rows = net(x, segments=torch.tensor([i for i, s in enumerate(some) for _ in s]))
    yield equals("different codes of elements in their subset",
                 len(set(map(tuple, rows.tolist()))), 6 * 2**5)  # fmt: skip
    for M, top in ((2, 4), (3, 7), (4, 12)):
        lots = [c for m in range(1, M + 1)
                for c in combinations_with_replacement(range(1, top + 1), m)]  # fmt: skip
        degrees = torch.arange(1, M - fewer + 1)
        sums = codes_of(lots, Function(lambda z, degrees=degrees: z**degrees), aggregate)
        wanted = comb(top + M, M) - 1
        yield equals("different power sums of multisets", len(set(sums)), wanted, M=M)
        some = torch.randperm(len(lots))[:40].tolist()
        made = [[float(c) for c in polynomial(sums[i])] for i in some]
        by_hand = [np.poly([*lots[i], *[0] * (M - fewer - len(lots[i]))])[: M - fewer + 1]
                   for i in some]  # fmt: skip
        yield equals("the polynomial of the elements", made, np.array(by_hand), tol=0.0, M=M)


deep_sets_universality.foil("the numbers themselves: {1, 4} and {2, 3} collide", code=lambda n: n)
deep_sets_universality.foil("one power sum fewer", fewer=1)
deep_sets_universality.erratum(
    "D-333",
    printed=r"Any invariant function $f$ can be decomposed into an element-wise encoder $\phi$ and"
    r" an invariant aggregator $\rho$ (e.g., sum, max): $f(X) = \rho(\sum_m \phi(x_m))$",
    right=r"$f(X) = \rho(\sum_m \phi(x_m))$: the sum aggregates, and $\rho$ is any map",
    why=r"In the formula the sum is the aggregator and $\rho$ a general map, not a sum or maximum;"
    r" and conditions are needed (a countable universe, or continuity with latent dimension at"
    r" least $M$). With the maximum in place of the sum, subsets with one largest code collide: of"
    r" 1023 subsets there are 10 codes.",
    weight="soft",
    refuted_by="different codes of subsets",
    aggregate="max",
)
