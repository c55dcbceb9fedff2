r"""What is minimised: a number that depends on a vector, or the mean of $n$ such numbers.

$f(x) = \frac1n \sum_i f_i(x)$ comes as a function of a vector, whose value is the number $f(x)$ or
the vector of the terms $f_i(x)$, or as a model with data, whose parameters are the vector and whose
examples are the terms. Many vectors at once are mapped by `torch.func.vmap` where f can be mapped.
"""

from collections.abc import Callable
from functools import cached_property
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import floats
from vademecum.gradients import functional
from vademecum.models import (
    Loss,
    Output,
    cannot_be_mapped,
    count_examples,
    described,
    insist_on_same_outputs,
    loss_for,
    map_tensors,
    summed,
    warn_of_slow_path,
)
from vademecum.optimization._krylov import in_full_precision

__all__ = ["Objective", "model_objective", "vector_objective"]

Terms = Callable[[Tensor], Tensor]


class Objective:
    """A function, as a number and as its terms, and where to begin."""

    def __init__(self, start: Tensor, terms: Terms, value: Terms | None = None) -> None:
        self.start, self._terms = start.detach().clone(), terms
        self._value = value or (lambda x: terms(x).mean())
        self._mapped = True

    def value(self, x: Tensor) -> Tensor:
        """The number $f(x)$."""
        return self._value(x)

    def gradient(self, x: Tensor) -> Tensor:
        r"""The vector $\nabla f(x)$."""
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(self.value(x), x)[0]

    def turned(self, x: Tensor, v: Tensor) -> Tensor:
        r"""The product $\nabla^2 f(x)\, v$."""
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            (g,) = torch.autograd.grad(self.value(x), x, create_graph=True)
            if not g.requires_grad:  # of a function that is linear
                return torch.zeros_like(x)
            found = torch.autograd.grad(g @ v, x, allow_unused=True)[0]
        return torch.zeros_like(x) if found is None else found

    def slopes(self, x: Tensor) -> Tensor:
        r"""The gradients $\nabla f_i(x)$, a row each."""
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            terms = self._terms(x)
            rows = [torch.autograd.grad(term, x, retain_graph=True)[0] for term in terms]
        return torch.stack(rows)

    def rows(self, points: Tensor) -> Tensor:
        """The terms at each of many points, a row each."""
        return self._at_each(self._terms, points)

    def values(self, points: Tensor) -> Tensor:
        """The number $f(x)$ at each of many points."""
        return self._at_each(self._value, points)

    def _at_each(self, function: Terms, points: Tensor) -> Tensor:
        if self._mapped:
            try:
                return torch.vmap(function)(points)
            except RuntimeError as error:
                if not cannot_be_mapped(error):
                    raise
                warn_of_slow_path("f is evaluated at one point after the other", error)
                self._mapped = False
        return torch.stack([function(x) for x in points])

    @cached_property
    def count(self) -> int:
        """How many terms there are."""
        return len(self._terms(self.start))


def vector_objective(f: Callable[[Tensor], Tensor], x0: Any, *, terms: bool) -> Objective:
    """A function of a vector; with `terms` its value must be a vector."""
    start = floats("x0", x0, ndim=1)
    if start.is_complex():
        raise ValueError(f"x0 must be real, got {start.dtype}")
    if torch.finfo(start.dtype).bits < 32:
        raise ValueError(f"x0 must be in single or double precision, got {start.dtype}")
    start = start.detach().clone()
    with torch.enable_grad():
        found = f(start.clone().requires_grad_())
    if not isinstance(found, Tensor) or found.ndim > 1 or found.numel() == 0:
        raise ValueError(f"f must give one number or a vector, got {described(found)}")
    if terms and found.ndim != 1:
        raise ValueError(
            "f must give the vector of its terms, one of which is drawn for each step,"
            f" got {described(found)}"
        )
    if not found.requires_grad:
        raise ValueError("f must be differentiable, got a value that requires no gradient")
    floats("f(x0)", found)
    return Objective(start, f, None if found.ndim else f)


def model_objective(
    model: nn.Module, x: Any, y: Any, *, loss: Loss | None, output: Output, terms: bool
) -> Objective:
    """The loss of a model as a function of its parameters; its terms are those of examples."""
    if isinstance(x, DataLoader):
        raise ValueError(
            "x0 must hold the inputs themselves and y the targets, got a DataLoader: the bounds are"
            " for one function, so every step needs all of the data"
        )
    f, measure = functional(model, output=output), loss_for(y, loss)
    if not f.size:
        raise ValueError("model must have parameters to move, got none")
    in_full_precision(f.dtype)
    n = count_examples(x, y)

    def one(theta: Tensor, x: Any, y: Any) -> Tensor:
        alone = map_tensors(x, lambda t: t.unsqueeze(0))
        return summed(measure)(f(theta, alone), None if y is None else y.unsqueeze(0))

    def value(theta: Tensor) -> Tensor:
        found = measure(f(theta, x), y)
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise ValueError(f"loss must give one number, got {described(found)}")
        return found.sum()

    if terms:
        with torch.no_grad():
            among = f(f.theta, x)
            for end in (slice(1), slice(n - 1, n)):  # all may depend on one of them
                alone = f(f.theta, map_tensors(x, itemgetter(end)))
                if isinstance(alone, Tensor):
                    insist_on_same_outputs(alone, among[end], [f.dtype])
    made = Objective(f.theta, _each(one, x, y, n), None if terms else value)
    floats("loss", made.value(f.theta))
    return made


def _each(one: Callable[[Tensor, Any, Any], Tensor], x: Any, y: Any, n: int) -> Terms:
    """The terms of all examples, at once where the model can be mapped."""
    places, mapped = (None, 0, None if y is None else 0), True

    def each(theta: Tensor) -> Tensor:
        nonlocal mapped
        if mapped:
            try:
                return torch.vmap(one, in_dims=places)(theta, x, y)
            except RuntimeError as error:
                if not cannot_be_mapped(error):
                    raise
                warn_of_slow_path("examples go through one after the other", error)
                mapped = False
        rows = [
            one(theta, map_tensors(x, lambda t, i=i: t[i]), None if y is None else y[i])
            for i in range(n)
        ]
        return torch.stack(rows)

    return each
