"""Several heads: side by side, their shapes, and their maps as matrices."""

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vademecum.attention import MultiHeadAttention
from vademecum.attention.claims._by_hand import (
    attend,
    head_maps,
    many_heads,
    softmax,
    with_normal_weights,
)
from vademecum.claims import at_least, claim, equals, integers

Joined = Literal["concatenated", "summed", "one softmax"]


def joined(layer: MultiHeadAttention, x: Tensor, y: Tensor, z: Tensor, how: Joined) -> Tensor:
    """The output of one row by hand; wrong ways to put heads together among them."""
    out = layer.out_proj.weight.T
    if how == "concatenated":
        return torch.cat(many_heads(layer, x, y, z), 1) @ out
    if how == "summed":
        return torch.stack(many_heads(layer, x, y, z)).sum(0) @ out[: layer.d_v]
    maps = list(zip(*head_maps(layer), strict=True))
    scores = torch.stack([(x @ a) @ (y @ b).T for a, b, _ in maps]).sum(0) / layer.d_k**0.5
    weights = torch.tensor([softmax(row) for row in scores.tolist()])
    return torch.cat([weights @ z @ c for _, _, c in maps], 1) @ out


@claim(
    by="identity",
    sources=("A-255", "B-394", "B-395"),
    budget=0.5,
    short=r"\mathrm{MultiHead}(X) = [H_1, \dots, H_h] W^O,\quad"
    r" H_i = \mathrm{Attention}(X U_Q^i, X U_K^i, X U_V^i)",
)
def multi_head(how: Joined = "concatenated"):
    r"""Multi-head attention: heads attend side by side, and their outputs are mixed.

    $\mathrm{MultiHead}(X) = [H_1, \dots, H_h]\, W^O$ with
    $H_i = \mathrm{Attention}(X U_Q^i, X U_K^i, X U_V^i)$: every head attends in its own projected
    space, the outputs are concatenated and mixed. For queries, keys and values from three sequences
    the same holds with each its own. No head depends on the weights of another, and $h = 1$ with
    identities is plain attention.

    `MultiHeadAttention` is compared with a loop over heads and queries, by hand, for equal and
    unequal widths of keys and values, and with torch's layer of the same weights.

    Knobs:
        how: How the heads are put together by hand.
    """
    for e, h, d_k, d_v, T, S in ((16, 4, 3, 6, 5, 7), (6, 2, 5, 2, 4, 3)):
        layer = with_normal_weights(MultiHeadAttention(e, h, d_k=d_k, d_v=d_v, bias=False), 0.3)
        x, y, z = torch.randn(2, T, e), torch.randn(2, S, e), torch.randn(2, S, e)
        at = {"e": e, "h": h}
        alone = torch.stack([joined(layer, a, a, a, how) for a in x])
        yield equals("output", layer(x), alone, tol=1e-12, **at)
        yield equals("output with weights", layer(x, weights=True).output, alone, tol=1e-12, **at)
        across = torch.stack([joined(layer, *abc, how) for abc in zip(x, y, z, strict=True)])
        yield equals("output over three sequences", layer(x, y, values=z), across, tol=1e-12, **at)
    layer = with_normal_weights(MultiHeadAttention(12, 3), 0.4)
    x = torch.randn(2, 5, 12)
    wanted = layer.to_torch()(x, x, x)[0]
    yield equals("output of torch's layer", layer(x), wanted, tol=1e-12)
    layer.out_proj.load_state_dict({"weight": torch.eye(12), "bias": torch.zeros(12)})
    before, state = layer(x), layer.state_dict()
    state["in_proj_weight"].view(3, 3, 4, 12)[:, 1] += torch.randn(3, 4, 12)
    change = (layer(x) - before).unflatten(2, (3, 4)).abs()
    yield equals("change of the other heads", change[:, :, ::2], 0.0, tol=0.0)
    yield at_least("change of the head whose weights change", change[:, :, 1].amax(2), 1e-9)
    one = MultiHeadAttention(5, 1, bias=False)
    one.load_state_dict({"in_proj_weight": torch.eye(5).repeat(3, 1),
                         "out_proj.weight": torch.eye(5)})  # fmt: skip
    x = torch.randn(1, 6, 5)
    plain = attend(x[0], x[0], x[0], 5**-0.5)[0]
    yield equals("one head with identities", one(x)[0].detach(), plain, tol=1e-13)


multi_head.foil("heads added up", how="summed")
multi_head.foil("one softmax of the sum of all scores", how="one softmax")


def whole_weights(layer: MultiHeadAttention) -> MultiHeadAttention:
    """The layer with integers for weights, so that products are exact."""
    for p in layer.parameters():
        p.data = integers(*p.shape, most=4)
    return layer.requires_grad_(False)


