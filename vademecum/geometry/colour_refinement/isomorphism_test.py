r"""The test of Weisfeiler and Leman: colours of nodes, refined by those of their neighbours.

All nodes begin with one colour, or with what is known of them. In every round a node's colour
becomes a name for the pair of its colour and the multiset of its neighbours' colours,

$$c_{t+1}(v) = \mathrm{name}\bigl(c_t(v),\ \{\{ c_t(u) : u \to v \}\}\bigr) ,$$

until no colour is parted any more, which takes at most $n - 1$ rounds. In directed graphs the
nodes that $v$ sends to are a second multiset; with coloured edges the members are pairs. Isomorphic
graphs have the same colours equally often, so graphs whose histograms differ in any round are not
isomorphic; if they agree, nothing follows.

Names are ranks found by sorting, and hold no hash that could collide; they depend on no numbering
of the nodes. Only the digest of the stable colouring is one, SHA-256: equal for graphs that the
test cannot tell apart, and for no others that anybody knows. The claims are `wl_test` and
`wl_incompleteness`.

References:
    Weisfeiler and Leman, The reduction of a graph to canonical form and the algebra which appears
    therein, Nauchno-Technicheskaya Informatsia, 1968. Paige and Tarjan, Three partition refinement
    algorithms, SIAM Journal on Computing, 1987.
"""

import hashlib
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.arguments import whole
from vademecum.geometry.colour_refinement._inputs import Graph, ranked, read_graph
from vademecum.geometry.colour_refinement._rounds import Rows, dense, refined, rows_of, runs_of
from vademecum.geometry.colour_refinement._runs import Ints
from vademecum.results import one_line

__all__ = ["WeisfeilerLeman", "colours_by_round", "weisfeiler_leman"]


class WeisfeilerLeman(NamedTuple):
    """Colours of one graph, or of two under the same names, and whether they differ.

    Example:
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3
        >>> found = weisfeiler_leman(path)
        >>> found.colours.tolist(), found.rounds
        ([0, 1, 0], 1)
    """

    colours: Int[Tensor, " n"]
    """The last colours of the nodes, from 0; they depend on no numbering of the nodes."""
    other_colours: Int[Tensor, " n2"] | None
    """Those of the second graph, None without one."""
    rounds: int
    """How many rounds parted a colour."""
    converged: bool
    """Whether a further round would part none."""
    hash: str | None
    """The digest of the stable colouring, equal for graphs that the test cannot tell apart,
    whatever graph stood beside them; None if it is not stable."""
    other_hash: str | None
    """That of the second graph."""
    different_at: int | None
    """The first round after which colours are unequally frequent, 0 for the first colours; None if
    there is none, or no second graph."""
    histograms: tuple[tuple[int, ...], tuple[int, ...]] | None
    """How often each colour of that round occurs in either graph."""

    __repr__ = one_line

    @property
    def verdict(self) -> str:
        """What the test says of two graphs: that they differ, and when; or that it cannot tell."""
        if self.different_at is None or self.histograms is None:
            return "cannot tell"
        return f"different (round {self.different_at}, histograms {_brief(*self.histograms)})"


def weisfeiler_leman(
    g1: Any,
    g2: Any = None,
    *,
    colours: Any = None,
    edge_colours: Any = None,
    max_iter: int | None = None,
) -> WeisfeilerLeman:
    """Refine colours until they are stable; of two graphs, tell whether they differ.

    Every entry of `edge_index` is an edge from its first row to its second: an undirected edge
    stands there twice, parallel edges count as often as they stand there.

    Args:
        g1: A graph: an `Adjacency`, or a pair (edge_index, num_nodes). Weights, if it has such,
            are colours of its edges.
        g2: Another one, or None.
        colours: First colours of the nodes: a number or a row of numbers each; with two graphs a
            pair of such tensors.
        edge_colours: Colours of the edges, in the same form.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`. Each is a round;
            there is none if colours are stable by then, and no limit by default.

    Raises:
        ValueError: If an index is out of range, or colours do not fit nodes or edges.

    Example:
        >>> def cycle(*nodes):
        ...     return torch.tensor([nodes, nodes[1:] + nodes[:1]])
        >>> hexagon, one, two = cycle(0, 1, 2, 3, 4, 5), cycle(0, 1, 2), cycle(3, 4, 5)
        >>> hexagon = torch.cat([hexagon, hexagon.flip(0)], 1)
        >>> triangles = torch.cat([one, one.flip(0), two, two.flip(0)], 1)
        >>> weisfeiler_leman((hexagon, 6), (triangles, 6)).verdict
        'cannot tell'
        >>> weisfeiler_leman((hexagon, 6), (triangles[:, :11], 6)).verdict
        'different (round 1, histograms 0 0 6 and 1 1 4)'
    """
    graphs = _graphs(g1, g2, colours, edge_colours)
    rounds = 2**62 if max_iter is None else whole("max_iter", max_iter, low=0)
    run, cut = _Joint(graphs), graphs[0].n
    different, last, done = None, None, -1
    converged = True
    for ids in run.rounds():
        if done == rounds:
            converged = False
            break
        last, done = ids, done + 1
        if g2 is not None and different is None:
            different = _difference(ids, cut, done)
    assert last is not None
    if not converged:
        warnings.warn(
            f"colours are not stable after {rounds} rounds", ConvergenceWarning, stacklevel=2
        )
    names = torch.from_numpy(dense(last)[0])
    hashes = [_digest(run, i, last) if converged else None for i in range(len(graphs))]
    return WeisfeilerLeman(
        names[:cut], names[cut:] if g2 is not None else None, done, converged, hashes[0],
        hashes[1] if g2 is not None else None, *(different or (None, None)),
    )  # fmt: skip


