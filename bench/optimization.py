"""Rows of the room `optimization`: those of all modules `bench.optimization_...`."""

import importlib
import pkgutil
from collections.abc import Iterator

import torch

import bench
from bench.harness import Row, Skipped, in_turn

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    names = sorted(module.name for module in pkgutil.iter_modules(bench.__path__))
    parts = [f"bench.{name}" for name in names if name.startswith("optimization_")]
    yield from in_turn(*(importlib.import_module(part).rows(device) for part in parts))
