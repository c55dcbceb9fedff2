"""Where generated data are put, and in what precision."""

import torch

__all__ = ["place"]


def place(
    generator: torch.Generator | None,
    dtype: torch.dtype | None,
    device: torch.device | str | None,
) -> tuple[torch.dtype, torch.device]:
    """The dtype and the device of the result: those given, the generator's, or torch's defaults.

    Raises:
        ValueError: Where the dtype is not floating.
    """
    dtype = dtype or torch.get_default_dtype()
    if not dtype.is_floating_point:
        raise ValueError(f"dtype must be floating point, got {dtype}")
    if device is None:
        device = generator.device if generator is not None else torch.get_default_device()
    return dtype, torch.device(device)
