"""The block of a vision transformer, with timm's names."""

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["EPS", "VisionBlock"]

EPS = 1e-6
"""What normalisations add to a variance: that of the published weights, and not torch's 1e-5."""


class VisionBlock(nn.Module):
    """Attention of all tokens to all, then a network for each; both normalise first and add."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width, eps=EPS), _SelfAttention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width, eps=EPS), _Perceptron(width, inner, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attn(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class _SelfAttention(nn.Module):
    """Queries, keys and values by one matrix, heads by torch's fused kernels."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class _Perceptron(nn.Module):
    def __init__(self, width: int, inner: int, dropout: float):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.dropout(F.gelu(self.fc1(x))))
