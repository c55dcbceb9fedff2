r"""The strongest of several attacks, example by example.

One after the other, each only on the examples that the ones before did not fool:

1. `apgd` with the cross-entropy;
2. `apgd` with the difference of logits ratio, aimed at each of the likeliest other classes in turn
   (at the target, if there is one);
3. `square`, which sees no gradients (for linf and l2, the balls that it knows).

An example counts as fooled if any of them fools it. With fewer than four classes there is no such
ratio, and the margin takes its place, with a warning.
"""

from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.robustness._logits import Preprocess
from vademecum.robustness.attacks._campaign import Battle, Proposal, Search, Terms, campaign
from vademecum.robustness.attacks._goals import best_classes
from vademecum.robustness.attacks.adaptive_ascent import adaptive_search
from vademecum.robustness.attacks.found import Attack
from vademecum.robustness.attacks.random_squares import TRIES, square_search

__all__ = ["auto_attack"]


def auto_attack(
    model: nn.Module,
    x: Float[Tensor, " n ..."],
    y: Shaped[Tensor, " n"],
    *,
    norm: Literal["linf", "l2", "l1"] = "linf",
    radius: float | Float[Tensor, " n"],
    box: tuple[float, float] | None = (0.0, 1.0),
    steps: int = 100,
    classes: int = 9,
    square_steps: int = 5000,
    target: Shaped[Tensor, " n"] | None = None,
    preprocess: Preprocess = None,
    quantum: float | None = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> Attack:
    r"""The strongest of `apgd`, `apgd` aimed at class after class, and `square`.

    Args:
        model: Any module that gives logits, or something with `.logits`; taken in evaluation mode
            and left as it was.
        x: The inputs, examples along the first axis.
        y: Their labels.
        norm: The norm of the ball.
        radius: Its radius, or one for each example.
        box: The least and the largest value that an input may have, or None.
        steps: How many steps `apgd` makes each time.
        classes: At how many classes it aims.
        square_steps: How many changes `square` tries.
        target: The classes that examples shall be taken for; None if any wrong one will do.
        preprocess: What lies between inputs and model, such as a normalisation.
        quantum: The spacing of the grid that results keep to, 1/255 for pixels.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.

    References:
        Croce and Hein, Reliable evaluation of adversarial robustness with an ensemble of diverse
        parameter-free attacks, ICML, 2020.

    Example:
        >>> model = nn.Linear(2, 4, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [0.0, 0.0], [-9.0, 0.0], [0.0, -9.0]])
        >>> x, y = torch.tensor([[0.5, 0.25], [0.9, 0.1]]), torch.tensor([0, 0])
        >>> auto_attack(model, x, y, radius=0.25, steps=10, square_steps=10).fooled
        tensor([ True, False])
    """
    whole("steps", steps, low=1)
    whole("classes", classes, low=1)
    whole("square_steps", square_steps, low=1)
    terms = Terms(norm, radius, box, target, preprocess, quantum, memory, generator)
    search = partial(_search, steps=steps, classes=classes, square_steps=square_steps)
    return campaign(search, model, x, y, terms, norms=("linf", "l2", "l1"), loss="dlr", aimed=True,
                    copies=max(classes - 1, TRIES))  # fmt: skip


def _search(battle: Battle, *, steps: int, classes: int, square_steps: int) -> Proposal:
    ce = partial(adaptive_search, steps=steps, restarts=1, loss="ce")
    found = ce(battle)
    aimed = partial(adaptive_search, steps=steps, restarts=1, loss="dlr")
    if battle.goal.target is not None:
        _go_on(found, battle, aimed)
    else:
        z = battle.logits(battle.x)
        _aim(found, battle, aimed, best_classes(z, battle.goal.y, classes))
    if battle.threat.norm != "l1":
        _go_on(found, battle, partial(square_search, steps=square_steps))
    return found


def _aim(found: Proposal, battle: Battle, search: Search, classes: Tensor) -> None:
    """Aim at the likeliest class, and then at the others, all at once: fewer, larger steps."""
    for aims in (classes[:, :1].T, classes[:, 1:].T):  # (several, n)
        left = (~found.fooled).nonzero()[:, 0]
        if len(left) and len(aims):
            part = battle.rows(left.repeat(len(aims)))
            part = part._replace(goal=part.goal._replace(aim=aims[:, left].flatten()))
            several = [field.chunk(len(aims)) for field in search(part)]
            for copy in reversed(list(zip(*several, strict=True))):  # so that the first aim counts
                _note(found, left, Proposal(*copy))


def _go_on(found: Proposal, battle: Battle, search: Search) -> None:
    """Try a search on those that are left."""
    left = (~found.fooled).nonzero()[:, 0]
    if len(left):
        _note(found, left, search(battle.rows(left)))


def _note(found: Proposal, rows: Tensor, new: Proposal) -> None:
    """Add what a search found for some of the examples."""
    found.steps[rows] += new.steps
    found.queries[rows] += new.queries
    won = rows[new.fooled]
    found.x[won], found.fooled[won] = new.x[new.fooled], True
