r"""Backpropagation through time, step by step.

For $(y_t, z_t) = F_\theta(x_t, z_{t-1})$ and a loss $L(y_1, \dots, y_T)$ the adjoints $\delta_t =
dL / dz_t$ are found from the last step to the first, and with them the gradients, split by step:

$$\delta_t = \frac{\partial L}{\partial y_t} \frac{\partial y_t}{\partial z_t}
+ \delta_{t+1} \frac{\partial z_{t+1}}{\partial z_t}, \qquad
\frac{dL}{d\theta} = \sum_t \frac{\partial L}{\partial y_t} \frac{\partial y_t}{\partial \theta}
\Big|_{z_t} + \delta_t \frac{\partial^+ z_t}{\partial \theta},$$

with $\partial^+$ the derivative of one step at a fixed state $z_{t-1}$. Truncated after every $k$
steps, $\delta_{t+1}\, \partial z_{t+1} / \partial z_t$ is left out at $t = k, 2k, \dots$ (counted
from 1): that is the loop that detaches the state every $k$ steps.

Each step is differentiated by itself, from leaves of its own; the recursion between the steps is
this module's. The tensors that a step returns as its state are $z_t$: what is computed from their
numbers in the same step, an output or the $h_t$ of an LSTM's $c_t$, counts in their adjoints. Exact
up to rounding; the claims are `bptt_state_gradient` and those after it.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.gradients.loss_gradient import loss_of
from vademecum.models import (
    Loss,
    evaluation,
    map_tensors,
    run_with,
    tensor_places,
    unwrapped,
)
from vademecum.recurrence._stepping import (
    Chain,
    Network,
    is_smooth,
    network_of,
    new_leaves,
    smooth_leaves,
)
from vademecum.recurrence.through_time._arrangements import arranged, parts_of
from vademecum.results import one_line

__all__ = ["BPTT", "bptt"]


class BPTT(NamedTuple):
    """What backpropagation through time computes. Everything by step has T entries in front.

    Example:
        >>> model = nn.RNN(1, 1, bias=False, nonlinearity="relu")
        >>> _ = [nn.init.constant_(p, 0.5) for p in model.parameters()]
        >>> found = bptt(model, torch.ones(3, 1), None, loss=lambda y, _: y[-1].sum())
        >>> found.states["h_l0"].flatten(), found.adjoints["h_l0"].flatten()
        (tensor([0.5000, 0.7500, 0.8750]), tensor([0.2500, 0.5000, 1.0000]))
    """

    loss: Tensor
    """The loss."""
    outputs: Tensor
    """The outputs of all steps, as the model gives them."""
    states: dict[str, Tensor]
    """The states $z_t$, by the names of their tensors: `states["h_l0"][t]` after reading step t."""
    adjoints: dict[str, Tensor]
    """The gradients of the loss in these."""
    step_gradients: dict[str, Tensor]
    """The gradients in the parameters, by their names, that come of each step."""
    input_gradient: Tensor | None
    """The gradient in the inputs, shaped like these; None if they are integers."""

    __repr__ = one_line

    @property
    def gradients(self) -> dict[str, Tensor]:
        """The gradients in the parameters: the sums over all steps."""
        return {name: g.sum(0) for name, g in self.step_gradients.items()}


class _Step(NamedTuple):
    """One step with its own graph."""

    x: Tensor
    before: dict[str, Tensor]
    y: Tensor
    after: dict[str, Tensor]


class _Found:
    """Where the results of all steps are written."""

    def __init__(self, theta: dict[str, Tensor], T: int):
        self.theta, self.T = theta, T
        self.states: dict[str, Tensor] = {}
        self.adjoints: dict[str, Tensor] = {}
        self.gradients = {name: p.new_zeros((T, *p.shape)) for name, p in theta.items()}

    def write(self, t: int, step: _Step, adjoints: dict[str, Tensor]) -> None:
        """Keep the states of a step and their adjoints."""
        for name, z in step.after.items():
            for table, value in ((self.states, z), (self.adjoints, adjoints[name])):
                if name not in table:
                    table[name] = value.detach().new_zeros((self.T, *value.shape))
                table[name][t] = value.detach()


def bptt(
    model: nn.Module, x: Tensor, y: Any, *, loss: Loss | None = None, truncate: int | None = None
) -> BPTT:
    r"""Backpropagation through time: adjoints of all states, and gradients split by step.

    The model is taken in evaluation mode, from a state of zeros (what `step` makes of None), and
    never changed: nothing is written to `.grad`.

    Args:
        model: `nn.RNN`, `nn.LSTM` or `nn.GRU`, stacked or in both directions; a cell of torch's; or
            a module with `step(x_t, state)` that gives an output and the next state, and takes
            None at first.
        x: The inputs, in the order of axes that torch's layer takes; else (n, T, ...), where the
            steps get (n, ...).
        y: The targets for the loss.
        loss: A function of the outputs of all steps, as the model gives them, and of targets, with
            one number for all; for a loss at the end it looks at the last step only. By default the
            cross-entropy for integer targets and the mean squared error for others.
        truncate: After how many steps the state is detached; by default never.

    Returns:
        A `BPTT`. Its `gradients` are autograd's; with `truncate`, those of the loop that detaches
        the state.

    Raises:
        ValueError: If the model is not recurrent, the inputs or targets do not fit it, the loss is
            not one number, or a model in two directions is to be truncated.

    References:
        Werbos, Backpropagation through time: what it does and how to do it, Proceedings of the
        IEEE, 1990. Williams and Peng, An efficient gradient-based algorithm for on-line training of
        recurrent network trajectories, Neural Computation, 1990.

    Example:
        >>> model = nn.RNN(1, 1, bias=False, nonlinearity="relu", batch_first=True)
        >>> _ = [nn.init.constant_(p, 0.5) for p in model.parameters()]
        >>> x, last = torch.ones(1, 3, 1), lambda y, _: y[:, -1].sum()
        >>> found = bptt(model, x, None, loss=last)  # h = 0.5, 0.75, 0.875
        >>> found.step_gradients["weight_hh_l0"].flatten(), found.gradients["weight_hh_l0"]
        (tensor([0.0000, 0.2500, 0.7500]), tensor([[1.]]))
        >>> bptt(model, x, None, loss=last, truncate=1).gradients["weight_hh_l0"]
        tensor([[0.7500]])
    """
    model = unwrapped(model)
    network = network_of(model, x)
    if truncate is not None:
        whole("truncate", truncate, low=1)
        if not network.one_way:
            raise ValueError(f"truncate must be None for a model in two directions, got {truncate}")
    names: dict[int, str] = {}
    theta: dict[str, Tensor] = {}
    tensors: dict[str, Tensor] = {}
    for place, p in tensor_places(model, "parameters"):
        if is_smooth(p):
            name = names.setdefault(id(p), place)
            tensors[place] = theta.setdefault(name, p.detach().clone().requires_grad_())
    with evaluation(model), torch.enable_grad():
        return run_with(model, tensors, lambda: _passes(network, y, loss, theta, truncate))


def _passes(
    network: Network, y: Any, loss: Loss | None, theta: dict[str, Tensor], truncate: int | None
) -> BPTT:
    x, walks = network.x.detach(), []
    for layer in network.layers:
        walks.append([_forward(chain, x) for chain in layer])
        outputs = [_in_order(chain, w) for chain, w in zip(layer, walks[-1], strict=True)]
        x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
    z = x.clone().requires_grad_(is_smooth(x))
    if not is_smooth(z):
        raise ValueError(f"outputs of model must be floating point, got {z.dtype}")
    value = loss_of(network.as_given(z), y, loss)
    (xi,) = torch.autograd.grad(value, z)
    found = _Found(theta, network.x.shape[1])
    for layer, walk in zip(reversed(network.layers), reversed(walks), strict=True):
        parts = xi.tensor_split(len(layer), -1) if len(layer) > 1 else [xi]
        pulled = [
            _backward(*each, found, truncate) for each in zip(layer, walk, parts, strict=True)
        ]
        xi = pulled[0] if len(pulled) == 1 else pulled[0] + pulled[1]
    names = [name for walk in walks for steps in walk for name in steps[-1].after]
    return BPTT(
        value.detach(),
        network.as_given(x),
        {name: found.states[name] for name in names},
        {name: found.adjoints[name] for name in names},
        found.gradients,
        network.as_given(xi) if is_smooth(network.x) else None,
    )


def _forward(chain: Chain, x: Tensor) -> list[_Step]:
    """The steps in the order of the chain, each from leaves of its own."""
    state, steps = chain.start(x), []
    for t in chain.times(x.shape[1]):
        x_t, state = new_leaves(x[:, t]), new_leaves(state)
        before = smooth_leaves(state)
        y, state = chain.step(x_t, map_tensors(state, Tensor.clone))  # some steps work in place
        steps.append(_Step(x_t, before, y, smooth_leaves(state)))
    return steps


def _in_order(chain: Chain, steps: list[_Step]) -> Tensor:
    outputs = [step.y.detach() for step in steps]
    return torch.stack(outputs[::-1] if chain.reverse else outputs, 1)


def _backward(
    chain: Chain, steps: list[_Step], xi: Tensor, found: _Found, truncate: int | None
) -> Tensor:
    """The gradient in the chain's inputs; all else is written into what was `found`."""
    later: dict[str, Tensor] = {}
    pulled: dict[int, Tensor] = {}
    for i, t in reversed(list(enumerate(chain.times(len(steps))))):
        step = steps[i]
        back = _pull(step, xi[:, t], later, list(found.theta.values()))
        found.write(t, step, back.adjoints)
        later = {} if truncate is not None and i % truncate == 0 else back.before
        pulled[t] = back.x
        for name, g in zip(found.theta, back.theta, strict=True):
            if g is not None:
                found.gradients[name][t] += g.to_dense()  # those of embeddings may be sparse
    return torch.stack([pulled[t] for t in range(len(steps))], 1)


