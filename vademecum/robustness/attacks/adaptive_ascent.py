r"""Auto-PGD: projected ascent that sets its own step size, example by example.

From $x_0$ with the step $\eta = 2 \epsilon$ and $a = \frac34$ ($a = 1$ in the first step)

$$z = \Pi_S(x_k + \eta\, v_k), \qquad
x_{k+1} = \Pi_S\big(x_k + a (z - x_k) + (1 - a)(x_k - x_{k-1})\big),$$

where $v_k$ is the steepest direction. At the checkpoints $\lceil p_j N \rceil$ of $N$ steps,
$p_0 = 0$, $p_1 = 0.22$, $p_{j+1} = p_j + \max(p_j - p_{j-1} - 0.03, 0.06)$, the step of an example
is halved and its best point taken up again if, since the last checkpoint,

1. the loss rose in fewer than three quarters of the steps, or
2. neither its best loss nor its step size changed.

Everything that adapts belongs to one example: no other one in the batch has a say. With $p = 1$ the
direction has the sign of the gradient in a tenth of the entries, those of largest modulus, and in
half as many whenever the step is halved; that rule is ours. An example leaves when it is fooled.
"""

from functools import partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vademecum.arguments import choice, whole
from vademecum.robustness._logits import Preprocess
from vademecum.robustness._threat import Threat, per_example
from vademecum.robustness.attacks._campaign import Battle, Proposal, Terms, campaign
from vademecum.robustness.attacks._goals import LOSSES
from vademecum.robustness.attacks._kept import Kept
from vademecum.robustness.attacks._random_start import start_in_ball
from vademecum.robustness.attacks.found import Attack

__all__ = ["adaptive_search", "apgd", "checkpoints"]

_SHARE = 0.1  # of the entries that move at first in l1


