r"""Adversarial training: the loss at the worst inputs within a radius, for any training loop.

$$\min_\theta \frac1n \sum_i \max_{\|r_i\|_p \le \epsilon} \ell(f_\theta(x_i + r_i), y_i) .$$

The inner maximum is sought by K steps of projected gradient ascent from a random point ("pgd"), or
by one step from $x$ to the edge of the ball ("fgsm"). The gradient of the outer minimum is that of
the loss at the maximiser, held fixed (Danskin's theorem, where the maximiser is unique); so a step
of training costs K + 1 gradients. Unlike an attack, which stops when the class changes, the ascent
goes all the way. "trades" trades off two terms,

$$\frac1n \sum_i \ell(f_\theta(x_i), y_i) + \beta \max_{\|r_i\|_p \le \epsilon}
\mathrm{KL}\big(p_\theta(\cdot \mid x_i) \,\|\, p_\theta(\cdot \mid x_i + r_i)\big),$$

the second of which does not ask whether the class is right. The inner problem sees the model in
evaluation mode, the outer one as it is. The maximum is approximated from below; for linear models
with the sign steps of $\ell_\infty$ it is exact. The claims are `adversarial_training` and
`robust_loss`.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div

from vademecum.arguments import choice, number, whole
from vademecum.randomness import source
from vademecum.robustness._logits import Classifier, Preprocess, as_classifier, as_labels
from vademecum.robustness._threat import Threat, as_threat, per_example
from vademecum.robustness.uniform_draws import unit_ball

__all__ = ["adversarial_loss"]

Objective = Callable[[Tensor], Tensor]
_REACH = 2.5  # radii that the steps add up to by default: enough to cross the ball


def adversarial_loss(
    model: nn.Module,
    x: Float[Tensor, " n ..."],
    y: Shaped[Tensor, " n"],
    *,
    method: Literal["pgd", "fgsm", "trades"] = "pgd",
    norm: Literal["linf", "l2", "l1"] = "linf",
    radius: float | Float[Tensor, " n"],
    box: tuple[float, float] | None = (0.0, 1.0),
    steps: int = 10,
    step_size: float | None = None,
    random_start: bool = True,
    beta: float = 6.0,
    preprocess: Preprocess = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, ""]:
    r"""The cross-entropy at inputs that were made as bad as a radius allows, to be minimised.

    `adversarial_loss(model, x, y, radius=8 / 255).backward()` is a step of adversarial training.
    Parameters take their gradients from the outer loss alone.

    Args:
        model: Any module that gives logits, or something with `.logits`.
        x: The inputs, examples along the first axis.
        y: Their labels.
        method: "pgd" for K steps, "fgsm" for one from the input itself, "trades" for the clean loss
            plus what changes within the radius.
        norm: The norm of the ball.
        radius: Its radius, or one for each example.
        box: The least and the largest value that an input may have, or None.
        steps: How many steps K the ascent takes.
        step_size: The length of a step; by default $2.5\, \epsilon$ over `steps`.
        random_start: Whether the ascent begins at a random point of the ball; "trades" needs it,
            since what changes is smallest at the input itself.
        beta: The weight $\beta$ of the second term of "trades".
        preprocess: What lies between inputs and model, such as a normalisation.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        The loss, a mean over the examples, differentiable in the parameters.

    References:
        Madry, Makelov, Schmidt, Tsipras and Vladu, Towards deep learning models resistant to
        adversarial attacks, ICLR, 2018. Zhang et al., Theoretically principled trade-off between
        robustness and accuracy, ICML, 2019.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
        >>> x, y = torch.zeros(1, 2), torch.tensor([0])
        >>> adversarial_loss(model, x, y, radius=0.5, box=None).item()  # log(1 + e^{0.5 * 3})
        1.701413...
    """
    choice("method", method, ("pgd", "fgsm", "trades"))
    whole("steps", steps, low=1)
    if step_size is not None:
        number("step_size", step_size, above=0)
    number("beta", beta, low=0)
    threat = as_threat(x, norm, radius, box)
    y = as_labels("y", y, x)
    x = x.detach()
    if method == "trades" and not random_start:
        raise ValueError('random_start must be True for method "trades", got False')
    start = _start(threat, x, generator) if random_start and method != "fgsm" else x
    with as_classifier(model, x, y, preprocess, steady=False) as logits:
        objective = partial(_divergence, logits(x)) if method == "trades" else _mistake(y)
        if method == "fgsm":
            slope = logits.gradient(x, objective)[2]
            worst = threat.project(x, threat.furthest(x, slope))
        else:
            length = _REACH / steps * threat.radius if step_size is None else step_size
            worst = _ascend(logits, threat, x, start, objective, steps, length)
    outer = Classifier(model, preprocess)
    if method != "trades":
        return cross_entropy(outer.traced(worst), y)
    clean, moved = outer.traced(x), outer.traced(worst)
    return cross_entropy(clean, y) + beta * _divergence(clean, moved).mean()


def _ascend(
    logits: Classifier,
    threat: Threat,
    x0: Tensor,
    x: Tensor,
    objective: Objective,
    steps: int,
    length: Tensor | float,
) -> Tensor:
    """Projected gradient ascent, all the way."""
    if isinstance(length, Tensor):
        length = per_example(length, x0)
    low, high = threat.limits(x0)
    flat = threat.norm == "linf"  # a box, whose ends are computed once
    x = x.clamp(low, high) if flat else threat.nearest(x0, x)
    for _ in range(steps):
        slope = logits.gradient(x, objective)[2]
        if threat.norm == "l1":  # whose step is a single entry: one that has room
            slope = slope.masked_fill(torch.where(slope > 0, x >= high, x <= low), 0)
        x = x + length * threat.step(slope)
        x = x.clamp_(low, high) if flat else threat.nearest(x0, x)
    return x if flat else threat.project(x0, x)


def _start(threat: Threat, x: Tensor, generator: torch.Generator | None) -> Tensor:
    like = torch.empty_like(x, device=source(generator, x.device)["device"])
    drawn = unit_ball(like, threat.norm, generator).to(x.device)
    return x + per_example(threat.radius, x) * drawn


def _mistake(y: Tensor) -> Objective:
    return lambda z: cross_entropy(z, y, reduction="none")


def _divergence(clean: Tensor, z: Tensor) -> Tensor:
    """The relative entropy of the law of classes for clean inputs, with regard to another."""
    pair = z.log_softmax(1), clean.log_softmax(1)
    return kl_div(*pair, reduction="none", log_target=True).sum(1)
