"""What networks can represent: linear regions, exact constructions, approximation rates.

A ReLU network is *piecewise linear*: it divides space into convex cells, on each of which it is one
affine map, and training moves the walls between them to where the data need them. With every layer
there can be many times more cells, which is what depth buys. *Barron's theorem* says what width
buys: with units that are chosen for the function, the error falls like one over the square root of
their number, in any dimension.
"""

from vademecum.approximation.barron import BarronFit, barron_fit
from vademecum.approximation.barron_spectra import barron_constant, radial_barron_constant
from vademecum.approximation.bernstein import bernstein_polynomial
from vademecum.approximation.convex_split import DCSplit, dc_split
from vademecum.approximation.dying_units import DeadUnits, dead_units
from vademecum.approximation.hinges import HingeSum, hinge_decomposition
from vademecum.approximation.interpolation import interpolating_network
from vademecum.approximation.local_affine import AffineMap, local_affine_map
from vademecum.approximation.max_affine import MaxAffine
from vademecum.approximation.patterns import activation_pattern
from vademecum.approximation.pwl import HingeDifference, pwl_to_abs, pwl_to_maxout, pwl_to_relu
from vademecum.approximation.radial import radial_network
from vademecum.approximation.random_features import fit_readout, random_feature_fit
from vademecum.approximation.regions import (
    Certificate,
    Plane,
    Regions,
    Segments,
    certify_regions,
    count_regions,
    draw_regions,
    input_plane,
    linear_regions,
    montufar_bound,
    plane_through,
    region_upper_bound,
    regions_along,
    zaslavsky_count,
)
from vademecum.approximation.sawtooth import sawtooth_network
from vademecum.approximation.uniform_fit import UniformFit, best_uniform_fit
from vademecum.approximation.units import AbsUnit, Maxout

__all__ = [
    # units
    "AbsUnit", "MaxAffine", "Maxout",
    # linear regions
    "Plane", "Regions", "draw_regions", "input_plane", "linear_regions", "plane_through",
    "Certificate", "certify_regions",
    "AffineMap", "activation_pattern", "local_affine_map",
    "Segments", "regions_along",
    "DeadUnits", "dead_units",
    "count_regions", "montufar_bound", "region_upper_bound", "zaslavsky_count",
    # constructions
    "HingeDifference", "interpolating_network", "pwl_to_abs", "pwl_to_maxout", "pwl_to_relu",
    "radial_network", "sawtooth_network",
    "DCSplit", "HingeSum", "dc_split", "hinge_decomposition",
    # approximation
    "BarronFit", "UniformFit", "barron_constant", "barron_fit", "bernstein_polynomial",
    "best_uniform_fit", "fit_readout", "radial_barron_constant", "random_feature_fit",
]  # fmt: skip
