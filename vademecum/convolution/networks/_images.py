"""What all networks of images have in common: batches that fit, and how weights begin."""

import torch
from torch import Tensor, nn

__all__ = ["check_images", "he_normal"]


def check_images(x: Tensor, channels: int, smallest: int) -> None:
    """Refuse what is no batch of images with so many channels, large enough for the network."""
    if x.ndim != 4 or x.shape[1] != channels:
        raise ValueError(f"x must be images (n, {channels}, height, width), got {tuple(x.shape)}")
    if min(x.shape[2:]) < smallest:
        raise ValueError(
            f"x must be images of at least {smallest} x {smallest}, got {x.shape[2]} x {x.shape[3]}"
        )


@torch.no_grad()
def he_normal(model: nn.Module) -> None:
    r"""Draw the weights of convolutions from $\mathcal N(0, 2 / (k^2 c_{\rm out}))$ (He et al.)."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                module.bias.zero_()
