"""Novikov's theorem: how many mistakes a perceptron can make."""

from itertools import combinations

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, lowest
from vademecum.connectionism import Perceptron, perceptron_path
from vademecum.connectionism import novikov_bound as bound
from vademecum.connectionism.claims.perceptron import (
    ORDERS,
    RULES,
    Rule,
    first_updates,
    separated,
    unseparated,
)


@claim(
    by="sampling",
    sources=("A-028", "A-029", "B-044", "B-045", "C-013"),
    budget=0.5,
    full={"updates": 5000},
    short=r"\theta^0 = 0 \implies \|\theta^s\|^2 \le \textstyle\sum_{t \le s} \|x^t\|^2 \le R^2 s",
)
def perceptron_norm_growth(
    rule: Rule = "a tie is a mistake", power: float = 1 / 2, updates: int = 500, n: int = 40
):
    r"""The weights of a perceptron grow at most like the root of the number of updates.

    From $\theta^0 = 0$, after $s$ updates on mistakes $(x^t, y^t)$:
    $\|\theta^s\|^2 \le \sum_{t=1}^s \|x^t\|^2$, hence $\|\theta^s\| \le R \sqrt{s}$ for
    $\|x\| \le R$, and $\le \sqrt{s}$ in the unit ball. No separability is needed. Orthogonal
    examples attain it.

    *Proof.* $\|\theta + \Delta\theta\|^2 = \|\theta\|^2 + 2 \langle \Delta\theta, \theta \rangle +
    \|x\|^2$, and the cross term is never positive.

    Knobs:
        rule: Which examples call for an update.
        power: The exponent of $s$ in the bound on $\|\theta^s\|$.
        updates: How many updates of a run are looked at.
        n: How many examples with random labels a set has.
    """
    lowest("n", n, 2)
    once = torch.tensor([[3, 4]]), torch.tensor([1])
    cases = [once, *(unseparated(n, d) for d in (1, 2, 5))]
    for x, y in cases:
        radius = float((x**2).sum(1).max()) ** 0.5
        for order in ORDERS:
            path = first_updates(x, y, updates, order=order, mistake=RULES[rule])
            squares = (x[path.examples] ** 2).sum(1)
            norm2, at = (path.weights[1:] ** 2).sum(1), {"d": x.shape[1], "order": order}
            yield at_most(r"$\|\theta^s\|^2$", norm2, squares.cumsum(0), **at)
            s = torch.arange(1.0, len(norm2) + 1)
            yield at_most(r"$\|\theta^s\|$", norm2.double().sqrt(), radius * s**power, **at)
    for d in (2, 5, 20):
        x, y = torch.eye(d), torch.where(torch.rand(d) < 0.5, 1.0, -1.0)
        path = first_updates(x, y, updates, mistake=RULES[rule])
        lengths = path.weights[1 : d + 1].norm(dim=1)
        s = torch.arange(1.0, len(lengths) + 1)
        yield at_most(r"$\|\theta^s\|$ for orthonormal examples", lengths, s**power, d=d)
        integral = perceptron_path(torch.diag(torch.arange(1, d + 1)), y).weights
        squares = (torch.arange(1, d + 1) ** 2).cumsum(0)
        norm2 = (integral[1:] ** 2).sum(1)
        yield equals(r"$\|\theta^s\|^2$ for orthogonal examples", norm2, squares, d=d)


perceptron_norm_growth.foil(
    "adding $yx$ for examples that are classified correctly, too", rule="every example"
)
perceptron_norm_growth.foil(
    "the cube root, broken by two orthonormal examples",
    refuted_by=r"$\|\theta^s\|$ for orthonormal examples",
    power=1 / 3,
)


