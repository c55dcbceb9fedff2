"""What differs between a checkpoint and the run that wants to go on from it.

What a run was asked for must be the same, or the change must have been named. What it runs on may
be another: then it goes on with a warning, since other kernels round differently.
"""

import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from vademecum import __version__
from vademecum.errors import UsageError
from vademecum.train._ranks import Ranks

__all__ = ["changed_environment", "environment", "refuse_changes"]


def environment(ranks: Ranks) -> dict[str, Any]:
    """What the bits of a run depend on besides its configuration."""
    cuda = ranks.device.type == "cuda"
    device = torch.cuda.get_device_name(ranks.device) if cuda else platform.machine()
    return {
        "vademecum": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": f"{ranks.device.type} ({device})",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "processes": ranks.size,
    }


def changed_environment(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line on each thing that has changed.

    Example:
        >>> then = {"torch": "2.12", "processes": 2}
        >>> changed_environment(then, {"torch": "2.13", "processes": 1})
        ['torch was 2.12 and is 2.13 now: bits may differ', 'processes were 2 and are 1 now: batches
        are the same, random numbers such as those of dropout may differ']
    """
    lines = []
    for name in now:
        if then.get(name) == now[name]:
            continue
        if name == "processes":
            lines.append(
                f"processes were {then.get(name)} and are {now[name]} now: batches are the same,"
                " random numbers such as those of dropout may differ"
            )
        else:
            verb = ("were", "are") if name in ("threads", "instructions") else ("was", "is")
            lines.append(
                f"{name} {verb[0]} {then.get(name)} and {verb[1]} {now[name]} now: bits may differ"
            )
    return lines


def refuse_changes(
    then: Mapping[str, Any], now: Mapping[str, Any], change: Iterable[str] = ()
) -> None:
    """Insist that a run was asked for the same, but for changes that are named.

    Args:
        then: The configuration in the checkpoint.
        now: The configuration of this run.
        change: Names that may differ, such as "lr" or "model.width"; "model" stands for all of it.

    Raises:
        UsageError: If something else differs; it names the first difference, the recipe before
            all others. If the optimiser is of another kind, in any case.

    Example:
        >>> refuse_changes({"lr": 0.1, "model": {"width": 8}}, {"lr": 0.2, "model": {"width": 8}})
        Traceback (most recent call last):
        vademecum.errors.UsageError: lr was 0.1 in the checkpoint and is 0.2 now; name it in change
        to go on with that
        >>> refuse_changes({"lr": 0.1}, {"lr": 0.2}, change=["lr"])
    """
    change = [change] if isinstance(change, str) else list(change)
    if then.get("recipe") == now.get("recipe"):
        _refuse_another_optimizer(then.get("optimizer"), now.get("optimizer"))
    one, other = dict(_flat(then)), dict(_flat(now))
    names = sorted({*one, *other}, key=lambda name: (name != "recipe", name))
    for name in names:
        if one.get(name, "not given") == other.get(name, "not given"):
            continue
        if not any(name == c or name.startswith(f"{c}.") for c in change):
            was, is_ = (repr(x.get(name, "not given")) for x in (one, other))
            raise UsageError(
                f"{name} was {was} in the checkpoint and is {is_} now; name it in change to go on"
                " with that"
            )
    known = {*names, *(n.rpartition(".")[0] for n in names)}
    if unknown := next((c for c in change if c not in known), None):
        raise UsageError(f"change must name what the run was asked for, got {unknown!r}")


def _refuse_another_optimizer(then: Any, now: Any) -> None:
    """Insist on optimisers of the same kind, since moments of one are none of another."""
    if then is not None and now is not None and then != now:
        raise UsageError(
            f"optimizer was {then!r} in the checkpoint and is {now!r} now, which cannot go on from"
            " its state; begin another run with the weights instead"
        )


def _flat(configuration: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in configuration.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", list(value) if isinstance(value, tuple) else value
