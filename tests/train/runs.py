"""Small runs of training by hand: what a checkpoint must hold, without the loop around it."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from vademecum.optimization import PolyakAveraging
from vademecum.regularization import EarlyStopping
from vademecum.train._state import capture, restore
from vademecum.train._training import Training
from vademecum.train.checkpoints import Checkpoint, open_checkpoint, write_checkpoint


def cosine(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 2)
    )


def make_run(
    model: nn.Module | None = None,
    optimizer: Callable[[Any], torch.optim.Optimizer] = torch.optim.AdamW,
    schedule: Callable[[Any], Any] | None = None,
    *,
    seed: int = 0,
    everything: bool = True,
) -> Training:
    torch.manual_seed(seed)
    model = network() if model is None else model
    made = optimizer(model.parameters())
    schedules = {"model": schedule(made)} if schedule else {}
    averages = {"model": PolyakAveraging(made, kind="exponential")} if everything else {}
    stopping = EarlyStopping(3) if everything else None
    scaler = GradScaler("cpu", enabled=False)
    return Training(
        objective=model, optimizers={"model": made}, schedules=schedules, scaler=scaler,
        averages=averages, stopping=stopping, seed=seed, per_epoch=5, steps=40,
    )  # fmt: skip


def take_steps(run: Training, count: int) -> Training:
    """Steps on drawn data, so that all depends on where the generators are."""
    (optimizer,) = run.optimizers.values()
    for _ in range(count):

        def closure() -> Any:
            optimizer.zero_grad()
            loss = run.objective(torch.randn(8, 3)).square().mean()
            loss.backward()
            return loss

        loss: Any = optimizer.step(closure)
        for schedule in run.schedules.values():
            if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
                schedule.step(float(loss.detach()))
            else:
                schedule.step()
        run.step += 1
        if run.stopping is not None:
            run.stopping(float(torch.rand(())), run.objective)
    return run


def saved(run: Training, folder: Path) -> Checkpoint:
    """A run that was captured, written and read again."""
    snapshot = capture(run)
    assert snapshot is not None
    return open_checkpoint(write_checkpoint(folder, snapshot))


def insist_on_same_end(make: Any, folder: Path) -> None:
    """Four steps, a checkpoint, four more; and the same from the checkpoint in a fresh run."""
    run = take_steps(make(seed=0), 4)
    checkpoint = saved(run, folder)
    take_steps(run, 4)
    end = fingerprint(run)
    other = make(seed=1)
    torch.manual_seed(99)
    restore(other, checkpoint)
    assert fingerprint(take_steps(other, 4)) == end


def fingerprint(run: Training) -> str:
    """One text for all bits that a run consists of."""
    digest = hashlib.sha256()
    _feed(digest, [run.objective.state_dict(), list(run.objective.named_buffers())])
    _feed(digest, [o.state_dict() for o in run.optimizers.values()])
    _feed(digest, [s.state_dict() for s in run.schedules.values()])
    _feed(digest, [a.state_dict() for a in run.averages.values()])
    _feed(digest, [run.stopping.state_dict() if run.stopping else None, run.scaler.state_dict()])
    _feed(digest, [torch.get_rng_state(), run.step, run.scores, run.kept])
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, dict):
        for key, entry in value.items():
            digest.update(repr(key).encode())
            _feed(digest, entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            _feed(digest, entry)
    else:
        digest.update(repr(value).encode())
