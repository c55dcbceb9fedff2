"""Numbers of things, as a sentence tells them."""

__all__ = ["counted"]


def counted(count: float) -> str:
    """Three digits, and of hundreds to billions all before the point.

    Example:
        >>> counted(1.6180), counted(1996.7), counted(3e20)
        ('1.62', '1,997', '3e+20')
    """
    return f"{count:,.0f}" if 100 <= count < 1e12 else f"{count:.3g}"
