"""Words from words: a softmax over the vocabulary, and two vectors for each word."""

import math
from itertools import product
from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.language import SkipGram
from vademecum.language.claims._blocks import ascent, block_of, loss, pairs_of, softmax_table

Over = Literal["predicted", "evidence"]


def scores_of(X: Tensor, Y: Tensor) -> list[list[float]]:
    """Inner products, evidence in rows, by sums over entries."""
    return [[math.fsum(a * b for a, b in zip(x, y, strict=True)) for y in Y.tolist()]
            for x in X.tolist()]  # fmt: skip


def conditionals(X: Tensor, Y: Tensor, over: Over, b: Tensor | None = None) -> list[list[float]]:
    """The model's probabilities, evidence in rows, normalised over either word."""
    bias = [0.0] * len(Y) if b is None else b.tolist()
    scores = [[u + c for u, c in zip(row, bias, strict=True)] for row in scores_of(X, Y)]
    if over == "predicted":
        return softmax_table(scores)
    turned = softmax_table([list(column) for column in zip(*scores, strict=True)])
    return [list(row) for row in zip(*turned, strict=True)]


@claim(
    by="identity",
    sources=("A-138", "C-116", "E-222", "E-225"),
    budget=0.5,
    short=r"P(\nu \mid \omega) = \exp(x_\omega^\top y_\nu + b_\nu) /"
    r" \sum_\mu \exp(x_\omega^\top y_\mu + b_\mu)",
)
def log_bilinear_model(over: Over = "predicted"):
    r"""The log-bilinear model: a softmax of inner products.

    With a vector $x$ for each word as evidence, a vector $y$ as what is predicted, and optional
    biases $b$, $P(\nu \mid \omega)$ is $\exp(x_\omega^\top y_\nu + b_\nu)$ over
    $\sum_\mu \exp(x_\omega^\top y_\mu + b_\mu)$: the sum runs over the predicted word, and the
    evidence stays. With vectors as long as the vocabulary it fits every strictly positive table of
    conditionals. A pair's logarithm has a gradient in $y$ of all words, but in $x$ only of the
    evidence.

    *Proof of the fit.* Take $x_\omega = (\log P(\nu \mid \omega))_\nu$ and unit vectors $y_\nu$.

    The model without biases is what `SkipGram` with the objective "softmax" learns: its loss and
    its steps are compared with the definition, and steps with derivatives by the definition.

    Knobs:
        over: Which word the normaliser runs over.
    """
    two = torch.tensor([[1.0], [0.0]])
    yield equals("probabilities given the first of two words", sum(conditionals(two, two, over)[0]),
                 1.0, tol=1e-14)  # fmt: skip
    for V, d in ((6, 3), (4, 5)):
        X, Y, b, at = torch.randn(V, d) / 2, torch.randn(V, d) / 2, torch.randn(V), {"V": V}
        P = torch.tensor(conditionals(X, Y, over, b))
        yield equals("probabilities of all words together", P.sum(1), 1.0, tol=1e-13, **at)
        text = torch.randperm(V)[:3].tolist()
        block, log = block_of([text], 1), torch.tensor(conditionals(X, Y, over)).log()
        total = math.fsum(float(log[w, v]) for w, v in pairs_of([text], 1))
        yield equals("loss of a text", loss("softmax", X, Y, block), -total, tol=1e-13, **at)
        table = torch.rand(V, V) + 0.1
        table /= table.sum(1, keepdim=True)
        fitted = torch.tensor(conditionals(table.log(), torch.eye(V), over))
        yield equals("a table that is to be fitted", fitted, table, tol=1e-13, **at)
        one = block_of([text[:2]], 1, reach=(1, 0))
        dx, dy = ascent("softmax", X, Y, one)
        yield equals("words whose x moves", dx.abs().sum(1).nonzero().flatten().tolist(),
                     text[:1], **at)  # fmt: skip
        yield at_least("least move of a y", dy.norm(dim=1).min(), 1e-6, **at)
        yield from derivatives(X, Y, text, over, dx, dy)


def derivatives(X: Tensor, Y: Tensor, text: list[int], over: Over, dx: Tensor, dy: Tensor):
    """Steps against central differences of the logarithm of the first pair's probability."""
    h = 1e-5  # errors h^2 and 1e-16 / h: 1e-10, and numbers of order one
    for name, here, moved in (("x", X, dx), ("y", Y, dy)):
        found = torch.zeros_like(here)
        for place in product(*map(range, here.shape)):
            ends = []
            for step in (h, -h):
                other = here.clone()
                other[place] += step
                pair = (other, Y) if name == "x" else (X, other)
                ends.append(math.log(conditionals(*pair, over)[text[0]][text[1]]))
            found[place] = (ends[0] - ends[1]) / (2 * h)
        yield equals(f"gradient in {name}", moved, found, tol=1e-7, V=len(X))


log_bilinear_model.foil("normalised over the evidence", over="evidence",
                        refuted_by="probabilities of all words together")  # fmt: skip
