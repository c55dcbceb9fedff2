r"""What a certificate stands on: the optimum, the constants and the step size, given or found."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.optimization.certificates._constants import (
    least_curvature,
    longest_gradient,
    most_curvature,
)
from vademecum.optimization.certificates._objectives import Objective
from vademecum.optimization.certificates._optimum import find_minimiser
from vademecum.optimization.certificates._theorems import METHODS, RANDOM, Facts, Method, Theorem

__all__ = ["Setting", "prepared"]


@dataclass
class Setting:
    """A theorem and all that it needs.

    `found` says that the optimum was searched, and `estimated` names what nobody gave or proved.
    """

    f: Objective
    method: Method
    assuming: str
    facts: Facts
    optimum: Tensor | None = None
    minimum: float = math.nan
    found: bool = False
    estimated: list[str] = field(default_factory=list)

    @property
    def theorem(self) -> Theorem:
        """The theorem on the method under the assumption."""
        return METHODS[self.method][self.assuming]

    @property
    def roundoff(self) -> float:
        """Of a value of f, relative: errors of d operations that add up like a random walk."""
        return (len(self.f.start) ** 0.5 + 8) * self.eps

    @property
    def eps(self) -> float:
        """The roundoff of the numbers."""
        return torch.finfo(self.f.start.dtype).eps


def prepared(
    f: Objective,
    method: Method,
    assuming: str,
    *,
    given: dict[str, Any],
    generator: torch.Generator | None,
) -> Setting:
    """The setting, with whatever was not given found or estimated."""
    made = Setting(f, method, assuming, Facts(steps=given["steps"]))
    with torch.no_grad():
        _find_optimum(made, given)
        _find_constants(made, given, generator)
        _choose_step(made, given)
    return made


def _find_optimum(made: Setting, given: dict[str, Any]) -> None:
    f, theorem, c = made.f, made.theorem, made.facts
    if given["minimiser"] is not None:
        made.optimum = floats("minimiser", given["minimiser"], ndim=1, width=len(f.start))
        made.optimum = made.optimum.detach().to(f.start)
    elif (
        given["minimum"] is None
        or theorem.from_distance
        or any(given[name] is None for name in theorem.needs)
    ):
        made.optimum, precise = find_minimiser(f)
        made.found = given["minimum"] is None
        if made.found and (not precise or made.assuming == "smooth"):
            made.estimated.append("minimum")
    if given["minimum"] is None:
        assert made.optimum is not None
        made.minimum = float(f.value(made.optimum))
    else:
        made.minimum = number("minimum", given["minimum"])
    c.gap = float(f.value(f.start)) - made.minimum
    if c.gap < -made.roundoff * abs(made.minimum):
        raise ValueError(
            f"minimum must be <= f(x0), got {made.minimum} and {-c.gap:.3g} less there"
        )
    c.gap = max(c.gap, 0.0)
    if made.optimum is not None:
        c.distance = float((f.start - made.optimum).norm())


def _find_constants(
    made: Setting, given: dict[str, Any], generator: torch.Generator | None
) -> None:
    f, c = made.f, made.facts
    optimum = f.start if made.optimum is None else made.optimum
    searches = {
        "L": lambda: most_curvature(f, optimum, terms=made.method in RANDOM, generator=generator),
        "mu": lambda: least_curvature(f, optimum, generator=generator),
        "G": lambda: longest_gradient(f, optimum),
    }
    for name in made.theorem.needs:
        if given[name] is not None:
            setattr(c, name, number(name, given[name], above=0))
        elif (made.assuming, name) == ("pl", "mu"):
            made.estimated.append(name)  # from the run
        else:
            value = searches[name]()
            if not value > 0:
                raise ValueError(f"{name} must be given where f is flat, got {value:g} by a search")
            setattr(c, name, value)
            made.estimated.append(name)
    if c.mu > c.L and "mu" in made.estimated:  # two estimates, or one beside a given one
        c.mu = c.L
    if c.mu > c.L:
        raise ValueError(f"mu must be <= L, got {c.mu:g} and {c.L:g}")
    if made.method == "sgd":
        _measure_noise(made)


def _measure_noise(made: Setting) -> None:
    assert made.optimum is not None
    at_optimum, at_start = (
        float(made.f.slopes(x).square().sum(1).mean()) for x in (made.optimum, made.f.start)
    )
    made.facts.noise = at_optimum
    if made.assuming == "interpolation" and at_optimum > made.roundoff * at_start:
        raise ValueError(
            "the minimiser must be one of every term for interpolation, got terms whose squared"
            f" gradients there have the mean {at_optimum:.3g}"
        )


def _choose_step(made: Setting, given: dict[str, Any]) -> None:
    c, eta = made.facts, given["eta"]
    limits = {"sgd": 1 / c.L, "averaged_sgd": math.inf, "svrg": 0.25 / c.L}
    for name, methods in (("eta", RANDOM), ("period", ("svrg",))):
        if given[name] is not None and made.method not in methods:
            raise ValueError(f"{name} must be None for {made.method}, got {given[name]!r}")
    if eta is None:
        c.eta = made.theorem.step(c)
    else:
        c.eta = number("eta", eta, above=0, below=limits[made.method])
    if made.method == "svrg":
        period = math.ceil(50 * c.L / c.mu) if given["period"] is None else given["period"]
        c.period = whole("period", period, low=1)
        whole("steps", c.steps, low=c.period)
