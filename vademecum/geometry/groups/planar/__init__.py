"""Networks on the planar groups p4 and p4m."""

from vademecum.geometry.groups.planar.convolutions import GroupConv2d
from vademecum.geometry.groups.planar.features import FeatureAction
from vademecum.geometry.groups.planar.summaries import GroupBatchNorm2d, GroupPool

__all__ = ["FeatureAction", "GroupBatchNorm2d", "GroupConv2d", "GroupPool"]
