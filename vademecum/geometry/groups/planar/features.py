r"""Features on a planar group: one image for each turn, and how they move.

Features of p4 (p4m) are functions of a place $t$ and one of $|H| = 4$ turns (8 turns and
reflections) $h$, of shape (n, channels, turns, height, width). An element $g$ of $H$ moves both,

$$(g x)(t, h) = x(g^{-1} t, g^{-1} h) ,$$

the images by index and their order by the table of the group. Exact, for any height and width.
"""

from typing import Any

from torch import Tensor

from vademecum.arguments import choice
from vademecum.geometry.groups.actions import turned
from vademecum.geometry.groups.finite_groups import Group
from vademecum.models import map_tensors

__all__ = ["FeatureAction", "insist_on_features", "point_group"]


def point_group(name: str) -> Group:
    """The turns of p4, or the turns and reflections of p4m."""
    choice("group", name, ("p4", "p4m"))
    return Group.cyclic(4) if name == "p4" else Group.dihedral(4)


def insist_on_features(x: Tensor, order: int, channels: int | None = None) -> None:
    """Refuse what is no batch of features on a group of that order."""
    good = isinstance(x, Tensor) and x.ndim == 5 and x.shape[2] == order
    if not good or (channels is not None and x.shape[1] != channels):
        given = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        many = "channels" if channels is None else channels
        raise ValueError(f"x must have the shape (n, {many}, {order}, height, width), got {given}")


class FeatureAction:
    """Turns and reflections of features on p4 or p4m, such as outputs of `GroupConv2d`.

    Args:
        group: `Group.cyclic(4)` or `Group.dihedral(4)`.

    Example:
        >>> act = FeatureAction(Group.cyclic(4))
        >>> x = torch.arange(4.0).view(1, 1, 4, 1, 1)  # one pixel for each turn
        >>> act(1, x).flatten()
        tensor([3., 0., 1., 2.])
    """

    exact, examples = True, True

    def __init__(self, group: Group):
        turn = group.turn(group.identity)
        if turn is None or turn.n != 4:
            raise ValueError(f"group must be Group.cyclic(4) or Group.dihedral(4), got {group}")
        self.group = group

    def __call__(self, g: int, x: Any) -> Any:
        """The features, moved.

        Args:
            g: The element.
            x: Features (n, channels, turns, height, width), or several in any structure.
        """
        order = self.group.table[self.group.inverse(g)]

        def moved(t: Tensor) -> Tensor:
            insist_on_features(t, self.group.order)
            return turned(self.group, g, t.index_select(2, order.to(t.device)))

        return map_tensors(x, moved)

    def __repr__(self) -> str:
        return f"FeatureAction({self.group})"
