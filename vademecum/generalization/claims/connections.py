"""Minima and each other: paths between them, and the sparse networks inside a large one."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.generalization import align
from vademecum.generalization import lottery_ticket as found_ticket
from vademecum.generalization import mode_connectivity as measured
from vademecum.models import mlp
from vademecum.regularization import permute_units

SHORT: Any = {"points": 101}


def hinges(inner: Tensor, outer: Tensor) -> Any:
    """The network with these weights; the last column of the inner ones is the bias."""
    k, d = inner.shape
    model: Any = nn.Sequential(nn.Linear(d - 1, k), nn.ReLU(), nn.Linear(k, 1, bias=False))
    model[0].weight.data, model[0].bias.data = inner[:, :-1].clone(), inner[:, -1].clone()
    model[2].weight.data = outer[None].clone()
    return model


def by_hand(inner: Tensor, outer: Tensor, x: Tensor) -> np.ndarray:
    """Its outputs by the formula."""
    z = x.numpy() @ inner[:, :-1].numpy().T + inner[:, -1].numpy()
    return np.maximum(z, 0) @ outer.numpy()


def logistic(z: Tensor, y: Tensor) -> Tensor:
    """The mean logistic loss, for labels of both signs (softplus is linear beyond 20)."""
    return -F.logsigmoid(y.sign() * z).mean()


def value(kind: str, z: np.ndarray, y: np.ndarray) -> float:
    """The mean loss by its formula."""
    if kind == "squares":
        return float(np.mean((z - y) ** 2))
    return float(np.mean(np.logaddexp(0, -np.sign(y) * z)))


def rounding(kind: str, z: np.ndarray, y: np.ndarray, sizes: np.ndarray, terms: int) -> float:
    r"""How far rounding may take the mean loss from its value, as a share of that.

    A sum of so many products, two of them nested, errs by at most $\gamma$ times the sum of their
    sizes $s$, whatever its order, with $\gamma = 2 m \epsilon$ for both sides together. The
    logistic loss has slopes up to 1 and so errs by the mean of $\gamma s$; the mean square by $2
    \gamma\, \|s\| \|z - y\| / n$ and its square. Both sum over the examples, up to $\gamma$.
    """
    gamma = 2 * terms * float(np.finfo(z.dtype).eps)
    if kind == "squares":
        off = gamma * float(np.linalg.norm(sizes + np.abs(y)) / np.linalg.norm(z - y))
        return gamma + 2 * off + off**2
    return gamma + gamma * float(np.mean(sizes)) / value(kind, z, y)


@claim(
    by="identity", sources=("C-288",), budget=0.9,
    short=r"L(\phi(t)) \le \max(L_A, L_B),\quad \phi: A \to (W_A, W_B; v_A, 0) \to"
    r" (W_A, W_B; 0, v_B) \to B",
)  # fmt: skip
def mode_connectivity(
    first: Literal["inputs", "outputs"] = "inputs", path: Literal["aligned", "line"] = "aligned"
) -> Iterator[Evidence]:
    r"""Mode connectivity.

    Minima of overparametrised networks that were trained apart can mostly be joined by simple
    curves of low loss, though not by the segment between them (an observation, quoted). A case with
    a proof: two networks $A$, $B$ of width $k$, each in width $2 k$ with $k$ idle units, are joined
    by three segments on which a convex loss never exceeds the larger end value. The first gives the
    idle units, whose output weights are zero, the input weights of $B$; the second moves the output
    weights from those of $A$ to those of $B$, and there the network is $(1 - t) f_A + t f_B$; the
    third releases the units of $A$, which are idle now.

    The straight segment does not always work: between $(x)_+ - (-x)_+ = x$ and its copy with the
    two units exchanged, which is the same function, the network halfway is zero, and the barrier is
    the mean square of the labels $y = x$. Put in order by `align` the copy is the network itself;
    so are copies of random networks whose units were permuted.

    `mode_connectivity` at 101 points of each segment, for the mean squared loss and two sizes, and
    for the logistic loss and one, against NumPy.

    Knobs:
        first: What the first segment moves: the idle units' input weights, or the output weights.
        path: The path to the copy with other units.
    """
    for d, k, n in ((3, 5, 50), (2, 4, 30)):
        x, y = torch.randn(n, d), torch.randn(n)
        (W_a, W_b, idle), (v_a, v_b) = torch.randn(3, k, d + 1), torch.randn(2, k)
        none = torch.zeros(k)
        nodes = [((W_a, idle), (v_a, none)), ((W_a, W_b), (v_a, none)),
                 ((W_a, W_b), (none, v_b)), ((idle, W_b), (none, v_b))]  # fmt: skip
        if first == "outputs":
            nodes[1] = ((W_a, idle), (none, v_b))
        models = [hinges(torch.cat(inner), torch.cat(outer)) for inner, outer in nodes]
        f, s = np.stack([by_hand(W_a, v_a, x), by_hand(W_b, v_b, x)]), summed(W_a, v_a, W_b, v_b, x)
        for kind, loss in (("squares", F.mse_loss), ("logistic", logistic))[: 2 if k == 5 else 1]:
            runs = [measured(a, b, x, y[:, None], loss=loss, **SHORT) for a, b in pairwise(models)]
            yield from three_segments(kind, runs, f, s, y.numpy(), k)
    yield from exchanged(path)


def summed(*weights_and_inputs: Tensor) -> np.ndarray:
    """The sizes of all products in both networks' outputs, added up."""
    W_a, v_a, W_b, v_b, x = (t.abs() for t in weights_and_inputs)
    return np.stack([by_hand(W_a, v_a, x), by_hand(W_b, v_b, x)])


