"""Colour refinement against nested tuples, networkx' graphs, renumberings, and known pairs."""

import warnings
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from vademecum.geometry import weisfeiler_leman
from vademecum.geometry.colour_refinement import _rounds, _runs, colours_by_round


def of(graph: Any) -> tuple[torch.Tensor, int]:
    """A graph of networkx', undirected edges twice."""
    graph = nx.convert_node_labels_to_integers(graph)
    edges = torch.tensor(list(graph.edges), dtype=torch.long).reshape(-1, 2).T
    both = edges if graph.is_directed() else torch.cat([edges, edges.flip(0)], 1)
    return both, len(graph)


def by_tuples(graphs: list, rounds: int, *, directed: bool = False) -> list[list]:
    """Colours as nested tuples, of graphs ((edges, n), colours, edge colours)."""
    names = [[repr(c) for c in colours] for _, colours, _ in graphs]
    for _ in range(rounds):
        new = []
        for ((edges, n), _, kinds), old in zip(graphs, names, strict=True):
            pairs = list(zip(*edges.tolist(), kinds, strict=True))
            new.append([
                (old[v],
                 tuple(sorted((k, old[u]) for u, w, k in pairs if w == v)),
                 tuple(sorted((k, old[w]) for u, w, k in pairs if u == v)) if directed else ())
                for v in range(n)
            ])  # fmt: skip
        table = {name: f"{i:05d}" for i, name in enumerate(sorted({x for g in new for x in g}))}
        names = [[table[x] for x in g] for g in new]
    return names


