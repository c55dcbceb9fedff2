"""Pictures of this room: a race, the ball of noise, the edge of stability, a Hessian's spectrum."""

from vademecum.optimization.pictures.curvature import edge_of_stability, hessian_spectrum
from vademecum.optimization.pictures.noise import noise_ball
from vademecum.optimization.pictures.races import race

__all__ = ["edge_of_stability", "hessian_spectrum", "noise_ball", "race"]
