"""Who looks at whom: self-attention, cross-attention, order, and the causal mask."""

from itertools import permutations
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.attention import (
    MultiHeadAttention,
    TransformerDecoder,
    TransformerEncoder,
    attention,
    sinusoidal_encoding,
)
from vademecum.attention.claims._by_hand import attend, many_heads, moved, with_normal_weights
from vademecum.claims import at_least, claim, equals


def by_hand(layer: MultiHeadAttention, x: Tensor, y: Tensor) -> Tensor:
    """The outputs of one row for queries from x and keys and values from y."""
    return torch.cat(many_heads(layer, x, y, y), 1) @ layer.out_proj.weight.T


@claim(
    by="identity",
    sources=("A-258", "B-402", "C-165"),
    budget=0.5,
    short=r"\mathrm{SA}(X) = \mathrm{Attention}(X U_Q, X U_K, X U_V),"
    r"\ \text{unmasked: each position sees all}",
)
def self_attention(sees: Literal["all positions", "the past"] = "all positions"):
    r"""Self-attention takes queries, keys and values from one and the same sequence.

    Without a mask, as in the encoder, BERT and ViT, every position attends to all positions,
    earlier and later: changing any token changes every output. Only the causal variant of decoders
    is restricted to the current and past positions, so that token $s$ of $T$ changes the outputs
    $s, \dots, T$.

    Counted token by token, in `MultiHeadAttention` and in `TransformerEncoder`; the numbers are
    compared with a loop over queries and heads that takes everything from one sequence.

    Knobs:
        sees: What a position of the unmasked layer is said to attend to.
    """
    for T, d, h in ((6, 8, 2), (4, 6, 3)):
        x, at = torch.randn(1, T, d), {"T": T}
        layer = with_normal_weights(MultiHeadAttention(d, h, bias=False))
        yield equals("output", layer(x)[0], by_hand(layer, x[0], x[0]), tol=1e-12, **at)
        encoder = with_normal_weights(TransformerEncoder(d, h, depth=2))
        past = torch.arange(T, 0, -1)
        stated = torch.full((T,), T) if sees == "all positions" else past
        for name, net in (("a layer", layer), ("an encoder", encoder)):
            count = moved(net, x).sum(1)
            yield equals(f"outputs of {name} that change with the last token", int(count[-1]),
                         int(stated[-1]), **at)  # fmt: skip
            yield equals(f"outputs of {name} that change with a token", count, stated, **at)
            causal = moved(lambda z, net=net: net(z, causal=True), x)
            yield equals(f"changes in {name} with a causal mask", causal,
                         torch.ones(T, T, dtype=torch.bool).triu(), **at)  # fmt: skip


self_attention.foil("outputs of an encoder from the past alone", sees="the past",
                    refuted_by="outputs of an encoder that change with a token")  # fmt: skip
self_attention.erratum(
    "C-165",
    printed="describes self-attention as attending to the own values in the past",
    right="attends to all positions; the causal variant to the current and past ones",
    why="That is only the causal variant; in the transformer encoder, BERT and ViT each position"
    " also attends to later ones: perturbing the last of 6 tokens changes all 6 outputs of an"
    " unmasked layer, and not the last alone.",
    weight="soft",
    refuted_by="outputs of a layer that change with the last token",
    sees="the past",
)


