"""Weights and gradients that several processes share: `DistributedDataParallel` or `fully_shard`.

An objective is not called but asked for its `losses`, by several players and in several passes,
and torch's tools watch calls. So each player's parameters go into a module of their own, whose call
hands the loss through: from then on `DistributedDataParallel` watches the backward pass. Where
weights are split, all work happens inside a call of a module around the objective.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from vademecum.arguments import choice
from vademecum.train._names import copied
from vademecum.train._ranks import Ranks

__all__ = ["SHARDINGS", "Sharing"]

SHARDINGS = ("ddp", "fsdp")
"""How processes may share an objective."""

Found = TypeVar("Found")


class Sharing:
    """How an objective's weights and gradients are shared; nothing at all if a process is alone.

    The processes begin with the first one's weights.

    Args:
        objective: The plain module.
        ranks: The processes.
        sharding: Whether each process holds all weights ("ddp") or a part of them ("fsdp").

    Attributes:
        objective: The module to train: the plain one, or a copy whose weights are split.
    """

    def __init__(self, objective: nn.Module, ranks: Ranks, sharding: str = "ddp"):
        choice("sharding", sharding, SHARDINGS)
        self.objective, self._plain, self._ranks = objective, objective, ranks
        self._around: Any = None
        self._watched: dict[str, tuple[list[int], DistributedDataParallel]] = {}
        ranks.from_first([*objective.parameters(), *objective.buffers()])
        if sharding == "fsdp" and ranks.size > 1:
            self.objective = deepcopy(objective)
            for p in self.objective.parameters():  # torch splits none that lie in another order
                p.data = p.data.contiguous()
            self._around = _split(self.objective, ranks)

    @property
    def split(self) -> bool:
        """Whether each process holds a part of the weights."""
        return self._around is not None

    def inside(self, work: Callable[[], Found]) -> Found:
        """Do work that uses the objective's weights; all processes do it at the same time."""
        return work() if self._around is None else self._around(work)

    def part(self) -> None:
        """Let go of torch's watchers, before the processes part.

        The last one to go would end the threads of a process group and wait for them, while they
        wait for Python, which it holds: for ever.
        """
        self._watched.clear()

    def watch(self, player: str, free: list[Tensor], loss: Tensor, *, last: bool) -> Tensor:
        """A player's loss of which the backward pass averages gradients over all processes.

        Args:
            player: Whose loss it is.
            free: The player's parameters that may move in this step.
            loss: The loss of a micro-batch.
            last: Whether it is the last micro-batch of the step; gradients wait until then.
        """
        if self._ranks.size == 1:
            return loss
        if self._around is not None:
            self._around.set_requires_gradient_sync(last)
            return loss
        parallel = self._parallel(player, free)
        with nullcontext() if last else parallel.no_sync():
            return parallel(loss)

    def equal_buffers(self) -> None:
        """Give all processes the first one's buffers, such as statistics of batches."""
        if self._ranks.size > 1:
            buffers = list(self.objective.buffers())
            for dtype in dict.fromkeys(b.dtype for b in buffers):
                self._equal([b for b in buffers if b.dtype == dtype])

    def whole(self) -> nn.Module:
        """The plain module with the weights that were trained; all processes take part."""
        if self.split:
            state = self.objective.state_dict()
            self._plain.load_state_dict(
                {name: copied(x) if isinstance(x, Tensor) else x for name, x in state.items()}
            )
            own = dict(self._plain.named_buffers())
            for name, buffer in self.objective.named_buffers():
                own[name].copy_(buffer)
        return self._plain

    def insist_on(self, optimizers: Mapping[str, Optimizer]) -> None:
        """Refuse optimisers that split weights cannot have.

        Raises:
            ValueError: If there are several players.
        """
        if self.split and len(optimizers) > 1:
            raise ValueError(
                "sharding must be 'ddp' for an objective with several players, got 'fsdp' for"
                f" {', '.join(optimizers)}"
            )

    @torch.no_grad()
    def _equal(self, tensors: list[Tensor]) -> None:
        """Overwrite tensors by the first process's, all at once."""
        flat = torch.cat([x.reshape(-1) for x in tensors])
        self._ranks.from_first([flat])
        for x, part in zip(tensors, flat.split([x.numel() for x in tensors]), strict=True):
            x.copy_(part.view_as(x))

    def _parallel(self, player: str, free: list[Tensor]) -> DistributedDataParallel:
        """The module around a player's parameters; a new one when some were frozen or freed."""
        known = [id(p) for p in free]
        if player not in self._watched or self._watched[player][0] != known:
            # Buckets stay as they are when unused parameters are looked for, and sums of more than
            # two numbers depend on them: a run that was resumed must not have others.
            made = DistributedDataParallel(
                _Through(free), init_sync=False, find_unused_parameters=True
            )
            self._watched[player] = known, made
        return self._watched[player][1]


class _Through(nn.Module):
    """A module that has parameters and hands a loss through."""

    def __init__(self, parameters: list[Tensor]):
        super().__init__()
        for i, p in enumerate(parameters):
            self.register_parameter(str(i), p if isinstance(p, nn.Parameter) else nn.Parameter(p))
        # Without a parameter that is never used, torch would warn that all of them are.
        self.unused = nn.Parameter(torch.zeros_like(parameters[0].detach().reshape(-1)[:1]))

    def forward(self, loss: Tensor) -> Tensor:
        return loss


def _split(objective: nn.Module, ranks: Ranks) -> Any:
    """A module around an objective, each of whose weights is split among the processes."""
    from torch.distributed.device_mesh import init_device_mesh  # half a second
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(ranks.device.type, (ranks.size,))
    for block in _blocks(objective):
        fully_shard(block, mesh=mesh)
    return fully_shard(_Around(objective), mesh=mesh)


class _Around(nn.Module):
    """A module around an objective whose call does some work with it."""

    def __init__(self, objective: nn.Module):
        super().__init__()
        self.objective = objective

    def forward(self, work: Callable[[], Any]) -> Any:
        return work()


def _blocks(objective: nn.Module) -> Iterator[nn.Module]:
    """Modules that are gathered one at a time: members of lists, unless they share weights."""
    owners: dict[int, int] = {}
    for module in objective.modules():
        for p in module._parameters.values():
            owners[id(p)] = owners.get(id(p), 0) + 1
    for module in objective.modules():
        if isinstance(module, nn.ModuleList):
            for block in module:
                own = list(block.parameters())
                if own and all(owners[id(p)] == 1 for p in own):
                    yield block
