"""What the course claims of Hebb's rule, and of sparse patterns and the room that they take."""

import math
from itertools import combinations, product

import torch
from scipy.stats import chisquare
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, consistent, equals
from vademecum.connectionism.hopfield import HopfieldNetwork
from vademecum.connectionism.sparse_patterns import sparse_capacity_bound
from vademecum.connectionism.sparse_patterns import sparse_patterns as draw
from vademecum.connectionism.willshaw import WillshawMemory


@claim(by="identity", sources=("B-054", "E-073"), budget=0.5)
def hebb_rule(rule: str = "product", n: int = 60, s: int = 15):
    r"""Hebb's learning rule: what fires together, wires together.

    Connections grow with correlated activity, $\Delta \theta_{ij} \propto x_i x_j$. Summed over
    patterns, the rows of $X$, in any order, this is the correlation matrix $X^\top X$. For bipolar
    units the change is positive if and only if the two activities agree, for 0/1 units if and only
    if both are active.

    *Check.* Updates accumulated one pattern at a time, against what the memories hold: a Hopfield
    network the $\pm 1$ sums off the diagonal, over $n$; a Willshaw memory the 0/1 sums, clipped.
    """
    change = {
        "product": lambda a, b: a * b,
        "sum": lambda a, b: a + b,
        "anti": lambda a, b: -a * b,
    }[rule]
    for a, b in product((-1, 1), repeat=2):
        yield equals(change(a, b) > 0, a == b, x_i=a, x_j=b)
    for a, b in product((0, 1), repeat=2):
        yield equals(change(a, b) > 0, a == b == 1, x_i=a, x_j=b)

    x = torch.randint(2, (s, n)) * 2 - 1
    theta = sum(change(x[t][:, None], x[t]) for t in torch.randperm(s).tolist())
    weights = HopfieldNetwork(x).weights.mul(n).fill_diagonal_(s)
    yield equals(weights, theta, n=n)

    x = draw(s, n, 5)
    theta = sum(change(x[t].int()[:, None], x[t].int()) for t in torch.randperm(s).tolist())
    memory = WillshawMemory(n)
    memory.store(x, x)
    yield equals(memory.recall(torch.eye(n)), torch.as_tensor(theta).clamp(max=1), n=n)


hebb_rule.foil("the sum falls for two silent bipolar units, which agree", rule="sum")
hebb_rule.foil("the anti-Hebbian sign takes apart what fires together", rule="anti")


def _patterns(n: int, r: int, fewest: int) -> Tensor:
    """All patterns of n units of which from `fewest` to r are active."""
    sets = [units for k in range(fewest, r + 1) for units in combinations(range(n), k)]
    x = torch.zeros(len(sets), n, dtype=torch.bool)
    for row, units in zip(x, sets, strict=True):
        row[list(units)] = True
    return x


@claim(by="exhaustion", sources=("B-055", "B-057"), budget=0.5)
def sparse_patterns(exactly: bool = True, draws: int = 4000):
    r"""Sparse binary patterns, and the bits that one carries.

    The patterns $\mathbb{B}^n_r = \{x \in \{0, 1\}^n : \sum_i x_i = r\}$ with exactly $r$ active
    units are $\binom{n}{r}$ in number, so that one carries $\log_2 \binom{n}{r}$ bits, where

    $$r \log_2 \frac{n}{r} \le \log_2 \binom{n}{r} \le r \log_2 \frac{e n}{r}.$$

    If $\log r = o(\log n)$ this is $r \log_2 n$ to leading order. Willshaw's memory with the
    threshold $r$ recalls any one stored pair of such patterns.

    *Check.* All patterns for $n \le 8$, each stored and recalled in a memory of its own; the random
    ones are uniform, by a test that fails once in $10^8$ runs; the bounds for all $r \le n < 200$;
    and the ratio to the leading order grows along $n = 2^k$, $r = k$, to $0.969$ at $k = 200$.
    """
    for n in range(2, 9):
        for r in range(1, n):
            x = _patterns(n, r, fewest=r if exactly else 0)
            yield equals(len(x), math.comb(n, r), n=n, r=r)
            x = x[x.any(1)]
            memory = WillshawMemory(len(x) * n, n)
            cues = torch.block_diag(*x[:, None].int())
            memory.store(cues, x.flip(0))
            yield equals(memory.recall(cues, threshold=r), x.flip(0), n=n, r=r)

    found, counts = draw(draws, 6, 3).unique(dim=0, return_counts=True)
    yield equals(found, _patterns(6, 3, fewest=3).unique(dim=0), n=6, r=3)
    yield consistent(float(chisquare(counts.numpy()).pvalue), alpha=1e-8, n=6, r=3)

    grid = [(n, r) for n in range(1, 200) for r in range(1, n + 1)]
    bits = torch.tensor([math.log2(math.comb(n, r)) for n, r in grid])
    n, r = torch.tensor(grid).double().unbind(1)
    yield at_least(bits, r * (n / r).log2())
    yield at_most(bits, r * (math.e * n / r).log2())
    ratios = [math.log2(math.comb(2**k, k)) / (k * k) for k in (5, 10, 20, 50, 100, 200)]
    yield at_least(torch.tensor(ratios).diff(), 0.0)
    yield equals(torch.tensor(ratios), [0.705, 0.781, 0.847, 0.914, 0.948, 0.969], tol=5e-4)


