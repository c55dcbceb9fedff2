"""What the course claims of generalisation and of the landscape of the loss."""

from vademecum.generalization.claims import critical, descent, memorising

__all__ = [
    "descent", "memorising", "critical",
]  # fmt: skip
