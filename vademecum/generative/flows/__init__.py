"""Normalising flows, and the masked networks behind autoregressive ones."""

from vademecum.generative.flows._density import FlowSample, Transformed
from vademecum.generative.flows.affine_couplings import RealNVP
from vademecum.generative.flows.autoregressive import IAF, MAF
from vademecum.generative.flows.composition import Compose
from vademecum.generative.flows.linear_maps import LinearFlow
from vademecum.generative.flows.masked_density import MADE
from vademecum.generative.flows.planar import PlanarFlow
from vademecum.generative.flows.spline_couplings import SplineFlow

__all__ = [
    "Compose", "FlowSample", "IAF", "LinearFlow", "MADE", "MAF", "PlanarFlow", "RealNVP",
    "SplineFlow", "Transformed",
]  # fmt: skip
