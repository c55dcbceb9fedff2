"""Calls of what draws random numbers in this room."""

import torch
from torch import Tensor, nn

from vademecum import geometry

X = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3)
RING = torch.stack([torch.arange(5001), torch.arange(5001).roll(1)])
RING = torch.cat([RING, RING.flip(0)], 1)
PAIR = torch.tensor([[0, 1], [1, 0]])


class Pooled(nn.Module):
    """What nodes get from their neighbours, added up."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.linear(x)[edges[0]].tanh().sum(0)


def pooled() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Pooled()


CALLS = {
    "Group.sample": lambda g: geometry.Group.symmetric(9).sample(5, generator=g),
    "link_scores": lambda g: geometry.link_scores(X, torch.tensor([[0, 5], [1, 6]]), generator=g),
    "equivariance_error": lambda g: geometry.equivariance_error(
        nn.Softmin(0), X.T, group=geometry.Group.symmetric(20), generator=g
    ),
    "wl_ceiling": lambda g: geometry.wl_ceiling(
        pooled(), (X[:2, :1].abs(), PAIR), (X[:2, :1].abs(), PAIR[:, :1]), generator=g
    ),
    "invariance_error": lambda g: geometry.invariance_error(
        nn.Flatten(), X.T, group=geometry.Group.symmetric(20), generator=g
    ),
    "graph_fourier": lambda g: geometry.graph_fourier(RING, k=2, generator=g),
}
