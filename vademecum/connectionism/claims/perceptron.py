"""The perceptron rule: learning from mistakes alone."""

import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, lowest
from vademecum.connectionism import Perceptron, PerceptronPath, augment, perceptron_path

Rule = Literal["a tie is a mistake", "a tie is right", "every example"]
RULES: dict[Rule, Callable[[Tensor], Tensor]] = {
    "a tie is a mistake": lambda margin: margin <= 0,
    "a tie is right": lambda margin: margin < 0,
    "every example": lambda margin: torch.ones_like(margin, dtype=torch.bool),
}
"""Which examples call for an update, given their functional margins."""

ORDERS = ("cyclic", "shuffled", "worst")


def separated(n: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Integer points, labels, and an integer separator through the origin."""
    v = torch.randint(-3, 4, (d,))
    v[0] = 2
    x = torch.randint(-5, 6, (8 * n, d))
    x[::2, 0] = torch.randint(1, 6, (4 * n,))  # enough points off the hyperplane, come what may
    x = x[x @ v != 0][:n]
    return x, (x @ v).sign(), v


def unseparated(n: int, d: int) -> tuple[Tensor, Tensor]:
    """Integer points with random labels, and one of them with both."""
    x = torch.randint(-5, 6, (n, d))
    x[:2] = torch.randint(1, 6, (d,))
    y = torch.randint(0, 2, (n,)) * 2 - 1
    y[:2] = torch.tensor([1, -1])
    return x, y


def first_updates(x: Tensor, y: Tensor, updates: int, **options: Any) -> PerceptronPath:
    """A run that is cut off after some updates: without separability there is no end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return perceptron_path(x, y, max_iter=updates, **options)


def by_hand(x: Tensor, y: Tensor) -> tuple[int, list[int]]:
    """The cyclic rule in Python's integers: how many updates it makes, and the final weights."""
    theta, updates, since = [0] * x.shape[1], 0, 0
    examples = list(zip(x.tolist(), y.tolist(), strict=True))
    while since < len(examples):
        point, label = examples[0]
        examples.append(examples.pop(0))
        since += 1
        if label * sum(a * t for a, t in zip(point, theta, strict=True)) <= 0:
            theta = [t + label * a for a, t in zip(point, theta, strict=True)]
            updates, since = updates + 1, 0
    return updates, theta


def in_epochs(x: Tensor, y: Tensor, orders: list[list[int]]) -> tuple[list[int], int]:
    """The rule in Python's integers, one order after the other: final weights, and mistakes."""
    theta, mistakes = [0] * x.shape[1], 0
    examples = list(zip(x.tolist(), y.tolist(), strict=True))
    for point, label in (examples[i] for order in orders for i in order):
        if label * sum(a * t for a, t in zip(point, theta, strict=True)) <= 0:
            theta = [t + label * a for a, t in zip(point, theta, strict=True)]
            mistakes += 1
    return theta, mistakes


def many_examples(n: int = 300, d: int = 3, epochs: int = 3):
    """Two classes or three that nothing separates, in the given order or a random one."""
    x = torch.randint(-5, 6, (n, d))
    for classes, bias, shuffle in ((2, True, True), (3, True, False), (3, False, True)):
        labels = torch.randint(classes, (n,))
        options = {"shuffle": shuffle, "tol": None, "max_iter": epochs, "random_state": 7}
        unit = Perceptron(**options, fit_intercept=bias).fit(x.double(), labels)
        draw = np.random.RandomState(7).permutation
        orders = [draw(n).tolist() if shuffle else list(range(n)) for _ in range(epochs)]
        tilde, at = augment(x, float(bias)), {"classes": classes, "bias": bias}
        for k in range(1, 2) if classes == 2 else range(classes):
            sign = 2 * (labels == k).long() - 1
            theta, mistakes = in_epochs(tilde, sign, orders)
            row = 0 if classes == 2 else k
            found = torch.cat([unit.coef_[row], unit.intercept_[row : row + 1]])
            final = torch.tensor(theta) * torch.tensor([1] * d + [int(bias)])
            yield equals("weights after some epochs", found.long(), final, of=k, **at)
            made = torch.as_tensor(unit.mistakes_).flatten()[row]
            yield equals("mistakes in some epochs", int(made), mistakes, of=k, **at)
            if found[:d].any():  # weights of zero have no margin
                worst = (sign * (tilde.double() @ found)).min() / found[:d].norm()
                stated = torch.as_tensor(unit.margin_).flatten()[row]
                yield equals("margin that the estimator states", stated, worst, of=k, **at)
        yield equals("epochs", unit.n_iter_, epochs, **at)


@claim(
    by="identity",
    sources=("A-025", "B-040", "C-009", "C-010"),
    budget=0.5,
    short=r"y (\langle x, w \rangle + b) \le 0 \implies w \leftarrow w + y x,\ b \leftarrow b + y",
)
def perceptron_update(rule: Rule = "a tie is a mistake", step: int = 1, n: int = 30):
    r"""The perceptron rule learns from its mistakes, and ties are mistakes.

    If $y (\langle x, w \rangle + b) \le 0$ set $w \leftarrow w + y x$, $b \leftarrow b + y$
    (homogeneous: $\Delta\theta = y x$), otherwise change nothing. A point exactly on the boundary
    counts as a mistake, or nothing would ever happen from $\theta^0 = 0$. Each update raises the
    functional margin of its example by exactly $\|x\|^2 + 1$ (homogeneous: $\|x\|^2$). On separable
    data the cyclic rule ends without errors, after at most $\|\theta^*\|^2 R^2$ updates if
    $y \langle x, \theta^* \rangle \ge 1$ and $\|x\| \le R$ for all examples.

    *Check.* First the three points $(1, 0)$ and $(0, 1)$ with $y = 1$ and $(-1, -1)$ with $y = -1$,
    which 2 updates separate; then random integer points, against the rule in Python's integers.

    Knobs:
        rule: Which examples call for an update.
        step: The factor of $y x$ that an update is said to add to the weights.
        n: How many separable examples are drawn.
    """
    lowest("n", n, 10)
    three = torch.tensor([[1, 0], [0, 1], [-1, -1]]), torch.tensor([1, 1, -1])
    path = perceptron_path(*three, mistake=RULES[rule])
    yield equals("updates on the three points", len(path.examples), 2)
    for d in (1, 2, 4):
        x, y, v = separated(n, d)
        for bias in (0, 1):
            tilde = augment(x) if bias else x
            path = perceptron_path(tilde, y, mistake=RULES[rule])
            at = {"d": d, "bias": bias}
            shown, sign = tilde[path.examples], y[path.examples]
            change = path.weights.diff(dim=0)
            yield equals("change of the weights", change, step * sign[:, None] * shown, **at)
            rise = sign * (shown * path.weights[1:]).sum(1) - path.margins
            gain = step * (x[path.examples] ** 2).sum(1) + bias * step
            yield equals("rise of the functional margin", rise, gain, **at)
            left = y * (tilde @ path.weights[-1])
            yield at_least("functional margins in the end", left, 1, **at)
            radius2 = int((tilde**2).sum(1).max())
            yield at_most("updates", len(path.examples), int(v @ v) * radius2, **at)
            updates, weights = by_hand(tilde, y)
            yield equals("updates, against the rule by hand", len(path.examples), updates, **at)
            yield equals("final weights", path.weights[-1], weights, **at)
            fast = Perceptron(shuffle=False, tol=None, fit_intercept=bool(bias))
            fast.fit(x.double(), y)
            yield equals("mistakes of the estimator", fast.mistakes_, updates, **at)
            both = torch.cat([fast.coef_[0], fast.intercept_])[: d + bias]
            yield equals("final weights of the estimator", both.long(), weights, **at)
    yield from many_examples()


perceptron_update.foil(
    r"$w \leftarrow w - y x$ lowers the margin",
    refuted_by="rise of the functional margin",
    step=-1,
)
perceptron_update.erratum(
    "A-025",
    printed=r"$\Delta\theta=\mathbf 0$ if $y\cdot x^\top\theta\ge0$, else $yx$",
    right=r"$\Delta\theta=\mathbf 0$ if $y\cdot x^\top\theta>0$, else $yx$",
    why=r"the sheet's convergence theorem starts at $\theta^0=0$, where every $y\,x^\top\theta$ is "
    "0: the printed rule never updates and the classifier stays 0; on the separable points "
    "$(1,0)$ and $(0,1)$ with $y=+1$, $(-1,-1)$ with $y=-1$ it makes 0 updates, the rule with "
    r"$\le0$ as a mistake separates them after 2",
    rule="a tie is right",
)
perceptron_update.erratum(
    "B-040",
    printed=r"$\Delta\theta=\{0,\ y(x\cdot\theta)\geq0;\ yx,\ \text{otherwise}\}$",
    right=r"$\Delta\theta=\{0,\ y(x\cdot\theta)>0;\ yx,\ \text{otherwise}\}$",
    why=r"the same tie rule; with the start $\theta^0=0$ of the norm-growth lemma and Novikov's "
    "proof on the same sheet no update ever happens, for any data",
    rule="a tie is right",
)


@claim(
    by="sampling",
    sources=("A-026", "B-041"),
    budget=0.5,
    full={"updates": 5000},
    short=r"\langle \Delta\theta, \theta \rangle = y \langle x, \theta \rangle \le 0"
    r"\text{ at every update}",
)
def perceptron_obtuse_updates(
    rule: Rule = "a tie is a mistake", most: int = 0, updates: int = 300, n: int = 30
):
    r"""Perceptron updates point against the weights.

    At every update $\langle \Delta\theta, \theta \rangle = y \langle x, \theta \rangle \le 0$, and
    less than 0 unless the example lies on the boundary (as at the first update from 0): each
    correction forms a right or obtuse angle with the vector that it corrects, which is why the
    weights grow slowly. It takes no separability, and any order of the examples will do.

    Knobs:
        rule: Which examples call for an update.
        most: The largest value that $\langle \Delta\theta, \theta \rangle$ may have; it is whole.
        updates: How many updates of a run are looked at.
        n: How many examples a set has.
    """
    lowest("n", n, 2)
    for d in (1, 2, 5):
        for x, y in (unseparated(n, d), separated(n, d)[:2]):
            for order in ORDERS:
                path = first_updates(x, y, updates, order=order, mistake=RULES[rule])
                before, at = path.weights[:-1], {"d": d, "order": order}
                inner = (path.weights.diff(dim=0) * before).sum(1)
                yield at_most(r"$\langle \Delta\theta, \theta \rangle$", inner, most, **at)
                label_times_score = y[path.examples] * (x[path.examples] * before).sum(1)
                yield equals(
                    r"$\langle \Delta\theta, \theta \rangle - y \langle x, \theta \rangle$",
                    inner - label_times_score, 0, **at,
                )  # fmt: skip
                off = label_times_score != 0
                if off.any():
                    name = r"$\langle \Delta\theta, \theta \rangle$ off the boundary"
                    yield at_most(name, inner[off], -1, **at)


perceptron_obtuse_updates.foil("strictly obtuse: the first update from 0 is not", most=-1)
perceptron_obtuse_updates.foil(
    "adding $yx$ for examples that are classified correctly, too", rule="every example"
)


@claim(
    by="witness",
    sources=("B-042", "A-026"),
    budget=0.5,
    short=r"\Delta\theta^t = \Delta\theta^{t+1} \text{ is possible: the path may go straight on}",
)
def perceptron_straight_path(straight: int = 4):
    r"""The path of a perceptron need not zig-zag.

    Obtuse updates do not make the path alternate: while one example stays misclassified, the same
    step is repeated in a straight line. For $x_1 = (10, 1)$ and $x_2 = (-1, 1)$, both with
    $y = +1$, cycled from 0, the updates are $(10, 1)$ once and $(-1, 1)$ five times, which ends at
    $(5, 6)$: in 4 places an update is followed by itself.

    Knobs:
        straight: How many updates are said to be followed by themselves.
    """
    x = torch.tensor([[10, 1], [-1, 1]])
    path = perceptron_path(x, torch.tensor([1, 1]))
    updates = path.weights.diff(dim=0)
    yield equals("coordinates of the updates", updates, x[[0, 1, 1, 1, 1, 1]])
    inner = (updates * path.weights[:-1]).sum(1)
    yield equals(
        r"$\langle \Delta\theta, \theta \rangle$", inner, torch.tensor([0, -9, -7, -5, -3, -1])
    )
    yield equals("final weights", path.weights[-1], torch.tensor([5, 6]))
    repeated = int((updates[1:] == updates[:-1]).all(1).sum())
    yield equals("updates that are followed by themselves", repeated, straight)


perceptron_straight_path.erratum(
    "B-042",
    printed=r"the path always zig-zags, because $\Delta\theta\cdot\theta<0$ for updates",
    right="the path may go straight on: an update can be followed by the same one",
    why=r"on $x_1=(10,1),x_2=(-1,1)$, both positive, the first update gives $\theta=(10,1)$, and "
    r"the next five in a row are the same vector $(-1,1)$: a straight line, although each of the "
    r"five has $\Delta\theta\cdot\theta<0$",
    straight=0,
)
