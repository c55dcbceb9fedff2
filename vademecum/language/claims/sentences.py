"""Words in their sentences: ELMo reads from both ends, and layers are mixed for a task."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import claim, equals
from vademecum.language import BERT, ELMo
from vademecum.language.claims._networks import changes, drawn

WORDS = ["the", "bank", "of", "a", "river", "is", "wet", "opened"]


def spelled(tokens: Tensor) -> Tensor:
    """The characters of words that are given by their numbers, one sentence."""
    return ELMo.encode([WORDS, [WORDS[i] for i in tokens.tolist()]]).characters[1:, : len(tokens)]


def small_elmo(layers: int = 2, d: int = 4, V: int = len(WORDS)) -> ELMo:
    """A narrow network with random weights."""
    sizes = {"layers": layers, "d": d, "hidden": d + 2, "d_characters": 3, "filters": {1: 4, 2: 5}}
    return drawn(ELMo(V=V, **sizes))


def contextual(d: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Vectors of the words of a sentence (T,), by two networks."""
    bert, elmo = drawn(BERT(V=8, d=d, layers=2, heads=2, context=9)), small_elmo(d=d)
    return {
        "BERT": lambda x: bert(x[None]).hidden[0],
        "ELMo": lambda x: elmo(spelled(x)).mixed[0],
    }


@claim(
    by="identity",
    sources=("B-404", "D-311"),
    budget=0.5,
    short=r"h_t = h_t(x_1, \dots, x_T):\ \text{one vector for each place, not for each word}",
)
def contextual_embeddings(
    vectors: Literal["of a place", "of a word", "mean of a word"] = "of a place",
):
    r"""A contextual model gives each token a vector that depends on the whole sentence.

    There is one for each position, in contrast to a static table with one for each word: an
    ambiguous word gets different vectors in different sentences, and when any word of a sentence
    is exchanged, all vectors of the sentence change, where in a table one does. The same sentence
    twice gives the same vectors, exactly.

    Random sentences of 5 and 7 words, by BERT and by ELMo with random weights; vectors count as
    different from $10^{-6}$ on.

    Knobs:
        vectors: What has a vector: a place in a sentence, or a word, either by a table or by the
            mean of its contextual vectors over all sentences here.
    """
    for T, d in ((5, 4), (7, 6)):
        corpus = torch.stack([torch.randperm(8)[:T] for _ in range(4)])
        corpus[:, 0] = torch.randperm(8)[:4]  # no sentence twice
        corpus[:, 1] = 1  # the word in question
        for name, own in contextual(d).items():
            table = torch.randn(8, d)
            at, every = {"T": T, "network": name}, torch.stack([own(row) for row in corpus])
            if vectors == "mean of a word":
                means = [every[corpus == w].mean(0) for w in range(8)]
                table = torch.stack([m.nan_to_num() for m in means])
            f = own if vectors == "of a place" else (lambda x, table=table: table[x])
            word = torch.stack([f(row)[1] for row in corpus])
            apart = sum(int(((word[:i] - word[i]).abs() > 1e-6).any(1).sum()) for i in range(4))
            yield equals("pairs of sentences that tell a word apart", apart, 6, **at)
            seen = changes(f, corpus[0], 8, tol=1e-6)
            yield equals("vectors that change with a word", int(seen.sum()), T * T, **at)
            yield equals(
                "the same sentence again", f(corpus[0]), f(corpus[0].clone()), tol=0.0, **at
            )
            static = changes(lambda x, table=table: table[x], corpus[0], 8)
            if vectors != "mean of a word":
                yield equals("those of a table", int(static.sum()), T, **at)


contextual_embeddings.foil("a static table", vectors="of a word")
contextual_embeddings.foil("contextual vectors, averaged over a corpus", vectors="mean of a word")


