r"""Passes that bring what is known of the gradients of a network's outputs, for some examples.

One forward and $k$ backward passes (one for the sum of all outputs) bring to each layer what its
rule needs. Where rules do not cover a model, those parameters that have layers with a rule are
tried by themselves, and `torch.func` maps the derivative of one example in the rest over all.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from vademecum.gradients._compared_passes import record
from vademecum.gradients._independent_rows import Plan, portions_of, study
from vademecum.gradients._recorded_pass import Pass, layers_of
from vademecum.gradients.network_function import Functional
from vademecum.kernels._layer_products import Tangents
from vademecum.kernels._tangent_uses import Use
from vademecum.models import count_examples, differentiable_output, map_tensors, mapped_derivatives

__all__ = ["TangentPasses"]

_MAPPED = 2**27  # bytes at a time for `torch.func`


class TangentPasses:
    """What is known of the gradients of a network's outputs.

    Args:
        f: The network.
        x: Inputs.
        summed: Whether the gradient of the sum of all outputs is wanted, not those of each.
        scales: What the gradients in some parameters are multiplied with, by their names.
    """

    def __init__(self, f: Functional, x: Any, *, summed: bool, scales: Mapping[str, float]):
        self.f, self.x, self.summed, self._scales = f, x, summed, scales
        self.n, self.dtype = count_examples(x), torch.promote_types(f.dtype, torch.float32)
        plan = study(f, x)
        self.k = plan.shape.numel()
        self.g = 1 if summed else self.k
        self.ruled, self.plan, self.rest = _divided(f, plan, x)

    @property
    def bytes_each(self) -> int:
        """About what is held of one example, and in passing."""
        rest = 0 if self.rest is None else 4 * self.g * self.rest.size
        return (self.g + 3) * self.plan.saved + rest * self.dtype.itemsize

    def __call__(self, here: slice) -> Tangents:
        """What is known for some of the examples."""
        found = None
        if self.ruled is not None:
            with torch.enable_grad():
                found = record(self.ruled, self.plan, self.x, here)
        if found is None:
            return self._mapped(self.f, here)
        done, same = found
        uses = self._uses(done)
        if not same():  # other examples change what layers see
            return self._mapped(self.f, here)
        return {**uses, **({} if self.rest is None else self._mapped(self.rest, here))}

    def _uses(self, done: Pass) -> dict[str, list[Use]]:
        differentiable_output(done.result)
        _insist_on_finite(done.output)
        n, z = len(done.output), done.output
        if self.summed:
            u = torch.ones_like(z)[None]
        else:
            eye = torch.eye(self.k, dtype=z.dtype, device=z.device)[:, None]
            u = eye.expand(self.k, n, self.k).reshape(self.k, *z.shape)
        found: dict[str, list[Use]] = {}
        for i, (call, b) in enumerate(zip(done.calls, done.backward(u), strict=True)):
            if b is None:
                continue
            a = call.a.detach()
            a = a.to(self.dtype) if a.is_floating_point() else a
            b = b.to(self.dtype)
            for own, name in call.names.items():
                use = Use(call.rule, call.layer, call.names, i, own, a, b)
                use = use.scaled(self._scales[name]) if name in self._scales else use
                found.setdefault(name, []).append(use)
        return found

    def _mapped(self, f: Functional, here: slice) -> dict[str, Tensor]:
        row = max(1, 2 * self.g * f.size * f.dtype.itemsize)
        parts: dict[str, list[Tensor]] = {}
        for part in portions_of(here, max(1, _MAPPED // row)):
            x = map_tensors(self.x, itemgetter(part))
            n = part.stop - part.start
            take = _total if self.summed else _flat
            with torch.enable_grad():
                found = mapped_derivatives(f, take, x, torch.zeros(n), derivative=torch.func.jacrev)
            for name, each in found.items():
                parts.setdefault(name, []).append(each.reshape(n, self.g, -1))
        joined = {name: torch.cat(each).movedim(1, 0) for name, each in parts.items()}
        return {
            name: self._scales.get(name, 1.0) * t.to(self.dtype).contiguous()
            for name, t in joined.items()
        }


def _flat(output: Any, _: Tensor) -> Tensor:
    return differentiable_output(output, graph=False).flatten()


def _total(output: Any, _: Tensor) -> Tensor:
    return differentiable_output(output, graph=False).sum()[None]


def _divided(
    f: Functional, plan: Plan, x: Any
) -> tuple[Functional | None, Plan, Functional | None]:
    """The part of the parameters that rules cover, the plan for it, and the rest."""
    if plan.covered:
        return f, plan, None
    names = {name for layer in layers_of(f) if layer.rule for name in layer.names.values()}
    if not names or len(names) == len(f.parameters):
        return None, plan, f
    ruled = f.part(names)
    found = study(ruled, x)
    if not found.covered:
        return None, plan, f
    return ruled, found, f.part(f.parameters.keys() - names)


def _insist_on_finite(z: Tensor) -> None:
    good = z.detach().isfinite().flatten(1).all(1)
    if not bool(good.all()):
        i = int((~good).nonzero()[0])
        raise ValueError(f"outputs of model must be finite, and those of example {i} are not")