@claim(
    by="sampling",
    sources=("A-032", "B-048", "C-012", "C-014"),
    budget=0.5,
    short=r"\|x\| \le R, \theta^* \text{ of margin } \gamma > 0, \theta^0 = 0:"
    r" \cos\angle(\theta^*, \theta^s) \ge \gamma \sqrt s / R",
)
def perceptron_alignment(start: int = 0, power: float = 1 / 2, sets: int = 3, n: int = 30):
    r"""The weights of a perceptron align with every separator.

    If a unit vector $\theta^*$ separates the data through the origin with margin $\gamma > 0$, and
    $\theta^0 = 0$, then $\langle \theta^s, \theta^* \rangle \ge s \gamma$ after $s$ updates:
    each adds $y \langle x, \theta^* \rangle \ge \gamma$. With the bound on the norm,

    $$1 \ge \cos \angle(\theta^*, \theta^s) \ge \frac{s \gamma}{R \sqrt{s}}
    = \frac{\gamma \sqrt{s}}{R}.$$

    Orthonormal examples attain all of these bounds.

    Knobs:
        start: The multiple of the separator at which the runs start.
        power: The exponent of $s$ in the bound on the cosine.
        sets: How many sets of examples are drawn in each dimension.
        n: How many examples a set has.
    """
    for d in (1, 2, 5):
        for _ in range(sets):
            x, y, v = separated(n, d)
            g, radius2 = int((y * (x @ v)).min()), int((x**2).sum(1).max())
            path = perceptron_path(x, y, theta0=start * v)
            s = torch.arange(1, len(path.weights))
            along, norm2 = path.weights[1:] @ v, (path.weights[1:] ** 2).sum(1)
            yield at_least(r"$\langle \theta^s, v \rangle$ for a separator $v$", along, s * g, d=d)
            yield at_most(r"$\|\theta^s\|^2$", norm2, radius2 * s, d=d)
            cosine = along / (norm2 * (v @ v)).double().sqrt()
            gamma = g / float(v @ v) ** 0.5
            least = gamma * s**power / radius2**0.5
            yield at_least("cosine to a separator", cosine, least, d=d)
    for d in (1, 4, 20):
        y = torch.where(torch.rand(d) < 0.5, 1.0, -1.0)
        theta = perceptron_path(torch.eye(d), y).weights[1:]
        cosine = theta @ y / (theta.norm(dim=1) * y.norm())
        gamma = 1 / y.norm()
        least = gamma * torch.arange(1.0, d + 1) ** power
        yield equals("cosine for orthonormal examples", cosine, least, d=d)


perceptron_alignment.foil("a start that points away", start=-10)
perceptron_alignment.foil(
    r"the cosine bound $s\gamma / R$ without the root, which exceeds 1",
    refuted_by="cosine for orthonormal examples",
    power=1.0,
)


def largest_margin_in_the_plane(z: Tensor) -> float:
    r"""The largest $\min_i \langle z_i, \theta \rangle$ over unit vectors of the plane.

    It is the least norm in the hull of the points, which a point or an edge attains: so the best
    direction is that of a point, or at a right angle to the line through two.
    """
    lines = torch.stack([(z[i] - z[j]).flip(0) for i, j in combinations(range(len(z)), 2)])
    lines[:, 0] *= -1
    normals = torch.cat([z, lines, -lines])
    normals = normals[(normals != 0).any(1)]
    return float((z @ normals.T / normals.norm(dim=1)).amin(0).max())


