"""Rows of Muon: matrices of one shape, and those of GPT-2, against torch's Muon.

torch multiplies in bfloat16 whatever the parameters are. Ours takes their own dtype on a CPU, which
is the faster one there, and bfloat16 on a GPU, for the same rounding at the same price.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from bench.harness import Row, Skipped
from vademecum.optimization.muon import Muon

__all__ = ["rows"]

GPT2 = [(768, 2304), (768, 768), (768, 3072), (3072, 768)] * 12


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    if device.type == "cpu":  # a minute of torch's for each call
        yield _row("Muon, 24 matrices of 640 x 640", [(640, 640)] * 24, device, rounds=1)
    else:
        yield _row("Muon, 24 matrices of 640 x 640", [(640, 640)] * 24, device)
        yield _row("Muon, matrices of GPT-2", GPT2, device)


def _row(name: str, shapes: list[tuple[int, int]], device: torch.device, rounds: int = 7) -> Row:
    torch.manual_seed(0)
    grads = [torch.randn(shape, device=device) for shape in shapes]
    dtype = None if device.type == "cpu" else torch.bfloat16
    knobs = {"lr": 0.02, "momentum": 0.95, "nesterov": True, "weight_decay": 0.0}
    ours, theirs = _parameters(grads), _parameters(grads)
    mine = Muon(ours, scale="original", dtype=dtype, **knobs)
    peer = torch.optim.Muon(theirs, **knobs)
    return Row(name, partial(_step, mine, ours), {"torch.optim.Muon": partial(_step, peer, theirs)},
               _agree, rounds=rounds)  # fmt: skip


def _parameters(grads: list[Tensor]) -> list[Tensor]:
    params = [torch.zeros_like(g) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = g.clone()
    return params


def _step(optimizer: torch.optim.Optimizer, params: list[Tensor]) -> list[Tensor]:
    optimizer.step()
    return [p.clone() for p in params[:1]]  # enough to compare, and next to nothing


def _agree(ours: list[Tensor], peer: list[Tensor]) -> None:
    for a, b in zip(ours, peer, strict=True):
        gap = float((a - b).norm() / b.norm())
        assert gap < 0.03, f"steps differ by {gap:.2g}"  # bfloat16 has 8 bits
