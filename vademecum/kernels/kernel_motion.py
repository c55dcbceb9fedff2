r"""How far the tangent kernel of a network moves: the relative change of its Gram matrix.

Between two states of a network with the kernels $K_0$ and $K_1$ on the same inputs it is

$$\frac{\|K_1 - K_0\|_F}{\|K_0\|_F},$$

zero as long as training is that of the linearised network. In NTK coordinates it falls like $1 / m$
with the width $m$ (proven is $1 / \sqrt m$). The cosine $\langle K_0, K_1 \rangle / (\|K_0\|
\|K_1\|)$ tells a kernel that turned from one that grew. Exact up to rounding. The claims are
`ntk_constancy` and `ntk_drift_rate`.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import floats
from vademecum.kernels.tangent_kernel import empirical_ntk
from vademecum.models import Output
from vademecum.results import one_line

__all__ = ["NTKDrift", "ntk_drift"]


class NTKDrift(NamedTuple):
    """The change of a tangent kernel.

    Example:
        >>> ntk_drift(torch.eye(4), None, 2 * torch.eye(4))
        NTKDrift(relative=0.5, absolute=2.0, cosine=1.0)
    """

    relative: float
    r"""The change $\|K_1 - K_0\|_F / \|K_0\|_F$."""
    absolute: float
    r"""The change $\|K_1 - K_0\|_F$."""
    cosine: float
    r"""The cosine of the angle between $K_0$ and $K_1$: 1 for a kernel that only grew or shrank."""

    __repr__ = one_line


def ntk_drift(
    model: nn.Module | Tensor,
    x: Any,
    start: nn.Module | Mapping[str, Tensor] | Tensor,
    *,
    outputs: Literal["full", "diagonal", "trace", "sum"] = "full",
    memory: int | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> NTKDrift:
    r"""How far the tangent kernel of a network is from where it started.

    Args:
        model: The network as it is now, or its kernel on `x`.
        x: The inputs; a tensor, or any structure of tensors. None if both kernels are given.
        start: The network as it was: another module, a `state_dict` that was copied then (the model
            is copied to look at it), or its kernel on `x` as `empirical_ntk` gave it then.
        outputs: What of the kernel counts for the k outputs: all pairs ("full"), each output with
            itself ("diagonal"), the sum of these ("trace") or the kernel of the sum ("sum").
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. Both
            kernels are held.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If the kernels have different shapes, or the first one is zero.

    Example:
        >>> model, x = nn.Linear(2, 1), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> before = {name: t.clone() for name, t in model.state_dict().items()}
        >>> _ = nn.init.zeros_(model.weight)
        >>> ntk_drift(model, x, before).relative  # it is linear in its parameters
        0.0
    """

    def kernel(given: nn.Module | Tensor) -> Tensor:
        if isinstance(given, Tensor):
            return floats("kernels", given)
        return empirical_ntk(
            given, x, outputs=outputs, memory=memory, progress=progress, frozen=frozen,
            output=output,
        )  # fmt: skip

    if x is None and not (isinstance(model, Tensor) and isinstance(start, Tensor)):
        raise ValueError("x must be given where a kernel is to be computed, got None")
    now, then = kernel(model).double(), kernel(_as_it_was(model, start)).double()
    if now.shape != then.shape or now.device != then.device:
        raise ValueError(
            f"start must have the kernel's shape {tuple(now.shape)} and be on {now.device}, got"
            f" {tuple(then.shape)} on {then.device}"
        )
    size = float(torch.linalg.vector_norm(then))
    if size == 0:
        raise ValueError("start must have a kernel that is not zero, got zeros")
    absolute = float(torch.linalg.vector_norm(now - then))
    cosine = float((now * then).sum()) / max(size * float(torch.linalg.vector_norm(now)), 1e-300)
    return NTKDrift(absolute / size, absolute, cosine)


def _as_it_was(model: Any, start: Any) -> nn.Module | Tensor:
    if not isinstance(start, Mapping):
        return start
    if not isinstance(model, nn.Module):
        raise ValueError("model must be a module where start is a state_dict, got a tensor")
    copy = deepcopy(model)
    copy.load_state_dict(start)
    return copy
