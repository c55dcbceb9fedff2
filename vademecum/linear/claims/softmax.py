"""Softmax: many classes at once."""

from collections.abc import Callable
from typing import Any

import mpmath
import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, complex_step, equals, lowest
from vademecum.linear import ExponentialFamily, LogisticRegression, SoftmaxRegression, glm_loss

EPS = torch.finfo(torch.float64).eps


def long_softmax(z: Tensor) -> tuple[list[Any], Any]:
    """The softmax of one vector of logits and its log-partition, with 50 digits."""
    with mpmath.workdps(50):
        powers = [mpmath.exp(mpmath.mpf(v)) for v in z.tolist()]
        total = mpmath.fsum(powers)
        return [power / total for power in powers], mpmath.log(total)


def fitted(classes: int = 3, n: int = 40, d: int = 2) -> tuple[SoftmaxRegression, Tensor]:
    """A softmax regression, and the examples that it learnt from."""
    x, y = torch.randn(n, d), torch.arange(n) % classes
    return SoftmaxRegression(weight_decay=0.01, tol=1e-4).fit(x, y), x


def with_shift(z: Tensor) -> Tensor:
    """Softmax as torch evaluates it."""
    return torch.softmax(z, -1)


def textbook(z: Tensor) -> Tensor:
    """The quotient as it is printed."""
    return z.exp() / z.exp().sum(-1, keepdim=True)


@claim(
    by="identity",
    sources=("A-048", "B-111", "C-053"),
    budget=0.5,
    short=r"\mathrm{softmax}(z)_i = e^{z_i} / \textstyle\sum_j e^{z_j}"
    r" = \mathrm{softmax}(z + c \mathbf 1)_i",
)
def softmax(evaluate: Callable[[Tensor], Tensor] = with_shift, factor: float = 1.0, k: int = 6):
    r"""Softmax.

    $\mathrm{softmax}(z)_i = e^{z_i} / \sum_j e^{z_j}$ maps logits to the open probability simplex,
    keeps their order, and does not change when one constant is added to all logits, which is what
    makes the evaluation with $z - \max_j z_j$, without overflow, legitimate. As a softmax unit the
    logits are $z_i = x \cdot \theta_i$. (In double precision, probabilities below $10^{-300}$ round
    to zero; the relative error of the others is that of $z_i - \max_j z_j$.)

    Knobs:
        evaluate: Softmax as a function of logits.
        factor: What the logits are multiplied by when a constant is added to them.
        k: How many logits there are.
    """
    lowest("k", k, 2)
    for scale in (1.0, 1000.0):
        z = scale * (2 * torch.rand(k) - 1)
        z[0] = scale
        p, (long, _) = evaluate(z), long_softmax(z)
        yield equals("probabilities that are finite", int(p.isfinite().sum()), k, scale=scale)
        ratio = [float(mpmath.mpf(a) / b) for a, b in zip(p.tolist(), long, strict=True)
                 if b > 1e-300]  # fmt: skip
        slack = (2 * scale + k) * EPS
        yield equals("probability over that with 50 digits", ratio, 1.0, tol=slack, scale=scale)
        yield equals("sum of the probabilities", p.sum(), 1.0, tol=k * EPS, scale=scale)
        shifted = evaluate(factor * z + 12.3)
        yield equals("probabilities of shifted logits", shifted, p, tol=1e-12, scale=scale)
        ordered = p[z.argsort()].diff()
        yield at_least("rise in the order of the logits", ordered, 0.0, tol=0.0, scale=scale)
    model, x = fitted()
    for row, p in zip(x[:3], model.predict_proba(x[:3]), strict=True):
        long, _ = long_softmax(row @ model.coef_.T + model.intercept_)
        yield equals("probabilities of a softmax unit", p, [float(v) for v in long])


softmax.foil("the textbook quotient overflows at logits of 1000", evaluate=textbook)
softmax.foil("a common factor, unlike a common summand, does change it", factor=2.0)


