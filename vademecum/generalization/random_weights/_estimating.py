r"""The risk of a posterior on given examples, by draws of weights, with Chernoff's bound.

Losses in $[0, 1]$ come in groups that share a draw: an example, or a batch. With weights
$w_g = $ share of a group in all losses and independent groups, whose means $X_g$ lie in $[0, 1]$,

$$\Pr\Big[\mathrm{kl}\Big(\sum_g w_g X_g \,\Big\|\, \mathbb E \sum_g w_g X_g\Big) > c \text{ from
below}\Big] \le e^{-m c}, \qquad m = 1 / \max_g w_g,$$

since $\mathbb E e^{t c_g X} \le (1 + p_g (e^t - 1))^{c_g}$ for $c_g = w_g m \le 1$, and the
logarithm is concave. So draws need not be alike, and an uneven last batch counts for what it is.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.generalization.random_weights.weight_gaussians import StochasticNetwork
from vademecum.models import call_arguments, chosen_output, map_tensors
from vademecum.models.outputs import Output

__all__ = ["Estimate", "bounded_cross_entropy", "estimated", "prepared", "scores"]

_NUMBERS = 2**18  # weights drawn for each example, at most: some 3 ms of a core
_AT_ONCE = 2**25  # weights drawn at once, at most: 128 MB in single precision


class Estimate(NamedTuple):
    """Mean losses over draws."""

    zero_one: float
    cross_entropy: float
    draws: float
    """The independent draws m of Chernoff's bound."""


def scores(network: Any, x: Any, rows: Tensor, output: Output) -> Tensor:
    """The scores of some examples."""
    args, kwargs = call_arguments(map_tensors(x, lambda t: t[rows.to(t.device)]))
    return chosen_output(network(*args, **kwargs), output)


def bounded_cross_entropy(z: Tensor, y: Tensor, p_min: float) -> Tensor:
    r"""The losses $\ln(1 / \max\{p_y, p_{\min}\}) / \ln(1 / p_{\min})$, in [0, 1].

    Example:
        >>> z = torch.tensor([[0.0, 0.0], [0.0, 99.0]])
        >>> bounded_cross_entropy(z, torch.tensor([0, 0]), 0.25)  # probabilities 1/2 and 0
        tensor([0.5000, 1.0000])
    """
    most = -math.log(p_min)
    return F.cross_entropy(z, y, reduction="none").clamp(0, most) / most


def prepared(network: StochasticNetwork, x: Any, batch_size: int, output: Output) -> int:
    """Let examples have their own draws if that is possible and not too dear; rows at a time."""
    if network.draws == "batch":
        return batch_size
    network.draws, network._shared = "example", None
    try:
        with torch.no_grad():
            scores(network, x, torch.zeros(1, dtype=torch.long), output)
    except ValueError as error:
        if "draws must not be 'example'" not in str(error):
            raise
        network._numbers = _NUMBERS + 1
    if network._numbers > _NUMBERS:
        network.draws, network._shared = "batch", None
        return batch_size
    return max(1, min(batch_size, _AT_ONCE // max(1, network._numbers)))


@torch.no_grad()
def estimated(
    network: StochasticNetwork, x: Any, y: Tensor, index: Tensor, *, passes: int, batch_size: int,
    p_min: float, output: Output, tick: Callable[[int], None],
) -> Estimate:  # fmt: skip
    """Mean losses over some passes; examples are the draws' own, or share those of their batch."""
    wrong = torch.zeros((), dtype=torch.long, device=y.device)
    loss = torch.zeros((), dtype=torch.float64, device=y.device)
    for _ in range(passes):
        for rows in index.split(batch_size):
            z, target = scores(network, x, rows, output), y[rows.to(y.device)]
            good = z.isfinite().all(1)
            wrong += ((z.argmax(1) != target) | ~good).sum()
            losses = bounded_cross_entropy(z.double(), target, p_min)
            loss += torch.where(good, losses, 1.0).sum()
            tick(1)
    total = passes * len(index)
    group = 1 if network.draws == "example" else min(batch_size, len(index))
    zero_one, cross_entropy = (min(1.0, t.item() / total) for t in (wrong, loss))
    return Estimate(zero_one, cross_entropy, total / group)
