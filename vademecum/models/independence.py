r"""Whether a network treats the examples of a batch independently of each other.

The gradient of a sum over examples can be taken apart only if no example influences the output of
another. Two signs of it, each up to rounding:

- an example has the same output in any company and at any place, and so has what leads to it;
- if the output of example $i$ is weighted by $r_i$, what comes back to row $i$ of anything on the
  way grows by $r_i$.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from vademecum.models.inputs import Entangled

__all__ = ["Moves", "insist_on_same_outputs", "row_is_alone", "rows_are_separate"]


def insist_on_same_outputs(one: Tensor, other: Tensor, dtypes: Iterable[torch.dtype]) -> None:
    """Refuse a model whose outputs for some examples differ in other company, beyond rounding.

    Args:
        one: The outputs.
        other: Those of the same examples among others.
        dtypes: The dtypes that the model computes in, of which the coarsest decides.
    """
    Moves([(one, other)], dtypes).insist_on_none()


class Moves:
    """Differences between tensors that should be alike up to rounding.

    They are computed at once and looked at when somebody asks, so that a GPU need not be waited for
    in between. Pairs of one shape are taken together.

    Args:
        pairs: What was computed for some examples, and for the same examples among others.
        dtypes: The dtypes that the model computes in, of which the coarsest decides.
    """

    def __init__(self, pairs: Iterable[tuple[Tensor, Tensor]], dtypes: Iterable[torch.dtype]):
        pairs = [(_plain(one), _plain(other)) for one, other in pairs if one.numel()]
        kinds = {torch.float32, *dtypes}
        groups: dict[Any, list[tuple[Tensor, Tensor]]] = {}
        for one, other in pairs:
            kind = one.shape, other.shape, one.dtype, other.dtype
            groups.setdefault(kind, []).append((one, other))
        kinds |= {kind for group in groups for kind in group[2:] if kind.is_floating_point}
        self._alike = all(group[0] == group[1] for group in groups)
        self._pairs = [
            tuple(t[0][None] if len(t) == 1 else torch.stack(t) for t in zip(*each, strict=True))
            for each in groups.values()
        ]
        self._beyond = None
        if self._pairs and self._alike:
            device = pairs[0][0].device
            self._root = max(_rounding(kind, device) for kind in kinds) ** 0.5
            self._beyond = self._count(_plainly).any()  # NaN counts

    def _count(self, count: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """The differences that are beyond rounding, and else zero."""
        gaps, sizes = torch.cat([count(*pair) for pair in self._pairs], 1)
        # Entries that cancel leave the rounding errors of others that are large.
        within = gaps <= self._root * (sizes + self._root**0.5 * sizes.max().clamp(min=1))
        return gaps.masked_fill(within, 0)

    @cached_property
    def largest(self) -> float:
        """The largest difference; zero up to rounding."""
        if not self._alike:
            return float("inf")
        if self._beyond is None or not bool(self._beyond):
            return 0.0
        return float(self._count(_carefully).max())

    @staticmethod
    def none(*several: "Moves") -> bool:
        """Whether there plainly is no difference in any of several, in one look at a GPU.

        Where entries are infinite or NaN only `largest` tells.
        """
        found = [moves._beyond for moves in several if moves._beyond is not None]
        if not all(moves._alike for moves in several):
            return False
        return not found or not bool(torch.stack(found).any())

    def insist_on_none(self) -> None:
        """Refuse a model whose outputs these are, if they differ."""
        if self.largest:
            raise Entangled(
                "model must treat examples independently in evaluation mode, but other examples, or"
                f" another order, or chance moved an output by {self.largest:.3g}"
            )


def _plain(t: Tensor) -> Tensor:
    return t.detach() if t.requires_grad else t


def _plainly(one: Tensor, other: Tensor) -> Tensor:
    """The largest differences and the largest entries, (2, m) for m pairs."""
    if not one.is_floating_point():
        differ = (one != other).reshape(len(one), -1).any(1)
        gaps = torch.zeros_like(differ, dtype=torch.float64).masked_fill(differ, float("inf"))
        return torch.stack([gaps, torch.zeros_like(gaps)])
    one, gaps = (t.abs().reshape(len(t), -1) for t in (one, one - other))
    return torch.stack([gaps.amax(1), one.amax(1)]).double()


def _carefully(one: Tensor, other: Tensor) -> Tensor:
    """Likewise where masks make entries infinite, and softmax of nothing makes NaN."""
    same = ~one.isfinite() & ((one == other) | (one.isnan() & other.isnan()))
    return _plainly(one.masked_fill(same, 0), other.masked_fill(same, 0))


def _rounding(kind: torch.dtype, device: torch.device) -> float:
    """The rounding error; that of TF32 where a GPU may use it in the place of single precision."""
    eps = torch.finfo(kind).eps
    return max(eps, 2.0**-10) if device.type == "cuda" and kind == torch.float32 else eps


def rows_are_separate(z: Tensor, variables: Sequence[Tensor] | Sequence[GradientEdge]) -> bool:
    """Whether row i of all variables matters for the output of example i alone, up to rounding."""
    n, like = len(z), {"dtype": z.dtype, "device": z.device}
    # Weights that are powers of two change no rounding, in whatever precision the model computes.
    r = torch.tensor([2.0 ** (16 * (0.618 * i % 1) // 1 - 8) for i in range(n)], **like)
    u = (1 + torch.arange(z.numel() // n, **like)).cos().expand(n, -1)
    plain, weighted = (
        torch.autograd.grad(
            z, variables, each.reshape(z.shape), retain_graph=True, allow_unused=True
        )
        for each in (u, r[:, None] * u)
    )
    off = []
    for b, c in zip(plain, weighted, strict=True):
        if b is not None and c is not None:
            gap = (c / r.to(b.dtype).view(-1, *[1] * (b.ndim - 1)) - b).abs()
            off.append((gap > torch.finfo(b.dtype).eps ** 0.5 * b.abs().max()).any())
    return not off or not bool(torch.stack(off).any())


def row_is_alone(z: Tensor, variables: Sequence[Tensor] | Sequence[GradientEdge], row: int) -> bool:
    """Whether no other row of the variables matters for the output of one example."""
    u = torch.zeros_like(z)
    u[row] = (1 + torch.arange(u[row].numel(), device=u.device)).cos().reshape(u[row].shape)
    found = torch.autograd.grad(z, variables, u, retain_graph=True, allow_unused=True)
    found = [b.reshape(len(b), -1) for b in found if b is not None]
    if len(u) == 1 or not found:
        return True
    sizes = torch.stack([torch.linalg.vector_norm(b, torch.inf, 1).double() for b in found])
    limits = sizes.new_tensor([torch.finfo(b.dtype).eps ** 0.5 for b in found]) * sizes[:, row]
    others = torch.cat([sizes[:, :row], sizes[:, row + 1 :]], 1)
    return not bool((others > limits[:, None]).any())
