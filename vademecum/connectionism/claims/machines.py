"""What the course claims of McCulloch-Pitts neurons and of Turing's unorganised machines."""

from collections.abc import Callable
from itertools import product
from math import comb, prod

import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals
from vademecum.connectionism.mcculloch_pitts import McCullochPittsNeuron, NormalForm
from vademecum.connectionism.mcculloch_pitts import threshold_dnf as normal_form
from vademecum.connectionism.turing import TuringMachine

Unit = Callable[[Tensor], Tensor]


def all_bits(n: int) -> Tensor:
    """All rows of `n` bits, counted in binary."""
    return torch.tensor(list(product((0, 1), repeat=n)))


def _unit(signs: tuple[int, ...], theta: int, rule: str) -> Unit:
    sigma = torch.tensor(signs)
    if rule == "strict":
        return lambda x: ((x * sigma).sum(-1) > theta).long()
    neuron = McCullochPittsNeuron(sigma, theta)
    if rule == "absolute inhibition":
        return lambda x: neuron(x) * ~((x == 1) & (sigma < 0)).any(-1)
    return neuron


@claim(by="exhaustion", sources=("B-034",), budget=0.8, full={"n_most": 9})
def mcculloch_pitts(rule: str = "threshold", n_most: int = 6):
    r"""A McCulloch-Pitts neuron fires iff enough excitation is left.

    For $x \in \{0, 1\}^n$, signs $\sigma \in \{\pm 1\}^n$ and an integer $\theta$ the neuron is
    $f(x; \sigma, \theta) = 1$ iff $\sum_i \sigma_i x_i \ge \theta$. AND is
    $\sigma = \mathbf{1}, \theta = n$; OR is $\sigma = \mathbf{1}, \theta = 1$; NOT is
    $\sigma = -1, \theta = 0$. On two inputs single units compute exactly 10 of the 16 Boolean
    functions, 14 if a connection may be absent; XOR and XNOR are never among them. Networks of
    units compute every Boolean function.

    *Proof.* XOR would need $\sigma_1 \ge \theta$, $\sigma_2 \ge \theta$, $0 < \theta$ and
    $\sigma_1 + \sigma_2 < \theta$, so $2 \theta \le \sigma_1 + \sigma_2 < \theta < 2 \theta$. A
    function is the OR of its minterms, and each minterm is a unit. (McCulloch and Pitts, 1943.)
    """
    for n in range(1, n_most + 1):
        x = all_bits(n)
        yield equals(_unit((1,) * n, n, rule)(x), x.prod(1), n=n, gate="AND")
        yield equals(_unit((1,) * n, 1, rule)(x), x.amax(1), n=n, gate="OR")
    yield equals(_unit((-1,), 0, rule)(all_bits(1)), torch.tensor([1, 0]), n=1, gate="NOT")
    for n in range(1, 4):
        for signs, theta in product(product((-1, 1), repeat=n), range(-n - 1, n + 2)):
            counted = [_excess(signs, bits) >= theta for bits in product((0, 1), repeat=n)]
            yield equals(_unit(signs, theta, rule)(all_bits(n)), counted, n=n, theta=theta)
    x, tables = all_bits(2), set()
    for columns in ([0, 1], [0], [1]):
        for signs in product((-1, 1), repeat=len(columns)):
            for theta in range(-3, 4):
                tables.add(tuple(_unit(signs, theta, rule)(x[:, columns]).tolist()))
        if columns == [0, 1]:
            yield equals(len(tables), 10, n=2)
    yield equals(len(tables), 14, n=2)
    yield equals(len(tables & {(0, 1, 1, 0), (1, 0, 0, 1)}), 0, n=2)
    x = all_bits(3)
    for table in product((0, 1), repeat=8):
        fires = torch.tensor(table)
        units = NormalForm(x[fires == 1].bool()).neurons() or [McCullochPittsNeuron(x[-1], 4)]
        hidden = torch.stack([unit(x) for unit in units], dim=1)
        yield equals(_unit((1,) * len(units), 1, rule)(hidden), fires, n=3)


def _excess(signs: tuple[int, ...], bits: tuple[int, ...]) -> int:
    active = [sign for sign, bit in zip(signs, bits, strict=True) if bit]
    return active.count(1) - active.count(-1)


