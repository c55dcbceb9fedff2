r"""How many patterns a Hopfield network holds: theory and measurement.

For Hebbian couplings of $s = \alpha n$ random patterns the replica-symmetric mean-field theory at
zero temperature gives, as $n \to \infty$, the overlap $m = \mathrm{erf}(y)$ of the state in which
retrieval ends with the stored pattern, where

$$\alpha = \alpha(y) = \tfrac12 \Big( \frac{\mathrm{erf}(y)}{y} - \frac{2}{\sqrt\pi} e^{-y^2}
\Big)^2 .$$

There is such a state up to $\alpha^* = \max_y \alpha(y) = 0.1379$, where $m = 0.967$; beyond it
retrieval collapses. The maximum is where
$\mathrm{erf}(y) = \frac{2}{\sqrt\pi} y (1 + 2 y^2) e^{-y^2}$, and below $\alpha^*$ the larger of
the two solutions $y$ is the stable one.

The theory is not rigorous (replica symmetry is slightly broken) and for infinite networks. The
measurement is an average over independent networks with Student's interval, whose coverage is exact
for normal averages and approximate otherwise. The claim `hopfield_capacity` compares the two.
"""

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.connectionism.hopfield.network import HopfieldNetwork
from vademecum.connectionism.hopfield.retrieval import overlap
from vademecum.estimators import warn_unconverged
from vademecum.progress import ticking
from vademecum.randomness import source
from vademecum.results import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Capacity", "CapacityCurve", "capacity_curve", "draw_capacity", "hopfield_capacity",
    "mean_field_overlap",
]  # fmt: skip


class Capacity(NamedTuple):
    """The largest load and the overlap there.

    Example:
        >>> round(hopfield_capacity().load * 1000)  # patterns in a network of 1000 units
        138
    """

    load: float
    r"""The $\alpha^*$, in patterns per unit."""
    overlap: float
    """The overlap with the stored pattern there."""


class CapacityCurve(NamedTuple):
    """Overlaps after retrieval, against the load.

    Example:
        >>> curve = capacity_curve(100, [0.01], trials=2)  # a single pattern is kept
        >>> curve.overlaps, curve.low
        (tensor([[1., 1.]]), tensor([1.]))
    """

    n: int
    """The number of units."""
    rule: str
    """The storage rule."""
    noise: float
    """The share of bits that were flipped at the start."""
    loads: Float[Tensor, " loads"]
    """The loads, as whole numbers of patterns allow."""
    overlaps: Float[Tensor, " loads trials"]
    """The mean overlap with the stored pattern in each network."""
    converged: Bool[Tensor, " loads trials"]
    """Whether all states of a network came to rest, or ended on a cycle."""
    mean: Float[Tensor, " loads"]
    """The mean over the networks."""
    low: Float[Tensor, " loads"]
    """The lower end of its interval."""
    high: Float[Tensor, " loads"]
    """The upper end of its interval."""

    __repr__ = one_line


def hopfield_capacity() -> Capacity:
    r"""The capacity $\alpha^*$ of Hebbian couplings in mean-field theory.

    References:
        Amit, Gutfreund, Sompolinsky, Storing infinite numbers of patterns in a spin-glass model of
        neural networks, Physical Review Letters, 1985.

    Example:
        >>> load, overlap = hopfield_capacity()
        >>> print(f"{load:.4f} {overlap:.3f}")
        0.1379 0.967
    """
    y = _top()
    return Capacity(_load(y), math.erf(y))


def mean_field_overlap(load: float) -> float:
    r"""The overlap $m(\alpha)$ at which retrieval ends in mean-field theory; 0 beyond capacity.

    Example:
        >>> print(f"{mean_field_overlap(0.1):.4f}")
        0.9980
    """
    from scipy.optimize import root_scalar

    number("load", load, above=0)
    y = _top()
    if load >= _load(y):
        return math.erf(y) if load == _load(y) else 0.0
    bracket = (y, 2 / math.sqrt(2 * load))  # as the load is below 1 / (2 y^2)
    return math.erf(root_scalar(lambda y: _load(y) - load, bracket=bracket).root)


def _load(y: float) -> float:
    return 0.5 * (math.erf(y) / y - 2 / math.sqrt(math.pi) * math.exp(-(y**2))) ** 2


def _top() -> float:
    from scipy.optimize import root_scalar

    def excess(y: float) -> float:
        return math.erf(y) - 2 / math.sqrt(math.pi) * y * (1 + 2 * y**2) * math.exp(-(y**2))

    return root_scalar(excess, bracket=(1, 2)).root


