"""Groups, how they act, and what of a network respects them."""

from vademecum.geometry.groups._axioms import NotAGroup
from vademecum.geometry.groups.actions import GraphAction, ImageAction, PointAction
from vademecum.geometry.groups.averaging import symmetrize
from vademecum.geometry.groups.deviations import (
    EquivarianceError,
    equivariance_error,
    invariance_error,
)
from vademecum.geometry.groups.finite_groups import Group
from vademecum.geometry.groups.linear_maps import equivariant_basis
from vademecum.geometry.groups.orbit_drawing import draw_orbit
from vademecum.geometry.groups.planar import (
    FeatureAction,
    GroupBatchNorm2d,
    GroupConv2d,
    GroupPool,
)
from vademecum.geometry.groups.representations import Representation, permutation_matrix

__all__ = [
    "EquivarianceError", "FeatureAction", "GraphAction", "Group", "GroupBatchNorm2d", "GroupConv2d",
    "GroupPool", "ImageAction", "NotAGroup", "PointAction", "Representation", "draw_orbit",
    "equivariance_error", "equivariant_basis", "invariance_error", "permutation_matrix",
    "symmetrize",
]  # fmt: skip