log_bilinear_model.erratum(
    "E-222",
    printed=r"$\sum_{(i,j) \in C_R} \log \frac{\exp(x_{w_i}^\top z_{w_j})}"
    r"{\sum_{u \in \mathcal V} \exp(x_{w_i}^\top z_{w_u})}$ as the logarithm of"
    r" $\prod P_\theta(w_i \mid w_j)$",
    right=r"$\sum_{u} \exp(x_u^\top z_{w_j})$ below the fraction",
    why="The printed normaliser runs over the conditioning word. For two words with x = z = 1 and"
    " x = z = 0, what it gives for both words given the first sums to 0.731 + 0.5 = 1.231.",
    weight="hard",
    refuted_by="probabilities given the first of two words",
    over="evidence",
)

Vectors = Literal["tied", "untied"]


def fitted_gap(table: Tensor, weights: Tensor, d: int, vectors: Vectors) -> float:
    """What the best of a few fits of vectors to a table loses in cross-entropy."""
    V = len(table)
    own = float((weights[:, None] * table * table.log()).sum())

    def gap(theta: np.ndarray) -> tuple[float, np.ndarray]:
        z = torch.from_numpy(theta).view(-1, V, d).requires_grad_()
        scores = z[0] @ z[-1].T
        value = own - (weights[:, None] * table * scores.log_softmax(1)).sum()
        (slope,) = torch.autograd.grad(value, z)
        return value.item(), slope.flatten().numpy()

    size = (1 if vectors == "tied" else 2) * V * d
    starts = torch.randn(3, size).numpy()
    return min(minimize(gap, start, jac=True, method="L-BFGS-B").fun for start in starts)


@claim(
    by="sampling",
    sources=("E-224", "E-225"),
    budget=0.9,
    short=r"x_v^\top x_w \le \max(\|x_v\|^2, \|x_w\|^2):\ \text{tied vectors predict the longest"
    r" from itself}",
)
def two_embeddings(vectors: Vectors = "tied", draws: int = 100):
    r"""A word has two vectors, one for each role.

    As evidence and as what is predicted, $2 d |\mathcal V|$ numbers in all. One vector for both
    makes the matrix of scores symmetric and positive semidefinite,
    $x_v^\top x_w \le \max(\|x_v\|^2, \|x_w\|^2)$, so that the word with the longest vector is its
    own most probable neighbour, which texts contradict. (Conditionals are not symmetric in either
    case, because of the normaliser.) If every word has the probability $\varepsilon < 1/V$ of
    following itself and weight $1/V$, tied vectors lose at least
    $\frac1V \big(\varepsilon \log(\varepsilon V) + (1 - \varepsilon) \log \frac{1 - \varepsilon}
    {1 - 1/V}\big)$ in cross-entropy, and vectors apart, of dimension $V$, nothing.

    *Proof of the bound.* The longest word has $P(w \mid w) \ge 1/V$; merge all other words.

    The numbers are counted in a fitted `SkipGram`; the best tied vectors of 4 words are sought by
    L-BFGS from three starts.

    Knobs:
        vectors: Whether both roles have the same vectors.
        draws: How many draws of vectors there are.
    """
    model = SkipGram(d=3, min_count=1, epochs=1, subsample=0).fit(["a b c d e", "e d a"])
    yield equals("numbers of 5 words in 3 dimensions", model.vectors_.numel()
                 + model.contexts_.numel(), 2 * 3 * 5)  # fmt: skip
    for V, d in ((6, 3), (5, 8)):
        X = torch.randn(draws, V, d)
        Z = X if vectors == "tied" else torch.randn(draws, V, d)
        S, at = X @ Z.mT, {"V": V, "d": d}
        yield equals("scores less their transpose", S - S.mT, 0.0, tol=1e-12, **at)
        lowest = torch.linalg.eigvalsh((S + S.mT) / 2).min()
        yield at_least("eigenvalues of scores", lowest, 0.0, tol=1e-12, **at)
        lengths = (X * X).sum(2)
        most = torch.maximum(lengths[:, :, None], lengths[:, None])
        yield at_most("scores", S, most, tol=1e-12, **at)
        P, longest = S.softmax(2), lengths.argmax(1)
        own = P[torch.arange(draws), longest, longest]
        yield at_least("probability of the longest from itself", own, 1 / V, tol=1e-12, **at)
        uneven = (P - P.mT).abs().amax((1, 2)).min()
        yield at_least("asymmetry of the conditionals", uneven, 1e-6, **at)
    V, epsilon = 4, 0.01
    table = torch.rand(V, V) + 0.5
    table.fill_diagonal_(0.0)
    table = (1 - epsilon) * table / table.sum(1, keepdim=True) + epsilon * torch.eye(V)
    weights = torch.full((V,), 1 / V)
    bound = epsilon * math.log(epsilon * V) + (1 - epsilon) * math.log((1 - epsilon) / (1 - 1 / V))
    gap = fitted_gap(table, weights, V, vectors)
    yield at_least("what the best vectors lose", gap, bound / V, tol=1e-9)
    apart = torch.tensor(conditionals(table.log(), torch.eye(V), "predicted"))
    yield equals("the same table by vectors apart", apart, table, tol=1e-13)


two_embeddings.foil("vectors apart lose as much", vectors="untied",
                    refuted_by="what the best vectors lose")  # fmt: skip
two_embeddings.foil("vectors apart have symmetric scores", vectors="untied")
