"""Turing's unorganised machines: networks of NAND gates that can be taught."""

from itertools import product
from math import prod
from typing import Literal

import torch
from scipy.stats import chisquare
from torch import Tensor

from vademecum.claims import at_most, claim, consistent, equals
from vademecum.connectionism import TuringMachine
from vademecum.connectionism.claims.neurons import all_bits


def _ticks(machine: TuringMachine, states: Tensor, unit: str, clock: str) -> Tensor:
    if (unit, clock) == ("NAND", "common"):
        return machine.step(states)
    states = states.clone()
    seen = states if clock == "one after the other" else states.clone()
    for j, (a, b) in enumerate(machine.sources.tolist()):
        one, two = seen[:, a], seen[:, b]
        states[:, j] = ~(one & two) if unit == "NAND" else ~(one | two)
    return states


@claim(
    by="sampling",
    sources=("B-036",),
    budget=0.5,
    full={"wirings": 200, "n_most": 10},
    short=r"y(t + 1) = 1 - x_1(t)\, x_2(t); \ \text{pre-period} + \text{period} \le 2^N",
)
def turing_a_type(
    unit: Literal["NAND", "NOR"] = "NAND",
    clock: Literal["common", "one after the other"] = "common",
    wirings: int = 40,
    n_most: int = 8,
):
    r"""A machine of type A computes by NAND alone, and every run becomes periodic.

    In Turing's machine of type A (1948) $N$ two-input units on a common clock compute
    $y(t + 1) = 1 - x_1(t)\, x_2(t)$ from the states of their sources, wired at random. NAND is
    universal: NOT, AND and OR are machines with one or two layers. From each of the $2^N$ states
    the run is periodic within $2^N$ steps: pre-period plus period is at most $2^N$. Two units that
    listen to each other twice have the fixed points $(0, 1)$, $(1, 0)$ and the cycle
    $(0, 0), (1, 1)$.

    *Proof.* Of $2^N + 1$ states in a row two are equal, and the first of them starts the cycle.

    *Check.* All states of every machine with two units and of random ones with up to 8, against
    tables of successors that are followed until a state returns. The gates by enumeration. The
    random wiring is uniform, by a test that fails once in $10^7$ runs.

    Knobs:
        unit: What a unit computes of the states of its sources.
        clock: Whether all units answer at once, or one after the other.
        wirings: How many machines are drawn.
        n_most: How many units a machine has at most.
    """
    bits = all_bits(2)
    gates = [[0, 0], [1, 1], [0, 1], [0, 0], [1, 1], [2, 2], [3, 4]]
    machine = TuringMachine(torch.tensor(gates))
    start = torch.cat([bits, torch.zeros(4, 5, dtype=torch.long)], 1).bool()
    first = _ticks(machine, start, unit, clock)
    second = _ticks(machine, first, unit, clock)
    yield equals("NAND", first[:, 2], 1 - bits.prod(1))
    yield equals("NOT", first[:, 3], 1 - bits[:, 0])
    yield equals("AND", second[:, 5], bits.prod(1))
    yield equals("OR", second[:, 6], bits.amax(1))
    ring = TuringMachine(torch.tensor([[1, 1], [0, 0]]))
    after = _ticks(ring, bits.bool(), unit, clock)
    yield equals("ring of two, a tick later", after, 1 - bits.flip(1))
    yield equals("periods of a ring of two", ring.cycle(bits.bool()).period, [2, 1, 1, 2])
    pairs = list(product(range(2), repeat=2))
    machines = [TuringMachine(torch.tensor(both)) for both in product(pairs, repeat=2)]
    machines += [TuringMachine.random(n) for n in torch.randint(1, n_most + 1, (wirings,)).tolist()]
    for machine in machines:
        n = len(machine.sources)
        states = all_bits(n).bool()
        codes = states.long() @ (1 << torch.arange(n))
        successor = _successors(machine.sources.tolist())
        after = _ticks(machine, states, unit, clock).long() @ (1 << torch.arange(n))
        yield equals("state a tick later, as a number", after, torch.tensor(successor)[codes], N=n)
        found = machine.cycle(states)
        preperiod, period = found.preperiod, found.period
        walked = torch.tensor([_walk(successor, code) for code in codes.tolist()])
        yield equals("pre-period and period", torch.stack([preperiod, period], 1), walked, N=n)
        yield at_most("pre-period plus period", preperiod + period, 2**n, N=n)
    drawn = TuringMachine.random(5, inputs=800).sources
    p = float(chisquare(torch.bincount(drawn.flatten(), minlength=5).numpy()).pvalue)
    yield consistent("p-value of uniform sources", p, alpha=1e-7, N=5)


def _successors(sources: list[list[int]]) -> list[int]:
    """The state after each state, both as numbers whose bit j is the state of unit j."""
    return [
        sum((1 - (s >> a & 1) * (s >> b & 1)) << j for j, (a, b) in enumerate(sources))
        for s in range(2 ** len(sources))
    ]


def _walk(successor: list[int], state: int) -> tuple[int, int]:
    """Pre-period and period, by remembering when each state was visited."""
    visited: dict[int, int] = {}
    while state not in visited:
        visited[state] = len(visited)
        state = successor[state]
    return visited[state], len(visited) - visited[state]


turing_a_type.foil("a NOR unit differs from a NAND at (0, 1)", unit="NOR")
turing_a_type.foil(
    "without a common clock the ring goes from (0, 0) to a fixed point",
    refuted_by="ring of two, a tick later",
    clock="one after the other",
)


