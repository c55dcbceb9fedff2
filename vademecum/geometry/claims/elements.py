r"""Sets: what does not depend on the order of elements, and sums of encodings of them."""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.arrays import rational_rank
from vademecum.claims import Evidence, claim, equals, integers
from vademecum.geometry import DeepSets, Group, equivariant_basis
from vademecum.models import mlp

How = Literal["sum", "mean", "max"]


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, call: Callable[[Tensor], Tensor]):
        super().__init__()
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        """The function."""
        return self.call(x)


def orders(M: int) -> Tensor:
    """All orders of M things."""
    return torch.tensor(list(permutations(range(M))))


def commuting(M: int) -> int:
    """How many dimensions the matrices have that commute with all permutations, by elimination."""
    rows = []
    for order in permutations(range(M)):
        for i in range(M):
            for j in range(M):  # (A P)_ij = (P A)_ij, where P takes i to order[i]
                row = [0] * (M * M)
                row[M * i + order.index(j)] += 1
                row[M * order[i] + j] -= 1
                rows.append(tuple(row))
    return M * M - rational_rank(list(set(rows)))


@claim(
    by="identity", sources=("C-170", "C-171", "C-172", "D-325", "D-331", "D-332"), budget=0.7,
    short=r"PA = AP\ \forall P \iff A = \lambda I + \gamma \mathbf 1 \mathbf 1^\top\quad(M \ge 2)",
)  # fmt: skip
def set_symmetry(
    pooling: Literal["alike", "weighted", "concatenated"] = "alike",
    diagonal: Literal["constant", "unequal"] = "constant",
    dimension: int = 2,
) -> Iterator[Evidence]:
    r"""Permutation invariance and equivariance of set functions.

    Functions of sets must not depend on the order of elements: they are invariant if $f(x_{\pi_1},
    \dots, x_{\pi_M}) = f(x_1, \dots, x_M)$, as for classification, and equivariant if outputs are
    permuted along, $f(PX) = P f(X)$, as for outputs of each element. Sums, means and maxima are
    invariant; a network on the concatenated elements is not. The linear equivariant maps on
    $\mathbb R^M$, $M \ge 2$, are exactly $\lambda I + \gamma \mathbf 1 \mathbf 1^\top$; for $M = 1$
    the two terms are one.

    *Proof of the last.* $A_{\pi(i) \pi(j)} = A_{ij}$ for all $\pi$, and permutations take any entry
    of the diagonal to any other, and any beside it to any other. All 120 orders of five random
    elements, in whole numbers; dimensions for $M$ from 1 to 4 by elimination in fractions.

    Knobs:
        pooling: What becomes of the elements: the same for all of them, a sum with weights $1,
            \dots, M$, or a network on the vector of all of them.
        diagonal: Whether the map for each element has one factor $\lambda$, or $1, \dots, M$.
        dimension: How many dimensions the linear equivariant maps have.
    """
    M, d = 5, 3
    x, order = integers(M, d), orders(M)
    lots, weights = x[order], torch.arange(1.0, M + 1)[:, None]
    net = mlp([M * d, 4, 2], nn.Tanh)
    for how in ("sum", "mean", "max"):
        f: nn.Module = DeepSets(nn.Identity(), nn.Identity(), aggregate=how)
        if pooling == "weighted":
            f = Function(lambda z: (z * weights).sum(1))
        elif pooling == "concatenated":
            f = Function(lambda z: net(z.flatten(1)).detach())
        yield equals(f"{how} in another order", f(lots), f(x[None]), tol=0.0)
    factor, gamma = (weights if diagonal == "unequal" else torch.tensor(3.0)), -2.0
    each = DeepSets(nn.Identity(), Function(lambda z: gamma * z[:, d:]), equivariant=True)
    y, moved = (factor * z + each(z) for z in (x[None], lots))
    yield equals("outputs of elements in another order", moved, y[0][order], tol=0.0)
    ones = torch.ones(M, M)
    yield equals("the map as a matrix", y[0] - factor * x, gamma * ones @ x, tol=0.0)
    for size in (1, 2, 3, 4):
        wanted = dimension if size > 1 else 1
        yield equals("dimensions of equivariant maps", commuting(size), wanted, M=size)
        group = Group.symmetric(size)
        basis = equivariant_basis(group, group.natural(), group.natural())
        stated = torch.stack([torch.eye(size).flatten(), torch.ones(size * size)])
        both = torch.cat([basis.flatten(1).double(), stated])
        yield equals("maps of the basis", len(basis), wanted, M=size)
        yield equals("their rank with both terms", rational_rank(both.tolist()), wanted, M=size)


