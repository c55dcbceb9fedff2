"""Pictures of this room: the ball of noise of SGD, the edge of stability, a Hessian's spectrum."""

from vademecum.optimization.pictures.curvature import edge_of_stability, hessian_spectrum
from vademecum.optimization.pictures.noise import noise_ball

__all__ = ["edge_of_stability", "hessian_spectrum", "noise_ball"]
