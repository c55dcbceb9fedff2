r"""What an optimiser makes of curvature: the diagonal that it divides by, and its momentum.

Close to a point an adaptive method that moves by $\theta \leftarrow \theta - \eta D^{-1} m$ sees
the loss with $D^{-1/2} H D^{-1/2}$ in the place of the Hessian $H$, as long as its diagonal $D$
changes slowly. Along an eigenvector with eigenvalue $\lambda$ it is stable if and only if $\eta
\lambda < c$, with

| method | $D$ | $c$ |
|---|---|---|
| gradient descent with momentum $\mu$ and dampening $\tau$ | 1 | $2 (1 + \mu) / (1 - \tau)$ |
| the same in Nesterov's form | 1 | $2 (1 + \mu) / (1 + 2 \mu)$ |
| Adagrad, step $t$ | $(\sqrt{s} + \epsilon) (1 + (t - 1) \delta)$ | 2 |
| RMSprop with momentum $\mu$ | $\sqrt v + \epsilon$ | $2 (1 + \mu)$ |
| Adam, AdamW, step $t$ | $(1 - \beta_1^t) (\sqrt{v / (1 - \beta_2^t)} + \epsilon)$ | $2 (1 + \beta_1) / (1 - \beta_1)$ |

where the moving mean of Adam is heavy ball with steps $(1 - \beta_1) \eta$. The bounds are those of
the two-term recursion with a constant $D$; weight decay is left out.

References:
    Cohen, Kaur, Li, Kolter and Talwalkar, Gradient descent on neural networks typically occurs at
    the edge of stability, ICLR, 2021. Cohen et al., Adaptive gradient methods at the edge of
    stability, arXiv:2207.14484, 2022.
"""  # noqa: E501

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from vademecum.gradients.network_function import Functional
from vademecum.optimization.momentum import HeavyBall

__all__ = ["Preconditioner", "preconditioner_of", "threshold_of"]

Group = dict[str, Any]


class Preconditioner(NamedTuple):
    """What an optimiser does to the parameters of a network.

    Example:
        >>> from vademecum.gradients import functional
        >>> model = nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        >>> preconditioner_of(optimizer, functional(model))
        Preconditioner(scale=tensor([1., 1., 1.]), bound=3.8)
    """

    scale: Tensor
    """The diagonal of $D^{-1/2}$, zero for parameters that the optimiser does not move."""
    bound: float
    r"""The bound $c$ of $\eta \lambda$, with the rate $\eta$ of the first group."""


def preconditioner_of(optimizer: Any, f: Functional) -> Preconditioner:
    """The preconditioner that an optimiser is at its present state.

    Raises:
        ValueError: If the optimiser is of another kind, holds none of the model's parameters, has
            not made a step that it needs, or has several momenta.
    """
    kind = type(optimizer)
    if not isinstance(optimizer, Optimizer) or kind not in _DIAGONALS:
        known = ", ".join(kind.__name__ for kind in _DIAGONALS)
        raise ValueError(f"preconditioner must be one of {known}, got {kind.__name__}")
    names = {id(p): name for name, p in f.parameters.items()}
    scales = {name: torch.zeros_like(p.detach()) for name, p in f.parameters.items()}
    rate, bounds, moved = float(optimizer.param_groups[0]["lr"]), set[float](), False
    if not rate > 0:
        raise ValueError(f"the first rate of preconditioner must be > 0, got {rate}")
    for group in optimizer.param_groups:
        ratio = float(group["lr"]) / rate
        for p in group["params"]:
            if id(p) in names and p.requires_grad:
                bounds.add(_bound(kind, group))
                state = optimizer.state.get(p, {})
                if _DIAGONALS[kind] is _plain or float(state.get("step", 0)) > 0:
                    D, moved = _DIAGONALS[kind](group, state, p.detach()), True
                    scales[names[id(p)]] = (ratio / D).sqrt()
    if not bounds:
        raise ValueError("preconditioner must hold parameters of model, got none of them")
    if not moved:
        raise ValueError("preconditioner must have made a step, got one that has made none")
    if len(bounds) > 1:
        raise ValueError(f"preconditioner must have one momentum, got the bounds {sorted(bounds)}")
    return Preconditioner(f.ravel(scales), bounds.pop())


def threshold_of(optimizer: Optimizer) -> float:
    r"""The curvature $c / \eta$ that the first group's steps bear.

    Example:
        >>> threshold_of(torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1))
        20.0
    """
    group = optimizer.param_groups[0]
    return _bound(type(optimizer), group) / float(group["lr"])


def _bound(kind: type[Optimizer], group: Group) -> float:
    if issubclass(kind, Adam):
        mu = float(group["betas"][0])
        return 2 * (1 + mu) / (1 - mu)
    mu = float(group.get("momentum", 0.0))
    if group.get("nesterov"):
        return 2 * (1 + mu) / (1 + 2 * mu)
    return 2 * (1 + mu) / (1 - (group.get("dampening", 0.0) if mu else 0.0))


def _adam(group: Group, state: dict[str, Any], p: Tensor) -> Tensor:
    (first, second), t = group["betas"], float(state["step"])
    v = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"]
    return (1 - first**t) * ((v / (1 - second**t)).sqrt() + group["eps"])


def _rmsprop(group: Group, state: dict[str, Any], p: Tensor) -> Tensor:
    v = state["square_avg"]
    v = v - state["grad_avg"] ** 2 if group["centered"] else v
    return v.clamp(min=0).sqrt() + group["eps"]


def _adagrad(group: Group, state: dict[str, Any], p: Tensor) -> Tensor:
    slower = 1 + (float(state["step"]) - 1) * group["lr_decay"]
    return (state["sum"].sqrt() + group["eps"]) * slower


def _plain(group: Group, state: dict[str, Any], p: Tensor) -> Tensor:
    return torch.ones_like(p)


_DIAGONALS: dict[type[Optimizer], Callable[[Group, dict[str, Any], Tensor], Tensor]] = {
    SGD: _plain,
    HeavyBall: _plain,
    Adagrad: _adagrad,
    RMSprop: _rmsprop,
    Adam: _adam,
    AdamW: _adam,
}