def multiplications(e: int, h: int, T: int) -> int:
    """Those of a layer with h heads for T tokens, as torch counts them in dense products."""
    layer, x = MultiHeadAttention(e, h, bias=False), torch.randn(1, T, e)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(x, weights=True)
    return counter.get_total_flops() // 2  # a multiplication and an addition each


@claim(
    by="identity",
    sources=("A-256", "B-401"),
    budget=0.5,
    short=r"U_{Q,K}^i \in \mathbb R^{e \times d_k},\ U_V^i \in \mathbb R^{e \times d_v},"
    r"\ W^O \in \mathbb R^{h d_v \times e}",
)
def multi_head_shapes(
    rows: Literal["e", "n"] = "e", split: Literal["features", "tokens"] = "features"
):
    r"""Shapes of multi-head attention, and heads as blocks of one projection.

    $U_Q^i, U_K^i \in \mathbb R^{e \times d_k}$, $U_V^i \in \mathbb R^{e \times d_v}$ and
    $W^O \in \mathbb R^{h d_v \times e}$, so input and output are both $T \times e$. Usually
    $d_k = d_v = e / h$: one $e \times e$ projection is split into $h$ heads, the number of
    multiplications is that of one full-width head, $4 e^2 T + 2 e T^2$ for $T$ tokens, and there
    are $4 e^2$ weights for every $h$ that divides $e$.

    All weights are integers here, so that equal means equal.

    Knobs:
        rows: How many rows $U_Q^i$ and $U_K^i$ have: as many as a token has features, or as there
            are tokens.
        split: Which axis of the projection is cut into heads by hand.
    """
    for e, h, d_k, d_v, T in ((16, 4, 3, 6, 5), (6, 3, 2, 4, 7)):
        layer = whole_weights(MultiHeadAttention(e, h, d_k=d_k, d_v=d_v, bias=False))
        assert layer.in_proj_weight is not None
        x, at = integers(2, T, e, most=5), {"e": e, "h": h, "T": T}
        queries, keys, values = (len(w) for w in layer.in_proj_weight.split(layer.rows))
        inputs = layer.in_proj_weight.shape[1]
        stated = e if rows == "e" else T
        yield equals("rows of the matrix of queries and keys", inputs, stated, **at)
        yield equals("columns of a token for these rows", x.shape[2], stated, **at)
        yield equals("columns of all heads", [queries, keys, values],
                     [h * d_k, h * d_k, h * d_v], **at)  # fmt: skip
        last = list(layer.out_proj.weight.T.shape)
        yield equals("shape of the last map", last, [h * d_v, e], **at)
        yield equals("shape of the output", list(layer(x).shape), [2, T, e], **at)
        remembered = layer.remember(x).contents()
        for name, found, weight in zip(("keys", "values"), remembered, head_maps(layer)[1:],
                                       strict=True):  # fmt: skip
            full = x @ torch.cat(weight, 1)
            heads = [x @ w for w in weight] if split == "features" else full.view(h, 2, T, -1)
            yield equals(f"{name} of each head", found.transpose(0, 1), torch.stack([*heads]),
                         tol=0.0, **at)  # fmt: skip
        token = integers(2, 1, e, most=5)
        merged = token @ torch.cat(head_maps(layer)[2], 1) @ layer.out_proj.weight.T
        yield equals("values split and merged", layer(x, token), merged, tol=0.0, **at)
    for e, T in ((8, 5), (16, 3)):
        for h in (1, 2, 4, 8):
            size = sum(p.numel() for p in MultiHeadAttention(e, h, bias=False).parameters())
            yield equals("weights", size, 4 * e**2, e=e, h=h)
            yield equals("multiplications", multiplications(e, h, T), 4 * e**2 * T + 2 * e * T**2,
                         e=e, h=h, T=T)  # fmt: skip


multi_head_shapes.foil("tokens cut into heads", split="tokens")
multi_head_shapes.erratum(
    "A-256",
    printed=r"$U^i_{\{Q,K\}} \in \mathbb R^{n \times d_k}$",
    right=r"$U^i_{\{Q,K\}} \in \mathbb R^{e \times d_k}$",
    why="$X U$ needs as many rows in $U$ as $X$ has columns, the embedding size $e$ that the same"
    r" line uses for $U_V^i$; with $n \ne e$ the product is undefined: a token has 16 features, and"
    " a matrix with 5 rows takes 5. A scanning slip cannot be excluded.",
    weight="scan",
    refuted_by="columns of a token for these rows",
    rows="n",
)


