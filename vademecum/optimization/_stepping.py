r"""The base of our optimisers: what happens around $\theta_{t+1} = \theta_t + u_t$, whatever $u_t$.

A method says how a step goes (`_update`), what it keeps for each parameter (`_new_state`) and which
options it takes (`_checked`); here are groups, closures, rates, gradients that no step can use, and
states that are nobody else's.

A gradient that is not finite stops a step before it has touched a parameter. On a CPU every
gradient is summed first, the last one first: a sum is finite if all its terms are, up to overflow,
which is looked into, and the gradients that the sums have left in the cache are those with which
the step begins. An accelerator is not waited for: there a step is multiplied by `keep`, 0 or 1 on
the device, and the error is raised by the next step that finds the answer in the host's memory.

Sharded parameters (`DTensor`) are judged by the whole gradient, so that all processes agree.
"""

import copy
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.arguments import number

__all__ = ["Batch", "Descent", "downhill", "gathered", "is_sharded", "rate", "scalar", "together"]


class Batch(NamedTuple):
    """Parameters of one group on one device that have gradients.

    `keep` is None if the step goes ahead, which is so on a CPU; else it is 0 or 1 on the device,
    and a step with 0 must leave parameters and states as they are, whatever the gradients.
    """

    params: list[Tensor]
    grads: list[Tensor]
    states: list[dict[str, Any]]
    keep: Tensor | None


class Descent(torch.optim.Optimizer):
    """An optimiser whose step is `_update`, abstract."""

    _pending: "tuple[_Verdict, ...]" = ()
    """Verdicts on steps, the earliest first, that the host has not read yet."""
    _own: tuple[str, ...] = ()
    """Options that are no data, such as functions: they stay out of state dicts."""

    def __init__(self, params: Any, defaults: dict[str, Any]):
        super().__init__(params, defaults)

    # What a method says

    def _checked(self, group: dict[str, Any]) -> None:
        """Refuse options of a group that are out of range; here its rate."""
        rate("lr", group["lr"])

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """What is kept for a parameter, from the beginning."""
        return {}

    def _update(self, group: dict[str, Any], batch: Batch) -> None:
        """Take a step; the gradients are as they came, `downhill` makes them fit for it."""
        raise NotImplementedError

    def _evaluate(self, closure: Callable[[], Any] | None) -> Any:
        """Let the closure fill in the gradients, and return its loss."""
        if closure is None:
            return None
        with torch.enable_grad():
            return scalar("closure", closure())

    def _finish(self) -> None:
        """What comes after the step."""

    # What is the same for all

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore
        """Take a step.

        Args:
            closure: Evaluates the loss and its gradients anew, and returns the loss.

        Raises:
            ValueError: If a gradient is not finite, sparse, or not of the parameter's device; then
                no parameter was touched. On an accelerator a gradient that was not finite made
                the step void, and it is a later step that says so.
        """
        self._raise_if_void()
        loss = self._evaluate(closure)
        batches = list(self._batches())
        keeps = self._judge(batches)
        for group, batch in batches:
            keep = keeps.get(batch.params[0].device)
            if keep is not None and any(p.real.dtype == torch.float64 for p in batch.params):
                keep = keep.double()  # lest rates that it multiplies be rounded to float32
            self._update(group, batch._replace(keep=keep))
        self._finish()
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, and make its states."""
        if isinstance(param_group, dict):
            self._checked({**self.defaults, **param_group})
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        with torch.no_grad():
            for p in group["params"]:
                self._has_state(p, group)

    def _has_state(self, p: Tensor, group: dict[str, Any]) -> bool:
        """Whether a parameter is trained; then its state exists afterwards.

        So it does for one that was frozen with a gradient, which a step moves as torch's would.
        """
        moved = p.requires_grad or p.grad is not None
        if moved and p not in self.state and (state := self._new_state(p, group)):
            self.state[p] = state
        return p.requires_grad

    def state_dict(self) -> dict[str, Any]:
        """The state, as a copy: later steps do not change it."""
        made = super().state_dict()
        groups = [
            {k: v for k, v in group.items() if k not in self._own} for group in made["param_groups"]
        ]
        return copy.deepcopy({**made, "param_groups": groups})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state, of which a copy is made."""
        own = [{k: group[k] for k in self._own} for group in self.param_groups]
        super().load_state_dict(copy.deepcopy(state_dict))
        for group, options in zip(self.param_groups, own, strict=True):
            group.update(options)
        self._pending = ()

    def _batches(self) -> Iterator[tuple[dict[str, Any], Batch]]:
        """Groups with what has a gradient, device by device."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            devices = {p.device for p in params}
            for device in devices:
                here = [p for p in params if p.device == device] if len(devices) > 1 else params
                grads = [p.grad for p in here]
                for p, g in zip(here, grads, strict=True):
                    if g.layout is not torch.strided:
                        name = self._name_of(p)
                        raise ValueError(f"the gradient of {name} must be dense, got a sparse one")
                    if p not in self.state:
                        self._has_state(p, group)
                yield group, Batch(here, grads, [self.state.get(p, {}) for p in here], None)

    def _judge(self, batches: list[tuple[dict[str, Any], Batch]]) -> dict[torch.device, Tensor]:
        """Refuse gradients that are not finite; where nobody may wait, what a step is to keep."""
        here, there = [], []
        for _, batch in batches:
            pairs = zip(batch.params, batch.grads, strict=True)
            (there if _may_not_wait(batch.params[0].device) else here).extend(pairs)
        if here and not (finite := _finite([g for _, g in here])).all():
            bad = finite.tolist().index(False)
            raise ValueError(_complaint(self._name_of(here[bad][0])))
        if not there:
            return {}
        finite = _finite([g for _, g in there])
        self._pending += (_Verdict(finite, [p for p, _ in there]),)
        keep = finite.all().float()
        devices = {p.device for p, _ in there}
        return {device: keep.to(device, non_blocking=True) for device in devices}

    def _name_of(self, p: Tensor) -> str:
        for k, group in enumerate(self.param_groups):
            for i, other in enumerate(group["params"]):
                if other is p:
                    names = group.get("param_names")
                    return f"parameter {i} of group {k}" + (f" ({names[i]!r})" if names else "")
        raise KeyError("no parameter of this optimiser")

    def _raise_if_void(self) -> None:
        known = [verdict for verdict in self._pending if verdict.is_known()]
        self._pending = tuple(verdict for verdict in self._pending if verdict not in known)
        bad = next((p for verdict in known if (p := verdict.first_bad()) is not None), None)
        if bad is not None:
            complaint = _complaint(self._name_of(bad))
            raise ValueError(f"{complaint} in an earlier step, which had no effect")


class _Verdict:
    """Which gradients of a step were finite, brought to the host without waiting."""

    def __init__(self, finite: Tensor, params: list[Tensor]):
        self._params, self._event = params, None
        if finite.is_cuda:
            self._finite = torch.empty(finite.shape, dtype=torch.bool, pin_memory=True)
            self._finite.copy_(finite, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(finite.device))
        else:
            self._finite = finite.cpu()

    def is_known(self) -> bool:
        return self._event is None or self._event.query()

    def first_bad(self) -> Tensor | None:
        found = self._finite.tolist()
        return None if all(found) else self._params[found.index(False)]


def rate(name: str, value: Any) -> float:
    """A rate that is at least 0, as a number: it may be a tensor with one entry.

    Example:
        >>> rate("lr", torch.tensor(0.5)), rate("lr", 2)
        (0.5, 2)
    """
    if isinstance(value, Tensor):
        if value.numel() != 1 or value.is_complex():
            raise ValueError(f"{name} must be a number, got a tensor of shape {tuple(value.shape)}")
        value = value.item()
    return number(name, value, low=0)


def scalar(name: str, loss: Any) -> Any:
    """What a closure returns: anything, but no tensor with many entries."""
    if isinstance(loss, Tensor) and loss.numel() != 1:
        raise ValueError(f"{name} must return one number, got a loss of shape {tuple(loss.shape)}")
    return loss


def is_sharded(x: Tensor) -> bool:
    """Whether a tensor is a `DTensor`; torch's distributed package is not imported to find out."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def gathered(x: Any) -> Tensor:
    """The whole of a tensor that may be sharded."""
    return x.full_tensor() if is_sharded(x) else x


