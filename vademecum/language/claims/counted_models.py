"""Models that are counted: logarithms of counts as inner products, and n-grams."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.language import GloVe, NGramModel, cooccurrence, pmi


def same(counts: Tensor) -> Tensor:
    """The counts as they are."""
    return counts


def centred(scores: Tensor) -> Tensor:
    """Without a constant for each row and one for each column."""
    scores = scores - scores.mean(0)
    return scores - scores.mean(1, keepdim=True)


def weighted_squares(
    C: Tensor, x: Tensor, y: Tensor, b: Tensor, c: Tensor, cutoff: float, unseen: float
) -> Tensor:
    """The loss of GloVe, cell by cell; cells never seen have a weight and the target log(0 + 1)."""
    loss = torch.zeros(())
    for i, j in np.ndindex(*C.shape):
        score, count = x[i] @ y[j] + b[i] + c[j], float(C[i, j])
        weight = min(1.0, (count / cutoff) ** 0.75) if count else unseen
        loss = loss + weight * (score - (math.log(count) if count else 0.0)) ** 2
    return loss


@claim(
    by="identity",
    sources=("D-255",),
    budget=0.9,
    short=r"\min \sum_{C_{ij} > 0} f(C_{ij}) (x_i^\top y_j + b_i + c_j - \log C_{ij})^2",
)
def glove(fitted: Callable[[Tensor], Tensor] = same, unseen: float = 0.0):
    r"""GloVe fits logarithms of counts.

    GloVe (Pennington, Socher and Manning, 2014), beside word2vec the usual source of pre-trained
    vectors, fits logarithms of counts by weighted least squares,
    $\sum_{C_{ij} > 0} f(C_{ij}) (x_i^\top y_j + b_i + c_j - \log C_{ij})^2$ with
    $f(c) = \min\{1, (c / c_{\max})^{3/4}\}$; cells never seen have weight 0. At zero loss the
    scores $x_i^\top y_j$ are pointwise mutual informations up to one constant a row and one a
    column, exactly so with the biases $b_i = \log C_{i\cdot}$ and
    $c_j = \log C_{\cdot j} - \log C_{\cdot\cdot}$.

    Random counts, 12 words and 11 dimensions, which suffice for zero loss; the fit by alternating
    least squares never increases the loss. With empty cells and few dimensions the loss found is
    the one computed cell by cell, and its slope in the words' vectors and biases, which are fitted
    last, is 0 (up to the damping of the fit, $10^{-8}$ of its curvature); a penalty of 0.01 on the
    vectors' squares keeps them finite where the least loss is attained nowhere.

    Knobs:
        fitted: What the model is given, of the counts; it fits the logarithm of it.
        unseen: The weight of cells never seen, in the loss cell by cell.
    """
    V, cutoff = 12, 10.0
    half = torch.randint(1, 12, (V, V))
    C = (half + half.T).double()
    exact = GloVe(11, cutoff=cutoff, penalty=0.0, tol=1e-24, random_state=0).fit(fitted(C))
    losses = torch.tensor(exact.losses_)
    yield at_most("loss after half a sweep", losses[1:], losses[:-1], tol=1e-18)
    yield at_most("last loss", losses[-1], 0.0, tol=1e-20)
    scores = exact.word_vectors_ @ exact.context_vectors_.T
    yield equals("scores, centred twice", centred(scores), centred(pmi(C)), tol=1e-8)
    b, c = C.sum(1).log(), C.sum(0).log() - C.sum().log()
    x, y = pmi(C), torch.eye(V)
    yield equals("loss of pmi as scores", weighted_squares(C, x, y, b, c, cutoff, 0.0), 0.0,
                 tol=1e-24)  # fmt: skip
    for V, k in ((9, 3), (7, 2)):
        counts = torch.randint(1, 30, (V, V)) * (torch.rand(V, V) < 0.7)
        counts[0], counts[:, 0] = 3, 25  # every word has contexts
        C = counts.double()
        found = GloVe(k, cutoff=cutoff, penalty=0.01, tol=1e-4, random_state=0).fit(C)
        x, b = (t.clone().requires_grad_() for t in (found.word_vectors_, found.word_biases_))
        y, c = found.context_vectors_, found.context_biases_
        loss = weighted_squares(C, x, y, b, c, cutoff, unseen)
        loss = loss + 0.01 * (x.square().sum() + y.square().sum())
        yield equals("loss with empty cells", found.losses_[-1], loss, tol=1e-11, V=V, k=k)
        slopes = torch.autograd.grad(loss, (x, b))
        size = max(float(slope.abs().max()) for slope in slopes)
        yield at_most("slope in the vectors fitted last", size, 0.0, tol=1e-5, V=V, k=k)


glove.foil("counts in place of their logarithms", fitted=torch.exp,
           refuted_by="scores, centred twice")  # fmt: skip
glove.foil("empty cells have weight 1", unseen=1.0, refuted_by="loss with empty cells")


def conditional_entropy(text: list[int], n: int, given: bool) -> float:
    """Of a token given n - 1 before it, or of all n, in a text that goes round, in nats."""
    around = text[len(text) - n + 1 :] + text if n > 1 else text
    T = len(text)
    grams = Counter(tuple(around[i : i + n]) for i in range(T))
    contexts = Counter(tuple(around[i : i + n - 1]) for i in range(T))
    return -math.fsum(
        c / T * math.log(c / (contexts[gram[:-1]] if given else T)) for gram, c in grams.items()
    )


def divergence_from_add_one(text: list[int], n: int, V: int) -> float:
    """The mean divergence of relative frequencies from those with one added, context by context."""
    around = text[len(text) - n + 1 :] + text if n > 1 else text
    T = len(text)
    grams = Counter(tuple(around[i : i + n]) for i in range(T))
    sizes = Counter(tuple(around[i : i + n - 1]) for i in range(T))
    return math.fsum(
        c / T * math.log(c / sizes[gram[:-1]] * (sizes[gram[:-1]] + V) / (c + 1))
        for gram, c in grams.items()
    )


def markov_text(T: int, P: Tensor) -> list[int]:
    """A text in which each token depends on the one before."""
    steps, text = P.cumsum(1).tolist(), [0]
    for u in torch.rand(T - 1).tolist():
        text.append(min(sum(u > edge for edge in steps[text[-1]]), len(P) - 1))
    return text


@claim(
    by="identity",
    sources=("E-204", "D-253"),
    budget=0.9,
    short=r"P(w | h) = C(h w) / C(h);\quad \text{training loss } ="
    r" H(X_n | X_1 \cdots X_{n - 1})",
)
def ngram_model(
    judged: Literal["training text", "fresh text"] = "training text",
    of: Literal["the last token", "all tokens"] = "the last token",
):
    r"""An n-gram model predicts a token from those before it, by relative frequencies.

    $P(w | h) = C(h w) / C(h)$ for the $n - 1$ tokens $h$ before maximises the likelihood. Its
    training cross-entropy is the empirical conditional entropy $H(X_n | X_1 \dots X_{n - 1})$ and
    never increases with $n$ (for a text that goes round, exactly), while the number of contexts
    grows up to $V^{n - 1}$ and continuations never seen get probability 0, hence infinite loss
    without smoothing. Counts of skip-grams ignore the order inside a window; n-grams need the exact
    sequence.

    *Proof.* Any other table $q$ on the same contexts loses the divergence of $C(h w) / C(h)$ from
    $q(w | h)$, averaged over contexts: checked for counts with one added. A context more cannot
    raise an entropy. Texts of 200 tokens over 4 symbols, $n$ up to 6; a text and its reversal have
    the same co-occurrence matrix, and transposed tables of pairs.

    Knobs:
        judged: Which text the loss is taken on; on a fresh one counts have one added, or it would
            be infinite.
        of: Of what the entropy is taken, given the tokens before or not.
    """
    V, T = 4, 200
    P = 0.05 + 0.8 * torch.distributions.Dirichlet(torch.full((V,), 0.3)).sample((V,))
    text, fresh = markov_text(T, P), markov_text(T, P)
    before = math.inf
    for n in range(1, 7):
        around = torch.tensor(text[T - n + 1 :] + text if n > 1 else text)
        plain = NGramModel(around, n, V=V, smoothing="none")
        added = NGramModel(around, n, V=V, smoothing="add_one")
        loss = float(-plain.log_prob(around)[n - 1 :].mean())
        other = float(-added.log_prob(around)[n - 1 :].mean())
        wanted = conditional_entropy(text, n, of == "the last token")
        yield equals("training loss", loss, wanted, tol=1e-12, n=n)
        gap = divergence_from_add_one(text, n, V)
        yield equals("loss of another table, beyond", other - loss, gap, tol=1e-10, n=n)
        yield at_least("loss beyond the least", gap, 0.0, tol=0.0, n=n)
        if judged == "fresh text":
            loss = float(-added.log_prob(torch.tensor(fresh))[5:].mean())
        yield at_most("loss with one more token of context", loss, before, tol=1e-12, n=n)
        contexts = len({tuple(around[i : i + n - 1].tolist()) for i in range(T)})
        yield at_most("number of contexts", contexts, V ** (n - 1), n=n)
        before = loss
    model = NGramModel(torch.tensor([0, 1, 0, 1, 1, 0]), 3, V=3, smoothing="none")
    losses = -model.log_prob(torch.tensor([0, 1, 0, 0]))  # 1 0 was followed by 1 only
    yield at_most("losses before", losses[:3], math.log(2), tol=1e-12)
    yield equals("loss of a continuation never seen", losses[3], math.inf, tol=0.0)
    ahead, back = torch.tensor(text), torch.tensor(text[::-1])
    windows = [cooccurrence(t, window=3, vocabulary=V).counts.toarray() for t in (ahead, back)]
    yield equals("counts of a text and of its reversal", windows[0], windows[1])
    tables = [pairs_of(t, V) for t in (ahead, back)]
    yield equals("pairs of a text and of its reversal", tables[0], tables[1].T, tol=1e-9)


def pairs_of(text: Tensor, V: int) -> Tensor:
    """How often each pair of neighbours occurs, from the model's conditional probabilities."""
    model = NGramModel(text, 2, V=V, smoothing="none")
    given = model(torch.arange(V)[:, None])[:, 0].exp()
    return text[:-1].bincount(minlength=V)[:, None] * given


ngram_model.foil("on a fresh text more context can hurt", judged="fresh text",
                 refuted_by="loss with one more token of context")  # fmt: skip
ngram_model.foil("the entropy of all n tokens", of="all tokens")
