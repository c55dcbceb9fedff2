"""The flags that all recipes have: how long, with what, from where, and where to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """How to train; what is not said is as the recipe recommends.

    Attributes:
        steps: How many steps to take; at most one of steps, epochs and minutes.
        epochs: How many times to go through the data.
        minutes: How long to train; the first 50 steps tell how many there will be.
        optimizer: Which optimiser.
        lr: The learning rate.
        weight_decay: The weight decay.
        batch_size: How many examples a step takes, over all processes.
        schedule: How the learning rate goes.
        warmup: For how many steps it rises at first; below 1, which share of all.
        cooldown: For how many steps it falls to zero at last; below 1, which share of all.
        accumulate: In how many parts each process goes through its share of a batch.
        clip: The largest norm of a gradient.
        precision: What products are computed in.
        compile: Whether to compile the losses.
        average: Evaluate averaged weights: of all steps (uniform), or with this decay.
        evaluate_every: How many steps there are between evaluations.
        patience: After how many evaluations without a better score to stop.
        workers: How many processes read data that are not in memory.
        seed: Where all random numbers come from.
        device: Where to train, such as cuda; the best that there is by default.
        deterministic: Whether to insist on kernels that give the same bits every time.
        sharding: What processes share, under torchrun: gradients (ddp) or weights, too (fsdp).
        out: The folder of the run: log, checkpoints, summary; a new one in runs/ by default.
        checkpoint_every: How many seconds there are between checkpoints.
        keep: How many checkpoints to keep.
        resume: Go on where the run in that folder stopped.
        change: What may differ from the run that is resumed, separated by commas.
        from_: Begin with the weights of this run, checkpoint or file of safetensors.
        head: Whether the last layer takes them over, too (old), or begins anew (new).
        freeze: Patterns of parameters that keep their values, separated by commas.
        unfreeze_after: After how many steps they learn after all.
        layer_decay: The factor of the learning rate from each layer to the one below.
        probe_steps: For how many steps only the last layer learns at first.
        track: Instruments to read while training, such as sharpness, separated by commas.
        track_every: How many steps there are between two readings; an epoch by default.
        tensorboard: Whether to write events for TensorBoard.
    """

    steps: int | None = None
    epochs: int | None = None
    minutes: float | None = None
    optimizer: (
        Literal[
            "sgd", "heavy_ball", "nesterov", "sign", "adagrad", "rmsprop", "adam", "adamw", "muon"
        ]
        | None
    ) = None
    lr: float | None = None
    weight_decay: float | None = None
    batch_size: int | None = None
    schedule: Literal["constant", "linear", "cosine"] | None = None
    warmup: float | None = None
    cooldown: float | None = None
    accumulate: int = 1
    clip: float | None = None
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    compile: bool = False
    average: str | None = None
    evaluate_every: int | None = None
    patience: int | None = None
    workers: int = 0
    seed: int = 0
    device: str | None = None
    deterministic: bool = False
    sharding: Literal["ddp", "fsdp"] = "ddp"
    out: Path | None = None
    checkpoint_every: float = 60.0
    keep: int = 2
    resume: bool = False
    change: str = ""
    from_: Path | None = None
    head: Literal["old", "new"] = "old"
    freeze: str = ""
    unfreeze_after: int | None = None
    layer_decay: float = 1.0
    probe_steps: int = 0
    track: str = ""
    track_every: int | None = None
    tensorboard: bool = False
