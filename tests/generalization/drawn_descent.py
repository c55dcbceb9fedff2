"""Calls of what draws training sets, directions, labels and orders in this room."""

from typing import Any

import torch
from torch import Tensor

from vademecum import generalization

X = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3)


def mean(X: Tensor, y: Tensor) -> Any:
    return lambda x: y.mean().expand(len(x))


CALLS: dict[str, Any] = {
    "double_descent": lambda g: generalization.double_descent(
        [2, 6], torch.ones(6), n=4, noise=1.0, repeats=3, generator=g
    ),
    "bias_variance": lambda g: generalization.bias_variance(
        mean, X, X[:2], truth=lambda x: x[:, 0], noise=1.0, repeats=4, generator=g
    ),
    "memorising_network": lambda g: generalization.memorising_network(X, X[:, 0], generator=g),
    "random_labels": lambda g: generalization.random_labels(
        torch.arange(20), fraction=0.5, generator=g
    ),
    "permute_pixels": lambda g: generalization.permute_pixels(X.T, generator=g),
    "classify_critical_point": lambda g: generalization.classify_critical_point(
        lambda v: (torch.linspace(1, 2, 300).to(v) * v**2).sum(),
        torch.zeros(300, dtype=torch.float64),
        generator=g,
    ),
}
