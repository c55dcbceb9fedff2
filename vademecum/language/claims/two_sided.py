"""BERT: an encoder that looks left and right, and how pairs of sentences enter it."""

from typing import Any, Literal

import torch
from scipy.stats import binomtest, chi2
from torch import Tensor
from torch.nn import functional as F

from vademecum.claims import claim, consistent, equals
from vademecum.language import BERT, GPT, BERTPretraining, mask_tokens, nsp_pairs, pair_input
from vademecum.language.claims._networks import changes, drawn, torch_stack

SIZES = {
    "bert-base": (768, 12, 109_482_240, 110_106_428),
    "bert-large": (1024, 24, 335_141_888, 336_226_108),
}
"""Width, blocks, and parameters as published: without and with heads."""


def by_torch(net: BERT, tokens: Tensor, segments: Tensor, heads: int, hidden: int) -> Tensor:
    """The hidden states by torch's layers, which have the same weights."""
    w, d = net.state_dict(), net.d
    x = w["embeddings.word_embeddings.weight"][tokens]
    x = x + w["embeddings.token_type_embeddings.weight"][segments]
    x = x + w["embeddings.position_embeddings.weight"][: tokens.shape[1]]
    norm = (w["embeddings.LayerNorm.weight"], w["embeddings.LayerNorm.bias"])
    ours = {"out": "attention.output.dense", "inner": "intermediate.dense", "outer": "output.dense",
            "norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm"}  # fmt: skip
    blocks = []
    for i in range(len(net.encoder.layer)):
        at = f"encoder.layer.{i}"
        block = {
            f"{k}.{kind}": w[f"{at}.{name}.{kind}"]
            for k, name in ours.items()
            for kind in ("weight", "bias")
        }
        for kind in ("weight", "bias"):
            maps = [w[f"{at}.attention.self.{m}.{kind}"] for m in ("query", "key", "value")]
            block[f"qkv.{kind}"] = torch.cat(maps)
        blocks.append(block)
    stack = torch_stack(blocks, d, heads, hidden, activation="gelu", layer_norm_eps=1e-12)
    return stack(F.layer_norm(x, (d,), *norm, eps=1e-12))


def parameters_by_sum(d: int, layers: int, *, constants: bool, positions: bool) -> int:
    """Tables and their norm, blocks with six maps and two norms, and the pooler."""
    maps = 12 * d * d + constants * 9 * d
    block = maps + 2 * (1 + constants) * d
    tables = (30522 + 512 * positions + 2 + 1 + constants) * d
    return tables + layers * block + d * d + constants * d


