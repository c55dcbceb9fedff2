"""Willshaw's memory: binary synapses, and how many bits they hold."""

import math
from itertools import combinations

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, lowest
from vademecum.connectionism import (
    WillshawMemory,
    sparse_capacity_bound,
    sparse_patterns,
    willshaw_information,
)


@claim(
    by="identity",
    sources=("B-058", "B-059", "B-060"),
    budget=1.0,
    short=r"\Theta_{ji} = \min\{1, \textstyle\sum_t y^t_j x^t_i\},\quad"
    r" y_j = 1 \iff (\Theta x)_j \ge r",
)
def willshaw_memory(clipped: bool = True, short: int = 0, n: int = 512, r: int = 16, s: int = 50):
    r"""Willshaw's memory is the OR of outer products, asked by an AND.

    Pairs $(x^t, y^t)$ of sparse binary vectors are stored by clipped Hebbian learning,
    $\Theta_{ji} = \min\{1, \sum_t y^t_j x^t_i\}$, whatever their order and however often. A cue
    with $r$ active units is answered by $y_j = 1$ if and only if $(\Theta x)_j \ge r$: all its
    links are set, $\operatorname{supp} x \subseteq N_j = \{i : \Theta_{ji} = 1\}$.

    *Check.* Against the sets $N_j$ built link by link, for stored cues, random ones, and ones that
    share $r / 2$ or $r - 1$ active units with a stored one; there are $m = \frac54 n$ output units.
    By the union bound, the probability that some pair is not recalled exactly is at most
    $s m\, \mathbb{E}[(1 - (1 - r/n)^K)^r]$, with $K \sim \mathrm{Bin}(s - 1, r/m)$: below
    $10^{-9}$.

    Knobs:
        clipped: Whether links are 0 or 1; else they count the pairs, each of which is stored twice.
        short: How far the threshold is below the number of active units of the cue.
        n: How many input units there are.
        r: How many units are active in a pattern.
        s: How many pairs are stored.
    """
    lowest("n", n, r)
    lowest("s", s, 20)
    m = n + n // 4
    x, y = sparse_patterns(s, n, r), sparse_patterns(s, m, r)
    memory, again = WillshawMemory(n, m), WillshawMemory(n, m)
    memory.store(x, y)
    again.store(x[: s // 2].flip(0), y[: s // 2].flip(0))
    again.store(x.flip(0), y.flip(0))
    yield equals("links after another order and repetitions", again.links, memory.links, n=n)

    links = [set() for _ in range(m)]
    for cue, answer in zip(x, y, strict=True):
        for j in answer.nonzero().flatten().tolist():
            links[j].update(cue.nonzero().flatten().tolist())
    theta = torch.zeros(m, n, dtype=torch.bool)
    for j, linked in enumerate(links):
        theta[j, list(linked)] = True
    yield equals("links, one by one", memory.recall(torch.eye(n)), theta.T, n=n)

    cues = torch.cat([x, sparse_patterns(20, n, r), *(_blend(x[0], r - k, k) for k in (r // 2, 1))])
    active = [set(cue.nonzero().flatten().tolist()) for cue in cues]
    oracle = torch.tensor([[units <= linked for linked in links] for units in active])
    if clipped:
        answers = memory.recall(cues, threshold=r - short if short else None)
    else:
        twice = 2.0 * y.double().T @ x.double()
        answers = cues.double() @ twice.T >= r
    yield equals("answers to cues, stored or not", answers, oracle, n=n, r=r)
    yield equals("recall of the stored pairs", answers[:s], y, n=n, r=r)
    mixed = torch.cat([x[:5], x[5:10] | x[10:15], x[15:20] & (torch.rand(n) < 0.5)])
    sums = mixed.long() @ theta.T.long()
    for least in (1, 2, r // 2 + 1, r):
        found = memory.recall(mixed, threshold=least)
        yield equals("answers at another threshold", found, sums >= least, threshold=least)


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


@claim(
    by="sampling",
    sources=("B-060", "B-061"),
    budget=0.5,
    short=r"y \ge y^t \text{ for every stored pair, since } \Theta x^t \ge r\, y^t",
)
def willshaw_monotone_recall(
    strict: bool = False, xor: bool = False, n: int = 128, r: int = 8, s: int = 2000
):
    r"""Willshaw's memory never loses an active unit.

    For every stored pair with $\sum_i x^t_i = r$ the answer contains $y^t$, at any load: entrywise
    $\Theta \ge y^t (x^t)^\top$, so that $\Theta x^t \ge r\, y^t$. Errors can only be spurious ones.
    The same holds for any part of $x^t$ as a cue; and storing more pairs adds ones to answers, but
    never takes one away.

    *Check.* At a load where nearly all links are set, and everything would be recalled; there are
    $\frac54 n$ output units.

    Knobs:
        strict: Whether a unit answers only if its sum exceeds $r$.
        xor: Whether a link that is stored twice is erased again.
        n: How many input units there are.
        r: How many units are active in a pattern.
        s: How many pairs are stored.
    """
    lowest("n", n, r)
    lowest("s", s, 2)
    m = n + n // 4
    x, y = sparse_patterns(s, n, r), sparse_patterns(s, m, r)
    half, full = WillshawMemory(n, m), WillshawMemory(n, m)
    half.store(x[: s // 2], y[: s // 2])
    full.store(x, y)
    share = float((y.double().T @ x.double() > 0).double().mean())
    yield equals("share of links that are set", full.load, share, n=n, s=s)
    part = x & (torch.rand(s, n) < 0.5)
    part[torch.arange(s), x.int().argmax(1)] = True
    for cues, which in ((x, "all"), (part, "a part")):
        if xor:
            parity = (y.double().T @ x.double()) % 2
            answers = cues.double() @ parity.T >= cues.sum(1, keepdim=True)
        else:
            answers = full.recall(cues, threshold=r + 1 if strict else None)
        at = {"n": n, "s": s, "cue": which}
        yield at_least("recalled units, against the stored", answers, y, **at)
        yield at_least("recalled units, against half the load", answers, half.recall(cues), **at)


willshaw_monotone_recall.foil("no unit exceeds $r$, so a strict threshold is silent", strict=True)
willshaw_monotone_recall.foil("XOR instead of OR erases a link that is stored twice", xor=True)


@claim(
    by="identity",
    sources=("B-062",),
    budget=0.5,
    short=r"I(p) = \ln p \ln(1 - p) / \ln 2 \le I(\tfrac12) = \ln 2"
    r"\text{ bits a synapse, at } r = \log_2 n",
)
def willshaw_capacity(base: float = 2.0, maximum: float = math.log(2), grid: int = 1001):
    r"""Willshaw's memory holds $\ln 2$ bits per synapse, with $r = \log_2 n$ active units.

    If a share $p$ of the entries of $\Theta$ is set, which takes $s = -\ln(1 - p)\, n^2 / r^2$
    pairs, and this is the threshold of reliability, $n p^r = 1$, then the information stored is

    $$I(p) = \frac{\ln p \, \ln(1 - p)}{\ln 2}$$

    bits per synapse as $n \to \infty$. It is largest at $p = \frac12$, where
    $I = \ln 2 \approx 0.693$ and the condition of reliability reads $r = \log_2 n$.

    *Check.* From the definition: at the threshold of reliability there are $n = p^{-r}$ units, and
    $s \log_2 \binom{n}{r} / n^2$ bits per synapse are put in. As
    $n^r \ge \binom{n}{r} \ge (n / r)^r$ they fall short of $I(p)$, by at most
    $-\ln(1 - p) \log_2 (r) / r$. Besides, $I$ is symmetric, its slope at $\frac12$ is 0, and no
    value on a grid is larger; with $r = \log_b n$ reliability gives $p = 1/b$, which is best for
    $b = 2$. A memory gives back less than was put in, by what its answers leave open.

    Knobs:
        base: The $b$ in $r = \log_b n$.
        maximum: The largest information per synapse, in bits.
        grid: At how many equidistant $p$ from 0 to 1 the information is computed.
    """
    p = torch.linspace(0, 1, grid)
    yield at_most("information per synapse", willshaw_information(p), maximum)
    mirrored = willshaw_information(p.flip(0))
    yield equals("information, against that at $1 - p$", willshaw_information(p), mirrored)
    best = willshaw_information(1 / base)
    yield equals("information per synapse at $p = 1/b$", best, maximum, base=base)
    middle = torch.tensor(0.5, requires_grad=True)
    (rate,) = torch.autograd.grad(willshaw_information(middle), middle)
    yield equals("slope of the information at one half", rate, 0.0)
    yield from _bits_put_in(maximum)
    yield from _bits_given_back()


def _bits_put_in(maximum: float):
    """What fills a memory, at its threshold of reliability, to a share p; n may be enormous."""
    for p in (0.05, 0.2, 0.5, 0.7, 0.95):
        for r in (10**3, 10**5, 10**8):
            pairs = -math.log1p(-p) / r**2  # for each synapse
            log_n = -r * math.log(p)
            bits = (r * log_n - math.lgamma(r + 1)) / math.log(2)  # n is beyond 10^22
            short = -math.log1p(-p) * math.log2(r) / r
            limit, at = willshaw_information(p), {"r": r, "p": p}
            yield at_least("information in the limit", limit, pairs * bits, **at)
            yield at_most("information in the limit", limit, pairs * bits + short, **at)

    before = 0.0
    for k in (5, 10, 20, 50, 100, 200):
        stored = math.log(2) / k**2 * 4.0**k / sparse_capacity_bound(2**k, k)
        yield at_least("information put in, against smaller $k$", stored, before, k=k)
        yield at_most("information put in", stored, maximum, k=k)
        yield at_least("information put in", stored, maximum * (1 - math.log2(k) / k), k=k)
        before = stored


def _bits_given_back():
    """A memory's own account, beside one by exact binomial coefficients."""
    n, r, s = 256, 8, 709  # s = ln 2 n^2 / r^2
    x, y = sparse_patterns(s, n, r), sparse_patterns(s, n, r)
    memory = WillshawMemory(n)
    memory.store(x, y)
    information, active = memory.information(x, y), memory.recall(x).sum(1).tolist()
    gained = [math.log2(math.comb(n, r)) - math.log2(math.comb(k, r)) for k in active]
    yield equals("information given back", information, sum(gained) / n**2, n=n)
    yield at_most("information given back", information, s / sparse_capacity_bound(n, r), n=n)


willshaw_capacity.erratum(
    "B-062",
    printed=r"$\max_qI(\text{patterns})=(\log2)n^2\approx0.693n^2$ in the limit, for $r=\log n$",
    right=r"$\max I=(\ln2)n^2\approx0.693n^2$ bits, for $r=\log_2n$",
    why="notation: one sign log for two bases; the value 0.693 makes the first logarithm natural, "
    r"but the optimum (half of the entries 1, as the sheet says) needs $r=\log_2n$: with $r=\ln n$ "
    r"reliability gives $p=1/e$ and $I=\ln p\ln(1-p)/\ln2=0.662\,n^2$ bits",
    weight="soft",
    refuted_by="information per synapse at $p = 1/b$",
    base=math.e,
)
willshaw_capacity.foil(
    "with both logarithms to base 2 the capacity would be a whole bit", maximum=1.0
)


@claim(
    by="sampling",
    sources=("B-063",),
    budget=0.5,
    short=r"\mathbb{E}\, p = 1 - (1 - r^2 / n^2)^s \to \tfrac12 \text{ for } s = \ln 2\, n^2 / r^2",
)
def willshaw_half_fill(clipped: bool = True, n: int = 256, r: int = 8, s: int = 709):
    r"""At capacity half of Willshaw's matrix is set.

    After $s$ random pairs the expected share of ones in $\Theta$ is exactly
    $1 - (1 - \frac{r^2}{n^2})^s$; at the best load $s = \ln 2\, \frac{n^2}{r^2}$ it tends to
    $\frac12$.

    *Check.* The mean over all sequences of one and two pairs at $n = 4$, $r = 2$; a large memory,
    within the radius $\frac{r^2}{n^2} \sqrt{\frac{s}{2} \ln(2 \cdot 10^7)}$ of McDiarmid's
    inequality (a pair changes at most $r^2$ of $n^2$ entries), exceeded at most once in $10^7$
    runs; and the limit, from which the share is at most $r^2 / n^2$ away.

    Knobs:
        clipped: Whether the entries of the matrix are clipped to 1; else it counts the pairs.
        n: How many units the large memory has.
        r: How many units are active in its patterns.
        s: How many pairs it stores.
    """
    lowest("n", n, r + 1)

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
        yield equals("mean share of ones", memory.load, share(4, 2, length), n=4, s=length)

    memory = WillshawMemory(n)
    memory.store(sparse_patterns(s, n, r), sparse_patterns(s, n, r))
    radius = (r / n) ** 2 * math.sqrt(s / 2 * math.log(2e7))
    off = abs(memory.load - share(n, r, s))
    yield at_most("share of ones, off its mean by", off, radius, n=n, s=s)
    for k in (5, 10, 20, 40):
        q = k * k / 4.0**k
        off = abs(share(2**k, k, math.log(2) / q) - 0.5)
        yield at_most("mean share of ones, off one half by", off, q, n=2**k)


willshaw_half_fill.foil(
    "unclipped, the sums would fill 0.693 of the matrix",
    refuted_by="share of ones, off its mean by",
    clipped=False,
)
