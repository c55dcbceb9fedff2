"""Who moves which parameters: an optimiser for each player of an objective.

An objective with several players says which parameters are whose by a method `players()`, or has a
part of a player's name: the generator of a GAN moves the parameters of `gan.generator`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

__all__ = ["OptimizerOrMaker", "knobs_of", "make_optimizers"]

OptimizerOrMaker = Optimizer | Callable[[list[tuple[str, Tensor]]], Optimizer]
"""An optimiser, or a function that makes one of the names and parameters of a player."""


_KERNELS = ("foreach", "fused", "capturable", "differentiable")
"""Of an optimiser's knobs, those that say how and not what it computes."""


def make_optimizers(
    objective: nn.Module, optimizer: OptimizerOrMaker | Mapping[str, OptimizerOrMaker]
) -> dict[str, Optimizer]:
    """The optimiser of each player, in the order of their turns.

    Raises:
        ValueError: If it is unknown which parameters are whose, two players have the same ones, or
            an optimiser has some that are not the objective's.
    """
    players = _players(objective)
    if not isinstance(optimizer, Mapping):
        made = dict.fromkeys(players or ("model",), optimizer)
    else:
        made = dict(optimizer)
        if not made or (players and set(made) != set(players)):
            raise ValueError(
                f"optimizer must have an entry for each player, {', '.join(players or ['model'])},"
                f" got {', '.join(made) or 'none'}"
            )
    found = {
        player: _made(player, given, _named(objective, player, players, alone=len(made) == 1))
        for player, given in made.items()
    }
    _insist_on_own(objective, found)
    return found


def knobs_of(optimizers: Mapping[str, Optimizer]) -> dict[str, Any]:
    """The kinds of optimisers and the knobs that they were made with, as JSON has them.

    Example:
        >>> from torch.optim import SGD
        >>> found = knobs_of({"model": SGD([Tensor([1.0])], lr=0.5)})
        >>> found["optimizer"], found["lr"], found["momentum"]
        ('SGD', 0.5, 0)
    """
    found: dict[str, dict[str, Any]] = {}
    for player, optimizer in optimizers.items():
        found.setdefault("optimizer", {})[player] = type(optimizer).__name__
        for name in [name for name in optimizer.defaults if name not in _KERNELS]:
            values = [_knob(group, name) for group in optimizer.param_groups]
            alike = all(value == values[0] for value in values)
            found.setdefault(name, {})[player] = values[0] if alike else values
    if len(optimizers) > 1:
        return dict(found)
    return {name: value for name, each in found.items() for value in each.values()}


def _knob(group: Mapping[str, Any], name: str) -> Any:
    value = group.get("initial_lr", group["lr"]) if name == "lr" else group.get(name)
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, tuple):
        return [_knob({name: entry}, name) for entry in value]
    return value if value is None or isinstance(value, bool | int | float | str) else "another"


def _players(objective: nn.Module) -> dict[str, list[Tensor]]:
    if not hasattr(type(objective), "players"):
        return {}
    players: Mapping[str, Iterable[Tensor]] = objective.players()  # pyright: ignore
    return {str(name): list(parameters) for name, parameters in players.items()}


def _named(
    objective: nn.Module, player: str, players: Mapping[str, Iterable[Tensor]], *, alone: bool
) -> list[tuple[str, Tensor]]:
    """The parameters of a player with their names in the objective."""
    everything: list[tuple[str, Tensor]] = [*objective.named_parameters()]
    if player in players:
        own = {id(p) for p in players[player]}
    elif alone:
        return everything
    elif isinstance(part := getattr(objective, player, None), nn.Module):
        own = {id(p) for p in part.parameters()}
    else:
        raise ValueError(
            f"objective must say which parameters are the player {player!r}'s, by a method"
            f" players() or by a module of that name, got neither in {type(objective).__name__}"
        )
    return [(name, p) for name, p in everything if id(p) in own]


def _made(player: str, given: Any, named: list[tuple[str, Tensor]]) -> Optimizer:
    if not named:
        raise ValueError(f"the player {player!r} must have parameters, got none")
    made = given if isinstance(given, Optimizer) else given(named) if callable(given) else given
    if not isinstance(made, Optimizer):
        raise ValueError(
            "optimizer must be a torch.optim.Optimizer or a function of named parameters that makes"
            f" one, got {type(made).__name__}"
        )
    return made


def _insist_on_own(objective: nn.Module, optimizers: Mapping[str, Optimizer]) -> None:
    names = {id(p): name for name, p in objective.named_parameters()}
    whose: dict[int, str] = {}
    for player, optimizer in optimizers.items():
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            if id(p) not in names:
                shape = tuple(p.shape)
                raise ValueError(
                    f"optimizer must hold parameters of the objective, got another of shape {shape}"
                )
            if whose.setdefault(id(p), player) != player:
                raise ValueError(
                    f"players must not share parameters, got {names[id(p)]} of both"
                    f" {whose[id(p)]!r} and {player!r}"
                )