sparse_patterns.erratum(
    "B-055",
    printed=r"$\mathbb{B}_r^n = \{x \in \{0, 1\}^n \mid \sum x_i \le r\}$",
    right=r"$\mathbb{B}_r^n = \{x \in \{0, 1\}^n \mid \sum x_i = r\}$",
    why=r"the count $\binom{n}{r}$ and the threshold $r$ need exactly $r$ active units: at most"
    " 2 of 4 are 11 patterns, not 6, and one active unit never reaches the threshold 2",
    exactly=False,
)


@claim(by="exhaustion", sources=("B-056", "B-057"), budget=0.5)
def sparse_information_bound(power: int = 2, sizes: tuple[int, ...] = (2, 3, 4)):
    r"""Binary weights hold at most $n^2 / \log_2 \binom{n}{r}$ sparse patterns.

    A memory with $n^2$ binary weights has at most $2^{n^2}$ states. If for fixed cues every choice
    of $s$ targets from $\mathbb{B}^n_r$ is to be recalled without error, then
    $\binom{n}{r}^s \le 2^{n^2}$, that is

    $$s \le \frac{n^2}{\log_2 \binom{n}{r}} \approx \frac{n^2}{r \log_2 n}$$

    to leading order.

    *Check.* Every choice of targets for $s$ cues, the unit vectors or random ones, is stored in a
    memory of its own. Where all are recalled, the weight matrices of all choices differ (a
    pigeonhole for each), and $s$ keeps the bound.
    """
    for n in sizes:
        for r in range(1, min(n, 3)):
            bound = sparse_capacity_bound(n, r) * float(n) ** (power - 2)
            yield equals(bound * math.log2(math.comb(n, r)), float(n**power), n=n, r=r)
            for cues in (torch.eye(n), draw(2, n, r)):
                recalled, states = _store_all_choices(cues, _patterns(n, r, fewest=r))
                if recalled:
                    yield equals(states, math.comb(n, r) ** len(cues), n=n, r=r)
                    yield at_most(len(cues), bound, n=n, r=r)
    for k in (10, 50, 200):
        leading = 4.0**k / k**2
        yield at_least(sparse_capacity_bound(2**k, k) / leading, 1.0, k=k)
        yield at_most(sparse_capacity_bound(2**k, k) / leading, 1 / (1 - math.log2(k) / k), k=k)


def _store_all_choices(cues: Tensor, targets: Tensor) -> tuple[bool, int]:
    """Whether all choices of targets are recalled, and how many different matrices they need.

    The memories of all choices are the blocks of a large one, with input units of their own.
    """
    choices = torch.cartesian_prod(*[torch.arange(len(targets))] * len(cues)).view(-1, len(cues))
    n = cues.shape[1]
    memory = WillshawMemory(len(choices) * n, n)
    x, y = torch.block_diag(*[cues.int()] * len(choices)), targets[choices.flatten()]
    memory.store(x, y)
    matrices = memory.links.view(len(choices), -1)
    return memory.recall(x).equal(y), len(matrices.unique(dim=0))


sparse_information_bound.foil("bits counted per unit, not per weight, leave no room", power=1)
