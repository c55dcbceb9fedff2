"""What sections ask of inputs and outputs: one tensor of numbers, a score for each class."""

from typing import Any

import torch
from torch import Tensor, nn

from vademecum.examine._section import NotApplicable
from vademecum.examine._study import Study
from vademecum.models import chosen_output

__all__ = ["classifier", "real_tensor"]


def real_tensor(x: Any) -> Tensor | None:
    """The input if it is one tensor of floating-point numbers, with examples in rows; or None."""
    good = isinstance(x, Tensor) and x.is_floating_point() and x.ndim > 1
    return x if good else None


def classifier(study: Study) -> nn.Module:
    """The network with scores (n, k) as its output.

    Raises:
        NotApplicable: If it does not classify examples.
    """
    if study.aim.task != "classification":
        task = study.aim.task or "no task that is known"
        raise NotApplicable(f"because it needs a classifier of examples, and this is for {task}")
    if study.data.y is None:
        raise NotApplicable("because there are no classes: give y")
    z = study.outputs()
    if z.ndim == 2 and z.shape[1] > 1:
        return study.network
    return _TwoScores(study.network, z)


class _Scores(nn.Module):
    """A network that may give more than its scores, which alone are taken."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return chosen_output(self.network(*args, **kwargs))


class _TwoScores(nn.Sequential):
    """A network that scores the second of two classes, with a score of 0 for the first."""

    def __init__(self, network: nn.Module, z: Tensor):
        last = nn.Linear(1, 2, bias=False, dtype=z.dtype, device=z.device).requires_grad_(False)
        last.weight.data = torch.tensor([[0.0], [1.0]]).to(z)
        column = [nn.Unflatten(0, (-1, 1))] if z.ndim == 1 else []
        super().__init__(_Scores(network), *column, last)
        self.eval()
