"""What networks fit that cannot be learned: random labels, and pixels in random order."""

from typing import Literal

import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.claims import at_most, claim, consistent, equals, rejects
from vademecum.connectionism import separable
from vademecum.generalization import memorising_network, permute_pixels
from vademecum.generalization import random_labels as drawn_labels
from vademecum.models import mlp


def by_chance(right: int, n: int, p: float = 0.5) -> float:
    """How likely it is that a number of successes is so far from what a probability makes of n."""
    return float(stats.binomtest(right, n, p).pvalue)  # pyright: ignore[reportArgumentType]


def linear_fit(x: Tensor, y: Tensor):
    """The least-squares fit of an affine function."""
    w = torch.linalg.lstsq(F.pad(x, (0, 1), value=1.0), y).solution
    return lambda x: F.pad(x, (0, 1), value=1.0) @ w


@claim(
    by="identity",
    sources=("A-284",),
    budget=0.5,
    full={"fresh": 200_000},
    short=r"c(x) = \sum_{j=1}^n w_j (\langle a, x \rangle - b_j)_+,\quad"
    r" c(x_i) = y_i\ \forall i,\quad 2n + d \text{ weights}",
)
def random_labels(
    fit: Literal["ReLU", "linear"] = "ReLU",
    per_point: int = 2,
    accuracy: float = 0.5,
    fresh: int = 20_000,
):
    r"""Networks can fit random labels.

    A two-layer ReLU network with $2 n + d$ weights can realise any labels on $n$ distinct points in
    $\mathbb R^d$ (Zhang et al. 2017), while its accuracy on fresh points with random labels is that
    of chance: so neither a training error of 0 nor capacity alone explains generalisation. An
    affine function cannot, when there are many more points than dimensions.

    *Proof.* Along a direction $a$ that keeps the points apart put one threshold before each:
    $(\langle a, x_i \rangle - b_j)_+$ is triangular with a positive diagonal. Checked with
    `memorising_network` for coin flips, real numbers and vectors, the sum over all units written
    out; that no hyperplane separates the coin flips is certified (Cover's probability of one is
    below $10^{-15}$). `random_labels` draws as many as asked for, uniformly. That convolutional
    networks reach a training accuracy of 1 on CIFAR-10 with random labels is quoted.

    Knobs:
        fit: What is fitted to the labels.
        per_point: How many weights the network has for each point.
        accuracy: The accuracy on fresh points.
        fresh: How many fresh points there are.
    """
    # the sum over all units loses what its largest terms round off: slopes of some n^2, n terms
    for n, d, shape in ((100, 10, ()), (30, 2, ()), (41, 7, (3,))):
        x, at = torch.randn(n, d), {"n": n, "d": d}
        y = torch.randn(n, *shape)
        if n == 100:
            y = 2.0 * drawn_labels(torch.zeros(n, dtype=torch.int64), k=2).labels - 1
            yield equals("coin flips that a hyperplane separates", separable(x, y).separable, 0)
        net = memorising_network(x, y)
        a, b, w = (p.detach() for p in net.parameters())
        written_out = ((x @ a)[:, None] - b).relu() @ w
        size, k = y.abs().max(), y[0].numel()
        predict = net if fit == "ReLU" else linear_fit(x, y)
        missed = (predict(x).detach() - y).abs() / size
        yield at_most("largest miss of a label", missed, 1e-6, tol=0.0, **at)
        missed = (written_out - y).abs() / size
        yield at_most("largest miss by the sum of all units", missed, 1e-6, tol=0.0, **at)
        weights = sum(p.numel() for p in net.parameters())
        yield equals("weights", weights, n * (per_point - 1 + k) + d, **at)
        if n == 100:
            truth = 2.0 * drawn_labels(torch.zeros(fresh, dtype=torch.int64), k=2).labels - 1
            right = int((predict(torch.randn(fresh, d)).detach() * truth > 0).sum())
            p_value = by_chance(right, fresh, accuracy)
            yield consistent("p-value of that accuracy on fresh points", p_value, alpha=1e-7, **at)
    y = torch.arange(6000) % 5
    labels, drawn = drawn_labels(y, fraction=0.3, k=5)
    yield equals("labels drawn", drawn.sum(), 1800, fraction=0.3)
    yield equals("labels that were not drawn", labels[~drawn], y[~drawn])
    counts = torch.bincount(labels[drawn] * 5 + y[drawn], minlength=25)
    expected = torch.bincount(y[drawn], minlength=5).repeat(5) / 5  # classes are independent
    p_value = stats.chisquare(counts.numpy(), expected.numpy()).pvalue
    yield consistent("p-value of uniform labels in each class", float(p_value))


random_labels.foil("an affine function fits them", refuted_by="largest miss of a label",
                   fit="linear")  # fmt: skip
random_labels.foil("one weight for each point is enough", per_point=1)
random_labels.foil("three in five fresh labels are right", accuracy=0.6)