def apgd(
    model: nn.Module,
    x: Float[Tensor, " n ..."],
    y: Shaped[Tensor, " n"],
    *,
    norm: Literal["linf", "l2", "l1"] = "linf",
    radius: float | Float[Tensor, " n"],
    box: tuple[float, float] | None = (0.0, 1.0),
    steps: int = 100,
    restarts: int = 1,
    loss: Literal["ce", "margin", "dlr"] = "ce",
    target: Shaped[Tensor, " n"] | None = None,
    preprocess: Preprocess = None,
    quantum: float | None = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> Attack:
    r"""Projected ascent with a step size that adapts to each example.

    Args:
        model: Any module that gives logits, or something with `.logits`; taken in evaluation mode
            and left as it was.
        x: The inputs, examples along the first axis.
        y: Their labels.
        norm: The norm of the ball.
        radius: Its radius, or one for each example.
        box: The least and the largest value that an input may have, or None.
        steps: How many steps are made, unless the model is fooled earlier.
        restarts: How often it begins, each time at a random point, with the examples that are left.
        loss: What is climbed: the cross-entropy, the margin of logits, or their difference of
            logits ratio.
        target: The classes that examples shall be taken for; None if any wrong one will do.
        preprocess: What lies between inputs and model, such as a normalisation.
        quantum: The spacing of the grid that results keep to, 1/255 for pixels.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.

    References:
        Croce and Hein, Reliable evaluation of adversarial robustness with an ensemble of diverse
        parameter-free attacks, ICML, 2020.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [0.0, 0.0]])
        >>> x, y = torch.tensor([[0.5, 0.25], [0.9, 0.1]]), torch.tensor([0, 0])
        >>> apgd(model, x, y, radius=0.25, steps=10).fooled
        tensor([ True, False])
    """
    choice("loss", loss, LOSSES)
    whole("steps", steps, low=1)
    whole("restarts", restarts, low=1)
    terms = Terms(norm, radius, box, target, preprocess, quantum, memory, generator)
    search = partial(adaptive_search, steps=steps, restarts=restarts, loss=loss)
    return campaign(search, model, x, y, terms, norms=("linf", "l2", "l1"), loss=loss)


def adaptive_search(battle: Battle, *, steps: int, restarts: int, loss: str) -> Proposal:
    """Climb from random points, as long as examples are left."""
    kept = Kept(battle)
    for _ in range(restarts):
        if not kept.active.numel():
            break
        _climb(battle, kept, steps, loss)
    return kept.proposal()


def checkpoints(steps: int) -> list[int]:
    """The steps after which step sizes are looked at.

    Example:
        >>> checkpoints(100)
        [22, 41, 57, 70, 80, 87, 93, 99]
    """
    p, before, found = 22, 0, list[int]()  # in hundredths
    while p < 100:
        found.append(-(-p * steps // 100))
        p, before = p + max(p - before - 3, 6), p
    return found


class _State(NamedTuple):
    """What there is of each example that is left."""

    x0: Tensor
    """Where it began."""
    low: Tensor
    """What its entries may be at least."""
    high: Tensor
    """What they may be at most."""
    x: Tensor
    """The iterate."""
    before: Tensor
    """The one before."""
    value: Tensor
    """Its loss."""
    slope: Tensor
    """The gradient there."""
    best: Tensor
    """The iterate with the largest loss."""
    best_value: Tensor
    """That loss."""
    best_slope: Tensor
    """The gradient there."""
    eta: Tensor
    """The step size."""
    rises: Tensor
    """How often the loss rose since the last checkpoint."""
    then: Tensor
    """The best loss at the last checkpoint."""
    halved: Tensor
    """Whether the step was halved there."""


def _climb(battle: Battle, kept: Kept, steps: int, loss: str) -> None:
    x0, goal, threat = kept.own(battle)
    x = start_in_ball(battle, kept.active)
    seen, z, value, slope = kept.look(battle, x, goal, loss)
    stay = kept.note(seen, z, value, goal)
    low, high = threat.limits(x0)
    none, halved = torch.zeros_like(goal.y), torch.ones_like(goal.y, dtype=torch.bool)
    s = _State(x0, low, high, x, x, value, slope, x, value, slope, 2 * threat.radius, none, value,
               halved)  # fmt: skip
    looks, last = checkpoints(steps), 0
    for k in range(steps):
        if stay is not None:
            s = _State(*(t[stay] for t in s))
            goal, threat = goal.rows(stay), threat.rows(stay)
        if not len(s.x):
            return
        kept.count(steps=1)
        x = _moved(threat, s, 0.75 if k else 1.0)
        seen, z, value, slope = kept.look(battle, x, goal, loss, gradient=k + 1 < steps)
        stay = kept.note(seen, z, value, goal)
        s = _counted(s, x, value, slope)
        if k + 1 in looks:
            s, last = _adapted(s, k + 1 - last), k + 1


def _moved(threat: Threat, s: _State, a: float) -> Tensor:
    """The next iterates."""
    limits, eta = (s.low, s.high), per_example(s.eta, s.x)
    z = threat.nearest(s.x0, s.x + eta * _direction(threat, s), limits)
    if a == 1:
        return z
    return threat.nearest(s.x0, s.x + a * (z - s.x) + (1 - a) * (s.x - s.before), limits)


def _direction(threat: Threat, s: _State) -> Tensor:
    """The steepest direction, in l1 of a few entries."""
    if threat.norm != "l1":
        return threat.step(s.slope)
    free = s.slope.masked_fill(torch.where(s.slope > 0, s.x >= s.high, s.x <= s.low), 0).flatten(1)
    part = s.eta / (2 * threat.radius).clamp(min=torch.finfo(s.eta.dtype).tiny)
    count = (_SHARE * free.shape[1] * part).ceil().clamp(min=1)[:, None]
    rank = free.abs().argsort(dim=1, descending=True).argsort(dim=1)
    return (free.sign().masked_fill(rank >= count, 0) / count).view_as(s.x)


def _counted(s: _State, x: Tensor, value: Tensor, slope: Tensor) -> _State:
    """The state after a step."""
    better = value > s.best_value
    wide = per_example(better, x)
    return s._replace(
        x=x, before=s.x, value=value, slope=slope, rises=s.rises + (value > s.value),
        best=torch.where(wide, x, s.best), best_slope=torch.where(wide, slope, s.best_slope),
        best_value=torch.where(better, value, s.best_value),
    )  # fmt: skip


def _adapted(s: _State, since: int) -> _State:
    """The state after a checkpoint, some steps after the last one."""
    stuck = (s.best_value <= s.then) & ~s.halved
    halve = (s.rises < 0.75 * since) | stuck
    wide = per_example(halve, s.x)
    return s._replace(
        x=torch.where(wide, s.best, s.x), before=torch.where(wide, s.best, s.before),
        slope=torch.where(wide, s.best_slope, s.slope),
        value=torch.where(halve, s.best_value, s.value),
        eta=torch.where(halve, s.eta / 2, s.eta),
        rises=torch.zeros_like(s.rises), then=s.best_value, halved=halve,
    )  # fmt: skip
