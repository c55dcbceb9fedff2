"""Certificates: the bound of a theorem beside the run that it bounds."""

from vademecum.optimization.certificates.descent_certificates import (
    DescentCertificate,
    certify_descent,
)
from vademecum.optimization.certificates.descent_drawing import draw_descent

__all__ = ["DescentCertificate", "certify_descent", "draw_descent"]
