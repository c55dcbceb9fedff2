r"""Stochastic variance-reduced gradients (SVRG).

For $f = \frac1n \sum_i f_i$ keep a snapshot $w$ with its full gradient, and step along

$$d = \nabla f_i(\theta) - \nabla f_i(w) + \nabla f(w), \qquad \theta \leftarrow \theta - \eta d,$$

with a drawn batch $i$. Its mean is $\nabla f(\theta)$, and its variance vanishes as $\theta$ and
$w$ approach a minimiser, so that a constant step size converges linearly. Every `period` steps the
snapshot becomes the last iterate or, as in the theorem, the mean of the iterates
$\theta_0, \dots, \theta_{m - 1}$ of the period, from which the next period starts.

The closure of a step is evaluated twice, at $w$ and at $\theta$. In the first step of a period both
are the same point, and the two gradients must agree up to rounding ($\sqrt\varepsilon$ of their
norm): a closure that draws dropout masks or augments its images anew has no $\nabla f_i$. Neither
has one with batch normalisation in training, whose gradient repeats and is refused all the same.

Exact. The claims are `svrg` and `svrg_rate`.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import ParamsT

from vademecum.arguments import choice, whole
from vademecum.optimization._stepping import Batch, Descent, downhill, gathered, scalar

__all__ = ["SVRG"]


class SVRG(Descent):
    r"""Stochastic gradients that are corrected by a full one, taken every `period` steps.

    Afterwards the gradients of the parameters hold the direction $d$ of the step.

    Args:
        params: Parameters, or groups of them with options of their own.
        lr: The step size $\eta \ge 0$, a number or a tensor with one entry.
        period: How many steps a snapshot serves.
        full_closure: Evaluates the loss over all data and its gradients, as closures of steps do:
            it clears the gradients, calls `backward` and returns the loss. Where the data are too
            many for one pass it may add up the gradients of batches.
        snapshot: What becomes the next snapshot: the last iterate, or the mean of the period's,
            to which the parameters are moved then.
        maximize: Whether to climb instead.
        foreach: Whether to treat all tensors in one call; by default off the CPU.

    References:
        Johnson and Zhang, Accelerating stochastic gradient descent using predictive variance
        reduction, NeurIPS, 2013.

    Example:
        >>> x, data = torch.zeros(1, requires_grad=True), torch.tensor([1.0, 3.0])
        >>> def closure(batch=data):
        ...     optimizer.zero_grad()
        ...     loss = (x - batch).square().mean() / 2
        ...     loss.backward()
        ...     return loss
        >>> optimizer = SVRG([x], lr=0.5, period=4, full_closure=closure)
        >>> for i in (0, 1, 1, 0):  # quadratics of one curvature: no variance remains
        ...     _ = optimizer.step(lambda: closure(data[i]))
        >>> x.item()  # 2 - 2 / 2 ** 4
        1.875
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        period: int,
        full_closure: Callable[[], Any],
        *,
        snapshot: Literal["last", "average"] = "last",
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        if not callable(full_closure):
            kind = type(full_closure).__name__
            raise ValueError(f"full_closure must be a function that evaluates all data, got {kind}")
        self.full_closure = full_closure
        self.period = whole("period", period, low=1)
        self.snapshot = choice("snapshot", snapshot, ("last", "average"))
        options = {"maximize": maximize, "foreach": foreach, "t": 0}
        super().__init__(params, {"lr": lr, **options})

    def __getstate__(self) -> dict[str, Any]:
        own = {key: getattr(self, key) for key in ("full_closure", "period", "snapshot")}
        return {**super().__getstate__(), **own}

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = {"snapshot": p.detach().clone(), "full_gradient": torch.zeros_like(p)}
        return state | ({"mean": torch.zeros_like(p)} if self.snapshot == "average" else {})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, and begin a period: its parameters lack a full gradient."""
        super().add_param_group(param_group)
        for group in self.param_groups:
            group["t"] = 0

    @property
    def _t(self) -> int:
        """How many steps of this period are behind us."""
        return self.param_groups[0]["t"]

    def _evaluate(self, closure: Callable[[], Any] | None) -> Any:
        if not callable(closure):
            raise ValueError(f"closure must be a function that evaluates a batch, got {closure!r}")
        params, first = self._trained(), self._t == 0
        if first:
            self._take_snapshot(params)
        with _trained_modules() as seen:
            there = self._at_snapshot(closure, params)
            loss, now = _gradients("closure", closure, params)
        if first:
            _insist_on_repeating(there, now, seen)
        for p, old, new in zip(params, there, now, strict=True):
            p.grad = new - old + self.state[p]["full_gradient"]
        return loss

    def _trained(self) -> list[Tensor]:
        return [p for g in self.param_groups for p in g["params"] if self._has_state(p, g)]

    def _take_snapshot(self, params: list[Tensor]) -> None:
        _, full = _gradients("full_closure", self.full_closure, params)
        for p, gradient in zip(params, full, strict=True):
            self.state[p]["snapshot"].copy_(p)
            self.state[p]["full_gradient"].copy_(gradient)

    def _at_snapshot(self, closure: Callable[[], Any], params: list[Tensor]) -> list[Tensor]:
        here = [p.clone() for p in params]
        try:
            _put(params, [self.state[p]["snapshot"] for p in params])
            return _gradients("closure", closure, params)[1]
        finally:
            _put(params, here)

    def _update(self, group: dict[str, Any], batch: Batch) -> None:
        eta, weight = group["lr"], 1 / (group["t"] + 1)
        if batch.keep is not None:
            eta, weight = eta * batch.keep, weight * batch.keep
        for p, d, state in zip(batch.params, downhill(group, batch), batch.states, strict=True):
            if "mean" in state:
                state["mean"].lerp_(p, weight)
            p.sub_(d * eta)

    def _finish(self) -> None:
        t = (self._t + 1) % self.period
        for group in self.param_groups:
            group["t"] = t
        if t == 0 and self.snapshot == "average":
            params = self._trained()
            _put(params, [self.state[p]["mean"] for p in params])


def _put(params: list[Tensor], values: list[Tensor]) -> None:
    for p, value in zip(params, values, strict=True):
        p.copy_(value)


def _gradients(
    name: str, closure: Callable[[], Any], params: list[Tensor]
) -> tuple[Any, list[Tensor]]:
    """The loss of a closure and its gradients, which are nobody else's."""
    for p in params:
        p.grad = None
    with torch.enable_grad():
        loss = scalar(name, closure())
    if all(p.grad is None for p in params):
        raise ValueError(f"{name} must call backward, got no gradient for any parameter")
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
    return loss, grads


