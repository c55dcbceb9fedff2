"""What goes wrong by the user's hand, where it is told in words and not by a traceback."""

__all__ = ["UsageError"]


class UsageError(ValueError):
    """What the user asked for cannot be done; the message says what can."""
