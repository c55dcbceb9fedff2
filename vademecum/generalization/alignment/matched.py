r"""Two networks with their units in the same order.

Networks that were trained apart have their units in different orders, so that the mean of their
weights means nothing. $P$, one permutation for each group of units that must move together,
changes the weights $\theta_b$ of the second network and not its function; the one wanted brings
them next to those of the first, by

* weights: the least $\|\theta_a - P \theta_b\|$, one group at a time (see `_assignments`);
* activations: the largest sum of correlations of units on data (see `_correlations`).

The groups are found in the graph of the network's code, as `permute_units` does: hidden layers,
channels of convolutions with their batch normalisation, residual streams (one order for all layers
that add to it), the inner layers of a transformer's blocks. What cannot be permuted is left, with
the reason. The permuted network is the same function up to rounding; its statistics of batch
normalisation are permuted along. The claim is `mode_connectivity`.

References:
    Ainsworth, Hayase and Srinivasa, Git re-basin: merging models modulo permutation symmetries,
    ICLR, 2023. Li, Yosinski, Clune, Lipson and Hopcroft, Convergent learning: do different neural
    networks learn the same representations?, ICLR, 2016.
"""

from contextlib import closing
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import choice, whole
from vademecum.estimators.convergence import warn_unconverged
from vademecum.generalization.alignment._assignments import WeightMatching
from vademecum.generalization.alignment._correlations import by_activations
from vademecum.generalization.alignment._traced_units import TracedUnits, traced_units
from vademecum.models import batches, refuse_nan, tensor_places, unwrapped
from vademecum.regularization import permute_units
from vademecum.results import one_line

__all__ = ["Alignment", "align"]


class Alignment(NamedTuple):
    """A network with its units in the order of another one's.

    Example:
        >>> a = nn.Sequential(nn.Linear(1, 2), nn.Tanh(), nn.Linear(2, 1))
        >>> a[0].weight.data = torch.tensor([[1.0], [5.0]])
        >>> swap = {"0": torch.tensor([1, 0])}
        >>> b = permute_units(a, torch.ones(1, 1), permutations=swap).model
        >>> found = align(a, b, torch.ones(1, 1))
        >>> found.permutations, round(found.distance, 6)
        ({'0': tensor([1, 0])}, 0.0)
    """

    model: nn.Module
    """A copy of the second network, its units in the order of the first one's."""
    permutations: dict[str, Tensor]
    """The order of the units of each layer: the new unit j is the old unit order[j]."""
    left: dict[str, str]
    """The layers whose units were left as they are, with the reasons."""
    distance_before: float
    r"""The distance $\|\theta_a - \theta_b\|$ of all parameters."""
    distance: float
    r"""The same after the permutation, $\|\theta_a - P \theta_b\|$."""
    assignments: int
    """How many assignment problems were solved."""
    converged: bool
    """Whether no group of units would change any more."""

    __repr__ = one_line


def align(
    a: nn.Module, b: nn.Module, x: Any, *, by: str = "weights", max_iter: int = 100
) -> Alignment:
    r"""Permute the units of a network so that they match those of another one.

    Neither network is changed: the result has a copy of the second.

    Args:
        a: Any module.
        b: Another one of the same architecture.
        x: An input, as the models take it, or a `DataLoader`. By weights one example will do; by
            activations the more the better.
        by: "weights", or "activations".
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each lets all
            groups of units take a turn; by activations there is none.

    Raises:
        ValueError: If the models differ in architecture, device or dtype, hold NaN, or have no
            units that can be permuted.

    Example:
        >>> from vademecum.models import mlp
        >>> a = mlp([3, 8, 8, 1])
        >>> b = permute_units(a, torch.ones(1, 3)).model
        >>> found = align(a, b, torch.ones(1, 3)).model
        >>> all(torch.equal(found.state_dict()[k], v) for k, v in a.state_dict().items())
        True
    """
    choice("by", by, ("weights", "activations"))
    whole("max_iter", max_iter, low=1)
    a, b = unwrapped(a), unwrapped(b)
    own, other = _parameters(a, b)
    few = _few(x)
    refuse_nan(few)
    units, theirs = traced_units(a, few), traced_units(b, few)
    if units.calls != theirs.calls or units.groups != theirs.groups:
        raise ValueError("b must compute as a does, got another sequence of calls")
    if not units.groups:
        why = "; ".join(f"{layer!r}: {reason}" for layer, reason in units.left.items())
        raise ValueError(f"a must have units that can be permuted, got none ({why})")
    orders, turns, converged = _orders(a, b, x, by, units, own, other, max_iter)
    named = {g.layers[0]: order for g, order in zip(units.groups, orders, strict=True)}
    changed = permute_units(b, few, permutations=named)
    after = {k: p.detach() for k, p in tensor_places(changed.model, "parameters")}
    if not converged:
        warn_unconverged(f"max_iter={max_iter} reached with units that would still change places")
    return Alignment(
        model=changed.model,
        permutations=changed.layers,
        left=changed.left,
        distance_before=_distance(own, other),
        distance=_distance(own, after),
        assignments=turns,
        converged=converged,
    )


def _orders(
    a: nn.Module, b: nn.Module, x: Any, by: str, units: TracedUnits,
    own: dict[str, Tensor], other: dict[str, Tensor], max_iter: int,
) -> tuple[list[Tensor], int, bool]:  # fmt: skip
    if by == "weights":
        matching = WeightMatching(units.groups, own, other)
        converged = matching.run(max_iter)
        return matching.orders, matching.turns, converged
    device = next(iter(own.values())).device
    with closing(batches(x, device=device)) as each:
        orders = by_activations(a, b, (inputs for inputs, _ in each))
    return orders, len(orders), True


def _parameters(a: nn.Module, b: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters of both by their places, which must be the same."""
    found = [{k: p.detach() for k, p in tensor_places(m, "parameters")} for m in (a, b)]
    one, other = found
    if list(one) != list(other):
        odd = sorted(set(one) ^ set(other))[:3]
        raise ValueError(f"b must have the parameters of a, not so: {odd}")
    for place, p in one.items():
        q = other[place]
        if (p.shape, p.dtype, p.device) != (q.shape, q.dtype, q.device):
            raise ValueError(
                f"b must be like a, got {place} with {tuple(q.shape)}, {q.dtype}, {q.device} for"
                f" {tuple(p.shape)}, {p.dtype}, {p.device}"
            )
        for name, t in (("a", p), ("b", q)):
            if not torch.isfinite(t).all():
                raise ValueError(f"{name} must have finite parameters, and {place} has others")
    return one, other


def _few(x: Any) -> Any:
    """Two examples of a tensor, the first batch of a loader, or else the input as it is."""
    if isinstance(x, DataLoader):
        with closing(batches(x)) as each:
            x = next(iter(each))[0]
    return x[:2] if isinstance(x, Tensor) else x


def _distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    gaps = {id(p): (p.double() - other[place].double()).square().sum() for place, p in one.items()}
    return float(torch.stack(list(gaps.values())).sum().sqrt())