def three_segments(
    kind: str, runs: list[Any], f: np.ndarray, sizes: np.ndarray, y: np.ndarray, k: int
) -> Iterator[Evidence]:
    """The losses on the segments, against the two networks' outputs."""
    at = dict[str, Any](loss=kind, k=k)
    terms = 4 + 2 * k + len(y) + 10  # inputs, units, examples; and what else a step rounds
    t = np.linspace(0, 1, 101)[:, None]
    means, spread = (1 - t) * f[0] + t * f[1], (1 - t) * sizes[0] + t * sizes[1]
    mixed = torch.tensor([value(kind, z, y) for z in means])
    tols = [rounding(kind, z, y, s, terms) for z, s in zip(means, spread, strict=True)]
    yield equals("loss on the first segment, over that of A", runs[0].losses / mixed[0], 1.0,
                 tol=tols[0], **at)  # fmt: skip
    yield equals("loss on the second segment, over that of the mean", runs[1].losses / mixed, 1.0,
                 tol=max(tols), **at)  # fmt: skip
    yield equals("loss on the third segment, over that of B", runs[2].losses / mixed[-1], 1.0,
                 tol=tols[-1], **at)  # fmt: skip
    larger = max(mixed[0], mixed[-1])
    for i, run in enumerate(runs):
        yield at_most("loss on the path, over the larger end", run.losses / larger, 1.0,
                      tol=max(tols), **at, segment=i + 1)  # fmt: skip
        straight = (1 - run.t) * run.losses[0] + run.t * run.losses[-1]
        height = float((run.losses - straight).max())
        yield equals("barrier", run.barrier, height, tol=1e-12, **at, segment=i + 1)


def exchanged(path: str) -> Iterator[Evidence]:
    """Networks and their copies with other units."""
    pair, x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.randn(20, 1)
    a = hinges(pair, torch.tensor([1.0, -1.0]))
    b = permute_units(a, x[:1], permutations={"0": torch.tensor([1, 0])}).model
    square, at = float(x.square().mean()), dict[str, Any](units=2)
    line = measured(a, b, x, x, **SHORT)
    yield equals("barrier of the segment over the mean square", line.barrier / square, 1.0, **at)
    found = measured(a, b, x, x, path=path, **SHORT)
    yield equals("barrier to the copy over the mean square", found.barrier / square, 0.0,
                 tol=1e-12, **at)  # fmt: skip
    for sizes in ((3, 7, 5, 2), (2, 6, 2)):
        model, x = mlp(list(sizes)), torch.randn(15, sizes[0])
        y = model(x).detach()
        change = permute_units(model, x[:1])
        at = dict[str, Any](layers=len(sizes) - 1)
        back = align(model, change.model, x)
        for layer, order in change.layers.items():
            yield equals("order found, behind the one made", order[back.permutations[layer]],
                         torch.arange(len(order)), **at)  # fmt: skip
        yield equals("distance after alignment", back.distance, 0.0, tol=0.0, **at)
        found = measured(model, change.model, x, y, path="aligned", points=11)
        yield at_most("loss on the aligned segment", found.losses, 0.0, tol=1e-20, **at)


mode_connectivity.foil(
    "the straight segment always works",
    refuted_by="barrier to the copy over the mean square",
    path="line",
)
mode_connectivity.foil("the output weights move first", first="outputs")


def parity_like(n: int) -> tuple[Tensor, Tensor]:
    """Thirty signs, of which four decide."""
    x = 2.0 * torch.randint(2, (n, 30), dtype=torch.float32) - 1
    return x, (x[:, 0] * x[:, 1] + x[:, 2] * x[:, 3] + x[:, 0] / 2 > 0).long()


