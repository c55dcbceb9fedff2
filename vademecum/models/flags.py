"""Flags that are set otherwise for a while: evaluation mode alone, parameters without gradients.

`evaluation` gives everything back that a model may change, random numbers among it; what draws
examples from a model must move these on, and changes its flags only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from vademecum.models._modules import named_modules

__all__ = ["constant", "resting"]


@contextmanager
def resting(model: Any) -> Iterator[None]:
    """Evaluation mode for a while, if it is a module; random numbers go on as they would.

    Args:
        model: A module; anything else has no such mode, and is left alone.

    Example:
        >>> model = nn.Dropout()
        >>> with resting(model):
        ...     print(model.training)
        False
        >>> model.training
        True
    """
    modules = [module for _, module in named_modules(model)] if isinstance(model, nn.Module) else []
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def constant(model: nn.Module) -> Iterator[None]:
    """Let a module be computed with, so that no gradient reaches its parameters.

    Args:
        model: The module; gradients pass through it to its inputs.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> with constant(model):
        ...     print(model(torch.ones(1, 1)).requires_grad)
        False
    """
    learning = [p for p in model.parameters() if p.requires_grad]
    for p in learning:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in learning:
            p.requires_grad_(True)
