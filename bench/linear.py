"""Rows of the room `linear`: regression, classification, components."""

from collections.abc import Iterator

import torch

from bench import linear_classification, linear_components, linear_regression
from bench.harness import Row, Skipped, in_turn

__all__ = ["rows"]


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    parts = (linear_regression, linear_classification, linear_components)
    yield from in_turn(*(part.rows(device) for part in parts))
