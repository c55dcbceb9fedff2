"""Small graphs, all of them, and colours as nested tuples, which share no code with the room."""

from collections import Counter
from functools import lru_cache
from itertools import combinations, permutations

import numpy as np
import torch
from torch import Tensor

__all__ = ["all_graphs", "edges_of", "is_isomorphic", "named_colours", "pairs_apart"]


@lru_cache(1)
def all_graphs(most: int = 6) -> tuple[Tensor, ...]:
    """One matrix for each graph with up to so many nodes, up to isomorphism; the smallest first.

    Each graph with a node more is one with another node joined to some of the others; of all its
    numberings the one with the smallest code counts.
    """
    found, last = [torch.zeros(1, 1)], [np.zeros((1, 1), int)]
    for n in range(2, most + 1):
        joined = []
        for A in last:
            for code in range(2 ** (n - 1)):
                ends = (code >> np.arange(n - 1)) & 1
                joined.append(np.block([[A, ends[:, None]], [ends[None], np.zeros((1, 1), int)]]))
        codes, first = np.unique(_codes(np.stack(joined)).min(1), return_index=True)
        assert len(codes) == len(first)
        last = [joined[i] for i in first]
        found += [torch.from_numpy(A).double() for A in last]
    return tuple(found)


def _codes(A: np.ndarray) -> np.ndarray:
    """The bits above the diagonal as a number, for each matrix and each numbering."""
    n = A.shape[1]
    orders = np.array(list(permutations(range(n))))
    code = np.zeros((len(A), len(orders)), int)
    for i, j in combinations(range(n), 2):
        code = 2 * code + A[:, orders[:, i], orders[:, j]]
    return code


def is_isomorphic(A: Tensor, B: Tensor) -> bool:
    """Whether some numbering makes them equal, by trying all."""
    if A.shape != B.shape or A.sum() != B.sum():
        return False
    pair = np.stack([A.numpy().astype(int), B.numpy().astype(int)])
    one, two = _codes(pair).min(1)
    return bool(one == two)


def edges_of(A: Tensor) -> tuple[Tensor, int]:
    """Edges in random order, and how many nodes there are."""
    target, source = A.nonzero(as_tuple=True)
    return torch.stack([source, target])[:, torch.randperm(len(source))], len(A)


def named_colours(
    graphs: list[Tensor], rounds: int, *, kind: str = "multiset", first: list[list] | None = None
) -> list[list[list[int]]]:
    """Colours of all graphs at first and after each round, by a table of nested tuples.

    Args:
        graphs: Their matrices, with rows that receive.
        rounds: How many rounds there are.
        kind: Whether neighbours' colours are a multiset or a set.
        first: The first colours.
    """
    near = [[[u for u in range(len(A)) if A[v, u]] for v in range(len(A))] for A in graphs]
    far = [[[u for u in range(len(A)) if A[u, v]] for v in range(len(A))] for A in graphs]
    collect = (
        (lambda c: tuple(sorted(c))) if kind == "multiset" else (lambda c: tuple(sorted(set(c))))
    )
    history = [first or [[0] * len(A) for A in graphs]]
    for _ in range(rounds):
        table: dict[tuple, int] = {}
        new = []
        for old, ins, outs in zip(history[-1], near, far, strict=True):
            keys = [
                (old[v], collect([old[u] for u in ins[v]]), collect([old[u] for u in outs[v]]))
                for v in range(len(old))
            ]
            new.append([table.setdefault(key, len(table)) for key in keys])
        history.append(new)
    return history


def pairs_apart(names: list) -> Tensor:
    """Which pairs of graphs are told apart by their histograms of colours, or by their names."""
    keys = [frozenset(Counter(c).items()) if isinstance(c, list) else c for c in names]
    table = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    number = torch.tensor([table[key] for key in keys])
    return number[:, None] != number
