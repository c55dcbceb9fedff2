r"""The generalised delta rule: error signals for units that have no teacher.

A multilayer perceptron computes, layer by layer from the input $x$,

$$a_j = \sum_i w_{ji} x_i, \qquad x_j = \phi(a_j),$$

where a unit that is always on supplies the bias as the last $w_{ji}$. For the squared loss
$\ell = \tfrac12 \sum_k (x_k - y_k)^2$, summed over the examples, the error signals
$\delta_j = \partial \ell / \partial a_j$ are

$$\delta_k = \phi'(a_k) (x_k - y_k) \text{ at the outputs}, \qquad
\delta_j = \phi'(a_j) \sum_k w_{kj} \delta_k \text{ at hidden units},$$

and $\partial \ell / \partial w_{ji} = \delta_j x_i$. The PDP group's $\delta$ has the other sign,
and their update is $\Delta w(t + 1) = -\eta\, \partial \ell / \partial w + \alpha\, \Delta w(t)$.

The gradients are exact up to rounding. The claim `connectionism.generalized_delta_rule` compares
them with difference quotients.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum import arguments
from vademecum.results import one_line

__all__ = ["delta_rule", "pdp_update"]

_UNITS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "tanh": (torch.tanh, lambda x: 1 - x * x),
    "logistic": (torch.sigmoid, lambda x: x * (1 - x)),
    "linear": (lambda a: a, torch.ones_like),
}  # each with its derivative as a function of the unit's output


class DeltaRule(NamedTuple):
    """What the rule computes on its way forth and back, each tuple with one entry a layer.

    Example:
        >>> w, x, y = torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0]]), torch.tensor([[5.0]])
        >>> delta_rule([w], x, y, units="linear").deltas
        (tensor([[1.]]),)
    """

    outputs: Float[Tensor, " batch out"]
    """The $x_k$ of the last layer: one row an example."""
    activations: tuple[Tensor, ...]
    """The $a_j$: one row an example."""
    deltas: tuple[Tensor, ...]
    """The $\\delta_j$: one row an example."""
    gradients: tuple[Tensor, ...]
    """The $\\partial \\ell / \\partial w_{ji}$, shaped like the weights."""

    __repr__ = one_line


class PDPUpdate(NamedTuple):
    """The weights after an update, and the change that brought them there.

    Example:
        >>> one = torch.ones(1, 1)
        >>> pdp_update([one], [one], rate=0.25).weights
        (tensor([[0.7500]]),)
    """

    weights: tuple[Tensor, ...]
    """The $w$ after the step."""
    changes: tuple[Tensor, ...]
    """The $\\Delta w$, for the next step."""

    __repr__ = one_line


def delta_rule(
    weights: Sequence[Float[Tensor, " ..."]],
    x: Float[Tensor, " batch features"],
    y: Float[Tensor, " rows out"],
    *,
    units: str | Sequence[str] = "tanh",
    bias: bool = True,
) -> DeltaRule:
    r"""The gradient of the squared loss of a multilayer perceptron, by error signals.

    Args:
        weights: The matrices $(w_{ji})$ from the first layer to the last, any number of them; with
            `bias`, the last column of each belongs to the unit that is always on.
        x: The inputs, one row an example.
        y: The targets, one row an example.
        units: The $\phi$ of all layers, or one for each: "tanh", "logistic" or "linear".
        bias: Whether each layer has the unit that is always on.

    Raises:
        ValueError: If shapes do not fit, a number is not finite, or units are unknown.

    Note:
        Rumelhart, Hinton and Williams (1986) made the rule popular. Reverse accumulation goes back
        to Linnainmaa (1970), and its use for networks to Werbos (1974, 1982).

    References:
        Rumelhart, Hinton and Williams, Learning Internal Representations by Error Propagation, in
        Parallel Distributed Processing, volume 1, MIT Press, 1986.

    Example:
        >>> w = [torch.tensor([[2.0, -1.0]]), torch.tensor([[3.0, 1.0]])]
        >>> rule = delta_rule(w, torch.tensor([[1.0]]), torch.tensor([[2.0]]), units="linear")
        >>> rule.outputs, rule.deltas
        (tensor([[4.]]), (tensor([[6.]]), tensor([[2.]])))
        >>> rule.gradients
        (tensor([[6., 6.]]), tensor([[2., 2.]]))
    """
    kinds = _checked(weights, x, y, units, bias)
    inputs, activations = [_lift(x, bias)], []
    for w, (phi, _) in zip(weights, kinds, strict=True):
        activations.append(inputs[-1] @ w.T)
        inputs.append(_lift(phi(activations[-1]), bias))
    outputs = _drop(inputs.pop(), bias)
    delta = (outputs - y) * kinds[-1][1](outputs)
    deltas = [delta]
    for w, hidden, (_, slope) in zip(weights[:0:-1], inputs[:0:-1], kinds[-2::-1], strict=True):
        delta = slope(_drop(hidden, bias)) * _drop(delta @ w, bias)
        deltas.append(delta)
    deltas.reverse()
    gradients = tuple(d.T @ i for d, i in zip(deltas, inputs, strict=True))
    return DeltaRule(outputs, tuple(activations), tuple(deltas), gradients)


def pdp_update(
    weights: Sequence[Float[Tensor, " ..."]],
    gradients: Sequence[Float[Tensor, " ..."]],
    changes: Sequence[Float[Tensor, " ..."]] | None = None,
    *,
    rate: float,
    momentum: float = 0.0,
) -> PDPUpdate:
    r"""One step of gradient descent with momentum, as the PDP group writes it.

    Args:
        weights: The $w$.
        gradients: The $\partial \ell / \partial w$.
        changes: The $\Delta w$ of the step before; none at the first one.
        rate: The learning rate $\eta > 0$.
        momentum: The $\alpha \in [0, 1)$.

    Raises:
        ValueError: If the rate or the momentum is out of range, or the lists differ in length or
            in the shapes of what they hold.

    Example:
        >>> w, g = [torch.ones(1, 1)], [torch.full((1, 1), 2.0)]
        >>> first = pdp_update(w, g, rate=0.25, momentum=0.5)
        >>> pdp_update(*first[:1], g, first.changes, rate=0.25, momentum=0.5)
        PDPUpdate(weights=(tensor([[-0.2500]]),), changes=(tensor([[-0.7500]]),))
    """
    arguments.number("rate", rate, above=0.0)
    arguments.number("momentum", momentum, low=0.0, below=1.0)
    before = [torch.zeros_like(w) for w in weights] if changes is None else changes
    if not len(weights) == len(gradients) == len(before):
        lengths = len(weights), len(gradients), len(before)
        raise ValueError(f"weights, gradients and changes must be equally many, got {lengths}")
    for w, g, c in zip(weights, gradients, before, strict=True):
        if not w.shape == g.shape == c.shape:
            shapes = tuple(w.shape), tuple(g.shape), tuple(c.shape)
            raise ValueError(f"weights, gradients and changes must be alike, got shapes {shapes}")
    now = tuple(momentum * c - rate * g for c, g in zip(before, gradients, strict=True))
    return PDPUpdate(tuple(w + c for w, c in zip(weights, now, strict=True)), now)


def _lift(x: Tensor, bias: bool) -> Tensor:
    return torch.cat([x, torch.ones_like(x[:, :1])], 1) if bias else x


def _drop(x: Tensor, bias: bool) -> Tensor:
    return x[:, :-1] if bias else x


def _checked(
    weights: Sequence[Tensor], x: Tensor, y: Tensor, units: str | Sequence[str], bias: bool
) -> list[tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]]:
    if not weights:
        raise ValueError("weights must hold at least one layer, got none")
    arguments.floats("x", x, ndim=2)
    width = x.shape[1]
    for i, w in enumerate(weights):
        arguments.floats(f"weights[{i}]", w, ndim=2, width=width + bias)
        width = len(w)
    arguments.floats("y", y, ndim=2, width=width)
    if len(y) != len(x):
        raise ValueError(f"y must have {len(x)} rows, got {len(y)}")
    names = [units] * len(weights) if isinstance(units, str) else list(units)
    if len(names) != len(weights):
        raise ValueError(f"units must be {len(weights)} names, got {len(names)}")
    return [_UNITS[arguments.choice("units", name, tuple(_UNITS))] for name in names]
