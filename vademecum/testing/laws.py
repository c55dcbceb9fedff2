r"""What the law suites share: broken laws, rounding, and the state that must not change.

A law is a generator function that yields complaints, and is kept if it yields none. Two results
that are equal in exact arithmetic may differ by rounding: over sums of $n$ terms of size $s$, by
less than $\lambda \sqrt{n}\, \varepsilon s$ with probability $1 - 2 e^{-\lambda^2 / 2}$, where
$\varepsilon$ is the precision of the dtype. The suites allow $\lambda = 10$, take for $n$ all
numbers that enter one example's result and for $s$ the largest entry among inputs and results.
This is a rule for well-conditioned computations, not a bound for all.

References:
    Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM Journal on
    Scientific Computing, 2019.
"""

import dataclasses
import math
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.randomness import own_randomness

__all__ = ["BrokenLaw", "changes", "differences", "enforce", "named_tensors", "snapshot"]

Named = Sequence[tuple[str, Tensor]]
_INTERNAL = vars(nn.Module()).keys()
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class BrokenLaw(AssertionError):
    """A law that does not hold: its name, who broke it, and what was found.

    Example:
        >>> print(BrokenLaw("dtype", "Linear", "output is float32 for float64 inputs"))
        Linear breaks the law 'dtype': output is float32 for float64 inputs
    """

    def __init__(self, law: str, subject: str, finding: str):
        super().__init__(f"{subject} breaks the law {law!r}: {finding}")
        self.law, self.subject, self.finding = law, subject, finding


def enforce(
    laws: Mapping[str, Callable[[Any], Iterator[str]]],
    case: Any,
    subject: str,
    skip: Mapping[str, str] | None,
    *,
    also: Sequence[str] = (),
) -> tuple[str, ...]:
    """Check all laws but the skipped ones, each with the same seed, and return their names.

    Args:
        laws: The laws by name.
        case: What they are asked about.
        subject: What to call it in complaints.
        skip: Reasons by the names of laws not to check.
        also: Further names that `skip` may hold, of no concern here.

    Raises:
        BrokenLaw: At the first complaint, or if a law raises.
        ValueError: If `skip` holds an unknown name or an empty reason.
    """
    skip = dict(skip or {})
    for name, reason in skip.items():
        if name not in (*laws, *also):
            known = ", ".join((*laws, *also))
            raise ValueError(f"skip must hold names of laws ({known}), got {name!r}")
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"skip must give a reason for each law, got {reason!r} for {name!r}")
    for name in [name for name in laws if name not in skip]:
        with own_randomness():
            try:
                complaint = next(laws[name](case), None)
            except Exception as error:
                finding = f"it raised {type(error).__name__}: {error}"
                raise BrokenLaw(name, subject, finding) from error
        if complaint:
            raise BrokenLaw(name, subject, complaint)
    return tuple(name for name in laws if name not in skip)


def named_tensors(result: Any, name: str = "output") -> Iterator[tuple[str, Tensor]]:
    """The tensors and numbers in a nested result, with their places; whatever else is left out.

    Example:
        >>> list(named_tensors((torch.ones(1), {"loss": 2})))
        [('output[0]', tensor([1.])), ("output[1]['loss']", tensor(2))]
    """
    if isinstance(result, Tensor):
        yield name, result
    elif isinstance(result, np.ndarray | np.generic | int | float | complex):
        yield name, torch.as_tensor(np.asarray(result))
    elif isinstance(result, Mapping):
        for key, value in result.items():
            yield from named_tensors(value, f"{name}[{key!r}]")
    elif isinstance(result, tuple) and (fields := getattr(result, "_fields", ())):
        for key, value in zip(fields, result, strict=True):
            yield from named_tensors(value, f"{name}.{key}")
    elif isinstance(result, list | tuple):
        for i, value in enumerate(result):
            yield from named_tensors(value, f"{name}[{i}]")
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        for field in dataclasses.fields(result):
            yield from named_tensors(getattr(result, field.name), f"{name}.{field.name}")


def differences(found: Named, wanted: Named, tol: Callable[[Tensor], float]) -> Iterator[str]:
    """Complain about results that differ by more than `tol(wanted tensor)`."""
    if [name for name, _ in found] != [name for name, _ in wanted]:
        yield f"it gives {[name for name, _ in found]}, not {[name for name, _ in wanted]}"
        return
    for (name, one), (_, two) in zip(found, wanted, strict=True):
        if one.shape != two.shape or one.dtype != two.dtype:
            yield (
                f"{name} is {one.dtype} of shape {tuple(one.shape)}, "
                f"not {two.dtype} of shape {tuple(two.shape)}"
            )
        elif not same(one, two):
            gap, allowed = _gap(one, two), tol(two)
            if not gap <= allowed:
                yield f"{name} differs by {gap:.3g}, {allowed:.3g} is allowed"


