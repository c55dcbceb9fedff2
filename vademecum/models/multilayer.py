r"""The plain multilayer perceptron, $x \mapsto W_L\, \phi(\dots \phi(W_1 x + b_1) \dots) + b_L$."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import nn

from vademecum.arguments import whole

__all__ = ["mlp"]


def mlp(
    sizes: Sequence[int],
    activation: Callable[[], nn.Module] = nn.ReLU,
    *,
    bias: bool = True,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> nn.Sequential:
    """A network of dense layers with an activation after each but the last, as torch draws them.

    Args:
        sizes: The width of the input, of each hidden layer and of the output; two or more.
        activation: What makes an activation: a class of modules, or a function without arguments.
        bias: Whether layers have a constant term.
        dtype: The dtype of the parameters, torch's default without one.
        device: Where they are.

    Example:
        >>> mlp([2, 16, 1], nn.Tanh)
        Sequential(
          (0): Linear(in_features=2, out_features=16, bias=True)
          (1): Tanh()
          (2): Linear(in_features=16, out_features=1, bias=True)
        )
    """
    if len(sizes) < 2:
        raise ValueError(f"sizes must be two or more, got {list(sizes)}")
    layers: list[nn.Module] = []
    for n, m in pairwise(whole("sizes", size, low=1) for size in sizes):
        layers += [nn.Linear(n, m, bias=bias, dtype=dtype, device=device), activation()]
    return nn.Sequential(*layers[:-1])
