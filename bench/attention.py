"""Rows of the room `attention`: heads, transformers and instruments."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import torch

from bench.harness import Row, Skipped, in_turn

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    """Those of every `bench.attention_*`."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("attention_*.py"))
    yield from in_turn(*(importlib.import_module(f"bench.{name}").rows(device) for name in names))
