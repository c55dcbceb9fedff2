"""Hebb's rule: sparse patterns, and the room that they take."""

import math
from itertools import combinations, product
from typing import Literal

import torch
from scipy.stats import chisquare
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, consistent, equals, lowest
from vademecum.connectionism import HopfieldNetwork, WillshawMemory, sparse_capacity_bound
from vademecum.connectionism import sparse_patterns as draw


@claim(
    by="identity",
    sources=("B-054", "E-073"),
    budget=0.5,
    short=r"\Delta\theta_{ij} \propto x_i x_j, \text{ summed over patterns } X^\top X",
)
def hebb_rule(rule: Literal["product", "sum", "anti"] = "product", n: int = 60, s: int = 15):
    r"""Hebb's learning rule: what fires together, wires together.

    Connections grow with correlated activity, $\Delta \theta_{ij} \propto x_i x_j$. Summed over
    patterns, the rows of $X$, in any order, this is the correlation matrix $X^\top X$. For bipolar
    units the change is positive if and only if the two activities agree, for 0/1 units if and only
    if both are active.

    *Check.* Updates accumulated one pattern at a time, against what the memories hold: a Hopfield
    network the $\pm 1$ sums off the diagonal, over $n$; a Willshaw memory the 0/1 sums, clipped.

    Knobs:
        rule: The change of a connection, $x_i x_j$, $x_i + x_j$ or $-x_i x_j$.
        n: How many units there are.
        s: How many patterns are learnt.
    """
    lowest("n", n, 5)
    change = {
        "product": lambda a, b: a * b,
        "sum": lambda a, b: a + b,
        "anti": lambda a, b: -a * b,
    }[rule]
    for a, b in product((-1, 1), repeat=2):
        yield equals("whether a bipolar connection grows", change(a, b) > 0, a == b, x_i=a, x_j=b)
    for a, b in product((0, 1), repeat=2):
        grows, both = change(a, b) > 0, a == b == 1
        yield equals("whether a 0/1 connection grows", grows, both, x_i=a, x_j=b)

    x = torch.randint(2, (s, n)) * 2 - 1
    theta = sum(change(x[t][:, None], x[t]) for t in torch.randperm(s).tolist())
    weights = HopfieldNetwork(x).weights.mul(n).fill_diagonal_(s)
    yield equals("$n$ times the couplings of a Hopfield network", weights, theta, n=n)

    x = draw(s, n, 5)
    theta = sum(change(x[t].int()[:, None], x[t].int()) for t in torch.randperm(s).tolist())
    memory = WillshawMemory(n)
    memory.store(x, x)
    links = memory.recall(torch.eye(n))
    yield equals("links of a Willshaw memory", links, torch.as_tensor(theta).clamp(max=1), n=n)


hebb_rule.foil("the sum falls for two silent bipolar units, which agree", rule="sum")
hebb_rule.foil("the anti-Hebbian sign takes apart what fires together", rule="anti")


def _patterns(n: int, r: int, fewest: int) -> Tensor:
    """All patterns of n units of which from `fewest` to r are active."""
    sets = [units for k in range(fewest, r + 1) for units in combinations(range(n), k)]
    x = torch.zeros(len(sets), n, dtype=torch.bool)
    for row, units in zip(x, sets, strict=True):
        row[list(units)] = True
    return x


@claim(
    by="sampling",
    sources=("B-055", "B-057"),
    budget=0.5,
    short=r"r \log_2 \tfrac{n}{r} \le \log_2 |\mathbb{B}^n_r| = \log_2 \tbinom{n}{r}"
    r" \le r \log_2 \tfrac{e n}{r}",
)
def sparse_patterns(exactly: bool = True, draws: int = 4000):
    r"""Sparse binary patterns, and the bits that one carries.

    The patterns $\mathbb{B}^n_r = \{x \in \{0, 1\}^n : \sum_i x_i = r\}$ with exactly $r$ active
    units are $\binom{n}{r}$ in number, so that one carries $\log_2 \binom{n}{r}$ bits, where

    $$r \log_2 \frac{n}{r} \le \log_2 \binom{n}{r} \le r \log_2 \frac{e n}{r}.$$

    If $\log r = o(\log n)$ this is $r \log_2 n$ to leading order. Willshaw's memory with the
    threshold $r$ recalls any one stored pair of such patterns.

    *Check.* All patterns for $n \le 8$, each stored and recalled in a memory of its own; the random
    ones are uniform, by tests that fail once in $10^7$ runs; the bounds for all $r \le n < 200$;
    and the ratio to the leading order grows along $n = 2^k$, $r = k$, to $0.969$ at $k = 200$.

    Knobs:
        exactly: Whether a pattern has exactly $r$ active units, or at most $r$.
        draws: How many random patterns are drawn for the test of uniformity.
    """
    lowest("draws", draws, 500)
    cue, target = torch.tensor([[1, int(exactly), 0, 0]]), torch.tensor([[0, 1, 1, 0]])
    memory = WillshawMemory(4)
    memory.store(cue, target)
    answer = memory.recall(cue, threshold=2)
    yield equals("active units recalled of $y = (0, 1, 1, 0)$", int(answer.sum()), 2, n=4, r=2)
    for n in range(2, 9):
        for r in range(1, n):
            x = _patterns(n, r, fewest=r if exactly else 0)
            yield equals("patterns with $r$ active units", len(x), math.comb(n, r), n=n, r=r)
            x = x[x.any(1)]
            memory = WillshawMemory(len(x) * n, n)
            cues = torch.block_diag(*x[:, None].int())
            memory.store(cues, x.flip(0))
            recalled = memory.recall(cues, threshold=r)
            yield equals("recall of any one stored pair", recalled, x.flip(0), n=n, r=r)

    for n, r in ((6, 3), (6, 2), (7, 5)):
        found, counts = draw(draws, n, r).unique(dim=0, return_counts=True)
        every = _patterns(n, r, fewest=r).unique(dim=0)
        yield equals("patterns that were drawn", found, every, n=n, r=r)
        p = float(chisquare(counts.numpy()).pvalue)
        yield consistent("p-value of uniform patterns", p, alpha=3e-8, n=n, r=r)

    grid = [(n, r) for n in range(1, 200) for r in range(1, n + 1)]
    bits = torch.tensor([math.log2(math.comb(n, r)) for n, r in grid])
    n, r = torch.tensor(grid).double().unbind(1)
    yield at_least("bits of a pattern", bits, r * (n / r).log2())
    yield at_most("bits of a pattern", bits, r * (math.e * n / r).log2())
    before = 0.0
    leading = {5: 0.705, 10: 0.781, 20: 0.847, 50: 0.914, 100: 0.948, 200: 0.969}
    for k, ratio in leading.items():
        measured = math.log2(math.comb(2**k, k)) / (k * k)
        yield equals("bits, relative to the leading order", measured, ratio, tol=5e-4, k=k)
        yield at_least("growth of the bits over the leading order", measured - before, 0.0, k=k)
        before = measured


