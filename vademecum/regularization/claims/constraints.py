"""A bound on the norm in the place of a penalty: projected descent."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.foundations import project
from vademecum.optimization import ProjectedSGD
from vademecum.regularization import spectral_shrinkage
from vademecum.regularization.claims.decay import gradient, log_loss
from vademecum.regularization.claims.shrinkage import away_from_zero, planted

Vectors = Callable[[Tensor], Tensor]


def path_of(
    slope: Vectors, start: Tensor, eta: float, nearest: Vectors, steps: int
) -> list[Tensor]:
    """The iterates of projected descent along a gradient."""
    p = nn.Parameter(start.clone())
    optimizer, path = ProjectedSGD([p], lr=eta, project=nearest), [start]
    for _ in range(steps):
        p.grad = slope(p.detach())
        optimizer.step()
        path.append(p.detach().clone())
    return path


def images(nearest: Callable[[Tensor, float], Tensor]) -> Iterator[Evidence]:
    """Whether a map moves points of two and of five dimensions to the nearest of a ball."""
    for d in (2, 5):
        r = 0.8
        inside = 0.5 * r * nn.functional.normalize(torch.randn(d), dim=0)
        outside = (1.2 + torch.rand(())) * r * nn.functional.normalize(torch.randn(d), dim=0)
        ball = torch.randn(300, d)
        ball = r * torch.rand(300, 1) ** (1 / d) * ball / ball.norm(dim=1, keepdim=True)
        for v in (inside, outside):
            image = nearest(v, r)
            away = (ball - v).norm(dim=1).min()
            yield at_most("distance to the image", (image - v).norm(), away, tol=1e-12, d=d)
            yield equals("image", image, min(1.0, r / float(v.norm())) * v, tol=1e-14, d=d)
            yield equals("image of the image", nearest(image, r), image, tol=1e-14, d=d)
        gap = (nearest(inside, r) - nearest(outside, r)).norm()
        yield at_most("distance of the images", gap, (inside - outside).norm(), tol=1e-12, d=d)


def on_quadratics(
    nearest: Callable[[Tensor, float], Tensor], power: float, steps: int
) -> Iterator[Evidence]:
    """The iterates within a ball, and their limits, with the minimum outside and inside."""
    from scipy.optimize import brentq

    for values in ((1.0, 2.5), (1.0, 1.7, 3.0, 4.0)):
        lam, d = torch.tensor(values), len(values)
        H, Q = planted(lam)
        minimum, eta = Q @ away_from_zero(d), 0.9 / values[-1]
        start = 0.02 * Q @ away_from_zero(d)

        def slope(w: Tensor, H=H, minimum=minimum) -> Tensor:
            return H @ (w - minimum)

        for share in (0.6, 1.3):
            r, at = share * float(minimum.norm()), {"d": d, "share": share}
            path = path_of(slope, start, eta, lambda v, r=r: nearest(v, r), steps)
            plain = start
            for theta in path[1:]:
                plain = plain - eta * slope(plain)
                if plain.norm() > r:
                    break
                yield equals("iterate within the ball", theta, plain, tol=0.0, **at)
            limit = path[-1]
            if share > 1:
                yield equals("limit within the ball", limit, minimum, tol=1e-9, **at)
                continue

            def excess(mu: float, r=r, H=H, minimum=minimum, d=d) -> float:
                solved = torch.linalg.solve(H + mu * torch.eye(d), H @ minimum)
                return float(solved.norm()) ** power - r

            root: Any = brentq(excess, 1e-9, 1e3, xtol=1e-14)
            mu = float(root)
            penalised = spectral_shrinkage(H, minimum, decay=mu).theta
            yield equals("limit on the sphere", limit, penalised, tol=1e-9, mu=mu, **at)
            yield equals("norm of the limit", limit.norm(), r, tol=1e-12, **at)


@claim(
    by="identity",
    sources=("A-150", "A-151", "A-152", "B-331", "B-332", "B-333"),
    budget=0.8,
    short=r"\theta_{t+1} = \Pi_r[\theta_t - \eta \nabla E(\theta_t)],\quad"
    r" \Pi_r(v) = \min\{1, r / \|v\|\}\, v",
)
def norm_constraint(sphere: bool = False, power: float = 1.0, steps: int = 160):
    r"""Norm-constrained training by projection.

    For convex smooth $E$ and small steps $\min_{\|\theta\| \le r} E(\theta)$ is solved by
    $\theta_{t+1} = \Pi_r[\theta_t - \eta \nabla E(\theta_t)]$ with the Euclidean projection
    $\Pi_r(v) = \min\{1, r / \|v\|\}\, v$. Unlike a penalty it does nothing while the weights are
    small, and acts only once the iterate reaches the radius $r$; on a quadratic whose minimum lies
    outside, the limit is the L2 solution whose $\mu$ satisfies $\|\theta_\mu\| = r$.

    *Proof.* At the limit $\nabla E = -\mu \theta$ with $\mu \ge 0$, the condition of a minimum on a
    ball, and where $E$ is quadratic that of the penalised loss. Checked for `project` and
    `ProjectedSGD`: nearest among 300 points of the ball, idempotent, never expanding; the iterates
    are those of plain descent, bit by bit, until one leaves the ball; the limit on quadratics
    against a root of $\|\theta_\mu\| = r$, and on a logistic loss by the condition.

    Knobs:
        sphere: Whether every point is moved to the sphere.
        power: The power of the norm that equals $r$.
        steps: How many steps are made.
    """

    def nearest(v: Tensor, r: float) -> Tensor:
        return r * v / v.norm() if sphere else project(v, "l2", radius=r)

    yield from images(nearest)
    yield from on_quadratics(nearest, power, steps)
    X, y, r = torch.randn(9, 3), torch.randn(9).sign(), 0.1

    def logistic(w: Tensor) -> Tensor:
        return -X.T @ (y * torch.sigmoid(-y * (X @ w))) / 9

    theta = path_of(logistic, torch.full((3,), 0.01), 0.5, lambda v: nearest(v, r), steps)[-1]
    g = gradient(lambda w: log_loss(w, X, y), theta)
    across = g - (g @ theta) / r**2 * theta
    yield equals("gradient along the sphere at the limit", across, 0.0, tol=1e-9)
    yield at_least("descent that the sphere forbids", -(g @ theta), 0.0, tol=0.0)


norm_constraint.foil("points within the ball move to the sphere, too", sphere=True)
norm_constraint.foil("the multiplier from the squared norm", power=2.0)
