"""The layer that WaveNet repeats: a gated causal convolution with a residual and a skip."""

import torch
from torch import Tensor, nn

from vademecum.convolution.causal import CausalConv1d

__all__ = ["GatedLayer"]


class GatedLayer(nn.Module):
    """A gated causal convolution, and what it adds to the signal and to the skips."""

    conv: CausalConv1d
    condition: nn.Linear | None
    residual: nn.Conv1d | None
    skip: nn.Conv1d

    def __init__(self, width: int, skip: int, dilation: int, condition: int, *, residual: bool):
        super().__init__()
        self.conv = CausalConv1d(width, 2 * width, 2, dilation=dilation)
        self.condition = nn.Linear(condition, 2 * width, bias=False) if condition else None
        self.residual = nn.Conv1d(width, width, 1) if residual else None  # the last needs none
        self.skip = nn.Conv1d(width, skip, 1)

    def forward(self, x: Tensor, condition: Tensor | None) -> tuple[Tensor, Tensor]:
        """The signal for the next layer, and the skip."""
        gates = self.conv(x)
        if self.condition is not None:
            gates = gates + self.condition(condition)[:, :, None]
        a, b = gates.chunk(2, 1)
        z = torch.tanh(a) * torch.sigmoid(b)
        return x if self.residual is None else x + self.residual(z), self.skip(z)
