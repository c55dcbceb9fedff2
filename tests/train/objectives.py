"""Small objectives and data for runs of `fit` in several processes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.train import Run, fit

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def data(n: int = 30) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 3, generator=generator), torch.randn(n, 2, generator=generator)


class Regression(nn.Module):
    """Squares of errors, with blocks in a list, statistics of batches and dropout if asked for."""

    def __init__(self, *, noisy: bool = False, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        extra = [nn.BatchNorm1d(4), nn.Dropout(0.3)] if noisy else []
        self.blocks = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 4)])
        self.head = nn.Sequential(*extra, nn.Linear(4, 2))
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x).tanh()
        return self.head(x)

    def losses(self, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        x, y = batch
        self.seen += x[:, 0].tolist()
        return {"model": F.mse_loss(self(x), y)}


class Ragged(nn.Module):
    """A language model of texts of different lengths: the loss is a sum over tokens."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(7, 5), nn.Linear(5, 7)
        self.double()

    def losses(self, batch: tuple[Tensor, Tensor]) -> dict[str, Any]:
        tokens, lengths = batch
        logits = self.head(self.table(tokens[:, :-1]))
        each = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
        counted = torch.arange(each.shape[1]) < lengths[:, None]
        return {"model": ((each * counted).sum(), counted.sum())}


def texts() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(7, (41, 9), generator=generator)
    return tokens, torch.randint(1, 9, (41,), generator=generator)


class Game(nn.Module):
    """Two players, the second of which answers the first one's step."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 2), nn.Linear(2, 2)
        self.double()

    def losses(self, batch: tuple[Tensor, Tensor]) -> dict[str, Any]:
        x, y = (part.double() for part in batch)
        return {
            "first": F.mse_loss(self.second(self.first(x)), y),
            "second": lambda: F.mse_loss(self.second(self.first(x).detach()), y),
        }


def train(objective: nn.Module, given: Any = None, **options: Any) -> Run:
    options = {"optimizer": SGD, "batch_size": 7, "steps": 9, **options}
    return fit(objective, data() if given is None else given, **options)


def weights(objective: nn.Module) -> Tensor:
    state = [x.double().reshape(-1) for x in objective.state_dict().values()]
    return torch.cat(state).detach()


def told(path: Path, found: Any) -> None:
    """Hand what a process has found to the one that waits for it."""
    torch.save(found, path)


def tell(path: Path) -> Any:
    return torch.load(path, weights_only=True)


def joined(function: Callable[[], Any]) -> Callable[[], None]:
    """A function that joins the other processes once, and then does its work."""

    def work() -> None:
        torch.distributed.init_process_group("gloo")
        function()
        torch.distributed.destroy_process_group()

    return work
