"""A classifier that must be trained before a recipe can begin: a teacher, or a prior."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["trained_first"]


def trained_first(
    model: nn.Module, data: tuple[Tensor, Tensor], *, steps: int, lr: float = 2e-3
) -> nn.Module:
    """Train a classifier for some steps, with random numbers of the global generator."""
    from vademecum.train import Supervised, fit

    seed = int(torch.randint(2**31, ()))
    objective = Supervised(model, F.cross_entropy)
    run = fit(
        objective,
        data,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        batch_size=64,
        steps=steps,
        schedule="cosine",
        seed=seed,
    )
    if run.stopped == "signal":  # which was meant for what comes after
        raise KeyboardInterrupt
    return model.eval()
