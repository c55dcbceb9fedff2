"""Where, and in what precision, a generator of data draws."""

import torch

__all__ = ["place"]


def place(
    generator: torch.Generator | None,
    dtype: torch.dtype | None,
    device: torch.device | str | None,
) -> tuple[torch.dtype, torch.device]:
    """Fill in torch's defaults, and check that the three agree.

    Raises:
        ValueError: Where the dtype is not floating, or the generator lives on another device.
    """
    dtype = dtype or torch.get_default_dtype()
    if not dtype.is_floating_point:
        raise ValueError(f"dtype must be floating point, got {dtype}")
    if device is None:
        device = generator.device if generator is not None else torch.get_default_device()
    device = torch.device(device)
    if generator is not None and generator.device.type != device.type:
        raise ValueError(f"generator must be on {device}, got one on {generator.device}")
    return dtype, device