sparse_patterns.erratum(
    "B-055",
    printed=r"$\mathbb{B}_r^n=\{x\in\{0,1\}^n\,|\,\sum x_i\leq r\}$",
    right=r"$\mathbb{B}_r^n=\{x\in\{0,1\}^n\,|\,\sum x_i=r\}$",
    why=r"the sheet's count $\log\binom nr$, its retrieval threshold $r$ and the step "
    r"$(x^t)^Tx^t=r$ in its monotonicity proof all need exactly $r$ ones; with 'at most' the "
    r"stored pair $x=(1,0,0,0)$, $y=(0,1,1,0)$, $r=2$ gives $\Theta x=(0,1,1,0)$, and the "
    "threshold 2 returns the zero vector",
    exactly=False,
)


@claim(
    by="identity",
    sources=("B-056", "B-057"),
    budget=1.0,
    short=r"\tbinom{n}{r}^s \le 2^{n^2} \implies s \le n^2 / \log_2 \tbinom{n}{r}"
    r" \approx n^2 / (r \log_2 n)",
)
def sparse_information_bound(power: int = 2, sizes: tuple[int, ...] = (2, 3, 4)):
    r"""Binary weights hold at most $n^2 / \log_2 \binom{n}{r}$ sparse patterns.

    A memory with $n^2$ binary weights has at most $2^{n^2}$ states. If for fixed cues every choice
    of $s$ targets from $\mathbb{B}^n_r$ is to be recalled without error, then
    $\binom{n}{r}^s \le 2^{n^2}$, that is

    $$s \le \frac{n^2}{\log_2 \binom{n}{r}} \approx \frac{n^2}{r \log_2 n}$$

    to leading order.

    *Check.* For $n \le 4$ and $r \le 2$ every choice of targets for the $n$ unit vectors, and for
    any two cues of $\mathbb{B}^n_r$, is stored in a memory of its own. Where all are recalled, the
    weight matrices of all choices differ (a pigeonhole for each), and $s$ keeps the bound. The
    pigeonholes prove the rest; the leading order is compared along $n = 2^k$, $r = k$.

    Knobs:
        power: The exponent of $n$ in the bound, that is in the number of weights.
        sizes: The numbers $n$ of units.
    """
    for n in sizes:
        for r in range(1, min(n, 3)):
            bound = sparse_capacity_bound(n, r) * float(n) ** (power - 2)
            bits = bound * math.log2(math.comb(n, r))
            yield equals("bound times the bits of a pattern", bits, float(n**power), n=n, r=r)
            targets = _patterns(n, r, fewest=r)
            pairs = [targets[list(pair)] for pair in combinations(range(len(targets)), 2)]
            for cues in (torch.eye(n), *pairs):
                recalled, states = _store_all_choices(cues, targets)
                if recalled:
                    choices = math.comb(n, r) ** len(cues)
                    yield equals("different weight matrices", states, choices, n=n, r=r)
                    yield at_most("patterns held without error", len(cues), bound, n=n, r=r)
    for k in (10, 50, 200):
        ratio = sparse_capacity_bound(2**k, k) / (4.0**k / k**2)
        yield at_least("bound, relative to the leading order", ratio, 1.0, k=k)
        yield at_most(
            "bound, relative to the leading order", ratio, 1 / (1 - math.log2(k) / k), k=k
        )


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
