"""Regression, classification and networks that are linear: what can be solved to the end.

*Ridge* regression shrinks all weights and the *lasso* sets many of them to zero; both trade a
little bias for less variance, and how much is best shows on data that were held back. A *deep
linear network* is still a linear map, but learns it mode by mode, strong ones first: depth changes
the way, not the destination. *Principal components* are what a linear autoencoder finds, the best
small description of the data.
"""

from vademecum.linear.autoencoder import LinearAutoencoder
from vademecum.linear.coordinate_descent import soft_threshold
from vademecum.linear.deep_linear import DeepLinearNetwork
from vademecum.linear.exponential_family import ExponentialFamily, glm_loss
from vademecum.linear.landscape import CriticalPoint, critical_points
from vademecum.linear.lasso import Lasso, LassoPath, lasso_path
from vademecum.linear.least_squares import LinearRegression
from vademecum.linear.linear_flow import (
    LinearNetworkFlow,
    draw_modes,
    linear_network_flow,
    mode_strengths,
)
from vademecum.linear.lms import LMS, lms_rate_bounds
from vademecum.linear.logistic import LogisticRegression
from vademecum.linear.pca import PCA
from vademecum.linear.ridge import RidgeRegression
from vademecum.linear.softmax import SoftmaxRegression
from vademecum.linear.whitening import Whitening, whiten

__all__ = [
    # regression
    "LMS", "Lasso", "LinearRegression", "RidgeRegression",
    "LassoPath", "lasso_path", "lms_rate_bounds", "soft_threshold",
    "Whitening", "whiten",
    # classification
    "LogisticRegression", "SoftmaxRegression",
    "ExponentialFamily", "glm_loss",
    # components and linear networks
    "PCA", "LinearAutoencoder",
    "DeepLinearNetwork", "LinearNetworkFlow", "draw_modes", "linear_network_flow",
    "mode_strengths",
    "CriticalPoint", "critical_points",
]  # fmt: skip
