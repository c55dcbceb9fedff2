"""What the course claims of the number of mistakes that a perceptron makes."""

import torch

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.connectionism.claims.perceptron import RULES, separated, unseparated
from vademecum.connectionism.margins import novikov_bound as bound
from vademecum.connectionism.mistake_path import perceptron_path
from vademecum.connectionism.perceptron import Perceptron

ORDERS = ("cyclic", "shuffled", "worst")


@claim(
    by="sampling",
    sources=("A-028", "A-029", "B-044", "B-045", "C-013"),
    budget=0.5,
    full={"updates": 5000},
)
def perceptron_norm_growth(
    rule: str = "a tie is a mistake", power: float = 1 / 2, updates: int = 500, n: int = 40
):
    r"""The weights of a perceptron grow at most like the root of the number of updates.

    From $\theta^0 = 0$, after $s$ updates on mistakes $(x^t, y^t)$:
    $\|\theta^s\|^2 \le \sum_{t=1}^s \|x^t\|^2$, hence $\|\theta^s\| \le R \sqrt{s}$ for
    $\|x\| \le R$, and $\le \sqrt{s}$ in the unit ball. No separability is needed. Orthogonal
    examples attain it.

    *Proof.* $\|\theta + \Delta\theta\|^2 = \|\theta\|^2 + 2 \langle \Delta\theta, \theta \rangle +
    \|x\|^2$, and the cross term is never positive.
    """
    once = torch.tensor([[3, 4]]), torch.tensor([1])
    cases = [once, *(unseparated(n, d) for d in (1, 2, 5))]
    for x, y in cases:
        for order in ORDERS:
            path = perceptron_path(x, y, order=order, mistake=RULES[rule], max_iter=updates)
            squares = (x[path.examples] ** 2).sum(1)
            norm2 = (path.weights[1:] ** 2).sum(1)
            yield at_most(norm2, squares.cumsum(0), d=x.shape[1], order=order)
    for d in (2, 5, 20):
        x, y = torch.eye(d), torch.where(torch.rand(d) < 0.5, 1.0, -1.0)
        path = perceptron_path(x, y, mistake=RULES[rule], max_iter=updates)
        s = torch.arange(1.0, d + 1)
        yield at_most(path.weights[1 : d + 1].norm(dim=1), s**power, d=d)
        integral = perceptron_path(torch.diag(torch.arange(1, d + 1)), y).weights
        yield equals((integral[1:] ** 2).sum(1), (torch.arange(1, d + 1) ** 2).cumsum(0), d=d)


perceptron_norm_growth.foil(
    "adding $yx$ for examples that are classified correctly, too", rule="every example"
)
perceptron_norm_growth.foil("the cube root, broken by two orthonormal examples", power=1 / 3)


@claim(by="sampling", sources=("A-032", "B-048", "C-012", "C-014"), budget=0.5)
def perceptron_alignment(start: int = 0, power: float = 1 / 2, sets: int = 3, n: int = 30):
    r"""The weights of a perceptron align with every separator.

    If a unit vector $\theta^*$ separates the data through the origin with margin $\gamma > 0$, and
    $\theta^0 = 0$, then $\langle \theta^s, \theta^* \rangle \ge s \gamma$ after $s$ updates:
    each adds $y \langle x, \theta^* \rangle \ge \gamma$. With the bound on the norm,

    $$1 \ge \cos \angle(\theta^*, \theta^s) \ge \frac{s \gamma}{R \sqrt{s}}
    = \frac{\gamma \sqrt{s}}{R}.$$

    The knob `start` starts at this multiple of the separator, `power` is that of $s$.
    """
    for d in (1, 2, 5):
        for _ in range(sets):
            x, y, v = separated(n, d)
            g, radius2 = int((y * (x @ v)).min()), int((x**2).sum(1).max())
            path = perceptron_path(x, y, theta0=start * v)
            s = torch.arange(1, len(path.weights))
            along, norm2 = path.weights[1:] @ v, (path.weights[1:] ** 2).sum(1)
            yield at_least(along, s * g, d=d)
            yield at_most(along**2, norm2 * (v @ v), d=d)
            yield at_most(norm2, radius2 * s, d=d)
    for d in (1, 4, 20):
        y = torch.where(torch.rand(d) < 0.5, 1.0, -1.0)
        theta = perceptron_path(torch.eye(d), y).weights[1:]
        cosine = theta @ y / (theta.norm(dim=1) * y.norm())
        gamma = 1 / y.norm()
        yield at_least(cosine, gamma * torch.arange(1.0, d + 1) ** power, d=d)