def together(group: dict[str, Any], params: list[Tensor]) -> bool:
    """Whether to treat tensors in one call: as `foreach` says, by default off the CPU."""
    if group["foreach"] is not None:
        return group["foreach"]
    plain = all(type(p) in (Tensor, torch.nn.Parameter) for p in params)
    return plain and params[0].device.type != "cpu"


def downhill(group: dict[str, Any], batch: Batch) -> list[Tensor]:
    """The gradients of what is to fall, and zeros if the step is void: 0 times NaN is not 0."""
    grads = batch.grads
    if batch.keep is not None:
        going = batch.keep > 0
        grads = [torch.where(going, g, torch.zeros_like(g)) for g in grads]
    if group["maximize"]:
        return list(torch._foreach_neg(grads)) if together(group, grads) else [-g for g in grads]
    return grads


def _may_not_wait(device: torch.device) -> bool:
    return device.type != "cpu"


def _complaint(name: str) -> str:
    return f"the gradient of {name} must be finite, got one that is not"


def _finite(grads: list[Any]) -> Tensor:
    """Which gradients are finite, each as a whole."""
    sharded = "torch.distributed.tensor" in sys.modules and any(map(is_sharded, grads))
    parts = [g.to_local() if is_sharded(g) else g for g in grads] if sharded else grads
    parts = [_real(x) if x.is_complex() else x for x in parts]
    if _may_not_wait(parts[0].device):
        largest = torch._foreach_norm(
            [x if x.numel() else x.new_zeros(1) for x in parts], torch.inf
        )
        dtype = torch.float64 if any(x.itemsize == 8 for x in largest) else torch.float32
        flags = torch.stack([x.to(parts[0].device, dtype) for x in largest]).isfinite()
    else:
        sums = [x.sum().item() for x in reversed(parts)]
        pairs = zip(parts, reversed(sums), strict=True)
        flags = torch.tensor([math.isfinite(s) or bool(x.isfinite().all()) for x, s in pairs])
    return _agreed(flags, grads) if sharded else flags


def _real(x: Tensor) -> Tensor:
    return torch.view_as_real(x.resolve_conj())


def _agreed(flags: Tensor, grads: list[Any]) -> Tensor:
    """Flags of whole tensors from those of this process's shards: the least on every mesh."""
    for mesh in dict.fromkeys(g.device_mesh for g in grads if is_sharded(g)):
        from torch.distributed.tensor import DTensor, Partial  # has been imported already

        places = [i for i, g in enumerate(grads) if is_sharded(g) and g.device_mesh == mesh]
        shares = DTensor.from_local(flags[places].float(), mesh, [Partial("min")] * mesh.ndim)
        flags[places] = shares.full_tensor() > 0
    return flags
