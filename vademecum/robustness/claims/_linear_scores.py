"""Linear logistic models, whose losses over a ball are known."""

import torch
from torch import Tensor, nn

__all__ = ["Score", "linear"]


class Score(nn.Module):
    """Two classes, the first with the logit 0 and the second with one that is linear."""

    def __init__(self, w: Tensor, b: float):
        super().__init__()
        self.w, self.b = nn.Parameter(w), b

    def forward(self, x: Tensor) -> Tensor:
        score = x @ self.w + self.b
        return torch.stack([0 * score, score], 1)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The logistic loss, from its formula."""
        return torch.log1p(torch.exp((1 - 2 * y) * (x @ self.w.detach() + self.b)))


def linear(d: int, n: int) -> tuple[Score, Tensor, Tensor]:
    """A linear logistic model with points of [0, 1] that it has right."""
    w, x = torch.randn(d), torch.rand(n, d)
    model = Score(w, -float(w.sum()) / 2 + 0.1)
    return model, x, (model(x)[:, 1] > 0).long().detach()
