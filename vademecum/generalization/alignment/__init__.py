"""Units of one network in the order in which another one has them."""

from vademecum.generalization.alignment.matched import Alignment, align

__all__ = ["Alignment", "align"]
