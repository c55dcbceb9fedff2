"""Hopfield networks: patterns as fixed points."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import claim, equals
from vademecum.connectionism import HopfieldNetwork, Retrieval, overlap


def all_states(n: int) -> Tensor:
    """The $2^n$ states, as rows of integers."""
    return 2 * (torch.arange(2**n)[:, None] >> torch.arange(n) & 1) - 1


def settled(
    net: HopfieldNetwork, states: Tensor, sweeps: int, mode: str = "asynchronous"
) -> Retrieval:
    """The dynamics until they repeat themselves, with all energies on the way."""
    return net.retrieve(states, mode=mode, max_iter=sweeps, trajectory=True)


def hadamard(n: int) -> Tensor:
    """A Hadamard matrix, whose rows are orthogonal; for powers of two."""
    i = torch.arange(n)
    common = i[:, None] & i
    parity = sum((common >> bit & 1) for bit in range(max(1, n.bit_length())))
    return 1 - 2 * (torch.as_tensor(parity) % 2)


def anti_hebbian(patterns: Tensor) -> HopfieldNetwork:
    """A network with the couplings $-W$."""
    return HopfieldNetwork(weights=-HopfieldNetwork(patterns).weights)


@claim(
    by="sampling",
    sources=("B-064", "B-065", "C-021", "C-025", "E-072"),
    budget=0.5,
    full={"n": 4000, "s": 20, "flips": 400},
    short=r"\text{Hebbian } w,\ s \ll 0.138\, n:\ X_i \leftarrow"
    r" \operatorname{sign} \sum_j w_{ij} X_j \text{ restores } x^t",
)
def hopfield_network(
    couple: Callable[[Tensor], HopfieldNetwork] = HopfieldNetwork,
    n: int = 400,
    s: int = 5,
    flips: int = 40,
):
    r"""A Hopfield network is an associative memory.

    Units $X_i \in \{-1, +1\}$ have symmetric couplings $w_{ij} = w_{ji}$, $w_{ii} = 0$, and one at
    a time do $X_i \leftarrow \mathrm{sign}(\sum_j w_{ij} X_j - b_i)$. With Hebbian couplings and
    $b = 0$ the $s$ stored patterns $x^t \in \{\pm1\}^n$ become attractors when $s \ll 0.138 n$:
    from a corrupted pattern the dynamics return to the stored one. Pairwise orthogonal patterns are
    fixed points for sure.

    *Check.* With $k$ bits of random patterns flipped, one asynchronous sweep restores them all. As
    long as all goes well, the state when a unit is visited is fixed by the start and the order, its
    signal is at least $n - 2k - 1$, and its crosstalk is a sum of $(s-1)(n-1)$ independent signs;
    by Hoeffding and a union over units and starts the check fails with a probability of at most
    $s n \exp(-\frac{(n - 2k - 1)^2}{2 (s-1) (n-1)}) < 10^{-10}$. (Hopfield, 1982.)

    Knobs:
        couple: What makes a network of the patterns.
        n: How many units there are.
        s: How many random patterns are stored.
        flips: How many bits of each are flipped at the start.
    """
    patterns = 2 * torch.randint(2, (s, n)) - 1
    wrong = torch.rand(s, n).argsort(1) < flips
    net = couple(patterns)
    end = net.step(torch.where(wrong, -patterns, patterns))
    target = patterns.double()
    yield equals("states after one sweep", end, target, tol=0.0, n=n, s=s)
    yield equals("stored patterns, a sweep later", net.step(patterns), target, tol=0.0, n=n, s=s)

    orthogonal = hadamard(8)[:3]
    end = couple(orthogonal).retrieve(orthogonal)
    target = orthogonal.double()
    yield equals("retrieval of orthogonal patterns", end.states, target, tol=0.0, n=8, s=3)
    yield equals("period at orthogonal patterns", end.period, 1, n=8, s=3)


hopfield_network.foil("with anti-Hebbian couplings the patterns are unstable", couple=anti_hebbian)
hopfield_network.foil("far above capacity patterns are lost", s=400)


@claim(
    by="identity",
    sources=("B-064", "C-024", "C-026", "C-027", "E-074"),
    budget=0.5,
    short=r"W = \tfrac1n \textstyle\sum_t x^t (x^t)^\top - \tfrac{s}{n} I,"
    r"\quad w_{ij} = \tfrac1n \sum_t x_i^t x_j^t,\ w_{ii} = 0",
)
def hopfield_hebbian_weights(
    removed: float = 1.0,
    over: Literal["patterns", "units"] = "patterns",
    sizes: tuple[tuple[int, int], ...] = ((2, 1), (4, 1), (6, 4), (8, 5), (5, 9)),
):
    r"""Hebbian couplings of a Hopfield network.

    $w_{ij} = \frac1n \sum_{t=1}^s x_i^t x_j^t$ for $i \ne j$ and $w_{ii} = 0$. In matrix form

    $$W = \frac1n \sum_t x^t (x^t)^\top - \frac sn I = \frac1n \Theta, \qquad
    \Theta = \sum_t (x^t (x^t)^\top - I) \in \mathbb{Z}^{n \times n}.$$

    The subtraction matters: since $(x_i^t)^2 = 1$ the outer products put $s/n$ on every diagonal
    entry. Pairwise orthogonal patterns satisfy $W x^t = (1 - \frac sn) x^t$.

    *Check.* The matrix form (in integers) and the couplings of `HopfieldNetwork` against the loop
    over $i$, $j$ and $t$; the fields of rows of a Hadamard matrix.

    Knobs:
        removed: How much of $\frac sn I$ the matrix form takes off.
        over: Whether the outer products are summed over patterns, or over units first.
        sizes: The $(n, s)$ for which random patterns are stored.
    """
    for n, s in sizes:
        patterns = 2 * torch.randint(2, (s, n)) - 1
        rows = patterns.tolist()
        loop = [
            [sum(x[i] * x[j] for x in rows) if i != j else 0 for j in range(n)] for i in range(n)
        ]
        outer = patterns.T @ patterns if over == "patterns" else patterns.sum(1) @ patterns
        theta = outer - removed * s * torch.eye(n)
        at = {"n": n, "s": s}
        yield equals("diagonal of the matrix form", theta.diagonal() / n, 0.0, tol=0.0, **at)
        by_loop = torch.tensor(loop).double()
        yield equals("$n W$ by the matrix form", theta, by_loop, tol=0.0, **at)
        net = HopfieldNetwork(patterns)
        yield equals("$n W$ of the network", n * net.weights, by_loop, **at)
        yield equals("diagonal of the network's $W$", net.weights.diagonal(), 0.0, tol=0.0, **at)
    for s in range(1, 9):
        patterns = hadamard(8)[torch.randperm(8)[:s]]
        fields = HopfieldNetwork(patterns).fields(patterns)
        yield equals("fields of orthogonal patterns", fields, (1 - s / 8) * patterns, n=8, s=s)


hopfield_hebbian_weights.erratum(
    "C-027",
    printed=r"$W=\frac{1}{n}\sum_{t=1}^sx^t(x^t)^\top$",
    right=r"$W=\frac{1}{n}\sum_{t=1}^sx^t(x^t)^\top-\frac{s}{n}I$",
    why=r"inconsistent with $w_{ii}=0$, which the line above it demands: every diagonal entry is "
    r"$s/n$ (for $n=2$, $s=1$, $x=(1,1)$ it is $\frac12$); harmless in the sheet's energy, which "
    r"sums over $i\ne j$ only",
    weight="soft",
    refuted_by="diagonal of the matrix form",
    removed=0.0,
)
hopfield_hebbian_weights.foil(
    "the sum is over patterns, not over units", refuted_by="$n W$ by the matrix form", over="units"
)


@claim(
    by="identity",
    sources=("B-068",),
    budget=1.0,
    short=r"\Theta = x x^\top - I,\ x \cdot \hat x = n - 2k:\ x_i (\Theta"
    r" \hat x)_i = n - 2k \pm 1,\ + \text{ on flipped bits}",
)
def hopfield_overlap(
    step: int = 2, removed: int = 1, sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)
):
    r"""Overlap, Hamming distance and aligned fields.

    For $x, \hat x \in \{\pm1\}^n$ at Hamming distance $k$, $x \cdot \hat x = n - 2k$. In a network
    that stores the single pattern $x$ ($\Theta = x x^\top - I$) the aligned field
    $x_i (\Theta \hat x)_i$ is $n - 2k - 1$ on uncorrupted bits and $n - 2k + 1$ on corrupted ones,
    so the worst case is $x \cdot \hat x - 1$.

    *Check.* All pairs of states for $n \le 7$.

    Knobs:
        step: By how much each flipped bit is said to lower $x \cdot \hat x$.
        removed: What removing the diagonal is said to change in an aligned field.
        sizes: The numbers $n$ of units.
    """
    for n in sizes:
        states = all_states(n)
        for x in states:
            corrupted = states != x
            k = corrupted.sum(1)
            measured = n * overlap(states, x.expand_as(states))
            yield equals(r"overlap $x \cdot \hat x$", measured, n - step * k, n=n)
            aligned = n * x * HopfieldNetwork(x[None]).fields(states)
            own = torch.where(corrupted, removed, -removed)
            yield equals("aligned fields", aligned, (n - 2 * k)[:, None] + own, n=n)
            worst = torch.where(corrupted, n + 1.0, aligned).amin(1)[k < n]
            least = (n - 2 * k - removed)[k < n]
            yield equals("least aligned field of an uncorrupted bit", worst, least, n=n)


hopfield_overlap.foil("each flipped bit costs two", step=1)
hopfield_overlap.foil("the removed diagonal counts", removed=0)


@claim(
    by="identity",
    sources=("B-069",),
    budget=0.8,
    full={"sizes": (3, 4, 5, 6, 7, 8)},
    short=r"\Theta = x x^\top - I:\ |x \cdot \hat x| > 1"
    r" \implies \hat x \mapsto \operatorname{sign}(x \cdot \hat x)\, x",
)
def hopfield_single_pattern(
    least: int = 2, attractors: int = 2, sizes: tuple[int, ...] = (3, 4, 5)
):
    r"""One stored pattern has two attractors.

    With $\Theta = x x^\top - I$ every state with overlap $x \cdot \hat x > 1$ (fewer than about
    $n/2$ flips) is mapped to $x$ in one synchronous sweep, and every state with overlap below $-1$
    to $-x$: the negative of a stored pattern is an attractor too. Overlaps of $\pm1$ leave ties, on
    the uncorrupted (corrupted) bits; at overlap 0 all units flip.

    *Check.* All patterns and all states for $n = 3, 4, 5$, for each of three ways to decide a tie:
    as the fields are integers, a bias of $\pm\frac12$ sends ties to $\pm1$, and none keeps the
    state.

    Knobs:
        least: The least $|x \cdot \hat x|$ from which one sweep is to suffice.
        attractors: How many attractors there are said to be, $x$ alone or $x$ and $-x$.
        sizes: The numbers $n$ of units.
    """
    for n in sizes:
        states = all_states(n)
        for x in states:
            product = states @ x
            sides = product.sign() if attractors == 2 else torch.ones_like(product)
            clear = product.abs() >= least
            target = (sides[:, None] * x)[clear].double()
            for tie in (-0.5, 0.0, 0.5):
                net = HopfieldNetwork(x[None], theta=torch.full((n,), tie / n))
                end = net.step(states[clear], mode="synchronous")
                yield equals("states after one sweep", end, target, tol=0.0, n=n, tie=tie)
            fields = n * HopfieldNetwork(x[None]).fields(states)
            for side in (1, -1):
                tied = (product == side)[:, None] & (states == side * x)
                ties = torch.where(tied, fields, 0.0)
                yield equals("fields at ties", ties, 0.0, tol=0.0, n=n, overlap=side)
            balanced = torch.where((product == 0)[:, None], states * fields, -1.0)
            yield equals("states times fields at overlap 0", balanced, -1.0, n=n)


hopfield_single_pattern.foil("the negative is an attractor too", attractors=1)
hopfield_single_pattern.foil("at overlap 1 the uncorrupted bits are ties", least=1)
