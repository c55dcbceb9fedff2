r"""Clouds of points: PointNet's maxima, their critical points, and networks that align."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals, integers
from vademecum.geometry import DeepSets, PointNet, PointNetOutput, critical_set

How = Literal["max", "mean"]


def whole_numbers(net: nn.Module) -> None:
    """Give a network whole weights, so that all it computes is exact; few units are silent."""
    for p in net.parameters():
        z = integers(*p.shape, most=2)
        p.requires_grad_(False).copy_(z.abs() if p.ndim == 1 else z)


def drawn(width: int) -> PointNet:
    """A PointNet with T-Nets, all its weights random, of the size that keeps features alive."""
    net = PointNet(3, 4, width=width).eval()
    for p in net.parameters():
        spread = (2 / p.shape[1]) ** 0.5 if p.ndim == 2 else 0.3
        nn.init.normal_(p.requires_grad_(False), float(p.ndim == 1), spread)
    return net


def dense(layers: nn.Module, x: Tensor) -> Tensor:
    """Dense layers and ReLU, from the numbers in the state."""
    state = list(layers.state_dict().values())
    for W, b in zip(state[::2], state[1::2], strict=True):
        x = (x @ W.T + b).clamp(min=0)
    return x


def parts(d: int, width: int, how: How) -> tuple[PointNet, DeepSets]:
    """A PointNet of whole weights without T-Nets, and the same with another pooling."""
    net = PointNet(d, 4, width=width, transforms=(False, False), norm=False).eval()
    whole_numbers(net)
    encoder = nn.Sequential(net.points, net.features)
    model = DeepSets(encoder, nn.Sequential(net.head, net.logits), aggregate=how)
    return net, model.eval()


@claim(
    by="identity", sources=("C-174", "D-335"), budget=0.9,
    short=r"f(X) = \rho\big(\max_m \varphi(x_m)\big)",
)  # fmt: skip
def pointnet(
    pooling: How = "max", kept: Literal["critical", "half of them"] = "critical"
) -> Iterator[Evidence]:
    r"""PointNet: max-pooled set model.

    $f(X) = \rho\big(\max_m \varphi(x_m)\big)$ with a shared network for each point, the elementwise
    maximum over the points as global feature, and a read-out. It is invariant to order and to
    duplicates, and the output depends only on a critical set of at most as many points as there are
    features: all others may be deleted.

    In whole numbers, without rounding: 20 orders of 100 points, copies of each, and the critical
    points alone; the global feature changes without a point just where this point alone attains
    some maximum. With T-Nets, whose maxima count as well, up to rounding.

    Knobs:
        pooling: The maximum, or the mean.
        kept: Which points are left when all others are deleted.
    """
    M = 100
    for d, width in ((3, 64), (2, 48)):
        net, model = parts(d, width, pooling)
        x, at = integers(M, d, most=20), {"d": d, "features": width}
        z = dense(net.features, dense(net.points, x))
        u = z.amax(0) if pooling == "max" else z.mean(0)
        state = net.logits.state_dict()
        stated = dense(net.head, u) @ state["weight"].T + state["bias"]
        y = model(x[None])[0]
        yield equals("the formula", net(x[None])[0], stated, tol=0.0, **at)
        many = torch.stack([x[torch.randperm(M)] for _ in range(20)])
        yield equals("another order", model(many), y, tol=0.0, **at)
        twice = torch.stack([torch.cat([x, x[i : i + 1]]) for i in range(M)])
        yield equals("a point twice", model(twice), y, tol=0.0, **at)
        found = critical_set(net, x[None])
        yield at_most("critical points", int(found.mask.sum()), width, **at)
        first = {int((z[:, j] == z[:, j].max()).nonzero()[0]) for j in range(width)}
        yield equals("critical points by hand", found.mask[0].nonzero()[:, 0], sorted(first), **at)
        left = found.mask[0].nonzero()[:, 0]
        left = left if kept == "critical" else left[::2]
        feature = net.run(x[None]).feature
        yield equals("global feature of critical points alone", net.run(x[left][None]).feature,
                     feature, tol=0.0, **at)  # fmt: skip
        alone = [int((z[m] > torch.cat([z[:m], z[m + 1 :]]).amax(0)).any()) for m in range(M)]
        without = torch.stack([torch.cat([x[:m], x[m + 1 :]]) for m in range(M)])
        changed = (net.run(without).feature != feature).any(1)
        yield equals("whether a point matters", changed, torch.tensor(alone).bool(), **at)
    full, x = drawn(16), torch.randn(2, 60, 3)
    found = critical_set(full, x)
    yield at_most("critical points with T-Nets", found.mask.sum(1), 3 * 16)
    yield equals("output of critical points alone, with T-Nets", found.gap, 0.0, tol=1e-10)


pointnet.foil("mean pooling counts duplicates", pooling="mean", refuted_by="a point twice")
pointnet.foil("half of the critical points", kept="half of them")


def rotations(n: int) -> Tensor:
    """Random rotations of space."""
    Q, R = torch.linalg.qr(torch.randn(n, 3, 3))
    Q = Q * R.diagonal(dim1=1, dim2=2).sign()[:, None]
    return Q * torch.linalg.det(Q)[:, None, None]  # in three dimensions -Q turns if Q mirrors


def output_with(A: Tensor) -> PointNetOutput:
    """What a PointNet gives, with these matrices for features."""
    nothing = torch.zeros(len(A), 1)
    return PointNetOutput(nothing, nothing, None, A)


@claim(
    by="identity", sources=("D-334",), budget=0.6,
    short=r"x_m \leftarrow A(X)^\top x_m,\quad \text{penalty } \|I - A A^\top\|_F^2",
)  # fmt: skip
def t_net(
    moved_by: Literal["permutations", "rotations"] = "permutations",
    penalised: Literal["A A^T", "A"] = "A A^T",
) -> Iterator[Evidence]:
    r"""PointNet alignment network (T-Net).

    A small permutation-invariant network predicts from the cloud a matrix that is applied to every
    point and, in feature space, is held near an orthogonal one by $\|I - A A^\top\|_F^2$, to bring
    clouds into a common pose. It encourages, but does not guarantee, invariance to rotations. The
    penalty is 0 for orthogonal matrices and for no others; for $c$ times one of size $m$ it is $m
    (1 - c^2)^2$.

    Random weights, 20 orders and 20 rotations of two clouds: the matrices, the points times their
    matrix and all outputs stay under the former; under some of the latter logits change, since no
    weights were trained to prevent it.

    Knobs:
        moved_by: What outputs are claimed not to depend on.
        penalised: Whose distance from the identity is penalised.
    """
    net, x = drawn(64), torch.randn(2, 30, 3)
    out = net.run(x)
    seen = []
    net.points.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    net.run(x)
    assert out.input_transform is not None
    aligned = torch.stack([out.input_transform[i].T @ v for i in range(2) for v in x[i]])
    yield equals("points times their matrix", seen[0], aligned, tol=1e-12)
    change = 0.0
    for k, Q in enumerate(rotations(20)):
        turned = x @ Q.T
        moved = turned if moved_by == "rotations" else x[:, torch.randperm(30)]
        again = net.run(moved)
        for name in ("input_transform", "feature_transform", "feature", "logits"):
            one, other = getattr(again, name), getattr(out, name)
            yield equals(name.replace("_", " "), one, other, tol=1e-10, draw=k)
        change = max(change, float((net(turned) - out.logits).abs().max()))
    yield at_least("largest change of a logit by a rotation", change, 1e-3)
    Q = torch.linalg.qr(torch.randn(3, 5, 5)).Q
    for c in (1.0, 0.5, 1.5):
        penalty, wanted = output_with(c * Q).penalty, 5 * (1 - c**2) ** 2
        if penalised == "A":
            penalty = (torch.eye(5) - c * Q).square().sum((1, 2)).mean()
        yield equals("penalty of c times an orthogonal matrix", penalty, wanted, tol=1e-10, c=c)
    A = torch.randn(3, 4, 4)
    by_hand = sum(float(int(i == j) - A[n, i] @ A[n, j]) ** 2
                  for n in range(3) for i in range(4) for j in range(4)) / 3  # fmt: skip
    yield equals("penalty of three matrices", output_with(A).penalty, by_hand, tol=1e-10)
    fresh = PointNet(3, 4, width=32).eval().run(x)
    yield equals("the first matrix", fresh.input_transform, torch.eye(3).expand(2, 3, 3), tol=0.0)


t_net.foil("exact invariance to rotations", moved_by="rotations")
t_net.foil("the distance of A itself", penalised="A")