def _gap(one: Tensor, two: Tensor) -> float:
    wide = torch.complex128 if one.is_complex() else torch.float64
    return float((one.to(wide) - two.to(wide)).abs().max())


def rounding(size: int, given: Named) -> Callable[[Tensor], float]:
    """The rounding allowed in a result that `size` numbers enter, some of them `given`."""
    largest = max((_largest(x) for _, x in given), default=0.0)

    def allowed(result: Tensor) -> float:
        if not (result.is_floating_point() or result.is_complex()):
            return 0.0
        eps = torch.finfo(result.dtype).eps
        return 10 * math.sqrt(max(size, 1)) * eps * max(largest, _largest(result))

    return allowed


def _largest(x: Tensor) -> float:
    exact = not (x.is_floating_point() or x.is_complex())
    return 0.0 if exact or not x.numel() else float(x.abs().max())


def same(one: Tensor, two: Tensor) -> bool:
    """Whether two tensors agree in dtype, device, shape and every entry, NaN equal to NaN."""
    if (one.dtype, one.device, one.shape) != (two.dtype, two.device, two.shape):
        return False
    return bool(((one == two) | ((one != one) & (two != two))).all())


def snapshot(module: nn.Module, *, attributes: bool = True) -> dict[str, Any]:
    """All that measuring a module must not change, and torch's and NumPy's random states.

    Args:
        module: The module.
        attributes: Whether what its code keeps in plain attributes belongs to it, and whether
            `torch.save` takes it.
    """
    state: dict[str, Any] = {}
    for name, p in module.named_parameters(remove_duplicate=False):
        state[f"parameter {name}"] = p.detach().clone()
        state[f"identity of parameter {name}"] = id(p)
        state[f"gradient of {name}"] = None if p.grad is None else p.grad.detach().clone()
        state[f"requires_grad of {name}"] = p.requires_grad
    for name, b in module.named_buffers(remove_duplicate=False):
        state[f"buffer {name}"] = b.detach().clone()
    for name, child in module.named_modules():
        at = name or "the module itself"
        state[f"training flag of {at}"] = child.training
        state[f"number of hooks of {at}"] = sum(len(getattr(child, kind)) for kind in _HOOKS)
        if attributes:
            state |= _attributes(child, at)
    if attributes:
        state["torch.save of the module"] = _can_be_saved(module)
    state["default dtype"] = torch.get_default_dtype()
    state["grad mode"] = torch.is_grad_enabled()
    return state | _random_states()


def _attributes(module: nn.Module, at: str) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for key in vars(module).keys() - _INTERNAL:
        value, name = vars(module)[key], f"attribute {key} of {at}"
        state[name] = _held(value)
        for place, t in named_tensors(value, "entry"):
            state[f"{place.removeprefix('entry')} in {name}"] = t.detach().clone()
    return state


def _held(value: Any) -> Any:
    """What can be compared in place of an attribute: constants, and which things it holds."""
    if value is None or isinstance(value, bool | int | float | complex | str):
        return value
    if isinstance(value, Mapping):
        return tuple((key, _held(v)) for key, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_held, value))
    return frozenset(map(id, value)) if isinstance(value, set) else id(value)


def _can_be_saved(module: nn.Module) -> bool:
    try:
        torch.save(module, BytesIO())
    except (RuntimeError, AttributeError, TypeError, pickle.PicklingError):
        return False
    return True


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Complain about each difference between two snapshots."""
    for key in [*before, *(k for k in after if k not in before)]:
        if key not in before or key not in after:
            yield f"{key} {'appeared' if key in after else 'vanished'}"
            continue
        old, new = before[key], after[key]
        if isinstance(old, Tensor) and isinstance(new, Tensor):
            if not same(old, new):
                yield f"{key} changed" + (_by(old, new) if old.shape == new.shape else "")
        elif type(old) is not type(new) or old != new:
            told = isinstance(old, bool | int) and isinstance(new, bool | int)
            yield f"{key} changed" + (f" from {old} to {new}" if told else "")


def _by(old: Tensor, new: Tensor) -> str:
    return "" if old.dtype == torch.uint8 else f" by {_gap(new, old.to(new.device)):.3g}"


def _random_states() -> dict[str, Any]:
    # Python's own generator is left out: run-time type checkers draw from it at any call.
    numpy: Any = np.random.get_state()  # noqa: NPY002
    states = {
        "torch's random state": torch.get_rng_state(),
        "NumPy's random state": (numpy[1].tobytes(), *numpy[2:]),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for i, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"random state of cuda:{i}"] = state
    return states
