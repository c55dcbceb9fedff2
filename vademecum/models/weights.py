"""Weights by name: loading those that somebody else has trained, and saving ours.

Everything is compared before anything is changed: names that are missing, unknown or of another
shape are told in one error. A model may say what its names were in older files, as pairs of a
regular expression and what to put in its place, in the attribute `old_names`, and which names of
theirs hold no weights, as regular expressions in `unneeded_names`.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.errors import UsageError
from vademecum.files import replacing

__all__ = ["load_weights", "save_weights"]


def load_weights(
    model: nn.Module,
    source: Mapping[str, Tensor] | str | PathLike[str],
    *,
    ignore: Iterable[str] = (),
) -> None:
    """Load weights into a model, or leave it as it was.

    Numbers are converted to the dtype and device of the model's. Tensors that the model shares
    under several names need one of them. Counters of batches may be missing.

    Args:
        model: Any module.
        source: A state dict, or the path of a file in the format safetensors. Pickled files are not
            opened; `torch.load(path, weights_only=True)` makes a state dict of one.
        ignore: Patterns of names in the source that the model does not need, such as "aux*".

    Raises:
        ValueError: If names are missing, unknown, of another shape or of another kind of number, if
            shared ones differ, or there are no numbers (the meta device); it lists all of them, and
            the model is untouched.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> load_weights(model, {"weight": torch.ones(1, 2), "bias": torch.zeros(1)})
        >>> model(torch.tensor([[3.0, 4.0]])).item()
        7.0
        >>> load_weights(model, {"weight": torch.ones(2, 2), "scale": torch.ones(1)})
        Traceback (most recent call last):
        ValueError: source does not fit the model: missing bias; unknown scale; weight has the
        shape (2, 2) and must have (1, 2)
    """
    given = source if isinstance(source, Mapping) else _read(Path(source))
    patterns = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    needed = [
        name
        for name in given
        if not any(fnmatchcase(name, pattern) for pattern in patterns)
        and not any(re.search(rule, name) for rule in getattr(model, "unneeded_names", ()))
    ]
    new = {name: _renamed(name, model) for name in needed}
    given = {new[name]: given[name] for name in needed}
    own = model.state_dict(keep_vars=True)
    problems = [*_doubles(new), *_misfits(own, given)]
    if problems:
        raise ValueError(f"source does not fit the model: {'; '.join(problems)}")
    with torch.no_grad():
        for name, tensor in given.items():
            own[name].copy_(tensor)


def save_weights(model: nn.Module, path: str | PathLike[str]) -> None:
    """Write the state dict of a model into a file in the format safetensors, or leave what was.

    Tensors that the model shares under several names are written under each, so that whoever loads
    it strictly finds all names.

    Args:
        model: Any module.
        path: Where to, ending in ".safetensors".

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> model, other = nn.Linear(2, 1), nn.Linear(2, 1)
        >>> with TemporaryDirectory() as folder:
        ...     save_weights(model, f"{folder}/a.safetensors")
        ...     load_weights(other, f"{folder}/a.safetensors")
        >>> torch.equal(model.weight, other.weight)
        True
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(f"path must end in .safetensors, got {str(path)!r}")
    save_file = _safetensors().torch.save_file
    state, seen = dict(model.state_dict()), set()
    if meta := [name for name, tensor in state.items() if tensor.is_meta]:
        raise ValueError(f"model must hold numbers, got {meta[0]} on the device meta")
    for name, tensor in state.items():
        place = tensor.untyped_storage().data_ptr()
        again = place in seen or tensor.untyped_storage().nbytes() != tensor.nbytes
        whole = torch.contiguous_format
        state[name] = tensor.clone(memory_format=whole) if again else tensor.contiguous()
        seen.add(place)
    with replacing(path) as temporary:
        save_file(state, temporary, metadata={"format": "pt"})


def _renamed(name: str, model: nn.Module) -> str:
    for pattern, replacement in getattr(model, "old_names", ()):
        name = re.sub(pattern, replacement, name)
    return name


def _doubles(new: Mapping[str, str]) -> Iterable[str]:
    """Names that would be one name here."""
    first: dict[str, str] = {}
    for name, ours in new.items():
        if (other := first.setdefault(ours, name)) != name:
            yield f"{other} and {name} are both {ours}"


def _misfits(own: Mapping[str, Tensor], given: Mapping[str, Any]) -> Iterable[str]:
    loaded = {id(own[name]) for name in given if name in own}
    missing = [
        name
        for name, tensor in own.items()
        if id(tensor) not in loaded and not name.endswith("num_batches_tracked")
    ]
    if missing:
        yield f"missing {', '.join(missing)}"
    if unknown := [name for name in given if name not in own]:
        yield f"unknown {', '.join(unknown)}"
    taken: dict[int, str] = {}
    for name, other in given.items():
        if name not in own:
            continue
        mine = own[name]
        if not isinstance(other, Tensor):
            yield f"{name} is {type(other).__name__} and must be a tensor"
        elif other.shape != mine.shape:
            shape, wanted = tuple(other.shape), tuple(mine.shape)
            yield f"{name} has the shape {shape} and must have {wanted}"
        elif other.dtype != mine.dtype and not (
            other.is_floating_point() and mine.is_floating_point()
        ):
            yield f"{name} has the dtype {other.dtype} and must have {mine.dtype}"
        elif other.is_meta or mine.is_meta:
            whose = "in the source" if other.is_meta else "of the model"
            yield f"{name} {whose} is on the meta device, without numbers"
        else:
            first = taken.setdefault(id(mine), name)
            if first != name and not torch.equal(other, given[first]):
                yield f"{first} and {name} are one tensor in the model and differ"


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix != ".safetensors":
        raise ValueError(
            f"source must be a state dict or a file in the format safetensors, got {str(path)!r}:"
            " open pickled files with torch.load(path, weights_only=True)"
        )
    safetensors = _safetensors()
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"source {str(path)!r} is no file of safetensors: {error}") from error


def _safetensors() -> ModuleType:
    try:
        import safetensors.torch
    except ImportError as error:
        raise UsageError(
            'the format safetensors needs the package of that name: pip install "vademecum[data]"'
        ) from error
    return safetensors
