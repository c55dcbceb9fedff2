"""The capacity of a Hopfield network: how many patterns it can hold."""

import math
import warnings

import numpy as np
import scipy.stats
import torch
from scipy.optimize import linprog
from scipy.special import erfinv
from scipy.stats import binomtest
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, consistent, equals, lowest
from vademecum.connectionism import (
    CapacityCurve,
    HopfieldNetwork,
    capacity_curve,
    mean_field_overlap,
    separable_probability,
)
from vademecum.connectionism import hopfield_capacity as mean_field_capacity


@claim(
    by="sampling",
    sources=("B-070", "C-025"),
    budget=1.0,
    full={"n": 4000, "loads": (0.05, 0.1, 0.2, 0.25), "trials": 3},
    short=r"\alpha^* = \max_y \tfrac12 \big(\mathrm{erf}(y) / y"
    r" - \tfrac{2}{\sqrt\pi} e^{-y^2}\big)^2 = 0.1379",
)
def hopfield_capacity(
    capacity: float = 0.1379,
    second: float = 1.0,
    n: int = 600,
    loads: tuple[float, ...] = (0.05, 0.3),
    trials: int = 2,
):
    r"""Capacity of Hebbian Hopfield networks.

    With Hebbian couplings random patterns are retrieved (with a small share of wrong bits) up to a
    load $s/n \le \alpha^* \approx 0.138$ as $n \to \infty$: in the replica-symmetric mean-field
    theory at zero temperature

    $$\alpha^* = \max_{y > 0} \alpha(y) = 0.1379, \qquad \alpha(y) = \frac12 \Big(
    \frac{\mathrm{erf}(y)}{y} - \frac{2}{\sqrt\pi} e^{-y^2} \Big)^2,$$

    with overlap $m = \mathrm{erf}(y) = 0.967$ there. At a lower load $\alpha$ the overlap is
    $\mathrm{erf}(y)$ for the larger of the two $y$ with $\alpha(y) = \alpha$. Beyond $\alpha^*$
    retrieval collapses. (The theory is quoted, its numbers are checked.)

    *Check.* The maximum on a grid of step $10^{-4}$ (so that its error is some $10^{-9}$); the
    overlaps by the inverse of erf. Stored patterns as starts of asynchronous retrieval: their mean
    overlap with where it ends is at least that at capacity below it, and less than a half beyond.
    That this tells the two apart in small networks is observed: in 150 networks of 600 units for
    each load, with 20 starts each, the overlap was at least 0.9997 at load 0.05, and 0.34 with a
    standard deviation of 0.03 at load 0.3. (Amit, Gutfreund, Sompolinsky, 1985.)

    Knobs:
        capacity: The load up to which patterns are said to be retrieved.
        second: The factor of the second term of $\alpha(y)$.
        n: How many units a network has.
        loads: The loads at which retrieval is measured.
        trials: How many networks are drawn for each load.
    """
    lowest("n", n, 300)
    lowest("trials", trials, 2)
    y = torch.arange(1, 60_000) * 1e-4
    root = torch.erf(y) / y - second * 2 / math.sqrt(math.pi) * torch.exp(-(y**2))
    top, place = float(0.5 * root.max() ** 2), float(y[root.argmax()])
    best = mean_field_capacity()
    yield equals("capacity", best.load, top, tol=1e-8)
    yield equals("overlap at capacity", best.overlap, math.erf(place), tol=1e-5)
    yield equals("capacity, as printed", best.load, 0.1379, tol=5e-5)
    yield equals("overlap at capacity, as printed", best.overlap, 0.967, tol=5e-4)
    for load in (0.05, 0.08, 0.1, 0.12, 0.137):
        m = mean_field_overlap(load)
        at_m = float(erfinv(m))
        root = m / at_m - second * 2 / math.sqrt(math.pi) * math.exp(-(at_m**2))
        yield equals("load that belongs to the overlap", 0.5 * root**2, load, load=load)
        yield at_least("overlap below capacity", m, math.erf(place), load=load)
    for load in (0.138, 0.2, 1.0):
        yield equals("overlap beyond capacity", mean_field_overlap(load), 0.0, load=load)
    curve = capacity_curve(n, loads, trials=trials)
    yield from _intervals(curve)
    again = capacity_curve(21, (0.01,), trials=3, noise=0.4, probes=2)
    yield equals("overlap of a single pattern, after 8 of 21 bits", again.overlaps, 1.0, noise=0.4)
    for load, mean in zip(loads, curve.mean.tolist(), strict=True):
        if load < capacity:
            yield at_least("overlap after retrieval", mean, best.overlap, load=load)
        else:
            yield at_most("overlap after retrieval", mean, 0.5, load=load)


def _intervals(curve: CapacityCurve):
    """Means and the intervals of Student's law around them, by SciPy."""
    trials = curve.overlaps.shape[1]
    reach = scipy.stats.t.ppf(0.975, trials - 1) * curve.overlaps.std(1) / trials**0.5
    middle = curve.overlaps.mean(1)
    for load, ends in zip(
        curve.loads.tolist(), torch.stack([curve.mean, curve.low, curve.high], 1), strict=True
    ):
        i = curve.loads.tolist().index(load)
        exact = torch.stack([middle[i], middle[i] - reach[i], middle[i] + reach[i]]).clamp(-1, 1)
        yield equals("mean overlap and its interval", ends, exact, tol=1e-6, load=load)
    yield equals("whether all came to rest", curve.converged, 1)


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