@claim(
    by="identity",
    sources=("B-410", "B-415", "D-306"),
    budget=0.9,
    short=r"\text{BERT: each token attends to all};\ P = 31038d + L(12d^2 + 13d) + d^2 + d",
)
def bert_encoder(
    looks: Literal["both ways", "back"] = "both ways",
    constants: bool = True,
    positions: bool = True,
):
    r"""BERT is a bidirectional encoder: each token's query retrieves values from all tokens.

    Left and right: every output changes when any single token does. Base has 12 blocks and width
    768, large 24 and 1024; with 30,522 word pieces, 512 positions, 2 segments, two numbers a
    feature in a normalisation and a pooler these are 109,482,240 and 335,141,888 parameters (quoted
    as 110M and 340M), and with both heads of pre-training $d^2 + 3 d + V$ and $2 d + 2$ more, since
    the matrix of the logits is the table of tokens.

    Hidden states are those of torch's layers with the same weights; rows of unequal lengths in one
    batch have the vectors that each has alone. That lower layers know more of syntax and higher
    ones of meaning is quoted, and so is a weakness with negation.

    Knobs:
        looks: Which way tokens look; "back" is a causal network.
        constants: Whether maps and normalisations have constants, in the sum.
        positions: Whether the sum counts those.
    """
    for layers, heads, d in ((2, 2, 8), (3, 3, 6)):
        sizes: dict[str, Any] = {
            "V": 9,
            "d": d,
            "layers": layers,
            "heads": heads,
            "context": 7,
            "hidden": 10,
        }
        net, at = drawn(BERT(**sizes)), {"d": d}
        tokens, segments = torch.randint(9, (3, 6)), torch.randint(2, (3, 6))
        found = net(tokens, segments)
        wanted = by_torch(net, tokens, segments, heads, 10)
        yield equals("hidden states of torch's layers", found.hidden, wanted, tol=1e-10, **at)
        first = wanted[:, 0] @ net.pooler.dense.weight.T + net.pooler.dense.bias
        yield equals("pooled vectors", found.pooled, first.tanh(), tol=1e-10, **at)
        lengths = torch.tensor([4, 6, 2])
        packed, pooled = net(tokens, segments, lengths=lengths)
        for i, T in enumerate(lengths.tolist()):
            alone = by_torch(net, tokens[i : i + 1, :T], segments[i : i + 1, :T], heads, 10)
            yield equals("a row in a batch", packed[i, :T], alone[0], tol=1e-10, T=T, **at)
            read = (net.pooler.dense.weight @ alone[0, 0] + net.pooler.dense.bias).tanh()
            yield equals("its pooled vector", pooled[i], read, tol=1e-10, T=T, **at)
        back = drawn(GPT(**sizes))
        f = (lambda x, net=net: net(x[None]).hidden[0]) if looks == "both ways" else (
            lambda x, back=back: back.embed(x[None])[0])  # fmt: skip
        seen = changes(f, tokens[0], 9)
        yield equals("outputs that change with a token", int(seen.sum()), 36, **at)
    for name, (d, layers, published, with_heads) in SIZES.items():
        by_sum = parameters_by_sum(d, layers, constants=constants, positions=positions)
        with torch.device("meta"):
            model = BERT.named(name, pretraining=True)
        more = d * d + 5 * d + 30522 + 2
        for stated, heads in ((published, 0), (with_heads, 1)):
            part = model if heads else model.bert
            size = sum(p.numel() for p in part.parameters())
            yield equals("parameters", size, by_sum + heads * more, d=d, heads=heads)
            yield equals("parameters, as published", size, stated, d=d, heads=heads)


bert_encoder.foil("a causal mask", looks="back")
bert_encoder.foil("a count without constants", constants=False)
bert_encoder.foil("a count without positions", positions=False)


@claim(
    by="identity",
    sources=("A-269", "D-308"),
    budget=0.3,
    short=r"\text{[CLS] } A \text{ [SEP] } B \text{ [SEP]};"
    r"\ \text{segments } 0 \dots 0\, 1 \dots 1,\ |A| + 2 \text{ and } |B| + 1",
)
def bert_input(closing: bool = True, mark_of: Literal["first", "second"] = "first"):
    r"""A pair of sentences is fed as [CLS] A [SEP] B [SEP], a single one as [CLS] A [SEP].

    The segment is 0 for [CLS], A and the first [SEP], and 1 for the rest, so it changes once. The
    vector of [CLS] serves for classification: BERT's pooled vector depends on its last hidden
    state alone. Special tokens are never masked.

    All lengths from 1 to 4, with random tokens.

    Knobs:
        closing: Whether a mark closes the second sentence.
        mark_of: To which sentence the first mark belongs.
    """
    cls, sep = 1, 2
    net = drawn(BERT(V=30, d=6, layers=2, heads=2, context=12))
    hidden = 0
    for m in range(1, 5):
        for k in range(1, 5):
            a, b = torch.randint(3, 30, (m,)).tolist(), torch.randint(3, 30, (k,)).tolist()
            at = {"A": m, "B": k}
            found = pair_input(a, b, cls=cls, sep=sep)
            yield equals("length", len(found.tokens), m + k + 2 + closing, **at)
            wanted = [cls, *a, sep, *b, sep]
            yield equals("tokens", found.tokens, torch.tensor(wanted), **at)
            zeros = m + 1 + (mark_of == "first")
            yield equals(
                "tokens of the first segment", int((found.segments == 0).sum()), zeros, **at
            )
            turns = int((found.segments.diff() != 0).sum())
            yield equals("changes of segment", turns, 1, **at)
            alone = pair_input(a, cls=cls, sep=sep)
            yield equals("a single sentence", alone.tokens, torch.tensor(wanted[: m + 2]), **at)
            yield equals("its segments", alone.segments, torch.zeros(m + 2, dtype=torch.long), **at)
            masked = mask_tokens(found.tokens, mask=0, V=30, special=(cls, sep), rate=1.0)
            hidden += int(masked.decisions[(found.tokens == cls) | (found.tokens == sep)].sum())
            others = int((masked.decisions > 0).sum())
            yield equals("tokens that may be hidden", others, m + k, **at)
            out = net(found.tokens[None], found.segments[None])
            read = (out.hidden[0, 0] @ net.pooler.dense.weight.T + net.pooler.dense.bias).tanh()
            yield equals("vector for classification", out.pooled[0], read, tol=1e-12, **at)
    yield equals("special tokens that were hidden", hidden, 0)


