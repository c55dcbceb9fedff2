"""The examination of a network: sections one after the other, within a budget of time.

Each section has a share of what is left by what it costs, the cheapest first, so that what one does
not need goes to those after it. If time is left at the end, a section that had too little runs once
more. A section that fails, or has no time, does not stop the others, and the network is as it was
when all is over. Time is kept in good faith: a section is asked to stop, and asks between calls of
the network; nothing is cut within one. The command `vade examine` runs the work in a process of its
own, which it can end.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from vademecum.arguments import number, whole
from vademecum.claims import environment
from vademecum.examine._clock import Clock
from vademecum.examine._guard import guarded
from vademecum.examine._section import Item, Plan, run_section, wants_time
from vademecum.examine._study import Study
from vademecum.examine.dossier import Dossier, Section
from vademecum.examine.findings import findings
from vademecum.examine.sections import PLANS
from vademecum.models import Loss, Output
from vademecum.progress import ticking
from vademecum.randomness import own_randomness, source

__all__ = ["environment_of", "examine", "run_sections", "seed_from"]

_AGAIN = 1.5  # times what a section took must be left for it to run once more


def examine(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    test: Any = None,
    loss: Loss | None = None,
    task: str | None = None,
    output: Output = None,
    sections: Sequence[str] | None = None,
    budget: float = 60.0,
    memory: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> Dossier:
    """The dossier of a network: what theory says of it, with error bars, within a time.

    The network is examined in evaluation mode and is afterwards as it was. The time is kept in good
    faith: nothing is cut within a call of the network; `vade examine` can do that.

    Args:
        model: Any module.
        x: Inputs: a tensor, a tuple, a dict; or a `DataLoader`, of which the first examples count.
        y: Targets, or None.
        test: Fresh examples: a pair of inputs and targets, or a `DataLoader`.
        loss: A function of outputs and targets that gives one number; by default the cross-entropy,
            the mean squared error or minus the log-density, by the task.
        task: "classification", "regression", "sequence" or "density"; guessed by default, and said.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it, or of several tensors the first.
        sections: The names of the sections to run; all of them by default.
        budget: How many seconds it may take.
        memory: The bytes to use beyond inputs and results; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If there is nothing to examine, in words; nothing was done then.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> dossier = examine(model, torch.rand(20, 4), sections=["anatomy"])
        >>> dossier["anatomy"].parameters, dossier["anatomy"].multiply_adds
        (67, 56)
    """
    clock = Clock(number("budget", budget, above=0, infinite=True))
    names = chosen(sections)
    if memory is not None:
        whole("memory", memory, low=1)
    with own_randomness(None):
        seed = seed_from(generator)
        study = Study(
            model, x, y, test=test, loss=loss, task=task, output=output, memory=memory, seed=seed
        )
        done = list(run_sections(study, names, clock, progress=progress))
        return Dossier(
            tuple(done), findings(tuple(done)), {**environment_of(study), "budget": budget}
        )


def chosen(sections: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the sections, in the order of the dossier.

    Raises:
        ValueError: If there is no such section, or none at all.
    """
    if sections is None:
        return tuple(PLANS)
    if isinstance(sections, str):
        sections = [sections]
    for name in sections:
        if name not in PLANS:
            raise ValueError(f"sections must be among {', '.join(PLANS)}, got {name!r}")
    if not sections:
        raise ValueError("sections must name at least one, got none")
    return tuple(name for name in PLANS if name in sections)


def run_sections(
    study: Study,
    names: Sequence[str],
    clock: Clock,
    *,
    progress: bool = False,
    note: Callable[[str, Item], None] | None = None,
    done: Callable[[Section], None] | None = None,
) -> list[Section]:
    """Run sections, the cheapest first, and give them in the order of their names.

    Args:
        study: The network and its data.
        names: Which sections.
        clock: The time for all of them.
        progress: Whether to show a progress bar on standard error.
        note: Called with the section's name and each measurement or sentence when it comes.
        done: Called with each section when it has ended; once more if a second run found more.
    """
    ahead = sorted((PLANS[name] for name in names), key=lambda plan: plan.cost)
    found: dict[str, Section] = {}
    with guarded(study.model) as kept, ticking("sections", len(ahead), progress=progress) as tick:

        def run(plan: Plan, share: float) -> None:
            section = run_section(plan, study, clock.spend(share), note=note)
            changed = kept.give_back()
            if changed or not study.whole():
                what = ", ".join(changed[:5]) or "the inputs"
                section = _noted(
                    section, f"the network's code changed {what}, which was given back"
                )
            found[plan.name] = _fuller(found.get(plan.name), section)
            if done is not None and found[plan.name] is section:
                done(section)

        for i, plan in enumerate(ahead):
            _ = plan.run  # loads what it needs, on nobody's clock but that of all
            rest = sum(each.cost for each in ahead[i:])
            run(plan, max(plan.cost / rest, min(plan.least / max(clock.left(), 1e-9), 1.0)))
            tick(1)
        for plan in ahead:
            short = wants_time(found[plan.name])
            if short and clock.left() > _AGAIN * found[plan.name].seconds:
                run(plan, 1.0)
    return [found[name] for name in names]


def _fuller(first: Section | None, second: Section) -> Section:
    """The one of two runs that found more; of equals the second, which had more time."""
    return second if first is None or _has(second) >= _has(first) else first


def _has(section: Section) -> tuple[int, bool, bool]:
    """What counts of a run: its numbers, then whether nothing failed, then the picture."""
    return len(section.measurements), not section.traceback, section.figure is not None


def _noted(section: Section, note: str) -> Section:
    from dataclasses import replace

    return replace(section, notes=(*section.notes, note))


def seed_from(generator: torch.Generator | None) -> int:
    """A seed from where random numbers come from."""
    return int(torch.randint(2**31, (), **source(generator, None)))


def environment_of(study: Study) -> dict[str, Any]:
    """The network, its data, the task, the seed, and what claims tell of the machine."""
    kind = type(study.model)
    return {
        "model": f"{kind.__module__}.{kind.__qualname__}",
        "device": str(study.device),
        "dtype": str(study.dtype).removeprefix("torch."),
        "examples": study.n,
        "examples_of": study.data.of,
        "examples_mark": study.mark(),
        "test_examples": None if study.test is None else study.test.n,
        "task": study.aim.task,
        "task_because": study.aim.why,
        "output": study.counted,
        "classes": study.aim.classes,
        "seed": study.seed,
        "memory": study.memory,
        **environment(),
    }
