"""Widrow and Hoff: least squares one example at a time."""

from itertools import product

import torch
from numpy.random import RandomState
from torch import Tensor

from vademecum.claims import at_most, claim, complex_step, equals
from vademecum.linear import LMS, lms_rate_bounds


@claim(
    by="identity",
    sources=("B-076", "C-032", "C-034"),
    budget=0.8,
    full={"steps": 2000},
    short=r"\theta' = \theta + \eta\, (y_i - \langle x_i, \theta \rangle)\, x_i,"
    r"\quad 0 < \eta < 2 / \max_i \|x_i\|^2",
)
def lms(sign: float = 1.0, factor: float = 1.0, steps: int = 30):
    r"""The LMS (Widrow-Hoff, delta) rule.

    SGD on $\frac12 (y - \langle x, \theta \rangle)^2$ with an index drawn uniformly steps along the
    residual, $\theta' = \theta + \eta\, (y_i - \langle x_i, \theta \rangle)\, x_i$; averaged over
    $i$ it is a step of full gradient descent. On consistent data $y = X \theta^*$ the error
    $e = \theta - \theta^*$ obeys
    $\|e'\|^2 = \|e\|^2 - \eta\, (2 - \eta \|x_i\|^2) \langle x_i, e \rangle^2$, so it never grows
    for $0 < \eta < 2 / \max_i \|x_i\|^2$.

    *Proof.* $e' = e - \eta \langle x_i, e \rangle x_i$; expand the square. The bound is the
    `every_step` of `lms_rate_bounds`. A unit with an intercept is one without on inputs extended by
    a one.

    Knobs:
        sign: The sign of the step.
        factor: The rate $\eta$ in units of half the bound.
        steps: How many steps are taken with examples drawn at random.
    """
    for intercept in (False, True):
        yield from _steps(sign, factor, steps, intercept)
    yield from _mean_step(torch.randn(12, 4), sign)
    cube = torch.tensor(list(product((-1.0, 1.0), repeat=3)))
    goal = torch.randn(3)
    cyclic = LMS(rate=factor / 3, fit_intercept=False)
    end = cyclic.partial_fit(cube.repeat(25, 1), (cube @ goal).repeat(25)).coef_
    yield at_most("distance to the weights that fit", (end - goal).norm(), 1e-10)
    for shuffle in (False, True):
        yield from _epochs(shuffle)


def _epochs(shuffle: bool, s: int = 150, d: int = 2, epochs: int = 3):
    """Epochs over more examples than are shown at once, with two targets, one by one."""
    x, y = torch.randn(s, d), torch.randn(s, 2)
    unit = LMS(max_iter=epochs, tol=0.0, shuffle=shuffle, random_state=7).fit(x, y)
    wide, theta, draw = torch.cat([x, torch.ones(s, 1)], 1), torch.zeros(3, 2), RandomState(7)
    bounds = lms_rate_bounds(x)
    top = torch.linalg.eigvalsh(wide.T @ wide / s)[-1]
    yield equals("bound on the rate in the mean", bounds.in_mean, 2 / top)
    rate, errors = float(1 / wide.square().sum(1).max()), []
    for _ in range(epochs):
        errors = []
        for i in draw.permutation(s).tolist() if shuffle else range(s):
            errors.append(y[i] - wide[i] @ theta)
            theta = theta + rate * wide[i][:, None] * errors[-1]
    at = {"shuffle": shuffle}
    yield equals("rate that is chosen", unit.rate_, rate, **at)
    yield equals("weights after some epochs", unit.coef_, theta[:d].T, **at)
    yield equals("intercepts after some epochs", unit.intercept_, theta[d], **at)
    loss = torch.stack(errors).square().sum(1).mean() / 2
    yield equals("loss of the last epoch", unit.loss_, loss, **at)
    yield equals("epochs", unit.n_iter_, epochs, **at)
    yield equals("whether it converged", unit.converged_, 0, **at)
    rested = LMS(tol=0.5, shuffle=shuffle, random_state=7).fit(x[:9], x[:9] @ torch.ones(d) + 1)
    yield equals("whether it converged, if half is enough", rested.converged_, 1, **at)


def _steps(sign: float, factor: float, steps: int, intercept: bool):
    """One example after the other, drawn at random, on consistent data."""
    s, d = 12, 4 + intercept
    x, truth = torch.randn(s, d), torch.randn(d)
    if intercept:
        x[:, -1] = 1
    longest = int(x.norm(dim=1).argmax())  # goes first, and has a share in the error
    way = x[longest] / x[longest].norm()
    truth += (1 - way @ truth) * way
    y, inputs, at = x @ truth, x[:, : d - intercept], {"intercept": intercept}
    bound = lms_rate_bounds(inputs, fit_intercept=intercept).every_step
    yield equals("bound on the rate", bound, 2 / x.square().sum(1).max(), **at)
    eta, grown = factor * bound / 2, []
    unit, theta = LMS(rate=eta, fit_intercept=intercept), torch.zeros(d)
    for t, i in enumerate([longest, *torch.randint(s, (steps,)).tolist()]):

        def loss(w: Tensor, i: int = i) -> Tensor:
            return (y[i] - (x[i].to(w) * w).sum()) ** 2 / 2

        unit.partial_fit(inputs[i : i + 1], y[i : i + 1])
        found = (
            [unit.coef_, torch.as_tensor(unit.intercept_).view(1)] if intercept else [unit.coef_]
        )
        before, theta = theta, torch.cat(found)
        step = sign * (theta - before)
        # Relative to the steps' size, which a wrong rate lets grow.
        size = 1 + float(before.norm())
        downhill = -eta * complex_step(loss, before)
        yield equals("step of the rule", step / size, downhill / size, tol=1e-12, t=t, **at)
        old, new = (before - truth).square().sum(), (before + step - truth).square().sum()
        along = (x[i] @ (before - truth)).square()
        exact = old - eta * (2 - eta * x[i] @ x[i]) * along
        yield equals("squared error after a step", new / size**2, exact / size**2, t=t, **at)
        grown.append((new - old) / size**2)
    yield at_most("growth of the squared error in a step", torch.stack(grown), 0.0, **at)


def _mean_step(x: Tensor, sign: float):
    """From zero, on targets that no weights fit."""
    y, eta = torch.randn(len(x)), 0.1
    steps = [
        LMS(rate=eta, fit_intercept=False).partial_fit(x[i : i + 1], y[i : i + 1]).coef_
        for i in range(len(x))
    ]
    mean, whole = sign * torch.stack(steps).mean(0), eta * x.T @ y / len(x)
    yield equals("mean step from zero", mean, whole, tol=1e-13)


lms.foil(r"the sign slip $\theta - \eta\, (y_i - \langle x_i, \theta \rangle)\, x_i$", sign=-1.0)
lms.foil(
    r"at $\eta = 2.5 / \max_i \|x_i\|^2$ the error grows",
    refuted_by="growth of the squared error in a step",
    factor=2.5,
)
