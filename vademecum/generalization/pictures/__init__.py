"""Pictures of this room: double descent, bounds, planes of the loss, paths between minima."""

from vademecum.generalization.pictures.between_minima import paths_between_minima
from vademecum.generalization.pictures.bound_terms import terms_of_a_bound
from vademecum.generalization.pictures.double_peaks import second_descent
from vademecum.generalization.pictures.landscapes import plane_of_parameters

__all__ = ["paths_between_minima", "plane_of_parameters", "second_descent", "terms_of_a_bound"]
