r"""The divergence of a field of vectors, $\operatorname{tr} \nabla s(x)$, from products $u^\top J$.

With the unit vectors for $u$ it is the sum of $(e_i^\top J)_i$, exactly; with random $u$ of
$\mathbb E[u u^\top] = I$ each $u^\top J u$ has it for mean. All products come from one backward
pass, mapped over $u$; where an operation cannot be mapped, from one after the other, with a
warning. Rows of the field must depend on their own example alone.
"""

import torch
from torch import Tensor

from vademecum.models import cannot_be_mapped, warn_of_slow_path
from vademecum.randomness import source

__all__ = ["Products", "directions", "exact_divergence", "projected"]

_ENTRIES = 2**22  # of products at once: 32 MiB in double precision, beside what a backward pass has


class Products:
    """Products of rows with Jacobians of rows.

    Args:
        graph: Whether the products are to be differentiated again.
    """

    def __init__(self, *, graph: bool):
        self._graph, self._mapped = graph, True

    def __call__(self, field: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """For directions u (m, n, *shape) the products with the Jacobians, (m, n, *shape)."""
        if not field.requires_grad:  # a constant field
            return torch.zeros_like(u)
        if len(u) == 1:
            return self._pulled(field, x, u[0], mapped=False)[None]
        if self._mapped:
            try:
                return self._pulled(field, x, u, mapped=True)
            except RuntimeError as error:
                if not cannot_be_mapped(error):
                    raise
                warn_of_slow_path("directions are taken one after the other", error)
                self._mapped = False
        return torch.stack([self._pulled(field, x, one, mapped=False) for one in u])

    def _pulled(self, field: Tensor, x: Tensor, u: Tensor, *, mapped: bool) -> Tensor:
        (found,) = torch.autograd.grad(
            field, x, u, retain_graph=True, create_graph=self._graph, is_grads_batched=mapped,
            allow_unused=True, materialize_grads=True,
        )  # fmt: skip
        return found


def exact_divergence(field: Tensor, x: Tensor, products: Products) -> Tensor:
    """The trace of every example's Jacobian, (n,), from as many products as it has entries."""
    n, d = len(x), x[0].numel() if len(x) else 0
    total = x.new_zeros(n)
    at_once = max(1, _ENTRIES // max(1, n * d))
    for start in range(0, d, at_once):
        entries = torch.arange(start, min(start + at_once, d), device=x.device)
        u = torch.zeros(len(entries), n, d, dtype=field.dtype, device=x.device)
        u.scatter_(2, entries[:, None, None].expand(-1, n, 1), 1.0)
        rows = products(field, x, u.reshape(-1, *field.shape)).reshape(u.shape)
        own = rows[:, :, start : start + len(entries)]  # whose diagonal has each entry's own
        total = total + own.diagonal(dim1=0, dim2=2).sum(1)
    return total


def projected(field: Tensor, x: Tensor, u: Tensor, products: Products) -> Tensor:
    """The numbers $u^T J u$ for directions u (m, n, *shape), as (m, n)."""
    return (products(field, x, u) * u).flatten(2).sum(2)


def directions(kind: str, x: Tensor, m: int, generator: torch.Generator | None) -> Tensor:
    """Random directions (m, n, *shape) with unit covariance, or of unit length on the sphere."""
    shape, dice = (m, *x.shape), source(generator, x.device)
    if kind == "rademacher":
        return (2.0 * torch.randint(2, shape, **dice) - 1).to(x)
    u = torch.randn(shape, dtype=x.dtype, **dice).to(x.device)
    if kind == "gaussian":
        return u
    flat = u.flatten(2)
    return (flat / torch.linalg.vector_norm(flat, dim=2, keepdim=True)).reshape(shape)
