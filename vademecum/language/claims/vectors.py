"""Vectors of words: a table to look up, inner products that explain which words meet."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals, integers
from vademecum.language import SpectralEmbedding, pmi


@claim(
    by="identity",
    sources=("C-115",),
    budget=0.3,
    short=r"x_\omega = o_\omega^\top X,\quad \partial L / \partial X ="
    r" \sum_t o_{\omega_t} g_t^\top",
)
def embedding_lookup(repeated: Literal["added", "last"] = "added", decay: float = 0.0):
    r"""A word embedding is a table to look words up in.

    Every item of the vocabulary has a learned vector, $\omega \mapsto x_\omega \in \mathbb R^n$.
    The lookup equals the product of the one-hot vector with the matrix of embeddings, and a
    gradient step on a sentence touches only the rows of its own words, where it adds up what
    repetitions contribute.

    Torch's layer on sentences with a repeated word, whole numbers, so that all is exact; the step
    is one of plain gradient descent.

    Knobs:
        repeated: What a word gets that occurs twice: the sum, or what its last occurrence gives.
        decay: Weight decay of the step, which touches all rows.
    """
    for V, n, T in ((10, 4, 6), (7, 3, 5)):
        sentence = torch.randperm(V)[: T - 1]
        sentence = torch.cat((sentence, sentence[:1]))
        layer, upstream, at = nn.Embedding(V, n), integers(T, n), {"V": V, "n": n}
        with torch.no_grad():
            layer.weight.copy_(integers(V, n))
        before = layer.weight.detach().clone()
        one_hot = nn.functional.one_hot(sentence, V).double()
        yield equals("vectors looked up", layer(sentence), one_hot @ before, tol=0.0, **at)
        (layer(sentence) * upstream).sum().backward()
        wanted = [[0.0] * n for _ in range(V)]
        for word, row in zip(sentence.tolist(), upstream.tolist(), strict=True):
            old = wanted[word] if repeated == "added" else [0.0] * n
            wanted[word] = [a + b for a, b in zip(old, row, strict=True)]
        assert layer.weight.grad is not None
        yield equals("gradients of rows", layer.weight.grad, torch.tensor(wanted), tol=0.0, **at)
        after = before - 0.5 * (layer.weight.grad + decay * before)
        others = [word for word in range(V) if word not in sentence]
        yield equals("rows of other words after a step", after[others], before[others],
                     tol=0.0, **at)  # fmt: skip
        moved = before[sentence] - 0.5 * torch.tensor(wanted)[sentence]
        yield equals("rows of its words after a step", after[sentence], moved,
                     tol=0.0, **at)  # fmt: skip


embedding_lookup.foil("a backward pass that overwrites", repeated="last")
embedding_lookup.foil("a step with weight decay", decay=0.1,
                      refuted_by="rows of other words after a step")  # fmt: skip


@claim(
    by="identity",
    sources=("A-137",),
    budget=0.3,
    short=r"P(\cdot | a) = P(\cdot | a') \implies \mathrm{pmi}(a, \cdot) = \mathrm{pmi}(a', \cdot)"
    r",\ x_a = x_{a'}",
)
def interchangeable_words(matrix: Literal["pmi", "joint"] = "pmi", alike: float = 1.0):
    r"""Words with equal contexts get equal embeddings.

    Embeddings should reflect contexts. If two words have the same law of contexts,
    $P(\cdot | a) = P(\cdot | a')$, their rows of the symmetric matrix of pmi coincide, and so do
    their vectors in every spectral factorisation with eigenvalues that are not zero: their cosine
    is 1.

    *Proof.* $\mathrm{pmi}(a, w) = \log P(w | a) / P(w)$ depends on the law of contexts only; and
    $\lambda v_a = \sum_w M_{aw} v_w$. Random symmetric joint laws in which two words split the mass
    of one, 30 to 70; the 4 eigenvalues of largest magnitude.

    Knobs:
        matrix: What is factorised.
        alike: Which part of the second word's mass has the first one's law of contexts.
    """
    for V in (7, 10):
        joint = torch.rand(V, V) + 0.1
        joint = joint + joint.T
        share = torch.tensor([0.3, 0.7])
        own = torch.rand(V) + 0.1
        second = alike * joint[0] + (1 - alike) * own * joint[0].sum() / own.sum()
        split = torch.zeros(V + 1, V + 1)
        split[1:, 1:] = joint
        split[0, 2:], split[1, 2:] = share[0] * joint[0, 1:], share[1] * second[1:]
        split[2:, 0], split[2:, 1] = split[0, 2:], split[1, 2:]
        split[:2, :2] = joint[0, 0] * torch.outer(share, share)
        law = split / split.sum()
        M = pmi(law) if matrix == "pmi" else law
        yield equals("rows of the two words", M[0], M[1], tol=1e-12, V=V)
        x = SpectralEmbedding(4).fit(M).embedding_
        yield equals("vectors of the two words", x[0], x[1], tol=1e-9, V=V)
        cosine = torch.cosine_similarity(x[0], x[1], 0)
        yield equals("cosine of the two words", cosine, 1.0, tol=1e-12, V=V)
        apart = torch.cdist(x[1:], x[1:]).max()
        yield at_least("distance of the two words furthest apart", apart, 1e-3, tol=0.0, V=V)


interchangeable_words.foil("joint probabilities in place of pmi", matrix="joint")
interchangeable_words.foil("contexts that differ in a tenth", alike=0.9)


def corners(words: int, d: int, radius: float) -> Tensor:
    """Vectors among which none is special: a regular polygon, or the corners of a cube."""
    if d == 2:
        angle = 2 * math.pi * torch.arange(words) / words
        return radius * torch.stack((angle.cos(), angle.sin()), 1)
    return radius * torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * d)


def procrustes(z: Tensor, x: Tensor) -> Tensor:
    """The vectors z, turned by the orthogonal map that takes them nearest to x."""
    U, _, Vt = torch.linalg.svd(z.T @ x)
    return z @ (U @ Vt)


@claim(
    by="identity",
    sources=("E-200", "E-202"),
    budget=0.4,
    short=r"\mathrm{pmi}(v, w) = x_v^\top x_w + c \implies"
    r" \mathrm{pmi} - c = V_d \Lambda_d V_d^\top,\ X = V_d \Lambda_d^{1/2} Q",
)
def bilinear_pmi_model(
    up_to: Literal["an orthogonal map", "nothing"] = "an orthogonal map",
    fewer: int = 0,
    constant: Literal["subtracted", "kept"] = "subtracted",
) -> Iterator[Evidence]:
    r"""A bilinear model of pmi is identified up to an orthogonal map.

    Embeddings are latent vectors whose inner products explain which words meet,
    $\mathrm{pmi}(v, w) \approx x_v^\top x_w + c$. If this holds exactly with vectors of dimension
    $d$ that span it, the $d$ eigenpairs of $\mathrm{pmi} - c$ with eigenvalues not 0 recover the
    inner products, and the vectors up to an orthogonal map; pairs with larger pmi then have larger
    inner products, better aligned or longer vectors. One dimension less leaves an error of the
    spectral norm of the $d$-th eigenvalue.

    Matrices $X X^\top + c$ of random $X$ (12 x 4, 9 x 3), and true pmi: for the corners of a
    regular polygon or a cube the law $P(v, w) \propto e^{x_v^\top x_w}$ has uniform marginals, so
    that its pmi is bilinear with $c = 2 \log V - \log \sum e^{x_v^\top x_w}$.

    Knobs:
        up_to: What the recovered vectors are compared up to.
        fewer: By how many dimensions the factorisation is too small.
        constant: What happens to the constant before the factorisation.
    """
    cases = []
    for V, d in ((12, 4), (9, 3)):
        X, c = torch.randn(V, d), float(torch.randn(()))
        cases.append((X, X @ X.T + c, c))
    for V, d in ((7, 2), (8, 3)):
        X = corners(V, d, 0.5 + float(torch.rand(())))
        weights = (X @ X.T).exp()
        cases.append((X, pmi(weights), 2 * math.log(V) - math.log(weights.sum())))
    for X, M, c in cases:
        (V, d), products = X.shape, X @ X.T
        at = {"V": V, "d": d}
        shifted = M - c if constant == "subtracted" else M
        z = SpectralEmbedding(d - fewer).fit(shifted).embedding_
        yield equals("inner products", z @ z.T, products, tol=1e-10, **at)
        turned = z if up_to == "nothing" else procrustes(z, X)
        yield equals("recovered vectors", turned, X, tol=1e-8, **at)
        pairs = torch.tril_indices(V, V, -1)
        one, other = M[pairs[0], pairs[1]], (z @ z.T)[pairs[0], pairs[1]]
        above = one[:, None] - one > 1e-6
        yield at_least("gain of an inner product with the pmi",
                       (other[:, None] - other)[above], 0.0, tol=1e-9, **at)  # fmt: skip
        less = SpectralEmbedding(d - 1).fit(M - c).embedding_
        missing = torch.linalg.matrix_norm(less @ less.T - products, ord=2)
        smallest = torch.linalg.svdvals(X)[-1] ** 2
        yield equals("error with a dimension less", missing, smallest, tol=1e-10, **at)
        yield at_most("rank of pmi without its constant",
                      torch.linalg.matrix_rank(M - c, rtol=1e-9), d, **at)  # fmt: skip


bilinear_pmi_model.foil("the vectors themselves", up_to="nothing")
bilinear_pmi_model.foil("a dimension too few", fewer=1)
bilinear_pmi_model.foil("the constant kept", constant="kept")
