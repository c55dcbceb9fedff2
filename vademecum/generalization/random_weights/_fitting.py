r"""Training the means of a prior, and a posterior to its bound.

The means minimise the cross-entropy on the prior's examples. The posterior minimises a PAC-Bayes
bound of the bounded cross-entropy, $B(\hat r(\theta, \sigma), \mathrm{KL}(Q \| P))$, with one draw
of the weights in each step, in $\theta$ and $\ln \sigma^2$, from $\sigma^2 = \lambda$ on. Both by
Adam, with steps that fall to 0 along half a cosine.

To begin with, the scale of the prior is the largest of the grid that hardly hurts: one with which
the bound before training is at most a hundredth above the best. In the first half of the steps the
prior follows the posterior, $\lambda = \frac1P \sum_i [\sigma_i^2 + (\theta_i - \theta_{0 i})^2]$;
then it takes the nearest scale of the grid, and stays there.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.generalization.pac_bayes_forms import pac_bayes_bound
from vademecum.generalization.random_weights._estimating import (
    bounded_cross_entropy,
    estimated,
    scores,
)
from vademecum.generalization.random_weights.weight_gaussians import StochasticNetwork
from vademecum.models.outputs import Output
from vademecum.randomness import source

__all__ = ["begin_at_scale", "fit_means", "fit_posterior"]

Tick = Callable[[int], None]
_HURT = 1.01  # observed: 1 to 1.02 give the same certificates within 0.002
_SAMPLE = 2000  # examples that choose the scale
_FOLLOW = 5  # steps between two looks at the best scale of the prior
_RATE_OF_LOGARITHMS = 10.0  # of the step in the means: logarithms are of order 1, weights of 0.1


def fit_means(
    model: nn.Module, x: Any, y: Tensor, index: Tensor, *, epochs: int, batch_size: int,
    lr: float, output: Output, generator: torch.Generator | None, tick: Tick,
) -> None:  # fmt: skip
    """Train a model in its place by the cross-entropy on some examples."""
    drawn = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(drawn, lr, fused=True)
    for rows in _batches(optimizer, index, epochs, batch_size, generator):
        loss = F.cross_entropy(scores(model, x, rows, output), y[rows.to(y.device)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick(1)


def fit_posterior(
    network: StochasticNetwork, x: Any, y: Tensor, index: Tensor, *, scales: Sequence[float],
    objective: Any, delta: float, epochs: int, batch_size: int, lr: float, p_min: float,
    output: Output, generator: torch.Generator | None, tick: Tick,
) -> None:  # fmt: skip
    """Train means and variances by a bound on some examples."""
    means = [p for p in network.model.parameters() if p.requires_grad]
    groups = [{"params": means, "lr": lr},
              {"params": list(network.log_variance), "lr": _RATE_OF_LOGARITHMS * lr}]  # fmt: skip
    optimizer = torch.optim.Adam(groups, fused=True)
    half = epochs * math.ceil(len(index) / batch_size) // 2
    for i, rows in enumerate(_batches(optimizer, index, epochs, batch_size, generator)):
        if i <= half and (i % _FOLLOW == 0 or i == half):
            _follow(network, scales, snap=i == half)
        z, target = scores(network, x, rows, output), y[rows.to(y.device)]
        risk = bounded_cross_entropy(z, target, p_min).mean().clamp(0, 1)
        kl = network.kl().clamp_min(0)
        bound = pac_bayes_bound(risk, kl, len(index), delta=delta, kind=objective)
        optimizer.zero_grad()
        bound.backward()
        optimizer.step()
        tick(1)


@torch.no_grad()
def _follow(network: StochasticNetwork, scales: Sequence[float], *, snap: bool) -> None:
    """Give the prior its best scale; at last one of the grid, and take the posterior along."""
    best = min(max(network.best_prior_std(), min(scales)), max(scales))
    if snap:
        nearest = min(scales, key=lambda scale: abs(math.log(scale / best)))
        for log_variance in network.log_variance:
            log_variance += 2 * math.log(nearest / best)
        best = nearest
    network.prior_std.fill_(best)


def begin_at_scale(
    network: StochasticNetwork, x: Any, y: Tensor, index: Tensor, *, scales: Sequence[float],
    objective: Any, delta: float, batch_size: int, p_min: float, output: Output,
) -> None:  # fmt: skip
    """Give posterior and prior the largest scale that hardly hurts."""
    some = index[:: max(1, len(index) // _SAMPLE)]
    found = []
    for scale in sorted(scales):
        _at_scale(network, scale)
        risk = estimated(network, x, y, some, passes=1, batch_size=batch_size, p_min=p_min,
                         output=output, tick=lambda _: None).cross_entropy  # fmt: skip
        kl = network.kl().detach().clamp_min(0).item()
        bound = pac_bayes_bound(risk, kl, len(index), delta=delta, kind=objective)
        found.append((scale, bound))
    least = min(bound for _, bound in found)
    _at_scale(network, max(scale for scale, bound in found if bound <= _HURT * least))


@torch.no_grad()
def _at_scale(network: StochasticNetwork, scale: float) -> None:
    network.prior_std.fill_(scale)
    for log_variance in network.log_variance:
        log_variance.fill_(2 * math.log(scale))


def _batches(
    optimizer: torch.optim.Optimizer, index: Tensor, epochs: int, batch_size: int,
    generator: torch.Generator | None,
) -> Iterator[Tensor]:  # fmt: skip
    """Batches of nearly equal size in random order, with steps that fall to zero."""
    each = math.ceil(len(index) / batch_size)
    first = [group["lr"] for group in optimizer.param_groups]
    for epoch in range(epochs):
        order = index[torch.randperm(len(index), **source(generator, "cpu")).cpu()]
        for i, rows in enumerate(order.tensor_split(each)):
            done = (epoch * each + i) / (epochs * each)
            for group, lr in zip(optimizer.param_groups, first, strict=True):
                group["lr"] = lr * (1 + math.cos(math.pi * done)) / 2
            yield rows
