"""`vade train`: train a model of the course, with checkpoints, and go on after a kill."""

import inspect
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser

from vademecum.cli.recipe_flags import (
    Flag,
    built,
    flags_of,
    nearest,
    refuse_unknown,
    type_of,
    words_of_file,
)
from vademecum.cli.run_folder import claimed_folder, remove_empty, run_folder
from vademecum.cli.screen import table
from vademecum.cli.training_options import Options
from vademecum.errors import UsageError

if TYPE_CHECKING:
    from vademecum.train import Run, Task

__all__ = ["add_recipe_flags", "train", "training_words"]

SCORES = Path(__file__).parents[1] / "train" / "recipes" / "scores.json"
"""What recipes reached, as `docs/scores.py` measured it."""

_LENGTHS = ("steps", "epochs", "minutes")
_TRANSFER = ("from_", "head", "freeze", "unfreeze_after", "layer_decay", "probe_steps")
_BESIDES = ("out", "checkpoint_every", "keep", "resume", "change", "tensorboard", "device",
            "workers", "track", "track_every")  # fmt: skip
"""Options that leave the course of training as it is."""
_OPTIMIZER = ("optimizer", "lr", "weight_decay")
_AFTER_SIGNAL = 75


def train(recipe: str = "", *, list: bool = False, config: Path | None = None, **flags: Any) -> int:
    """Train a model of the course on data that need no download, or on your own.

    Every recipe has flags of its own: vade train classify --help. Exits with 75 after a signal,
    once a checkpoint is written; the same command with --resume goes on.

    Args:
        recipe: What to train; without it, recipes are listed.
        list: Show each recipe with its data, time and score.
        config: A file of YAML or JSON with flags, such as the config.json of a run.
        **flags: Those of the recipe, and of all recipes.
    """
    if list or not recipe:
        table(("command", "what it does", "data", "score", "seconds"), _listed())
        return 0
    options = Options(**{f.name: flags.pop(f.name) for f in fields(Options)})
    _refuse(options)
    from vademecum.randomness import own_randomness
    from vademecum.train import RECIPES, fit

    folder = run_folder(recipe, options)
    try:
        knobs = built(RECIPES[recipe], flags)
        with own_randomness(options.seed):
            task = RECIPES[recipe](**knobs)
        settings = _settings(task, options)
        asked = {"recipe": recipe} | _as_json(knobs) | _as_json(settings) | _transfer(options)
        by_name = {name: settings.pop(name, None) for name in _OPTIMIZER}
        optimizer = _prepared(task, options, by_name)
        folder = claimed_folder(recipe, options)
        run = fit(
            task.objective, task.data, optimizer=optimizer,
            evaluate=task.evaluate, score=task.score, maximize=task.maximize, folder=folder,
            configuration=asked, progress=True, **settings, **_besides(options),
        )  # fmt: skip
    except OSError:  # which is told as it is
        raise
    except ValueError as error:  # of a knob that cannot be, or of numbers that are none any more
        raise UsageError(str(error)) from error
    finally:
        if options.out is None:
            remove_empty(folder)
    _tell_end(run, folder, task.score)
    return _AFTER_SIGNAL if run.stopped == "signal" else 0


def add_recipe_flags(parser: ArgumentParser, words: list[str]) -> None:
    """Let a parser understand what all recipes have, and what the one that is named has.

    Args:
        parser: That of `vade train`.
        words: What follows `vade train`, as `training_words` gave it.
    """
    from vademecum.train.recipes import RECIPES

    own = flags_of(RECIPES[words[0]]) if words and words[0] in RECIPES else []
    for title, flags in ((f"flags of {words[0] if own else ''}", own), ("all recipes", _all())):
        if not flags:
            continue
        group = parser.add_argument_group(title)
        for flag in flags:
            options: dict[str, Any] = type_of(flag)
            if flag.name.endswith("_"):  # a keyword of Python's
                options["dest"] = flag.name
            group.add_argument(flag.word, help=flag.text, **options)


def training_words(words: list[str]) -> list[str]:
    """The words after `train`, with the flags of a file before those that were typed.

    Raises:
        UsageError: If the recipe or a flag is unknown; it says what may have been meant.
    """
    from vademecum.train.recipes import RECIPES

    recipe, typed = ("", words) if not words or words[0].startswith("-") else (words[0], words[1:])
    path, typed = _taken("--config", typed)
    out = _taken("--out", typed)[0]
    if path is None and not recipe and "--resume" in typed and out is not None:
        path = str(Path(out) / "config.json")
    filed: list[str] = []
    if path is not None:
        named, filed = words_of_file(Path(path))
        if recipe and named not in ("", recipe):
            raise UsageError(f"--config {path} is for the recipe {named}, got {recipe}")
        recipe = recipe or named
    if not recipe:
        refuse_unknown(typed, _all(), "vade train")
        flags = [word for word in typed if word not in ("--list", "--help", "-h")]
        if path is not None or (flags and len(flags) == len(typed)):
            what = f"--config {path}" if path is not None else flags[0]
            raise UsageError(f"{what} needs a recipe beside it; vade train --list shows them")
        return typed
    if recipe not in RECIPES:
        raise UsageError(f"no recipe is called {recipe!r}{nearest(recipe, [*RECIPES])}")
    flags = flags_of(RECIPES[recipe]) + _all()
    refuse_unknown(filed, flags, f"--config {path}: {recipe}")
    refuse_unknown(typed, flags, recipe)
    lengths = tuple(f"--{name}" for name in _LENGTHS)
    if any(word.partition("=")[0] in lengths for word in typed):  # which replace a file's
        filed = [word for word in filed if word.partition("=")[0] not in lengths]
    return [recipe, *filed, *typed]


