"""Pictures of this room: training foretold, wide networks, the lazy regime."""

from vademecum.kernels.pictures.converging import kernels_of_wide_networks
from vademecum.kernels.pictures.foretold import training_foretold
from vademecum.kernels.pictures.lazy import leaving_the_lazy_regime
from vademecum.kernels.pictures.processes import gaussian_process

__all__ = [
    "kernels_of_wide_networks",
    "leaving_the_lazy_regime",
    "training_foretold",
    "gaussian_process",
]
