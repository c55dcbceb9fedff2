r"""The fast gradient sign method: one step to the edge of the ball.

$$x' = \operatorname*{argmax}_{z \in S} \langle z - x, \nabla_x \ell(f(x), y) \rangle, \qquad
S = \{z : \|z - x\|_p \le \epsilon,\; l \le z_i \le h\},$$

for $p = \infty$ and as far as the box allows $x + \epsilon \operatorname{sgn} \nabla_x \ell$. It
maximises the linearised loss over ball and box, so it is exact for linear models with a loss that
is monotone in the margin. The claims are `robustness.fgsm` and `robustness.fgsm_one_step`.
"""

from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vademecum.arguments import choice
from vademecum.robustness._logits import Preprocess
from vademecum.robustness.attacks._campaign import Battle, Proposal, Terms, campaign
from vademecum.robustness.attacks._goals import LOSSES
from vademecum.robustness.attacks.found import Attack

__all__ = ["fgsm"]


def fgsm(
    model: nn.Module,
    x: Float[Tensor, " n ..."],
    y: Shaped[Tensor, " n"],
    *,
    norm: Literal["linf", "l2", "l1"] = "linf",
    radius: float | Float[Tensor, " n"],
    box: tuple[float, float] | None = (0.0, 1.0),
    loss: Literal["ce", "margin", "dlr"] = "ce",
    target: Shaped[Tensor, " n"] | None = None,
    preprocess: Preprocess = None,
    quantum: float | None = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> Attack:
    r"""One step to the edge of the ball, along the steepest direction of its norm.

    Args:
        model: Any module that gives logits, or something with `.logits`; taken in evaluation mode
            and left as it was.
        x: The inputs, examples along the first axis.
        y: Their labels.
        norm: The norm of the ball.
        radius: Its radius, or one for each example.
        box: The least and the largest value that an input may have, or None.
        loss: What rises along the step: the cross-entropy, the margin of logits, or their
            difference of logits ratio.
        target: The classes that examples shall be taken for; None if any wrong one will do.
        preprocess: What lies between inputs and model, such as a normalisation.
        quantum: The spacing of the grid that results keep to, 1/255 for pixels.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default. This attack
            draws none beyond the one that all of them do.

    References:
        Goodfellow, Shlens and Szegedy, Explaining and harnessing adversarial examples, ICLR, 2015.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [0.0, 0.0]])
        >>> x, y = torch.tensor([[0.5, 0.25], [0.9, 0.1]]), torch.tensor([0, 0])
        >>> fgsm(model, x, y, radius=0.25)
        Attack(x=tensor([[0.2500, 0.5000], [0.6500, 0.3500]]), fooled=tensor([ True, False]), ...
    """
    choice("loss", loss, LOSSES)
    terms = Terms(norm, radius, box, target, preprocess, quantum, memory, generator)
    return campaign(_step, model, x, y, terms, norms=("linf", "l2", "l1"), loss=loss, slope=True)


def _step(battle: Battle) -> Proposal:
    assert battle.slope is not None
    ones = torch.ones_like(battle.goal.y)
    points = battle.threat.furthest(battle.x, battle.slope)
    return Proposal(points, ones, 0 * ones, ones < 0)
