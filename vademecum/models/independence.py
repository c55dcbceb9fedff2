r"""Whether a network treats the examples of a batch independently of each other.

The gradient of a sum over examples can be taken apart only if no example influences the output of
another. Two signs of it, each up to rounding:

- an example has the same output in any company and at any place, and so has what leads to it;
- if the output of example $i$ is weighted by $r_i$, what comes back to row $i$ of anything on the
  way grows by $r_i$.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from vademecum.models.inputs import Entangled

__all__ = ["insist_on_same_outputs", "largest_move", "row_is_alone", "rows_are_separate"]


def insist_on_same_outputs(one: Tensor, other: Tensor, dtypes: Iterable[torch.dtype]) -> None:
    """Refuse a model whose outputs for some examples differ in other company, beyond rounding.

    Args:
        one: The outputs.
        other: Those of the same examples among others.
        dtypes: The dtypes that the model computes in, of which the coarsest decides.
    """
    gap = largest_move([(one, other)], dtypes)
    if gap:
        raise Entangled(
            "model must treat examples independently in evaluation mode, but other examples, or"
            f" another order, or chance moved an output by {gap:.3g}"
        )


def largest_move(pairs: Sequence[tuple[Tensor, Tensor]], dtypes: Iterable[torch.dtype]) -> float:
    """The largest difference between tensors that should be alike; zero up to rounding.

    Args:
        pairs: What was computed for some examples, and for the same examples among others.
        dtypes: The dtypes that the model computes in, of which the coarsest decides.
    """
    pairs = [(one.detach(), other.detach()) for one, other in pairs if one.numel()]
    exact = [pair for pair in pairs if not pair[0].is_floating_point()]
    pairs = [pair for pair in pairs if pair[0].is_floating_point()]
    if not all(one.shape == other.shape for one, other in pairs) or not all(
        torch.equal(*pair) for pair in exact
    ):
        return float("inf")
    if not pairs:
        return 0.0
    kinds = {torch.float32, *dtypes, *(t.dtype for pair in pairs for t in pair)}
    root = max(_rounding(kind, pairs[0][0].device) for kind in kinds) ** 0.5
    gap = 0.0
    for count in (_plainly, _carefully):
        gaps, sizes = torch.stack([count(*pair) for pair in pairs]).T
        # Entries that cancel leave the rounding errors of others that are large.
        within = gaps <= root * (sizes + root**0.5 * sizes.max().clamp(min=1))
        if bool(within.all()):
            return 0.0
        gap = float(gaps[~within].max())
    return gap


def _plainly(one: Tensor, other: Tensor) -> Tensor:
    """The largest difference, and the largest entry."""
    return torch.stack([(one - other).abs().max(), one.abs().max()]).double()


def _carefully(one: Tensor, other: Tensor) -> Tensor:
    """Likewise where masks make entries infinite, and softmax of nothing makes NaN."""
    same = ~one.isfinite() & ((one == other) | (one.isnan() & other.isnan()))
    return _plainly(one.masked_fill(same, 0), other.masked_fill(same, 0))


def _rounding(kind: torch.dtype, device: torch.device) -> float:
    """The rounding error; that of TF32 where a GPU may use it in the place of single precision."""
    eps = torch.finfo(kind).eps
    return max(eps, 2.0**-10) if device.type == "cuda" and kind == torch.float32 else eps


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


def row_is_alone(
    output: Tensor, variables: Sequence[Tensor] | Sequence[GradientEdge], row: int
) -> bool:
    """Whether no other row of the variables matters for the output of one example."""
    u = torch.zeros_like(output)
    u[row] = (1 + torch.arange(u[row].numel(), device=u.device)).cos().reshape(u[row].shape)
    off = []
    for b in torch.autograd.grad(output, variables, u, retain_graph=True, allow_unused=True):
        if b is not None:
            sizes = b.abs().reshape(len(b), -1).amax(1)
            limit = torch.finfo(b.dtype).eps ** 0.5 * sizes[row]
            off.append(torch.cat([sizes[:row], sizes[row + 1 :]]).max() > limit)
    return not off or not bool(torch.stack(off).any())
