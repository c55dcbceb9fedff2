"""Eigenvectors of counts: the best low rank, the way back to words, and what it costs."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, claim, equals, with_eigenvalues
from vademecum.language import SpectralEmbedding, cooccurrence

Which = Literal["magnitude", "largest"]


def root(k: int) -> float:
    """A half, whatever k."""
    return 0.5


def one_over(k: int) -> float:
    """The k-th root."""
    return 1 / k


def positive(V: int) -> Tensor:
    """A positive definite matrix with eigenvalues that are well apart."""
    values = torch.arange(1.0, V + 1) + 0.5 * torch.rand(V)
    return with_eigenvalues(values)


@claim(
    by="identity",
    sources=("E-210", "E-211", "E-212"),
    budget=0.5,
    short=r"\|C - V_k \Lambda_k V_k^\top\|^2 = \sum_{i > k} \lambda_i^2,\quad"
    r" x_w = |\Lambda_k|^{1/2} V_k^\top o_w",
)
def spectral_embedding(which: Which = "magnitude", power: Callable[[int], float] = root):
    r"""Spectral word embeddings keep the eigenvalues of largest magnitude.

    Factorise the symmetric matrix $C = V \Lambda V^\top$ and keep the $k$ eigenvalues of largest
    magnitude: the best approximation of rank $k$ (Eckart and Young), whose squared Frobenius error
    is the sum of the squares that are dropped. Where those that are kept are positive,
    $C_{ij} \approx x_i^\top x_j$ with $x_w = \Lambda_k^{1/2} V_k^\top o_w$, row $w$ of
    $V_k \Lambda_k^{1/2}$. Matrices of co-occurrence are usually indefinite, for a zero diagonal
    forces negative eigenvalues (signs then stand between the vectors); and PCA would centre first.

    All $k$ on random positive definite matrices, 8 x 8 and 5 x 5; eigenvalues 3, 1, -1, -3 with
    random eigenvectors against 200 random matrices of rank 2, each with its best scale; counts of
    "a b a b".

    Knobs:
        which: Which eigenvalues are kept.
        power: The power of the eigenvalues in the vectors, of $k$.
    """
    mixed = with_eigenvalues(torch.tensor([3.0, 1.0, -1.0, -3.0]))
    spectral = SpectralEmbedding(2, which=which).fit(mixed)
    low = (spectral.embedding_ * spectral.eigenvalues_.sign()) @ spectral.embedding_.T
    error = torch.linalg.matrix_norm(mixed - low)
    yield equals("error of rank 2 with eigenvalues 3, 1, -1, -3", error, math.sqrt(2), tol=1e-12)
    others = torch.randn(200, 4, 2) @ torch.randn(200, 2, 4)
    scale = (others * mixed).sum((1, 2)) / others.square().sum((1, 2))
    rivals = torch.linalg.matrix_norm(mixed - scale[:, None, None] * others)
    yield at_least("errors of other matrices of rank 2", rivals, error, tol=1e-12)
    for V in (8, 5):
        C = positive(V)
        values, vectors = torch.linalg.eigh(C)
        for k in range(1, V + 1):
            spectral, at = SpectralEmbedding(k, which=which).fit(C), {"V": V, "k": k}
            x = spectral.eigenvectors_ * spectral.eigenvalues_ ** power(k)
            best = (vectors[:, V - k :] * values[V - k :]) @ vectors[:, V - k :].T
            yield equals("inner products", x @ x.T, best, tol=1e-10, **at)
            yield equals("vectors", spectral.embedding_, x, tol=1e-12, **at)
            tail = values[: V - k].square().sum()
            yield equals("squared error", (C - x @ x.T).square().sum(), tail, tol=1e-10, **at)
    found = cooccurrence(["a b a b"], window=1).counts.toarray()
    C = torch.from_numpy(found).double()
    spectral = SpectralEmbedding(2, which=which).fit(C)
    order = spectral.eigenvalues_.sort(descending=True).values
    yield equals("eigenvalues of 'a b a b'", order, torch.tensor([3.0, -3.0]), tol=1e-12)
    x, signs = spectral.embedding_, spectral.eigenvalues_.sign()
    yield equals("counts from vectors and signs", (x * signs) @ x.T, C, tol=1e-12)


spectral_embedding.erratum(
    "E-210",
    printed=r"PCA of $\mathbf C$, keeping the $k$ largest eigenvalues",
    right="the $k$ eigenvalues of largest magnitude",
    why="right for positive semidefinite matrices only: for eigenvalues 3, 1, -1, -3 the two"
    " largest leave an error of 3.16 in place of 1.41",
    weight="soft",
    which="largest",
    refuted_by="error of rank 2 with eigenvalues 3, 1, -1, -3",
)
spectral_embedding.foil(r"the $k$-th root of the eigenvalues", power=one_over,
                        refuted_by="inner products")  # fmt: skip


@claim(
    by="identity",
    sources=("E-213",),
    budget=0.4,
    short=r"V_k \Lambda_k^{-1/2} x_w = V_k V_k^\top o_w \to \text{nearest one-hot vector}",
)
def de_embedding(power: float = -0.5, kept: int = 2):
    r"""An embedding is mapped back to a word by its projected one-hot vector.

    $V_k \Lambda_k^{-1/2} x_w = V_k V_k^\top o_w$ is the projection of the one-hot vector on the
    eigenvectors that are kept. The word is read off as the nearest one-hot vector, which is the
    largest entry. For $k = V$ every word is recovered; for smaller $k$ that is not guaranteed.

    All $k$ and all words of random positive definite matrices, 8 x 8 and 5 x 5; and the matrix
    $(1, 1.5; 1.5, 4)$, whose first word is decoded as the second if $k = 1$.

    Knobs:
        power: The power of the eigenvalues on the way back.
        kept: How many eigenvalues of the 2 x 2 matrix are kept where all words are recovered.
    """
    C = torch.tensor([[1.0, 1.5], [1.5, 4.0]])
    spectral = SpectralEmbedding(kept).fit(C)
    back = (spectral.embedding_ * spectral.eigenvalues_**power) @ spectral.eigenvectors_.T
    yield equals("words of the 2 x 2 matrix", back.argmax(1), torch.arange(2))
    one = SpectralEmbedding(1).fit(C)
    yield equals("words with k = 1", one.nearest_words(one.embedding_), torch.tensor([1, 1]))
    for V in (8, 5):
        C = positive(V)
        vectors = torch.linalg.eigh(C).eigenvectors
        for k in range(1, V + 1):
            spectral, at = SpectralEmbedding(k).fit(C), {"V": V, "k": k}
            x, E = spectral.embedding_, spectral.eigenvectors_
            projected = vectors[:, V - k :] @ vectors[:, V - k :].T
            back = (x * spectral.eigenvalues_**power) @ E.T
            yield equals("projected one-hot vectors, by the formula", back, projected,
                         tol=1e-10, **at)  # fmt: skip
            found = spectral.to_one_hot(x)
            yield equals("projected one-hot vectors", found, projected, tol=1e-10, **at)
            nearest = torch.cdist(found, torch.eye(V)).argmin(1)
            yield equals("words", spectral.nearest_words(x), nearest, **at)
            if k == V:
                yield equals("words if all is kept", nearest, torch.arange(V), **at)


de_embedding.foil("the root in place of its inverse", power=0.5,
                  refuted_by="words of the 2 x 2 matrix")  # fmt: skip
de_embedding.foil("not all eigenvalues kept", kept=1)
