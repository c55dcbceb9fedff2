"""Means of a function of Gaussian numbers, and of products of two such: what wide networks do."""

from vademecum.expectations.moments import GaussianExpectations

__all__ = ["GaussianExpectations"]
