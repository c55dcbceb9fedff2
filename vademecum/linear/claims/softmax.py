"""What the course claims of the softmax function and of softmax regression."""

from collections.abc import Callable
from typing import Any

import mpmath
import torch
from torch import Tensor

from vademecum.claims import at_least, claim, complex_step, equals
from vademecum.linear.exponential_family import ExponentialFamily, glm_loss
from vademecum.linear.logistic import LogisticRegression
from vademecum.linear.softmax import SoftmaxRegression

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


@claim(by="identity", sources=("A-048", "B-111", "C-053"), budget=0.5)
def softmax(evaluate: Callable[[Tensor], Tensor] = with_shift, factor: float = 1.0, k: int = 6):
    r"""Softmax.

    $\mathrm{softmax}(z)_i = e^{z_i} / \sum_j e^{z_j}$ maps logits to the open probability simplex,
    keeps their order, and does not change when one constant is added to all logits, which is what
    makes the evaluation with $z - \max_j z_j$, without overflow, legitimate. As a softmax unit the
    logits are $z_i = x \cdot \theta_i$. (In double precision, probabilities below $10^{-300}$ round
    to zero; the relative error of the others is that of $z_i - \max_j z_j$.)
    """
    for scale in (1.0, 1000.0):
        z = scale * (2 * torch.rand(k) - 1)
        z[0] = scale
        p, (long, _) = evaluate(z), long_softmax(z)
        yield equals(int(p.isfinite().sum()), k, scale=scale)
        ratio = [float(mpmath.mpf(a) / b) for a, b in zip(p.tolist(), long, strict=True)
                 if b > 1e-300]  # fmt: skip
        yield equals(ratio, 1.0, tol=(2 * scale + k) * EPS, scale=scale)
        yield equals(p.sum(), 1.0, tol=k * EPS, scale=scale)
        shifted = evaluate(factor * z + 12.3)
        yield equals(shifted, p, tol=1e-12, scale=scale)
        ordered = p[z.argsort()].diff()
        yield at_least(ordered, 0.0, tol=0.0, scale=scale)
    model, x = fitted()
    logits = x[0] @ model.coef_.T + model.intercept_
    yield equals(model.predict_proba(x[:1])[0], [float(v) for v in long_softmax(logits)[0]])


softmax.foil("the textbook quotient overflows at logits of 1000", evaluate=textbook)
softmax.foil("a common factor, unlike a common summand, does change it", factor=2.0)


@claim(by="identity", sources=("B-112",), budget=0.5)
def softmax_redundancy(factor: float = 1.0, spared: int = 0, k: int = 4, n: int = 3):
    r"""Softmax regression is over-parameterised.

    Adding one common vector to all weight vectors $\theta_1, \dots, \theta_k \in \mathbb{R}^n$
    changes no probability, so one of them may be fixed at zero: the loss is flat along $n$
    directions, and its Hessian in $\Theta \in \mathbb{R}^{k \times n}$ has rank at most
    $(k - 1) n$, which it attains for inputs in general position.

    Of all these, the weights with the least norm sum to zero over the classes, which is where
    weight decay leads. (The knobs multiply $\Theta$, and spare classes the common vector.)
    """
    theta, common, x = torch.randn(k, n), torch.randn(n), torch.randn(50, n)
    moved = factor * theta + common * (torch.arange(k) >= spared)[:, None]
    yield equals((x @ moved.T).softmax(1), (x @ theta.T).softmax(1), tol=1e-12)
    model, seen = fitted(k, d=n)
    before = model.predict_proba(seen)
    yield equals(model.coef_.sum(0), 0.0, tol=1e-12)
    model.coef_ = factor * model.coef_ + common * (torch.arange(k) >= spared)[:, None]
    yield equals(model.predict_proba(seen), before, tol=1e-12)
    y = torch.randint(k, (50,))

    def loss(weights: Tensor) -> Tensor:
        return glm_loss(x @ weights.view(k, n).T, y, family="categorical")

    hessian = torch.func.jacrev(torch.func.grad(loss))(theta.flatten())
    spectrum = torch.linalg.eigvalsh(hessian)
    yield equals(int((spectrum < 1e-10 * spectrum[-1]).sum()), n)
    reduced = torch.linalg.eigvalsh(hessian[:-n, :-n])
    yield at_least(reduced[0], 1e-10 * reduced[-1], tol=0.0)