def _taken(flag: str, words: list[str]) -> tuple[str | None, list[str]]:
    """The value of a flag, or None, and the other words."""
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == flag:
            rest = words[i + 1 :] if equals else words[i + 2 :]
            if not equals and i + 1 == len(words):
                raise UsageError(f"{flag} needs a value")
            return value if equals else words[i + 1], words[:i] + rest
    return None, words


def _all() -> list[Flag]:
    return flags_of(Options)


def _refuse(options: Options) -> None:
    given = [name for name in _LENGTHS if getattr(options, name) is not None]
    if len(given) > 1:
        raise UsageError(
            f"at most one of --steps, --epochs and --minutes, got {' and '.join(given)}"
        )
    if options.head == "new" and options.from_ is None:
        raise UsageError("--head new needs --from, where the other layers come from")
    for name in ("unfreeze_after", "probe_steps"):
        if (getattr(options, name) or 0) < 0:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} must be >= 0, got {getattr(options, name)}")
    if options.unfreeze_after is not None and not options.freeze:
        raise UsageError("--unfreeze-after needs --freeze, which says what")
    if not 0 < options.layer_decay <= 1:
        raise UsageError(f"--layer-decay must be in (0, 1], got {options.layer_decay:g}")


def _tell_end(run: "Run", folder: Path, score: str) -> None:
    """Say how the run ended, and where it is."""
    if int(os.environ.get("RANK", "0")):
        return
    best = "" if run.best is None else f", best {score} {run.best:.4g}"
    words = f"{folder}: {run.stopped} after {run.steps} steps{best}"
    if run.stopped == "signal":
        words = f"stopped after {run.steps} steps; vade train --resume --out {folder} goes on"
    print(words, file=sys.stderr)


def _settings(task: "Task", options: Options) -> dict[str, Any]:
    """What the recipe recommends, unless something else was asked for."""
    skipped = {*_BESIDES, *_TRANSFER}
    wanted = {f.name: getattr(options, f.name) for f in fields(Options) if f.name not in skipped}
    given = {name: value for name, value in wanted.items() if value is not None}
    if any(name in given for name in _LENGTHS):
        task.settings.update(dict.fromkeys(_LENGTHS))
    if "average" in given and given["average"] != "uniform":
        given["average"] = _number("--average", given["average"])
    merged = task.settings | given
    return {name: value for name, value in merged.items() if value is not None}


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{flag} must be uniform or a number, got {text!r}") from None


def _prepared(task: "Task", options: Options, by_name: Mapping[str, Any]) -> Any:
    """The maker of the optimiser, after weights of another run were taken over."""
    from vademecum.train.recipes._optimizers import make_optimizer
    from vademecum.train.recipes._transfer import paces, take_over

    if options.from_ is not None and not options.resume:
        left = take_over(task.objective, options.from_, new_head=options.head == "new")
        if left and int(os.environ.get("RANK", "0")) == 0:
            print(f"from {options.from_}: all but {', '.join(left)}")
    found = paces(
        task.objective, freeze=_split(options.freeze), unfreeze_after=options.unfreeze_after,
        layer_decay=options.layer_decay, probe_steps=options.probe_steps,
    )  # fmt: skip
    return make_optimizer(by_name["optimizer"], task.objective, lr=by_name["lr"],
                          weight_decay=by_name["weight_decay"], paces=found)  # fmt: skip


def _besides(options: Options) -> dict[str, Any]:
    import torch

    given = {name: getattr(options, name) for name in _BESIDES if name != "out"}
    if not options.resume and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        given["resume"] = "auto"  # torchrun has started the processes again
    given["device"] = options.device or ("cuda" if torch.cuda.is_available() else None)
    change = [name.replace("-", "_") for name in _split(options.change)]  # as flags are typed
    return given | {"change": change, "track": _split(options.track)}


def _transfer(options: Options) -> dict[str, Any]:
    """What of pre-training belongs to the configuration: all that was asked for."""
    asked = {name: getattr(options, name) for name in _TRANSFER}
    first = Options()
    changed = {name: value for name, value in asked.items() if value != getattr(first, name)}
    return {name.rstrip("_"): str(v) if isinstance(v, Path) else v for name, v in changed.items()}


def _as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: asdict(v) if is_dataclass(v) else v for name, v in values.items()}  # pyright: ignore
    return {name: value for name, value in plain.items() if not callable(value)}


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _listed() -> Iterator[tuple[str, str, str, str, str]]:
    """Each recipe, with its data, what it reached and how long that took."""
    from vademecum.train.recipes import RECIPES

    known = json.loads(SCORES.read_text()) if SCORES.is_file() else {}
    for name, recipe in RECIPES.items():
        about = (recipe.__doc__ or "").partition("\n")[0]
        own = inspect.signature(recipe).parameters.get("data")
        data = "drawn" if own is None else own.default
        rows = [row for row in known.get("rows", []) if row["command"].split()[0] == name]
        if not rows:
            yield name, about, data, "", ""
        for row in rows:
            score = f"{row['score']} {row['mean']:.3g} ± {row['spread']:.1g}"
            yield row["command"], about, data, score, f"{row['seconds']:.0f}"
            about = data = ""
