"""What the course claims of the number of patterns that a Hopfield network can hold."""

import math

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.connectionism.hopfield import HopfieldNetwork
from vademecum.connectionism.hopfield.capacity import capacity_curve
from vademecum.connectionism.hopfield.capacity import hopfield_capacity as mean_field_capacity


@claim(
    by="sampling",
    sources=("B-070", "C-025"),
    budget=2.0,
    full={"n": 4000, "loads": (0.05, 0.1, 0.2, 0.25), "trials": 3},
)
def hopfield_capacity(
    capacity: float = 0.1379,
    second: float = 1.0,
    n: int = 1000,
    loads: tuple[float, ...] = (0.05, 0.25),
    trials: int = 2,
):
    r"""Capacity of Hebbian Hopfield networks.

    With Hebbian couplings random patterns are retrieved (with a small share of wrong bits) up to a
    load $s/n \le \alpha^* \approx 0.138$ as $n \to \infty$: in the replica-symmetric mean-field
    theory at zero temperature

    $$\alpha^* = \max_{y > 0} \frac12 \Big( \frac{\mathrm{erf}(y)}{y} - \frac{2}{\sqrt\pi} e^{-y^2}
    \Big)^2 = 0.1379,$$

    with overlap $m = \mathrm{erf}(y) = 0.967$ there. Beyond it retrieval collapses.

    *Check.* The maximum on a grid of step $10^{-4}$ (so that its error is some $10^{-9}$). Stored
    patterns as starts of asynchronous retrieval: their mean overlap with where it ends is above
    0.99 below capacity (1.000 at load 0.05) and below 0.7 beyond ($0.33 \pm 0.02$ at load 0.25,
    over networks of 1000 units with 20 starts each). (Amit, Gutfreund, Sompolinsky, 1985.)
    """
    y = torch.arange(1, 60_000) * 1e-4
    root = torch.erf(y) / y - second * 2 / math.sqrt(math.pi) * torch.exp(-(y**2))
    load, overlap = mean_field_capacity()
    yield equals(load, float(0.5 * root.max() ** 2), tol=1e-8)
    yield equals(overlap, float(torch.erf(y[root.argmax()])), tol=1e-4)
    yield equals(load, 0.1379, tol=5e-5)
    yield equals(overlap, 0.967, tol=5e-4)
    curve = capacity_curve(n, loads, trials=trials)
    for load, mean in zip(loads, curve.mean.tolist(), strict=True):
        yield at_least(mean, 0.99, load=load) if load < capacity else at_most(mean, 0.7, load=load)


hopfield_capacity.foil("Hebb's rule does not hold n / 2 patterns", capacity=0.5)
hopfield_capacity.foil("without its second term the supremum of the formula is 0.637", second=0.0)


def unit_can_store(patterns: Tensor) -> bool:
    """Whether some couplings of the first unit give it the right sign in all patterns."""
    z = (patterns[:, :1] * patterns[:, 1:]).double().numpy()
    s, d = z.shape
    widest = linprog(
        np.r_[np.zeros(d), -1.0],
        A_ub=np.c_[-z, np.ones(s)],
        b_ub=np.zeros(s),
        bounds=[(-1, 1)] * d + [(None, 1)],
    )
    return bool((z @ widest.x[:d] > 1e-9).all())


@claim(by="sampling", sources=("B-071",), budget=2.0, full={"n": 60, "trials": 100})
def hopfield_optimal_capacity(
    limit: float = 2.0, n: int = 40, trials: int = 40, loads: tuple[float, ...] = (1.0, 1.5, 2.5)
):
    r"""Capacity with optimal couplings is two patterns per unit.

    If each unit's incoming couplings are chosen freely (a perceptron problem per unit, symmetry not
    enforced), random patterns can be made fixed points up to $s/n \to 2$, by Cover's count: a unit
    can store its $s$ signs with probability $C(s, n-1) / 2^s$ for patterns in general position, and
    at most this for any.

    *Check.* Linear programmes for the first of $n = 40$ units. With $s = 60$ the probability is
    0.991 in general position. Random signs are not quite: 1482 of 1500 sets could be stored, so it
    is above 0.974 (by five standard errors), and more than 10 failures in 40 trials have a
    probability below $10^{-8}$. With $s = 100$ it is at most 0.0133, and more than 10 successes
    have one below $10^{-11}$. Below capacity the perceptron rule of
    `HopfieldNetwork` finds such couplings for all units at load 1; what it calls stored are fixed
    points, and its first unit never stores what the programme calls impossible. (Cover, 1965;
    Gardner, 1988.)
    """
    for load in loads:
        sets = [2 * torch.randint(2, (round(load * n), n)) - 1 for _ in range(trials)]
        possible = [unit_can_store(patterns) for patterns in sets]
        if load < limit:
            yield at_least(sum(possible), 3 * trials // 4, load=load)
        else:
            yield at_most(sum(possible), trials // 4, load=load)
        for patterns, can in zip(sets[:3], possible, strict=False):
            epochs = 100_000 if load <= 1 else 50  # of which at load 1 a few hundred are needed
            net = HopfieldNetwork(patterns, rule="perceptron", max_iter=epochs)
            aligned = patterns * net.fields(patterns)
            yield equals((aligned > 0).all(1), net.stored, load=load)
            yield at_most((aligned[:, 0] > 0).all(), int(can), load=load)
            if load <= 1:
                yield equals(net.stored, 1, load=load)


hopfield_optimal_capacity.foil("Hebb's limit is not that of optimal couplings", limit=0.138)
hopfield_optimal_capacity.foil("nor is it one pattern per unit", limit=1.0)
