"""The instruments of `geometry` that ask graph networks, against dense matrices and hooks."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bench.outside.cases import Subject, call
from bench.outside.derivatives import Check, _same, _seeded
from bench.outside.oracles import Oracle
from vademecum.geometry import leaf_influence, oversmoothing, wl_ceiling

__all__ = ["ON_GRAPHS"]

NODE = 2


def _features(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else x["x"] if isinstance(x, dict) else x[0]


def _replaced(x: Any, features: Tensor, edges: Tensor | None = None) -> Any:
    """The input with other features, and other edges."""
    if isinstance(x, dict):
        return x | {"x": features} | ({} if edges is None else {"edge_index": edges})
    if isinstance(x, Tensor):
        return features
    return features, x[1] if edges is None else edges


def _propagation(edges: Tensor, n: int) -> Tensor:
    A = torch.eye(n, dtype=torch.float64)
    A[edges[1], edges[0]] = 1
    d = A.sum(1)
    return A / torch.outer(d, d).sqrt()


def _layers(model: nn.Module) -> list[nn.Module]:
    network: Any = getattr(model, "network", model)
    return list(network.convs)


def _oversmoothing(s: Subject, o: Oracle) -> Iterator[str]:
    edges = s.graph if isinstance(s.x, Tensor) else None
    found = oversmoothing(s.model, s.x, edges=edges)
    seen = [_features(s.x)]
    hooks = [m.register_forward_hook(lambda _, __, h: seen.append(h.detach().clone()))
             for m in _layers(o.model)]  # fmt: skip
    o.result()
    for hook in hooks:
        hook.remove()
    P = _propagation(s.graph, len(seen[0]))
    energy = torch.stack([(h * (h - P @ h)).sum() for h in seen])
    rate = torch.linalg.eigvalsh(P)[:-1].abs().max()
    yield _same(o)("energies", found.energy[:, 0], energy)
    yield _same(o)("rate", found.rate[0], rate)


def _leaf_influence(s: Subject, o: Oracle) -> Iterator[str]:
    edges = s.graph if isinstance(s.x, Tensor) else None
    found = leaf_influence(s.model, s.x, node=NODE, edges=edges)

    def at_node(x: Tensor) -> Tensor:
        return o.output_of(_replaced(o.subject.x, x))[NODE]

    x = _features(o.subject.x)
    J = torch.autograd.functional.jacobian(at_node, x)
    assert isinstance(J, Tensor)
    yield _same(o)("influence", found.influence, torch.linalg.matrix_norm(J.movedim(1, 0), 2))
    depth = len(_layers(o.model))
    walks = torch.linalg.matrix_power(_propagation(s.graph, len(x)), depth)[NODE]
    yield _same(o)("walks", found.walks, walks)


def _both_ways(*pairs: tuple[int, int]) -> Tensor:
    one = torch.tensor(pairs).T
    return torch.cat([one, one.flip(0)], 1)


HEXAGON = _both_ways(*((i, (i + 1) % 6) for i in range(6)))
TRIANGLES = _both_ways((0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3))
STAR = _both_ways(*((0, i) for i in range(1, 6)))


def _wl_ceiling(s: Subject, o: Oracle) -> Iterator[str]:
    ones = torch.ones_like(_features(s.x))
    hexagon, triangles, star = (_replaced(s.x, ones, e) for e in (HEXAGON, TRIANGLES, STAR))
    found = wl_ceiling(s.model, hexagon, triangles, generator=_seeded())
    if found.separated or found.test.verdict != "cannot tell":
        yield f"a hexagon and two triangles: {found.verdict}; the test: {found.test.verdict}"
    other = wl_ceiling(s.model, hexagon, star, generator=_seeded())
    outputs = [call(o.model, x).detach().sort(0).values for x in (hexagon, star)]
    apart = bool((outputs[0] - outputs[1]).norm() > 1e-9 * outputs[0].norm())
    if apart != bool(other.gaps[0] > 1e-9):
        yield f"a hexagon and a star: a gap of {float(other.gaps[0]):.2g}, own outputs {apart}"
    if other.test.verdict == "cannot tell":
        yield "the test does not tell a hexagon from a star"


ON_GRAPHS: dict[str, Check] = {
    "oversmoothing": _oversmoothing, "leaf_influence": _leaf_influence, "wl_ceiling": _wl_ceiling,
}  # fmt: skip
"""What asks each of them, by its name."""