softmax_redundancy.foil("a common factor 2 changes the probabilities", factor=2.0)
softmax_redundancy.foil("a vector added to all classes but one changes them", spared=1)


@claim(by="identity", sources=("B-113",), budget=0.5)
def two_class_softmax(first: float = 1.0, second: float = -1.0, d: int = 4):
    r"""Two-class softmax is the logistic unit.

    For $k = 2$, $\mathrm{softmax}_1(x; \Theta) = \sigma\big(x \cdot (\theta_1 - \theta_2)\big)$:
    divide numerator and denominator by $e^{x \cdot \theta_1}$. So softmax regression of two classes
    with decay $\lambda$ is logistic regression with $\lambda / 2$, since
    $\|\theta_1\|^2 + \|\theta_2\|^2 = \|\theta_1 - \theta_2\|^2 / 2$ for $\theta_1 + \theta_2 = 0$.
    (The knobs are the factors of $\theta_1$ and $\theta_2$.)
    """
    theta, x = torch.randn(2, d), torch.randn(30, d)
    p = (x @ theta.T).softmax(1)[:, 0]
    yield equals(torch.sigmoid(x @ (first * theta[0] + second * theta[1])), p, tol=1e-14)
    y = (torch.rand(30) < p).long()
    y[:2] = torch.tensor([0, 1])
    two = SoftmaxRegression(weight_decay=0.1, tol=1e-11).fit(x, y)
    one = LogisticRegression(weight_decay=0.05, tol=1e-11).fit(x, y)
    yield equals(two.predict_proba(x), one.predict_proba(x))
    yield equals(first * two.coef_[1] + second * two.coef_[0], one.coef_[0])


two_class_softmax.foil(r"$\sigma(x \cdot \theta_1)$ is right for $\theta_2 = 0$ only", second=0.0)
two_class_softmax.foil(r"$\sigma(x \cdot (\theta_2 - \theta_1))$", first=-1.0, second=1.0)


def in_logits(p: Tensor) -> Tensor:
    """The derivative of the softmax in its logits."""
    return p.diag() - torch.outer(p, p)


@claim(by="identity", sources=("A-049", "B-114"), budget=0.5)
def softmax_jacobian(
    matrix: Callable[[Tensor], Tensor] = in_logits, chain: bool = True, k: int = 5, d: int = 3
):
    r"""The Jacobian of the softmax.

    In the logits, $\partial \sigma_i / \partial z_j = \sigma_i (\delta_{ij} - \sigma_j)$, the
    matrix $\mathrm{diag}(\sigma) - \sigma \sigma^\top$: symmetric, positive semidefinite, with rows
    that sum to zero, of rank $k - 1$. With logits $z = \Theta x$ the derivative in the input is
    $(\mathrm{diag}(\sigma) - \sigma \sigma^\top)\, \Theta$, that is
    $\nabla_x \sigma_i = \sigma_i (\theta_i - \sum_l \sigma_l \theta_l)$.
    """
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
        yield equals(logits @ theta if chain else logits, truth, tol=1e-12, theta=name)
        ours = ExponentialFamily.named("categorical").variance(theta @ x)
        yield equals(ours @ theta, truth, tol=1e-12, theta=name)
        yield equals(logits.sum(1), 0.0, tol=k * EPS, theta=name)
        spectrum = torch.linalg.eigvalsh(logits)
        yield equals(spectrum[0], 0.0, tol=k * EPS, theta=name)
        yield at_least(spectrum[1], 1e3 * EPS, tol=0.0, theta=name)


softmax_jacobian.foil(
    r"$-\sigma_i \sigma_i$ off the diagonal",
    matrix=lambda p: p.diag() - (p * p)[:, None].expand(len(p), len(p)),
)
softmax_jacobian.erratum(
    "B-114",
    printed=r"$\nabla_{x_j} \sigma_i^{\max} = \sigma_i (1 - \sigma_i)$ for $i = j$,"
    r" $-\sigma_i \sigma_j$ otherwise, as derivative in the input $x$",
    right=r"$\nabla_x \sigma_i = \sigma_i \big(\theta_i - \sum_l \sigma_l \theta_l\big)$",
    why=r"The printed matrix is the derivative in the logits; in the input the weights enter. For"
    r" $\Theta = 2 I$ the derivative is twice as large.",
    weight="hard",
    chain=False,
)
