"""Cross-entropy: the loss of softmax regression."""

import math
from collections.abc import Callable

import mpmath
import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.claims import at_least, claim, complex_step, equals, lowest
from vademecum.linear import SoftmaxRegression, glm_loss
from vademecum.linear._penalised_likelihood import PenalisedLikelihood
from vademecum.linear.claims.softmax import long_softmax


def simplex(*shape: int) -> Tensor:
    """Points drawn evenly from the probability simplex."""
    powers = -torch.log(torch.rand(*shape))
    return powers / powers.sum(-1, keepdim=True)


@claim(
    by="identity",
    sources=("B-115", "B-116", "B-203"),
    budget=0.5,
    short=r"\textstyle\sum_i y_i = 1: -\sum_i y_i \log \mathrm{softmax}_i(z)"
    r" = -\sum_i y_i z_i + \log \sum_j e^{z_j} \ge 0",
)
def cross_entropy(partition: float = 1.0, k: int = 4):
    r"""Softmax cross-entropy in log-sum-exp form.

    For a probability vector of predictions $v$ and a class $y$ the log loss is $-\log v_y$; with
    $v = \mathrm{softmax}(z)$ and a target vector $y \ge 0$, $\sum_i y_i = 1$ (one-hot in
    particular),

    $$\ell = -\sum_i y_i \log v_i = -\sum_i y_i z_i + \log \sum_j e^{z_j} \ge 0.$$

    The log-partition enters once and with a plus sign.

    Knobs:
        partition: The factor of the log-partition.
        k: How many classes there are.
    """
    lowest("k", k, 2)
    zero, hard = torch.zeros(k), F.one_hot(torch.tensor(1), k).double()
    drawn = [(scale * torch.randn(k), scale) for scale in (1.0, 1000.0)]
    for z, scale in ((zero, 0.0), *drawn):
        v, long = long_softmax(z)
        for y in (hard, simplex(k)):
            with mpmath.workdps(50):
                terms = [a * mpmath.log(b) for a, b in zip(y.tolist(), v, strict=True)]
                truth = float(-mpmath.fsum(terms))
            form = -(y @ z) + partition * z.logsumexp(0)
            at = {"tol": 1e-12, "scale": scale, "target": "hard" if y is hard else "soft"}
            yield equals("loss in log-sum-exp form", form, truth, **at)
            yield equals("loss of torch", F.cross_entropy(z, y), truth, **at)
            yield at_least(
                "loss over one plus the scale of the logits", form / (1 + scale), 0.0, **at
            )
        ours, truth = glm_loss(z, torch.tensor(1), family="categorical"), float(-mpmath.log(v[1]))
        yield equals("loss of the categorical family", ours, truth, tol=1e-12, scale=scale)
        example = PenalisedLikelihood(
            torch.ones(1, 1), hard[:, None], torch.ones(1), weight_decay=0.0, bias=False
        )
        theta = torch.stack([z, torch.zeros(k)], 1).flatten()
        ours = example(theta)[0]
        yield equals("loss of softmax regression", ours, truth, tol=1e-12, scale=scale)
        yield equals("log-partition", z.logsumexp(0), float(long), tol=1e-12, scale=scale)


cross_entropy.erratum(
    "B-116",
    printed=r"$\ell(x, y; \Theta) = -\sum_{i=1}^k \big[y_i\, x \cdot \theta_i"
    r" + \log(\sum_{j=1}^k \exp[x \cdot \theta_j])\big]$",
    right=r"$\ell(x, y; \Theta) = -\sum_{i=1}^k y_i\, x \cdot \theta_i"
    r" + \log \sum_{j=1}^k \exp[x \cdot \theta_j]$",
    why=r"the log-partition sits inside the sum over classes without the factor $y_i$ and has the"
    r" wrong sign: for zero logits and $k = 4$ the loss is $\log 4 = 1.386$, the printed expression"
    r" $-4 \log 4 = -5.545$; a cross-entropy is never negative",
    weight="hard",
    refuted_by="loss in log-sum-exp form",
    partition=-4.0,
)
cross_entropy.foil("without the log-partition", partition=0.0)


