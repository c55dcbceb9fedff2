r"""A perceptron that is told the time: each hidden layer is scaled and shifted by what it is told.

$$h \leftarrow h + \mathrm{SiLU}\big((1 + a(e)) \odot (W \mathrm{LN}(h) + b) + s(e)\big)$$

where $e$ embeds time and context, and $a$ and $s$ are linear in $\mathrm{SiLU}(e)$; a layer that
changes the width leaves out the first $h$. For points in a few dimensions.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.generative.diffusion._embeddings import Embedding

__all__ = ["ConditionalMLP"]


class ConditionalMLP(nn.Module):
    """A network of points, times and contexts, for diffusion and score models.

    Args:
        d: How many entries a point has.
        hidden: How wide each hidden layer is.
        classes: How many labels a context can be; None for no labels.
        context_width: How wide vectors of context are; None for no vectors.
        embedding: How wide the vector is that tells time and context.
        horizon: The largest time: T for steps, 1 for stochastic equations.
        out: How many entries an output has; d by default, twice that for a learned variance.

    Example:
        >>> net = ConditionalMLP(2, classes=3)
        >>> net(torch.randn(5, 2), torch.arange(5), torch.tensor([0, 1, 2, 0, 1])).shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
        d: int,
        *,
        hidden: Sequence[int] = (128, 128, 128),
        classes: int | None = None,
        context_width: int | None = None,
        embedding: int = 64,
        horizon: float = 1000.0,
        out: int | None = None,
    ):
        super().__init__()
        self.d = whole("d", d, low=1)
        self.told = Embedding(
            embedding, classes=classes, context_width=context_width, horizon=horizon
        )
        if not hidden:
            raise ValueError("hidden must name the width of one layer or more, got none")
        widths = [whole("hidden", width, low=1) for width in hidden]
        self.first = nn.Linear(d, widths[0])
        pairs = zip([widths[0], *widths], widths, strict=False)
        self.layers = nn.ModuleList(_Layer(a, b, embedding) for a, b in pairs)
        self.last = nn.Linear(widths[-1], d if out is None else whole("out", out, low=1))

    @property
    def null(self) -> int | float | None:
        """The context that stands for none, or None without contexts."""
        return self.told.null

    def forward(
        self, x: Float[Tensor, " n d"], t: Tensor, context: Tensor | None = None
    ) -> Float[Tensor, " n k"]:
        """The outputs for points x at times t."""
        if x.ndim != 2 or x.shape[1] != self.d:
            raise ValueError(f"x must have the shape (n, {self.d}), got {tuple(x.shape)}")
        told, h = self.told(x, t, context), self.first(x)
        for layer in self.layers:
            h = layer(h, told)
        return self.last(h)


class _Layer(nn.Module):
    def __init__(self, width: int, out: int, embedding: int):
        super().__init__()
        self.norm, self.dense = nn.LayerNorm(width), nn.Linear(width, out)
        self.told = nn.Linear(embedding, 2 * out)
        self.residual = width == out

    def forward(self, h: Tensor, told: Tensor) -> Tensor:
        scale, shift = self.told(nn.functional.silu(told)).chunk(2, 1)
        new = nn.functional.silu(torch.addcmul(shift, 1 + scale, self.dense(self.norm(h))))
        return h + new if self.residual else new