@contextmanager
def _trained_modules() -> Iterator[set[str]]:
    """The kinds of modules in training mode that are called meanwhile."""
    seen: set[str] = set()
    hook = register_module_forward_pre_hook(
        lambda module, _: seen.add(type(module).__name__) if module.training else None
    )
    try:
        yield seen
    finally:
        hook.remove()


def _insist_on_repeating(one: list[Tensor], other: list[Tensor], seen: set[str]) -> None:
    """Refuse two gradients at one point that differ, and batch normalisation in training."""
    for kind in sorted(seen):
        if "BatchNorm" in kind:
            raise ValueError(
                f"closure must have a gradient of its own, got {kind} in training mode, which mixes"
                " the examples of a batch and keeps statistics of both points"
            )
    gap = _norm([a - b for a, b in zip(one, other, strict=True)])
    scale = max(_norm(one), _norm(other))
    if gap > max(torch.finfo(x.dtype).eps for x in one) ** 0.5 * scale:
        masks = [kind for kind in sorted(seen) if "Dropout" in kind]
        reason = f": {masks[0]} is in training mode" if masks else ", as of augmented examples"
        raise ValueError(
            "closure must repeat its gradient at one point, got two that differ by"
            f" {100 * gap / scale:.2g} %{reason}"
        )


def _norm(xs: list[Tensor]) -> float:
    return math.sqrt(sum(float(gathered(x).abs().double().square().sum()) for x in xs))