@claim(
    by="identity",
    sources=("A-258", "B-399"),
    budget=0.6,
    short=r"\mathrm{SA}(P X) = P\, \mathrm{SA}(X)\ \text{for every permutation matrix } P",
)
def permutation_equivariance(positions: bool = False, causal: bool = False):
    r"""Self-attention ignores order.

    For every permutation matrix $P$, unmasked self-attention without positional information
    satisfies $\mathrm{SA}(P X) = P\, \mathrm{SA}(X)$, and the output for a fixed query does not
    change if pairs of keys and values are permuted. Word order must be supplied, usually by adding
    encodings of positions to the tokens, after which the equation fails.

    *Proof.* Scores become $P S P^\top$, the softmax of a row is permuted as its entries are, and
    $(P A P^\top)(P V) = P A V$.

    All 24 permutations of 4 tokens, through two layers of attention and through an encoder.

    Knobs:
        positions: Whether encodings of positions are added to the tokens.
        causal: Whether the layers are causal.
    """
    x = torch.randn(1, 4, 8)
    first, second = (with_normal_weights(MultiHeadAttention(8, h)) for h in (2, 4))
    encoder = with_normal_weights(TransformerEncoder(8, 2, depth=2, norm_first=True))
    signals = sinusoidal_encoding(4, 8)

    def layers(z: Tensor, added: Tensor) -> Tensor:
        return second(first(z + added, causal=causal), causal=causal)

    def stack(z: Tensor, added: Tensor) -> Tensor:
        return encoder(z + added, causal=causal)

    own = signals if positions else torch.zeros(4, 8)
    for name, net in (("two layers", layers), ("an encoder", stack)):
        changes, told = [], []
        for order in permutations(range(4)):
            P = torch.eye(4)[list(order)]
            changes.append((net(P @ x, own) - P @ net(x, own)).abs().max())
            told.append((net(P @ x, signals) - P @ net(x, signals)).abs().max())
        yield equals(f"SA(P X) - P SA(X) for {name}", torch.stack(changes), 0.0, tol=1e-11)
        yield at_least(f"the same with positions, for {name}", torch.stack(told).max(), 1e-3)
    for S in (3, 4):
        q, k, v = torch.randn(2, 5), torch.randn(S, 5), torch.randn(S, 6)
        wanted = attend(q, k, v, 5**-0.5)[0]
        orders = [list(order) for order in permutations(range(S))]
        found = torch.stack([attention(q, k[order], v[order]).output for order in orders])
        yield equals("output of a query over permuted pairs", found, wanted, tol=1e-13, S=S)


permutation_equivariance.foil("causal layers", causal=True)
permutation_equivariance.foil("tokens with positions", positions=True)


@claim(
    by="identity",
    sources=("A-259", "B-402", "C-166"),
    budget=0.6,
    short=r"\mathrm{CA}(X, Z) = \mathrm{Attention}(X U_Q, Z U_K, Z U_V),"
    r"\ \text{as long as } X",
)
def cross_attention(queries: Literal["decoder", "encoder"] = "decoder"):
    r"""In cross-attention the decoder asks and the encoder answers.

    The decoder states provide the queries and the encoder output provides keys and values: the
    output has the length of the query sequence and does not change if the encoder tokens, which
    carry no positions, are permuted. With both sequences equal it is self-attention with the same
    projections.

    Compared with a loop over queries and heads; 50 random permutations, for a layer and for a whole
    decoder.

    Knobs:
        queries: Where the queries come from.
    """
    for T, S, d, h in ((5, 7, 8, 2), (4, 3, 6, 3)):
        layer = with_normal_weights(MultiHeadAttention(d, h, bias=False))
        decoder = with_normal_weights(TransformerDecoder(d, h, depth=2))
        x, z, at = torch.randn(1, T, d), torch.randn(1, S, d), {"T": T, "S": S}

        def across(x: Tensor, z: Tensor, layer=layer) -> Tensor:
            return layer(x, z) if queries == "decoder" else layer(z, x)

        yield equals("rows of the output", across(x, z).shape[1], T, **at)
        wanted = by_hand(layer, x[0], z[0])
        few = min(T, S)
        yield equals("output", across(x, z)[0, :few], wanted[:few], tol=1e-12, **at)
        orders = [torch.randperm(S) for _ in range(50)]
        permuted = torch.cat([across(x, z[:, order]) for order in orders])[:, :few]
        yield equals("output for permuted encoder tokens", permuted, wanted[:few], tol=1e-12, **at)
        through = torch.cat([decoder(x, z[:, order]) for order in orders[:10]])
        yield equals("output of a decoder for permuted encoder tokens", through, decoder(x, z),
                     tol=1e-10, **at)  # fmt: skip
        yield equals("both sequences equal", across(x, x), layer(x), tol=1e-13, **at)


