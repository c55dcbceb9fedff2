r"""Orders of units that bring the weights of one network next to another's.

With $\theta_a$ and $\theta_b$ the weights, and $P$ one permutation for each group of units,

$$\|\theta_a - P \theta_b\|^2 = \|\theta_a\|^2 + \|\theta_b\|^2 - 2 \langle \theta_a, P \theta_b
\rangle,$$

and with all groups but one held fixed the last product is $\sum_i S_{i, \pi(i)}$, linear in that
group's permutation: an assignment problem, solved exactly. Groups take turns until none changes.
All together it is as hard as quadratic assignment, so what is found is a minimum along each group
and not always the least.

The first turn goes through the groups as the network computes them, and each looks only at weights
whose other units have their order already. So what was permuted is found again at once, and
networks that were trained apart end nearer to each other than from the order that they have (all of
four pairs of three hidden layers on digits, by 0.5 to 1 % of the product).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from vademecum.generalization.alignment._traced_units import FreeGroup
from vademecum.models import reordered

__all__ = ["WeightMatching", "best_assignment"]


def best_assignment(similarity: Tensor) -> Tensor:
    """The permutation with the largest sum of `similarity[i, order[i]]`.

    Example:
        >>> best_assignment(torch.tensor([[1.0, 5.0], [2.0, 4.0]]))
        tensor([1, 0])
    """
    from scipy.optimize import linear_sum_assignment

    _, order = linear_sum_assignment(similarity.double().cpu().numpy(), maximize=True)
    return torch.from_numpy(order).to(similarity.device)


class WeightMatching:
    """Orders of all groups, found one group at a time.

    Args:
        groups: The groups of units.
        a: The parameters of the network that stays, by their places.
        b: Those of the network whose units are to be permuted.

    Attributes:
        orders: The order of each group.
        turns: How many assignments were solved.
    """

    def __init__(self, groups: list[FreeGroup], a: Mapping[str, Tensor], b: Mapping[str, Tensor]):
        self._groups, self._a, self._b = groups, a, b
        self._seen: dict[str, list[tuple[int, int, int]]] = {}
        for g, group in enumerate(groups):
            for place, axis, repeat in group.axes:
                self._seen.setdefault(place, []).append((g, axis, repeat))
        self._known: dict[int, Tensor] = {}  # similarities that no other group changes
        self.orders = [
            torch.arange(group.size, device=a[group.axes[0].place].device) for group in groups
        ]
        self.turns = 0

    def run(self, max_iter: int) -> bool:
        """Let the groups take turns, and say whether none would change any more."""
        self._first_turn()
        return self._descend(max_iter)

    def product(self) -> float:
        """The inner product of the one network with the other, its units in their orders."""
        return sum(
            float((self._a[place].double() * self._with_orders(place).double()).sum())
            for place in self._seen
        )

    def _first_turn(self) -> None:
        done: set[int] = set()
        for g, group in enumerate(self._groups):
            ready = [
                axis
                for axis in group.axes
                if all(h in done for h, at, _ in self._seen[axis.place] if at != axis.axis)
            ]
            if ready:
                self.orders[g] = best_assignment(self._similarity(g, ready))
                self.turns += 1
            done.add(g)

    def _descend(self, max_iter: int) -> bool:
        waiting = set(range(len(self._groups)))
        for _ in range(max_iter):
            for g in sorted(waiting):
                waiting.discard(g)
                if self._improve(g):
                    waiting |= self._neighbours(g)
            if not waiting:
                return True
        return False

    def _improve(self, g: int) -> bool:
        similarity, before = self._similarity(g), self.orders[g]
        order = best_assignment(similarity)
        self.turns += 1
        rows = torch.arange(len(order), device=order.device)
        gain = float((similarity[rows, order] - similarity[rows, before]).double().sum())
        size = float(similarity[rows, order].double().abs().sum())
        if gain <= torch.finfo(similarity.dtype).eps * len(order) ** 0.5 * size:
            return False
        if self._meets_itself(g):  # then the product is not linear in the order
            old = self.product()
            self.orders[g] = order
            if self.product() <= old:
                self.orders[g] = before
                return False
        self.orders[g] = order
        return True

    def _similarity(self, g: int, axes: list | None = None) -> Tensor:
        """How well each unit of the one network goes with each of the other."""
        fresh, alone = [], []
        for axis in self._groups[g].axes if axes is None else axes:
            own = len(self._seen[axis.place]) == 1
            (alone if own and axes is None else fresh).append(axis)
        total = self._a[self._groups[g].axes[0].place].new_zeros(self._groups[g].size, 1)
        if alone and g not in self._known:
            self._known[g] = total + sum(self._part(g, axis) for axis in alone)
        total = self._known[g] if alone else total
        for axis in fresh:
            total = total + self._part(g, axis)
        return total

    def _part(self, g: int, axis: tuple[str, int, int]) -> Tensor:
        place, at, _ = axis
        m = self._groups[g].size
        one, other = self._a[place], self._with_orders(place, without=at)
        return one.movedim(at, 0).reshape(m, -1) @ other.movedim(at, 0).reshape(m, -1).T

    def _with_orders(self, place: str, without: int | None = None) -> Tensor:
        tensor = self._b[place]
        for g, axis, repeat in self._seen[place]:
            if axis != without:
                tensor = reordered(tensor, axis, repeat, self.orders[g])
        return tensor

    def _neighbours(self, g: int) -> set[int]:
        near = {h for axis in self._groups[g].axes for h, _, _ in self._seen[axis.place]}
        return near if self._meets_itself(g) else near - {g}

    def _meets_itself(self, g: int) -> bool:
        places = [axis.place for axis in self._groups[g].axes]
        return len(set(places)) < len(places)
