"""Graphs as sorted edges, and sums over neighbours as products with a sparse matrix."""

from vademecum.geometry.graphs._checks import check_features, is_edge_index
from vademecum.geometry.graphs._edge_numbers import (
    at_edges,
    edge_maxima,
    edge_softmax,
    edge_totals,
)
from vademecum.geometry.graphs._edge_rows import (
    row_maxima,
    row_totals,
    rows_at,
    sources_of_part,
    targets_of_part,
)
from vademecum.geometry.graphs._graph_totals import over_graphs
from vademecum.geometry.graphs._largest_eigenvalues import largest_eigenvalues
from vademecum.geometry.graphs._network_inputs import (
    GraphInput,
    holds_graph,
    map_graph,
    read_graph,
)
from vademecum.geometry.graphs._products import neighbour_sums
from vademecum.geometry.graphs._quiet_sparse import quiet_sparse
from vademecum.geometry.graphs._sorted_edges import SortedEdges
from vademecum.geometry.graphs.adjacencies import Adjacency, adjacency_of
from vademecum.geometry.graphs.batching import GraphBatch, batch_graphs
from vademecum.geometry.graphs.normalisation import gcn_norm, insist_on_symmetry, inverse_roots

__all__ = [
    # exported by the room
    "Adjacency", "GraphBatch", "batch_graphs", "gcn_norm",
    # for the room's own use
    "GraphInput", "SortedEdges", "adjacency_of", "at_edges", "edge_maxima", "edge_softmax",
    "edge_totals", "holds_graph", "insist_on_symmetry", "inverse_roots", "largest_eigenvalues",
    "map_graph", "neighbour_sums", "over_graphs", "check_features", "is_edge_index", "quiet_sparse",
    "read_graph", "row_maxima", "row_totals", "rows_at", "sources_of_part", "targets_of_part",
]  # fmt: skip
