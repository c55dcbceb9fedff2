r"""Two ways to keep a critic from growing steep.

*Clipping* puts every parameter back into $[-c, c]$ after a step. For $L$ dense layers of widths
$n_0, \dots, n_L$ with 1-Lipschitz activations that bounds the Lipschitz constant by $\prod_l c
\sqrt{n_{l-1} n_l}$.

The *gradient penalty* $\lambda\, \mathbb E (\|\nabla D(\hat x)\| - 1)^2$ is taken at random points
$\hat x = \alpha x + (1 - \alpha) G(z)$ of segments between a real and a generated example, with one
$\alpha$ uniform on $[0, 1]$ for each pair. The norm is that of one example's gradient, so a
critic must not mix examples: batch normalisation is refused.

References:
    Arjovsky, Chintala and Bottou, Wasserstein generative adversarial networks, ICML, 2017.
    Gulrajani et al., Improved training of Wasserstein GANs, NeurIPS, 2017.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vademecum.models import named_modules
from vademecum.randomness import source

__all__ = ["clip_parameters", "gradient_penalty", "refuse_batch_normalisation"]

_BATCH_NORMS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d),
)


def gradient_penalty(
    critic: Callable[[Tensor], Tensor],
    real: Tensor,
    generated: Tensor,
    generator: torch.Generator | None,
) -> Tensor:
    """The mean squared distance of gradient norms from 1, between real and generated examples.

    Example:
        >>> x = torch.zeros(5, 2)
        >>> gradient_penalty(lambda x: x @ torch.tensor([3.0, 4.0]), x, x, None)  # (5 - 1) ** 2
        tensor(16.)
    """
    alpha = torch.rand(len(real), dtype=real.dtype, **source(generator, real.device))
    alpha = alpha.to(real.device).view(-1, *[1] * (real.ndim - 1))
    between = torch.lerp(generated.detach().to(real.dtype), real.detach(), alpha).requires_grad_()
    learning = torch.is_grad_enabled()
    with torch.enable_grad():
        values = critic(between)
        share = torch.full_like(values, len(values) / values.numel())  # of a map in its mean
        (slope,) = torch.autograd.grad(values, between, share, create_graph=learning)
    return (torch.linalg.vector_norm(slope.flatten(1), dim=1) - 1).square().mean()


@torch.no_grad()
def clip_parameters(module: nn.Module, at: float) -> None:
    """Put every parameter of a module into `[-at, at]`, in place.

    Example:
        >>> layer = nn.Linear(1, 1)
        >>> nn.init.constant_(layer.weight, -3.0)
        Parameter containing:
        tensor([[-3.]], requires_grad=True)
        >>> clip_parameters(layer, 0.5)
        >>> layer.weight.item()
        -0.5
    """
    for p in module.parameters():
        p.clamp_(-at, at)


def refuse_batch_normalisation(critic: nn.Module) -> None:
    """Refuse a critic that mixes examples, whose gradients would not be those of one example."""
    for name, module in named_modules(critic):
        if isinstance(module, _BATCH_NORMS):
            place = f" {name[:-1]!r}" if name else ""
            raise ValueError(
                "discriminator must treat examples one by one, since the gradient penalty is per"
                f" example, got {type(module).__name__}{place}; LayerNorm and GroupNorm do"
            )
