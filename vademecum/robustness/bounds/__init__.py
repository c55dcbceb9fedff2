"""Bounds on what a network computes for all inputs of a region, and on its run in floats."""

from vademecum.robustness.bounds.intervals import Bounds, interval_bounds
from vademecum.robustness.bounds.linear_relaxations import crown_bounds

__all__ = ["Bounds", "crown_bounds", "interval_bounds"]
