"""Blocks of words for `SkipGram`'s steps and losses, built from texts of numbers, and oracles."""

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from vademecum.language._corpora import Portion
from vademecum.language.word2vec._feeding import Feed
from vademecum.language.word2vec._steps import LOSSES, STEPS, Block, Table
from vademecum.language.word2vec._windows import piece

__all__ = [
    "ascent", "best", "block_of", "free_scores", "log_sigmoid", "loss", "noise_law", "pairs_of",
    "root", "sigmoid", "small_corpus", "softmax_table",
    "turned",
]  # fmt: skip

ETA = 2.0**-14  # small enough that no step is shortened, and a power of two


def block_of(
    texts: Sequence[Sequence[int]],
    c: int,
    *,
    noise: Sequence[int] = (0,),
    k: int = 1,
    reach: Sequence[int] | None = None,
) -> Block:
    """All words of texts as one block, each with the whole window or with the reach given."""
    ids = np.concatenate([np.array(text) for text in texts])
    owner = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    n, L = len(ids), piece(c)
    N = L * -(-n // L)
    feed = Feed(N, c, len(noise), k, 1, torch.device("cpu"))
    around = Portion(np.pad(ids, c), np.pad(owner, c, constant_values=-1))
    far = torch.full((n,), c) if reach is None else torch.tensor(reach)
    feed.fill(around, far, torch.tensor(noise).expand(1, N // L, -1), np.array([ETA]))
    return feed.block()


def ascent(objective: str, X: Tensor, Z: Tensor, block: Block) -> tuple[Tensor, Tensor]:
    """The gradients of an objective in both tables, as a step of `SkipGram` moves them."""
    x, z = Table(X.clone()), Table(Z.clone())
    STEPS[objective](x, z, block)
    return (x.rows - X) / ETA, (z.rows - Z) / ETA


def loss(objective: str, X: Tensor, Z: Tensor, block: Block) -> float:
    """Minus the objective of `SkipGram`, summed over all pairs."""
    return float(LOSSES[objective](Table(X), Table(Z), block)) * int(block.pairs.sum())


def best(
    objective: str, X: Tensor, Z: Tensor, block: Block, *, fixed: bool = False
) -> tuple[Tensor, Tensor]:
    """The tables that minimise a loss, by L-BFGS on `SkipGram`'s losses and steps.

    With `fixed` the second table stays as it is.
    """
    shape, count = X.shape, X.numel()

    def both(theta: np.ndarray) -> tuple[float, np.ndarray]:
        x = torch.from_numpy(theta[:count]).view(shape)
        z = Z if fixed else torch.from_numpy(theta[count:]).view(Z.shape)
        dx, dz = ascent(objective, x, z, block)
        moved = dx.flatten() if fixed else torch.cat([dx.flatten(), dz.flatten()])
        return loss(objective, x, z, block), -moved.numpy()

    start = (X.flatten() if fixed else torch.cat([X.flatten(), Z.flatten()])).numpy()
    options = {"maxiter": 3000, "maxfun": 5000, "ftol": 0.0, "gtol": 1e-9}
    found = torch.from_numpy(minimize(both, start, jac=True, method="L-BFGS-B", options=options).x)
    return found[:count].view(shape), Z if fixed else found[count:].view(Z.shape)


def turned(V: int) -> Tensor:
    """A random orthogonal matrix: vectors of full rank from which a descent goes fast."""
    return torch.linalg.qr(torch.randn(V, V)).Q


def pairs_of(texts: Sequence[Sequence[int]], c: int) -> list[tuple[int, int]]:
    """The pairs (word, neighbour) at distance at most c, place by place."""
    return [
        (text[t], text[s])
        for text in texts
        for t, s in product(range(len(text)), repeat=2)
        if 0 < abs(t - s) <= c
    ]


def softmax_table(scores: Sequence[Sequence[float]]) -> list[list[float]]:
    """Probabilities, a law in each row, by the definition."""
    powers = [[math.exp(u) for u in row] for row in scores]
    return [[p / math.fsum(row) for p in row] for row in powers]


def log_sigmoid(u: float) -> float:
    """The logarithm of the logistic function, by the definition."""
    return -math.log(1 + math.exp(-u))


def sigmoid(u: float) -> float:
    """The logistic function, by the definition."""
    return 1 / (1 + math.exp(-u))


def root(f: Callable[[float], float], low: float = -40.0, high: float = 40.0) -> float:
    """Where a falling function crosses zero, by halving; an end where it does not."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) > 0 else (low, middle)
    return low


def free_scores(C: Tensor, weights: Tensor) -> Tensor:
    r"""The maximum of $C \log \sigma(u) + W \log \sigma(-u)$ in each cell, by its derivative."""
    cells = zip(C.flatten().tolist(), weights.flatten().tolist(), strict=True)
    found = [root(lambda u, a=a, b=b: a * sigmoid(-u) - b * sigmoid(u)) for a, b in cells]
    return torch.tensor(found).view_as(C)


def small_corpus(V: int, n: int) -> tuple[list[list[int]], Tensor]:
    """Texts of two words each, every pair among them, and their counts in both directions."""
    texts = [[w, v] for w in range(V) for v in range(w, V)]
    texts += [torch.randint(V, (2,)).tolist() for _ in range(n)]
    C = torch.zeros(V, V)
    for w, v in pairs_of(texts, 1):
        C[w, v] += 1
    return texts, C


def noise_law(V: int) -> tuple[list[int], Tensor]:
    """Words to draw from, each as often as a random count says, and the law that this is."""
    times = torch.randint(1, 4, (V,))
    times[0] += 3
    return torch.arange(V).repeat_interleave(times).tolist(), times / times.sum()
