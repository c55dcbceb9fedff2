r"""How groups move inputs: $g$ and an input give the moved input, with $g(h(x)) = (gh)(x)$.

On signals $x: \Omega \to \mathbb R$ over points that the group permutes, $(g x)(s) = x(g^{-1} s)$:
the inverse makes it an action from the left. Sets are signals under all orders of their points, and
the nodes of a graph move together with the numbers in its edges. Images are turned
counter-clockwise about their centre, $r$, and flipped up and down, $f$.

All of it is exact, by index, but for turns of images that are no quarter turns: these are
interpolated, which is no action up to rounding, and `exact` says so. A representation acts on
vectors. Any function of an element and an input may stand for an action. The claims are
`group_action` and `signal_action`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.arguments import whole
from vademecum.geometry.graphs import Adjacency, is_edge_index, read_graph
from vademecum.geometry.groups.finite_groups import Group
from vademecum.models import map_tensors, named_tensors

__all__ = ["Action", "GraphAction", "ImageAction", "PointAction", "default_action", "turned"]

Action = Callable[[int, Any], Any]
"""A function of an element and an input that gives the moved input."""


class PointAction:
    """A group moves the points of signals or sets, along one axis of every tensor that has it.

    Args:
        group: The group.
        axis: Where the points lie, as many as the degree of the group; 1 by default, after the
            examples. With 0 there are no examples to be told apart.

    Example:
        >>> shift = PointAction(Group.cyclic(4))
        >>> shift(1, torch.tensor([[1, 2, 3, 4]]))
        tensor([[4, 1, 2, 3]])
    """

    exact = True

    def __init__(self, group: Group, *, axis: int = 1):
        self.group, self.axis = group, whole("axis", axis, low=0)
        self.examples = axis > 0

    def __call__(self, g: int, x: Any) -> Any:
        """The input with its points moved.

        Args:
            g: The element.
            x: A tensor, or tensors in any structure.
        """
        n, order = self.group.degree, self.group.permutation(g).argsort()

        def moved(t: Tensor) -> Tensor:
            if t.ndim <= self.axis:
                return t
            if t.shape[self.axis] != n:
                raise ValueError(
                    f"x must have the {n} points of {self.group} along axis {self.axis}, got shape"
                    f" {tuple(t.shape)}"
                )
            return t.index_select(self.axis, order.to(t.device))

        return map_tensors(x, moved)

    def __repr__(self) -> str:
        return f"PointAction({self.group}, axis={self.axis})"


class ImageAction:
    """Turns and reflections of images, along the last two axes.

    Args:
        group: A cyclic or a dihedral group. With 1, 2 or 4 turns it is exact, for images of any
            height and width; other turns are interpolated, with zeros around the image.

    Attributes:
        exact: Whether all turns are quarter turns.

    Example:
        >>> turn = ImageAction(Group.dihedral(4))
        >>> x = torch.tensor([[[1, 2], [3, 4]]])
        >>> turn(1, x)
        tensor([[[2, 4],
                 [1, 3]]])
        >>> ImageAction(Group.cyclic(8)).exact
        False
    """

    examples = True

    def __init__(self, group: Group):
        first = group.turn(group.identity)
        if first is None:
            raise ValueError(f"group must be cyclic or dihedral to turn images, got {group}")
        self.group, self.exact = group, first.n in (1, 2, 4)

    def __call__(self, g: int, x: Any) -> Any:
        """The images, turned.

        Args:
            g: The element.
            x: A tensor, or tensors in any structure; those with less than three axes stay.
        """
        return map_tensors(x, lambda t: turned(self.group, g, t) if t.ndim > 2 else t)

    def __repr__(self) -> str:
        return f"ImageAction({self.group})"


class GraphAction:
    """A group of permutations moves the nodes of a graph, and the numbers in its edges with them.

    The order of the edges stays, so whatever else belongs to them stays, too.

    Args:
        group: The group, whose degree is the number of nodes.

    Example:
        >>> x, edges = torch.tensor([[10.0], [20.0], [30.0]]), torch.tensor([[0, 1], [1, 2]])
        >>> moved, new = GraphAction(Group.cyclic(3))(1, (x, edges))
        >>> moved.flatten().tolist(), new.tolist()
        ([30.0, 10.0, 20.0], [[1, 2], [2, 0]])
    """

    exact, examples = True, False

    def __init__(self, group: Group):
        self.group = group

    def __call__(self, g: int, x: Any) -> Any:
        """The same graph with other numbers for its nodes.

        Args:
            g: The element.
            x: Features of the nodes (n, ...) alone, as an output; or a tuple that begins with
                features and `edge_index` (2, E), or an `Adjacency`; or a dict of such, with the
                name "edge_index". Of what else there is, tensors with n rows belong to the nodes,
                as PyG's `batch` does, and others stay; if n = E, so do those that are called after
                edges or weights, and floating point behind the edges.

        Raises:
            ValueError: If it is no graph with as many nodes, or if n = E and integers behind the
                edges may belong to nodes or edges.
        """
        if isinstance(x, Tensor):
            return PointAction(self.group, axis=0)(g, x)
        if not _is_graph(x):
            raise ValueError("x must be a tuple of features and edges (2, E), or features alone")
        given = read_graph("x", x)
        if given.n != self.group.degree:
            points = f"{self.group.degree} points of {self.group}"
            raise ValueError(f"x must have the {points} for its nodes, got {given.n} nodes")
        return given.renumbered(self.group.permutation(g).argsort())

    def __repr__(self) -> str:
        return f"GraphAction({self.group})"


def _is_graph(x: Any) -> bool:
    """Whether an input begins with features and edges, or names them."""
    if isinstance(x, Mapping):
        return len(x) > 1 and any(_is_edges(key, value) for key, value in x.items())
    return isinstance(x, tuple) and len(x) > 1 and _is_edges(1, x[1])


def _is_edges(key: Any, x: Any) -> bool:
    """Whether something is the edges of a graph, by its place or name."""
    return isinstance(x, Adjacency) or (key in (1, "edge_index") and is_edge_index(x))


def default_action(group: Group, x: Any) -> Action:
    """What a group does to an input where nothing is said.

    Features and edges are a graph; tensors with four axes are images, if the group is cyclic or
    dihedral; of anything else the points lie along axis 1.
    """
    if _is_graph(x):
        return GraphAction(group)
    images = any(t.ndim == 4 for _, t in named_tensors(x))
    if images and group.turn(group.identity) is not None:
        return ImageAction(group)
    return PointAction(group)


def turned(group: Group, g: int, x: Tensor) -> Tensor:
    """Images along the last two axes, turned by an element of a cyclic or dihedral group."""
    found = group.turn(g)
    assert found is not None
    k, n, mirrored = found
    x = x.flip(-2) if mirrored else x
    if 4 * k % n == 0:
        return x.rot90(4 * k // n, (-2, -1))
    return _interpolated(x, 2 * math.pi * k / n)


def _interpolated(x: Tensor, angle: float) -> Tensor:
    """Each pixel takes the value at the place that comes to it, between pixels bilinearly."""
    if not x.is_floating_point():
        raise ValueError(f"x must be floating point to be interpolated, got {x.dtype}")
    h, w = x.shape[-2:]
    fine = torch.promote_types(x.dtype, torch.float32)  # half precision does not know the places
    down = torch.arange(h, device=x.device, dtype=fine) - (h - 1) / 2
    right = torch.arange(w, device=x.device, dtype=fine) - (w - 1) / 2
    cos, sin = math.cos(angle), math.sin(angle)
    across = right * cos - down[:, None] * sin  # down is minus up
    along = right * sin + down[:, None] * cos
    places = torch.stack([2 * across / w, 2 * along / h], -1)
    rows = x.reshape(1, -1, h, w).to(fine)
    found = F.grid_sample(rows, places[None], align_corners=False)
    return found.reshape(x.shape).to(x.dtype)
