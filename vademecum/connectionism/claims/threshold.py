"""Threshold units: the hyperplane that is their boundary."""

from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals, integers
from vademecum.connectionism import Perceptron, augment, signed_distance
from vademecum.connectionism.claims.perceptron import first_updates


def unit(w: Tensor, b: float) -> Perceptron:
    """A threshold unit with these weights, without learning."""
    made = Perceptron()
    made.classes_, made.n_features_in_ = torch.tensor([-1, 1]), len(w)
    made.coef_, made.intercept_ = w[None], torch.tensor([float(b)])
    return made


@claim(
    by="identity",
    sources=("A-024", "B-039", "C-001", "C-002"),
    budget=0.5,
    short=r"f[w, b](x) = \operatorname{sign}(\langle x, w \rangle + b) = f[cw, cb](x), \ c > 0",
)
def threshold_unit(
    scales: tuple[float, ...] = (0.5, 3.0), scale_bias: bool = True, see_bias: bool = True
):
    r"""A linear threshold unit answers with the side of a hyperplane.

    $f[w, b](x) = \operatorname{sign}(\langle x, w \rangle + b) \in \{-1, +1\}$ with
    $\langle x, w \rangle = \sum_i x_i w_i$. On the boundary, where the sum is 0, the answer is a
    convention: here $-1$. The unit is the same for $(w, b)$ and $c\,(w, b)$, $c > 0$, and answers
    the opposite off the boundary for $c < 0$.

    Knobs:
        scales: The factors $c$ that are to leave the answers as they are.
        scale_bias: Whether the bias is multiplied by $c$ together with the weights.
        see_bias: Whether the sum that decides contains the bias.
    """
    cases = [(torch.ones(1), -2.0, torch.ones(1, 1))]
    cases += [(integers(d), float(integers(1)), integers(30, d)) for d in (1, 2, 5, 8)]
    for w, b, x in cases:
        sums = [sum(int(v) * int(u) for v, u in zip(row, w, strict=True)) for row in x]
        sums = torch.tensor(sums) + int(b) * see_bias
        signs = torch.where(sums > 0, 1, -1)
        yield equals("answer", unit(w, b).predict(x), signs, d=len(w))
        for c in scales:
            scaled = unit(c * w, c * b if scale_bias else b)
            yield equals("answer after scaling", scaled.predict(x), signs, d=len(w), c=c)
        opposite = unit(-w, -b).predict(x)
        wanted = torch.where(sums == 0, -1, -signs)
        yield equals("answer of the opposite unit", opposite, wanted, d=len(w))
        on_boundary = unit(w, float(-x[0] @ w)).predict(x[:1])
        yield equals("answer on the boundary", on_boundary, -1, d=len(w))


threshold_unit.foil("the weights are scaled, the bias is not", scale_bias=False)
threshold_unit.foil("a negative factor swaps the sides", scales=(-1.0,))
threshold_unit.foil(r"$\langle x, w \rangle$ compared with 0 although $b \ne 0$", see_bias=False)


@claim(
    by="identity",
    sources=("C-003", "C-004"),
    budget=0.5,
    full={"others": 20_000},
    short=r"\operatorname{dist}(x, \{z : \langle z, w \rangle + b = 0\})"
    r" = |\langle x, w \rangle + b| / \|w\|",
)
def hyperplane_distance(
    distance: Callable[[Tensor, float, Tensor], Tensor] = signed_distance,
    origin: int = 1,
    others: int = 1000,
):
    r"""Signed distance of a point to the boundary of a threshold unit.

    The boundary is the hyperplane $\{x : \langle x, w \rangle + b = 0\}$ with normal $w \ne 0$.
    Dividing by $\|w\|$ leaves it as it is and turns $\frac{\langle x, w \rangle + b}{\|w\|}$ into
    the signed Euclidean distance of $x$ to it; the origin lies at signed distance $b / \|w\|$.

    *Proof.* $x_\perp = x - \frac{\langle x, w \rangle + b}{\|w\|^2} w$ is on the plane, and
    $x - x_\perp$ is orthogonal to it, so no point of the plane is nearer (Pythagoras).

    Knobs:
        distance: The formula of the signed distance, a function of $w$, $b$ and $x$.
        origin: The sign of $b / \|w\|$ in the signed distance of the origin.
        others: How many points of the plane are drawn, none of which may be nearer.
    """
    cases = [(torch.tensor([3.0, 4.0]), 5.0, torch.tensor([1.0, 2.0]))]
    for d in range(1, 9):
        w = integers(d)
        w[0] = torch.randint(2, 9, ()).item()
        cases.append((w, float(torch.randint(1, 9, ())), integers(d)))
    for w, b, x in cases:
        d = len(w)
        w_, x_ = ([Fraction(int(v)) for v in t] for t in (w, x))
        norm2 = sum(v * v for v in w_)
        shift = (sum(a * c for a, c in zip(w_, x_, strict=True)) + Fraction(b)) / norm2
        foot = [a - shift * c for a, c in zip(x_, w_, strict=True)]
        length = float(sum((a - c) ** 2 for a, c in zip(x_, foot, strict=True))) ** 0.5
        signed = length if shift >= 0 else -length
        yield equals("signed distance", distance(w, b, x), signed, d=d)
        foot = torch.tensor([float(v) for v in foot])
        yield equals("signed distance of the foot", distance(w, b, foot), 0.0, d=d)
        along = torch.randn(others, d)
        plane = foot + along - (along @ w)[:, None] * w / (w @ w)
        to_others = (plane - x).norm(dim=1)
        yield at_most("distance to the nearest point", distance(w, b, x).abs(), to_others, d=d)
        sides = torch.stack([foot + w / 100, foot - w / 100])
        signs = torch.tensor([1.0, -1.0])
        yield equals(
            "sign of the distance on either side", distance(w, b, sides).sign(), signs, d=d
        )
        of_origin = distance(w, b, torch.zeros(d))
        yield equals("signed distance of the origin", of_origin, origin * b / w.norm(), d=d)