@claim(
    by="identity",
    sources=("C-055",),
    budget=0.5,
    short=r"\tfrac1{\ln 2} \big[-z_y + \ln \textstyle\sum_j e^{z_j}\big]"
    r" = -\log_2 \mathrm{softmax}(z)_y",
)
def cross_entropy_bits(unit: float = math.log(2)):
    r"""Cross-entropy in bits.

    Dividing the natural-log loss by $\ln 2$ measures it in bits:
    $\ell(y; z) = \frac{1}{\ln 2} \big[-z_y + \ln \sum_j e^{z_j}\big]
    = -\log_2 \mathrm{softmax}(z)_y$; equal logits over $k$ classes cost $\log_2 k$ bits.

    Knobs:
        unit: What the loss in nats is divided by.
    """
    for k in (2, 8, 64):
        equal = glm_loss(torch.zeros(k), torch.tensor(1), family="categorical") / unit
        yield equals("loss at equal logits, in bits", equal, math.log2(k), tol=1e-15, k=k)
    for k in (2, 5, 20):
        z = 3 * torch.randn(k)
        bits = glm_loss(z.expand(k, k), torch.arange(k), family="categorical", reduction="none")
        truth = [float(-mpmath.log(v, 2)) for v in long_softmax(z)[0]]
        yield equals("loss in bits", bits / unit, truth, tol=1e-13, k=k)


cross_entropy_bits.foil(r"divided by $\log_2 e$ instead of $\ln 2$", unit=math.log2(math.e))
cross_entropy_bits.foil("left in nats", unit=1.0)


@claim(
    by="identity",
    sources=("B-117",),
    budget=0.5,
    short=r"\nabla_{\theta_i} \ell = (\mathrm{softmax}_i - y_i)\, x",
)
def softmax_gradient(sign: float = 1.0, saturating: bool = False, k: int = 4, d: int = 3):
    r"""The gradient of softmax regression.

    For $\ell = -\sum_i y_i \log \mathrm{softmax}_i(\Theta x)$ with $\sum_i y_i = 1$:
    $\nabla_{\theta_i} \ell = (\mathrm{softmax}_i - y_i)\, x$, so that the classes' gradients add up
    to zero. Weight decay $\lambda$, the loss $\ell + \frac\lambda2 \|\Theta\|^2$, adds
    $\lambda \theta_i$.

    Knobs:
        sign: The sign of the gradient.
        saturating: Whether there is the factor $\sigma_i (1 - \sigma_i)$ of a squared error through
            a sigmoid.
        k: How many classes there are.
        d: How many inputs there are.
    """
    lowest("k", k, 3)
    hard = F.one_hot(torch.tensor(2), k).double()
    for y, decay in ((hard, 0.0), (simplex(k), 0.0), (simplex(k), 0.6)):
        theta, x = torch.randn(k, d), torch.randn(d)

        def loss(theta: Tensor, x: Tensor = x, y: Tensor = y, decay: float = decay) -> Tensor:
            z = theta @ x.to(theta)
            penalty = decay / 2 * (theta * theta).sum()
            return torch.log(torch.exp(z).sum()) - z @ y.to(z) + penalty

        truth = complex_step(loss, theta)
        p = (theta @ x).softmax(0)
        factor = p * (1 - p) if saturating else 1.0
        formula = torch.outer(sign * factor * (p - y), x)
        at = {"target": "hard" if y is hard else "soft", "decay": decay}
        whole = formula + decay * theta
        yield equals("prediction error times input", whole, truth, tol=1e-12, **at)
        yield equals("sum of the gradients over the classes", formula.sum(0), 0.0, tol=1e-14, **at)
        example = PenalisedLikelihood(
            x[None], y[:, None], torch.ones(1), weight_decay=decay, bias=False
        )
        flat = torch.cat([theta, torch.zeros(k, 1)], 1).flatten()
        ours = example(flat)[1].view(k, d + 1)[:, :-1]
        yield equals("gradient of softmax regression", ours, truth, tol=1e-12, **at)


