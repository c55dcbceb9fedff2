"""The sections of a dossier, in their order, and what each costs.

A section is a generator function in the module of its name, which also names the claims of the
course that stand behind it; modules load when a section is run.
"""

from vademecum.examine._section import Plan

__all__ = ["PLANS"]

PLANS = {
    plan.name: plan
    for plan in (
        Plan("anatomy", cost=2.0, least=6.0),
        Plan("signal", cost=2.0, least=2.0),
        Plan("curvature", cost=10.0),
        Plan("kernel", cost=8.0),
        Plan("geometry", cost=6.0),
        Plan("generalisation", cost=3.0),
        Plan("robustness", cost=8.0),
        Plan("representations", cost=4.0),
        Plan("calibration", cost=1.5, least=4.0),
    )
}
"""The sections by their names; costs are about the seconds that a small network took."""