@claim(
    by="sampling",
    sources=("A-031", "A-032", "B-047", "B-048", "C-015"),
    budget=1.0,
    full={"sets": 200},
    short=r"\theta^0 = 0,\ \|x\| \le R,\ \text{margin } \gamma > 0"
    r" \implies \#\text{updates} \le R^2 / \gamma^2",
)
def novikov_bound(power: float = 2.0, start: int = 0, sets: int = 3, n: int = 30):
    r"""Novikov's bound on the mistakes of a perceptron.

    Started at $\theta^0 = 0$ on data with $\|x\| \le R$ that some unit vector separates through
    the origin with margin $\gamma > 0$, the perceptron makes at most $R^2 / \gamma^2$ updates, in
    any order of presentation ($\gamma^{-2}$ in the unit ball). Orthonormal examples $y_i e_i$,
    $i \le d$, attain the bound: $\gamma = 1 / \sqrt{d}$ and exactly $d$ updates.

    *Proof.* $s \gamma \le \langle \theta^s, \theta^* \rangle \le \|\theta^s\| \le R \sqrt{s}$.
    (Novikoff, 1962.)

    Knobs:
        power: The exponent of $R / \gamma$ in the bound.
        start: Where the run on the single example $x = 1$, $y = 1$ starts.
        sets: How many sets of examples are drawn in each dimension.
        n: How many examples a set has.
    """
    for d in (1, 2, 4):
        for _ in range(sets):
            x, y, v = separated(n, d)
            g, radius2 = int((y * (x @ v)).min()), int((x**2).sum(1).max())
            least, given = bound(x.double(), y), bound(x.double(), y, theta=v.double())
            yield equals("bound by a given separator", given, radius2 * int(v @ v) / g**2, d=d)
            yield at_most("bound by the best separator", least, given, d=d)
            if d <= 2:
                z = torch.cat([y[:, None] * x, torch.zeros(n, 2 - d)], 1)[:, :2]
                best = radius2 / largest_margin_in_the_plane(z) ** 2
                name = "bound by the best separator, relative to plane geometry"
                yield equals(name, least / best, 1.0, d=d)
            for order in ORDERS:
                updates = len(perceptron_path(x, y, order=order).examples)
                most = radius2 * int(v @ v)
                name = r"updates times the least $\langle x, v \rangle^2$"
                yield at_most(name, updates * g**2, most, d=d, order=order)
                yield at_most("updates", updates, least ** (power / 2), d=d, order=order)
            fast = Perceptron(tol=None, random_state=0).fit(x.double(), y)
            yield at_most("mistakes of the estimator", fast.mistakes_, fast.novikov_bound_, d=d)
            lifted = torch.cat([x, torch.ones(n, 1)], 1)
            w = torch.cat([fast.coef_[0], fast.intercept_])
            own = (lifted**2).sum(1).max() * (w @ w) / (y * (lifted @ w)).min() ** 2
            yield equals("bound that the estimator states", fast.novikov_bound_, own, d=d)
    for d in range(1, 21):
        y = torch.where(torch.rand(d) < 0.5, 1, -1)
        updates = len(perceptron_path(torch.eye(d), y).examples)
        most = bound(torch.eye(d), y) ** (power / 2)
        yield equals("updates on orthonormal examples", updates, most, d=d)
        yield equals("updates, one for each orthonormal example", updates, d, d=d)
    one = torch.ones(1, 1, dtype=torch.int64), torch.ones(1, dtype=torch.int64)
    path = perceptron_path(*one, theta0=torch.tensor([start]))
    yield at_most("updates on the single example 1", len(path.examples), 1, start=start)


novikov_bound.foil(
    r"$R / \gamma$ without the square, broken by two orthonormal examples",
    refuted_by="updates on orthonormal examples",
    power=1.0,
)
novikov_bound.erratum(
    "C-015",
    printed=r"$\exists w,\|w\|=1$ with $\gamma[w](S)=\gamma>0\Rightarrow\dots\Rightarrow "
    r"t\leq\frac{R^2}{\gamma^2}$, with $w^0\in\operatorname{span}(x_1,\dots,x_s)$ "
    "as the only condition on the start",
    right=r"the same with the hypothesis $w^0=0$",
    why=r"the hypothesis $w^0=0$ is missing: on $S=\{(1,+1)\}\subset\mathbb R$ with $w^0=-10$ in "
    r"the span, $R=\gamma=1$ allows one update but 11 are made, and $w^t\cdot w=t-10<t\gamma$",
    weight="soft",
    start=-10,
)
