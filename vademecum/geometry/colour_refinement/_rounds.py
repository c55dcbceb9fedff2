r"""Colour refinement, round by round, of a graph in rows of neighbours.

A colour is a number: how many nodes have a smaller one. A round parts the nodes of each colour by
the multisets of their neighbours' colours and numbers the parts on from the colour of before, so
that a colour that is not parted keeps its number, and the first part does. Only colours with a
node that has a neighbour of a new colour are looked at again. Numbers depend on no numbering of
the nodes: parts are in the order of their sorted runs.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vademecum.geometry.colour_refinement._runs import Ints, gathered, sorted_runs, split

__all__ = ["Rows", "dense", "refined", "rows_of", "runs_of"]


class Rows(NamedTuple):
    """For each node its neighbours, in one array, and the kinds of the edges to them."""

    ptr: Ints
    neighbours: Ints
    kinds: Ints | None


def rows_of(source: Ints, target: Ints, kinds: Ints | None, n: int) -> list[Rows]:
    """Who sends to each node and, unless that is the same, who receives from it."""
    ends, bits = ((target, source), (source, target)), n.bit_length()
    room = 0 if kinds is None else int(kinds.max(initial=0)).bit_length()
    fits = 2 * bits + room <= 63
    ways = [_packed(*e, kinds, bits, room) if fits else _stacked(*e, kinds) for e in ends]
    if np.array_equal(ways[0], ways[1]):
        ways = ways[:1]
    found = []
    for way, (row, _) in zip(ways, ends, strict=False):
        ptr = np.zeros(n + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=n), out=ptr[1:])
        column = (way >> room) & ((1 << bits) - 1) if fits else way[1]
        kind = None if kinds is None else way & ((1 << room) - 1) if fits else way[2]
        found.append(Rows(ptr, column, kind))
    return found


def _packed(row: Ints, column: Ints, kinds: Ints | None, bits: int, room: int) -> Ints:
    """Edges by row, column and kind, each as one integer."""
    both = (row << bits) | column
    if kinds is not None:
        both = (both << room) | kinds
    if 2 * bits + room < 32:  # which sorts twice as fast
        both = both.astype(np.int32)
    both.sort()
    return both.astype(np.int64)


def _stacked(row: Ints, column: Ints, kinds: Ints | None) -> Ints:
    """The same for numbers that one integer does not hold."""
    edges = np.stack([row, column, np.zeros_like(row) if kinds is None else kinds])
    return edges[:, np.lexsort(edges[::-1])]


def dense(ids: Ints) -> tuple[Ints, int]:
    """Colours from 0 without gaps, in their order, and how many there are."""
    present = np.zeros(len(ids), np.int64)
    present[ids] = 1
    return (np.cumsum(present) - 1)[ids], int(present.sum())


def runs_of(
    side: Rows, nodes: Ints, colours: Ints, most: int, kinds: int
) -> tuple[Ints, Ints, int]:
    """Sorted runs of some nodes, their lengths, and what is larger than all tokens."""
    if most == 1 and side.kinds is None:
        lengths = side.ptr[nodes + 1] - side.ptr[nodes]
        return np.zeros(int(lengths.sum()), np.int64), lengths, 1
    places, lengths = gathered(side.ptr, nodes)
    tokens = colours[side.neighbours[places]]
    if side.kinds is not None:
        tokens, most = side.kinds[places] * most + tokens, most * kinds
    return sorted_runs(tokens, lengths, most), lengths, most


def refined(colours: Ints, sides: list[Rows], kinds: int) -> Iterator[Ints]:
    """The colours at first and after each round that parts any, until none does.

    Args:
        colours: The first colours, from 0.
        sides: The neighbours that count.
        kinds: How many kinds of edges there are.
    """
    n, changed = len(colours), None
    counts = np.bincount(colours)
    ids = (np.cumsum(counts) - counts)[colours]
    yield ids
    while True:
        crowd = np.bincount(ids, minlength=n)[ids] > 1
        if changed is not None and len(changed) < np.count_nonzero(crowd):
            hit = np.zeros(n, bool)
            for side in sides:
                hit[ids[side.neighbours[gathered(side.ptr, changed)[0]]]] = True
            crowd &= hit[ids]
        nodes = _in_order(ids, np.flatnonzero(crowd))
        if not len(nodes):
            return
        (ranks, most), groups = dense(ids), ids[nodes]
        for side in sides:
            tokens, lengths, most_tokens = runs_of(side, nodes, ranks, most, kinds)
            groups = split(groups, lengths, tokens, most_tokens, by_length=changed is None)
            if side is not sides[-1]:
                order = np.argsort(groups, kind="stable")
                nodes, groups = nodes[order], groups[order]
        changed = nodes[ids[nodes] != groups]
        if not len(changed):
            return
        ids = ids.copy()
        ids[nodes] = groups
        yield ids


def _in_order(ids: Ints, nodes: Ints) -> Ints:
    """Nodes by their colours."""
    bits = len(ids).bit_length()
    return np.sort((ids[nodes] << bits) | nodes) & ((1 << bits) - 1)