def same_partition(a, b) -> bool:
    pairs = set(zip(list(a), list(b), strict=True))
    return len(pairs) == len({x for x, _ in pairs}) == len({y for _, y in pairs})


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 9))
    edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
    undirected = draw(st.booleans())
    pairs = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    kinds = torch.tensor(
        draw(st.lists(st.integers(0, 1), min_size=len(edges), max_size=len(edges)))
    )
    if undirected:
        pairs, kinds = torch.cat([pairs, pairs.flip(0)], 1), torch.cat([kinds, kinds])
    colours = torch.tensor(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    return pairs, n, colours, kinds.long()


@settings(max_examples=60, deadline=None)
@given(graphs(), graphs(), st.booleans(), st.booleans())
def test_against_nested_tuples(one, other, coloured, kinds):
    both = [
        ((g[0], g[1]), g[2].tolist() if coloured else [0] * g[1],
         g[3].tolist() if kinds else [0] * g[0].shape[1])
        for g in (one, other)
    ]  # fmt: skip
    found = weisfeiler_leman(
        one[:2], other[:2], colours=(one[2], other[2]) if coloured else None,
        edge_colours=(one[3], other[3]) if kinds else None,
    )  # fmt: skip
    wanted = by_tuples(both, 18, directed=True)
    assert found.other_colours is not None
    joint = [*found.colours.tolist(), *found.other_colours.tolist()]
    assert same_partition(joint, wanted[0] + wanted[1])
    assert (found.different_at is None) == (sorted(wanted[0]) == sorted(wanted[1]))
    assert (found.different_at is None) == (found.hash == found.other_hash)
    if found.different_at is not None:
        for t in (found.different_at - 1, found.different_at):
            if t >= 0:
                now = by_tuples(both, t, directed=True)
                assert (sorted(now[0]) != sorted(now[1])) == (t == found.different_at)
    for i, g in enumerate((one, other)):
        alone = weisfeiler_leman(
            g[:2], colours=g[2] if coloured else None, edge_colours=g[3] if kinds else None
        )
        assert alone.hash == (found.hash, found.other_hash)[i]
        assert same_partition(alone.colours.tolist(), wanted[i])


@settings(max_examples=40, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_colours_do_not_depend_on_the_numbering(g, random):
    edges, n, colours, kinds = g
    order = list(range(n))
    random.shuffle(order)
    place, columns = torch.tensor(order), list(range(edges.shape[1]))
    random.shuffle(columns)
    moved = torch.empty_like(colours)
    moved[place] = colours
    one = weisfeiler_leman((edges, n), colours=colours, edge_colours=kinds)
    two = weisfeiler_leman(
        (place[edges[:, columns]], n), colours=moved, edge_colours=kinds[columns]
    )
    assert one.hash == two.hash
    assert one.rounds == two.rounds
    assert two.colours[place].equal(one.colours)


def test_all_graphs_with_six_nodes_at_most():
    hashes = [weisfeiler_leman(of(g)).hash for g in nx.graph_atlas_g()[1:209]]
    assert len(hashes) == 208
    assert sum(a != b for a, b in combinations(hashes, 2)) == 21524


def shrikhande() -> Any:
    graph = nx.Graph()
    for a in range(4):
        for b in range(4):
            for x, y in ((0, 1), (1, 0), (1, 1)):
                graph.add_edge((a, b), ((a + x) % 4, (b + y) % 4))
    return graph


def test_pairs_that_it_cannot_tell():
    rook = nx.line_graph(nx.complete_bipartite_graph(4, 4))
    triangles = nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
    for one, other in ((rook, shrikhande()), (nx.cycle_graph(6), triangles)):
        assert not nx.is_isomorphic(one, other)
        found = weisfeiler_leman(of(one), of(other))
        assert found.verdict == "cannot tell"
        assert found.hash == found.other_hash
        assert found.rounds == 0


def test_a_path_takes_half_its_length():
    for n in (2, 3, 7, 8):
        found = weisfeiler_leman(of(nx.path_graph(n)))
        assert found.rounds == (n - 1) // 2
        assert found.colours.unique().numel() == (n + 1) // 2


def test_directions_count():
    one = torch.tensor([[0, 1], [1, 2]])  # 0 -> 1 -> 2
    fork = torch.tensor([[1, 1], [0, 2]])  # 0 <- 1 -> 2
    join = torch.tensor([[0, 2], [1, 1]])
    for a, b in combinations((one, fork, join), 2):
        assert weisfeiler_leman((a, 3), (b, 3)).different_at == 1
    # received messages alone tell no node of these apart from the start of a path
    cycle = torch.tensor([[0, 1, 2], [1, 2, 0]])
    assert weisfeiler_leman((cycle, 3)).rounds == 0


def test_weights_of_an_object_are_colours_of_edges():
    class Weighted:
        edge_index, num_nodes, weight = torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([1.0, 2.0])

    assert weisfeiler_leman(Weighted()).colours.tolist() == [1, 0]
    same = weisfeiler_leman((Weighted.edge_index, 2), edge_colours=Weighted.weight)
    assert same.hash == weisfeiler_leman(Weighted()).hash
    assert same.hash != weisfeiler_leman((Weighted.edge_index, 2)).hash


def test_long_runs_and_large_numbers(monkeypatch):
    edges, n = of(nx.complete_bipartite_graph(30, 400))
    colours = torch.cat([torch.zeros(30).long(), 10**15 * torch.arange(400)])
    found = weisfeiler_leman((edges, n), colours=colours)
    assert found.colours.unique().numel() == 401
    cut = weisfeiler_leman((edges[:, edges[0] + edges[1] != 29 + 429], n), colours=colours)
    assert cut.colours.unique().numel() == 402  # one of the thirty lacks the last neighbour
    swapped = edges.clone()
    monkeypatch.setattr(_runs, "_STEPS", 1)
    assert weisfeiler_leman((swapped, n), colours=colours).hash == found.hash
    tree = of(nx.random_labeled_tree(60, seed=3))
    plain = weisfeiler_leman(tree)
    monkeypatch.setattr(_runs, "_STEPS", 0)
    assert weisfeiler_leman(tree).colours.equal(plain.colours)


def test_numbers_that_one_integer_does_not_hold():
    runs = np.array([5, 2**61, 3, 1, 2**61, 5])
    lengths = np.array([3, 3])
    assert _runs.sorted_runs(runs, lengths, 2**62).tolist() == [3, 5, 2**61, 1, 5, 2**61]
    order, first = _runs.sorted_by(np.array([0, 0, 3]), np.array([2**60, 1, 0]), 2**62)
    assert (order.tolist(), first.tolist()) == ([1, 0, 2], [0, 1, 2])
    ends, kinds = np.array([0, 1, 1, 2]), np.array([2**60, 2**60, 0, 0])
    (side,) = _rounds.rows_of(ends, np.array([1, 0, 2, 1]), kinds, 3)
    assert side.ptr.tolist() == [0, 1, 3, 4]
    assert side.neighbours.tolist() == [1, 0, 2, 1]
    assert side.kinds is not None
    assert side.kinds.tolist() == [2**60, 2**60, 0, 0]


def test_rounds_can_be_limited():
    path = of(nx.path_graph(9))
    with pytest.warns(ConvergenceWarning, match="not stable after 2 rounds"):
        found = weisfeiler_leman(path, max_iter=2)
    assert (found.rounds, found.converged, found.hash) == (2, False, None)
    history = colours_by_round(path)
    assert len(history) == 5
    assert found.colours.equal(history[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert weisfeiler_leman(path, max_iter=4).converged


def test_small_and_empty_graphs():
    none = torch.zeros(2, 0, dtype=torch.long)
    assert weisfeiler_leman((none, 0)).colours.tolist() == []
    assert weisfeiler_leman((none, 0), (none, 0)).verdict == "cannot tell"
    found = weisfeiler_leman((none, 2), (none, 3))
    assert found.verdict == "different (round 0, histograms 2 and 3)"
    assert found.hash != found.other_hash
    assert weisfeiler_leman((torch.tensor([[0, 0], [0, 0]]), 1), (none, 1)).different_at == 1


def test_features_as_colours():
    none = torch.zeros(2, 0, dtype=torch.long)
    x = torch.tensor([[0.5, 1.0], [-0.0, 1.0], [0.0, 1.0], [0.5, -1.0]])
    assert weisfeiler_leman((none, 4), colours=x).colours.tolist() == [2, 0, 0, 1]
    y = x.clone()
    y[0, 0] = 0.25
    found = weisfeiler_leman((none, 4), (none, 4), colours=(x, y))
    assert found.different_at == 0
    assert found.hash != found.other_hash
    assert found.hash == weisfeiler_leman((none, 4), colours=x.flip(0)).hash
