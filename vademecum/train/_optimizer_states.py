"""States of optimisers, their averages and schedules, by the names of parameters.

torch numbers the parameters of an optimiser; here they have names, so that a state finds its
parameter however they are ordered. Nothing is dropped: neither the state of a parameter that is
frozen now, nor is one invented for a parameter that had no gradient yet. Numbers keep their dtype,
which torch's own way of loading would change to that of the parameter.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from vademecum.optimization import PolyakAveraging
from vademecum.train._names import like

__all__ = ["average_loader", "average_state", "optimizer_loader", "optimizer_state"]

_ORDINARY = ("state", "param_groups")


def optimizer_state(player: str, optimizer: Optimizer, names: Mapping[int, str]) -> dict[str, Any]:
    """The state of an optimiser with names in place of numbers.

    Raises:
        ValueError: If it moves a parameter that is none of the objective's.
    """
    state = optimizer.state_dict()
    ordered = _ordered_names(player, optimizer, names)
    numbers = [i for group in state["param_groups"] for i in group["params"]]
    name_of = dict(zip(numbers, ordered, strict=True))
    groups = [
        {**group, "params": [name_of[i] for i in group["params"]]}
        for group in state["param_groups"]
    ]
    return {
        "groups": groups,
        "state": {name_of[i]: value for i, value in state["state"].items() if i in name_of},
        "loose": {i: value for i, value in state["state"].items() if i not in name_of},
        "more": {key: value for key, value in state.items() if key not in _ORDINARY},
    }


def optimizer_loader(
    player: str, optimizer: Optimizer, names: Mapping[int, str], saved: Any
) -> Callable[[], None]:
    """A function that puts a state back, once it is known to fit.

    Raises:
        ValueError: If it does not; it names the first difference.
    """
    ordered = _ordered_names(player, optimizer, names)
    params = dict(zip(ordered, _parameters(optimizer), strict=True))
    own = optimizer.state_dict()["param_groups"]
    own_names = iter(ordered)
    here = [[next(own_names) for _ in group["params"]] for group in own]
    _insist_on_groups(player, here, saved)
    number = {name: i for group, known in zip(own, here, strict=True)
              for i, name in zip(group["params"], known, strict=True)}  # fmt: skip
    groups = [{**then, **_kept(now, then)} for now, then in zip(own, saved["groups"], strict=True)]
    if stray := next((name for name in saved["state"] if name not in params), None):
        raise ValueError(f"its optimizer of {player!r} has a state for {stray}, unknown here")
    state = {
        number[name]: {key: _placed(value, params[name]) for key, value in entries.items()}
        for name, entries in saved["state"].items()
    }

    def load() -> None:
        whole = {"state": {**state, **saved["loose"]}, "param_groups": groups, **saved["more"]}
        optimizer.load_state_dict(whole)
        for name in saved["state"]:
            for key, value in state[number[name]].items():
                own = optimizer.state[params[name]]
                if isinstance(value, Tensor) and own[key].dtype != value.dtype:
                    own[key] = value.to(own[key].device, copy=True)

    return load


def average_state(
    player: str, average: PolyakAveraging, optimizer: Optimizer, names: Mapping[int, str]
) -> dict[str, Any]:
    """The averages of an optimiser's parameters by their names, and how many iterates they hold."""
    state = average.state_dict()
    ordered = _ordered_names(player, optimizer, names)
    return {"t": state["t"], "means": dict(zip(ordered, state["means"], strict=True))}


def average_loader(
    player: str,
    average: PolyakAveraging,
    optimizer: Optimizer,
    names: Mapping[int, str],
    saved: Any,
) -> Callable[[], None]:
    """A function that puts averages back, once they are known to fit.

    Raises:
        ValueError: If they do not; it names the first difference.
    """
    ordered = _ordered_names(player, optimizer, names)
    means = saved["means"]
    for name in [*ordered, *means]:
        if (name in means) != (name in ordered):
            where = "unknown here" if name in means else "missing"
            raise ValueError(f"its average of {name} is {where}")
    kept = []
    for name, p in zip(ordered, _parameters(optimizer), strict=True):
        mean = means[name]
        if mean is not None and (not isinstance(mean, Tensor) or mean.shape != p.shape):
            raise ValueError(f"its average of {name} must have the shape {tuple(p.shape)}")
        kept.append(None if mean is None else like(mean, p))
    return lambda: average.load_state_dict({"t": saved["t"], "means": kept})


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _ordered_names(player: str, optimizer: Optimizer, names: Mapping[int, str]) -> list[str]:
    """The names of an optimiser's parameters, in its order."""
    parameters = _parameters(optimizer)
    for p in parameters:
        if id(p) not in names:
            raise ValueError(
                f"the optimizer of {player!r} must move parameters of the objective alone, since no"
                f" others are saved, got one of shape {tuple(p.shape)} that is none of them"
            )
    return [names[id(p)] for p in parameters]


def _insist_on_groups(player: str, here: list[list[str]], saved: Any) -> None:
    if len(here) != len(saved["groups"]):
        count = len(saved["groups"])
        raise ValueError(f"its optimizer of {player!r} has {count} groups, and here {len(here)}")
    for i, (known, group) in enumerate(zip(here, saved["groups"], strict=True)):
        for name in [*known, *group["params"]]:
            if (name in known) != (name in group["params"]):
                where = "unknown here" if name in group["params"] else "missing"
                raise ValueError(f"{name} in group {i} of its optimizer of {player!r} is {where}")


def _kept(now: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """What of a group is not taken from a checkpoint: the order, and the places of tensors."""
    own = {key: now[key] for key in ("params", "param_names") if key in now}
    for key, value in now.items():
        if isinstance(value, Tensor) and isinstance(then.get(key), Tensor):
            own[key] = then[key].to(value.device)
    return own


def _placed(value: Any, p: Tensor) -> Any:
    """A state's tensor, split like the parameter if it has its shape."""
    return like(value, p) if isinstance(value, Tensor) and value.shape == p.shape else value
