r"""The instruments of `geometry` that ask for a symmetry, against the definition.

Inputs of any structure are read backwards along their last axis, which has no meaning for most of
these models and is a group of two elements all the same; graphs get other numbers for their nodes.
The twin is given what was moved by hand, and the error is
$\|f(g x) - g f(x)\| / \max(\|f(x)\|, \|f(g x)\|)$.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from bench.outside.answers import complaint
from bench.outside.cases import Subject
from bench.outside.derivatives import Check
from bench.outside.oracles import Oracle
from vademecum.geometry import Group, equivariance_error, invariance_error
from vademecum.models import map_tensors

__all__ = ["SYMMETRIES"]


def _backwards(g: int, x: Any) -> Any:
    return map_tensors(x, lambda t: t.flip(-1) if g and t.ndim > 1 else t)


def _is_graph(x: Any) -> bool:
    named = dict(x) if isinstance(x, Mapping) else {}
    return "edge_index" in named or (type(x) is tuple and len(x) == 2 and x[1].shape[:1] == (2,))


def _renumbered(g: int, x: Any) -> Any:
    """Node i becomes node i + g, by hand."""
    features, edges = x.values() if isinstance(x, Mapping) else x
    n = len(features)
    back = torch.tensor([(i - g) % n for i in range(n)])
    moved = features[back], (edges + g) % n
    return dict(zip(x, moved, strict=True)) if isinstance(x, Mapping) else moved


def _errors(o: Oracle, moved: Any, wanted: Tensor, rows: int) -> Tensor:
    a = o.output_of(moved).detach().double().reshape(rows, -1)
    b = wanted.double().reshape(rows, -1)
    gap, size = (a - b).norm(dim=1), torch.maximum(a.norm(dim=1), b.norm(dim=1))
    return torch.where(gap > 0, gap / size, 0)


def _compared(o: Oracle, found: Any, wanted: list[Tensor]) -> Iterator[str]:
    """Errors that are those of rounding need not be the same, so that one is added to all."""
    yield complaint("1 + error", 1 + found.errors.double(), 1 + torch.stack(wanted), o.case.coarse)
    if abs(found.error - float(found.errors.max())) > 0:
        yield f"the largest error is {found.error:.3g}, not {float(found.errors.max()):.3g}"


def _invariance(s: Subject, o: Oracle) -> Iterator[str]:
    found = invariance_error(
        s.model, s.x, group=Group.cyclic(2), action=_backwards, output=s.output
    )
    rows = found.errors.shape[1]
    if rows not in (1, len(o.output)):
        yield f"there are {rows} examples, not {len(o.output)}"
    wanted = [_errors(o, _backwards(g, s.x), o.output, rows) for g in range(2)]
    yield from _compared(o, found, wanted)


def _equivariance(s: Subject, o: Oracle) -> Iterator[str]:
    if not _is_graph(s.x):
        given: Any = {"group": Group.cyclic(2), "action": _backwards}
        found = equivariance_error(s.model, s.x, output=s.output, **given)
        rows, z = found.errors.shape[1], o.output
        pairs = [(_backwards(g, s.x), _backwards(g, z)) for g in range(2)]
    else:
        n = len(o.output)
        found = equivariance_error(s.model, s.x, group=Group.cyclic(n), output=s.output)
        rows, z = found.errors.shape[1], o.output
        pairs = [(_renumbered(g, s.x), z.roll(g, 0)) for g in range(n)]
        if found.error > 1e-6:
            yield f"a graph network minds the numbers of its nodes by {found.error:.2g}"
    yield from _compared(o, found, [_errors(o, moved, wanted, rows) for moved, wanted in pairs])


SYMMETRIES: dict[str, Check] = {
    "invariance_error": _invariance, "equivariance_error": _equivariance,
}  # fmt: skip
"""What asks each instrument, by its name."""
