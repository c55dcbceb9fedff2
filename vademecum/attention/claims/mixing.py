"""Attention as an average: convex weights, softmax over keys, keys apart from values."""

import math
from itertools import product
from typing import Literal

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from vademecum.attention import attention
from vademecum.attention.claims._by_hand import attend, softmax
from vademecum.claims import at_least, at_most, claim, equals

Over = Literal["keys", "queries"]


def outside(points: Tensor, corners: Tensor) -> float:
    """How far points are from the convex hull of the corners, at most, by least squares."""
    matrix = np.vstack([corners.T.numpy(), np.ones(len(corners))])
    return max(nnls(matrix, np.append(point.numpy(), 1.0))[1] for point in points)


def mixed(q: Tensor, k: Tensor, over: Over) -> Tensor:
    """The weights, normalised over keys by attention, or over queries by the same the other way."""
    if over == "keys":
        return attention(q, k, k).weights
    return attention(k, q, q).weights.T


@claim(
    by="identity",
    sources=("A-252", "B-384", "B-387", "C-152", "C-153", "C-154"),
    budget=0.3,
    short=r"\xi^s = \sum_t a_{st} W x^t,\ a_{st} \ge 0,\ \sum_t a_{st} = 1;\quad"
    r" \Xi = A X W^\top",
)
def convex_mixing(over: Over = "keys", columns: Literal["W X A^T", "W X A"] = "W X A^T"):
    r"""Attention mixes tokens by convex combinations.

    Each output is a weighted average of transformed tokens, $\xi^s = \sum_t a_{st} W x^t$ with
    $a_{st} \ge 0$ and $\sum_t a_{st} = 1$, so it lies in the convex hull of the projected tokens;
    if all tokens are equal, it is their image. With tokens as rows of $X$ this is
    $\Xi = A X W^\top$, with tokens as columns $\Xi = W X A^\top$. Plain attention
    $F(\xi, (x^1, \dots, x^s)) = [x^1 \cdots x^s]\, a$ is the case $W = I$ for one query.

    The weights and outputs are those of `attention`, as many queries as keys and one query over 7
    of them, with $W$ that narrows and that widens; membership in the hull is by non-negative least
    squares.

    Knobs:
        over: Over what the weights are normalised: the keys of a query, or the queries of a key.
        columns: The product where tokens are columns.
    """
    for T, e, d in ((6, 4, 3), (5, 2, 7)):
        x, W = torch.randn(T, e), torch.randn(d, e)
        q, k = torch.randn(T, 3), torch.randn(T, 3)
        A, at = mixed(q, k, over), {"T": T, "e": e}
        sums = torch.zeros(T, d)
        for s, t in product(range(T), repeat=2):
            sums[s] += A[s, t] * (W @ x[t])
        yield equals("output, token by token", attention(q, k, x @ W.T).output, sums,
                     tol=1e-13, **at)  # fmt: skip
        yield at_least("weights", A, 0.0, tol=0.0, **at)
        yield equals("weights of a query together", A.sum(1), 1.0, tol=1e-14, **at)
        yield at_most("distance from the hull", outside(A @ x @ W.T, x @ W.T), 0.0, tol=1e-12, **at)
        same = x[:1].expand(T, e) @ W.T
        yield equals("output if all tokens are equal", A @ same, same, tol=1e-13, **at)
        by_columns = W @ x.T @ (A.T if columns == "W X A^T" else A)
        yield equals("tokens as columns", by_columns, sums.T, tol=1e-12, **at)
    x, xi = torch.randn(7, 4), torch.randn(4)
    a = softmax([math.fsum((xi * token).tolist()) for token in x])
    plain = attention(xi[None], x, x, scale=1.0).output[0]
    yield equals("plain attention", plain, x.T @ torch.tensor(a), tol=1e-13)
    yield at_most("plain attention outside the hull", outside(plain[None], x), 0.0, tol=1e-12)


convex_mixing.foil("weights normalised over queries", over="queries",
                   refuted_by="output if all tokens are equal")  # fmt: skip
convex_mixing.foil(r"columns times $A$, not $A^\top$", columns="W X A")


def weights_of(scores: Tensor, over: Over, form: str, beta: float = 1.0) -> Tensor:
    """The weights for given scores: those of queries that are the scores, and keys that are units.

    The naive form takes exponentials without subtracting anything first.
    """
    if form == "naive":
        powers = (beta * scores).exp()
        return powers / powers.sum(1, keepdim=True)
    if over == "queries":
        return weights_of(scores.T, "keys", form, beta).T
    units = torch.eye(scores.shape[1])
    return attention(scores, units, units, scale=beta).weights


