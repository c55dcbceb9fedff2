"""Logistic regression: the function, its loss and its gradient."""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import torch
from scipy.stats import chi2
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn import functional as F

from vademecum.claims import Evidence, at_least, at_most, claim, complex_step, consistent, equals
from vademecum.claims.knobs import lowest
from vademecum.linear import LogisticRegression, glm_loss
from vademecum.linear._penalised_likelihood import PenalisedLikelihood


def exactly(function: Callable, values: Tensor) -> Tensor:
    """A function of numbers with 50 digits, rounded once."""
    with mpmath.workdps(50):
        return torch.tensor([float(function(mpmath.mpf(v))) for v in values.tolist()])


def sigma(z: Any) -> Any:
    """The logistic function of a long number."""
    return 1 / (1 + mpmath.exp(-z))


@claim(
    by="identity",
    sources=("C-039", "C-040", "C-041", "C-042"),
    budget=0.5,
    short=r"\sigma(z) + \sigma(-z) = 1,\; \sigma' = \sigma (1 - \sigma) \le \tfrac14,"
    r"\; \sigma'' = \sigma (1 - \sigma)(1 - 2 \sigma)",
)
def logistic_function(first: float = 1.0, second: float = 1.0):
    r"""The logistic function and its derivatives.

    $\sigma(z) = 1 / (1 + e^{-z})$ is an increasing bijection $\mathbb{R} \to (0, 1)$ with
    $\sigma(z) + \sigma(-z) = 1$, $\sigma' = \sigma (1 - \sigma)$, which is largest at 0, where it
    is $1/4$, and $\sigma'' = \sigma (1 - \sigma)(1 - 2 \sigma)$.

    torch's function is held to 50 digits: the relative error is a few units in the last place.

    Knobs:
        first: The $k$ in $\sigma' = \sigma (1 - k \sigma)$.
        second: What $\sigma (1 - \sigma)(1 - 2 \sigma)$ is multiplied by.
    """
    z = torch.cat([torch.tensor([0.0, 0.7, -30.0, 30.0, -700.0, 700.0]), 6 * torch.randn(10)])
    s = torch.sigmoid(z)
    ulp = torch.finfo(torch.float64).eps
    yield equals("value over that with 50 digits", s / exactly(sigma, z), 1.0, tol=2 * ulp)
    yield equals("sum of the values at $z$ and $-z$", s + torch.sigmoid(-z), 1.0, tol=ulp)
    near = z[z.abs() < 40]
    s = torch.sigmoid(near)
    slope = s * (1 - first * s)
    exact = exactly(lambda v: mpmath.diff(sigma, v), near)
    yield equals("first derivative", slope, exact, tol=1e-14)
    yield at_most("first derivative, anywhere", slope, 0.25)
    yield equals("first derivative at 0", slope[0], 0.25)
    bend = second * s * (1 - s) * (1 - 2 * s)
    exact = exactly(lambda v: mpmath.diff(sigma, v, 2), near)
    yield equals("second derivative", bend, exact, tol=1e-14)
    steps = torch.sigmoid(torch.linspace(-30, 30, 121)).diff()
    yield at_least("rise from one place to the next", steps, 1e-16, tol=0.0)
    back = torch.logit(torch.sigmoid(near[near < 10]))
    yield equals("logit of the value", back, near[near < 10])


logistic_function.foil(
    r"a sign slip in $\sigma'' = \sigma (1 - \sigma)(2 \sigma - 1)$", second=-1.0
)
logistic_function.foil(r"$\sigma' = \sigma (1 + \sigma)$", first=-1.0)


