"""All that an instrument must leave as it was: the model, torch's settings, random states.

Written without the law suite of the library, which is under test here as well.
"""

import io
import pickle
import random
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.outside.cases import Subject, call

__all__ = ["State", "differences"]

State = dict[str, Any]
_OWN = ("_parameters", "_buffers", "_modules")


def state_of(subject: Subject) -> State:
    """Everything there is to see of a subject and of torch, by name."""
    model, state = subject.model, dict[str, Any]()
    for name, p in model.named_parameters(remove_duplicate=False):
        grad = None if p.grad is None else _frozen(p.grad)
        state[f"parameter {name}"] = (id(p), _frozen(p), grad, p.requires_grad)
    for name, b in model.named_buffers(remove_duplicate=False):
        state[f"buffer {name}"] = (id(b), _frozen(b))
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key not in _OWN:
                state[f"attribute {name}.{key}"] = _frozen(value)
    state |= {f"data {i}": _frozen(t) for i, t in enumerate(_tensors((subject.x, subject.y)))}
    return state | _settings()


def _settings() -> State:
    numpy: Any = np.random.get_state()  # noqa: NPY002
    return {
        "torch's random state": torch.get_rng_state().numpy().tobytes(),
        "NumPy's random state": numpy[1].tobytes(),
        "Python's random state": random.getstate(),
        "grad mode": torch.is_grad_enabled(),
        "default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn": torch.backends.cudnn.enabled,
        "fast path of attention": torch.backends.mha.get_fastpath_enabled(),
        "kernels of attention": (
            torch.backends.cuda.flash_sdp_enabled(),
            torch.backends.cuda.mem_efficient_sdp_enabled(),
            torch.backends.cuda.math_sdp_enabled(),
        ),
    }


def _frozen(value: Any) -> Any:
    """A value that can be compared later: a copy of a tensor, containers entry by entry."""
    if isinstance(value, Tensor):
        if value.is_quantized or value.layout != torch.strided:
            return repr(value)
        bits = value.detach().clone().contiguous().flatten().view(torch.uint8)
        return (type(value), value.dtype, value.shape, bits.numpy().tobytes())
    if isinstance(value, dict):
        return {str(k): _frozen(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [_frozen(v) for v in value]
    if isinstance(value, weakref.ref):
        return id(value())
    if isinstance(value, bool | int | float | str | bytes | type(None) | torch.dtype):
        return value
    return id(value)


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif hasattr(x, "items"):
        for value in x.values():
            yield from _tensors(value)
    elif isinstance(x, list | tuple):
        for value in x:
            yield from _tensors(value)


def differences(before: State, after: State) -> list[str]:
    """The names of what is not as it was."""
    names = [name for name in before if name not in after or before[name] != after[name]]
    return names + [f"new: {name}" for name in after if name not in before]


def can_be_saved(model: nn.Module) -> bool:
    """Whether `torch.save` takes the model as it is."""
    try:
        torch.save(model, io.BytesIO())
    except (RuntimeError, TypeError, AttributeError, pickle.PicklingError):
        return False
    return True


def own_output(subject: Subject) -> list[Tensor]:
    """What the model itself gives in evaluation mode, its flags put back."""
    flags = [(module, module.training) for module in subject.model.modules()]
    try:
        with torch.no_grad(), warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            subject.model.eval()
            return [t.detach().clone() for t in _tensors(call(subject.model, subject.x))]
    finally:
        for module, training in flags:
            module.training = training
