r"""A residual layer around any module, $g(x) = P x + f(x; \theta) - f(x; 0)$.

$P$ is the identity, or a projection where shapes differ, and $J_g = P + J_f$. The centred form
takes off what the branch gives with zero parameters: $x + [\phi(W x + b) - \phi(0)]$ for one layer,
so that zero parameters, to which weight decay leads, are the identity for every activation.
Exact; the claims are `residual_layer` and `residual_jacobian`.
"""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vademecum.randomness import own_randomness

__all__ = ["Residual"]

_VANISH = (
    *(nn.Linear, nn.Bilinear, nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
_POINTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Tanh, nn.Sigmoid, nn.LogSigmoid, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardsigmoid),
    *(nn.Hardswish, nn.Hardshrink, nn.Softshrink, nn.Tanhshrink, nn.Identity),
)


class Residual(nn.Module):
    """A module that adds to its input what a branch makes of it.

    Args:
        module: The branch, any number of layers from a tensor to a tensor.
        projection: The shortcut, where the branch changes the shape; by default the identity.
        centred: Whether to take off what the branch would give with all its parameters zero. For a
            branch that ends in a linear layer or a convolution that is zero, and if pointwise
            activations follow it is a number; any other branch is called a second time for it, with
            the same random numbers.

    Shape:
        (batch, ...) to the shape of the branch's output.

    Example:
        >>> layer = Residual(nn.Sequential(nn.Linear(2, 2), nn.Sigmoid()))
        >>> for p in layer.parameters():
        ...     _ = nn.init.zeros_(p)
        >>> layer(torch.tensor([[3.0, -4.0]]))
        tensor([[ 3., -4.]], grad_fn=<AddBackward0>)
    """

    def __init__(
        self, module: nn.Module, projection: nn.Module | None = None, *, centred: bool = True
    ):
        super().__init__()
        for name, given in (("module", module), ("projection", projection)):
            if not isinstance(given, nn.Module) and not (given is None and name == "projection"):
                raise ValueError(f"{name} must be an nn.Module, got {given!r}")
        self.module = module
        self.projection = projection
        self.centred = centred

    def extra_repr(self) -> str:
        """What is printed of it."""
        return f"centred={self.centred}"

    def forward(self, x: Tensor) -> Tensor:
        """Add to the input what the branch makes of it."""
        end = _activations_at_the_end(self.module) if self.centred else None
        at_zero = self._called_at_zero(x) if self.centred and end is None else None
        branch = self.module(x)
        shortcut = x if self.projection is None else self.projection(x)
        if shortcut.shape != branch.shape:
            raise ValueError(
                f"module must give the shape {tuple(shortcut.shape)} of the shortcut, got"
                f" {tuple(branch.shape)}: a projection can change the shortcut's"
            )
        if end is not None:
            at_zero = branch.new_zeros(())
            for activation in end:
                at_zero = activation(at_zero)
        return shortcut + (branch if at_zero is None else branch - at_zero)

    def _called_at_zero(self, x: Tensor) -> Tensor:
        """What the branch gives with zero parameters."""
        zeros = {name: torch.zeros_like(p) for name, p in self.module.named_parameters()}
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        # the branch draws the same numbers afterwards: dropout takes the same entries from both
        with own_randomness(None) if self.module.training else nullcontext():
            return functional_call(self.module, {**zeros, **buffers}, (x,))


def _activations_at_the_end(module: nn.Module) -> list[nn.Module] | None:
    """The activations that follow the last layer which is zero with its parameters, if one is."""
    layers, end = [module], []
    while layers:
        last = layers.pop()
        if type(last) is nn.Sequential:
            layers.extend(last)
        elif type(last) in _VANISH:
            return end[::-1]
        elif type(last) in _POINTWISE:
            end.append(last)
        else:
            return None
    return None
