"""What a linearised network must be: the Taylor model from the Jacobian, at drawn parameters."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.kernels import LinearizedNetwork

__all__ = ["dense", "displaced"]


def dense(model: nn.Module, beta: Tensor, *x: Any, frozen: bool = False) -> Tensor:
    """The Taylor model from the Jacobian, by backward passes through the plain module."""
    model = copy.deepcopy(model).eval()
    z = model(*x)
    parameters = [p for p in model.parameters() if p.requires_grad or frozen]
    moved = []
    for entry in z.flatten():
        rows = torch.autograd.grad(entry, parameters, retain_graph=True, materialize_grads=True)
        moved.append(torch.cat([row.flatten() for row in rows]) @ beta)
    return z.detach() + torch.stack(moved).view_as(z)


def displaced(h: LinearizedNetwork, scale: float = 0.3) -> Tensor:
    """Random parameters, which are given back as one vector."""
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for p in h.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return nn.utils.parameters_to_vector(h.parameters()).detach()