cross_attention.foil("queries from the encoder", queries="encoder")

Masked = Literal["before the softmax", "zeros after", "zeros before"]


def causal_weights(q: Tensor, k: Tensor, how: Masked) -> Tensor:
    """Causal weights by attention itself, or in two wrong ways."""
    if how == "before the softmax":
        return attention(q, k, k, causal=True).weights
    scores = q @ k.T / q.shape[1] ** 0.5
    return scores.softmax(1).tril() if how == "zeros after" else scores.tril().softmax(1)


@claim(
    by="identity",
    sources=("A-260", "B-400"),
    budget=0.6,
    short=r"A = \mathrm{softmax}(S + M),\ M_{ts} = -\infty\ \text{for}\ s > t:"
    r"\ a_{ts} = 0,\ \sum_s a_{ts} = 1",
)
def causal_mask(how: Masked = "before the softmax", aligned: Literal["end", "beginning"] = "end"):
    r"""A causal mask hides later positions before the softmax.

    It sets the scores of later positions to $-\infty$, so that position $t$ attends to $s \le t$
    only: the weight matrix is lower triangular with unit row sums, and outputs up to $t$ do not
    change with later tokens. Row $t$ is the last row of unmasked attention on the first $t$ tokens.
    Of the last few queries each belongs to its own time: a single query over all keys so far sees
    all of them.

    Weights are those of `attention`; two layers of `MultiHeadAttention` show that nothing leaks.

    Knobs:
        how: Where later positions are hidden.
        aligned: Whether fewer queries than keys belong to the last keys, or to the first.
    """
    for T, d in ((6, 4), (5, 7)):
        q, k, v, at = torch.randn(T, d), torch.randn(T, d), torch.randn(T, 3), {"T": T}
        A = causal_weights(q, k, how)
        yield equals("weights of later positions", A.triu(1), 0.0, tol=0.0, **at)
        yield equals("sums of rows", A.sum(1), 1.0, tol=1e-14, **at)
        rows = [attend(q[t : t + 1], k[: t + 1], v[: t + 1], d**-0.5) for t in range(T)]
        prefixes = torch.stack([nn.functional.pad(w[0], (0, T - w.shape[1])) for _, w in rows])
        yield equals("weights of prefixes", A, prefixes, tol=1e-13, **at)
        outputs = torch.cat([y for y, _ in rows])
        yield equals("outputs of prefixes", A @ v, outputs, tol=1e-13, **at)
        for last in (1, 2, T - 1):
            first = torch.ones(last, T, dtype=torch.bool).tril()
            mask = None if aligned == "end" else first
            found = attention(q[-last:], k, v, mask=mask, causal=aligned == "end").output
            yield equals("outputs of the last queries", found, outputs[-last:], tol=1e-13, **at)
        layers = [with_normal_weights(MultiHeadAttention(8, h)) for h in (2, 4)]

        def two(z: Tensor, layers=layers) -> Tensor:
            return layers[1](layers[0](z, causal=True), causal=True)

        tokens = torch.randn(1, T, 8)
        late = layers[0](tokens[:, -2:], tokens, causal=True)
        yield equals("the last queries of a layer", late, layers[0](tokens, causal=True)[:, -2:],
                     tol=1e-12, **at)  # fmt: skip
        seen = moved(two, tokens)
        yield equals("outputs of two layers that change with a token", seen,
                     torch.ones(T, T, dtype=torch.bool).triu(), **at)  # fmt: skip


causal_mask.foil("weights set to zero after the softmax", how="zeros after")
causal_mask.foil("scores set to zero before it", how="zeros before")
causal_mask.foil("fewer queries aligned with the first keys", aligned="beginning")