bert_input.foil("no mark after the second sentence", closing=False)
bert_input.foil("the first mark belongs to the second sentence", mark_of="second")

DOCUMENTS = (3, 1, 4)
"""How many sentences they have."""


@claim(
    by="sampling",
    sources=("A-268", "B-413", "D-310"),
    budget=1.0,
    short=r"P(B \text{ follows } A) = \tfrac12,\quad \ell(\tfrac12) = \ln 2",
)
def next_sentence_prediction(
    negatives: Literal["all but A and its successor", "all"] = "all but A and its successor",
    rate: float = 0.5,
    n: int = 2000,
):
    r"""BERT's second task: for half of the pairs B follows A in its document, else it is drawn.

    Positive pairs are neighbours within a document; a drawn sentence is neither A nor its
    successor, and all others are equally likely. A linear map of the pooled vector of [CLS]
    decides, so nothing else of the last layer counts; where it says 1/2 always, the loss is
    $\ln 2$. Its loss is added to that of hidden tokens, which is quoted.

    The number of successors passes an exact binomial test, what was drawn a chi-square test, each
    at the level $10^{-6}$.

    Knobs:
        negatives: What a sentence that does not follow is drawn from.
        rate: The probability that the second sentence follows.
        n: How many pairs are drawn.
    """
    count, numbers = sum(DOCUMENTS), iter(range(3, 100))
    documents = [[[next(numbers), next(numbers)] for _ in range(m)] for m in DOCUMENTS]
    pairs = nsp_pairs(documents, n, cls=1, sep=2, rate=rate)
    a, b = pairs.places.T
    drawn_ones = pairs.labels == 1
    if negatives == "all":
        b = torch.where(drawn_ones, torch.randint(count, (n,)), b)
    successors = int((~drawn_ones).sum())
    yield consistent("p-value of one half", float(binomtest(successors, n, 0.5).pvalue), n=n)
    starts = [0, 1, 4, 5, 6]  # sentences with a successor
    yield equals("first sentences", a.unique(), torch.tensor(starts))
    yield equals("neighbours that are said to be", int((b - a == 1)[~drawn_ones].sum()), successors)
    yield equals("neighbours among drawn pairs", int((b - a == 1)[drawn_ones].sum()), 0)
    seen = [(i, j) for i in starts for j in range(count) if j not in (i, i + 1)]
    table = torch.zeros(count, count).index_put_((a[drawn_ones], b[drawn_ones]), torch.ones(()),
                                                 accumulate=True)  # fmt: skip
    found, mean = torch.tensor([table[i, j] for i, j in seen]), (n - successors) / len(seen)
    statistic = float(((found - mean) ** 2 / mean).sum())
    yield consistent("p-value of equal chances", float(chi2.sf(statistic, len(seen) - 1)), n=n)
    net = drawn(BERT(V=100, d=6, layers=2, heads=2, context=8, pretraining=True))
    part = [x[:20] for x in (pairs.tokens, pairs.segments)]
    out = net(*part)
    assert isinstance(out, BERTPretraining)
    head, pooler = net.cls.seq_relationship, net.bert.pooler.dense
    read = (out.hidden[:, 0] @ pooler.weight.T + pooler.bias).tanh() @ head.weight.T + head.bias
    yield equals("logits by the vector of [CLS]", out.next_logits, read, tol=1e-11)
    for p in head.parameters():
        p.zero_()
    said = net(*part)
    assert isinstance(said, BERTPretraining)
    loss = F.cross_entropy(said.next_logits, pairs.labels[:20])
    yield equals("loss of a constant 1/2", loss, 0.6931471805599453, tol=1e-15)


next_sentence_prediction.foil("drawn sentences may be the successor", negatives="all",
                              refuted_by="neighbours among drawn pairs")  # fmt: skip
next_sentence_prediction.foil("30 successors to 70 others", rate=0.3)