@claim(
    by="identity",
    sources=("B-385", "B-386", "C-054", "C-159", "C-160"),
    budget=0.3,
    short=r"a_t = e^{\phi(\xi, x^t)} / \sum_j e^{\phi(\xi, x^j)},\quad"
    r" \text{row by row}",
)
def softmax_weights(over: Over = "keys", form: Literal["shifted", "naive"] = "shifted"):
    r"""Attention weighs keys by a softmax, row by row.

    For a query $\xi$ and inputs $x^1, \dots, x^s$ with similarity $\phi$ the weights are
    $a_t = e^{\phi(\xi, x^t)} / \sum_j e^{\phi(\xi, x^j)}$, a probability vector; for a matrix of
    scores the softmax is taken over the keys of each query. Weights permute with the inputs, ignore
    a constant added to all scores of a row, even 1000, and tend to the uniform vector or to the
    unique largest score as the inverse temperature tends to 0 or to infinity. The simplest
    similarity is the product $\phi(\xi, x) = \xi \cdot x$.

    Shifting: the largest score is subtracted first, which changes nothing but the overflow. At
    inverse temperature $\beta$ a gap $g$ leaves at most $(s - 1) e^{-\beta g}$ to all others; the
    limits are checked at $\beta = 0$ and at $\beta = 1000$ with gaps of 0.15.

    Knobs:
        over: Over what the softmax is taken.
        form: Whether the largest score is subtracted before exponentials are taken.
    """
    for T, S in ((5, 7), (4, 2)):
        scores, at = 2 * torch.randn(T, S), {"T": T, "S": S}
        wanted = torch.tensor([softmax(row) for row in scores.tolist()])
        found = weights_of(scores, over, form)
        yield equals("weights", found, wanted, tol=1e-14, **at)
        yield equals("sums of rows", found.sum(1), 1.0, tol=1e-14, **at)
        order = torch.randperm(S)
        permuted = weights_of(scores[:, order], over, form)
        yield equals("weights of permuted inputs", permuted, wanted[:, order], tol=1e-14, **at)
        shift = torch.zeros(T, 1)
        shift[1] = 1000.0
        shifted = weights_of(scores + shift, over, form)
        finite = int(shifted.isfinite().sum())
        yield equals("finite weights with scores near 1000", finite, T * S, **at)
        yield equals("weights after adding 1000 to a row", shifted, wanted, tol=1e-12, **at)
        cold = weights_of(scores, over, form, beta=0.0)
        yield equals("weights at inverse temperature 0", cold, 1 / S, tol=1e-16, **at)
        gaps = torch.stack([0.15 * torch.randperm(S) for _ in range(T)])
        best = torch.nn.functional.one_hot(gaps.argmax(1), S)
        sharp = weights_of(gaps, over, form, beta=1000.0)
        yield equals("weights at inverse temperature 1000", sharp, best, tol=1e-12, **at)
    x, xi = torch.randn(7, 4), torch.randn(4)
    dots = [math.fsum((xi * token).tolist()) for token in x]
    found = attention(xi[None], x, x, scale=1.0).weights[0]
    yield equals("weights by inner products", found, torch.tensor(softmax(dots)), tol=1e-14)


softmax_weights.foil("a softmax over queries", over="queries")
softmax_weights.foil("exponentials of 1000 overflow", form="naive",
                     refuted_by="finite weights with scores near 1000")  # fmt: skip


@claim(
    by="identity",
    sources=("B-391",),
    budget=0.3,
    short=r"F(\xi, (x^i, z^i)_i) = [z^1 \cdots z^s]\, a(\xi, (x^1, \dots, x^s))",
)
def key_value_attention(permuted: Literal["pairs", "keys"] = "pairs", sharpness: float = 1.0):
    r"""Keys decide where to look, values what is read.

    For pairs of keys and values $(x^i, z^i)$ the output is
    $[z^1 \cdots z^s]\, a(\xi, (x^1, \dots, x^s))$. The weights do not depend on the values, the
    output is linear in them, and it does not change if the pairs are permuted; with values equal to
    keys it is plain attention. With orthonormal keys and inverse temperature $\beta$ the query
    $x^i$ returns $z^i$ up to $(s - 1) e^{-\beta} \max_j \|z^j - z^i\|$.

    *Proof of the last.* The weight of a wrong key is $1 / (e^\beta + s - 1) \le e^{-\beta}$, so the
    output is $z^i + \sum_{j \ne i} (z^j - z^i) / (e^\beta + s - 1)$; that is checked, too.

    Knobs:
        permuted: What is permuted: pairs, or keys whose values stay where they are.
        sharpness: What the inverse temperature is multiplied by in the formula for orthonormal
            keys.
    """
    for s, d, dz in ((6, 6, 4), (5, 8, 3)):
        q, x, z = torch.randn(3, d), torch.randn(s, d), torch.randn(s, dz)
        at = {"s": s, "d": d}
        first = attention(q, x, z, scale=0.7)
        yield equals("output", first.output, attend(q, x, z, 0.7)[0], tol=1e-13, **at)
        other = torch.randn(s, dz)
        second = attention(q, x, other, scale=0.7)
        yield equals("weights with other values", second.weights, first.weights, tol=0.0, **at)
        both = attention(q, x, 2 * z - 3 * other, scale=0.7).output
        yield equals("output of a combination of values", both,
                     2 * first.output - 3 * second.output, tol=1e-13, **at)  # fmt: skip
        order = torch.arange(s).roll(int(torch.randint(1, s, ())))
        values = z[order] if permuted == "pairs" else z
        moved = attention(q, x[order], values, scale=0.7).output
        yield equals("output of permuted pairs", moved, first.output, tol=1e-13, **at)
        plain = attention(q, x, x, scale=0.7).output
        yield equals("values that are the keys", plain, attend(q, x, x, 0.7)[0], tol=1e-13, **at)
        keys = torch.linalg.qr(torch.randn(d, d)).Q[:s]
        gaps = (z[None] - z[:, None]).norm(dim=2).amax(1)
        recalled = attention(keys, keys, z, scale=20.0).output
        bound = (s - 1) * math.exp(-20.0) * gaps
        yield at_most("error of recall", (recalled - z).norm(dim=1), bound, tol=1e-13, **at)
        share = 1 / (math.exp(2.0 * sharpness) + s - 1)
        wanted = z + share * (z.sum(0) - s * z)
        soft = attention(keys, keys, z, scale=2.0).output
        yield equals("recall at inverse temperature 2", soft, wanted, tol=1e-12, **at)


key_value_attention.foil("keys permuted without their values", permuted="keys")
key_value_attention.foil("the temperature in place of its inverse", sharpness=0.25)
