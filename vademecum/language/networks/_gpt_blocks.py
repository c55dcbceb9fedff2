r"""The blocks of GPT: causal attention, then a network of each position, both normalised before.

$$x \leftarrow x + D\,\mathrm{attention}(\mathrm{LN}(x)), \qquad
x \leftarrow x + D\,W_2\,\mathrm{gelu}(W_1 \mathrm{LN}(x) + b_1) + b_2 ,$$

with dropout $D$ and gelu by its formula with tanh. Matrices have the shape (in, out) and the names
of the published files.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.language.networks._reading import Reading

__all__ = ["KINDS", "Body", "CausalBlock", "Map", "Sizes"]


class Sizes(NamedTuple):
    """What all blocks have in common."""

    d: int
    heads: int
    hidden: int
    dropout: float
    eps: float


class Map(nn.Module):
    """An affine map $x W + b$ whose matrix has the shape (in, out).

    Its longer axis lies in memory without gaps, which a product with one vector reads 1.8 times as
    fast on a CPU (384 x 1536, float32).
    """

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        tall = inputs >= outputs
        matrix = torch.empty(outputs, inputs).t() if tall else torch.empty(inputs, outputs)
        self.weight = nn.Parameter(matrix)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.t(), self.bias)

    def extra_repr(self) -> str:
        """The sizes of inputs and outputs."""
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"


class CausalBlock(nn.Module):
    """Attention to earlier tokens, then a network for each token."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.ln_1 = nn.LayerNorm(sizes.d, sizes.eps)
        self.attn = _SelfAttention(sizes)
        self.ln_2 = nn.LayerNorm(sizes.d, sizes.eps)
        self.mlp = _Perceptron(sizes)
        self.dropout = sizes.dropout

    def forward(self, x: Tensor, layer: int, reading: Reading) -> Tensor:
        x = x + self._dropped(self.attn(self.ln_1(x), layer, reading))
        return x + self._dropped(self.mlp(self.ln_2(x)))

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.dropout and self.training else x


class _SelfAttention(nn.Module):
    """Queries, keys and values by one matrix, heads by torch's fused kernels."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.d, self.heads = sizes.d, sizes.heads
        self.c_attn, self.c_proj = Map(sizes.d, 3 * sizes.d), Map(sizes.d, sizes.d)

    def forward(self, x: Tensor, layer: int, reading: Reading) -> Tensor:
        n, T, d = x.shape
        shape = (n, T, 3, self.heads, d // self.heads)
        q, k, v = self.c_attn(x).view(shape).permute(2, 0, 3, 1, 4).unbind(0)
        return self.c_proj(reading.attend(layer, q, k, v).transpose(1, 2).reshape(n, T, d))


class _Perceptron(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.c_fc, self.c_proj = Map(sizes.d, sizes.hidden), Map(sizes.hidden, sizes.d)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Body(nn.Module):
    """Everything below the head, under the names of the published files."""

    def __init__(self, V: int, context: int, blocks: list[CausalBlock], norm: nn.LayerNorm):
        super().__init__()
        d = norm.normalized_shape[0]
        self.wte, self.wpe = nn.Embedding(V, d), nn.Embedding(context, d)
        self.h, self.ln_f = nn.ModuleList(blocks), norm


KINDS = (Body, CausalBlock, _SelfAttention, _Perceptron, Map)
"""All classes of modules here that GPT is made of."""