SIDE = 8


def images(n: int) -> tuple[Tensor, Tensor]:
    """Noisy images whose left half is brighter than the right, or darker, and which it is.

    As many pixels are bright as dark, so that the histogram says nothing.
    """
    y = torch.randint(2, (n,))
    half = torch.ones(SIDE, SIDE)
    half[:, SIDE // 2 :] = -1
    return torch.randn(n, SIDE, SIDE) + 0.5 * (2.0 * y[:, None, None] - 1) * half, y


def trained(net: nn.Module, x: Tensor, y: Tensor, rule: str, steps: int) -> nn.Module:
    """The network after some full-batch steps."""
    optimizers = {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    }
    optimizer = optimizers[rule](net.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net


def right(net: nn.Module, x: Tensor, y: Tensor) -> int:
    """How many classes are right."""
    return int((net(x).argmax(1) == y).sum())


@claim(
    by="training",
    sources=("A-284",),
    budget=1.0,
    full={"steps": 300, "tests": 4000},
    short=r"W' = W P^\top,\ x' = P x:\quad f_{\theta'_t}(x') = f_{\theta_t}(x)"
    r"\ \text{ for every step } t",
)
def permuted_pixels(
    each: bool = False, test: Literal["as before", "chance"] = "as before", steps: int = 60,
    tests: int = 500,
):  # fmt: skip
    r"""Permuted pixels.

    One fixed permutation of the input coordinates, the same for all images, changes nothing for a
    fully connected network: with the columns of the first weight matrix permuted alike, training by
    any optimiser that treats coordinates alike follows the same trajectory, so training and test
    predictions agree. A fresh permutation for every image is another experiment: where the
    histogram says nothing of the class only memorising is left. Fitting shuffled data therefore
    shows capacity; whether it generalises depends on the prior in the architecture.

    *Proof.* $(W P^\top)(P x) = W x$, and the gradient in $W P^\top$ is that in $W$ times $P^\top$.
    Checked with `permute_pixels` for momentum SGD with decay and Adam, up to rounding ($10^{-8}$,
    observed below $10^{-12}$). That a convolutional network still fits one fixed permutation and
    generalises worse is quoted.

    Knobs:
        each: Whether each image has a permutation of its own.
        test: What the test accuracy is on permuted pixels with true labels.
        steps: How many steps of training there are.
        tests: How many test images there are.
    """
    x, y = images(200)
    x_test, y_test = images(tests)
    moved = permute_pixels(x, each=each)
    order = moved.permutation[0] if each else moved.permutation
    moved_test = permute_pixels(x_test, permutation=order).images
    flat = [z.flatten(1) for z in (x, x_test, moved.images, moved_test)]
    yield equals("pixels in their new places", moved.images[0].flatten(), flat[0][0, order])
    yield equals("places", order.sort().values, torch.arange(SIDE * SIDE))
    for rule in ("SGD", "Adam"):
        net, twin = (mlp([SIDE * SIDE, 20, 2], nn.Tanh) for _ in range(2))
        twin.load_state_dict(net.state_dict())
        first = next(twin.parameters())
        with torch.no_grad():
            first.copy_(first[:, order])
        trained(net, flat[0], y, rule, steps)
        trained(twin, flat[2], y, rule, steps)
        one, other = net(flat[1]).detach(), twin(flat[3]).detach()
        yield equals("test outputs with permuted pixels", other, one, tol=1e-8, rule=rule)
        one, other = (next(m.parameters()).detach() for m in (net, twin))
        yield equals("first weights, permuted", other, one[:, order], tol=1e-8, rule=rule)
        count = right(twin, flat[3], y_test)
        p_value = by_chance(count, tests)
        verdict = rejects if test == "as before" else consistent
        at = {"rule": rule, "right": count, "images": tests}
        yield verdict("p-value of chance with one fixed permutation", p_value, **at)
    alone, alone_test = (permute_pixels(z, each=True).images.flatten(1) for z in (x, x_test))
    net = trained(mlp([SIDE * SIDE, 20, 2], nn.Tanh), alone, y, "Adam", steps)
    p_value = by_chance(right(net, alone_test, y_test), tests)
    yield consistent("p-value of chance with a permutation for every image", p_value)


permuted_pixels.foil(
    "another permutation for every image changes nothing, too",
    refuted_by="test outputs with permuted pixels",
    each=True,
)
permuted_pixels.erratum(
    "A-284",
    printed="random labels and permuted pixels (but no generalization to test)",
    right="random labels (without generalisation), and permuted pixels (a fixed permutation changes"
    " nothing for a fully connected network)",
    why="True for random labels. With true labels and one fixed permutation of the pixels a fully"
    " connected network generalises exactly as before; only a permutation for every image leaves"
    " nothing to generalise. The clause can be read as both corruptions at once, so it is wording.",
    weight="soft",
    refuted_by="p-value of chance with one fixed permutation",
    test="chance",
)
