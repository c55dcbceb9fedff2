r"""Zachary's karate club: 34 members, 78 friendships, and the two clubs that it split into.

The graph is that of the published matrix, unweighted; members are numbered from 0. Member 0 is the
instructor (Mr. Hi), member 33 the club's president (John A., the "Officer"); `y` says whom each
member followed after the split.
"""

import torch

from vademecum.data.kinds import Graph

__all__ = ["karate_club"]

NEIGHBOURS = {
    0: (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 17, 19, 21, 31),
    1: (2, 3, 7, 13, 17, 19, 21, 30),
    2: (3, 7, 8, 9, 13, 27, 28, 32),
    3: (7, 12, 13),
    4: (6, 10),
    5: (6, 10, 16),
    6: (16,),
    8: (30, 32, 33),
    9: (33,),
    13: (33,),
    14: (32, 33),
    15: (32, 33),
    18: (32, 33),
    19: (33,),
    20: (32, 33),
    22: (32, 33),
    23: (25, 27, 29, 32, 33),
    24: (25, 27, 31),
    25: (31,),
    26: (29, 33),
    27: (33,),
    28: (31, 33),
    29: (32, 33),
    30: (32, 33),
    31: (32, 33),
    32: (33,),
}
"""Each member's friends with a higher number."""

MR_HI = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 17, 19, 21)


def karate_club(*, device: torch.device | str | None = None) -> Graph:
    """The graph, as `load("karate")` returns it.

    References:
        W. W. Zachary, An information flow model for conflict and fission in small groups, Journal
        of Anthropological Research, 1977.

    Example:
        >>> graph = karate_club()
        >>> graph.edge_index.shape[1] // 2, graph.n, graph.y.bincount().tolist()
        (78, 34, [17, 17])
    """
    edges = [(i, j) for i, friends in NEIGHBOURS.items() for j in friends]
    both = sorted(edges + [(j, i) for i, j in edges])
    y = torch.ones(34, dtype=torch.int64, device=device)
    y[list(MR_HI)] = 0
    return Graph(torch.tensor(both, device=device).T.contiguous(), 34, y, ("Mr. Hi", "Officer"))
