r"""The parts of BERT, under the names of the published files.

$$x \leftarrow \mathrm{LN}(x + D\,\mathrm{attention}(x)), \qquad
x \leftarrow \mathrm{LN}(x + D\,(W_2\,\mathrm{gelu}(W_1 x + b_1) + b_2)) ,$$

with dropout $D$ and the exact gelu. Tokens are packed: a matrix with a row for each.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.language.networks._packing import Packing
from vademecum.language.networks._tokens import looked_up

__all__ = ["Block", "Body", "Embeddings", "Heads", "Pooler", "Sizes", "Stack"]


class Sizes(NamedTuple):
    """What all parts have in common."""

    V: int
    d: int
    heads: int
    hidden: int
    context: int
    segments: int
    dropout: float
    attention_dropout: float
    eps: float

    def norm(self) -> nn.LayerNorm:
        """A normalisation of these sizes."""
        return nn.LayerNorm(self.d, self.eps)


class Embeddings(nn.Module):
    """The sum of a vector of the token, one of its place and one of its segment, normalised."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.word_embeddings = nn.Embedding(sizes.V, sizes.d)
        self.position_embeddings = nn.Embedding(sizes.context, sizes.d)
        self.token_type_embeddings = nn.Embedding(sizes.segments, sizes.d)
        self.LayerNorm = sizes.norm()
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, tokens: Tensor, segments: Tensor | None, packing: Packing) -> Tensor:
        x = looked_up("tokens", packing.pack(tokens), self.word_embeddings.weight)
        table = self.token_type_embeddings.weight
        if segments is None:
            x = x + table[0]
        else:
            x = x + looked_up("segments", packing.pack(segments), table)
        place = F.embedding(packing.places, self.position_embeddings.weight)
        if packing.index is None:
            place = place.repeat(packing.n, 1)
        return self.dropout(self.LayerNorm(x + place))


class _SelfAttention(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(sizes.d, sizes.d) for _ in range(3))
        self.shape, self.dropout = (sizes.heads, sizes.d // sizes.heads), sizes.attention_dropout

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        q, k, v = (m(x).unflatten(1, self.shape) for m in (self.query, self.key, self.value))
        return packing.attend(q, k, v, self.dropout if self.training else 0.0)


class _Added(nn.Module):
    """A map whose output is added to what was there, and the sum normalised."""

    def __init__(self, inputs: int, sizes: Sizes):
        super().__init__()
        self.dense, self.LayerNorm = nn.Linear(inputs, sizes.d), sizes.norm()
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(x)) + before)


class _Attention(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.self, self.output = _SelfAttention(sizes), _Added(sizes.d, sizes)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        return self.output(self.self(x, packing), x)


class _Bent(nn.Module):
    """A map, and gelu of what it gives."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.dense = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.dense(x))


class Block(nn.Module):
    """Attention of all tokens of a row to all, then a network for each token."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.attention = _Attention(sizes)
        self.intermediate = _Bent(sizes.d, sizes.hidden)
        self.output = _Added(sizes.hidden, sizes)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        x = self.attention(x, packing)
        return self.output(self.intermediate(x), x)


class Stack(nn.Module):
    """All blocks."""

    def __init__(self, blocks: list[Block]):
        super().__init__()
        self.layer = nn.ModuleList(blocks)


class Pooler(nn.Module):
    """A vector of a whole row, made of that of its first token."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.dense = nn.Linear(sizes.d, sizes.d)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x))


class _Transform(_Bent):
    def __init__(self, sizes: Sizes):
        super().__init__(sizes.d, sizes.d)
        self.LayerNorm = sizes.norm()

    def forward(self, x: Tensor) -> Tensor:
        return self.LayerNorm(super().forward(x))


class _Predictions(nn.Module):
    """Logits of hidden tokens; their matrix is the table of the input, transposed."""

    def __init__(self, sizes: Sizes, table: Tensor):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(sizes.V))
        self.transform, self.decoder = _Transform(sizes), nn.Linear(sizes.d, sizes.V)
        self.decoder.weight, self.decoder.bias = table, self.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.transform(x))


class Heads(nn.Module):
    """What pre-training asks for: hidden tokens, and whether the second sentence follows."""

    def __init__(self, sizes: Sizes, table: Tensor):
        super().__init__()
        self.predictions = _Predictions(sizes, table)
        self.seq_relationship = nn.Linear(sizes.d, 2)


class Body(nn.Module):
    """What is below the heads."""

    embeddings: Embeddings
    encoder: Stack
    pooler: Pooler