@claim(
    by="identity",
    sources=("A-050", "A-052", "B-108", "B-110", "C-043", "C-044", "E-087"),
    budget=0.5,
    short=r"-y \log \sigma(z) - (1 - y) \log(1 - \sigma(z)) = \log(1 +"
    r" e^{-\tilde y z}),\ \tilde y = 2 y - 1 = \pm 1",
)
def logistic_loss(labels: tuple[float, ...] = (0.0, 1.0), signed: bool = True):
    r"""The logistic loss: margin form and cross-entropy form.

    For a label $y \in \{0, 1\}$ and a logit $z$ the binary cross-entropy is
    $\ell(y, z) = -y \log \sigma(z) - (1 - y) \log(1 - \sigma(z))$. With the signed label
    $\tilde y = 2 y - 1$ it equals the margin form
    $-\log \sigma(\tilde y z) = \log(1 + e^{-\tilde y z})$, for hard labels only. The empirical loss
    is the mean over the examples.

    Knobs:
        labels: The labels $y$.
        signed: Whether the margin form has signed labels.
    """
    z = torch.cat([torch.linspace(-1000, 1000, 21), 8 * torch.randn(12), torch.tensor([0.7])])
    total = torch.zeros_like(z)
    for y in labels:
        entropy = F.binary_cross_entropy_with_logits(z, torch.full_like(z, y), reduction="none")
        margin = -F.logsigmoid((2 * y - 1 if signed else y) * z)
        long = exactly(
            lambda v, y=y: -y * mpmath.log(sigma(v)) - (1 - y) * mpmath.log(sigma(-v)), z
        )
        # half a unit in the last place of |z| < 64, then exact
        yield equals("cross-entropy of torch", entropy, long, tol=1e-14, y=y)
        yield equals("margin form", margin, long, tol=1e-14, y=y)
        target = torch.full_like(z, y)
        ours = glm_loss(z, target, family="bernoulli", reduction="none")
        yield equals("loss of the Bernoulli family", ours, long, tol=1e-14, y=y)
        mean = glm_loss(z, target, family="bernoulli")
        yield equals("mean loss of the Bernoulli family", mean, long.mean(), y=y)
        total += torch.exp(-margin)
    yield equals("probabilities of both labels together", total, 1.0, tol=1e-14)


logistic_loss.foil(
    "the margin form is not for soft labels", refuted_by="margin form", labels=(0.5,)
)
logistic_loss.foil(r"labels 0 and 1 put into the margin form unsigned", signed=False)


@claim(
    by="identity",
    sources=("A-051", "A-053", "B-109", "C-045"),
    budget=0.5,
    short=r"\nabla_\theta \ell = (\sigma(x^\top \theta) - y)\, x ="
    r" -\sigma(-\tilde y\, x^\top \theta)\, \tilde y\, x",
)
def logistic_gradient(inner: float = -1.0, d: int = 6):
    r"""The gradient of the logistic loss: prediction error times input.

    $\nabla_\theta \ell = (\sigma(x^\top \theta) - y)\, x$ for $y \in \{0, 1\}$; in signed labels
    $\tilde y = 2 y - 1$ the same vector is $-\sigma(-\tilde y\, x^\top \theta)\, \tilde y\, x$, so
    that examples that are already right push least. With weight decay $\lambda$ the loss
    $\ell + \frac\lambda2 \|\theta\|^2$ has the gradient $\nabla \ell + \lambda \theta$.

    Knobs:
        inner: The sign inside the logistic function, in signed labels.
        d: How many inputs there are.
    """
    for y, decay in ((0.0, 0.0), (1.0, 0.0), (1.0, 0.7)):
        x, theta = torch.randn(d), torch.randn(d)
        theta *= 1 + 2 / (x @ theta).abs()  # so that no prediction is near one half
        sign = 2 * y - 1

        def loss(w: Tensor, x: Tensor = x, sign: float = sign, decay: float = decay) -> Tensor:
            return torch.log(1 + torch.exp(-sign * (w @ x.to(w)))) + decay / 2 * (w * w).sum()

        derivative = complex_step(loss, theta)
        example = PenalisedLikelihood(
            x[None], torch.tensor([[y]]), torch.ones(1), weight_decay=decay, bias=False
        )
        ours, at = example(torch.cat([theta, torch.zeros(1)]))[1][:-1], {"y": y, "decay": decay}
        yield equals("gradient of logistic regression", ours, derivative, tol=1e-12, **at)
        error = (torch.sigmoid(x @ theta) - y) * x + decay * theta
        yield equals("prediction error times input", error, derivative, tol=1e-12, **at)
        in_signs = -torch.sigmoid(inner * sign * (x @ theta)) * sign * x + decay * theta
        yield equals("gradient in signed labels", in_signs, derivative, tol=1e-12, **at)


