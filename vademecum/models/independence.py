r"""Whether a network treats the examples of a batch independently of each other.

The gradient of a sum over examples can be taken apart only if no example influences the output of
another. Two signs of it, each up to rounding:

- an example has the same output in any company and at any place;
- if the output of example $i$ is weighted by $r_i$, what comes back to row $i$ of anything on the
  way grows by $r_i$.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from vademecum.models.inputs import Entangled

__all__ = ["insist_on_same_outputs", "rows_are_separate"]


def insist_on_same_outputs(one: Tensor, other: Tensor, dtypes: Iterable[torch.dtype]) -> None:
    """Refuse a model whose outputs for some examples differ in other company, beyond rounding.

    Args:
        one: The outputs.
        other: Those of the same examples among others.
        dtypes: The dtypes that the model computes in, of which the coarsest decides.
    """
    one, other, gap = one.detach(), other.detach(), float("inf")
    if one.shape == other.shape:
        gap = float((one - other).abs().max())
    rounding = max(torch.finfo(dtype).eps for dtype in {torch.float32, one.dtype, *dtypes})
    if gap > rounding**0.5 * (1 + float(one.abs().max())):
        raise Entangled(
            "model must treat examples independently in evaluation mode, but other examples, or"
            f" another order, moved an output by {gap:.3g}"
        )


def rows_are_separate(output: Tensor, variables: Sequence[Tensor] | Sequence[GradientEdge]) -> bool:
    """Whether row i of all variables matters for the output of example i alone, up to rounding."""
    n, like = len(output), {"dtype": output.dtype, "device": output.device}
    # Weights that are powers of two change no rounding, in whatever precision the model computes.
    r = torch.tensor([2.0 ** (16 * (0.618 * i % 1) // 1 - 8) for i in range(n)], **like)
    u = (1 + torch.arange(output.numel() // n, **like)).cos().expand(n, -1)
    plain, weighted = (
        torch.autograd.grad(
            output, variables, each.reshape(output.shape), retain_graph=True, allow_unused=True
        )
        for each in (u, r[:, None] * u)
    )
    off = []
    for b, c in zip(plain, weighted, strict=True):
        if b is not None and c is not None:
            gap = (c / r.to(b.dtype).view(-1, *[1] * (b.ndim - 1)) - b).abs()
            off.append((gap > torch.finfo(b.dtype).eps ** 0.5 * b.abs().max()).any())
    return not off or not bool(torch.stack(off).any())
