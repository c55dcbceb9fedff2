"""Means of a function of Gaussian numbers, and of products of two such: what wide networks do."""

from vademecum.expectations._closed_forms import ClosedForm, Erf, TwoSlopes
from vademecum.expectations._smooth_forms import Cosine, Gelu, Sine
from vademecum.expectations.hermite import HermiteCoefficients, hermite_coefficients
from vademecum.expectations.moments import GaussianExpectations

__all__ = [
    # integrals of any activation
    "GaussianExpectations", "HermiteCoefficients", "hermite_coefficients",
    # closed forms
    "ClosedForm", "Cosine", "Erf", "Gelu", "Sine", "TwoSlopes",
]  # fmt: skip
