r"""The blocks that transformers repeat: attention, then a network for each position alone.

A sublayer $f$ with dropout $D$ stands on a residual path, normalised after it or before,

$$x \leftarrow \mathrm{norm}(x + D f(x)) \qquad\text{or}\qquad
x \leftarrow x + D f(\mathrm{norm}(x)) ,$$

and the network of a position is $F(y) = W_2\, D \sigma(W_1 y + b_1) + b_2$. Names and shapes of
parameters are those of torch's layers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import choice, number, whole
from vademecum.attention.multi_head import MultiHeadAttention

__all__ = ["Activation", "DecoderBlock", "EncoderBlock", "Sizes"]

Activation = Literal["relu", "gelu", "gelu_tanh"]
"""What stands between the two maps of a position's network."""

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class Sizes(NamedTuple):
    """What all blocks of a stack have in common."""

    d: int
    heads: int
    kv_heads: int | None
    hidden: int
    dropout: float
    activation: Activation
    norm_first: bool
    layer_norm_eps: float
    bias: bool
    rotary: float | None = None

    def checked(self) -> "Sizes":
        """The same, if they make sense; attention looks at the others."""
        whole("hidden", self.hidden, low=1)
        number("dropout", self.dropout, low=0, below=1)
        choice("activation", self.activation, tuple(_ACTIVATIONS))
        number("layer_norm_eps", self.layer_norm_eps, low=0)
        return self

    def attention(self, *, rotary: float | None = None) -> MultiHeadAttention:
        """A layer of attention of these sizes."""
        return MultiHeadAttention(
            self.d, self.heads, kv_heads=self.kv_heads, bias=self.bias, dropout=self.dropout,
            rotary=rotary,
        )  # fmt: skip

    def norm(self) -> nn.LayerNorm:
        """A normalisation of these sizes."""
        return nn.LayerNorm(self.d, self.layer_norm_eps, bias=self.bias)


class _Block(nn.Module):
    """The network of a position, and residual paths around sublayers."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.self_attn = sizes.attention(rotary=sizes.rotary)
        self.linear1 = nn.Linear(sizes.d, sizes.hidden, bias=sizes.bias)
        self.linear2 = nn.Linear(sizes.hidden, sizes.d, bias=sizes.bias)
        self.norm1, self.norm2 = sizes.norm(), sizes.norm()
        self.dropout, self.norm_first = sizes.dropout, sizes.norm_first
        self.activation = sizes.activation

    def feed_forward(self, x: Tensor) -> Tensor:
        """The network of a position, the same for all."""
        hidden = _ACTIVATIONS[self.activation](self.linear1(x))
        return self.linear2(F.dropout(hidden, self.dropout, self.training))

    def residual(self, x: Tensor, norm: nn.LayerNorm, sublayer: Callable[..., Tensor]) -> Tensor:
        """What a sublayer adds to x, normalised before or after."""
        added = sublayer(norm(x) if self.norm_first else x)
        x = x + F.dropout(added, self.dropout, self.training)
        return x if self.norm_first else norm(x)

    def extra_repr(self) -> str:
        """What the parts do not tell."""
        order = "norm_first=True, " if self.norm_first else ""
        return f"{order}activation={self.activation!r}, dropout={self.dropout}"


class EncoderBlock(_Block):
    """Self-attention, then the network of each position."""

    def forward(self, x: Tensor, **how: Any) -> Tensor:
        """All positions of x; how attention looks at them is for `MultiHeadAttention`."""
        x = self.residual(x, self.norm1, partial(self.self_attn, **how))
        return self.residual(x, self.norm2, self.feed_forward)


class DecoderBlock(_Block):
    """Self-attention, attention to a source, then the network of each position."""

    def __init__(self, sizes: Sizes):
        super().__init__(sizes)
        self.multihead_attn = sizes.attention()
        self.norm3 = sizes.norm()

    def forward(self, x: Tensor, how: dict[str, Any], across: dict[str, Any]) -> Tensor:
        """All positions of x; how attention looks at them, and across at the source."""
        x = self.residual(x, self.norm1, partial(self.self_attn, **how))
        x = self.residual(x, self.norm2, partial(self.multihead_attn, **across))
        return self.residual(x, self.norm3, self.feed_forward)
