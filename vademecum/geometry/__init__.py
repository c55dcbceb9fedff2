"""Groups, sets and graphs: networks that respect the symmetries of their inputs.

A *group* acts on inputs; a network is *invariant* if that changes nothing, *equivariant* if its
output moves along. Sets know no order, graphs no numbering of their nodes: their layers add up
over elements and neighbours. What such layers see, smooth away and cannot tell apart is measured.
"""

from vademecum.geometry.graphs import Adjacency, gcn_norm

__all__ = [
    # graphs
    "Adjacency",
    "gcn_norm",
]
