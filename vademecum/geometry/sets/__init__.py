"""Networks on sets: sums, means and maxima over elements, and what maxima depend on."""

from vademecum.geometry.sets.critical_points import CriticalSet, critical_set
from vademecum.geometry.sets.deepsets import DeepSets
from vademecum.geometry.sets.pointnet import PointNet, PointNetOutput

__all__ = ["CriticalSet", "DeepSets", "PointNet", "PointNetOutput", "critical_set"]