hyperplane_distance.foil(
    r"without dividing by $\|w\|$, 5 times too far for $w = (3, 4)$",
    distance=lambda w, b, x: x @ w + b,
)
hyperplane_distance.foil(r"the origin at $-b / \|w\|$", origin=-1)


@claim(
    by="identity",
    sources=("C-005", "C-010"),
    budget=0.5,
    short=r"\langle x, w \rangle + b = \langle (x, 1), (w, b) \rangle",
)
def bias_absorption(conventions: tuple[tuple[int, int], ...] = ((1, 1), (-1, -1))):
    r"""The bias is the weight of a constant coordinate.

    With $\tilde x = (x, 1)$ and $\tilde w = (w, b)$ the unit becomes homogeneous,
    $\langle x, w \rangle + b = \langle \tilde x, \tilde w \rangle$, and the perceptron step
    $\tilde w \leftarrow \tilde w + y \tilde x$ is $w \leftarrow w + y x$, $b \leftarrow b + y$. If
    the unit is written with a threshold, $\langle x, w \rangle - b$, the constant coordinate is
    $-1$ and the step is $b \leftarrow b - y$.

    Knobs:
        conventions: Pairs of the constant coordinate and of the sign of $b$ in the unit.
    """
    for constant, sign in conventions:
        witness = augment(torch.zeros(1, 1), constant) @ torch.tensor([0.0, 1.0])
        yield equals(
            "value of the augmented unit for $x = 0$, $w = 0$, $b = 1$",
            witness,
            sign * 1.0,
            constant=constant,
        )
        for d in (1, 2, 5):
            w, b, x = integers(d), float(integers(1)), integers(20, d)
            values = augment(x, constant) @ torch.cat([w, torch.tensor([b])])
            yield equals(
                "value of the augmented unit", values, x @ w + sign * b, d=d, constant=constant
            )
            y = torch.where(torch.rand(20) < 0.5, 1.0, -1.0)
            tilde = first_updates(augment(x, constant), y, 100).weights
            w, b, run, start = torch.zeros(d), 0.0, [torch.zeros(d + 1)], 0
            while len(run) < len(tilde):
                i, start = start % 20, start + 1
                if y[i] * (x[i] @ w + sign * b) <= 0:
                    w, b = w + y[i] * x[i], b + sign * float(y[i])
                    run.append(torch.cat([w, torch.tensor([b])]))
            run = torch.stack(run)
            yield equals(r"$\tilde w$ after each update", tilde, run, d=d, constant=constant)


bias_absorption.foil("a constant 1 for a unit with a threshold", conventions=((1, -1),))
bias_absorption.erratum(
    "C-005",
    printed=r"$x\cdot w-b=(x,-1)\cdot(w,b)=:\tilde x\cdot\tilde w$",
    right=r"$x\cdot w+b=(x,1)\cdot(w,b)=:\tilde x\cdot\tilde w$",
    why=r"true in itself, but the unit, the boundary, the margin and the update "
    r"$b\leftarrow b+y$ in the same box all use $x\cdot w+b$; on $\tilde x=(x,-1)$ the sheet's own "
    r"rule gives $b\leftarrow b-y$, and with $x=0,w=0,b=1$ the unit outputs $+1$, the augmented "
    "one $-1$",
    weight="soft",
    conventions=((-1, 1),),
)
