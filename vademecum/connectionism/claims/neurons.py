"""McCulloch-Pitts neurons: logic by thresholds."""

from collections.abc import Callable
from itertools import product
from math import comb
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import claim, equals
from vademecum.connectionism import McCullochPittsNeuron, NormalForm
from vademecum.connectionism import threshold_dnf as normal_form

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


@claim(
    by="identity",
    sources=("B-034",),
    budget=0.8,
    full={"n_most": 9},
    short=r"f(x; \sigma, \theta) = 1 \iff \textstyle\sum_i \sigma_i x_i \ge \theta",
)
def mcculloch_pitts(
    rule: Literal["threshold", "strict", "absolute inhibition"] = "threshold", n_most: int = 6
):
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

    *Check.* Exhaustive where it is finite: AND and OR of up to 6 inputs, all signs, thresholds and
    inputs of up to 3, all units of 2 inputs and all 256 functions of 3. The proof does the rest.

    Knobs:
        rule: When a unit fires: at the threshold, only beyond it, or at the threshold if no
            inhibitory input is active.
        n_most: Up to how many inputs AND and OR are tried.
    """
    for n in range(1, n_most + 1):
        x = all_bits(n)
        yield equals("AND", _unit((1,) * n, n, rule)(x), x.prod(1), n=n)
        yield equals("OR", _unit((1,) * n, 1, rule)(x), x.amax(1), n=n)
    yield equals("NOT", _unit((-1,), 0, rule)(all_bits(1)), torch.tensor([1, 0]))
    for n in range(1, 4):
        for signs, theta in product(product((-1, 1), repeat=n), range(-n - 1, n + 2)):
            counted = [_excess(signs, bits) >= theta for bits in product((0, 1), repeat=n)]
            fired = _unit(signs, theta, rule)(all_bits(n))
            yield equals("whether a unit fires", fired, counted, n=n, theta=theta)
    x, tables = all_bits(2), set()
    for columns in ([0, 1], [0], [1]):
        for signs in product((-1, 1), repeat=len(columns)):
            for theta in range(-3, 4):
                tables.add(tuple(_unit(signs, theta, rule)(x[:, columns]).tolist()))
        if columns == [0, 1]:
            yield equals("functions of two inputs", len(tables), 10)
    yield equals("functions of two inputs, or fewer", len(tables), 14)
    both = len(tables & {(0, 1, 1, 0), (1, 0, 0, 1)})
    yield equals("of XOR and XNOR, how many a unit computes", both, 0)
    x = all_bits(3)
    hidden = torch.stack([unit(x) for unit in NormalForm(x.bool()).neurons()], dim=1)
    for table in product((0, 1), repeat=8):
        fires = torch.tensor(table)
        chosen = hidden[:, fires == 1] if any(table) else torch.zeros_like(hidden[:, :1])
        answer = _unit((1,) * chosen.shape[1], 1, rule)(chosen)
        yield equals("answer of a network of minterms", answer, fires, n=3)


def _excess(signs: tuple[int, ...], bits: tuple[int, ...]) -> int:
    active = [sign for sign, bit in zip(signs, bits, strict=True) if bit]
    return active.count(1) - active.count(-1)


mcculloch_pitts.foil("with a strict threshold AND never fires", rule="strict")
mcculloch_pitts.foil(
    "absolute inhibition silences a unit whose excitation suffices", rule="absolute inhibition"
)


@claim(
    by="identity",
    sources=("B-035",),
    budget=1.0,
    full={"n_most": 7},
    short=r"f(x) = \bigvee_{\sum_I \sigma_i \ge \theta} \Big( \bigwedge_{i \in I} x_i \wedge"
    r" \bigwedge_{i \notin I} \bar x_i \Big)",
)
def threshold_dnf(
    literals: Literal["all", "positive"] = "all",
    selection: Literal["at least", "more than"] = "at least",
    n_most: int = 5,
):
    r"""A threshold neuron is the disjunction of its minterms.

    For all $\sigma \in \{\pm 1\}^n$ and integers $\theta$ the neuron $f(x; \sigma, \theta)$ equals

    $$\bigvee_I \Big( \bigwedge_{i \in I} x_i \wedge \bigwedge_{i \notin I} \bar x_i \Big)$$

    over all $I \subseteq \{1, \dots, n\}$ with $\sum_{i \in I} \sigma_i \ge \theta$, and each
    satisfying input is exactly one minterm.

    *Proof.* The minterm of $I$ is true of the indicator of $I$ and of nothing else; there the
    neuron's sum is $\sum_{i \in I} \sigma_i$.

    *Check.* All signs, all thresholds that make a difference and all inputs for $n \le 5$; the
    proof does the rest.

    Knobs:
        literals: Whether a minterm has all its literals, or only those that are not negated.
        selection: Whether the sets $I$ are those that reach the threshold, or those beyond it.
        n_most: Up to how many inputs the formula is tried.
    """
    for n in range(1, n_most + 1):
        x = all_bits(n)
        for signs in product((-1, 1), repeat=n):
            sigma, thetas = torch.tensor(signs), range(-n - 1, n + 2)
            forms = [normal_form(sigma, theta + (selection == "more than")) for theta in thetas]
            fires = torch.stack([McCullochPittsNeuron(sigma, theta)(x) for theta in thetas])
            values = [f(x) if literals == "all" else _positive(f.minterms, x) for f in forms]
            yield equals("value of the formula", torch.stack(values), fires, n=n)
            inputs = [_satisfying(signs, theta) for theta in thetas]
            yield equals(
                "number of minterms", [len(set(f.index_sets())) for f in forms], inputs, n=n
            )
            yield equals("inputs that make the neuron fire", fires.sum(1), inputs, n=n)


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
