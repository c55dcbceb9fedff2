"""Other parameters for the same function: units in another order, or of another size."""

from vademecum.regularization.unit_symmetries.changes import (
    UnitChange,
    permute_units,
    rescale_units,
)

__all__ = ["UnitChange", "permute_units", "rescale_units"]