def colours_by_round(g1: Any, g2: Any = None, *, colours: Any = None) -> list[Tensor]:
    """The colours of all nodes at first and after each round, those of the second graph behind."""
    run = _Joint(_graphs(g1, g2, colours, None))
    return [torch.from_numpy(dense(ids)[0]) for ids in run.rounds()]


def _graphs(g1: Any, g2: Any, colours: Any, edge_colours: Any) -> list[Graph]:
    if g2 is None:
        return [read_graph("g1", g1, colours, edge_colours)]
    pairs = []
    for name, given in (("colours", colours), ("edge_colours", edge_colours)):
        if given is not None and not (isinstance(given, tuple | list) and len(given) == 2):
            kind = type(given).__name__
            raise ValueError(f"{name} must be a pair with two graphs, got {kind}")
        pairs.append((None, None) if given is None else given)
    both = zip(("g1", "g2"), (g1, g2), *pairs, ("[0]", "[1]"), strict=True)
    return [read_graph(*each) for each in both]


class _Joint:
    """Graphs side by side, as one, with names for their colours."""

    def __init__(self, graphs: list[Graph]):
        sizes = [g.n for g in graphs]
        first = np.cumsum([0, *sizes])
        self.slices = [slice(a, b) for a, b in pairwise(first.tolist())]
        edges = [len(g.source) for g in graphs]
        self.colours, self.colour_values = ranked([g.colours for g in graphs], sizes, "colours")
        self.n, kinds, self.kind_values = int(first[-1]), None, np.zeros((1, 0))
        if any(g.kinds is not None for g in graphs):
            kinds, self.kind_values = ranked([g.kinds for g in graphs], edges, "edge_colours")
        source, target = graphs[0].source, graphs[0].target
        if len(graphs) > 1:
            source = np.concatenate([source, graphs[1].source + first[1]])
            target = np.concatenate([target, graphs[1].target + first[1]])
        self.sides = rows_of(source, target, kinds, self.n)

    def rounds(self) -> Iterator[Ints]:
        return refined(self.colours, self.sides, max(1, len(self.kind_values)))


def _difference(ids: Ints, cut: int, done: int) -> tuple[int, Any] | None:
    """The round and the histograms, if those of the two graphs differ."""
    names, most = dense(ids)
    pair = [np.bincount(part, minlength=most) for part in (names[:cut], names[cut:])]
    return (
        None if np.array_equal(pair[0], pair[1]) else (done, tuple(tuple(h.tolist()) for h in pair))
    )


def _digest(run: _Joint, which: int, ids: Ints) -> str:
    """SHA-256 of a stable colouring: of each colour how many nodes it has, their first and runs.

    Colours and kinds of edges are numbered as if the graph stood alone. Where every node's runs of
    both directions agree, one counts, as in an undirected graph.
    """
    own = run.slices[which]
    counts = np.bincount(ids[own], minlength=run.n)
    names = np.cumsum(counts > 0) - 1
    colours, most = names[ids], max(1, int((counts > 0).sum()))
    nodes = np.zeros(most if counts.any() else 0, np.int64)
    nodes[colours[own][::-1]] = np.arange(own.start, own.stop)[::-1]  # the first one of each
    digest = hashlib.sha256(f"{own.stop - own.start} {run.colour_values.dtype}".encode())
    digest.update(counts[counts > 0].tobytes() + run.colour_values[run.colours[nodes]].tobytes())
    before: list[bytes] = []
    for side in run.sides:
        parts = [_bytes(part) for part in _own_runs(run, side, own, nodes, colours, most)]
        if parts != before:
            for part in parts:
                digest.update(f" {len(part)} ".encode() + part)
        before = parts
    return digest.hexdigest()


def _bytes(part: np.ndarray) -> bytes:
    """Numbers as bytes, integers as short as they can be, which their length tells."""
    small = part.dtype == np.int64 and not (part.size and part.max() >= 2**31)
    return (part.astype(np.int32) if small and part.min(initial=0) >= 0 else part).tobytes()


def _own_runs(
    run: _Joint, side: Rows, own: slice, nodes: Ints, colours: Ints, most: int
) -> list[np.ndarray]:
    """Lengths and runs of some nodes, and what the kinds of edges in the graph stand for."""
    if side.kinds is None:
        tokens, lengths, _ = runs_of(side, nodes, colours, most, 1)
        return [lengths, tokens]
    there = np.zeros(len(run.kind_values), bool)
    there[side.kinds[side.ptr[own.start] : side.ptr[own.stop]]] = True
    kinds = (np.cumsum(there) - 1)[side.kinds]
    tokens, lengths, _ = runs_of(side._replace(kinds=kinds), nodes, colours, most, int(there.sum()))
    return [lengths, tokens, run.kind_values[there]]


def _brief(one: tuple[int, ...], other: tuple[int, ...]) -> str:
    """Two histograms in a few words: of many colours those that tell them apart."""
    if len(one) <= 12:
        return " and ".join(" ".join(map(str, h)) for h in (one, other))
    apart = [i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    i = apart[0]
    return f"of {len(one)} colours: {len(apart)} apart, colour {i} {one[i]} and {other[i]} times"
