"""What the course claims of the rule of Widrow and Hoff."""

from itertools import product

import torch
from torch import Tensor

from vademecum.claims import at_most, claim, complex_step, equals
from vademecum.linear.lms import LMS, lms_rate_bounds


@claim(by="identity", sources=("B-076", "C-032", "C-034"), budget=0.5, full={"steps": 2000})
def lms(sign: float = 1.0, factor: float = 1.0, steps: int = 60):
    r"""The LMS (Widrow-Hoff, delta) rule.

    SGD on $\frac12 (y - \langle x, \theta \rangle)^2$ with an index drawn uniformly steps along the
    residual, $\theta' = \theta + \eta\, (y_i - \langle x_i, \theta \rangle)\, x_i$; averaged over
    $i$ it is a step of full gradient descent. On consistent data $y = X \theta^*$ the error
    $e = \theta - \theta^*$ obeys
    $\|e'\|^2 = \|e\|^2 - \eta\, (2 - \eta \|x_i\|^2) \langle x_i, e \rangle^2$, so it never grows
    for $0 < \eta < 2 / \max_i \|x_i\|^2$.

    *Proof.* $e' = e - \eta \langle x_i, e \rangle x_i$; expand the square. The bound is the
    `every_step` of `lms_rate_bounds`; the rate here is `factor` times half of it.
    """
    s, d = 12, 4
    x, truth = torch.randn(s, d), torch.randn(d)
    y = x @ truth
    eta = factor * lms_rate_bounds(x, fit_intercept=False).every_step / 2
    yield equals(eta, factor / x.square().sum(1).max())
    unit, theta = LMS(rate=eta, fit_intercept=False), torch.zeros(d)
    for i in torch.randint(s, (steps,)).tolist():

        def loss(w: Tensor, i: int = i) -> Tensor:
            return (y[i] - (x[i].to(w) * w).sum()) ** 2 / 2

        before, theta = theta, unit.partial_fit(x[i : i + 1], y[i : i + 1]).coef_
        step = sign * (theta - before)
        # Relative to the steps' size, which a wrong rate lets grow.
        size = 1 + float(before.norm())
        yield equals(step / size, -eta * complex_step(loss, before) / size, tol=1e-12)
        old, new = (before - truth).square().sum(), (before + step - truth).square().sum()
        along = (x[i] @ (before - truth)).square()
        yield equals(new / size**2, (old - eta * (2 - eta * x[i] @ x[i]) * along) / size**2)
        yield at_most(new / size**2, old / size**2)
    yield from _mean_step(x, sign)
    cube = torch.tensor(list(product((-1.0, 1.0), repeat=3)))
    goal = torch.randn(3)
    cyclic = LMS(rate=factor / 3, fit_intercept=False)
    end = cyclic.partial_fit(cube.repeat(25, 1), (cube @ goal).repeat(25)).coef_
    yield at_most((end - goal).norm(), 1e-10)


def _mean_step(x: Tensor, sign: float):
    """From zero, on targets that no weights fit."""
    y, eta = torch.randn(len(x)), 0.1
    steps = [
        LMS(rate=eta, fit_intercept=False).partial_fit(x[i : i + 1], y[i : i + 1]).coef_
        for i in range(len(x))
    ]
    yield equals(sign * torch.stack(steps).mean(0), eta * x.T @ y / len(x), tol=1e-13)


lms.foil(r"the sign slip $\theta - \eta\, (y_i - \langle x_i, \theta \rangle)\, x_i$", sign=-1.0)
lms.foil(r"at $\eta = 2.5 / \max_i \|x_i\|^2$ the error grows", factor=2.5)
