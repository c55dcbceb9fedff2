r"""The group that a few permutations or matrices generate: products with them until none is new.

Permutations, and matrices of integers, are multiplied exactly. Other matrices are told apart by
their entries, up to $10^{-6}$ times the largest one, or up to what rounded generators do to words
of $l$ of them, if that is more: with relative errors $\varepsilon / 2$ and norms of at most $M$,

$$\|w - \hat w\| \le \sum_{i=1}^l \|g_1 \cdots g_{i-1}\|\, \|g_i - \hat g_i\|\,
\|\hat g_{i+1} \cdots \hat g_l\| \le l M^3 \varepsilon / 2 .$$

Where elements are not three times as far apart, they are refused.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.geometry.groups._axioms import checked_table
from vademecum.geometry.groups._multiplication import Tabled, cycles

__all__ = ["MOST", "checked_permutation", "from_matrices", "from_permutations", "from_table"]

MOST = 4096
"""The largest order for which there are tables: int64 entries for all pairs take 128 MiB."""

Times = Callable[[Tensor, Tensor], Tensor]


def checked_permutation(name: str, points: Tensor) -> Tensor:
    """The permutation, if it is one.

    Raises:
        ValueError: If it is none; it names the first entry that is out of range or comes again.
    """
    if not isinstance(points, Tensor) or points.ndim != 1:
        given = tuple(points.shape) if isinstance(points, Tensor) else type(points).__name__
        raise ValueError(f"{name} must be a vector, got {given}")
    if points.is_floating_point() or points.is_complex() or points.dtype == torch.bool:
        raise ValueError(f"{name} must hold integers, got {points.dtype}")
    seen = set[int]()
    for i, p in enumerate(points.tolist()):
        if not 0 <= p < len(points) or p in seen:
            what = "again" if p in seen else f"outside 0 to {len(points) - 1}"
            raise ValueError(f"{name} must be a permutation, got {p} {what} at {i}")
        seen.add(p)
    return points.long()


def from_table(table: Tensor, names: tuple[str, ...], permutations: Tensor | None = None) -> Tabled:
    """The law of a table, which is checked; by default it permutes its own elements."""
    table = table.cpu()
    found = checked_table(table, lambda g: names[g])
    moved = table.long() if permutations is None else permutations
    return Tabled(table.long(), found.inverses, found.identity, found.generators, moved, names)


def from_permutations(generators: list[Tensor]) -> Tabled:
    """The law of the group that permutations generate."""
    given = [checked_permutation(f"generators[{i}]", p) for i, p in enumerate(generators)]
    sizes = {len(p) for p in given}
    if len(sizes) != 1:
        raise ValueError(
            "generators must be permutations of equally many points, got"
            f" {[len(p) for p in given] or 'none'}"
        )
    start = torch.arange(sizes.pop(), device="cpu")[None]
    found, table = _exactly(start, torch.stack(given).cpu(), lambda g, h: g.gather(-1, h))
    return from_table(table, tuple(cycles(p) for p in found.tolist()), found)


def from_matrices(generators: list[Tensor]) -> tuple[Tabled, Tensor]:
    """The law of the group that matrices generate, and all its matrices."""
    sizes = {tuple(m.shape) if isinstance(m, Tensor) else () for m in generators}
    if len(sizes) != 1 or len(shape := sizes.pop()) != 2 or shape[0] != shape[1] or not shape[0]:
        raise ValueError("generators must be square matrices of one size")
    if any(m.is_complex() for m in generators):
        raise ValueError("generators must be real, got complex numbers")
    exact = not any(m.is_floating_point() for m in generators)
    given = torch.stack([m.long() if exact else m.double() for m in generators]).cpu()
    if not torch.isfinite(given).all():
        raise ValueError("generators must be finite")
    start = torch.eye(shape[0], dtype=given.dtype, device="cpu")[None]
    epsilon = max([torch.finfo(m.dtype).eps for m in generators if m.is_floating_point()] or [0.0])
    found, table = _exactly(start, given, _product) if exact else _nearly(start, given, epsilon)
    names = tuple("e" if i == 0 else f"g{i}" for i in range(len(found)))
    return from_table(table, names), found


def _product(a: Tensor, b: Tensor) -> Tensor:
    """The products of matrices of integers, none of which may be too large for their dtype."""
    if float((a.double().abs() @ b.double().abs()).max()) >= 2.0**62:
        raise ValueError("generators must have products below 2^62, as those of a finite group do")
    return a @ b


def _exactly(start: Tensor, given: Tensor, times: Times) -> tuple[Tensor, Tensor]:
    """All products of integers, and their table."""

    def keys(some: Tensor) -> list[tuple[int, ...]]:
        return [tuple(row) for row in some.flatten(1).tolist()]

    found = new = start
    index = {keys(start)[0]: 0}
    while len(new):
        shape = (len(new), len(given), *start.shape[1:])
        factors = new[:, None].expand(shape), given.expand(shape)
        fresh = []
        for key, each in zip(keys(p := times(*factors).flatten(0, 1)), p, strict=True):
            if key not in index:
                index[key] = len(index)
                fresh.append(each)
        _insist_on_few(len(index))
        new = torch.stack(fresh) if fresh else new[:0]
        found = torch.cat([found, new])
    rows = [[index[key] for key in keys(times(g.expand(found.shape), found))] for g in found]
    return found, torch.tensor(rows, device="cpu")


def _nearly(start: Tensor, given: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The same for floating-point numbers, equal if they are close."""
    _insist_on_unit_determinants(given, epsilon)
    found = new = start
    length, apart = 0, torch.inf
    while len(new):
        length += 1
        products = (new[:, None] @ given).flatten(0, 1)
        reach = _reach(found, 2 * length, epsilon)  # of the one word and of the other
        places, far = _places(products, found, reach)
        fresh, apart = products[places < 0], min(apart, *far[places < 0].tolist(), torch.inf)
        if apart < 3 * reach:
            raise ValueError(
                "generators must be more precise, or of a smaller group: elements differ by"
                f" {apart:.2g} and rounding may make {reach:.2g}"
            )
        new = fresh[:0]
        while len(fresh):  # the first of those that are alike
            new = torch.cat([new, fresh[:1]])
            fresh = fresh[_places(fresh, fresh[:1], reach)[0] < 0]
            _insist_on_few(len(found) + len(new))
        found = torch.cat([found, new])
    reach = _reach(found, 3 * length, epsilon)  # of two words and of the one that they are
    return found, torch.stack([_places(g @ found, found, reach)[0] for g in found])


def _insist_on_unit_determinants(given: Tensor, epsilon: float) -> None:
    for i, m in enumerate(given):
        det = abs(float(torch.linalg.det(m)))
        rounding = float(m.norm() * torch.linalg.inv(m).norm()) * epsilon if det > 0.5 else 0.0
        if abs(det - 1) > max(1e-6, rounding):
            raise ValueError(
                "generators must have determinants 1 or -1 in a finite group, got"
                f" {float(torch.linalg.det(m)):.6g} for generators[{i}]"
            )


def _reach(found: Tensor, length: int, epsilon: float) -> float:
    """How far off words of so many generators may be, all in all."""
    norm = float(found.flatten(1).norm(dim=1).max())
    return max(1e-6 * float(found.abs().max()), length * norm**3 * epsilon / 2)


def _places(some: Tensor, among: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """Which of some matrices each is, or -1; and how far from the nearest."""
    nearest = torch.cdist(some.flatten(1), among.flatten(1), p=torch.inf).min(1)
    return torch.where(nearest.values <= reach, nearest.indices, -1), nearest.values


def _insist_on_few(count: int) -> None:
    if count > MOST:
        raise ValueError(f"generators must generate at most {MOST} elements, and there are more")
