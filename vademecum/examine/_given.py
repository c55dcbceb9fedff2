"""A network, weights and data as they are named on a command line.

| data | is |
|---|---|
| `NAME` | a data set of images of `vademecum.data`: its training examples, for fresh ones its test examples |
| `FILE.npz` | arrays: `y` the targets, `x` the inputs, or any other names as keyword arguments |
| `FILE.py:OBJECT` | a `DataLoader`, a pair of inputs and targets, inputs alone, or a function that makes one |

Numbers go to the device and dtype of the network; those of a loader stay in their dtype.
"""  # noqa: E501

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum import scripts
from vademecum.errors import UsageError
from vademecum.models import load_weights, map_tensors

__all__ = ["given_data", "given_network"]


def given_network(name: str, checkpoint: str | None) -> nn.Module:
    """The network in a file, with the weights of a checkpoint.

    Args:
        name: `FILE.py:OBJECT`, a module or a function that makes one.
        checkpoint: A file in the format safetensors.

    Raises:
        UsageError: If there is no such thing, or the weights do not fit; it lists them.
    """
    made = scripts.object_in("the network", name)
    if not isinstance(made, nn.Module) and callable(made):
        made = made()
    if not isinstance(made, nn.Module):
        raise UsageError(f"the network {name} is a {type(made).__name__}, no nn.Module")
    if checkpoint is not None:
        if not Path(checkpoint).is_file():
            raise UsageError(f"--checkpoint {checkpoint}: there is no such file")
        try:
            load_weights(made, checkpoint)
        except ValueError as error:
            raise UsageError(f"--checkpoint {checkpoint}: {error}") from error
    return made


def given_data(flag: str, name: str, model: nn.Module, *, test: bool) -> tuple[Any, Any]:
    """Inputs and targets, or a loader and None.

    Args:
        flag: What the user typed it for.
        name: What the user typed.
        model: The network, which says where numbers go.
        test: Whether fresh examples are wanted.

    Raises:
        UsageError: If there are no such data.
    """
    if name.endswith(".npz"):
        found = _arrays(flag, name)
    elif ":" in name:
        found: Any = scripts.object_in(flag, name)
        found = found() if callable(found) and not isinstance(found, DataLoader | Tensor) else found
    else:
        found = _by_name(flag, name, test=test)
    if isinstance(found, DataLoader):
        return found, None
    pair = tuple(found) if type(found) in (tuple, list) and len(found) == 2 else (found, None)
    tensors = [*model.parameters(), *model.buffers()]
    device = tensors[0].device if tensors else None
    dtype = next((t.dtype for t in tensors if t.is_floating_point()), None)
    x, y = (map_tensors(part, lambda t: t.to(device)) for part in pair)
    return map_tensors(x, lambda t: t.to(dtype) if t.is_floating_point() else t), y


def _arrays(flag: str, name: str) -> tuple[Any, Any]:
    import numpy as np

    if not Path(name).is_file():
        raise UsageError(f"{flag} {name}: there is no such file")
    try:
        with np.load(name, allow_pickle=False) as file:
            arrays = {key: torch.from_numpy(file[key]) for key in file.files}
    except (ValueError, OSError, TypeError) as error:
        raise UsageError(f"{flag} {name}: {error}") from error
    y = arrays.pop("y", None)
    if not arrays:
        raise UsageError(f"{flag} {name} must have an array x, or inputs by name, got none")
    return (arrays["x"] if set(arrays) == {"x"} else arrays), y


def _by_name(flag: str, name: str, *, test: bool) -> tuple[Any, Any]:
    from vademecum.data import DATASETS, Images, load

    if name not in DATASETS:
        known = ", ".join(DATASETS)
        raise UsageError(f"{flag} must be FILE.npz, FILE.py:LOADER or one of {known}, got {name!r}")
    found = load(name, split="test" if test else "train")
    if not isinstance(found, Images):
        raise UsageError(f"{flag} {name} are no images: give FILE.py:LOADER, which makes inputs")
    return found.x, found.y