@claim(
    by="identity",
    sources=("B-112",),
    budget=0.5,
    short=r"\theta_i \mapsto \theta_i + c \text{ changes no probability;}"
    r"\quad \operatorname{rk} \nabla^2 \ell \le (k - 1) n",
)
def softmax_redundancy(factor: float = 1.0, spared: int = 0, k: int = 4, n: int = 3):
    r"""Softmax regression is over-parameterised.

    Adding one common vector to all weight vectors $\theta_1, \dots, \theta_k \in \mathbb{R}^n$
    changes no probability, so one of them may be fixed at zero: the loss is flat along $n$
    directions, and its Hessian in $\Theta \in \mathbb{R}^{k \times n}$ has rank at most
    $(k - 1) n$, which it attains for inputs in general position.

    Of all these, the weights with the least norm sum to zero over the classes, which is where
    weight decay leads.

    Knobs:
        factor: What $\Theta$ is multiplied by.
        spared: How many classes the common vector is not added to.
        k: How many classes there are.
        n: How many inputs there are.
    """
    lowest("k", k, 2)
    theta, common, x = torch.randn(k, n), torch.randn(n), torch.randn(50, n)
    moved = factor * theta + common * (torch.arange(k) >= spared)[:, None]
    found, before = (x @ moved.T).softmax(1), (x @ theta.T).softmax(1)
    yield equals("probabilities after the move", found, before, tol=1e-12)
    model, seen = fitted(k, d=n)
    before = model.predict_proba(seen)
    yield equals("sum of the fitted weights over the classes", model.coef_.sum(0), 0.0, tol=1e-12)
    model.coef_ = factor * model.coef_ + common * (torch.arange(k) >= spared)[:, None]
    found = model.predict_proba(seen)
    yield equals("probabilities of the moved model", found, before, tol=1e-12)
    y = torch.randint(k, (50,))

    def loss(weights: Tensor) -> Tensor:
        return glm_loss(x @ weights.view(k, n).T, y, family="categorical")

    hessian = torch.func.jacrev(torch.func.grad(loss))(theta.flatten())
    spectrum = torch.linalg.eigvalsh(hessian)
    flat = int((spectrum < 1e-10 * spectrum[-1]).sum())
    yield equals("directions in which the loss is flat", flat, n, k=k)
    reduced = torch.linalg.eigvalsh(hessian[:-n, :-n])
    share = reduced[0] / reduced[-1]
    yield at_least("least curvature with one class fixed, over the largest", share, 1e-10, tol=0.0)


softmax_redundancy.foil("a common factor 2 changes the probabilities", factor=2.0)
softmax_redundancy.foil("a vector added to all classes but one changes them", spared=1)


@claim(
    by="identity",
    sources=("B-113",),
    budget=0.5,
    short=r"\mathrm{softmax}_1(x; \Theta) = \sigma\big(x \cdot (\theta_1 - \theta_2)\big)"
    r" \quad (k = 2)",
)
def two_class_softmax(first: float = 1.0, second: float = -1.0, d: int = 4):
    r"""Two-class softmax is the logistic unit.

    For $k = 2$, $\mathrm{softmax}_1(x; \Theta) = \sigma\big(x \cdot (\theta_1 - \theta_2)\big)$:
    divide numerator and denominator by $e^{x \cdot \theta_1}$. So softmax regression of two classes
    with decay $\lambda$ is logistic regression with $\lambda / 2$, since
    $\|\theta_1\|^2 + \|\theta_2\|^2 = \|\theta_1 - \theta_2\|^2 / 2$ for $\theta_1 + \theta_2 = 0$.

    Knobs:
        first: The factor of $\theta_1$ inside $\sigma$.
        second: The factor of $\theta_2$.
        d: How many inputs there are.
    """
    theta, x = torch.randn(2, d), torch.randn(30, d)
    p = (x @ theta.T).softmax(1)[:, 0]
    unit = torch.sigmoid(x @ (first * theta[0] + second * theta[1]))
    yield equals("logistic unit, against softmax", unit, p, tol=1e-14)
    y = (torch.rand(30) < p).long()
    y[:2] = torch.tensor([0, 1])
    two = SoftmaxRegression(weight_decay=0.1, tol=1e-11).fit(x, y)
    one = LogisticRegression(weight_decay=0.05, tol=1e-11).fit(x, y)
    yield equals("fitted probabilities", two.predict_proba(x), one.predict_proba(x))
    scores = two.decision_function(x)
    yield equals("scores of the second class", scores, one.decision_function(x))
    joined = first * two.coef_[1] + second * two.coef_[0]
    yield equals("difference of the fitted weight vectors", joined, one.coef_[0])
    wide = torch.cat([x, torch.ones(30, 1)], 1)
    weights = torch.cat([one.coef_[0], torch.as_tensor(one.intercept_).reshape(1)])
    slope = wide.T @ (torch.sigmoid(wide @ weights) - y) / 30
    slope[:-1] += 0.05 * weights[:-1]  # the derivative of (0.05 / 2) |w|^2
    yield equals("gradient with the decay, at the fit", slope, 0.0)
    for classes, n in ((2, 60), (3, 60), (2, 2500)):
        yield from _weighted(classes, n)


def _weighted(classes: int, n: int, d: int = 2):
    """The penalised likelihood with weights of the examples is flat where the fit is."""
    x, y, s = torch.randn(n, d), torch.arange(n) % classes, torch.randint(3, (n,)).double()
    s[:classes] = 1.0
    for intercept in (True, False):
        options = {"weight_decay": 0.1, "tol": 1e-11, "fit_intercept": intercept}
        kind = LogisticRegression if classes == 2 else SoftmaxRegression
        unit = kind(**options).fit(x, y, sample_weight=s)
        b = torch.as_tensor(unit.intercept_).requires_grad_()
        w = unit.coef_.clone().requires_grad_()
        z = x @ w.T + b
        each = glm_loss(z, y, family="categorical", reduction="none") if classes > 2 else (
            torch.nn.functional.softplus(z[:, 0]) - y * z[:, 0])  # fmt: skip
        total = (s * each).sum() / s.sum() + 0.05 * w.square().sum()
        slopes = torch.autograd.grad(total, [w, b])
        at = {"classes": classes, "intercept": intercept}
        yield equals("gradient in the weights, at a weighted fit", slopes[0], 0.0, **at)
        if intercept:
            yield equals("gradient in the intercepts", slopes[1], 0.0, **at)
        yield at_most(
            "largest entry of the gradient, as stated", unit.gradient_, 1e-11, tol=0.0, **at
        )
        score = unit.decision_function(x).reshape(n, -1)
        yield equals("scores", score, z, **at)
        chosen = (z[:, 0] > 0).long() if classes == 2 else z.argmax(1)
        yield equals("classes predicted", unit.predict(x), chosen, **at)
        logs = torch.cat([-z, z], 1) / 2 if classes == 2 else z
        found = unit.predict_log_proba(x)
        yield equals("logarithms of the probabilities", found, logs.log_softmax(1), **at)


