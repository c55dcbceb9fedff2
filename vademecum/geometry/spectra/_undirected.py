"""Refusing graphs that have an edge without its mirror image."""

import torch

from vademecum.geometry.graphs import Adjacency

__all__ = ["insist_on_mirror_images"]


def insist_on_mirror_images(graph: Adjacency, why: str) -> None:
    """Refuse a graph with an edge that has no mirror image of equal weight; it is named."""
    if graph.is_symmetric:
        return
    n, (source, target) = graph.num_nodes, graph.edge_index.long()
    keys = torch.cat([source * n + target, target * n + source])
    pairs, place = keys.unique(return_inverse=True)
    weight = torch.ones(graph.num_edges) if graph.weight is None else graph.weight.detach()
    signed = torch.cat([weight, -weight]).double().to(keys.device)
    gaps = torch.zeros(len(pairs), dtype=torch.float64, device=keys.device)
    u, v = divmod(int(pairs[gaps.index_add(0, place, signed).abs().argmax()]), n)
    ours, theirs = ((source == i) & (target == j) for i, j in ((u, v), (v, u)))
    weight = weight.to(keys.device)
    raise ValueError(
        f"edges must come in both directions with equal weights {why}, got {u} -> {v} of weight"
        f" {float(weight[ours].sum()):g} and {v} -> {u} of {float(weight[theirs].sum()):g}"
    )
