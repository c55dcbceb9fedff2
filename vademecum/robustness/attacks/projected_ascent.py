r"""Projected gradient ascent: many small steps, each brought back into ball and box.

$$x_k = \Pi_S \Big(x_{k-1} + \alpha \operatorname*{argmax}_{\|v\|_p \le 1}
\langle v, g_{k-1} \rangle\Big), \qquad g_k = \mu\, g_{k-1} + \frac{\nabla_x \ell}{\|\nabla_x
\ell\|_1},$$

from a uniform draw of the ball (or from $x$). An example leaves as soon as an iterate fools the
model; of an example that stays, the iterate with the largest loss is kept, so that the loss does
not fall with the number of steps. (The input itself does not count among them: one step from it is
`fgsm`, whether that helps or not.) For $p = 1$ the step goes where the box leaves room: to the
point of the ball of radius $\alpha$ around $x_{k-1}$, within the box, where the linearised loss is
largest. The projections are those of `_threat`, and with "l0" the attack is that of
`sparse_changes`. The claims are `robustness.pgd`, `robustness.fgsm_one_step` and
`robustness.attack_strength`.
"""

from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.robustness._logits import Preprocess
from vademecum.robustness._threat import NORMS, Threat, per_example
from vademecum.robustness.attacks._campaign import Battle, Proposal, Terms, campaign
from vademecum.robustness.attacks._goals import LOSSES
from vademecum.robustness.attacks._kept import Kept
from vademecum.robustness.attacks._random_start import start_in_ball
from vademecum.robustness.attacks._sparse_changes import sparse_search
from vademecum.robustness.attacks.found import Attack

__all__ = ["pgd"]


def pgd(
    model: nn.Module,
    x: Float[Tensor, " n ..."],
    y: Shaped[Tensor, " n"],
    *,
    norm: Literal["linf", "l2", "l1", "l0"] = "linf",
    radius: float | Float[Tensor, " n"],
    box: tuple[float, float] | None = (0.0, 1.0),
    steps: int = 40,
    step_size: float | None = None,
    restarts: int = 1,
    momentum: float = 0.0,
    loss: Literal["ce", "margin", "dlr"] = "ce",
    random_start: bool = True,
    target: Shaped[Tensor, " n"] | None = None,
    preprocess: Preprocess = None,
    quantum: float | None = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> Attack:
    r"""Many steps along the steepest direction of the norm, each projected back into the ball.

    Args:
        model: Any module that gives logits, or something with `.logits`; taken in evaluation mode
            and left as it was.
        x: The inputs, examples along the first axis.
        y: Their labels.
        norm: The norm of the ball. With "l0" at most `radius` entries change, each freely within
            the box: greedily those that raise the linearised loss most.
        radius: Its radius, or one for each example.
        box: The least and the largest value that an input may have, or None.
        steps: How many steps are made, unless the model is fooled earlier.
        step_size: The length $\alpha$ of a step; by default $2.5\, \epsilon$ over `steps`.
        restarts: How often it begins anew with the examples that are left.
        momentum: The part $\mu$ of the previous direction that is kept.
        loss: What is climbed: the cross-entropy, the margin of logits, or their difference of
            logits ratio.
        random_start: Whether to begin at a random point; without it only restarts do.
        target: The classes that examples shall be taken for; None if any wrong one will do.
        preprocess: What lies between inputs and model, such as a normalisation.
        quantum: The spacing of the grid that results keep to, 1/255 for pixels.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.

    References:
        Madry, Makelov, Schmidt, Tsipras and Vladu, Towards deep learning models resistant to
        adversarial attacks, ICLR, 2018.
        Dong et al., Boosting adversarial attacks with momentum, CVPR, 2018.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [0.0, 0.0]])
        >>> x, y = torch.tensor([[0.5, 0.25], [0.9, 0.1]]), torch.tensor([0, 0])
        >>> pgd(model, x, y, radius=0.25, steps=4, random_start=False).fooled
        tensor([ True, False])
    """
    choice("loss", loss, LOSSES)
    whole("steps", steps, low=1)
    whole("restarts", restarts, low=1)
    number("momentum", momentum, low=0)
    if step_size is not None:
        number("step_size", step_size, above=0)
    terms = Terms(norm, radius, box, target, preprocess, quantum, memory, generator)
    if norm == "l0":
        if box is None:
            raise ValueError("box must be given for l0, whose entries move freely in it, got None")
        search = partial(sparse_search, steps=steps, loss=loss)
        return campaign(search, model, x, y, terms, norms=tuple(NORMS), loss=loss)
    search = partial(_search, steps=steps, step_size=step_size, restarts=restarts,
                     momentum=momentum, loss=loss, random_start=random_start)  # fmt: skip
    return campaign(search, model, x, y, terms, norms=tuple(NORMS), loss=loss,
                    slope=not random_start)  # fmt: skip


def _search(
    battle: Battle, *, steps: int, step_size: float | None, restarts: int, momentum: float,
    loss: str, random_start: bool,
) -> Proposal:  # fmt: skip
    kept = Kept(battle)
    for i in range(restarts):
        if not kept.active.numel():
            break
        here = random_start or i > 0
        _ascend(battle, kept, steps, step_size, momentum, loss, begin_anywhere=here)
    return kept.proposal()


def _ascend(
    battle: Battle, kept: Kept, steps: int, step_size: float | None, momentum: float, loss: str,
    *, begin_anywhere: bool,
) -> None:  # fmt: skip
    x0, goal, threat = kept.own(battle)
    slope = None if begin_anywhere or battle.slope is None else battle.slope[kept.active]
    x = start_in_ball(battle, kept.active) if begin_anywhere else x0.clone()
    alpha = threat.radius * 2.5 / steps if step_size is None else threat.radius * 0 + step_size
    low, high = threat.limits(x0)
    v = torch.zeros_like(x0) if momentum else None
    for k in range(steps + 1):
        if slope is None or k:
            seen, z, value, slope = kept.look(battle, x, goal, loss, gradient=k < steps)
            stay = kept.note(seen, z, value, goal)
            if stay is not None:
                x0, x, low, high, slope, alpha = (t[stay] for t in (x0, x, low, high, slope, alpha))
                v = None if v is None else v[stay]
                goal, threat = goal.rows(stay), threat.rows(stay)
            if k == steps or not len(x):
                return
        if v is not None:
            size = slope.flatten(1).abs().sum(1).clamp(min=torch.finfo(slope.dtype).tiny)
            v = slope = v.mul_(momentum).add_(slope / per_example(size, slope))
        x = _moved(threat, x0, x, slope, alpha, low, high)
        kept.count(steps=1)


def _moved(
    threat: Threat, x0: Tensor, x: Tensor, slope: Tensor, alpha: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """The next iterate."""
    if threat.norm == "linf":
        return x.addcmul_(slope.sign(), per_example(alpha, x)).clamp_(low, high)
    if threat.norm == "l1":
        return threat.nearest(x0, threat._replace(radius=alpha).furthest(x, slope))
    return threat.nearest(x0, x.addcmul_(threat.step(slope), per_example(alpha, x)))