two_class_softmax.foil(r"$\sigma(x \cdot \theta_1)$ is right for $\theta_2 = 0$ only", second=0.0)
two_class_softmax.foil(r"$\sigma(x \cdot (\theta_2 - \theta_1))$", first=-1.0, second=1.0)


def in_logits(p: Tensor) -> Tensor:
    """The derivative of the softmax in its logits."""
    return p.diag() - torch.outer(p, p)


@claim(
    by="identity",
    sources=("A-049", "B-114"),
    budget=0.5,
    short=r"\partial \sigma_i / \partial z_j = \sigma_i (\delta_{ij} - \sigma_j)",
)
def softmax_jacobian(
    matrix: Callable[[Tensor], Tensor] = in_logits, chain: bool = True, k: int = 5, d: int = 3
):
    r"""The Jacobian of the softmax.

    In the logits, $\partial \sigma_i / \partial z_j = \sigma_i (\delta_{ij} - \sigma_j)$, the
    matrix $\mathrm{diag}(\sigma) - \sigma \sigma^\top$: symmetric, positive semidefinite, with rows
    that sum to zero, of rank $k - 1$. With logits $z = \Theta x$ the derivative in the input is
    $(\mathrm{diag}(\sigma) - \sigma \sigma^\top)\, \Theta$, that is
    $\nabla_x \sigma_i = \sigma_i (\theta_i - \sum_l \sigma_l \theta_l)$.

    Knobs:
        matrix: The derivative in the logits, a function of the probabilities.
        chain: Whether the weights enter the derivative in the input.
        k: How many classes there are.
        d: How many inputs there are.
    """
    lowest("k", k, 2)
    for name, theta in {
        "identity": torch.eye(k),
        "twice": 2 * torch.eye(k),
        "random": torch.randn(k, d),
    }.items():
        x = torch.randn(theta.shape[1])

        def soft(x: Tensor, theta: Tensor = theta) -> Tensor:
            powers = torch.exp(theta.to(x) @ x)
            return powers / powers.sum()

        truth = complex_step(soft, x)
        logits = matrix((theta @ x).softmax(0))
        found = logits @ theta if chain else logits
        yield equals("derivative in the input", found, truth, tol=1e-12, theta=name)
        ours = ExponentialFamily.named("categorical").variance(theta @ x) @ theta
        yield equals("categorical variance times the weights", ours, truth, tol=1e-12, theta=name)
        yield equals(
            "sums of the rows of the derivative", logits.sum(1), 0.0, tol=k * EPS, theta=name
        )
        yield equals(
            "transpose of the derivative in the logits", logits.T, logits, tol=0.0, theta=name
        )
        spectrum = torch.linalg.eigvalsh(logits)
        yield equals(
            "least eigenvalue of the derivative", spectrum[0], 0.0, tol=k * EPS, theta=name
        )
        yield at_least(
            "second eigenvalue of the derivative", spectrum[1], 1e3 * EPS, tol=0.0, theta=name
        )


softmax_jacobian.foil(
    r"$-\sigma_i \sigma_i$ off the diagonal",
    matrix=lambda p: p.diag() - (p * p)[:, None].expand(len(p), len(p)),
)
softmax_jacobian.erratum(
    "B-114",
    printed=r"$\nabla_{x_j} \sigma_i^{\max} = \sigma_i (1 - \sigma_i)$ for $i = j$,"
    r" $-\sigma_i \sigma_j$ otherwise, where $\sigma^{\max}$ was defined as a function of the input"
    r" $x$ and $\Theta$",
    right=r"$\nabla_x \sigma_i = \sigma_i \big(\theta_i - \sum_l \sigma_l \theta_l\big)$",
    why=r"notation, as scanned: the matrix is the derivative in the logits, for which $x_j$ must be"
    r" read (sheet A defines softmax on $x$ itself). In the input of the sheet's"
    r" $\sigma^{\max}(x; \Theta)$ the weights enter: for $\Theta = 2 I$ the derivative is twice the"
    r" printed one, and for a $\Theta$ that is not square not even the shape fits",
    weight="scan",
    refuted_by="derivative in the input",
    chain=False,
)
