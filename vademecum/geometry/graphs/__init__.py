"""Graphs as sorted edges, and sums over neighbours as products with a sparse matrix."""

from vademecum.geometry.graphs.adjacencies import Adjacency, adjacency_of

__all__ = ["Adjacency", "adjacency_of"]
