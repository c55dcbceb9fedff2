r"""What instruments should answer, by plain autograd on a twin of the model.

Nothing of the library is used. Derivatives of first order come from one backward pass for each row
or each example; those of second order from a backward pass through a backward pass, or, where
torch's own are wrong, from central differences of the gradient,

$$H v \approx \frac{g(\theta + h v) - g(\theta - h v)}{2 h},$$

which in double precision with $h = 10^{-5} / \|v\|$ are good to about nine digits.
"""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.outside.cases import Case, call, one_of

__all__ = ["Oracle"]


class Oracle:
    """A twin of a subject in evaluation mode, and its derivatives, each computed once."""

    def __init__(self, case: Case):
        self.case, self.subject = case, case.subject()
        self.model: nn.Module = getattr(self.subject.model, "_orig_mod", self.subject.model).eval()
        self.theta = [p for p in self.model.parameters() if p.is_floating_point()]
        for p in self.theta:
            p.grad = None
            p.requires_grad_()
        self.sizes = [p.numel() for p in self.theta]

    def result(self, x: Any = None) -> Any:
        """What the model gives, with a graph."""
        with torch.enable_grad(), _quietly(), torch.random.fork_rng(devices=[]):
            return call(self.model, self.subject.x if x is None else x)

    def output_of(self, x: Any = None) -> Tensor:
        """The tensor that counts."""
        return self.subject.read(self.result(x))

    def loss(self, x: Any = None, y: Any = None) -> Tensor:
        """The loss as one number."""
        z = self.output_of(x) if self.subject.whole is ... else self.result(x)
        return self.subject.loss(z, self.subject.y if y is None else y).sum()

    @cached_property
    def output(self) -> Tensor:
        """The output."""
        return self.output_of().detach()

    @cached_property
    def gradient(self) -> Tensor:
        """The gradient of the loss in the parameters."""
        return self._flat(torch.autograd.grad(self.loss(), self.theta, materialize_grads=True))

    @cached_property
    def example_gradients(self) -> Tensor:
        """A row for each example, from a pass of its own."""
        s, rows = self.subject, []
        for i in range(len(s.y)):
            loss = self.loss(one_of(s.x, i), one_of(s.y, i))
            g = torch.autograd.grad(loss, self.theta, materialize_grads=True)
            rows.append(self._flat(g))
        return torch.stack(rows)

    @cached_property
    def in_theta(self) -> Tensor:
        """The Jacobian in the parameters, a backward pass a row."""
        z = self.output_of()
        return torch.stack([self._flat(_pull(entry, self.theta)) for entry in z.flatten()])

    @cached_property
    def in_x(self) -> Tensor:
        """The Jacobian in the input, a backward pass a row."""
        x, leaf = self._leaf()
        z = self.output_of(x)
        return torch.stack([_pull(entry, [leaf])[0].flatten() for entry in z.flatten()])

    def _leaf(self) -> tuple[Any, Tensor]:
        x, wrt = self.subject.x, self.subject.wrt
        if isinstance(x, Tensor):
            leaf = x.detach().clone().requires_grad_()
            return leaf, leaf
        leaf = x[wrt].detach().clone().requires_grad_()
        return {**x, wrt: leaf}, leaf

    def hessian_product(self, v: Tensor) -> Tensor:
        """The product of the loss's Hessian with a vector."""
        if self.case.differences:
            return self._difference(v)
        parts = [s.view_as(p) for s, p in zip(v.split(self.sizes), self.theta, strict=True)]
        found = torch.autograd.grad(
            [g for g in self._first if g.requires_grad],
            self.theta,
            [s.to(g) for g, s in zip(self._first, parts, strict=True) if g.requires_grad],
            retain_graph=True,
            materialize_grads=True,
        )
        return self._flat(found)

    @cached_property
    def _first(self) -> tuple[Tensor, ...]:
        with sdpa_kernel(SDPBackend.MATH):
            value = self.loss()
            return torch.autograd.grad(value, self.theta, create_graph=True, materialize_grads=True)

    def _difference(self, v: Tensor) -> Tensor:
        h, found = 1e-5 / float(v.norm()), []
        start = [p.detach().clone() for p in self.theta]
        parts = v.split(self.sizes)
        for sign in (1, -1):
            with torch.no_grad():
                for p, at, step in zip(self.theta, start, parts, strict=True):
                    p.copy_(at + sign * h * step.view_as(p))
            g = torch.autograd.grad(self.loss(), self.theta, materialize_grads=True)
            found.append(self._flat(g))
        with torch.no_grad():
            for p, at in zip(self.theta, start, strict=True):
                p.copy_(at)
        return (found[0] - found[1]) / (2 * h)

    def _flat(self, tensors: Any) -> Tensor:
        dtype = torch.float64 if torch.float64 in {p.dtype for p in self.theta} else torch.float32
        return torch.cat([t.detach().to_dense().flatten().to(dtype) for t in tensors])


def _pull(entry: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    if not entry.requires_grad:
        return tuple(torch.zeros_like(p) for p in leaves)
    return torch.autograd.grad(entry, leaves, retain_graph=True, materialize_grads=True)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
