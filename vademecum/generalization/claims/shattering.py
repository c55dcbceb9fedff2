"""Shattering: sets of points that get all labellings, and the size of the largest."""

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.generalization import growth_function as growth
from vademecum.generalization import shatters
from vademecum.generalization import vc_dimension as dimension_of
from vademecum.generalization.claims.capacity import sides


def sine_frequency(x: Tensor, labels: Tensor) -> float | None:
    r"""A frequency $\omega$ with $1[\sin(\omega x_i) \ge 0] = y_i$ at $x_i = 10^{-i}$, checked."""
    zeros = [i for i, y in enumerate(labels.tolist(), 1) if y == 0]
    omega = math.pi * (1 + sum(10**i for i in zeros))
    right = all((math.sin(omega * v) >= 0) == bool(y) for v, y in zip(x[:, 0].tolist(), labels,
                                                                       strict=True))  # fmt: skip
    return omega if right else None


def replayed(family: Any, witness: Tensor, x: Tensor) -> Tensor:
    """The labels that witnesses of a family give, by the definition of its functions."""
    if family == "thresholds":
        return x[None, :, 0] >= witness[:, None]
    if "half-spaces" in family:
        ones = torch.ones(len(x), witness.shape[1] - x.shape[1])
        return witness @ torch.cat((x, ones), 1).T >= 0
    low, high = witness.reshape(len(witness), 2, -1).unbind(1)
    return ((x >= low[:, None]) & (x <= high[:, None])).all(2)


def shattered_points(family: Any, d: int, n: int) -> Tensor:
    """Points that the family shatters, if any n of them do: on axes for rectangles, else drawn."""
    if family != "rectangles":
        return torch.randn(n, d)
    axes = torch.cat((torch.eye(d), -torch.eye(d)))
    return torch.cat((axes * (1 + torch.rand(2 * d, 1)), torch.randn(max(n - 2 * d, 0), d)))[:n]


_FAMILIES: Any = (
    ("thresholds", 1, 1), ("intervals", 1, 2), ("half-spaces", 2, 3), ("half-spaces", 3, 4),
    ("homogeneous half-spaces", 2, 2), ("homogeneous half-spaces", 4, 4), ("rectangles", 2, 4),
    ("rectangles", 3, 6),
)  # fmt: skip


@claim(
    by="identity",
    sources=("A-276", "B-052", "B-418", "B-419", "C-275"),
    budget=0.8,
    short=r"\mathrm{VC}(\mathcal F) = \max \{n : S_{\mathcal F}(n) = 2^n\}",
)
def vc_dimension(
    rule: Literal["set", "growth"] = "set", maximised: Literal["size", "indicator"] = "size"
):
    r"""Shattering and VC dimension.

    $\mathcal F$ shatters a given set of $n$ points iff all $2^n$ labellings of THAT set occur; the
    growth function only tells whether some set of that size is shattered. The VC dimension
    $\max \{n : S_{\mathcal F}(n) = 2^n\}$ is the size of the largest shattered set: thresholds 1,
    intervals 2, half-planes 3 ($d + 1$ in $d$ dimensions), rectangles in the plane 4 ($2 d$),
    half-spaces through the origin $d$, while $\operatorname{sign} \sin(\omega x)$ has infinite VC
    dimension with one parameter.

    Checked with `shatters`: a set of that size, whose witnesses are replayed by the definition; a
    drawn set of one point more, whose proof of impossibility is verified, in up to four dimensions
    (quoted beyond; that no set of one more is shattered is a theorem). Three points in general
    position get 8 labellings from half-planes, three on a line 6, by linear programmes. For sines
    explicit frequencies shatter 8 points $10^{-i}$ (quoted beyond).

    Knobs:
        rule: Whether a set counts as shattered by its own labellings, or by the growth function.
        maximised: What is maximised over sizes that are shattered: the size, or its indicator.
    """
    for family, d, known in _FAMILIES:
        at = {"family": family, "d": d}
        sizes = [n * shatters(family, shattered_points(family, d, n)).shattered
                 for n in range(1, known + 2)]  # fmt: skip
        largest = max(sizes if maximised == "size" else map(bool, sizes))
        yield equals("largest size of a shattered set", int(largest), known, **at)
        yield equals("VC dimension", dimension_of(family, d=d).value, known, **at)
        x = shattered_points(family, d, known)
        found = shatters(family, x)
        assert found.labels is not None
        yield equals("labellings with a witness", len(found.labels.unique(dim=0)), 2**known, **at)
        wrong = (replayed(family, found.witness, x) != found.labels.bool()).sum()
        yield equals("labels that its witness misses", int(wrong), 0, **at)
        yield from impossible(family, shattered_points(family, d, known + 1), at)
    for name, x, count in (
        ("in general position", torch.randn(3, 2), 8),
        ("on a line", torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 6.0]]), 6),
    ):
        own = 8 if shatters("half-spaces", x).shattered else 6
        own = growth("half-spaces", 3, d=2) if rule == "growth" else own
        yield equals(f"labellings of three points {name}", own, sides(x), by=rule)
        yield equals(f"linear programmes for three points {name}", sides(x), count)
    decimal = 10.0 ** -torch.arange(1, 9)[:, None]
    yield equals("8 points shattered by sines", shatters(sine_frequency, decimal).shattered, True)


def impossible(family: Any, x: Tensor, at: dict[str, Any]) -> Iterator[Evidence]:
    """Evidence that the labelling which is said to be missing cannot occur."""
    found = shatters(family, x)
    yield equals("one point more, shattered", found.shattered, False, **at)
    assert found.missing is not None
    ones = found.missing.bool()
    if "half-spaces" in family:
        weights = found.proof
        yield equals("points with Radon's weights", weights @ x, 0.0, tol=1e-9, **at)
        if family == "half-spaces":
            yield equals("sum of Radon's weights", weights.sum(), 0.0, tol=1e-9, **at)
        outwards = torch.where(ones, weights, -weights)
        yield at_least("weights of the ones, less those of zeros", outwards, 0.0, tol=0.0, **at)
        yield at_most("the least weight of a zero", weights[~ones].min(), -1e-9, tol=0.0, **at)
        return
    inside = x[found.proof]
    yield equals("label of the point inside", int(found.missing[found.proof]), 0, **at)
    yield at_least("its distance from the lower ends", inside - x[ones].amin(0), 0.0, **at)
    if family != "thresholds":
        yield at_least("its distance from the upper ends", x[ones].amax(0) - inside, 0.0, **at)


vc_dimension.erratum(
    "B-418",
    printed=r"Say that $\mathcal F$ shatters a set of $n$ points if $S_{\mathcal F}(n) = 2^n$",
    right=r"if all $2^n$ labellings of that set occur",
    why=r"Right only if read as 'some set': half-planes have $S(3) = 8$, yet three points on a line"
    r" get 6 labellings.",
    weight="soft",
    refuted_by="labellings of three points on a line",
    rule="growth",
)
vc_dimension.erratum(
    "C-275",
    printed=r"VC-dim($F$) := $\max_s \sup_{|S| = s} \mathbf 1[|F(S)| = 2^s]$",
    right=r"$\max \{s : \sup_{|S| = s} |F(S)| = 2^s\}$",
    why=r"A maximum of indicators is 0 or 1: it gives 1 for intervals instead of 2, and for"
    r" half-planes instead of 3.",
    weight="hard",
    refuted_by="largest size of a shattered set",
    maximised="indicator",
)
