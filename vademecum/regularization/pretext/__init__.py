"""Tasks whose labels cost nothing, since they are made from the data."""

from vademecum.regularization.pretext.colours_and_turns import (
    Colourisation,
    PretextTask,
    colourisation_task,
    rotation_task,
)
from vademecum.regularization.pretext.places import (
    MaskedImages,
    mask_task,
    motion_task,
    patch_position_task,
)

__all__ = [
    "Colourisation",
    "MaskedImages",
    "PretextTask",
    "colourisation_task",
    "mask_task",
    "motion_task",
    "patch_position_task",
    "rotation_task",
]
