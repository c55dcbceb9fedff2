"""Pictures of this room: signals by depth, decay and stopping, dropout, normalisation."""

from vademecum.regularization.pictures.passing_back import normalised_gradient
from vademecum.regularization.pictures.shrinkage import decay_and_stopping
from vademecum.regularization.pictures.signals import signals_by_depth
from vademecum.regularization.pictures.thinned import ensemble_inside_dropout

__all__ = [
    "decay_and_stopping",
    "ensemble_inside_dropout",
    "normalised_gradient",
    "signals_by_depth",
]