def capacity_curve(
    n: int,
    loads: Sequence[float],
    *,
    trials: int = 10,
    rule: str = "hebbian",
    noise: float = 0.0,
    probes: int = 20,
    confidence: float = 0.95,
    max_iter: int = 100,
    device: str | torch.device = "cpu",
    executor: Executor | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> CapacityCurve:
    """Measure the overlap with the stored pattern after asynchronous retrieval, against the load.

    A trial draws a network's random patterns, corrupts the first few of them, runs the dynamics and
    averages the overlaps. Trials are independent, and seeded one by one: the result does not depend
    on the executor.

    Args:
        n: The number of units.
        loads: The loads; the number of patterns is that times `n`, rounded, and at least one.
        trials: The number of networks for each load.
        rule: The storage rule.
        noise: The share of bits that are flipped at the start, below one half.
        probes: How many patterns of each network to retrieve.
        confidence: The coverage of the intervals.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each visits all
            units once.
        device: Where to compute.
        executor: Runs trials side by side, such as a `ProcessPoolExecutor`; one by one by default.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.

    Example:
        >>> curve = capacity_curve(200, [0.02, 0.5], trials=3)
        >>> bool(curve.mean[0] > 0.99), bool(curve.mean[1] < 0.7)
        (True, True)
    """
    whole("n", n, low=2)
    whole("trials", trials, low=2)
    whole("probes", probes, low=1)
    number("noise", noise, low=0, below=0.5)
    number("confidence", confidence, above=0, below=1)
    if not len(loads):
        raise ValueError("loads must not be empty, got none")
    counts = [max(1, round(number("loads", load, above=0) * n)) for load in loads]
    draw = source(generator, "cpu")
    seeds = torch.randint(2**62, (len(loads) * trials,), **draw).tolist()
    trial = partial(_trial, n, rule, noise, probes, max_iter, device)
    tasks = [s for s in counts for _ in range(trials)]
    results = (executor.map if executor else map)(trial, tasks, seeds)
    measured = torch.tensor(_watched(results, len(seeds), progress)).reshape(-1, trials, 2)
    overlaps, converged = measured[..., 0], measured[..., 1] == 1
    if not converged.all():
        open_ended = int((~converged).sum())
        warn_unconverged(f"max_iter={max_iter} reached in {open_ended} of {len(seeds)} trials")
    loads_kept = torch.tensor(counts) / n
    interval = _student(overlaps, confidence)
    return CapacityCurve(n, rule, noise, loads_kept, overlaps, converged, *interval)


def _trial(
    n: int,
    rule: str,
    noise: float,
    probes: int,
    max_iter: int,
    device: str | torch.device,
    s: int,
    seed: int,
) -> tuple[float, float]:
    """The mean overlap, and whether all states had come to an end."""
    generator = torch.Generator().manual_seed(seed)
    patterns = 2.0 * torch.randint(2, (s, n), generator=generator) - 1
    target = patterns[:probes].float().to(device)
    flipped = torch.rand(target.shape, generator=generator).argsort(1) < round(noise * n)
    start = torch.where(flipped.to(device), -target, target)
    network = HopfieldNetwork(patterns.float().to(device), rule=rule)
    end = network._retrieve(start, max_iter=max_iter, generator=generator)  # one warning for all
    return float(overlap(end.states, target).mean()), float((end.period > 0).all())


def _student(samples: Tensor, confidence: float) -> tuple[Tensor, Tensor, Tensor]:
    from scipy.special import stdtrit

    trials = samples.shape[1]
    quantile = float(stdtrit(trials - 1, (1 + confidence) / 2))
    mean, error = samples.mean(1), quantile * samples.std(1) / math.sqrt(trials)
    return mean, (mean - error).clamp(min=-1), (mean + error).clamp(max=1)


def _watched(
    results: Iterable[tuple[float, float]], total: int, progress: bool
) -> list[tuple[float, float]]:
    watched = []
    with ticking("trials", total, progress=progress) as tick:
        for result in results:
            watched.append(result)
            tick(1)
    return watched


def draw_capacity(curve: CapacityCurve, axes: "Axes | None" = None) -> "Figure":
    """Draw final overlap against load with its intervals, and for Hebb's rule the theory.

    Args:
        curve: What was measured.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> figure = draw_capacity(capacity_curve(50, [0.02, 0.5], trials=2))
        >>> figure.axes[0].get_ylabel()
        'overlap after retrieval'
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(6.4, 4.0), layout="constrained").subplots()
    spread = torch.stack([curve.mean - curve.low, curve.high - curve.mean])
    axes.errorbar(
        curve.loads.tolist(), curve.mean.tolist(), yerr=spread.tolist(),
        fmt="o", color="C0", ms=4, capsize=3, label=f"measured, n = {curve.n}",
    )  # fmt: skip
    if curve.rule == "hebbian":
        top = hopfield_capacity()
        below = [top.load * k / 200 for k in range(1, 200)] + [top.load]
        theory = [mean_field_overlap(load) for load in below]
        axes.plot(below, theory, "--", color="0.5", label="mean-field theory")
        axes.axvline(top.load, ls=":", color="0.5", label=f"capacity {top.load:.3f}")
    axes.set(xlabel="load s / n (patterns per unit)", ylabel="overlap after retrieval")
    axes.set(xlim=(0, None), ylim=(min(0.0, float(curve.low.min())), 1.05))
    start = f", {curve.noise:.0%} of the bits flipped" if curve.noise else ""
    axes.set_title(f"Retrieval with {curve.rule} couplings{start}")
    axes.legend(frameon=False, loc="lower left")
    return cast(Figure, axes.get_figure(root=True))
