"""Theory's moments of all signals of a run: forward along the graph, and backward against it."""

from vademecum.regularization.signal._maps import Estimate
from vademecum.regularization.signal._measured_moments import cross_moment
from vademecum.regularization.signal._nodes import Node

__all__ = ["estimate_backward", "estimate_forward", "measured_estimate"]

Known = dict[Node, Estimate | None]


def measured_estimate(sums: list[float]) -> Estimate:
    """What was measured of a signal, as theory goes on from it."""
    return Estimate(sums[1] / sums[0], cross_moment(sums), sums[3] / sums[0])


def estimate_forward(nodes: list[Node]) -> Known:
    """The moments of each signal, in the order in which they came about."""
    found: Known = {}
    for node in nodes:
        if node.rule is None:
            assert node.measured is not None
            found[node] = measured_estimate(node.measured.tolist())
            continue
        given = [found[each] for each in node.inputs]
        known = [each for each in given if each is not None]
        found[node] = node.rule.forward(known) if len(known) == len(given) else None
    return found


def estimate_backward(nodes: list[Node], forward: Known) -> Known:
    """The moments of the gradients; a node that restarts has what was measured, if it came."""
    found: Known = {}
    totals: dict[Node, list[float]] = {}
    lost = set[Node]()
    for node in reversed(nodes):
        total = totals.get(node)
        if node.restarts:
            sums = None if node.gradient is None else node.gradient.tolist()
            found[node] = None if sums is None else measured_estimate(sums)._replace(m=0.0)
        elif total is None or node in lost:
            found[node] = None
        else:
            found[node] = Estimate(total[0] / node.numel, total[1] / node.numel, 0.0)
        _pass_on(node, found[node], forward, totals, lost)
    return found


def _pass_on(
    node: Node,
    g: Estimate | None,
    forward: Known,
    totals: dict[Node, list[float]],
    lost: set[Node],
) -> None:
    given = [forward[each] for each in node.inputs]
    known = [each for each in given if each is not None]
    if node.rule is None:
        return
    if g is None or len(known) < len(given):
        if g is not None or node in lost:
            lost.update(node.inputs)
        return
    for each, (q, p) in zip(node.inputs, node.rule.backward(known), strict=True):
        total = totals.setdefault(each, [0.0, 0.0])
        total[0] += q * g.q * node.numel
        total[1] += p * g.p * node.numel
