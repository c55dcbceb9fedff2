"""Residual branches in the graph of a run: sums of a stream and of what was computed from it.

Of the two summands one is a signal that the other depends on: the stream, and the branch. Where
both depend on a third, as beside a shortcut with weights, the branch is the one of more operations.
A branch ends in the last tensor of factors on its way to the sum; the stream begins where no such
sum leads to it any more.
"""

from typing import NamedTuple

from vademecum.regularization.signal._maps import Normalised, Sum, Weights
from vademecum.regularization.signal._nodes import Node

__all__ = ["Branch", "residual_branches"]


class Branch(NamedTuple):
    """A residual branch: the node of its last factors, and where its stream begins."""

    end: int
    start: int


def residual_branches(nodes: list[Node], scaled: dict[int, str]) -> tuple[list[Branch], int]:
    """The branches that end in a parameter, and the number of all residual sums.

    Args:
        nodes: The nodes of a run, in order.
        scaled: The parameters of factors, by the numbers of the nodes that they made.
    """
    number = {node: i for i, node in enumerate(nodes)}
    starts: dict[Node, int] = {}
    found: list[Branch] = []
    for node in nodes:
        if not isinstance(node.rule, Sum):
            continue
        pair = _apart(node, number)
        if pair is None:
            continue
        stream, branch = pair
        starts[node] = _start(stream, starts, number)
        end = _end(branch, number, scaled)
        if end is not None:
            found.append(Branch(end, starts[node]))
    return found, len(starts)


def _apart(node: Node, number: dict[Node, int]) -> tuple[Node, Node] | None:
    """The stream and the branch of a sum, if it is a residual one."""
    a, b = node.inputs
    if b.before >> number[a] & 1:
        return a, b
    if a.before >> number[b] & 1:
        return b, a
    if not a.before & b.before:
        return None
    own = [(each.before & ~other.before).bit_count() for each, other in ((a, b), (b, a))]
    return (a, b) if own[1] >= own[0] else (b, a)


def _start(stream: Node, starts: dict[Node, int], number: dict[Node, int]) -> int:
    """Where the stream begins: at an earlier sum's start, through what has no factors."""
    node = stream
    while node not in starts and len(node.inputs) == 1 and not _factors(node):
        node = node.inputs[0]
    return starts[node] if node in starts else number[stream]


def _factors(node: Node) -> bool:
    return isinstance(node.rule, Weights | Normalised)


def _end(branch: Node, number: dict[Node, int], scaled: dict[int, str]) -> int | None:
    node = branch
    while number[node] not in scaled and (node.stands_for or len(node.inputs) == 1):
        node = node.stands_for or node.inputs[0]
    return number[node] if number[node] in scaled else None
