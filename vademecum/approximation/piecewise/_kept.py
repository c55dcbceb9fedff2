"""Programs that are kept from one call to the next, as long as nothing about the model changes.

What the code of somebody else's module depends on, nobody knows; so a program is kept only for a
model that is made of torch's own layers, without buffers, parametrizations or hooks, its own or
those of all modules, and computes in the dtype of its parameters. The program of such a model holds
these parameters themselves, and sees their values as they are at each call. It is read anew if a
layer, its code, an option of it, a parameter, or the place of its data is another.
"""

from collections.abc import Hashable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from vademecum.approximation.piecewise._program import Program

__all__ = ["Key", "keep", "key_of", "kept"]

Key = tuple[Hashable, list[Any]]
"""What a program depends on, and the objects whose identity is part of it."""
_PLAIN = (bool, int, float, str, tuple, type(None))
_TABLES = (dict, set)
_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
_PROGRAMS: WeakKeyDictionary[nn.Module, tuple[Key, Program]] = WeakKeyDictionary()


def key_of(model: nn.Module, shape: tuple[int, ...], like: Tensor) -> Key | None:
    """What a program for such inputs depends on, or None if it cannot be kept."""
    if any(getattr(nn.modules.module, hooks, None) for hooks in _HOOKS):
        return None
    facts: list[Hashable] = [shape, like.dtype, like.device, torch.is_inference_mode_enabled()]
    held: list[Any] = []
    for module in model.modules():
        if not type(module).__module__.startswith("torch.nn.modules."):
            return None
        facts += [type(module), type(module).forward]
        for name, value in vars(module).items():
            if name in ("_parameters", "_modules"):
                held += value.values()
                facts += [*value, *map(id, value.values())]
            elif isinstance(value, _PLAIN):
                facts += [name, value] if name != "training" else []
            elif not isinstance(value, _TABLES) or value:  # a hook, or what nobody knows
                return None
    for p in model.parameters():
        if type(p) is not nn.Parameter or p.dtype != like.dtype:
            return None
        facts += [p.data_ptr(), p.shape, p.stride(), p.device]
    return tuple(facts), held


def kept(model: nn.Module, key: Key) -> Program | None:
    """The program that was kept for a model, if it is still the right one."""
    entry = _PROGRAMS.get(model)
    return entry[1] if entry is not None and entry[0][0] == key[0] else None


def keep(model: nn.Module, key: Key, program: Program) -> None:
    """Keep the program of a model, in the place of the one before."""
    _PROGRAMS[model] = key, program
