"""Tensors of a module by the names that they have in the plain module, tied ones once.

`torch.compile` and data parallelism put modules around modules, which shows in names as
`_orig_mod.` or `module.`; a checkpoint knows neither, so that it fits the plain module and every
other way of running it. A tensor that is split among processes counts as the whole.
"""

import sys
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

__all__ = ["Named", "copied", "first_misfit", "like", "parameter_names"]


class Named:
    """What a module's state dict holds, by plain names.

    Attributes:
        parameters: Parameters, tied ones once.
        buffers: Buffers that the state dict has, tied ones once.
        passing: Buffers that it leaves out.
        extra: What modules add to it that is no tensor.
        names: The name in the state dict of each plain name.
        ties: The first plain name of each plain name that is tied to another.
    """

    def __init__(self, model: nn.Module):
        plain = _Plain(model)
        state = model.state_dict(keep_vars=True)
        self.names = {plain(name): name for name in state}
        self.parameters: dict[str, Tensor] = {}
        self.buffers: dict[str, Tensor] = {}
        self.extra: dict[str, Any] = {}
        self.ties: dict[str, str] = {}
        first: dict[Any, str] = {}
        for name, value in ((plain(name), value) for name, value in state.items()):
            if not isinstance(value, Tensor):
                self.extra[name] = value
            elif (found := first.setdefault(_place(name, value), name)) != name:
                self.ties[name] = found
            else:
                kind = self.parameters if isinstance(value, nn.Parameter) else self.buffers
                kind[name] = value
        buffers = {plain(name): value for name, value in model.named_buffers()}
        self.passing = {name: b for name, b in buffers.items() if name not in self.names}


def parameter_names(model: nn.Module) -> dict[int, str]:
    """The plain name of each parameter, by its identity."""
    plain = _Plain(model)
    return {id(p): plain(name) for name, p in model.named_parameters()}


def copied(tensor: Tensor, *, here: bool = True) -> Tensor:
    """A copy of a tensor on the CPU, whole; all processes take part if it is split among them.

    Args:
        tensor: Any tensor.
        here: Whether this process wants it; otherwise it gets an empty one.
    """
    tensor = tensor.detach()
    if _is_split(tensor):
        tensor = cast(Any, tensor).full_tensor()
    if not here:
        return torch.empty(0)
    whole = torch.empty(tensor.shape, dtype=tensor.dtype)
    return whole.copy_(tensor)


def like(tensor: Tensor, other: Tensor) -> Tensor:
    """A tensor where another one is: on its device, and split as it is."""
    tensor = tensor.to(other.device)
    if not _is_split(other):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    split = cast(Any, other)
    return distribute_tensor(tensor, split.device_mesh, split.placements, src_data_rank=None)


class _Plain:
    """A function from names in a state dict to plain names."""

    def __init__(self, model: nn.Module):
        self._wrapped = {
            f"{path}.{child}".lstrip(".")
            for path, module in model.named_modules(remove_duplicate=False)
            if (child := _inside(module))
        }

    def __call__(self, name: str) -> str:
        if not self._wrapped:
            return name
        words = name.split(".")
        paths = [".".join(words[: i + 1]) for i in range(len(words))]
        return ".".join(
            w for w, path in zip(words, paths, strict=True) if path not in self._wrapped
        )


def _inside(module: nn.Module) -> str:
    """What a wrapper calls the module inside, or nothing."""
    if isinstance(module, DataParallel | DistributedDataParallel):
        return "module"
    return "_orig_mod" if type(module).__name__ == "OptimizedModule" else ""


def _is_split(tensor: Tensor) -> bool:
    """Whether processes have a part of it each; importing torch's module for it takes long."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def _place(name: str, tensor: Tensor) -> Any:
    """The same for tensors that are tied."""
    if _is_split(tensor):
        return id(tensor)
    if tensor.numel() == 0 or tensor.is_meta:
        return name
    return tensor.device, tensor.data_ptr(), tensor.nbytes


def first_misfit(
    saved: Mapping[str, Tensor], own: Mapping[str, Tensor], *, what: str
) -> str | None:
    """The first difference between the tensors of a checkpoint and those here, in words."""
    for name in [*own, *saved]:
        if name not in saved:
            return f"it has no {what} {name}"
        if name not in own:
            return f"its {what} {name} is unknown here"
        then, now = saved[name], own[name]
        if then.shape != now.shape:
            shapes = f"{tuple(then.shape)}, and here {tuple(now.shape)}"
            return f"its {what} {name} has the shape {shapes}"
        if then.dtype != now.dtype:
            return f"its {what} {name} has the dtype {then.dtype}, and here {now.dtype}"
    return None