class Concatenated(nn.Module):
    """Two layers of LSTMs, of which the second reads both directions of the first."""

    def __init__(self, d: int):
        super().__init__()
        self.net = nn.LSTM(d, d, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        """States of the last layer: from the left, from the right."""
        return self.net(x)[0]


def directed(elmo: ELMo, other: Concatenated | None) -> Callable[[Tensor], Tensor]:
    """States of all layers of words (T,), as (T, layers, 2, d), or those of another network."""
    if other is not None:
        return lambda x: other(elmo.words(spelled(x)))[0].unflatten(-1, (1, 2, -1))
    return lambda x: elmo(spelled(x)).layers[0, 1:].transpose(0, 1).unflatten(-1, (2, -1))


@claim(
    by="identity",
    sources=("A-265", "B-405", "D-311", "D-313", "D-314", "D-315"),
    budget=0.6,
    short=r"\ell = -\sum_t \log p(x_t \mid x_{<t}) - \sum_t \log p(x_t \mid x_{>t}),"
    r"\ \text{input and softmax shared}",
)
def elmo(second: Literal["separate", "concatenated"] = "separate", both: bool = True):
    r"""ELMo: a stack of LSTMs from left to right, another from right to left, over characters.

    A network of characters builds the words' inputs; the loss is the sum of both directions'
    negative log-likelihoods of neighbouring words. In every layer the state from the left at $t$
    depends on words up to $t$ only and the state from the right on words from $t$ on, so neither
    prediction sees its target. The directions have separate LSTMs and share the network of
    characters and the softmax: the parameters of both are counted once, and gradients of shared
    ones are the sums of those of the two directions.

    A random network with two layers and one with three, sentences of 5 words; the loss is computed
    word by word from the predictions.

    Knobs:
        second: What the second layer reads: its own direction, or both concatenated.
        both: Whether both directions are in the sum.
    """
    T, V = 5, len(WORDS)
    later = torch.ones(T, T, dtype=torch.bool).triu()
    for layers, d in ((2, 4), (3, 3)):
        net, at = small_elmo(layers, d), {"layers": layers}
        other = drawn(Concatenated(d)) if second == "concatenated" else None
        x, states = torch.randint(V, (T,)), directed(net, other)
        for j in range(layers if other is None else 1):
            for k, wanted in enumerate((later, later.T)):
                seen = changes(lambda row, j=j, k=k, f=states: f(row)[:, j, k], x, V)
                side = "from the right" if k else "from the left"
                yield equals(f"states {side} that change with a word", seen, wanted, layer=j, **at)
        net.requires_grad_()
        after, before = net.predictions(spelled(x))
        terms = [[after[0, t].log_softmax(0)[x[t + 1]] for t in range(T - 1)],
                 [before[0, t].log_softmax(0)[x[t - 1]] for t in range(1, T)]]  # fmt: skip
        losses = [-torch.stack(side).mean() for side in terms]
        loss = net.loss(spelled(x), x[None])
        yield equals(
            "loss", loss.detach(), (losses[0] + both * losses[1]).detach(), tol=1e-12, **at
        )
        shared = [*net.words.parameters(), *([] if net.head is None else net.head.parameters())]
        whole = torch.autograd.grad(loss, shared, retain_graph=True)
        sides = [torch.autograd.grad(each, shared, retain_graph=True) for each in losses]
        for mine, a, b in zip(whole, *sides, strict=True):
            yield equals("gradient of what is shared", mine, a + both * b, tol=1e-12, **at)
        cells, m = d + 2, 9
        lstm = 4 * cells * (2 * d + 2) + d * cells
        characters = 259 * 3 + 4 * 4 + 5 * 7 + 2 * (2 * m * m + 2 * m) + m * d + d
        total = characters + 2 * layers * lstm + d * V + V + layers + 2
        yield equals("parameters", sum(p.numel() for p in net.parameters()), total, **at)


elmo.foil("the second layer reads both directions", second="concatenated")
elmo.foil("the loss of one direction", both=False)