mcculloch_pitts.foil("with a strict threshold AND never fires", rule="strict")
mcculloch_pitts.foil(
    "absolute inhibition silences a unit whose excitation suffices", rule="absolute inhibition"
)


@claim(by="exhaustion", sources=("B-035",), budget=1.0, full={"n_most": 7})
def threshold_dnf(literals: str = "all", selection: str = "at least", n_most: int = 5):
    r"""A threshold neuron is the disjunction of its minterms.

    For all $\sigma \in \{\pm 1\}^n$ and integers $\theta$ the neuron $f(x; \sigma, \theta)$ equals

    $$\bigvee_I \Big( \bigwedge_{i \in I} x_i \wedge \bigwedge_{i \notin I} \bar x_i \Big)$$

    over all $I \subseteq \{1, \dots, n\}$ with $\sum_{i \in I} \sigma_i \ge \theta$, and each
    satisfying input is exactly one minterm.

    *Proof.* The minterm of $I$ is true of the indicator of $I$ and of nothing else; there the
    neuron's sum is $\sum_{i \in I} \sigma_i$.
    """
    for n in range(1, n_most + 1):
        x = all_bits(n)
        for signs, theta in product(product((-1, 1), repeat=n), range(-n - 1, n + 2)):
            sigma = torch.tensor(signs)
            form = normal_form(sigma, theta + (selection == "more than"))
            fires = McCullochPittsNeuron(sigma, theta)(x)
            value = form(x) if literals == "all" else _positive(form.minterms, x)
            yield equals(value, fires, n=n, theta=theta)
            yield equals(len(set(form.index_sets())), _satisfying(signs, theta), n=n, theta=theta)


def _positive(minterms: Tensor, x: Tensor) -> Tensor:
    return (minterms <= x[:, None].bool()).all(-1).any(-1).long()


def _satisfying(signs: tuple[int, ...], theta: int) -> int:
    """How many inputs make the neuron fire: choose the active excitatory and inhibitory ones."""
    plus, minus = signs.count(1), signs.count(-1)
    return sum(
        comb(plus, i) * comb(minus, j)
        for i, j in product(range(plus + 1), range(minus + 1))
        if i - j >= theta
    )


threshold_dnf.foil("without its negated literals a minterm is true too often", literals="positive")
threshold_dnf.foil("the strict selection loses minterms", selection="more than")


def _ticks(machine: TuringMachine, states: Tensor, unit: str, clock: str) -> Tensor:
    if (unit, clock) == ("NAND", "common"):
        return machine.step(states)
    states = states.clone()
    seen = states if clock == "one after the other" else states.clone()
    for j, (a, b) in enumerate(machine.sources.tolist()):
        one, two = seen[:, a], seen[:, b]
        states[:, j] = ~(one & two) if unit == "NAND" else ~(one | two)
    return states


