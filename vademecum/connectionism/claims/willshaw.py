"""What the course claims of Willshaw's associative memory."""

import math
from itertools import combinations

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.connectionism.sparse_patterns import sparse_capacity_bound, sparse_patterns
from vademecum.connectionism.willshaw import WillshawMemory, willshaw_information


@claim(by="identity", sources=("B-058", "B-059", "B-060"), budget=0.5)
def willshaw_memory(clipped: bool = True, short: int = 0, n: int = 512, r: int = 16, s: int = 50):
    r"""Willshaw's memory is the OR of outer products, asked by an AND.

    Pairs $(x^t, y^t)$ of sparse binary vectors are stored by clipped Hebbian learning,
    $\Theta_{ji} = \min\{1, \sum_t y^t_j x^t_i\}$, whatever their order and however often. A cue
    with $r$ active units is answered by $y_j = 1$ if and only if $(\Theta x)_j \ge r$: all its
    links are set, $\operatorname{supp} x \subseteq N_j = \{i : \Theta_{ji} = 1\}$.

    *Check.* Against the sets $N_j$ built link by link, for stored cues, random ones, and ones that
    share $r / 2$ or $r - 1$ active units with a stored one. By the union bound, the probability
    that some pair is not recalled exactly is at most $s n\, \mathbb{E}[(1 - (1 - r/n)^K)^r]$, with
    $K \sim \mathrm{Bin}(s - 1, r/n)$: below $10^{-9}$.
    """
    x, y = sparse_patterns(s, n, r), sparse_patterns(s, n, r)
    memory, again = WillshawMemory(n), WillshawMemory(n)
    memory.store(x, y)
    again.store(x[: s // 2].flip(0), y[: s // 2].flip(0))
    again.store(x.flip(0), y.flip(0))
    yield equals(again.links, memory.links, n=n)

    links = [set() for _ in range(n)]
    for cue, answer in zip(x, y, strict=True):
        for j in answer.nonzero().flatten().tolist():
            links[j].update(cue.nonzero().flatten().tolist())
    theta = torch.zeros(n, n, dtype=torch.bool)
    for j, linked in enumerate(links):
        theta[j, list(linked)] = True
    yield equals(memory.recall(torch.eye(n)), theta.T, n=n)

    cues = torch.cat([x, sparse_patterns(20, n, r), *(_blend(x[0], r - k, k) for k in (r // 2, 1))])
    active = [set(cue.nonzero().flatten().tolist()) for cue in cues]
    oracle = [[units <= linked for linked in links] for units in active]
    if clipped:
        answers = memory.recall(cues, threshold=r - short if short else None)
    else:
        twice = 2.0 * y.double().T @ x.double()
        answers = cues.double() @ twice.T >= r
    yield equals(answers, torch.tensor(oracle), n=n, r=r)
    yield equals(answers[:s], y, n=n, r=r)


def _blend(x: Tensor, kept: int, added: int) -> Tensor:
    """The pattern with some of its active units replaced by others, as a batch of one."""
    active, silent = x.nonzero().flatten(), (~x).nonzero().flatten()
    blend = torch.zeros(1, len(x), dtype=torch.bool)
    blend[0, active[:kept]] = True
    blend[0, silent[torch.randperm(len(silent))[:added]]] = True
    return blend


willshaw_memory.foil(
    "unclipped sums of pairs stored twice: half of a cue's active units reach the threshold",
    clipped=False,
)
willshaw_memory.foil("with the threshold $r - 1$ one foreign unit goes unnoticed", short=1)


@claim(by="identity", sources=("B-060", "B-061"), budget=0.5)
def willshaw_monotone_recall(
    strict: bool = False, xor: bool = False, n: int = 128, r: int = 8, s: int = 2000
):
    r"""Willshaw's memory never loses an active unit.

    For every stored pair with $\sum_i x^t_i = r$ the answer contains $y^t$, at any load: entrywise
    $\Theta \ge y^t (x^t)^\top$, so that $\Theta x^t \ge r\, y^t$. Errors can only be spurious ones.
    The same holds for any part of $x^t$ as a cue; and storing more pairs adds ones to answers, but
    never takes one away.

    *Check.* At a load where nearly all links are set, and everything would be recalled.
    """
    x, y = sparse_patterns(s, n, r), sparse_patterns(s, n, r)
    half, full = WillshawMemory(n), WillshawMemory(n)
    half.store(x[: s // 2], y[: s // 2])
    full.store(x, y)
    yield at_least(full.load, 0.99, n=n, s=s)
    part = x & (torch.rand(s, n) < 0.5)
    part[torch.arange(s), x.int().argmax(1)] = True
    for cues in (x, part):
        if xor:
            parity = (y.double().T @ x.double()) % 2
            answers = cues.double() @ parity.T >= cues.sum(1, keepdim=True)
        else:
            answers = full.recall(cues, threshold=r + 1 if strict else None)
        yield at_least(answers, y, n=n, s=s)
        yield at_least(answers, half.recall(cues), n=n, s=s)


willshaw_monotone_recall.foil("no unit exceeds $r$, so a strict threshold is silent", strict=True)
willshaw_monotone_recall.foil("XOR instead of OR erases a link that is stored twice", xor=True)


@claim(by="identity", sources=("B-062",), budget=0.5)
def willshaw_capacity(base: float = 2.0, maximum: float = math.log(2), grid: int = 1001):
    r"""Willshaw's memory holds $\ln 2$ bits per synapse, with $r = \log_2 n$ active units.

    If a share $p$ of the entries of $\Theta$ is set, which takes $s = -\ln(1 - p)\, n^2 / r^2$
    pairs, and this is the threshold of reliability, $n p^r = 1$, then the information stored is

    $$I(p) = \frac{\ln p \, \ln(1 - p)}{\ln 2}$$

    bits per synapse as $n \to \infty$. It is largest at $p = \frac12$, where
    $I = \ln 2 \approx 0.693$ and the condition of reliability reads $r = \log_2 n$.

    *Check.* $I$ is symmetric, its slope at $\frac12$ is 0, and no value on a grid is larger; with
    $r = \log_b n$, reliability gives $p = 1/b$, which is best for $b = 2$. For finite $n = 2^k$,
    $r = k$ and $s = \ln 2\, n^2 / r^2$, the bits $s \log_2 \binom{n}{r} / n^2$ put in grow with
    $k$ towards $\ln 2$, within $\ln 2 \cdot \log_2 k / k$; a memory gives back no more than these.
    """
    p = torch.linspace(0, 1, grid)
    yield at_most(willshaw_information(p), maximum, p=0.5)
    yield equals(willshaw_information(0.5), maximum, p=0.5)
    yield equals(willshaw_information(p), willshaw_information(p.flip(0)))
    yield equals(willshaw_information(1 / base), maximum, base=base)
    middle = torch.tensor(0.5, requires_grad=True)
    (rate,) = torch.autograd.grad(willshaw_information(middle), middle)
    yield equals(rate, 0.0)

    before = 0.0
    for k in (5, 10, 20, 50, 100, 200):
        stored = math.log(2) / k**2 * 4.0**k / sparse_capacity_bound(2**k, k)
        yield at_least(stored, before, k=k)
        yield at_most(stored, maximum, k=k)
        yield at_least(stored, maximum * (1 - math.log2(k) / k), k=k)
        before = stored

    n, r, s = 256, 8, 709  # s = ln 2 n^2 / r^2
    x, y = sparse_patterns(s, n, r), sparse_patterns(s, n, r)
    memory = WillshawMemory(n)
    memory.store(x, y)
    yield at_most(memory.information(x, y), s / sparse_capacity_bound(n, r), n=n)


willshaw_capacity.erratum(
    "B-062",
    printed=r"$\max_q I(\text{patterns}) = (\log 2) n^2 \approx 0.693 n^2$ in the limit, for"
    r" $r = \log n$",
    right=r"$\max I = (\ln 2) n^2 \approx 0.693 n^2$ bits, for $r = \log_2 n$",
    why="0.693 makes the first logarithm natural, and the second must be to base 2: with"
    r" $r = \ln n$ reliability gives $p = 1/e$ and $0.662 n^2$ bits",
    base=math.e,
)
willshaw_capacity.foil(
    "with both logarithms to base 2 the capacity would be a whole bit", maximum=1.0
)


@claim(by="sampling", sources=("B-063",), budget=0.5)
def willshaw_half_fill(clipped: bool = True, n: int = 256, r: int = 8, s: int = 709):
    r"""At capacity half of Willshaw's matrix is set.

    After $s$ random pairs the expected share of ones in $\Theta$ is exactly
    $1 - (1 - \frac{r^2}{n^2})^s$; at the best load $s = \ln 2\, \frac{n^2}{r^2}$ it tends to
    $\frac12$.

    *Check.* The mean over all sequences of one and two pairs at $n = 4$, $r = 2$; a large memory,
    within the radius $\frac{r^2}{n^2} \sqrt{\frac{s}{2} \ln(2 \cdot 10^7)}$ of McDiarmid's
    inequality (a pair changes at most $r^2$ of $n^2$ entries), exceeded at most once in $10^7$
    runs; and the limit, from which the share is at most $r^2 / n^2$ away.
    """

    def share(n: int, r: int, s: float) -> float:
        q = r * r / (n * n)
        return -math.expm1(s * math.log1p(-q)) if clipped else s * q

    units = torch.tensor(list(combinations(range(4), 2)))
    each = torch.zeros(6, 4, dtype=torch.bool).scatter_(1, units, True)
    for length in (1, 2):
        # The memories of all sequences are the blocks of a large one, whose load is their mean.
        choices = torch.cartesian_prod(*[torch.arange(6)] * (2 * length)).view(-1, length, 2)
        memory = WillshawMemory(4 * len(choices), 4)
        cues = torch.block_diag(*each[choices[..., 0]].int())
        memory.store(cues, each[choices[..., 1]].flatten(0, 1))
        yield equals(memory.load, share(4, 2, length), n=4, s=length)

    memory = WillshawMemory(n)
    memory.store(sparse_patterns(s, n, r), sparse_patterns(s, n, r))
    radius = (r / n) ** 2 * math.sqrt(s / 2 * math.log(2e7))
    yield at_most(abs(memory.load - share(n, r, s)), radius, n=n, s=s)
    for k in (5, 10, 20, 40):
        q = k * k / 4.0**k
        yield at_most(abs(share(2**k, k, math.log(2) / q) - 0.5), q, n=2**k)


willshaw_half_fill.foil("unclipped, the sums would fill 0.693 of the matrix", clipped=False)