logistic_gradient.foil("the sign lost inside pushes hardest on what is already right", inner=1.0)


def likeliest(x: Tensor, y: Tensor, intercept: bool) -> Tensor:
    """The maximum-likelihood weights, the intercept last."""
    model = LogisticRegression(weight_decay=0.0, tol=1e-12, fit_intercept=intercept).fit(x, y)
    return torch.cat([model.coef_[0], model.intercept_])


def straight_line(x: Tensor, y: Tensor, intercept: bool) -> Tensor:
    """The least-squares line through the labels."""
    wide = torch.cat([x, torch.full((len(x), 1), float(intercept))], 1)
    return torch.linalg.lstsq(wide, y[:, None]).solution[:, 0]


def escaping(x: Tensor, u: Tensor, gap: float = 0.5) -> Iterator[Evidence]:
    """That separable classes have no estimate: the weights grow as the gradient shrinks."""
    y = torch.where(torch.arange(len(x)) % 2 == 0, 1.0, -1.0)
    x = x + (y * ((x @ u).abs() + gap) - x @ u)[:, None] * u
    radius = torch.cat([x, torch.ones(len(x), 1)], 1).norm(dim=1).max()
    for tol in (1e-3, 1e-6):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = LogisticRegression(weight_decay=0.0, tol=tol).fit(x, y)
        warned = [issubclass(w.category, ConvergenceWarning) for w in caught]
        yield equals("warnings about separable classes", sum(warned), 1, reached=tol)
        size = radius * torch.cat([model.coef_[0], model.intercept_]).norm()
        least = math.log(gap / (math.sqrt(3) * tol) - 1)
        yield at_least("size of the weights of separable classes", size, least, reached=tol)


@claim(
    by="sampling",
    sources=("E-085",),
    budget=0.8,
    full={"n": 20_000},
    short=r"\textstyle\sum_i (p_i - y_i)\, \tilde x_i = 0,\quad"
    r" \hat\theta \approx \mathcal N(\theta, I(\hat\theta)^{-1})",
)
def logistic_regression(
    fit: Callable[..., Tensor] = likeliest,
    intercept: bool = True,
    n: int = 1000,
    samples: int = 40,
):
    r"""Logistic regression by maximum likelihood.

    The model $P(y = 1 \mid x) = \sigma(w^\top x + b)$ has a convex negative log-likelihood. Unless
    a hyperplane separates the classes, possibly with some examples on it, the maximum-likelihood
    estimate is finite, and solves the score equations $\sum_i (p_i - y_i)\, x_i = 0$ and
    $\sum_i p_i = \sum_i y_i$; if one does, there is no estimate. For a well-specified model with
    $d$ inputs $(\hat\theta - \theta)^\top I(\hat\theta) (\hat\theta - \theta) \to \chi^2_{d+1}$ in
    law, with the Fisher information $I = \sum_i p_i (1 - p_i) \tilde x_i \tilde x_i^\top$,
    $\tilde x = (x, 1)$.

    With $d = 2$ the statistics of several samples add up to one of the law $\chi^2$ with three
    degrees of freedom for each. The two-sided test of it would fail once in $10^7$ runs in the
    limit; at 1000 examples the mean of 200 statistics was 2.9 (observed). For classes kept
    apart by $\gamma$ along a unit vector $u$, and $R = \max_i \|\tilde x_i\|$, the gradient $g$ has
    $\|g\|_2 \ge -\langle g, u \rangle \ge \gamma\, \sigma(-R \|\theta\|)$, so that
    $\|g\|_\infty \le \epsilon$ needs $R \|\theta\| \ge
    \log\big(\gamma / (\sqrt{3}\, \epsilon) - 1\big)$.

    Knobs:
        fit: What finds weights and intercept.
        intercept: Whether there is an intercept.
        n: How many examples a sample has.
        samples: How many samples are drawn.
    """
    lowest("n", n, 100)
    truth, x, y, total = torch.ones(3), torch.empty(0), torch.empty(0), 0.0
    for k in range(samples):
        truth[:2], x = torch.randn(2), torch.randn(n, 2)
        wide = torch.cat([x, torch.ones(n, 1)], 1)
        y = (torch.rand(n) < torch.sigmoid(wide @ truth)).double()
        found = fit(x, y, intercept)
        p = torch.sigmoid(wide @ found)
        yield equals("mean of the scores", wide.T @ (p - y) / n, 0.0, tol=1e-11, sample=k)
        fisher = (wide * (p * (1 - p))[:, None]).T @ wide
        total += float((found - truth) @ fisher @ (found - truth))
    tails = chi2.cdf(total, 3 * samples), chi2.sf(total, 3 * samples)
    name = "p-value of the squared errors in the Fisher metric"
    yield consistent(name, 2 * float(min(tails)), alpha=1e-7, samples=samples)
    loss = PenalisedLikelihood(x, y[None], torch.ones(n), weight_decay=0.0)
    for _ in range(5):
        a, b = 3 * torch.randn(2, 3)
        middle = loss((a + b) / 2)[0]
        yield at_most("loss at a midpoint", middle, (loss(a)[0] + loss(b)[0]) / 2)
    yield from escaping(x[:40], truth[:2] / truth[:2].norm())


