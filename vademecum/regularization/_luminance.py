r"""Luminance and chroma of colours, as television has them (ITU-R BT.601).

$$Y = 0.299 R + 0.587 G + 0.114 B, \qquad C_b = \frac{B - Y}{1.772}, \quad
C_r = \frac{R - Y}{1.402} ,$$

a linear map that can be inverted: grey has no chroma, and chroma lies between -1/2 and 1/2 where
colours lie between 0 and 1.
"""

from typing import Any

import torch

__all__ = []

_IN_DOUBLE: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}
LUMINANCE = torch.tensor([0.299, 0.587, 0.114], **_IN_DOUBLE)
"""The weights of red, green and blue in the luminance."""
CHROMA = torch.stack((
    (torch.tensor([0.0, 0.0, 1.0], **_IN_DOUBLE) - LUMINANCE) / 1.772,
    (torch.tensor([1.0, 0.0, 0.0], **_IN_DOUBLE) - LUMINANCE) / 1.402,
))  # fmt: skip
"""Their weights in the two chroma coordinates, a row each."""
