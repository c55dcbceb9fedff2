"""Optimisers by name, with a learning rate and a late start of its own for each parameter.

A parameter that starts late keeps its value, and its moments stay as they are, until its group has
let so many steps pass; they are counted down in the group itself, so that checkpoints know of it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vademecum.errors import UsageError
from vademecum.optimization import HeavyBall, Muon, Nesterov, SignSGD, matrix_parameters

__all__ = ["OPTIMIZERS", "Pace", "make_optimizer"]

Named = list[tuple[str, Tensor]]


class Pace(NamedTuple):
    """How a parameter learns.

    Attributes:
        scale: The factor of its learning rate.
        frozen_for: How many steps it keeps its value at first.
    """

    scale: float = 1.0
    frozen_for: int = 0


OPTIMIZERS: dict[str, tuple[Callable[..., Optimizer], bool]] = {
    "sgd": (torch.optim.SGD, True),
    "heavy_ball": (HeavyBall, False),
    "nesterov": (Nesterov, False),
    "sign": (SignSGD, False),
    "adagrad": (torch.optim.Adagrad, True),
    "rmsprop": (torch.optim.RMSprop, True),
    "adam": (torch.optim.Adam, True),
    "adamw": (torch.optim.AdamW, True),
    "muon": (Muon, True),
}
"""The optimisers by name, and whether they have a weight decay."""


def make_optimizer(
    name: str,
    objective: nn.Module,
    *,
    lr: float,
    weight_decay: float | None = None,
    paces: Mapping[str, Pace] | None = None,
) -> Callable[[Named], Optimizer]:
    """A function from named parameters to their optimiser, as `fit` wants it.

    "muon" is for matrices of hidden layers; all other parameters go to AdamW.

    Args:
        name: One of `OPTIMIZERS`.
        objective: What the parameters belong to.
        lr: The learning rate.
        weight_decay: The weight decay; that of the optimiser by default.
        paces: How parameters learn, by name; those without an entry like all.
    """
    made, decays = OPTIMIZERS[name]
    if weight_decay and not decays:
        raise UsageError(f"--weight-decay must be left out for {name}, got {weight_decay:g}")
    options: dict[str, Any] = {"lr": lr}
    if decays:
        options["weight_decay"] = weight_decay or 0.0

    def optimizer(parameters: Named) -> Optimizer:
        kinds = _kinds(objective) if name == "muon" else {}
        groups = _groups(parameters, lr, paces or {}, kinds)
        rest = [group for kind, group in groups if kind == "rest"]
        matrices = [group for kind, group in groups if kind != "rest"]
        parts: list[Optimizer] = []
        if rest:
            parts.append((torch.optim.AdamW if name == "muon" else made)(rest, **options))
        if matrices:
            parts.append(Muon(matrices, scale="rms", nesterov=True, **options))
        built = parts[0] if len(parts) == 1 else Together(parts)
        built.register_step_pre_hook(_let_pass)
        return built

    return optimizer


def _kinds(objective: nn.Module) -> dict[str, str]:
    """Which parameters are matrices of hidden layers, transposed ones, or others, by name."""
    matrices, rest = matrix_parameters(objective)
    found = {id(p): "rest" for p in rest}
    for group in matrices:
        kind = "transposed" if group.get("transposed") else "matrix"
        found |= {id(p): kind for p in group["params"]}
    return {name: found[id(p)] for name, p in objective.named_parameters() if id(p) in found}


def _groups(
    parameters: Named, lr: float, paces: Mapping[str, Pace], kinds: Mapping[str, str]
) -> list[tuple[str, dict[str, Any]]]:
    """Parameters that learn alike, in the order in which such come first."""
    found: dict[tuple[str, Pace], list[Tensor]] = {}
    for name, p in parameters:
        found.setdefault((kinds.get(name, "rest"), paces.get(name, Pace())), []).append(p)
    groups = []
    for (kind, pace), params in found.items():
        group = {"params": params, "lr": lr * pace.scale, "frozen_for": pace.frozen_for}
        groups.append((kind, group | ({"transposed": True} if kind == "transposed" else {})))
    return groups


def _let_pass(optimizer: Optimizer, *_: Any) -> None:
    for group in optimizer.param_groups:
        if group["frozen_for"]:
            group["frozen_for"] -= 1
            for p in group["params"]:
                p.grad = None


class Together(Optimizer):
    """Several optimisers of different parameters as one.

    Args:
        optimizers: The optimisers, whose groups and states become its own.
    """

    def __init__(self, optimizers: list[Optimizer]):
        self._parts = optimizers
        super().__init__([group for part in optimizers for group in part.param_groups], {})
        self._share()

    def step(self, closure: Callable[[], Tensor] | None = None) -> None:  # pyright: ignore
        """Let each of them take its step."""
        for part in self._parts:
            part.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state.

        Args:
            state_dict: What `state_dict` gave.
        """
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part in self._parts:
            part.param_groups = [next(groups) for _ in part.param_groups]
            part.state = self.state
