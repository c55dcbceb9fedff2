r"""Results on one line: what a `NamedTuple` of tensors prints.

A result says `__repr__ = one_line` in its body. Numbers, words and tensors that are short print as
they are; of everything larger the kind and the size are said:

| value | prints as |
|---|---|
| a tensor that fits | `tensor([1., 2.])` |
| a larger tensor | `float32[100, 6]`, its dtype and shape |
| a long list, tuple or dict | `list of 50` |
| a module | the name of its class |
| anything else | as it does, up to a few words |
"""

from collections.abc import Collection
from typing import Any

from torch import Tensor, nn

__all__ = ["one_line"]

_ROOM = 48  # characters that a value may take: some four numbers of a tensor


def one_line(self: Any) -> str:
    """The representation of a named tuple, on one line whatever its fields hold.

    Example:
        >>> from typing import NamedTuple
        >>> class Fit(NamedTuple):
        ...     error: float
        ...     weights: Tensor
        ...     __repr__ = one_line
        >>> Fit(0.5, torch.zeros(100, 6)), Fit(0.5, torch.zeros(2, 1))
        (Fit(error=0.5, weights=float32[100, 6]), Fit(error=0.5, weights=tensor([[0.], [0.]])))
    """
    values = zip(self._fields, self, strict=True)
    return f"{type(self).__name__}({', '.join(f'{name}={_brief(x)}' for name, x in values)})"


def _brief(value: Any) -> str:
    if isinstance(value, nn.Module):
        return f"{type(value).__name__}(...)"
    large = isinstance(value, Tensor) and value.numel() > _ROOM  # would be formatted for nothing
    text = "" if large else " ".join(repr(value).split())
    if 0 < len(text) <= _ROOM or hasattr(value, "_fields"):  # also a result within a result
        return text
    if isinstance(value, Tensor):
        return f"{value.dtype}".removeprefix("torch.") + str(list(value.shape))
    if isinstance(value, Collection) and not isinstance(value, str):
        return f"{type(value).__name__} of {len(value)}"
    return text[: _ROOM - 3] + "..."
