"""Layers and networks on graphs, with PyG's names of parameters."""

from vademecum.geometry.graph_layers.attentions import GATConv, GATv2Conv, GraphAttention
from vademecum.geometry.graph_layers.chebyshev import ChebConv
from vademecum.geometry.graph_layers.convolutions import GCNConv
from vademecum.geometry.graph_layers.custom_messages import message_passing
from vademecum.geometry.graph_layers.isomorphism import GINConv
from vademecum.geometry.graph_layers.links import LinkScores, link_scores
from vademecum.geometry.graph_layers.networks import GAT, GCN, GIN, ChebNet

__all__ = [
    "GAT", "GCN", "GIN", "ChebConv", "ChebNet", "GATConv", "GATv2Conv", "GCNConv", "GINConv",
    "GraphAttention", "LinkScores", "link_scores", "message_passing",
]  # fmt: skip
