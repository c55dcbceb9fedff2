r"""The Jacobian of each example's outputs, a few examples at a time.

Where examples do not influence each other, the Jacobian of $n$ examples with $k$ outputs each is
known from $n$ blocks $B_i = \partial f(\theta, x_i) / \partial \theta \in \mathbb{R}^{k \times P}$
(or $\partial f(\theta, x_i) / \partial x_i$). Since $\sum_i f_c(\theta, x_i)$ has the gradient
$\partial f_c(\theta, x_i) / \partial z_i$ in what belongs to example $i$, a backward pass for each
$c$ brings the rows $c$ of all blocks: in $\theta$ by the rules of
`vademecum.gradients._layer_rules`, else by `torch.func`.

The bytes for one example are an estimate, from those that autograd keeps (`Plan.portion`).
"""

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arrays import empty
from vademecum.gradients._compared_passes import others, record
from vademecum.gradients._example_passes import fill, places
from vademecum.gradients._footprints import dtypes_of, run_inputs
from vademecum.gradients._independent_rows import Plan, portions_of, study
from vademecum.gradients._recorded_pass import run
from vademecum.gradients.network_function import Functional
from vademecum.models import (
    count_examples,
    differentiable_output,
    insist_on_same_outputs,
    map_tensors,
    mapped_derivatives,
    replaced,
    variable,
)
from vademecum.progress import ticking

__all__ = ["Blocks", "Outputs"]

_PORTION = {"cpu": 2**30}  # bytes at a time, beyond which larger portions do not pay
_IN_PLACE = {"cpu"}  # devices where rules write to where gradients belong


class Outputs:
    """The outputs of a network for all examples, from a pass that is made when they are needed."""

    def __init__(self, make: Callable[[], Tensor]):
        self._make, self.known = make, None

    known: Tensor | None

    def __call__(self) -> Tensor:
        """The outputs."""
        if self.known is None:
            self.known = self._make()
        return self.known


