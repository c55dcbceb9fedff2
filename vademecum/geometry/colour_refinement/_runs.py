r"""Splitting groups of nodes by the sorted runs of their neighbours' colours, exactly.

A node's multiset is a *run*: its neighbours' colours, sorted, one after the other in one array. Two
nodes of a group stay together if their runs have one length and agree place by place. Places are
compared from the left, as many at once as fit into an integer of 64 bits beside the group and the
node's own place, so that one sort of integers does it; nodes that are alone in their group drop
out. What still agrees after a while is long, and is compared as strings of bytes. No hash is
involved, and every comparison is exact.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ints", "gathered", "sorted_by", "sorted_runs", "split"]

Ints = NDArray[np.int64]
_STEPS = 24
"""Sorts of integers before strings are compared: these cost a microsecond a node, whose runs are
long by then."""


def gathered(ptr: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """The places of the entries of some rows, one row after the other, and the rows' lengths."""
    lengths = ptr[rows + 1] - ptr[rows]
    ends = np.cumsum(lengths)
    places = np.repeat(ptr[rows] - ends + lengths, lengths)
    places += np.arange(len(places))
    return places, lengths


def sorted_runs(tokens: Ints, lengths: Ints, most: int) -> Ints:
    """Each run sorted; `tokens` are below `most`."""
    if len(lengths) * most >= 2**62:
        known, ranks = np.unique(tokens, return_inverse=True)
        return known[sorted_runs(ranks.reshape(-1), lengths, len(known))]
    small = np.int32 if len(lengths) * most < 2**31 else np.int64  # which sorts twice as fast
    base = np.repeat(np.arange(len(lengths), dtype=small) * small(most), lengths)
    runs = base + tokens.astype(small)
    runs.sort()
    runs -= base
    return runs.astype(np.int64)


def sorted_by(groups: Ints, keys: Ints, most: int) -> tuple[Ints, Ints]:
    """The order by group and then by key, and for each place in it the first place that is equal.

    Args:
        groups: Groups, in increasing order.
        keys: Numbers from 0.
        most: What is larger than all of them.
    """
    n = len(groups)
    ranks = np.cumsum(np.diff(groups, prepend=groups[:1]) != 0)
    bits = n.bit_length()
    if (int(ranks[-1]) + 1) * most < 2 ** (63 - bits):
        packed = np.sort(((ranks * most + keys) << bits) | np.arange(n))
        order, both = packed & ((1 << bits) - 1), packed >> bits
        fresh = np.diff(both, prepend=-1) != 0
    else:
        order = np.lexsort((keys, ranks))
        fresh = np.diff(ranks, prepend=-1) != 0
        fresh |= np.diff(keys[order], prepend=-1) != 0
    return order, np.maximum.accumulate(np.where(fresh, np.arange(n), 0))


def split(groups: Ints, lengths: Ints, tokens: Ints, most: int, *, by_length: bool) -> Ints:
    """New groups: those of before, parted by the lengths of runs and then by the runs.

    Args:
        groups: The groups of the nodes, in increasing order. Between one and the next there must
            be room for their nodes: parts are numbered on from the group's number by how many
            nodes go before.
        lengths: The lengths of the nodes' runs.
        tokens: The runs, sorted, one after the other.
        most: What is larger than all tokens.
        by_length: Whether runs of a group may differ in length.
    """
    starts, found = np.cumsum(lengths) - lengths, groups.copy()
    nodes, place = np.arange(len(groups)), 0
    bits = max(most - 1, 1).bit_length()
    key, high = lengths, int(lengths.max(initial=0)) + 1
    for step in range(_STEPS):
        if step or by_length:
            order, first = sorted_by(groups, key, high)
            nodes, groups = nodes[order], groups + first - _beginnings(groups)
            found[nodes] = groups
            crowd = np.empty(len(first), bool)  # whether another one is equal
            crowd[:-1] = first[1:] == first[:-1]
            crowd[-1] = False
            crowd[1:] |= crowd[:-1].copy()
            crowd &= (lengths[nodes] > place) & (most > 1)
            nodes, groups = nodes[crowd], groups[crowd]
        if not len(nodes) or most == 1:
            return found
        width = max(1, (62 - 2 * len(nodes).bit_length()) // bits)
        key = _packed(tokens, starts[nodes], lengths[nodes], place, width, bits)
        place, high = place + width, 1 << bits * width
    order, first = sorted_by(groups, key, high)
    nodes, groups = nodes[order], groups + first - _beginnings(groups)
    found[nodes] = _by_bytes(groups, nodes, starts + place, starts + lengths, tokens)
    return found


def _beginnings(groups: Ints) -> Ints:
    """The first place of the group of each, of groups in increasing order."""
    fresh = np.diff(groups, prepend=-1) != 0
    return np.maximum.accumulate(np.where(fresh, np.arange(len(groups)), 0))


def _packed(tokens: Ints, starts: Ints, lengths: Ints, place: int, width: int, bits: int) -> Ints:
    """So many tokens of each run from a place on as one integer; those beyond its end are 0."""
    key = np.zeros(len(starts), np.int64)
    for j in range(place, place + width):
        if j >= lengths.max():
            key <<= bits * (place + width - j)
            break
        inside = j < lengths
        key = (key << bits) | np.where(inside, tokens[np.where(inside, starts + j, 0)], 0)
    return key


def _by_bytes(groups: Ints, nodes: Ints, starts: Ints, ends: Ints, tokens: Ints) -> Ints:
    """New groups by what is left of the runs, as strings that sort as their tokens do."""
    text, eight = tokens.astype(">i8").tobytes(), 8
    left = [text[eight * starts[i] : eight * ends[i]] for i in nodes]
    order = sorted(range(len(nodes)), key=lambda i: (groups[i], left[i]))
    begin, found = _beginnings(groups), groups.copy()
    first = 0
    for i, node in enumerate(order):
        before = order[i - 1]
        if not i or groups[node] != groups[before] or left[node] != left[before]:
            first = i
        found[node] = groups[node] + first - begin[i]
    return found
