"""Graphs as sorted edges, and sums over neighbours as products with a sparse matrix."""

from vademecum.geometry.graphs.adjacencies import Adjacency, adjacency_of
from vademecum.geometry.graphs.normalisation import gcn_norm, insist_on_symmetry, inverse_roots

__all__ = ["Adjacency", "adjacency_of", "gcn_norm", "insist_on_symmetry", "inverse_roots"]
