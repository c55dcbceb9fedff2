"""States of any structure as JSON and named tensors, and back, exactly.

A state is made of dicts, lists, tuples, tensors, numbers, texts and None. In its document a tensor
is the name under which it lies in a file of safetensors. Floats keep all their bits, since JSON
prints the shortest text that reads as the same number; those that are not finite have a mark.
Anything else, such as a function, is refused with its place: nothing is left out in silence.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["join", "split", "tensor_names"]


def split(value: Any, place: str, take: Callable[[str, Tensor], None]) -> Any:
    """The document of a state; its tensors are handed out one by one.

    Args:
        value: The state.
        place: Its name, which begins the names of its tensors; it may be empty.
        take: Called with the name and the tensor for each of them, always in the same order.

    Raises:
        ValueError: If it holds something else.

    Example:
        >>> tensors = {}
        >>> split({"lr": 0.1, "m": torch.ones(2), 3: (1, None)}, "adam", tensors.__setitem__)
        {'$pairs': [['lr', 0.1], ['m', {'$tensor': 'adam/m'}], [3, {'$tuple': [1, None]}]]}
        >>> tensors
        {'adam/m': tensor([1., 1.])}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Tensor):
        double = value.dtype == torch.complex128  # which safetensors does not know
        take(place, torch.view_as_real(value.detach().resolve_conj()) if double else value)
        return {"$complex" if double else "$tensor": place}
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, list | tuple):
        items = [split(item, _inside(place, i), take) for i, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        entries = {key: split(item, _inside(place, key), take) for key, item in value.items()}
        if isinstance(value, Counter):
            return {"$counter": [[key, item] for key, item in entries.items()]}
        if all(isinstance(key, str) and not key.startswith("$") for key in entries):
            return entries
        if len({str(key) for key in entries}) == len(entries) and _plain(entries):
            return {"$pairs": [[key, item] for key, item in entries.items()]}
    raise ValueError(
        f"a state must be of tensors, numbers and texts to be saved, got {type(value).__name__}"
        f" in {place}"
    )


def join(document: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The state of a document.

    Raises:
        ValueError: If the document is none of ours or a tensor is missing.

    Example:
        >>> join([{"$tuple": [1, {"$float": "-inf"}]}, {"$tensor": "a"}], {"a": torch.ones(1)})
        [(1, -inf), tensor([1.])]
    """
    if isinstance(document, list):
        return [join(item, tensors) for item in document]
    if not isinstance(document, dict):
        return document
    mark = next((key for key in document if key.startswith("$")), None)
    if mark is None:
        return {key: join(item, tensors) for key, item in document.items()}
    if len(document) != 1:
        raise ValueError(f"an entry with the mark {mark} has others beside it")
    return _marked(mark, document[mark], tensors)


def tensor_names(document: Any) -> Iterator[str]:
    """The names of all tensors of a document.

    Example:
        >>> list(tensor_names({"a": [{"$tensor": "x"}], "b": {"$tuple": [{"$tensor": "y"}]}}))
        ['x', 'y']
    """
    if isinstance(document, dict):
        if set(document) in ({"$tensor"}, {"$complex"}):
            yield from map(str, document.values())
            return
        document = list(document.values())
    if isinstance(document, list):
        for item in document:
            yield from tensor_names(item)


def _marked(mark: str, content: Any, tensors: Mapping[str, Tensor]) -> Any:
    if mark in ("$tensor", "$complex") and isinstance(content, str):
        if content not in tensors:
            raise ValueError(f"the tensor {content!r} is missing")
        found = tensors[content]
        return found if mark == "$tensor" else _complex(found)
    if mark == "$float" and content in ("nan", "inf", "-inf"):
        return float(content)
    if mark == "$tuple" and isinstance(content, list):
        return tuple(join(item, tensors) for item in content)
    if mark in ("$pairs", "$counter") and isinstance(content, list) and all(map(_is_pair, content)):
        pairs = {key: join(item, tensors) for key, item in content}
        return Counter(pairs) if mark == "$counter" else pairs
    raise ValueError(f"an entry with the mark {mark} holds {type(content).__name__}")


def _complex(pairs: Tensor) -> Tensor:
    if pairs.dtype != torch.float64 or pairs.shape[-1:] != (2,):
        raise ValueError(f"a complex tensor must be pairs of float64, got {tuple(pairs.shape)}")
    return torch.view_as_complex(pairs)


def _inside(place: str, key: Any) -> str:
    return f"{place}/{key}" if place else str(key)


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and _plain(entry[:1])


def _plain(keys: Any) -> bool:
    return all(isinstance(key, str | int) for key in keys)


def _number(value: float) -> Any:
    """A number, or a mark for what JSON has no number for."""
    if isinstance(value, int):
        return int(value)
    return float(value) if math.isfinite(value) else {"$float": str(float(value))}
