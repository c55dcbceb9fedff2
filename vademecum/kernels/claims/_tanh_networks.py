"""Tanh networks by their formula, for derivatives by the complex step, and their linearisations."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from vademecum.claims import complex_step
from vademecum.gradients import functional
from vademecum.kernels import LinearizedNetwork
from vademecum.models import mlp

__all__ = ["beta_of", "descended", "features", "layered", "set_beta", "tanh_network"]


def layered(theta: Tensor, x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """A tanh network as a function of one vector of real or complex parameters, by its formula."""
    a, at = x.to(theta), 0
    for l, (d, k) in enumerate(pairwise(sizes)):
        W, b = theta[at : at + d * k].view(k, d), theta[at + d * k : at + d * k + k]
        a, at = a @ W.T + b, at + d * k + k
        a = a.tanh() if l + 2 < len(sizes) else a
    return a


def features(theta: Tensor, x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """The tangent features of all outputs, a row each, by the complex step."""
    return complex_step(lambda t: layered(t, x, sizes).flatten(), theta)


def tanh_network(*sizes: int) -> tuple[nn.Module, Tensor]:
    """A network whose parameters are all random, and these as a vector."""
    model = mlp(sizes, nn.Tanh)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_().mul_(1.0 if p.ndim == 1 else (1.5 / p.shape[1]) ** 0.5)
    return model, functional(model).theta


def set_beta(h: LinearizedNetwork, beta: Tensor) -> None:
    """Give a linearised network these parameters."""
    with torch.no_grad():
        nn.utils.vector_to_parameters(beta, h.parameters())


def beta_of(h: LinearizedNetwork) -> Tensor:
    """Its parameters as a vector."""
    return nn.utils.parameters_to_vector(h.parameters()).detach()


def descended(h: LinearizedNetwork, x: Tensor, y: Tensor, *, iterations: int = 200) -> None:
    """Minimise half the sum of squares by L-BFGS, whose steps are in the span of gradients."""
    optimizer = torch.optim.LBFGS(
        h.parameters(), max_iter=iterations, history_size=40, tolerance_grad=1e-13,
        tolerance_change=0.0, line_search_fn="strong_wolfe",
    )  # fmt: skip

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = (h(x) - y).square().sum() / 2
        value.backward()
        return value

    optimizer.step(loss)
