r"""The score-function gradient: differentiating an expectation whose law depends on $\theta$.

Since $\nabla p_\theta = p_\theta \nabla \log p_\theta$,

$$\nabla_\theta \mathbb E_{p_\theta}[f(x)] =
\mathbb E_{p_\theta}\bigl[(f(x) - b) \, \nabla_\theta \log p_\theta(x)\bigr]$$

for every baseline $b$ that does not depend on $x$, because the score $\nabla \log p_\theta$ has
mean zero. No derivative of $f$ is needed. The average over draws $x_1, \dots, x_n$ is unbiased; so
it is with the leave-one-out baselines $b_i = \frac1{n - 1} \sum_{j \ne i} f(x_j)$, which are
independent of $x_i$ and usually reduce the variance. The mean over all draws as a baseline would
shrink the gradient by $1 - \frac1n$.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number

__all__ = ["score_function_gradient"]


def score_function_gradient(
    log_prob: Float[Tensor, " n"],
    f: Float[Tensor, " n"],
    theta: Sequence[Tensor],
    *,
    baseline: float | Literal["leave_one_out"] = "leave_one_out",
) -> tuple[Tensor, ...]:
    r"""An unbiased estimate of $\nabla_\theta \mathbb E_{p_\theta}[f(x)]$ from draws of $p_\theta$.

    Args:
        log_prob: $\log p_\theta(x_i)$ of independent draws, as a function of $\theta$.
        f: The values $f(x_i)$; no gradient is taken through them.
        theta: The parameters.
        baseline: A number $b$ fixed beforehand, or "leave_one_out".

    Returns:
        The gradient by each of the parameters (zero by one that does not matter).

    Raises:
        ValueError: If there is one draw only for "leave_one_out", if arguments do not match, or
            `log_prob` depends on nothing.

    References:
        Williams, Simple statistical gradient-following algorithms for connectionist reinforcement
        learning, Machine Learning, 1992.
        Kool, van Hoof and Welling, Buy 4 REINFORCE samples, get a baseline for free!, ICLR
        workshop on deep reinforcement learning meets structured prediction, 2019.

    Example:
        >>> theta = torch.tensor(0.0, requires_grad=True)  # of a coin with p = sigmoid(theta)
        >>> coin = torch.distributions.Bernoulli(logits=theta)
        >>> heads = torch.tensor([1.0, 0.0])
        >>> score_function_gradient(coin.log_prob(heads), 3 * heads, [theta], baseline=0.0)
        (tensor(0.7500),)
    """
    floats("f", f, ndim=1)
    n = len(floats("log_prob", log_prob, ndim=1, width=len(f)))
    f = f.detach()
    if baseline == "leave_one_out":
        if n < 2:
            raise ValueError(f"f must have 2 entries or more to leave one out, got {n}")
        advantage = (f - f.mean()) * (n / (n - 1))
    else:
        advantage = f - number("baseline", baseline)
    if not log_prob.requires_grad:
        raise ValueError("log_prob must be a function of theta, got a tensor without a gradient")
    return torch.autograd.grad((advantage * log_prob).mean(), list(theta), materialize_grads=True)
