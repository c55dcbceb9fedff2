"""Refusing graphs that have an edge without its mirror image, where there is no other way."""

from vademecum.geometry.graphs import Adjacency

__all__ = ["insist_on_mirror_images"]


def insist_on_mirror_images(graph: Adjacency, what: str) -> None:
    """Refuse a directed graph, of which there is no such thing; an edge is named."""
    if graph.one_way_edge is not None:
        source, target = graph.one_way_edge
        raise ValueError(
            f"edges must be undirected for {what}, got {source} -> {target} without its mirror"
            " image of the same weight"
        )