def by_heads(x: Tensor, maps: list[list[Tensor]]) -> list[Tensor]:
    """The outputs of heads, each with a map of its own."""
    d_k = maps[0][0].shape[1]
    outputs = []
    for q, k, v in zip(*maps, strict=True):
        scores = x @ q @ k.T @ x.T / d_k**0.5
        outputs.append(torch.tensor([softmax(row) for row in scores.tolist()]) @ x @ v)
    return outputs


def at_once(x: Tensor, maps: list[list[Tensor]]) -> list[Tensor]:
    """The blocks of one product with the matrices of all heads, as printed."""
    q, k, v = (torch.cat(weights, 1) for weights in maps)
    scores = x @ q @ k.T @ x.T
    weights = torch.tensor([softmax(row) for row in scores.tolist()])
    return list((weights @ x @ v).chunk(len(maps[0]), 1))


@claim(
    by="identity",
    sources=("B-396",),
    budget=0.5,
    short=r"Y_j = \mathrm{softmax}(X W_{q,j} W_{k,j}^\top X^\top / \sqrt{d_k})\, X W_{v,j},"
    r"\ Y = [Y_1, \dots, Y_h] W_o",
)
def self_attention_matrix(form: Literal["by heads", "at once"] = "by heads"):
    r"""Multi-head self-attention in matrices: every head has a map of its own.

    For each head $j$,
    $Y_j = \mathrm{softmax}(X W_{q,j} W_{k,j}^\top X^\top / \sqrt{d_k})\, X W_{v,j}$ with a softmax
    by rows, and $Y = [Y_1, \dots, Y_h]\, W_o \in \mathbb R^{L \times d}$. There are $h$ different
    $L \times L$ maps. One product with $d \times h d_k$ matrices gives a single map instead, whose
    scores are the sums over heads.

    Checked against `MultiHeadAttention`, whose last map picks the blocks out one by one.

    Knobs:
        form: Whether there is a map for each head, or one for all.
    """
    for L, d, h, d_k in ((4, 4, 2, 4), (5, 6, 3, 2)):
        layer = with_normal_weights(MultiHeadAttention(d, h, d_k=d_k, d_v=d, bias=False))
        x, at = torch.randn(1, L, d), {"L": L, "d": d, "h": h}
        maps = head_maps(layer)
        blocks = (by_heads if form == "by heads" else at_once)(x[0], maps)
        Y = torch.cat(blocks, 1)
        Y = Y @ layer.out_proj.weight.T if form == "by heads" else Y
        yield equals("columns of Y", layer(x).shape[2], Y.shape[1], **at)
        yield equals("maps", layer(x, weights=True).weights.shape[1],
                     h if form == "by heads" else 1, **at)  # fmt: skip
        yield equals("Y, its first d columns", layer(x)[0], Y[:, :d], tol=1e-12, **at)
        q, k, _ = (torch.cat(weights, 1) for weights in maps)
        each = sum(x @ a @ b.T @ x.mT for a, b in zip(*maps[:2], strict=True))
        yield equals("sum of the scores of all heads", each, x @ q @ k.T @ x.mT, tol=1e-11, **at)
        found = layer(x, weights=True).weights[0]
        gaps = torch.stack([(one - two).abs().max() for one, two in pairwise(found)])
        yield at_least("difference of the maps of two heads", gaps, 1e-6, **at)
        for j, block in enumerate(blocks):
            pick = nn.functional.one_hot(torch.arange(j * d, (j + 1) * d), h * d)
            layer.out_proj.weight.data = pick.double()
            yield equals("block of a head", layer(x)[0], block, tol=1e-12, **at, j=j + 1)


self_attention_matrix.foil("one map for all heads", refuted_by="block of a head", form="at once")
self_attention_matrix.erratum(
    "B-396",
    printed=r"$\mathbf Y = \mathrm{softmax}(\mathbf X \mathbf W_q \mathbf W_k^T \mathbf X^T)"
    r" \mathbf X \mathbf W_v,\ \mathbf W_{\{q,k,v\}} \in \mathbb R^{d \times hd},"
    r"\ \mathbf X, \mathbf Y \in \mathbb R^{L \times d}$",
    right=r"$Y = [Y_1, \dots, Y_h] W_o$ with a map"
    r" $\mathrm{softmax}(X W_{q,j} W_{k,j}^\top X^\top / \sqrt{d_k})$ for each head",
    why=r"With $d \times hd$ weights there is one attention map for all heads (its scores are the"
    r" sums of the head scores), the result is $L \times hd$ instead of the declared $L \times d$"
    r" (for $L = 4, d = 4, h = 2$: 8 columns, not 4), and scaling and output projection of the"
    " preceding lines are missing.",
    weight="hard",
    refuted_by="columns of Y",
    form="at once",
)
