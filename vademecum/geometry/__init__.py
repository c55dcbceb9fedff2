"""Groups, sets and graphs: networks that respect the symmetries of their inputs.

A *group* acts on inputs; a network is *invariant* if that changes nothing, *equivariant* if its
output moves along. Sets know no order, graphs no numbering of their nodes: their layers add up
over elements and neighbours. What such layers see, smooth away and cannot tell apart is measured.
"""

from vademecum.geometry.colour_refinement import (
    WeisfeilerLeman,
    WLCeiling,
    weisfeiler_leman,
    wl_ceiling,
)
from vademecum.geometry.depth import (
    LeafInfluence,
    Oversmoothing,
    draw_leaf_influence,
    draw_oversmoothing,
    leaf_influence,
    oversmoothing,
)
from vademecum.geometry.graph_layers import (
    GAT,
    GCN,
    GIN,
    ChebConv,
    ChebNet,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GraphAttention,
    LinkScores,
    link_scores,
    message_passing,
)
from vademecum.geometry.graphs import Adjacency, GraphBatch, batch_graphs, gcn_norm
from vademecum.geometry.groups import (
    EquivarianceError,
    FeatureAction,
    GraphAction,
    Group,
    GroupBatchNorm2d,
    GroupConv2d,
    GroupPool,
    ImageAction,
    NotAGroup,
    PointAction,
    Representation,
    draw_orbit,
    equivariance_error,
    equivariant_basis,
    invariance_error,
    permutation_matrix,
    symmetrize,
)
from vademecum.geometry.sets import CriticalSet, DeepSets, PointNet, PointNetOutput, critical_set
from vademecum.geometry.spectra import (
    GraphFourier,
    GraphLaplacian,
    PolynomialConv,
    dirichlet_energy,
    graph_fourier,
    graph_laplacian,
    polynomial_filter,
)

__all__ = [
    # graphs
    "Adjacency", "GraphBatch", "batch_graphs", "gcn_norm",
    # layers and networks on graphs
    "ChebConv", "GATConv", "GATv2Conv", "GCNConv", "GINConv", "GraphAttention", "message_passing",
    "ChebNet", "GAT", "GCN", "GIN", "LinkScores", "link_scores",
    # groups, their representations and actions
    "Group", "NotAGroup", "Representation", "permutation_matrix", "FeatureAction", "GraphAction",
    "ImageAction", "PointAction",
    # how far any model is from a symmetry
    "EquivarianceError", "draw_orbit", "equivariance_error", "invariance_error",
    # models with a symmetry
    "GroupBatchNorm2d", "GroupConv2d", "GroupPool", "equivariant_basis", "symmetrize",
    # sets
    "CriticalSet", "DeepSets", "PointNet", "PointNetOutput", "critical_set",
    # what graph networks can tell apart
    "WLCeiling", "WeisfeilerLeman", "weisfeiler_leman", "wl_ceiling",
    # spectra of graphs
    "GraphFourier", "GraphLaplacian", "dirichlet_energy", "graph_fourier", "graph_laplacian",
    # filters
    "PolynomialConv", "polynomial_filter",
    # what depth does to any graph network
    "LeafInfluence", "Oversmoothing", "draw_leaf_influence", "draw_oversmoothing",
    "leaf_influence", "oversmoothing",
]  # fmt: skip