softmax_gradient.foil(r"with a factor $\sigma_i (1 - \sigma_i)$", saturating=True)
softmax_gradient.foil("with the sign reversed", sign=-1.0)


def entropy_terms(y: Tensor, v: Tensor) -> Tensor:
    """The summands of the entropy of the target."""
    return -torch.special.xlogy(y, y)


@claim(
    by="sampling",
    sources=("B-204",),
    budget=0.5,
    full={"pairs": 10**5},
    short=r"-\textstyle\sum_j y_j \log v_j \ge -\sum_j y_j \log y_j = H(y)",
)
def soft_target_bound(
    terms: Callable[[Tensor, Tensor], Tensor] = entropy_terms, mass: float = 1.0, pairs: int = 1000
):
    r"""Cross-entropy is bounded below by the entropy of the target.

    For probability vectors $y, v$: $-\sum_j y_j \log v_j \ge -\sum_j y_j \log y_j = H(y)$ with
    equality iff $v = y$ (Gibbs); the gap is $\mathrm{KL}(y \| v)$. Both vectors must sum to one.
    So a softmax regression on soft targets has at least their mean entropy as loss, and attains it
    where the targets are a softmax of linear logits.

    Knobs:
        terms: The summands of the lower bound, a function of $y$ and $v$.
        mass: The sum of $y$.
        pairs: How many pairs of probability vectors are drawn.
    """
    from scipy.special import rel_entr

    witness = torch.tensor([[0.1, 0.1]]) / 0.2, torch.tensor([[0.5, 0.5]])
    for y, v in (witness, (simplex(pairs, 5), simplex(pairs, 5))):
        y = mass * y
        bound = terms(y, v).sum(1)
        gap = -(y * v.log()).sum(1) - bound
        divergence, at = rel_entr(y.numpy(), v.numpy()).sum(1), {"m": y.shape[1]}
        yield at_least("gap between the two sides", gap, 0.0, tol=1e-12, **at)
        yield equals("gap, against the divergence", gap, divergence, tol=1e-12, **at)
        entropy = torch.distributions.Categorical(probs=y).entropy()
        yield equals("lower bound, against torch's entropy", bound, entropy, tol=1e-12, **at)
    x = torch.randn(30, 2)
    for y, attained in ((simplex(30, 3), False), ((x @ torch.randn(2, 3)).softmax(1), True)):
        model = SoftmaxRegression(weight_decay=0.0, tol=1e-8).fit(x, y)
        loss = F.cross_entropy(torch.as_tensor(model.decision_function(x)), y)
        least = terms(y, model.predict_proba(x)).sum(1).mean()
        if attained:
            yield equals("loss on targets that are a softmax", loss, least)
        else:
            yield at_least("loss on any soft targets", loss, least)


soft_target_bound.foil(
    r"$y = (0.1, 0.1)$ does not sum to one", refuted_by="gap between the two sides", mass=0.2
)
soft_target_bound.erratum(
    "B-204",
    printed=r"$(y \in [0, 1]^m):\ \ell_y(v) = -\sum_j y_j \log v_j \ge -\sum_j y_j \log v_j"
    r" =: H(y)$",
    right=r"$\ell_y(v) = -\sum_j y_j \log v_j \ge -\sum_j y_j \log y_j =: H(y)$"
    r" for a probability vector $y$",
    why=r"as scanned: the entropy needs $\log y_j$ (both sides are the same expression; the scan"
    r" may have read $v$ for $y$), so that the gap is 0 where it is a divergence. What remains is a"
    r" missing hypothesis, $\sum_j y_j = 1$: with $y = (0.1, 0.1)$, $v = (0.5, 0.5)$ the left side"
    r" is 0.139 and $-\sum_j y_j \log y_j = 0.461$",
    weight="scan",
    refuted_by="gap, against the divergence",
    terms=lambda y, v: -torch.special.xlogy(y, v),
)