perceptron_alignment.foil("a start that points away", start=-10)
perceptron_alignment.foil(
    r"the cosine bound $s\gamma / R$ without the root, which exceeds 1", power=1.0
)


@claim(
    by="sampling",
    sources=("A-031", "A-032", "B-047", "B-048", "C-015"),
    budget=1.0,
    full={"sets": 200},
)
def novikov_bound(power: float = 2.0, start: int = 0, sets: int = 4, n: int = 30):
    r"""Novikov's bound on the mistakes of a perceptron.

    Started at $\theta^0 = 0$ on data with $\|x\| \le R$ that some unit vector separates through
    the origin with margin $\gamma > 0$, the perceptron makes at most $R^2 / \gamma^2$ updates, in
    any order of presentation ($\gamma^{-2}$ in the unit ball). Orthonormal examples $y_i e_i$,
    $i \le d$, attain the bound: $\gamma = 1 / \sqrt{d}$ and exactly $d$ updates.

    *Proof.* $s \gamma \le \langle \theta^s, \theta^* \rangle \le \|\theta^s\| \le R \sqrt{s}$.
    (Novikoff, 1962.)

    The knob `power` is that of $R / \gamma$; `start` is where a one-dimensional run starts.
    """
    for d in (1, 2, 4):
        for _ in range(sets):
            x, y, v = separated(n, d)
            g, radius2 = int((y * (x @ v)).min()), int((x**2).sum(1).max())
            least = bound(x.double(), y)
            yield at_most(least, bound(x.double(), y, theta=v.double()), d=d)
            for order in ORDERS:
                updates = len(perceptron_path(x, y, order=order).examples)
                yield at_most(updates * g**2, radius2 * int(v @ v), d=d, order=order)
                yield at_most(updates, least ** (power / 2), d=d, order=order)
            fast = Perceptron(tol=None, random_state=0).fit(x.double(), y)
            yield at_most(fast.mistakes_, fast.novikov_bound_, d=d)
    for d in range(1, 21):
        y = torch.where(torch.rand(d) < 0.5, 1, -1)
        updates = len(perceptron_path(torch.eye(d), y).examples)
        yield equals(updates, bound(torch.eye(d), y) ** (power / 2), d=d)
    one = torch.ones(1, 1, dtype=torch.int64), torch.ones(1, dtype=torch.int64)
    path = perceptron_path(*one, theta0=torch.tensor([start]))
    yield at_most(len(path.examples), 1, start=start)


novikov_bound.foil(r"$R / \gamma$ without the square", power=1.0)
novikov_bound.erratum(
    "C-015",
    printed=r"$\exists w,\|w\|=1$ with $\gamma[w](S)=\gamma>0\Rightarrow\dots\Rightarrow "
    r"t\leq\frac{R^2}{\gamma^2}$, with $w^0\in\operatorname{span}(x_1,\dots,x_s)$ "
    "as the only condition on the start",
    right=r"the same with the hypothesis $w^0=0$",
    why=r"on $S=\{(1,+1)\}$ with $w^0=-10$, which lies in the span, $R=\gamma=1$ allow one update, "
    "and 11 are made",
    weight="soft",
    start=-10,
)
