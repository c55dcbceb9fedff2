"""Rows of the room `convolution`: operators, arithmetic and networks."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import torch

from bench.harness import Row, Skipped, in_turn

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    """Those of every `bench.convolution_*`."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("convolution_*.py"))
    yield from in_turn(*(importlib.import_module(f"bench.{name}").rows(device) for name in names))
