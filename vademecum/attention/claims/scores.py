"""Scores: products of projections, divided by a square root."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from vademecum.attention import MultiHeadAttention, attention
from vademecum.attention.claims._by_hand import attend, softmax, with_normal_weights
from vademecum.claims import claim, complex_step, equals


def changed(layer: MultiHeadAttention, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The weights after the queries' matrix is multiplied by a from the right, the keys' by b."""
    assert layer.in_proj_weight is not None
    before = layer.in_proj_weight.data.clone()
    q, k, v = before.split(layer.rows)
    layer.in_proj_weight.data = torch.cat([a.T @ q, b.T @ k, v])
    weights = layer(x, weights=True).weights[:, 0]
    layer.in_proj_weight.data = before
    return weights


@claim(
    by="identity",
    sources=("A-253", "C-155", "C-156", "C-157"),
    budget=0.3,
    short=r"Q = X U_Q,\ K = X U_K,\ V = X U_V;\quad Q K^\top = X U_Q U_K^\top X^\top",
)
def query_key_value(partner: Literal["inverse transpose", "the same"] = "inverse transpose"):
    r"""Queries, keys and values are linear images of the tokens.

    $Q = X U_Q$, $K = X U_K$, $V = X U_V$ with $U_Q, U_K \in \mathbb R^{e \times d}$ and
    $U_V \in \mathbb R^{e \times d_v}$, tokens as rows: the same maps for every token. The scores
    $Q K^\top = X U_Q U_K^\top X^\top$ depend on the projections only through $U_Q U_K^\top$, so
    $(U_Q M, U_K M^{-\top})$ gives the same attention for every invertible $M$, and $(U_Q M, U_K M)$
    does for an orthogonal one.

    Checked in `MultiHeadAttention` with one head, whose keys and values are read from its cache and
    whose weights are compared with those of $x^s \cdot U_Q U_K^\top x^t / \sqrt d$, pair by pair.

    Knobs:
        partner: What $U_K$ is multiplied by, if $U_Q$ is by $M$.
    """
    for T, e, d, dv in ((6, 5, 3, 4), (4, 3, 5, 2)):
        layer = with_normal_weights(MultiHeadAttention(e, 1, d_k=d, d_v=dv, bias=False))
        assert layer.in_proj_weight is not None
        U, K, V = (weight.T for weight in layer.in_proj_weight.split(layer.rows))
        x, at = torch.randn(2, T, e), {"T": T, "e": e, "d": d}
        yield equals("rows and columns of the maps", [*U.shape, *K.shape, *V.shape],
                     [e, d, e, d, e, dv], **at)  # fmt: skip
        keys, values = layer.remember(x).contents()
        for name, found, weight in (("keys", keys, K), ("values", values, V)):
            by_token = torch.stack([torch.stack([(t[:, None] * weight).sum(0) for t in row])
                                    for row in x])  # fmt: skip
            yield equals(f"{name}, token by token", found[:, 0], by_token, tol=1e-13, **at)
        weights, form = layer(x, weights=True).weights[:, 0], U @ K.T / d**0.5
        by_pairs = [
            [softmax([float((s[:, None] * form * t).sum()) for t in row]) for s in row] for row in x
        ]
        yield equals("weights, pair by pair", weights, torch.tensor(by_pairs), tol=1e-12, **at)
        turn = torch.linalg.qr(torch.randn(d, d)).Q
        M = turn * torch.linspace(0.5, 2.0, d)
        other = torch.linalg.inv(M).T if partner == "inverse transpose" else M
        same = changed(layer, x, M, other)
        yield equals("weights with other projections", same, weights, tol=1e-10, **at)
        yield equals(
            "with orthogonal ones", changed(layer, x, turn, turn), weights, tol=1e-10, **at
        )


query_key_value.foil("both multiplied by the same matrix", partner="the same")

Divide = Callable[[int, int], float]


@claim(
    by="identity",
    sources=("A-254", "B-392", "C-159", "C-160", "C-161"),
    budget=0.3,
    short=r"\mathrm{Attention}(Q, K, V) = \mathrm{softmax}(Q K^\top / \sqrt d)\, V",
)
def scaled_dot_product(
    divided_by: Divide = lambda d, T: d**0.5, when: Literal["before", "after"] = "before"
):
    r"""Scaled dot-product attention: $\mathrm{softmax}(Q K^\top / \sqrt d)\, V$.

    The softmax is over each row and $d$ is the dimension of queries and keys; in general
    $A = \mathrm{softmax}(\beta Q K^\top)$ with inverse temperature $\beta$, usually $1 / \sqrt d$.
    The output has one row for each query and the width of the values.

    `attention` is compared with a loop over queries whose exponentials have 28 digits, with torch's
    fused kernel, and its gradients with the complex step through the formula.

    Knobs:
        divided_by: What scores are divided by, from the dimension $d$ and the number of keys.
        when: Whether scores are divided before the softmax, or weights after it.
    """
    for T, S, d, dv in ((4, 6, 8, 5), (5, 3, 2, 4)):
        q, k, v = torch.randn(T, d), torch.randn(S, d), torch.randn(S, dv)
        at, divisor = {"T": T, "S": S, "d": d}, divided_by(d, S)
        inside, outside = (1 / divisor, 1.0) if when == "before" else (1.0, 1 / divisor)
        wanted, weights = attend(q, k, v, inside)
        found = attention(q, k, v)
        yield equals("rows and columns of the output", list(found.output.shape), [T, dv], **at)
        yield equals("output", found.output, outside * wanted, tol=1e-13, **at)
        yield equals("weights", found.weights, outside * weights, tol=1e-13, **at)
        fused = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
        yield equals("output of the fused kernel", fused, outside * wanted, tol=1e-12, **at)
        beta = float(torch.rand(()) + 0.5)
        general = attention(q, k, v, scale=beta)
        yield equals("output at another temperature", general.output, attend(q, k, v, beta)[0],
                     tol=1e-13, **at)  # fmt: skip
        cotangent = torch.randn(T, dv)

        def loss(z: Tensor, divisor=inside, given=(q, k, v), cotangent=cotangent) -> Tensor:
            a, b, c = z.split([x.numel() for x in given])
            scores = divisor * a.view(given[0].shape) @ b.view(given[1].shape).T
            powers = scores.exp()
            mixed = powers / powers.sum(1, keepdim=True) @ c.view(given[2].shape)
            return (mixed * cotangent).sum()

        point = torch.cat([x.flatten() for x in (q, k, v)])
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        total = (attention(*inputs).output * cotangent).sum()
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(total, inputs)])
        stated = outside * complex_step(loss, point)
        yield equals("gradient", gradient, stated, tol=1e-11, **at)


scaled_dot_product.foil("divided by $d$", divided_by=lambda d, T: d)
scaled_dot_product.foil(r"divided by $\sqrt T$", divided_by=lambda d, T: T**0.5)
scaled_dot_product.foil("divided after the softmax", when="after")
