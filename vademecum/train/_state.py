"""Capturing all that a run is, and putting it back: the same bits, or nothing at all.

A snapshot is what a checkpoint holds: weights and buffers, the states of optimisers, schedules and
the scaler of losses, averages, the best weights so far, the position, and where the generators of
all processes are. Whether it fits is looked at in full before anything is changed, and the first
difference is named.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from vademecum.errors import UsageError
from vademecum.train._differences import environment
from vademecum.train._generators import fresh_generators, generator_states, set_generators
from vademecum.train._names import Named, copied, first_misfit, like, parameter_names
from vademecum.train._optimizer_states import (
    average_loader,
    average_state,
    optimizer_loader,
    optimizer_state,
)
from vademecum.train._ranks import Ranks
from vademecum.train._training import Training
from vademecum.train.checkpoints._folder import Checkpoint, Snapshot
from vademecum.train.checkpoints._nested import join, split

__all__ = ["capture", "restore"]

Load = Callable[[], object]


def capture(training: Training, ranks: Ranks | None = None) -> Snapshot | None:
    """Everything that a run is, copied; None in all processes but the first.

    All processes must call it at the same step.

    Raises:
        ValueError: If something cannot be saved; it says what.
    """
    ranks = ranks or Ranks()
    taken = _Taken(here=ranks.main)
    named, names = Named(training.objective), parameter_names(training.objective)
    optimizers, averages = training.optimizers, training.averages
    state = {
        "model": {
            kind: taken.from_("model", tensors)
            for kind, tensors in (("parameters", named.parameters), ("buffers", named.buffers))
        },
        "optimizer": taken.from_(
            "optimizer", {p: optimizer_state(p, o, names) for p, o in optimizers.items()}
        ),
        "average": taken.from_(
            "average", {p: average_state(p, a, optimizers[p], names) for p, a in averages.items()}
        ),
        "stopping": taken.from_("stopping", training.stopping and training.stopping.state_dict()),
        "random": taken.from_("random", ranks.gathered(generator_states(ranks.device))),
        "rest": taken.from_("rest", _rest(training, named)),
    }
    if not ranks.main:
        return None
    document = {
        "step": training.step,
        "configuration": training.configuration,
        "environment": environment(ranks),
        "state": state,
    }
    tensors = {file: named for file, named in taken.tensors.items() if named}
    finite = [("model", name) for name in named.parameters]
    finite += [(file, name) for file in ("optimizer", "average") for name in tensors.get(file, ())]
    return Snapshot(document, tensors, finite)


def restore(
    training: Training,
    checkpoint: Checkpoint,
    ranks: Ranks | None = None,
    *,
    all: bool = True,
    generators: bool = True,
) -> None:
    """Make a run what it was, or leave it as it is.

    Args:
        training: A run that was set up in the same way.
        checkpoint: What to go on from.
        ranks: The processes.
        all: Whether everything that the checkpoint holds must find its place; otherwise what the
            run has no place for is passed over.
        generators: Whether to set the generators of random numbers, too.

    Raises:
        UsageError: If the checkpoint does not fit; it names the first difference.
    """
    ranks = ranks or Ranks()
    with _named(checkpoint):
        state = {
            file: join(content, checkpoint.tensors.get(file, {}))
            for file, content in checkpoint.document["state"].items()
        }
        loads = [
            *_model_loads(training, state),
            *_player_loads(training, state, all=all),
            *_other_loads(training, state, all=all),
        ]
        if generators:
            loads.append(_generator_load(state["random"], ranks))
        for load in loads:
            load()
    training.step = checkpoint.step


class _Taken:
    """Copies of tensors, by file and name."""

    def __init__(self, *, here: bool):
        self.tensors: dict[str, dict[str, Tensor]] = {}
        self._here = here

    def from_(self, file: str, state: Any) -> Any:
        """The document of a state, whose tensors are taken."""
        tensors = self.tensors.setdefault(file, {})

        def take(name: str, tensor: Tensor) -> None:
            if name in tensors:
                raise ValueError(f"names in a checkpoint must differ, got {name} twice")
            tensors[name] = copied(tensor, here=self._here)

        return split(state, "", take)


def _rest(training: Training, named: Named) -> dict[str, Any]:
    return {
        "passing": named.passing,
        "extra": named.extra,
        "frozen": [name for name, p in named.parameters.items() if not p.requires_grad],
        "schedules": {p: schedule.state_dict() for p, schedule in training.schedules.items()},
        "scaler": training.scaler.state_dict(),
        "steps": training.steps,
        "scores": training.scores,
        "kept": training.kept,
    }


@contextmanager
def _named(checkpoint: Checkpoint) -> Iterator[None]:
    """Say of which checkpoint it is that something does not fit or is missing."""
    name = checkpoint.path.name
    try:
        yield
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"the checkpoint {name} does not fit: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:  # of a document that is none of ours
        raise UsageError(f"the checkpoint {name} is none of ours: {error!r}") from error


def _model_loads(training: Training, state: Mapping[str, Any]) -> Iterator[Load]:
    named, saved, rest = Named(training.objective), state["model"], state["rest"]
    for kind, own in (("parameter", named.parameters), ("buffer", named.buffers)):
        if misfit := first_misfit(saved[f"{kind}s"], own, what=kind):
            raise ValueError(misfit)
    if misfit := first_misfit(rest["passing"], named.passing, what="buffer"):
        raise ValueError(misfit)
    values = {**saved["parameters"], **saved["buffers"]}
    own = {**named.parameters, **named.buffers}
    whole = {name: like(value, own[name]) for name, value in values.items()}
    whole |= {name: whole[first] for name, first in named.ties.items()} | rest["extra"]
    frozen = {str(name) for name in rest["frozen"]}
    yield lambda: training.objective.load_state_dict({named.names[n]: v for n, v in whole.items()})
    for name, p in named.parameters.items():
        yield lambda p=p, name=name: p.requires_grad_(name not in frozen)
    for name, b in named.passing.items():
        yield lambda b=b, name=name: b.copy_(like(rest["passing"][name], b))


def _player_loads(training: Training, state: Mapping[str, Any], *, all: bool) -> Iterator[Load]:
    names = parameter_names(training.objective)
    schedules = state["rest"]["schedules"]
    for what, own, saved in (
        ("an optimizer", training.optimizers, state["optimizer"]),
        ("an average", training.averages, state["average"]),
        ("a schedule", training.schedules, schedules),
    ):
        for player in [*own, *saved]:
            if player not in saved:
                raise ValueError(f"it has no {what.split()[1]} for {player!r}")
            if all and player not in own:
                raise ValueError(f"it has {what} for {player!r}, and there is none here")
    for player, optimizer in training.optimizers.items():
        yield optimizer_loader(player, optimizer, names, state["optimizer"][player])
    for player, average in training.averages.items():
        optimizer, saved = training.optimizers[player], state["average"][player]
        yield average_loader(player, average, optimizer, names, saved)
    for player, schedule in training.schedules.items():
        yield lambda s=schedule, player=player: s.load_state_dict(schedules[player])


def _other_loads(training: Training, state: Mapping[str, Any], *, all: bool) -> Iterator[Load]:
    saved, rest, stopping = state["stopping"], state["rest"], training.stopping
    if stopping is None and saved is not None and all:
        raise ValueError("it knows a best score so far, and here there is no score")
    if stopping is not None:
        if saved is None:
            raise ValueError("it knows no best score so far, and here there is a score")
        own = {f"weights.{name}": x for name, x in training.objective.state_dict().items()}
        placed = {
            name: like(x, own[name]) if name in own and isinstance(x, Tensor) else x
            for name, x in saved.items()
        }
        yield lambda: stopping.load_state_dict(placed)
    scaled = training.scaler.is_enabled()
    if scaled != bool(rest["scaler"]) and (scaled or all):
        raise ValueError("it was made with another precision: one of the two scales its losses")
    if scaled:
        yield lambda: training.scaler.load_state_dict(rest["scaler"])
    changes = {"scores": rest["scores"], "kept": rest["kept"]}
    if training.steps is None:
        changes["steps"] = rest["steps"]
    for name, value in changes.items():
        yield lambda name=name, value=value: setattr(training, name, value)


def _generator_load(saved: Mapping[str, Any], ranks: Ranks) -> Load:
    states = saved.get(str(ranks.rank))
    if states is None:
        return lambda: fresh_generators(saved["0"], ranks.rank)
    return lambda: set_generators(states, ranks.device)
