"""Networks with a symmetry: invariance, equivariance, group convolution, averaging."""

from collections.abc import Callable, Iterator
from itertools import permutations, product
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import Evidence, at_least, claim, equals, integers
from vademecum.geometry import (
    Group,
    GroupConv2d,
    PointAction,
    equivariance_error,
    invariance_error,
    symmetrize,
)
from vademecum.models import mlp


def linear(weight: Tensor) -> nn.Linear:
    """The layer with this matrix, and no constants."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False).requires_grad_(False)
    layer.weight.copy_(weight)
    return layer


def circulant(filter_: Tensor) -> Tensor:
    """The matrix of a circular convolution: entry (i, j) is that of the filter at i - j."""
    n = len(filter_)
    return torch.stack([torch.stack([filter_[(i - j) % n] for j in range(n)]) for i in range(n)])


def relative_error(after: Tensor, wanted: Tensor) -> Tensor:
    """How far rows are apart, relative to the longer of the two."""
    a, b = after.square().sum(1).sqrt(), wanted.square().sum(1).sqrt()
    gap = (after - wanted).square().sum(1).sqrt()
    return torch.where(gap > 0, gap / torch.maximum(a, b), 0)


@claim(
    by="identity",
    sources=("A-188", "A-189"),
    budget=0.6,
    short=r"\text{invariant: } f(\rho(g)x) = f(x);\quad"
    r"\text{equivariant: } f(\rho(g)x) = \rho(g)f(x)",
)
def invariance_equivariance(
    pool: Literal["equal weights", "unequal weights"] = "equal weights",
    layer: Literal["circulant", "dense"] = "circulant",
):
    r"""Invariant functions do not change if inputs move; equivariant ones move along.

    $f$ is $\mathcal G$-invariant if $f(\rho(g) x) = f(x)$, and $\mathcal G$-equivariant if
    $f(\rho(g) x) = \rho(g) f(x)$ with the representation of the output space, for all $g \in
    \mathcal G$. Sums over all points are invariant under $S_n$, circular convolutions equivariant
    under shifts, and so is any function of each point alone; an equivariant map followed by an
    invariant one is invariant.

    All elements of $S_4$ and $S_5$, all shifts of 5 and 8 points, random integers, for which all is
    exact. The errors that `equivariance_error` and `invariance_error` measure are compared with
    matrices written out, also for a dense layer, which has no symmetry.

    Knobs:
        pool: Whether the sum over the points has one weight for all.
        layer: Whether the linear layer is a circular convolution.
    """
    for n in (4, 5):
        x = integers(3, n)
        weights = torch.ones(1, n) if pool == "equal weights" else 1 + torch.arange(n)[None]
        net = linear(weights.double())
        sums = [x[:, list(order)] @ weights[0].double() for order in permutations(range(n))]
        yield equals("sums over all orders of the points", torch.stack(sums), sums[0], tol=0.0, n=n)
        found = invariance_error(net, x, group=Group.symmetric(n))
        yield equals("largest error under S_n", found.error, 0.0, tol=0.0, n=n)
    for n in (5, 8):
        shifts, x = Group.cyclic(n), integers(3, n)
        dense = integers(n, n)
        W = circulant(integers(n)) if layer == "circulant" else dense
        for name, matrix in (("the layer", W), ("a dense layer", dense)):
            after = [x.roll(s, 1) @ matrix.T for s in range(n)]
            wanted = [(x @ matrix.T).roll(s, 1) for s in range(n)]
            errors = torch.stack(list(map(relative_error, after, wanted)))
            found = equivariance_error(linear(matrix), x, group=shifts)
            yield equals(f"errors of {name}", found.errors, errors, tol=1e-14, n=n)
            if name == "the layer":
                yield equals("f(gx)", torch.stack(after), torch.stack(wanted), tol=0.0, n=n)
            else:
                w, s = found.witness, found.element
                there = relative_error(w.roll(s, 1) @ matrix.T, (w @ matrix.T).roll(s, 1))
                yield equals("the error at the witness", there, errors.max(), tol=1e-14, n=n)
        both = nn.Sequential(linear(W), nn.ReLU(), linear(torch.ones(1, n)))
        found = invariance_error(both, x, group=shifts)
        yield equals("error of a sum over equivariant features", found.error, 0.0, tol=0.0, n=n)


invariance_equivariance.foil("a weighted sum", pool="unequal weights")
invariance_equivariance.foil("a dense layer", layer="dense", refuted_by="f(gx)")

Point = tuple[int, int]
Index = dict[tuple[int, int, Point], int]


def step(k: int, mirrored: int, point: Point) -> Point:
    """A reflection up and down or not, then k quarter turns counter-clockwise."""
    a, b = point
    b = -b if mirrored else b
    for _ in range(k):
        a, b = -b, a
    return a, b


def torus(N: int, mirrored: bool) -> tuple[Group, Index]:
    """Shifts, turns (and reflections) of a torus, and the element that turns first, then shifts."""
    points = list(product(range(N), range(N)))

    def moved(k: int, s: int, t: Point) -> tuple[int, ...]:
        ends = [step(k, s, point) for point in points]
        return tuple((a + t[0]) % N * N + (b + t[1]) % N for a, b in ends)

    kinds = [(1, 0, (0, 0)), (0, 0, (1, 0)), (0, 0, (0, 1)), (0, int(mirrored), (0, 0))]
    group = Group.from_permutations([torch.tensor(moved(*kind)) for kind in kinds])
    index = {tuple(group.permutation(g).tolist()): g for g in group}
    all_ = product(range(4), range(1 + mirrored), points)
    return group, {(k, s, t): index[moved(k, s, t)] for k, s, t in all_}


def convolved(x: Tensor, theta: Tensor, moved: Tensor) -> Tensor:
    """For each element the sum of x(u) theta(g^-1 u), where row g of `moved` holds g^-1 u."""
    return torch.einsum("...cu,ocgu->...og", x, theta[:, :, moved])


def around(offsets: Tensor, N: int) -> Tensor:
    """A filter on the torus, from its taps at offsets -1, 0, 1 to the right and up."""
    theta = torch.zeros(*offsets.shape[:2], N, N)
    for a, b in product((-1, 0, 1), repeat=2):
        theta[..., a % N, b % N] = offsets[..., 1 - b, 1 + a]
    return theta


def as_image(x: Tensor) -> Tensor:
    """A signal over (right, up) as rows from above and columns."""
    return x.flip(-1).mT


@claim(
    by="identity",
    sources=("A-190",),
    budget=1.0,
    short=r"(x*\theta)(g) = \int_\Omega x(u)\,\theta(g^{-1}u)\,du:\quad"
    r"\rho(h)x \mapsto (x*\theta)(h^{-1}g)",
)
def group_convolution(
    inverse: bool = True, measure: Literal["counting", "uneven"] = "counting"
) -> Iterator[Evidence]:
    r"""A group convolution compares a signal with all moved copies of a filter.

    $(x * \theta)(g) = \int_\Omega x(u)\, \theta(g^{-1} u)\, du$ for $g \in \mathcal G$, a sum on
    discrete domains. If the measure on $\Omega$ is invariant it is equivariant: replacing $x$ by
    $\rho(h) x$ turns the output into $(x * \theta)(h^{-1} g)$.

    *Proof.* $\int x(h^{-1} u)\, \theta(g^{-1} u)\, du = \int x(v)\, \theta(g^{-1} h v)\, dv$, and
    $g^{-1} h = (h^{-1} g)^{-1}$.

    The groups p4 and p4m of a $4 \times 4$ and p4 of a $5 \times 5$ torus (64, 128 and 100
    elements), integer signals and filters, all pairs $(h, g)$, exactly, for signals on the torus
    and on the group. What `GroupConv2d` computes for 2 channels in and 3 out is the same. For
    $\mathbb Z_n$ it is circular cross-correlation.

    Knobs:
        inverse: Whether the filter is read at $g^{-1} u$; without it, at $g u$.
        measure: Whether all points of the domain count alike.
    """
    for N, mirrored, lifting in product((4, 5), (False, True), (True, False)):
        if N == 4 or not mirrored:
            yield from _on_torus(N, mirrored, lifting, inverse, measure)
    for n in (5, 7):
        x, theta = integers(1, n), integers(1, 1, n)
        moved = torch.stack([PointAction(Group.cyclic(n), axis=0)(g, torch.arange(n))
                             for g in range(n)])  # fmt: skip
        wanted = F.conv1d(torch.cat([x, x[:, :-1]], 1)[None], theta)[0]
        yield equals("circular cross-correlation", convolved(x, theta, moved), wanted, tol=0.0, n=n)


group_convolution.foil("the filter read at gu", inverse=False,
                       refuted_by="(rho(h) x * theta)(g) on images")  # fmt: skip
group_convolution.foil("a measure that is not invariant", measure="uneven")


def _on_torus(
    N: int, mirrored: bool, lifting: bool, inverse: bool, measure: str
) -> Iterator[Evidence]:
    """Equivariance for all pairs of elements, and the same numbers by a layer."""
    group, index = torus(N, mirrored)
    layer = GroupConv2d(2, 3, 3, group="p4m" if mirrored else "p4", lifting=lifting, padding=1,
                        padding_mode="circular", bias=False)  # fmt: skip
    layer.requires_grad_(False).weight.copy_(integers(*layer.weight.shape, most=3))
    perms = torch.stack([group.permutation(g) for g in group])
    points, places = (perms, N * N) if lifting else (group.table, group.order)
    x, theta = integers(2, places, most=3), _on_domain(layer, index, N, places)
    weights = torch.ones(places) if measure == "counting" else 1.0 + torch.arange(places)
    moved = points[group.inverses] if inverse else points
    y = convolved(weights * x, theta, moved)
    there = x[:, points[group.inverses]].movedim(1, 0)  # rho(h) x for all h
    back = group.table[group.inverses]  # row h: the elements h^-1 g
    on, at = "images" if lifting else "features", {"elements": group.order}
    yield equals(f"(rho(h) x * theta)(g) on {on}", convolved(weights * there, theta, moved),
                 y[:, back].movedim(0, 1), tol=0.0, **at)  # fmt: skip
    exact = _images(convolved(x, theta, points[group.inverses]), index, N, False)
    found = layer(_images(x, index, N, lifting)[None])[0]
    yield equals(f"GroupConv2d on {on}", found, exact, tol=0.0, **at)


def _on_domain(layer: GroupConv2d, index: Index, N: int, places: int) -> Tensor:
    """The filters of a layer as functions on the torus, or on the group."""
    weight = layer.weight.detach()
    if layer.lifting:
        return around(weight, N).flatten(2)
    theta = torch.zeros(3, 2, places)
    for (k, s, (a, b)), g in index.items():
        theta[:, :, g] = around(weight[:, :, k + 4 * s], N)[..., a, b]
    return theta


def _images(x: Tensor, index: Index, N: int, lifting: bool) -> Tensor:
    """A signal on the torus or on the group as images, one for each turn."""
    if lifting:
        return as_image(x.view(-1, N, N))
    found = torch.empty(len(x), len(index) // N**2, N, N)
    for (k, s, (a, b)), g in index.items():
        found[:, k + 4 * s, a, b] = x[:, g]
    return as_image(found)


def average(f: Callable[[Tensor], Tensor], orders: list[list[int]]) -> Callable[[Tensor], Tensor]:
    """The mean of what a function gives, over some orders of its inputs."""
    all_ = torch.tensor(orders)
    return lambda x: f(x[:, all_].flatten(0, 1)).unflatten(0, (-1, len(orders))).mean(1)


@claim(
    by="identity",
    sources=("A-191",),
    budget=0.6,
    short=r"(S_{\mathcal G}f)(x) = \frac1{|\mathcal G|}\sum_{g \in \mathcal G} f(\rho(g)x),\quad"
    r" S_{\mathcal G}^2 = S_{\mathcal G}",
)
def group_averaging(over: Literal["the group", "a subset"] = "the group"):
    r"""Averaging over a group makes any function invariant.

    For a finite group $(S_{\mathcal G} f)(x) = \frac1{|\mathcal G|} \sum_{g \in \mathcal G}
    f(\rho(g) x)$ is $\mathcal G$-invariant; $S_{\mathcal G}$ is a projection whose fixed points are
    exactly the invariant functions.

    *Proof.* For fixed $h$, $gh$ runs through the group as $g$ does, so $(S f)(\rho(h) x) =
    (S f)(x)$, and $S$ leaves an invariant function as it is: the mean of equal numbers. What it
    leaves as it is, is invariant.

    Random networks with inputs of 3 and 4 numbers, under all of $S_3$ and $S_4$: `symmetrize` is
    compared with a loop over all orders. With outputs moved back, $\frac1{|\mathcal G|} \sum_g
    \rho(g)^{-1} f(\rho(g) x)$ is equivariant.

    Knobs:
        over: What is averaged over: all elements, or the identity and a cycle of three.
    """
    for n in (3, 4):
        group, x = Group.symmetric(n), torch.randn(5, n)
        orders = [list(order) for order in permutations(range(n))]
        some = orders if over == "the group" else [orders[0], [1, 2, 0, *range(3, n)]]
        net = mlp((n, 8, 2), nn.Tanh).requires_grad_(False)
        mean = average(net, some)
        moved = torch.stack([mean(x[:, order]) for order in orders])
        yield equals("the average at permuted inputs", moved, mean(x), tol=1e-13, n=n)
        for memory in (None, 1):
            made = symmetrize(net, group, memory=memory)
            yield equals("symmetrize", made(x), mean(x), tol=1e-13, n=n)
        yield equals("averaged twice", average(mean, some)(x), mean(x), tol=1e-13, n=n)
        twice = symmetrize(symmetrize(net, group), group)
        yield equals("symmetrize twice", twice(x), symmetrize(net, group)(x), tol=1e-13, n=n)
        total = linear(torch.ones(1, n))
        invariant = nn.Sequential(total, mlp((1, 4, 2), nn.Tanh)).requires_grad_(False)
        yield equals("an invariant function", symmetrize(invariant, group)(x), invariant(x),
                     tol=1e-13, n=n)  # fmt: skip
        change = (symmetrize(net, group)(x) - net(x)).abs().max()
        yield at_least("change of a function that is not invariant", change, 1e-3, n=n)
        points = PointAction(group)
        same = mlp((n, 8, n), nn.Tanh).requires_grad_(False)
        along = symmetrize(same, group, out_action=points)
        answers = along(torch.cat([x[:, order] for order in orders])).split(len(x))
        back = [torch.tensor(order).argsort() for order in orders]
        found = torch.stack([y[:, order] for y, order in zip(answers, back, strict=True)])
        yield equals("outputs moved back", found, along(x), tol=1e-13, n=n)


group_averaging.foil("the identity and a cycle of three, which are no group", over="a subset",
                     refuted_by="the average at permuted inputs")  # fmt: skip
