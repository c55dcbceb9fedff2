"""Certificates by majority votes under noise, on the grid that inputs live on."""

from vademecum.robustness.smoothing.certified_votes import Smoothed, randomized_smoothing

__all__ = ["Smoothed", "randomized_smoothing"]
