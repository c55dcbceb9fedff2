"""Where a knob of a picture can stand; pictures have it from `vademecum.pictures`."""

from typing import NamedTuple

__all__ = ["Range"]


class Range(NamedTuple):
    """The numbers from `low` to `high`.

    A slider moves by `step`, or if `log` by this factor: `Range(1, 64, 2, log=True)` has 1, 2, 4.
    """

    low: float
    high: float
    step: float = 1
    log: bool = False
    unit: str = ""

    def positions(self) -> tuple[float, ...]:
        """Where a slider can stand.

        Example:
            >>> Range(0.1, 0.4, 0.1).positions(), Range(1, 100, 10, log=True).positions()
            ((0.1, 0.2, 0.3, 0.4), (1, 10, 100))

        Raises:
            ValueError: If a step does not lead to a larger number.
        """
        found, value = [], self.low
        while value <= self.high:
            found.append(value)
            value = value * self.step if self.log else value + self.step
            value = value if isinstance(value, int) else float(f"{value:.12g}")
            if value <= found[-1]:
                must = "step > 1 and low > 0 where log is true" if self.log else "step > 0"
                raise ValueError(f"Range must have a {must}, got {self}")
        return tuple(found)