logistic_regression.foil("fitted without the intercept although $b = 1$", intercept=False)
logistic_regression.foil("a least-squares line through the labels", fit=straight_line)


@claim(
    by="sampling",
    sources=("B-202", "E-086"),
    budget=0.5,
    short=r"1[m \le 0] \le \log_2(1 + e^{-m}), \text{ with equality at } m = 0",
)
def logistic_surrogate(base: float = 2.0):
    r"""Cross-entropy in bits bounds the zero-one loss.

    With the signed label $y$ and the margin $m = y (w^\top x + b)$ the zero-one loss, 1 for a wrong
    prediction and else 0, whose mean is one minus the accuracy, is bounded by the convex, smooth
    logistic loss measured in bits: $1[m \le 0] \le \log_2(1 + e^{-m})$, with equality at $m = 0$
    only.

    Checked on a grid of margins, and on those of a fitted model.

    Knobs:
        base: The base of the logarithm.
    """
    m = torch.linspace(-20, 20, 401)
    m[200] = 0.0
    bound = F.softplus(-m, threshold=50) / math.log(base)
    wrong = (m <= 0).double()
    yield at_least("loss in bits", bound, wrong, tol=1e-15)
    yield equals("loss in bits at margin 0", bound[200], 1.0, tol=1e-15)
    slack = (bound - wrong)[torch.arange(401) != 200]
    yield at_least("loss in bits less the zero-one loss, elsewhere", slack, 1e-10, tol=0.0)
    yield at_least("second difference of the loss", bound.diff().diff(), 1e-12, tol=0.0)
    x, y = torch.randn(60, 2), torch.randperm(60) % 2
    model = LogisticRegression(tol=1e-4).fit(x, y)
    margin = (2 * y - 1) * model.decision_function(x)
    errors = int((margin <= 0).sum())
    yield equals("wrong predictions", errors, 60 - round(60 * model.score(x, y)))
    mean = (F.softplus(-margin) / math.log(base)).mean()
    yield at_most("share of wrong predictions", errors / 60, mean)


logistic_surrogate.foil(
    r"in nats the loss at $m = 0$ is only 0.693",
    refuted_by="loss in bits at margin 0",
    base=math.e,
)
