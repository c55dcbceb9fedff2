"""Small runs of `fit`, and what tests compare of them."""

from typing import Any

import torch
from torch import Tensor, nn

from vademecum.train import Run, Supervised, fit


def points(n: int = 50, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator)
    return x, (x.sum(1) > 0).long()


def network(dtype: torch.dtype = torch.float32, dropout: float = 0.2) -> Supervised:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = (nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 2))
        return Supervised(nn.Sequential(*layers).to(dtype))


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def fitted(objective: nn.Module | None = None, data: Any = None, **options: Any) -> Run:
    """A run with small defaults."""
    length = {"steps", "epochs", "minutes"} & options.keys()
    options = {"optimizer": adam, "batch_size": 8, **({} if length else {"steps": 12}), **options}
    return fit(
        network() if objective is None else objective,
        points() if data is None else data,
        **options,
    )


def weights(run: Run) -> Tensor:
    return torch.cat([t.detach().flatten().double() for t in run.objective.state_dict().values()])


def assert_same(one: Run, other: Run) -> None:
    """The same bits in weights and in what steps have found."""
    assert weights(one).equal(weights(other))
    assert one.history["loss"].equal(other.history["loss"])
