"""Colours of nodes refined by their neighbours' colours, and what this bounds."""

from vademecum.geometry.colour_refinement.ceilings import WLCeiling, wl_ceiling
from vademecum.geometry.colour_refinement.isomorphism_test import (
    WeisfeilerLeman,
    colours_by_round,
    weisfeiler_leman,
)

__all__ = ["WLCeiling", "WeisfeilerLeman", "colours_by_round", "weisfeiler_leman", "wl_ceiling"]
