r"""Checking linear regions against the network that they were found for.

Polygons $P_1, \dots, P_k$ are all the regions of a rectangle $Q$, each once, if

$$\sum_i |P_i| = |Q|, \qquad \kappa \text{ is constant on each } P_i, \qquad
\kappa(P_i) \ne \kappa(P_j) \text{ for } i \ne j,$$

where $\kappa$ is the activation pattern and the polygons do not overlap (which the last two
conditions entail). The first and the last condition are checked for all polygons, up to rounding;
the second at random points, so it is a sample and no proof. The patterns come from running the
network, and owe nothing to the geometry that found the polygons.
"""

from typing import NamedTuple

import torch
from torch import nn

from vademecum.approximation.patterns import activation_pattern
from vademecum.approximation.regions.polygons import Regions
from vademecum.arguments import whole
from vademecum.models import Output
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["Certificate", "certify_regions"]


class Certificate(NamedTuple):
    """What a check of regions against the network found; it `holds` if nothing contradicts them.

    Example:
        >>> Certificate(regions=4, patterns=4, samples=12, strays=0, area_gap=0.0).holds
        True
    """

    regions: int
    """How many polygons were checked."""
    patterns: int
    """Distinct activation patterns at the centres; fewer than regions if one was cut in vain."""
    samples: int
    """How many random points were asked about."""
    strays: int
    """Samples whose pattern is not that of their region's centre: a cut was missed."""
    area_gap: float
    """The area of the rectangle less that of all regions, as a share of the former."""

    __repr__ = one_line

    @property
    def holds(self) -> bool:
        """Whether the polygons tile the rectangle, one for each pattern, as far as was seen."""
        return self.patterns == self.regions and self.strays == 0 and abs(self.area_gap) < 1e-9


def certify_regions(
    model: nn.Module,
    regions: Regions,
    *,
    samples: int = 3,
    output: Output = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> Certificate:
    """Check regions against the activation patterns of the network itself.

    If the polygons' areas add up to that of the rectangle, no pattern is found in two polygons and
    none of them holds two patterns, their number is the number of regions. The first two are
    checked for all polygons, the last at random points of each.

    Args:
        model: The network.
        regions: What `linear_regions` found.
        samples: How many random points to ask about in each region.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> from vademecum.approximation.regions import input_plane, linear_regions
        >>> model = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU())
        >>> found = linear_regions(model, input_plane())
        >>> certify_regions(model, found).holds
        True
    """
    whole("samples", samples, low=1)
    n, width, _ = regions.corners.shape
    centres, plane = regions.centres, regions.plane
    draw = source(generator, centres.device)
    at_centre = activation_pattern(model, plane.at(centres), output=output, memory=memory)
    code = torch.randint(  # a hash of each pattern: a collision could only raise a false alarm
        -(2**62), 2**62, at_centre.shape[1:], **draw
    ).to(centres.device)
    hashed = (at_centre.long() * code).sum(1)
    strays = 0
    for _ in range(samples):
        weights = torch.rand((n, width), dtype=centres.dtype, **draw).to(centres.device)
        weights = -(1 - weights).log()
        points = torch.einsum("rc,rcd->rd", weights / weights.sum(1, keepdim=True), regions.corners)
        pattern = activation_pattern(
            model, plane.at((points + centres) / 2), output=output, memory=memory
        )
        strays += int(((pattern.long() * code).sum(1) != hashed).sum())
    whole_area = (plane.high[0] - plane.low[0]) * (plane.high[1] - plane.low[1])
    gap = 1 - float(regions.areas.sum()) / whole_area
    return Certificate(n, len(hashed.unique()), n * samples, strays, gap)
