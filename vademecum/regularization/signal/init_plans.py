r"""Scales of weights at which signals keep their size through a network: a plan, and its use.

For a layer of $k$ inputs with second moment $q$ each and no bias, weights of mean square $t / (k
q)$ give outputs of second moment $t$ in the mean; He's $2 / k$ after ReLU is the case $q = 1/2$, $t
= 1$. Here $t = 1$, and for the last factors of each of $L$ residual branches $t = q_0 / L$, where
$q_0$ is that of the stream at its start: factors are $1 / \sqrt L$ of what they were else, and the
stream doubles if branches know nothing of each other. The method "mean-field" takes $q$ from
theory, as it follows the signal through the layers, "data" from the signal itself.

Weights are multiplied, not drawn anew, and biases of these layers set to zero. By "data" each layer
has its second moment exactly on these inputs, if it is called once.
"""

from copy import deepcopy
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import choice
from vademecum.models import refuse_nan, tensor_places, unwrapped
from vademecum.randomness import own_randomness
from vademecum.regularization.signal._branches import residual_branches
from vademecum.regularization.signal._rescaling import Rescaler, sweep
from vademecum.results import one_line

__all__ = ["InitPlan", "InitStep", "suggest_init"]

_SWEEPS, _CLOSE = 4, 1.02  # passes at most, and the factor that asks for no other


class InitStep(NamedTuple):
    """What to do with one parameter.

    Example:
        >>> plan = suggest_init(nn.Linear(8, 2), torch.randn(5, 8), method="mean-field")
        >>> plan.steps[0].parameter, plan.steps[0].proposed
        ('bias', 0.0)
    """

    parameter: str
    """Its first place in the model."""
    present: float
    """The root of its mean square."""
    proposed: float
    """What that should be."""
    target: float | None
    """The second moment that its layer is to give; None for a bias."""
    reason: str
    """Why."""

    __repr__ = one_line


class InitPlan(NamedTuple):
    """Scales for the parameters of a model, which `apply_` writes.

    Example:
        >>> model = nn.Linear(8, 2, bias=False)
        >>> x = torch.ones(1, 8)
        >>> plan = suggest_init(model, x, method="mean-field")
        >>> _ = plan.apply_(model)
        >>> model.weight.square().mean().item()  # 1 / 8
        0.125
    """

    steps: tuple[InitStep, ...]
    """The parameters to change, in the order of their use."""
    kept: tuple[str, ...]
    """Those that are left alone."""
    depth: int
    """How many residual sums there are."""
    method: str
    """Where second moments came from."""

    __repr__ = one_line

    def table(self) -> str:
        """The steps as text."""
        wide = max(9, *(len(s.parameter) for s in self.steps)) if self.steps else 9
        lines = [f"{'parameter':{wide}} {'present':>10} {'proposed':>10}  reason"]
        for s in self.steps:
            lines.append(f"{s.parameter:{wide}} {s.present:10.4g} {s.proposed:10.4g}  {s.reason}")
        return "\n".join(lines)

    @torch.no_grad()
    def apply_(self, model: nn.Module) -> nn.Module:
        """Multiply the parameters of a model in place, so that they have the proposed scales.

        Args:
            model: The module that the plan was made for, as it was.

        Returns:
            The same module.

        Raises:
            ValueError: If a parameter is not there, or has not the scale that the plan knows.
        """
        places = dict(tensor_places(unwrapped(model), "parameters"))
        for step in self.steps:
            p = places.get(step.parameter)
            given = "no such parameter" if p is None else f"{_scale(p):.6g}"
            if p is None or abs(_scale(p) - step.present) > 1e-3 * step.present:
                raise ValueError(
                    f"model must be as it was when the plan was made, with {step.parameter} of"
                    f" scale {step.present:.6g}, got {given}"
                )
        for step in self.steps:
            p = places[step.parameter]
            if step.proposed == 0:
                p.zero_()
            else:
                p.mul_(step.proposed / step.present)
        return model


def suggest_init(
    model: nn.Module, x: Any, *, method: Literal["mean-field", "data"] = "data"
) -> InitPlan:
    """Propose scales of weights at which signals neither vanish nor explode.

    Args:
        model: Any module, taken in evaluation; it is copied, and stays as it is.
        x: Inputs, examples along the first axis.
        method: Whether second moments come from theory or from the signals of `x`.

    Returns:
        The plan: weights of linear maps, and the last factors of residual branches. Where theory
        knows nothing of a layer, "mean-field" takes what is measured. Embeddings are left alone,
        and so are weights that are computed from other parameters, and zeros.

    Raises:
        ValueError: If the model has no weights to scale.

    References:
        He, Zhang, Ren, Sun, Delving deep into rectifiers, ICCV, 2015. Mishkin, Matas, All you need
        is a good init, ICLR, 2016. Zhang, Dauphin, Ma, Fixup initialization, ICLR, 2019.

    Example:
        >>> model = nn.Sequential(nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 50))
        >>> plan = suggest_init(model, torch.randn(200, 50), method="mean-field")
        >>> plan.steps[3].parameter, round(50 * plan.steps[3].proposed ** 2, 3)  # He's 2 / 50
        ('2.weight', 2.0)
    """
    choice("method", method, ("mean-field", "data"))
    model = unwrapped(model)
    refuse_nan(x)
    copy = deepcopy(model).requires_grad_(False)
    measured = method == "data"
    with own_randomness(None):
        first = sweep(copy, x, measured=measured)
        branches, depth = residual_branches(first.nodes, first.scaled)
        ends = {first.scaled[b.end]: b.start for b in branches}
        watch = first
        for _ in range(_SWEEPS):
            watch = sweep(copy, x, measured=measured, branches=ends, depth=max(depth, 1))
            if all(1 / _CLOSE < s < _CLOSE for s in watch.factors.values() if s):
                break
    steps = _steps(model, copy, watch, ends, depth, measured=measured)
    if not steps:
        raise ValueError("model must have weights of linear maps that meet x, got none")
    places = dict(tensor_places(model, "parameters"))
    changed = {id(places[s.parameter]) for s in steps}
    kept = [name for name, p in places.items() if id(p) not in changed]
    return InitPlan(tuple(steps), tuple(kept), depth, method)


def _steps(
    model: nn.Module,
    copy: nn.Module,
    watch: Rescaler,
    ends: dict[str, int],
    depth: int,
    *,
    measured: bool,
) -> list[InitStep]:
    now, then = (dict(tensor_places(m, "parameters")) for m in (model, copy))
    found: list[InitStep] = []
    for name in watch.factors:
        target = watch.targets.get(name)
        present, proposed = _scale(now[name]), _scale(then[name])
        if present == 0:
            continue
        if target is None:
            reason = "a bias makes examples alike"
        else:
            how = "measured" if measured or name in watch.unknown else "predicted"
            reason = f"second moment {target:.3g}, {how}"
            reason += f": the end of one of {depth} residual branches" * (name in ends)
        found.append(InitStep(name, present, proposed, target, reason))
    return found


def _scale(p: Tensor) -> float:
    return float(torch.linalg.vector_norm(p.detach().double()) / max(p.numel(), 1) ** 0.5)
