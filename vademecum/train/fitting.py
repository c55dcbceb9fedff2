"""Training any objective on any data: `fit`.

It puts the pieces together, of which each has a file: which examples come when (`_order`), where
they come from (`_batches`), steps (`_loop`, `_turns`), schedules, evaluations and instruments
(`_looks`, `_tracking`), the log, and checkpoints. Order, augmentation and every random number are
functions of the seed, so that a run that was killed and resumed ends with the same bits.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from vademecum.randomness import own_randomness
from vademecum.train._batches import source_of
from vademecum.train._looks import Evaluation, Pace, take_final_weights
from vademecum.train._loop import Look, run
from vademecum.train._order import Order, seed_for
from vademecum.train._players import OptimizerOrMaker, knobs_of, make_optimizers
from vademecum.train._precision import casting, compiled, exactly_repeatable, scaler_for
from vademecum.train._ranks import processes
from vademecum.train._records import Records
from vademecum.train._schedules import Schedule, add_schedules
from vademecum.train._setup import (
    add_averages,
    asked_for,
    length,
    micro_batches,
    place_of,
    stopping_for,
)
from vademecum.train._sharing import Sharing
from vademecum.train._signals import Signals
from vademecum.train._tracking import Tracking
from vademecum.train._training import Training
from vademecum.train._turns import Means
from vademecum.train.noise import ExampleNoise
from vademecum.train.runs import Run

__all__ = ["fit"]


def fit(
    objective: nn.Module,
    data: Any,
    *,
    optimizer: OptimizerOrMaker | Mapping[str, OptimizerOrMaker],
    batch_size: int = 128,
    steps: int | None = None,
    epochs: int | None = None,
    minutes: float | None = None,
    schedule: Schedule = None,
    warmup: float = 0,
    cooldown: float = 0,
    accumulate: int = 1,
    clip: float | None = None,
    precision: str = "float32",
    compile: bool = False,
    average: float | str | None = None,
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    evaluate_every: int | None = None,
    score: str | None = None,
    maximize: bool = False,
    patience: int | None = None,
    augment: Callable[[Any, ExampleNoise], Any] | None = None,
    workers: int = 0,
    seed: int = 0,
    device: torch.device | str | None = None,
    deterministic: bool = False,
    sharding: str = "ddp",
    folder: str | Path | None = None,
    checkpoint_every: float = 60.0,
    keep: int = 2,
    resume: bool | Literal["auto"] = False,
    change: Sequence[str] = (),
    configuration: Mapping[str, Any] | None = None,
    track: Sequence[str] = (),
    track_every: int | None = None,
    tensorboard: bool = False,
    progress: bool = False,
) -> Run:
    """Train an objective on data: exactly repeatable, resumable, on one process or many.

    The order of the data depends on the seed alone, the same for any number of workers, processes
    and micro-batches; the rest of a run is repeatable on the same machine. Global random numbers
    are seeded, and given back afterwards.

    Args:
        objective: A module with `losses(batch) -> {player: loss}`, such as `Supervised(model)`. A
            loss is a mean over the examples of the batch or a pair (sum, count), or a function
            that gives one of them and is called on the player's turn. It may have `players() ->
            {player: parameters}`, `before_step(step)` and `after_step(player)`, too.
        data: A tensor, or a tuple or dict of tensors with a common first axis; a map-style
            `Dataset`, which may have a function `collate`; or `Tokens`.
        optimizer: An optimiser, a function of named parameters that makes one, or a mapping from
            players to either.
        batch_size: How many examples a step takes, over all processes and micro-batches.
        steps: How many steps to take; or else `epochs` or `minutes`.
        epochs: How many times to go through the data.
        minutes: How long to train: the first 50 steps tell how many there will be.
        schedule: How the learning rate goes: "constant", "linear", "cosine", or a function of an
            optimiser that makes a scheduler of torch's, which is stepped after each step.
        warmup: How many steps it rises for; below 1, which share of all steps.
        cooldown: How many steps it falls to zero for at the end; below 1, which share of all.
        accumulate: How many micro-batches to split a process's batch into.
        clip: The largest norm of a player's gradient.
        precision: "float32" (the module's own dtype), "bfloat16" or "float16".
        compile: Whether to compile the objective's losses.
        average: The decay of an exponential moving average of the weights, or "uniform".
        evaluate: A function of the objective that gives numbers by name. It sees the averaged
            weights, in evaluation mode and without gradients.
        evaluate_every: How many steps there are between evaluations; an epoch by default.
        score: The number by which the best weights are chosen.
        maximize: Whether that number is to be large.
        patience: How many evaluations in a row may be no improvement before training stops.
        augment: A function of a batch and its `ExampleNoise` that gives another batch.
        workers: How many processes read a data set.
        seed: What all random numbers come from.
        device: Where to train; where the objective is, by default.
        deterministic: Whether to use deterministic kernels alone, so that bits repeat on a GPU.
        sharding: Whether each of several processes holds all weights ("ddp") or a part ("fsdp").
        folder: Where log and checkpoints go; none are written by default.
        checkpoint_every: Seconds from one checkpoint to the next.
        keep: How many checkpoints to keep besides the best.
        resume: Whether to go on from the newest whole checkpoint in the folder; "auto" does if
            there is one.
        change: What may be another than in the checkpoint, by name: "steps", "lr".
        configuration: What the run was asked for besides, as JSON has it; a checkpoint of another
            one is not resumed.
        track: Instruments to look with: "sharpness", "ntk_drift".
        track_every: How many steps there are between looks; an epoch by default.
        tensorboard: Whether to write curves for TensorBoard, too.
        progress: Whether to show a progress bar on standard error.

    Raises:
        UsageError: If a loss or gradient is not finite: it names the player, the parameter and the
            batch, before any weight of that player has changed. Also for what else cannot be done.

    Example:
        >>> from vademecum.train import Supervised
        >>> x = torch.tensor([[1.0], [2.0], [3.0]])
        >>> run = fit(
        ...     Supervised(nn.Linear(1, 1)), (x, 2 * x + 1), batch_size=3, epochs=200,
        ...     optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.8),
        ... )
        >>> run.stopped, run.objective(torch.tensor([[10.0]])).round().item()
        ('finished', 21.0)
    """
    begun, asked = time.monotonic(), asked_for(locals())
    with ExitStack() as stack:
        ranks = stack.enter_context(processes(device or place_of(objective)))
        objective.to(ranks.device).train()
        stack.enter_context(own_randomness(seed_for(seed, "global", ranks.rank)))
        stack.enter_context(exactly_repeatable(deterministic))
        signals = stack.enter_context(Signals())
        shared = Sharing(objective, ranks, sharding)
        stack.callback(shared.part)
        objective = shared.objective
        losses, cast = compiled(objective, compile), casting(precision, ranks.device)
        means = Means(losses, cast, clip, ranks, shared)
        source = source_of(data, device=ranks.device, seed=seed, workers=workers)
        order = Order(len(source), batch_size, seed, accumulate, ranks.rank, ranks.size)
        optimizers, given = make_optimizers(objective, optimizer), configuration or {}
        knobs = {} if "optimizer" in given else knobs_of(optimizers)
        training = Training(
            objective, optimizers, scaler_for(precision, ranks.device),
            stopping_for(score, patience, maximize=maximize, evaluates=bool(evaluate)),
            seed, order.per_epoch, length(steps, epochs, minutes, order.per_epoch),
            configuration={"examples": order.n, **knobs, **asked, **given},
        )  # fmt: skip
        shared.insist_on(training.optimizers)
        add_schedules(training, schedule, warmup=warmup, cooldown=cooldown)
        add_averages(training, average)
        records = Records(stack, training, ranks, folder, keep=keep, resume=resume, change=change)
        records.show(stack, min(batch_size, order.n), progress=progress, tensorboard=tensorboard)
        looks: list[Look] = [] if minutes is None else [Pace(minutes, ranks)]
        if evaluate is not None:
            looks.append(Evaluation(evaluate, evaluate_every, score, means))
        if track:
            looks.append(Tracking(training, track, track_every, source, order))
        batches = stack.enter_context(closing(micro_batches(source, order, training, augment)))
        with records.kept(checkpoint_every, signals, means.late.settle) as kept:
            stopped = run(training, batches, means, looks=looks, note=records.note, keep=kept)
        take_final_weights(training, stopped)
        training.objective = shared.whole()
    return records.ended(training, stopped, time.monotonic() - begun)
