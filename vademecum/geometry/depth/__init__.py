"""What depth does to features on a graph: smooths them, and squeezes far ones out."""

from vademecum.geometry.depth.smoothing import Oversmoothing, oversmoothing
from vademecum.geometry.depth.smoothing_drawing import draw_oversmoothing
from vademecum.geometry.depth.squashing import LeafInfluence, leaf_influence
from vademecum.geometry.depth.squashing_drawing import draw_leaf_influence

__all__ = [
    "LeafInfluence", "Oversmoothing", "draw_leaf_influence", "draw_oversmoothing",
    "leaf_influence", "oversmoothing",
]  # fmt: skip
