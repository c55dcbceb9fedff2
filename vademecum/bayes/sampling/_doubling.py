r"""The No-U-Turn sampler for many chains at once: trajectories that double until they turn back.

From the start, a trajectory is doubled forward or backward at random; after each doubling the chain
moves to a point of the new half with probability $\min(1, w' / w)$, where $w$ and $w'$ are the sums
of $e^{-H}$ over the old half and the new one; within a half a point is drawn with probability
proportional to its $e^{-H}$. It ends where a half or one of its aligned parts makes a U-turn: with
momenta $y_-$, $y_+$ at the ends of a part and their sum $\rho$ over it, where $y_\pm^\top M^{-1}
(\rho - \frac12 (y_- + y_+)) \le 0$; a half that turns within is not moved to. Recursion is replaced
by a counter: the part that ends at the odd leaf number i began at a leaf whose momentum and sum
stand in the place that the bits of i name.

All chains take the same leaf at the same time; those that have ended are left out of the work when
they are many.

References:
    Hoffman and Gelman, The No-U-Turn sampler, Journal of Machine Learning Research, 2014.
    Betancourt, A conceptual introduction to Hamiltonian Monte Carlo, arXiv 1701.02434, 2017.
    Phan, Pradhan and Jankowiak, Composable effects for flexible and accelerated probabilistic
    programming in NumPyro, arXiv 1912.11554, 2019.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from vademecum.bayes.steps._energy_calls import Energy, Point, point, usable
from vademecum.bayes.steps._masses import Mass, moved
from vademecum.bayes.steps.metropolis import Step
from vademecum.randomness import source

__all__ = ["DIVERGENT", "nuts_move"]

DIVERGENT = 1000.0
"""An error of the energy, in nats, beyond which the step was far too large."""
_WORTH, _SHARE = 6, 0.4  # leaves to come, and trees that ended, for which sorting these out pays


@dataclass
class _Rows:
    """Tensors with a row for each chain, of which some chains can be kept."""

    def keep(self, rows: Tensor) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[rows])


@dataclass
class _Tree(_Rows):
    """Trajectories: both ends, the point moved to, sums of weights and momenta, statistics."""

    chain: Tensor
    start: Tensor  # the total energy at the start
    ends: Tensor  # (chains, 2, 3, P): backward and forward; position, momentum, gradient
    theta: Tensor
    energy: Tensor
    gradient: Tensor
    log_weight: Tensor
    momenta: Tensor
    moved: Tensor
    chance: Tensor
    leaves: Tensor
    worst: Tensor
    failed: Tensor
    ended: Tensor


@dataclass
class _Half(_Rows):
    """The half that is being added."""

    theta: Tensor
    momentum: Tensor
    slope: Tensor
    eta: Tensor
    chosen: Tensor
    energy: Tensor
    gradient: Tensor
    log_weight: Tensor
    momenta: Tensor
    marks: Tensor  # (chains, places, 2, P): momenta at the beginnings of parts, and sums there
    forward: Tensor


def nuts_move(
    energy: Energy, at: Point, eta: float, mass: Mass, generator: torch.Generator | None,
    max_depth: int,
) -> tuple[Step, Tensor]:  # fmt: skip
    """A step of every chain, and how many leapfrog steps each took."""
    tree = _planted(at, mass, generator)
    ended: list[_Tree] = []
    for depth in range(max_depth):
        half = _sprouted(tree, eta, depth, generator)
        for leaf in range(2**depth):
            tree.ended = tree.ended | _grow(energy, tree, half, mass, leaf, generator)
            left = 2**depth - 1 - leaf
            if left >= _WORTH and left % 2 == 0 and _thinned(tree, half, ended, _SHARE):
                return _joined(ended)
        tree.ended = tree.ended | _join(tree, half, mass, generator)
        if _thinned(tree, None, ended, 0.0):
            return _joined(ended)
    return _joined([*ended, tree])


def _thinned(tree: _Tree, half: _Half | None, ended: list[_Tree], share: float) -> bool:
    """Put trees aside that have ended, if they are more than a share; whether none is left."""
    count = int(tree.ended.sum())
    if count > share * len(tree.chain):
        rows = tree.ended
        ended.append(_Tree(*(getattr(tree, field.name)[rows] for field in fields(tree))))
        tree.keep(~rows)
        if half is not None:
            half.keep(~rows)
    return count > 0 and not len(tree.chain)


def _planted(at: Point, mass: Mass, generator: torch.Generator | None) -> _Tree:
    theta, found, slope = at
    y = mass.momentum(theta, generator)
    end = torch.stack([theta, y, slope], 1)
    zero = torch.zeros_like(found)
    return _Tree(
        torch.arange(len(theta), device=theta.device), found + mass.kinetic(y),
        torch.stack([end, end], 1), theta, found, slope, zero, y, zero.bool(), zero, zero, zero,
        zero.bool(), zero.bool(),
    )  # fmt: skip


def _sprouted(tree: _Tree, eta: float, depth: int, generator: torch.Generator | None) -> _Half:
    """A new half at a random end of each tree."""
    C, like = len(tree.chain), tree.theta
    forward = torch.randint(2, (C,), **source(generator, like.device)).to(like.device)
    theta, momentum, slope = tree.ends[torch.arange(C, device=like.device), forward].unbind(1)
    sizes = (eta * (2 * forward - 1)).to(like.dtype)[:, None]
    marks = like.new_zeros(C, max(depth, 1), 2, like.shape[1])
    return _Half(
        theta, momentum, slope, sizes, tree.theta, tree.energy, tree.gradient,
        torch.full_like(tree.start, -torch.inf), torch.zeros_like(momentum), marks, forward,
    )  # fmt: skip


def _grow(
    energy: Energy, tree: _Tree, half: _Half, mass: Mass, leaf: int,
    generator: torch.Generator | None,
) -> Tensor:  # fmt: skip
    """Add a leaf to every half, and tell which must end: turning, or an error of the energy."""
    y = moved(half.momentum, half.slope, -half.eta / 2)
    at = point(energy, mass.drift(half.theta, y, half.eta))
    y = moved(y, at.gradient, -half.eta / 2)
    ok = usable(at)
    rise = torch.where(ok, at.energy + mass.kinetic(y) - tree.start, torch.inf)
    rise = rise.nan_to_num(nan=torch.inf, posinf=torch.inf)
    counts = ~tree.ended
    tree.chance = tree.chance + (-rise).clamp(max=0).exp() * counts
    tree.leaves = tree.leaves + counts
    tree.worst = torch.where(counts, torch.maximum(tree.worst, rise), tree.worst)
    tree.failed = tree.failed | (~ok & counts)
    total = torch.logaddexp(half.log_weight, -rise)
    take = _uniform(rise, generator) < (-rise - total).exp()  # NaN where both weights are zero
    half.chosen = torch.where(take[:, None], at.theta, half.chosen)
    half.energy = torch.where(take, at.energy, half.energy)
    half.gradient = torch.where(take[:, None], at.gradient, half.gradient)
    half.theta, half.momentum, half.slope = at.theta, y, at.gradient
    half.log_weight, half.momenta = total, half.momenta + y
    stopped = rise > DIVERGENT
    return stopped | _turning(half, mass, leaf)


def _turning(half: _Half, mass: Mass, leaf: int) -> Tensor:
    """Whether a part of the half that ends at this leaf makes a U-turn."""
    place = (leaf >> 1).bit_count()
    if leaf % 2 == 0:
        half.marks[:, place, 0] = half.momentum
        half.marks[:, place, 1] = half.momenta
        return torch.zeros_like(half.log_weight, dtype=torch.bool)
    parts = (~leaf & (leaf + 1)).bit_length() - 1  # trailing ones: so many parts end here
    first, before = half.marks[:, place - parts + 1 : place + 1].unbind(2)
    sums = half.momenta[:, None] - before + first
    last = half.momentum[:, None].expand_as(first)
    return _u_turn(first, last, sums, mass).any(1)


def _u_turn(first: Tensor, last: Tensor, sums: Tensor, mass: Mass) -> Tensor:
    way = mass.velocity(sums - (first + last) / 2)
    return ((first * way).sum(-1) <= 0) | ((last * way).sum(-1) <= 0)


def _join(tree: _Tree, half: _Half, mass: Mass, generator: torch.Generator | None) -> Tensor:
    """Join halves to their trees, move perhaps, and tell which whole trees make a U-turn."""
    chance = (half.log_weight - tree.log_weight).clamp(max=0).exp()
    move = (_uniform(chance, generator) < chance) & ~tree.ended
    tree.theta = torch.where(move[:, None], half.chosen, tree.theta)
    tree.energy = torch.where(move, half.energy, tree.energy)
    tree.gradient = torch.where(move[:, None], half.gradient, tree.gradient)
    tree.moved = tree.moved | move
    tree.log_weight = torch.logaddexp(tree.log_weight, half.log_weight)
    tree.momenta = tree.momenta + half.momenta
    rows = torch.arange(len(tree.chain), device=tree.theta.device)
    tree.ends = tree.ends.clone()
    tree.ends[rows, half.forward] = torch.stack([half.theta, half.momentum, half.slope], 1)
    return _u_turn(tree.ends[:, 0, 1], tree.ends[:, 1, 1], tree.momenta, mass)


def _joined(parts: list[_Tree]) -> tuple[Step, Tensor]:
    """All trees in the order of their chains, as a step."""
    order = torch.cat([part.chain for part in parts]).argsort()

    def rows(name: str) -> Tensor:
        return torch.cat([getattr(part, name) for part in parts])[order]

    leaves = rows("leaves")
    step = Step(
        rows("theta"), rows("energy"), rows("gradient"), rows("moved"), rows("chance") / leaves,
        rows("worst"), rows("failed"),
    )  # fmt: skip
    return step, leaves


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    drawn = torch.rand(like.shape, dtype=like.dtype, **source(generator, like.device))
    return drawn.to(like.device)