class Blocks:
    """The blocks of a Jacobian, of `shape` (examples, outputs, variables).

    Where a pass goes not as one of few did, but no output moved, `moved` tells so: then these are
    blocks of each example by itself, and perhaps not of the Jacobian of all.

    Raises:
        ValueError: If examples influence each other, or one is too large for `memory`.
    """

    def __init__(
        self,
        f: Functional,
        x: Any,
        wrt: str,
        memory: int | None,
        outputs: Outputs,
        plan: Plan | None = None,
    ):
        self.f, self.x, self.wrt, self.outputs = f, x, wrt, outputs
        self.plan = study(f, x, wrt="theta" if wrt == "theta" else "x", plan=plan)
        self.moved = self.plan.moved
        at = f.theta if wrt == "theta" else variable(x, wrt)
        n, k = count_examples(x, checked=True), self.plan.shape.numel()
        d = at.numel() if wrt == "theta" else at.numel() // n
        self.shape, self.dtype, self.device = (n, k, d), at.dtype, at.device
        if wrt != "theta":
            self._insist_on_company()
        elif outputs.known is not None:  # or else a pass over all may tell
            self._insist_on(self.plan.few.output, self.plan.rows)
        width, mapped = d * self.dtype.itemsize, wrt == "theta" and not self.plan.covered
        rows = k if wrt == "theta" else 1  # in x, what a backward pass leaves is written at once
        self.step = self._step(rows, width, memory, mapped=mapped)
        self._long_step = self.step
        if memory is None and self._in_place:
            self._long_step = self._step(rows, 0, None, mapped=mapped)

    def _step(self, rows: int, width: int, memory: int | None, *, mapped: bool) -> int:
        n = self.shape[0]
        if memory is None:
            one = self.plan.bytes_each(rows, width, mapped=mapped)
            memory = max(one, _PORTION.get(self.device.type, 2**32))
            n = -(-n // -(-n * one // memory))  # portions of one length
        return min(n, self.plan.portion(rows, width, memory, mapped=mapped))

    @property
    def _in_place(self) -> bool:
        """Whether rules write rows to where these belong, and take no room for them before."""
        computed = self.plan.shared and not self.plan.copies
        covered = self.wrt == "theta" and self.plan.covered and not computed
        return covered and self.device.type in _IN_PLACE

    def portions(self) -> Iterator[slice]:
        """The examples that are computed at once."""
        return portions_of(slice(0, self.shape[0]), self.step)

    def all(self, *, progress: bool) -> Float[Tensor, " n k d"]:
        """All blocks."""
        result = empty(*self.shape, dtype=self.dtype, device=self.device)
        with ticking("examples", self.shape[0], progress=progress) as tick:
            for here in portions_of(slice(0, self.shape[0]), self._long_step):
                self.fill(here, result[here])
                tick(here.stop - here.start)
        return result

    def some(self, here: slice) -> Float[Tensor, " portion k d"]:
        """The blocks of some examples."""
        size = here.stop - here.start, *self.shape[1:]
        result = empty(*size, dtype=self.dtype, device=self.device)
        self.fill(here, result)
        return result

    def fill(self, here: slice, into: Float[Tensor, " portion k d"]) -> None:
        """Write the blocks of some examples."""
        x = map_tensors(self.x, itemgetter(here))
        if self.wrt != "theta":
            self._fill_inputs(here, x, into)
            return
        found = record(self.f, self.plan, self.x, here)
        if found is not None:
            done, k = found[0], self.shape[1]
            if done.output.shape[1:] != self.plan.shape:  # but few examples have another
                insist_on_same_outputs(done.output[:1], self.plan.few.output[:1], dtypes_of(self.f))
            each = torch.eye(k, dtype=done.output.dtype, device=self.device)[:, None]
            each = each.expand(k, len(into), k).reshape(k, *done.output.shape)
            fill(done, done.backward(each), places(self.f, into))
            self._insist_on(done.output, here)
        if found is None or not found[1]():
            self.moved |= self.plan.covered and len(into) > self.plan.shared
            self._insist_on_company()
            rows = mapped_derivatives(
                self.f, _flat, x, torch.zeros(len(into)), derivative=torch.func.jacrev
            )
            for name, place in places(self.f, into).items():
                place.copy_(rows[name])

    def _insist_on(self, output: Tensor, here: slice | list[int]) -> None:
        """Refuse outputs of some examples that are not those which they have among all others."""
        if self.outputs.known is None and here == slice(0, self.shape[0]):
            self.outputs.known = output.detach()
            return
        insist_on_same_outputs(output, self.outputs()[here], dtypes_of(self.f))

    def _insist_on_company(self) -> None:
        """Refuse examples of which one moves the outputs of all others, wherever it is."""
        f, plan, n, theta = self.f, self.plan, self.shape[0], self.wrt == "theta"
        self._insist_on(plan.few.output, plan.rows)
        if n <= len(plan.rows) or (theta and not plan.covered):
            return  # the study made such passes
        for rows in others(plan.rows, slice(0, n)):
            x = map_tensors(self.x, itemgetter(rows))
            few = run(f, plan.layers, x, shared=plan.by_hand) if theta else run_inputs(f, x)
            self._insist_on(differentiable_output(few.output, len(rows)), rows)

    def _fill_inputs(self, here: slice, x: Any, into: Tensor) -> None:
        with torch.enable_grad():
            v = variable(x, self.wrt).detach().clone().requires_grad_()
            output = self.f(self.f.theta, replaced(x, self.wrt, v))
            totals = output.reshape(len(v), -1).sum(0)
        for i, total in enumerate(totals):
            (found,) = torch.autograd.grad(total, v, retain_graph=True)
            into[:, i] = found.reshape(len(v), -1)
        self._insist_on(output, here)  # when all that a GPU has to do is under way


def _flat(output: Tensor, _: Tensor) -> Tensor:
    return output.flatten()
