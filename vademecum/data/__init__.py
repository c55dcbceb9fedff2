"""Data sets, those that need no network first, and data made to measure."""

from vademecum.data.cifar import Cifar10, read_cifar10
from vademecum.data.idx import read_idx
from vademecum.data.kinds import Graph, Images, Text
from vademecum.data.loading import DATASETS, Entry, describe, load
from vademecum.data.margin import Separable, separable
from vademecum.data.mixture import Mixture, gaussians
from vademecum.data.planar import Points, moons, spirals, xor
from vademecum.data.sources import DataNotFoundError

__all__ = [
    # data sets
    "DATASETS", "DataNotFoundError", "Entry", "Graph", "Images", "Text", "describe", "load",
    # made to measure
    "Mixture", "Points", "Separable", "gaussians", "moons", "separable", "spirals", "xor",
    # file formats
    "Cifar10", "read_cifar10", "read_idx",
]  # fmt: skip