@claim(
    by="sampling",
    sources=("B-071",),
    budget=1.0,
    full={"n": 60, "trials": 100},
    short=r"P(\text{a unit stores } s \text{ signs}) \le C(s, n - 1) / 2^s:"
    r"\ s / n \to 2 \text{ with free couplings}",
)
def hopfield_optimal_capacity(
    limit: float = 2.0, n: int = 40, trials: int = 20, loads: tuple[float, ...] = (1.0, 1.5, 2.5)
):
    r"""Capacity with optimal couplings is two patterns per unit.

    If each unit's incoming couplings are chosen freely (a perceptron problem per unit, symmetry not
    enforced), random patterns can be made fixed points up to $s/n \to 2$, by Cover's count: a unit
    can store its $s$ signs with probability $C(s, n-1) / 2^s$ for patterns in general position, and
    at most this for any.

    *Check.* Linear programmes for the first of $n = 40$ units: most sets of patterns can be stored
    below the limit, few beyond. With $s = 60$ the probability is 0.991 in general position. Random
    signs are not quite: observed were 1482 of 1500 sets that could be stored, so it is above 0.974
    (by five standard errors), and then more than 10 failures in 20 trials have a probability below
    $10^{-12}$. With $s = 100$ it is at most 0.0133, and more than 10 successes have one below
    $10^{-14}$. Below capacity the perceptron rule of `HopfieldNetwork` finds such couplings for all
    units at load 1; what it calls stored are fixed points, and its first unit never stores what the
    programme calls impossible. That no more sets are stored than Cover's count allows is tested at
    each load, with a false alarm once in $10^7$ runs. (Cover, 1965; Gardner, 1988.)

    Knobs:
        limit: The number of patterns per unit up to which most sets are said to be stored.
        n: How many units there are.
        trials: How many sets of patterns are drawn for each load.
        loads: The numbers of patterns per unit.
    """
    lowest("n", n, 20)
    for load in loads:
        sets = [2 * torch.randint(2, (round(load * n), n)) - 1 for _ in range(trials)]
        possible = [unit_can_store(patterns) for patterns in sets]
        within = at_least if load < limit else at_most
        yield within("sets that a unit can store", sum(possible), trials // 2, load=load)
        most = separable_probability(round(load * n), n - 1)
        p = float(binomtest(sum(possible), trials, most, alternative="greater").pvalue)
        yield consistent("p-value of Cover's count as the most", p, alpha=1e-7, load=load)
        for patterns, can in zip(sets[:3], possible, strict=False):
            net = _by_perceptrons(patterns, 100_000 if load <= 1 else 50)
            aligned = patterns * net.fields(patterns)
            fixed, first = (aligned > 0).all(1), (aligned[:, 0] > 0).all()
            yield equals("patterns that are fixed points", fixed, net.stored, load=load)
            yield at_most("whether the first unit stores all", first, int(can), load=load)
            if load <= 1:  # a few hundred epochs are enough
                yield equals("whether a pattern is stored", net.stored, 1, load=load)
    yield from _rules()


def independent_without_one(s: int, n: int) -> Tensor:
    """Random patterns that are linearly independent on all units but any one, so that it can learn.

    Of four on twelve units one set in thirty is not, mostly since two differ in one unit only.
    """
    while True:
        x = 2.0 * torch.randint(2, (s, n)) - 1
        if (torch.linalg.matrix_rank(x * (1 - torch.eye(n))[:, None]) == s).all():
            return x


def _rules(n: int = 12, margin: float = 0.5):
    """The perceptron rule unit by unit, and the projection onto the span of the patterns."""
    x, theta = independent_without_one(4, n), torch.randint(-1, 2, (n,)) / 4
    net = HopfieldNetwork(x, rule="perceptron", theta=theta, margin=margin)
    w = torch.zeros(n, n)
    for i in range(n):
        others = x.clone()
        others[:, i] = 0  # a unit is not coupled to itself
        while (wrong := x[:, i] * (others @ w[i] + n * theta[i]) <= n * margin).any():
            w[i] += (wrong * x[:, i]) @ others  # in whole numbers, so that ties are ties
    yield equals("couplings by the perceptron rule, times $n$", n * net.weights, w, n=n)
    aligned = (x * net.fields(x)).amin(1)
    yield at_least("aligned fields, with a margin", aligned, margin, n=n, tol=0.0)
    projection = HopfieldNetwork(x, rule="pseudo-inverse", theta=theta / n)
    whole = torch.linalg.pinv(x) @ x
    yield equals("couplings by projection", projection.weights, whole - whole.diag().diag(), n=n)
    fixed = (x * projection.fields(x) >= 0).all(1)
    yield equals("patterns that projection fixes", projection.stored, fixed, n=n)


def _by_perceptrons(patterns: Tensor, epochs: int) -> HopfieldNetwork:
    """A network whose units learn by the perceptron rule, which beyond capacity has no end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return HopfieldNetwork(patterns, rule="perceptron", max_iter=epochs)


hopfield_optimal_capacity.foil("Hebb's limit is not that of optimal couplings", limit=0.138)
hopfield_optimal_capacity.foil("nor is it one pattern per unit", limit=1.0)
