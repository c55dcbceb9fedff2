"""Nonnegative factors of binary data."""

from vademecum.generative.binary_factors.aspects import BernoulliNMF

__all__ = ["BernoulliNMF"]