@claim(by="exhaustion", sources=("B-036",), budget=0.5, full={"wirings": 200, "n_most": 10})
def turing_a_type(unit: str = "NAND", clock: str = "common", wirings: int = 50, n_most: int = 8):
    r"""A machine of type A computes by NAND alone, and every run becomes periodic.

    In Turing's machine of type A (1948) $N$ two-input units on a common clock compute
    $y(t + 1) = 1 - x_1(t)\, x_2(t)$ from the states of their sources, wired at random. NAND is
    universal: NOT, AND and OR are machines with one or two layers. From each of the $2^N$ states
    the run is periodic within $2^N$ steps: pre-period plus period is at most $2^N$. Two units that
    listen to each other twice have the fixed points $(0, 1)$, $(1, 0)$ and the cycle
    $(0, 0), (1, 1)$.

    *Proof.* Of $2^N + 1$ states in a row two are equal, and the first of them starts the cycle.
    """
    bits = all_bits(2)
    gates = [[0, 0], [1, 1], [0, 1], [0, 0], [1, 1], [2, 2], [3, 4]]
    machine = TuringMachine(torch.tensor(gates))
    start = torch.cat([bits, torch.zeros(4, 5, dtype=torch.long)], 1).bool()
    first = _ticks(machine, start, unit, clock)
    second = _ticks(machine, first, unit, clock)
    yield equals(first[:, 2], 1 - bits.prod(1), gate="NAND")
    yield equals(first[:, 3], 1 - bits[:, 0], gate="NOT")
    yield equals(second[:, 5], bits.prod(1), gate="AND")
    yield equals(second[:, 6], bits.amax(1), gate="OR")
    ring = TuringMachine(torch.tensor([[1, 1], [0, 0]]))
    yield equals(_ticks(ring, bits.bool(), unit, clock), 1 - bits.flip(1), gate="ring")
    yield equals(ring.cycle(bits.bool()).period, torch.tensor([2, 1, 1, 2]), gate="ring")
    for _ in range(wirings):
        n = int(torch.randint(1, n_most + 1, ()))
        machine, states = TuringMachine.random(n), all_bits(n).bool()
        codes = states.long() @ (1 << torch.arange(n))
        successor = _successors(machine.sources.tolist())
        after = _ticks(machine, states, unit, clock).long() @ (1 << torch.arange(n))
        yield equals(after, torch.tensor(successor)[codes], N=n)
        preperiod, period, _ = machine.cycle(states)
        walked = torch.tensor([_walk(successor, code) for code in codes.tolist()])
        yield equals(torch.stack([preperiod, period], 1), walked, N=n)
        yield at_most(preperiod + period, 2**n, N=n)


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
    "without a common clock the ring goes from (0, 0) to a fixed point", clock="one after the other"
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


@claim(by="exhaustion", sources=("B-037", "B-038"), budget=0.5, full={"n_most": 9})
def turing_b_type(switch: str = "NAND of NAND", n_most: int = 6):
    r"""A machine of type B has a switch on each connection, and the switches select the wiring.

    The switch $A(c, x) = \mathrm{NAND}(c, \mathrm{NAND}(x, x)) = \bar c \vee x$ passes the signal
    for $c = 1$ and for $c = 0$ gives 1, the neutral input of a NAND. Hence
    $\mathrm{NAND}(A(c, x_1), x_2, \dots, x_n)$ is $\mathrm{NAND}(x_1, \dots, x_n)$ for $c = 1$ and
    $\mathrm{NAND}(x_2, \dots, x_n)$ for $c = 0$. With a switch on every input the $2^n$ settings
    give the NANDs of the $2^n$ subsets of the inputs, the empty one constantly 0. To set the
    switches is a discrete form of training: education finds the setting for each of these NANDs.

    *Proof.* $\mathrm{NAND}(c, \bar x) = 1 - c (1 - x)$, which is $x$ or 1.
    """
    pairs = all_bits(2)
    c, x = pairs.T
    signal = 1 - _switched(all_bits(1), all_bits(1), switch).flatten()
    yield equals(signal, torch.tensor([1, 1, 0, 1]), n=1)
    yield equals(signal, 1 - c * (1 - x * x), n=1)
    for n in range(2, n_most + 1):
        x = all_bits(n)
        one = torch.ones(2, n, dtype=torch.long)
        one[0, 0] = 0
        wanted = torch.stack([1 - x[:, 1:].prod(1), 1 - x.prod(1)])
        yield equals(_switched(x, one, switch), wanted, n=n)
        subsets = [
            [1 - prod(b for b, on in zip(row, s, strict=True) if on) for row in x.tolist()]
            for s in product((0, 1), repeat=n)
        ]
        found = _switched(x, all_bits(n), switch)
        yield equals(found, subsets, n=n)
        yield equals(len({tuple(row) for row in found.tolist()}), 2**n, n=n)
    sources = torch.tensor([[1, 2], [1, 2], [1, 2]])
    machine, x = TuringMachine(sources, torch.zeros(3, 2, dtype=torch.bool)), all_bits(2)
    for setting in product((0, 1), repeat=2):
        wanted = _switched(x, torch.tensor([setting]), switch).T.bool()
        found = machine.educate(x.bool(), wanted, inputs=[1, 2], outputs=[0], steps=1)
        yield equals(found.mismatches, 0, n=2)
        yield equals(found.switches[0], setting, n=2)


turing_b_type.foil("an AND switch cuts to 0, which forces the unit to 1", switch="AND")
turing_b_type.foil("exchanged, c = 0 keeps the input", switch="exchanged")
