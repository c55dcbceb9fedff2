r"""The tangent kernel of a network: inner products of the gradients of its outputs.

$$K_{ij, cd} = \langle \nabla_\theta f_c(x_i), \nabla_\theta f_d(x'_j) \rangle.$$

Exact up to rounding. The claims are `neural_tangent_kernel` and `tangent_features`.
"""

from concurrent.futures import Executor
from hashlib import sha256
from os import PathLike
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import choice, floats, whole
from vademecum.kernels._tangent_tiles import TangentTiles
from vademecum.kernels._tiles import filled
from vademecum.models import Output, named_tensors

__all__ = ["empirical_ntk"]

Outputs = Literal["full", "diagonal", "trace", "sum"]
_OUTPUTS = ("full", "diagonal", "trace", "sum")


def empirical_ntk(
    model: nn.Module,
    x1: Any,
    x2: Any = None,
    *,
    outputs: Outputs = "full",
    memory: int | None = None,
    executor: Executor | None = None,
    out: Tensor | str | PathLike[str] | None = None,
    progress: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> Float[Tensor, " n1 n2 ..."]:
    r"""The tangent kernel of a network with the parameters that it has now.

    Args:
        model: Any module whose examples do not influence each other in evaluation mode.
        x1: Inputs; a tensor, or any structure of tensors, with examples along the first axis.
        x2: Other inputs, or None for those of `x1`.
        outputs: What of the $k \times k$ numbers for a pair to give.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        executor: What computes the tiles of the matrix.
        out: Where to write: a tensor, or the path of a file.
        progress: Whether to show a progress bar on standard error.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives.

    Example:
        >>> empirical_ntk(nn.Linear(2, 1), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), outputs="trace")
        tensor([[ 6., 12.],
                [12., 26.]])
    """
    choice("outputs", outputs, _OUTPUTS)
    insist_on_data(x1, x2)
    if memory is not None:
        whole("memory", memory, low=1)
    tiles = TangentTiles(
        model, x1, x2, outputs=outputs, memory=memory, frozen=frozen, output=output
    )
    return filled(
        tiles,
        tiles.shape,
        symmetric=x2 is None,
        tile=tiles.tile,
        dtype=tiles.one.dtype,
        device=tiles.f.device,
        executor=executor,
        out=out,
        key=_key(tiles, x1, x2) if isinstance(out, str | PathLike) else "",
        progress=progress,
    )


def insist_on_data(x1: Any, x2: Any) -> None:
    """Refuse inputs that are not finite, or of which the second are of another kind."""
    for name, x in (("x1", x1), ("x2", x2)):
        if isinstance(x, DataLoader):
            raise ValueError(f"{name} must be data at hand, got a DataLoader")
        if isinstance(x, Tensor) and x.is_floating_point():
            floats(name, x)
        for place, t in named_tensors(x, name):
            if t.is_floating_point() and t.layout == torch.strided and bool(t.isnan().any()):
                raise ValueError(f"{place} must not hold NaN")
    if x2 is None:
        return
    one, other = ([_kind(t) for _, t in named_tensors(x)] for x in (x1, x2))
    if len(one) != len(other):
        raise ValueError(
            f"x1 and x2 must hold equally many tensors, got {len(one)} and {len(other)}"
        )
    for (place, _), *kinds in zip(named_tensors(x2, "x2"), one, other, strict=True):
        for what, a, b in zip(("shape of an example", "dtype", "device"), *kinds, strict=True):
            if a != b:
                raise ValueError(f"{place} must have the {what} of x1, {a}, got {b}")


def _kind(t: Tensor) -> tuple[Any, ...]:
    return tuple(t.shape[1:]), t.dtype, t.device


def _key(tiles: TangentTiles, x1: Any, x2: Any) -> str:
    """What a kernel depends on: its kind, the parameters and the inputs, as a hash."""
    found = sha256(f"{tiles.outputs} {type(tiles.f.model).__name__}".encode())
    state = {**tiles.f.parameters, **dict(tiles.f.model.named_buffers())}
    for place, t in named_tensors((state, x1, x2)):
        found.update(f"{place} {t.dtype} {tuple(t.shape)}".encode())
        numbers = t.detach().contiguous().cpu().view(-1)
        found.update(numbers.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
