"""Which calls are scalar units, and what is known of them.

Curvatures and Lipschitz constants are rounded up, places of least values right to double precision.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vademecum.models import Call, Value

__all__ = ["UNITS", "Unit"]


class Unit(NamedTuple):
    """A scalar function, and what is known of it."""

    function: Callable[[Tensor], Tensor]
    """The function of a tensor, entry by entry."""
    kinks: tuple[float | Tensor, ...] = ()
    """Where it has kinks, or least values, in increasing order."""
    curvature: float = 0.0
    """What its second derivative does not exceed in modulus, between kinks."""
    error: float = 0.0
    """The error of the run in units of its roundoff, relative to value and argument."""
    jump: float = 0.0
    """By how much it jumps where its code changes formulas."""
    steep: float | Tensor = 1.0
    """Its Lipschitz constant, but for jumps."""
    rising: bool = True
    """Whether it never falls."""
    hinge: float | Tensor | None = None
    """Its slope below 0, where it is the identity above and no steeper below."""


def _relu(call: Call, out: Value, input: Any, inplace: bool = False) -> Unit:
    return Unit(torch.relu, (0.0,), hinge=0.0)


def _leaky_relu(
    call: Call, out: Value, input: Any, negative_slope: float = 0.01, inplace: bool = False
) -> Unit:
    return _bent(negative_slope, lambda z: F.leaky_relu(z, negative_slope))


def _prelu(call: Call, out: Value, input: Any, weight: Any) -> Unit | None:
    if call.places != 1:
        return None
    slope = weight.detach()
    slope = slope.view(-1, *[1] * (out.tensor.ndim - 2)) if slope.numel() > 1 else slope.view(())
    return _bent(slope, lambda z: torch.where(z > 0, z, slope * z))


def _absolute(call: Call, out: Value, input: Any) -> Unit:
    return Unit(torch.abs, (0.0,), rising=False, hinge=-1.0)


def _bent(slope: float | Tensor, function: Callable[[Tensor], Tensor]) -> Unit:
    """The identity above 0, and a slope below."""
    a = torch.as_tensor(slope, dtype=torch.float64)
    rising, flat = bool((a >= 0).all()), bool((a.abs() <= 1).all())
    steep = a.abs().clamp(min=1)
    return Unit(
        function, (0.0,), error=1.0, steep=steep, rising=rising, hinge=slope if flat else None
    )


def _clamped(call: Call, out: Value, input: Any, min: Any = None, max: Any = None) -> Unit | None:
    ends = [end for end in (min, max) if end is not None]
    numbers = all(isinstance(end, int | float) and not math.isnan(end) for end in ends)
    if not numbers or not isinstance(input, Value) or (len(ends) == 2 and min > max):
        return None
    kinks = tuple(float(end) for end in ends if math.isfinite(end))
    exact = all(float(torch.tensor(k, dtype=torch.float32)) == k for k in kinks)
    return Unit(lambda z: z.clamp(min, max), kinks, error=0.0 if exact else 1.0)


def _clamped_above(call: Call, out: Value, input: Any, max: Any) -> Unit | None:
    return _clamped(call, out, input, None, max)


def _hardtanh(
    call: Call, out: Value, input: Any, min_val: float = -1.0, max_val: float = 1.0,
    inplace: bool = False,
) -> Unit | None:  # fmt: skip
    return _clamped(call, out, input, min_val, max_val)


def _relu6(call: Call, out: Value, input: Any, inplace: bool = False) -> Unit | None:
    return _clamped(call, out, input, 0.0, 6.0)


def _hardsigmoid(call: Call, out: Value, input: Any, inplace: bool = False) -> Unit:
    return Unit(F.hardsigmoid, (-3.0, 3.0), error=4.0)


def _sigmoid(call: Call, out: Value, input: Any) -> Unit:
    return Unit(torch.sigmoid, curvature=0.0963, error=8.0, steep=0.25)


def _tanh(call: Call, out: Value, input: Any) -> Unit:
    return Unit(torch.tanh, curvature=0.7699, error=8.0)


def _softplus(
    call: Call, out: Value, input: Any, beta: float = 1, threshold: float = 20
) -> Unit | None:
    if beta <= 0 or threshold < 20:  # below, too much is cut off for bounds to be of use
        return None
    jump = 1.001 * math.exp(-threshold) / beta  # at the threshold, from where on it is the identity
    made = partial(F.softplus, beta=beta, threshold=threshold)
    return Unit(made, curvature=0.2501 * beta, error=8.0, jump=jump)


def _elu(
    call: Call, out: Value, input: Any, alpha: float = 1.0, inplace: bool = False
) -> Unit | None:
    if alpha < 0:
        return None
    steep = max(1.0, alpha)
    return Unit(lambda z: F.elu(z, alpha), (0.0,), curvature=alpha + 1e-6, error=8.0, steep=steep)


def _gelu(call: Call, out: Value, input: Any, approximate: str = "none") -> Unit:
    return Unit(
        lambda z: F.gelu(z, approximate=approximate),
        (-0.751791524693564457,) if approximate == "none" else (-0.7524614220710162,),
        curvature=0.7981,
        error=16.0,
        steep=1.1291,
        rising=False,
    )


def _silu(call: Call, out: Value, input: Any, inplace: bool = False) -> Unit:
    return Unit(
        F.silu, (-1.2784645427610738,), curvature=0.5001, error=16.0, steep=1.0999, rising=False
    )


UNITS: dict[str, Callable[..., Unit | None]] = {
    **dict.fromkeys(("abs", "absolute"), _absolute),
    **dict.fromkeys(("clamp", "clip", "clamp_min"), _clamped),
    "clamp_max": _clamped_above,
    "relu": _relu,
    "relu6": _relu6,
    "hardtanh": _hardtanh,
    "hardsigmoid": _hardsigmoid,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "softplus": _softplus,
    "elu": _elu,
    "gelu": _gelu,
    "silu": _silu,
}
"""Rules by the names of calls."""
