"""Pictures of this room: signals by depth, decay and stopping, dropout, normalisation."""

from vademecum.regularization.pictures.passing_back import normalised_gradient
from vademecum.regularization.pictures.shrinkage import decay_and_stopping
from vademecum.regularization.pictures.signals import signals_by_depth

__all__ = ["decay_and_stopping", "normalised_gradient", "signals_by_depth"]
"""Pictures of this room: the ensemble inside dropout."""

from vademecum.regularization.pictures.thinned import ensemble_inside_dropout

__all__ = ["ensemble_inside_dropout"]
