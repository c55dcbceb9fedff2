r"""Posteriors over weights against the oracle: an energy with its gradient, and Laplace's law.

Targets are random numbers with noise $\delta$ around the outputs $z$ and the prior has the scale
$\sigma$, so that with the Jacobian $J$ in the parameters the gradient of the energy is $J^\top (z -
y) / \delta^2 + \theta / \sigma^2$, and the variances of the diagonal approximation follow from
squares of $J$.
"""

from collections.abc import Iterator
from typing import Any

import torch

from bench.outside.cases import Subject
from bench.outside.derivatives import Check, _draw, _same
from bench.outside.oracles import Oracle
from vademecum.bayes import laplace, posterior

__all__ = ["POSTERIORS"]

NOISE, PRIOR = 0.5, 3.0


def _posterior(s: Subject, o: Oracle) -> Iterator[str]:
    if not o.case.separate:
        return
    z = o.output
    y = _draw(*z.shape, like=z)
    knobs: Any = {"likelihood": "gaussian", "noise": NOISE, "prior": PRIOR, "output": s.output}
    energy = posterior(s.model, s.x, y, **knobs)
    found = energy.with_gradient(energy.theta.expand(2, -1))
    theta = torch.cat([p.detach().flatten().to(o.in_theta) for p in o.theta])
    off = (z - y).flatten().to(o.in_theta)
    wanted = off.square().sum() / (2 * NOISE**2) + theta.square().sum() / (2 * PRIOR**2)
    slope = off @ o.in_theta / NOISE**2 + theta / PRIOR**2
    for value, gradient in zip(found.energy, found.gradient, strict=True):
        yield _same(o)("energy", value, wanted)
        yield _same(o, parts=True)("gradient of the energy", gradient, slope)


def _laplace(s: Subject, o: Oracle) -> Iterator[str]:
    z = o.output
    if z.ndim != 2:
        return
    knobs: Any = {"likelihood": "gaussian", "noise": NOISE, "prior": PRIOR, "output": s.output}
    given: Any = {"subset": "all", "structure": "diagonal"}
    law = laplace(s.model, s.x, _draw(*z.shape, like=z), **knobs, **given)
    if not o.case.separate:  # the Jacobian of a batch is not that of its examples
        return
    squares = o.in_theta.double().square()
    values = squares.sum(0) / NOISE**2
    yield _same(o, parts=True)("diagonal of the curvature", law.curvature.values, values)
    wanted = (squares / (values + PRIOR**-2)).sum(1).view(z.shape)
    yield _same(o)("variance of the outputs", law.outputs(s.x).variance, wanted)


POSTERIORS: dict[str, Check] = {"posterior": _posterior, "laplace": _laplace}
"""What asks each instrument, by its name."""