def _switched(x: Tensor, c: Tensor, switch: str) -> Tensor:
    """The answer of one unit with a switch on each input, for all settings and all inputs."""
    n = x.shape[1]
    states = torch.cat([torch.zeros(len(x), 1, dtype=torch.bool), x.bool()], 1)
    sources = torch.arange(1, n + 1).repeat(n + 1, 1)
    answers = []
    for setting in c.bool():
        if switch == "AND":
            answers.append(~(setting & x.bool()).all(1))
            continue
        switches = (~setting if switch == "exchanged" else setting).repeat(n + 1, 1)
        answers.append(TuringMachine(sources, switches).step(states)[:, 0])
    return torch.stack(answers).long()


@claim(
    by="identity",
    sources=("B-037", "B-038"),
    budget=0.5,
    full={"n_most": 9},
    short=r"\mathrm{NAND}(A(c, x_1), x_2, \dots) = \mathrm{NAND}(x_1, x_2, \dots)"
    r"\text{ or } \mathrm{NAND}(x_2, \dots)",
)
def turing_b_type(
    switch: Literal["NAND of NAND", "AND", "exchanged"] = "NAND of NAND", n_most: int = 6
):
    r"""A machine of type B has a switch on each connection, and the switches select the wiring.

    The switch $A(c, x) = \mathrm{NAND}(c, \mathrm{NAND}(x, x)) = \bar c \vee x$ passes the signal
    for $c = 1$ and for $c = 0$ gives 1, the neutral input of a NAND. Hence
    $\mathrm{NAND}(A(c, x_1), x_2, \dots, x_n)$ is $\mathrm{NAND}(x_1, \dots, x_n)$ for $c = 1$ and
    $\mathrm{NAND}(x_2, \dots, x_n)$ for $c = 0$. With a switch on every input the $2^n$ settings
    give the NANDs of the $2^n$ subsets of the inputs, the empty one constantly 0. To set the
    switches is a discrete form of training: education finds the setting for each of these NANDs.

    *Proof.* $\mathrm{NAND}(c, \bar x) = 1 - c (1 - x)$, which is $x$ or 1.

    *Check.* All settings of the switches and all inputs for $n \le 6$; education for two inputs.

    Knobs:
        switch: What is built into each connection: the switch of two NANDs, $c \wedge x$, or the
            switch with its two positions exchanged.
        n_most: Up to how many inputs a unit is tried.
    """
    pairs = all_bits(2)
    c, x = pairs.T
    signal = 1 - _switched(all_bits(1), all_bits(1), switch).flatten()
    yield equals("signal behind a switch", signal, torch.tensor([1, 1, 0, 1]))
    yield equals("signal, against two NANDs", signal, 1 - c * (1 - x * x))
    for n in range(2, n_most + 1):
        x = all_bits(n)
        one = torch.ones(2, n, dtype=torch.long)
        one[0, 0] = 0
        wanted = torch.stack([1 - x[:, 1:].prod(1), 1 - x.prod(1)])
        yield equals("unit with one switch", _switched(x, one, switch), wanted, n=n)
        subsets = [
            [1 - prod(b for b, on in zip(row, s, strict=True) if on) for row in x.tolist()]
            for s in product((0, 1), repeat=n)
        ]
        found = _switched(x, all_bits(n), switch)
        yield equals("unit with a switch on every input", found, subsets, n=n)
        different = len({tuple(row) for row in found.tolist()})
        yield equals("functions that the switches select", different, 2**n, n=n)
    sources = torch.tensor([[1, 2], [1, 2], [1, 2]])
    machine, x = TuringMachine(sources, torch.zeros(3, 2, dtype=torch.bool)), all_bits(2)
    for setting in product((0, 1), repeat=2):
        of_subset = [
            1 - prod(b for b, on in zip(r, setting, strict=True) if on) for r in x.tolist()
        ]
        wanted = torch.tensor(of_subset).bool()[:, None]
        found = machine.educate(x.bool(), wanted, inputs=[1, 2], outputs=[0], steps=1)
        yield equals("bits that education gets wrong", found.mismatches, 0, n=2)
        yield equals("switches that education finds", found.switches[0], setting, n=2)
        yield equals("settings that were looked at", found.n_iter, 2**6, n=2)
    yield from _annealed()


def _annealed(n: int = 10):
    """Education of more switches than can all be tried, for what some of them can do."""
    sources, switches = torch.randint(n, (n, 2)), torch.rand(n, 2) < 0.5
    machine = TuringMachine(sources, switches)
    x = all_bits(3).bool()

    def answers(switches: Tensor, steps: int = 3) -> Tensor:
        states = torch.zeros(len(x), n, dtype=torch.bool)
        for _ in range(steps):
            states[:, :3] = x
            signals = [states[:, sources[:, i]] | ~switches[:, i] for i in range(2)]
            states = ~(signals[0] & signals[1])
        states[:, :3] = x
        return states[:, 3:]

    wanted, outputs = answers(switches), list(range(3, n))
    for most in (256, 4096):
        found = machine.educate(
            x, wanted, inputs=[0, 1, 2], outputs=outputs, steps=3, max_iter=most
        )
        wrong = int((answers(found.switches) != wanted).sum())
        yield equals("bits that annealing gets wrong", found.mismatches, wrong, most=most)
        yield equals("whether it ended by itself", found.converged, wrong == 0, most=most)
        yield at_most("settings that annealing looks at", found.n_iter, most, most=most)


turing_b_type.foil("an AND switch cuts to 0, which forces the unit to 1", switch="AND")
turing_b_type.foil("exchanged, c = 0 keeps the input", switch="exchanged")