@claim(
    by="training", sources=("C-289",), budget=3.0, full={"repeats": 16, "updates": 200},
    short=r"\theta_0 \odot m \to \theta_T,\quad m \leftarrow \text{largest } |\theta_T|,\quad"
    r" \mathrm{acc}(m) \ge \mathrm{acc}(1)",
)  # fmt: skip
def lottery_ticket(
    rewound: bool = True,
    mask: Literal["found", "random"] = "found",
    repeats: int = 3,
    updates: int = 80,
) -> Iterator[Evidence]:
    r"""Lottery ticket hypothesis.

    A large network with random weights contains sparse subnetworks that, trained alone from their
    original weights, reach the accuracy of the whole; they are found by iterative magnitude pruning
    with rewinding, and a random mask of the same size does worse. (An observation; how much the
    original weights matter beside the mask depends on the task.)

    Two-layer ReLU networks of 30 units on 30 signs of which four decide the label; 400 examples,
    full-batch Adam, two prunings to 4 % of the first layer's 900 weights. On new examples the
    ticket's accuracy is 0.9 at least, at least that of the whole network less 0.01, and above that
    of random masks by 0.05 or more, in the mean over the repeats. (Observed for one repeat: 1.00,
    against $0.77 \pm 0.02$ and $0.66 \pm 0.11$.) The masks are counted and the first weights
    compared; and all rounds are made again in NumPy for a small network and 4 steps of gradient
    descent, which rounding cannot part.

    Knobs:
        rewound: Whether a ticket begins with the network's first weights, or with trained ones.
        mask: Which mask is said to be a ticket.
        repeats: How many networks are pruned.
        updates: How many steps each training has.
    """
    yield from rounds_by_hand()
    scores = []
    for r in range(repeats):
        (x, y), test = parity_like(400), parity_like(1000)
        model: Any = nn.Sequential(nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 2)).float()
        found = found_ticket(
            model, x, y, test=test, keep=0.04, prunings=2, prune=["0.weight"], updates=updates,
            eta=0.05,
        )  # fmt: skip
        masks = [each["0.weight"] for each in found.masks]
        yield equals("weights that are left", [int(m.sum()) for m in masks], [180, 36], r=r)
        said = (model if rewound else found.model).get_parameter("0.weight")
        gap = (found.start.get_parameter("0.weight") - said * masks[-1]).detach().abs().max()
        yield equals("first weights of the ticket, less those stated", gap, 0.0, tol=0.0, r=r)
        ticket = found.scores if mask == "found" else found.control_scores
        scores.append([ticket[-1], found.scores[0], found.control_scores[-1]])
    ticket, whole, random = torch.tensor(scores).mean(0)
    yield at_least("accuracy of the ticket on new examples", ticket, 0.9)
    yield at_least("accuracy of the ticket, less the whole network's", ticket - whole, -0.01)
    yield at_least("accuracy of the ticket, less random masks'", ticket - random, 0.05)


def rounds_by_hand(steps: int = 4, eta: float = 0.5) -> Iterator[Evidence]:
    r"""Two prunings of a small network, with plain steps.

    Each step enlarges what was rounded before by $1 + \eta L$ at most, with $L$ of some 10 the
    slope of the gradient: $10^{-15} \cdot 6^4 < 10^{-11}$. Two weights are so near to each other,
    or an input of a ReLU to 0, about once in $10^8$ runs.
    """
    d, units, n = 5, 7, 40
    x, y = torch.randn(n, d), torch.randint(2, (n,))
    model: Any = nn.Sequential(nn.Linear(d, units), nn.ReLU(), nn.Linear(units, 2))

    def train(net: nn.Module) -> None:
        descent = torch.optim.SGD(net.parameters(), eta)
        for _ in range(steps):
            descent.zero_grad()
            F.cross_entropy(net(x), y).backward()
            descent.step()

    found = found_ticket(model, x, y, keep=0.2, prunings=2, prune=["0.weight"], train=train)
    begin = [p.detach().numpy().copy() for p in model.parameters()]
    mask, counts = np.ones((units, d)), (16, 7)  # of 35, a share of 0.2^(1/2) and of 0.2
    for r, count in enumerate(counts):
        sizes = np.abs(plainly(begin, mask, x.numpy(), y.numpy(), steps, eta)[0])
        mask = (sizes >= np.sort(sizes, axis=None)[-count]).astype(float)
        same = found.masks[r]["0.weight"].numpy() == mask
        yield equals("weights kept or not as by hand", int(same.sum()), d * units, pruning=r + 1)
    last = plainly(begin, mask, x.numpy(), y.numpy(), steps, eta)
    for name, p, own in zip("WbVc", found.model.parameters(), last, strict=True):
        yield equals("trained ticket, as by hand", p.detach().numpy(), own, tol=1e-11, weights=name)


def plainly(
    begin: list[np.ndarray], mask: np.ndarray, x: np.ndarray, y: np.ndarray, steps: int, eta: float
) -> list[np.ndarray]:
    """The network after steps of gradient descent by the chain rule, its first weights masked."""
    W, b, V, c = begin[0] * mask, *begin[1:]
    for _ in range(steps):
        before = x @ W.T + b
        h = np.maximum(before, 0)
        z = h @ V.T + c
        e = np.exp(z - z.max(1, keepdims=True))
        e = (e / e.sum(1, keepdims=True) - np.eye(2)[y]) / len(y)
        back = (e @ V) * (before > 0)
        W, b = W - eta * (back.T @ x) * mask, b - eta * back.sum(0)
        V, c = V - eta * e.T @ h, c - eta * e.sum(0)
    return [W, b, V, c]


lottery_ticket.foil(
    "the ticket keeps its trained weights",
    refuted_by="first weights of the ticket, less those stated",
    rewound=False,
)
lottery_ticket.foil(
    "any mask of this size",
    refuted_by="accuracy of the ticket on new examples",
    mask="random",
)
