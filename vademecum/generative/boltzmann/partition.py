r"""The constant $Z$ of a restricted Boltzmann machine, exact or with an error bar.

Annealed importance sampling goes from the machine without weights, whose visible units are
independent with log-odds $a_0$, to the machine itself through $0 = \beta_0 < \dots < \beta_T = 1$,

$$f_\beta(v) = e^{((1 - \beta) a_0 + \beta a)^\top v} \prod_j (1 + e^{\beta (b_j + (W v)_j)}),
\qquad w = \prod_{t=1}^T \frac{f_{\beta_t}(v_{t-1})}{f_{\beta_{t-1}}(v_{t-1})},$$

where $v_0$ is drawn from the first law and $v_t$ by a step of Gibbs at $\beta_t$ from $v_{t-1}$.
Then $\mathbb E\, w = Z / Z_0$ exactly, with $\log Z_0 = \sum_i \log(1 + e^{a_{0, i}}) + m \log 2$.
The logarithm of a mean of $w$ has the standard error of that mean over the mean, to first order,
and is too small in expectation. Checked by the claim `generative.restricted_boltzmann_machine`.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.estimators import warn_outside
from vademecum.generative.boltzmann._enumeration import log_weights
from vademecum.generative.boltzmann._units import Units, bernoulli, log_one_plus
from vademecum.progress import ticking
from vademecum.results import one_line

__all__ = ["Annealed", "LogPartition", "annealed", "annealed_partition", "exact_partition"]

FEW = 0.1  # of the chains: where fewer count, the error bar rests on too few to be one


class LogPartition(NamedTuple):
    """The logarithm of a constant.

    Example:
        >>> from vademecum.generative import RestrictedBoltzmannMachine
        >>> zero = torch.zeros(3)
        >>> machine = RestrictedBoltzmannMachine.from_parameters(torch.zeros(2, 3), zero, zero[:2])
        >>> machine.log_partition()  # 32 states of weight 1
        LogPartition(value=3.4657..., error=0.0, exact=True, effective=inf)
    """

    value: float
    """The logarithm of Z."""
    error: float
    """Its standard error over the chains; 0 where it is exact."""
    exact: bool
    """Whether all states were counted."""
    effective: float
    """How many chains count, of all: the squared sum of their weights over the sum of squares."""

    __repr__ = one_line


class Annealed(NamedTuple):
    """The ends of annealed chains and the logarithms of their weights."""

    v: Float[Tensor, " chains d"]
    log_weights: Float[Tensor, " chains"]


def exact_partition(units: Units) -> LogPartition:
    """The constant by all states of the smaller layer."""
    m, d = units.weights.shape
    total = log_weights(units if d <= m else units.flipped()).logsumexp(0)
    return LogPartition(float(total), 0.0, True, math.inf)


def annealed(
    units: Units,
    base: Float[Tensor, " d"],
    *,
    chains: int,
    temperatures: int,
    generator: torch.Generator,
    progress: bool = False,
) -> Annealed:
    """Run chains from independent units to the machine; their weights contain $Z_0$."""
    a, b = units.visible, units.hidden
    start = base.expand(chains, -1)
    v = bernoulli(start.sigmoid(), generator)
    constant = float(log_one_plus(base.double()).sum()) + len(b) * math.log(2)
    total = torch.full((chains,), constant, dtype=torch.float64, device=a.device)
    betas = torch.linspace(0, 1, temperatures + 1, dtype=torch.float64).tolist()
    with ticking("temperatures", temperatures, progress=progress) as tick:
        for before, beta in pairwise(betas):
            u = units.input(v)
            gain = log_one_plus(beta * u) - log_one_plus(before * u)
            total += gain.double().sum(1) + (beta - before) * (v @ (a - base)).double()
            h = bernoulli((beta * u).sigmoid_(), generator)
            odds = torch.addmm(torch.lerp(base, a, beta), h, units.weights, alpha=beta)
            v = bernoulli(odds.sigmoid_(), generator)
            tick(1)
    return Annealed(v, total)


def annealed_partition(run: Annealed) -> LogPartition:
    """The constant from the weights of annealed chains, and a warning where few of them count."""
    logs = run.log_weights
    n, top = len(logs), logs.max()
    w = (logs - top).exp()
    mean = w.mean()
    effective = float(w.sum().square() / w.square().sum())
    error = float(w.std() / mean) / math.sqrt(n)
    if effective < FEW * n:
        warn_outside(
            f"only {effective:.3g} of {n} annealed chains count: the error of the constant, "
            f"{error:.2g}, is not to be relied on; more temperatures would help",
            RuntimeWarning,
        )
    return LogPartition(float(top + mean.log()), error, False, effective)