class _Pulled(NamedTuple):
    """Gradients in a step's states, in those before, in its inputs and in the parameters."""

    adjoints: dict[str, Tensor]
    before: dict[str, Tensor]
    x: Tensor
    theta: list[Tensor | None]


def _pull(step: _Step, xi: Tensor, later: dict[str, Tensor], theta: list[Tensor]) -> _Pulled:
    """One step back: with `xi` for the output, and what comes of the next step for the states."""
    given = {name: later.get(name, torch.zeros_like(z)) for name, z in step.after.items()}
    ends = [(step.y, xi), *((step.after[name], given[name]) for name in given if name in later)]
    ends = [(end, g) for end, g in ends if end.requires_grad]
    parts = {name: parts_of(z) for name, z in step.after.items() if z.requires_grad}
    groups: list[list[Any]] = [parts[name] or [step.after[name]] for name in parts]
    groups += [list(step.before.values()), [step.x] if step.x.requires_grad else [], theta]
    wanted = [leaf for group in groups for leaf in group]
    if ends:
        tensors, cotangents = zip(*ends, strict=True)
        again = any(parts.values())
        got = iter(torch.autograd.grad(tensors, wanted, cotangents, again, allow_unused=True))
    else:
        got = iter([None] * len(wanted))
    *states, before, x, by_theta = [[next(got) for _ in group] for group in groups]
    for name, found in zip(parts, states, strict=True):
        z, u = step.after[name], given[name]
        given[name] = arranged(z, found, u) if parts[name] else _or_zeros(found[0], u)
    earlier = zip(step.before.items(), before, strict=True)
    return _Pulled(
        given,
        {name: _or_zeros(g, z) for (name, z), g in earlier},
        _or_zeros(x[0] if x else None, step.x),
        by_theta,
    )


def _or_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient
