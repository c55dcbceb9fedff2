r"""Noise while training: in the inputs of a layer, or in all weights of a network.

In training mode, each time anew, with independent Gaussian numbers,

$$x \mapsto x + \xi, \quad \xi \sim N(0, \Sigma), \qquad\qquad
f(\theta, x) \mapsto f(\theta + s\, \epsilon, x), \quad \epsilon \sim N(0, I),$$

and in evaluation nothing happens. Gradients go to $x$ and $\theta$ as if the noise were a constant.
What it adds to the loss on average is `input_noise_penalty` and `weight_noise_penalty`. Exact up to
rounding. The claims are `input_noise`, `weight_noise` and `noise_shape`.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import number
from vademecum.models import aliases, call_with, tensor_places, unwrapped
from vademecum.randomness import source
from vademecum.regularization._noise_factor import noise_factor

__all__ = ["input_noise", "weight_noise"]


class InputNoise(nn.Module):
    """A layer that adds noise to its input in training: see `input_noise`."""

    factor: Tensor | None

    def __init__(
        self, std: float | None, covariance: Tensor | None, generator: torch.Generator | None
    ):
        super().__init__()
        factor = noise_factor(std, covariance)
        self.std = None if isinstance(factor, Tensor) else factor
        self.register_buffer("factor", factor if isinstance(factor, Tensor) else None)
        self.generator = generator

    def extra_repr(self) -> str:
        """The size of the noise."""
        if self.factor is None:
            return f"std={self.std}"
        return f"covariance of {len(self.factor)} features"

    def forward(self, x: Float[Tensor, " *shape"]) -> Float[Tensor, " *shape"]:
        """The input, with noise in training."""
        if not self.training:
            return x
        if not x.is_floating_point():
            raise ValueError(f"x must be floating point, got {x.dtype}")
        xi = _normal(x, self.generator)
        if self.factor is None:
            return x + (self.std or 0.0) * xi
        if x.ndim == 0 or x.shape[-1] != len(self.factor):
            raise ValueError(f"x must be {len(self.factor)} wide, got shape {tuple(x.shape)}")
        return x + xi @ self.factor.to(x.dtype).T


class WeightNoise(nn.Module):
    """A model whose weights are disturbed in training: see `weight_noise`."""

    def __init__(self, model: nn.Module, std: float, generator: torch.Generator | None):
        super().__init__()
        self.model = unwrapped(model)
        self.std = number("std", std, low=0)
        self.generator = generator
        if not any(p.is_floating_point() for p in self.model.parameters()):
            raise ValueError("model must have parameters, got none")

    def extra_repr(self) -> str:
        """The size of the noise."""
        return f"std={self.std}"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives, with other weights each time in training."""
        if not self.training:
            return self.model(*args, **kwargs)
        moved: dict[int, Tensor] = {}
        places = {}
        for place, p in tensor_places(self.model, "parameters"):
            if p.is_floating_point():  # a tensor with several places moves once
                if id(p) not in moved:
                    moved[id(p)] = p + self.std * _normal(p, self.generator)
                places[place] = moved[id(p)]
        return call_with(self.model, places, args, kwargs, also=aliases(self.model))


def input_noise(
    std: float | None = None,
    *,
    covariance: Float[Tensor, " d d"] | None = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    r"""A layer that adds Gaussian noise to its input in training, and nothing in evaluation.

    Args:
        std: The standard deviation $s \ge 0$ of the noise in each entry.
        covariance: In its place, the covariance $\Sigma$ of the noise along the last axis: noise of
            the kind that will be met later is best. It is kept as a buffer, by a factor of it.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If not one of both is given, or the covariance is not symmetric and positive
            semidefinite.

    References:
        Bishop, Training with noise is equivalent to Tikhonov regularization, Neural Computation,
        1995.

    Example:
        >>> model = nn.Sequential(input_noise(0.1), nn.Linear(3, 1))
        >>> x = torch.ones(1000, 3)
        >>> noisy = model[0](x)  # 0.1, within five standard errors
        >>> abs((noisy - x).std().item() - 0.1) < 5 * 0.1 / 6000**0.5
        True
        >>> model.eval()[0](x).equal(x)
        True
    """
    return InputNoise(std, covariance, generator)


def weight_noise(
    model: nn.Module, std: float, *, generator: torch.Generator | None = None
) -> nn.Module:
    r"""A model whose parameters have Gaussian noise in training, new in each forward pass.

    All examples of a pass see the same noise. The parameters themselves are those of `model`, which
    is the attribute of that name and stays as it is; their gradients are taken where the noise has
    moved them. A parameter that is used in several places moves in all of them alike.

    Args:
        model: Any module with parameters.
        std: The standard deviation $s \ge 0$ of the noise in each parameter.
        generator: Where random numbers come from; torch's global generator by default.

    References:
        An, The effects of adding noise during backpropagation training on a generalization
        performance, Neural Computation, 1996.

    Example:
        >>> model = nn.Linear(1, 1000, bias=False)
        >>> noisy = weight_noise(model, 0.1)
        >>> x = torch.ones(1, 1)  # the output is the weight
        >>> abs((noisy(x) - model(x)).std().item() - 0.1) < 5 * 0.1 / 2000**0.5
        True
        >>> noisy.eval()(x).equal(model(x))
        True
    """
    return WeightNoise(model, std, generator)


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    drawn = torch.randn(like.shape, dtype=like.dtype, **source(generator, like.device))
    return drawn.to(like.device)