set_symmetry.foil("a weighted sum", pooling="weighted")
set_symmetry.foil("a network on the concatenation", pooling="concatenated")
set_symmetry.foil("a diagonal with unequal entries", diagonal="unequal")
set_symmetry.foil("multiples of the identity alone", dimension=1)


class AtPlaces(nn.Module):
    """An encoder that treats each place in its own way, or leaves one out."""

    def __init__(self, encoder: nn.Module, factors: Tensor):
        super().__init__()
        self.encoder, self.factors = encoder, factors

    def forward(self, x: Tensor) -> Tensor:
        """Encodings of the elements, each times the factor of its place."""
        return self.encoder(x) * self.factors.repeat(len(x) // len(self.factors))[:, None]


@claim(
    by="identity", sources=("A-193", "C-173"), budget=0.5,
    short=r"f(X) = \rho\big(\sum_{x \in X} \varphi(x)\big)",
)  # fmt: skip
def deep_sets(
    aggregate: How = "sum", encoder: Literal["shared", "by place"] = "shared", correction: int = 0
) -> Iterator[Evidence]:
    r"""Deep Sets model.

    $f(X) = \rho\big(\sum_{x \in X} \varphi(x)\big)$ with a learned encoder $\varphi$ shared by all
    elements, sum aggregation and a learned read-out $\rho$ is invariant by construction,
    and applicable to sets of any size. With $\varphi(x) = (1, x, x^2)$ and $\rho(s) = s_2 / s_0 -
    (s_1 / s_0)^2$ it is the variance, for every size.

    Random networks: all 120 orders of five elements; sets of sizes 0 to 9, alone, padded with
    arbitrary numbers and packed, against sums by hand; the variance against that of torch.

    Knobs:
        aggregate: How encodings are pooled.
        encoder: Whether all elements have one encoder, or each place another multiple of it.
        correction: What is subtracted from the number of elements in the variance.
    """
    phi, rho = (mlp(sizes, nn.Tanh).requires_grad_(False) for sizes in ([3, 6, 4], [4, 5, 2]))
    used = phi if encoder == "shared" else AtPlaces(phi, 1 + torch.arange(5) / 5)
    x = torch.randn(5, 3)
    net = DeepSets(used, rho, aggregate=aggregate)
    yield equals("another order", net(x[orders(5)]), net(x[None]), tol=1e-12)
    sets = [torch.randn(M, 3) for M in torch.randperm(10).tolist() if M or aggregate == "sum"]
    M = max(map(len, sets))
    net, stated = DeepSets(phi, rho, aggregate=aggregate), [
        rho(torch.stack([torch.zeros(4), *map(phi, s)]).sum(0)) for s in sets
    ]  # fmt: skip
    segments = torch.cat([torch.full((len(s),), i) for i, s in enumerate(sets)])
    order = torch.randperm(len(segments))
    packed = net(torch.cat(sets)[order], segments=segments[order], num_sets=len(sets))
    mask = torch.stack([torch.arange(M + 1) < len(s) for s in sets])
    padded = torch.full((len(sets), M + 1, 3), 7.0).masked_scatter(mask[..., None], torch.cat(sets))
    padded = net(padded, mask=mask)
    for s, wanted, one, other in zip(sets, stated, packed, padded, strict=True):
        yield equals("the formula, sets packed", one, wanted, tol=1e-12, size=len(s))
        yield equals("the formula, sets padded", other, wanted, tol=1e-12, size=len(s))
        yield equals("the formula, one set", net(s[None])[0], wanted, tol=1e-12, size=len(s))
    powers = Function(lambda z: torch.cat([z**0, z, z**2], 1))
    spread = DeepSets(powers, Function(lambda s: s[:, 2] / s[:, 0] - (s[:, 1] / s[:, 0]) ** 2))
    for size in range(2, 10):
        z = torch.randn(3, size, 1)
        wanted = z[..., 0].var(1, correction=correction)
        yield equals("variance", spread(z), wanted, tol=1e-12, size=size)


deep_sets.foil("an encoder of its own for each place", encoder="by place")
deep_sets.foil("the mean in place of the sum", aggregate="mean")
deep_sets.foil("the maximum", aggregate="max")
deep_sets.foil("the unbiased variance", correction=1)


@claim(
    by="identity", sources=("A-194", "C-175"), budget=0.4,
    short=r"y_i = \rho\big(x_i, \sum_j \varphi(x_j)\big)",
)  # fmt: skip
def deep_sets_equivariant(
    summary: Literal["all", "all but the first place", "all others"] = "all",
) -> Iterator[Evidence]:
    r"""Equivariant set layer.

    $y_i = \rho\big(x_i, \sum_j \varphi(x_j)\big)$: every element is combined with the same pooled
    summary, which is permutation equivariant. Through the summary each output depends on all
    elements.

    Random networks and all 120 orders of five elements; whole numbers against the formula with
    linear maps, in which a change $\delta$ of one element changes all other outputs by $R \Phi
    \delta$. Padded and packed sets give the same.

    Knobs:
        summary: What the summary is the sum of; all others than the element itself are another
            equivariant layer.
    """
    left_out = torch.tensor([0.0, 1, 1, 1, 1]) if summary == "all but the first place" else None
    phi, rho = (mlp(sizes, nn.Tanh).requires_grad_(False) for sizes in ([3, 6, 4], [7, 5, 2]))
    x, order = torch.randn(5, 3), orders(5)
    used = phi if left_out is None else AtPlaces(phi, left_out)
    net = DeepSets(used, rho, equivariant=True)
    yield equals("outputs in another order", net(x[order]), net(x[None])[0][order], tol=1e-12)
    Phi, own, R = integers(4, 3), integers(2, 3), integers(2, 4)
    linear, mixed = (nn.Linear(a, b, bias=False).requires_grad_(False) for a, b in ((3, 4), (7, 2)))
    linear.weight.copy_(Phi)
    mixed.weight.copy_(torch.cat([own, R], 1))
    net, z, part = DeepSets(linear, mixed, equivariant=True), integers(5, 3), torch.ones(5, 5)
    if summary == "all but the first place":
        part[:, 0] = 0
    elif summary == "all others":
        part -= torch.eye(5)
    y = net(z[None])[0]
    yield equals("the formula", y, z @ own.T + part @ z @ Phi.T @ R.T, tol=0.0)
    for i in range(5):
        moved = z.clone()
        moved[i] += 1
        change = (net(moved[None])[0] - y)[torch.arange(5) != i]
        wanted = (R @ Phi @ torch.ones(3)).expand(4, 2)
        yield equals("change of other outputs", change, wanted, tol=0.0, element=i)
    segments = torch.tensor([1, 0, 1, 1, 0])
    packed, alone = net(z, segments=segments), [net(z[segments == i][None])[0] for i in (0, 1)]
    for i in (0, 1):
        yield equals("outputs of packed sets", packed[segments == i], alone[i], tol=0.0, set=i)


deep_sets_equivariant.foil("a place that is left out", summary="all but the first place")
deep_sets_equivariant.foil("the sum over all others", summary="all others")
