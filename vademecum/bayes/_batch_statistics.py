"""Statistics of batch normalisation for other weights: renewed from training data, in a copy."""

from collections.abc import Callable
from copy import deepcopy
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.arrays import portions
from vademecum.gradients import functional
from vademecum.gradients.network_function import Functional
from vademecum.models import Output, call_arguments, count_examples, map_tensors

__all__ = ["keeps_statistics", "renewed"]

_BATCH = 256  # examples at a time: their statistics are averaged with equal weights


def _norms(model: nn.Module) -> list[Any]:
    return [m for m in model.modules() if getattr(m, "running_mean", None) is not None]


def keeps_statistics(model: nn.Module) -> bool:
    """Whether a network has layers with running statistics."""
    return bool(_norms(model))


def renewed(
    model: nn.Module, draws: Tensor, x: Any, output: Output
) -> list[Callable[[], nn.Module]]:
    """For each draw of weights the network with them, and the statistics training data give it.

    All of them are one copy of the network, which is changed when it is asked for.
    """
    copy = deepcopy(model).eval()
    f, norms = functional(copy, output=output), _norms(copy)
    kept = []
    for theta in draws:
        _set(f, theta)
        _renew(copy, norms, x)
        kept.append([[b.clone() for b in m.buffers()] for m in norms])

    def made(theta: Tensor, buffers: list[list[Tensor]]) -> Callable[[], nn.Module]:
        def ask() -> nn.Module:
            _set(f, theta)
            for m, values in zip(norms, buffers, strict=True):
                for buffer, value in zip(m.buffers(), values, strict=True):
                    buffer.copy_(value)
            return copy

        return ask

    return [made(theta, buffers) for theta, buffers in zip(draws, kept, strict=True)]


def _set(f: Functional, theta: Tensor) -> None:
    with torch.no_grad():
        for name, value in f.unravel(theta).items():
            f.parameters[name].copy_(value)


def _renew(copy: nn.Module, norms: list[Any], x: Any) -> None:
    momenta = [m.momentum for m in norms]
    for m in norms:
        m.reset_running_stats()
        m.momentum = None  # a plain average over batches
        m.train()
    n = count_examples(x)
    pieces = max(1, round(n / _BATCH))
    with torch.no_grad():
        for here in portions(n, each=1, memory=-(-n // pieces)):
            args, kwargs = call_arguments(map_tensors(x, itemgetter(here)))
            copy(*args, **kwargs)
    for m, momentum in zip(norms, momenta, strict=True):
        m.momentum = momentum
        m.eval()
