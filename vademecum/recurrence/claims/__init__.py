"""What the course claims of recurrent networks."""

from vademecum.recurrence.claims import conditionals, fed_back

__all__ = [
    "conditionals", "fed_back",
]  # fmt: skip
from vademecum.recurrence.claims import linear_states

__all__ = ["linear_states"]
