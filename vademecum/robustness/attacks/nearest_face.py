r"""DeepFool: to the nearest face of the region where the linearised logits keep their order.

With class $c$ predicted, $h_j = f_j - f_c$ and $w_j = \nabla h_j$ at the current point, the
shortest step that makes $h_j = 0$ to first order has the length $|h_j| / \|w_j\|_q$ and is

$$r_j = \frac{|h_j|}{\|w_j\|_q}\, \operatorname*{argmax}_{\|v\|_p \le 1} \langle v, w_j \rangle,$$

for $p = 2$ along $w_j$, for $p = \infty$ along its signs. The shortest of them is added to the
perturbation $r$, and the next point is $x + (1 + o)\, r$ with an overshoot $o$ of the *whole*
perturbation, until the model, asked there, gives another class. For linear logits one step is
exact. What comes out is a short perturbation, not the shortest.

With a target, steps lead to the face that it shares with the class on top, one face after another.
Along signs they may go round in circles, and between two faces at a sharp angle they are short; so
the second half of the steps is Euclidean and half as long again, and for linear logits these
arrive behind all faces (Agmon, The relaxation method for linear inequalities, Canadian Journal of
Mathematics, 1954). The claims are
`robustness.deepfool_linearisation`, `robustness.deepfool_step` and `robustness.deepfool`.
"""

from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.foundations import dual_norm
from vademecum.robustness._logits import Preprocess, rounding_gap
from vademecum.robustness._threat import NORMS, per_example
from vademecum.robustness.attacks._campaign import Battle, Proposal, Terms, campaign
from vademecum.robustness.attacks._goals import Goal, best_classes, best_other
from vademecum.robustness.attacks._kept import Kept
from vademecum.robustness.attacks.found import Attack

__all__ = ["deepfool", "face_step"]

_BEYOND = 2  # gaps of rounding behind a face, more than an example needs to leave
_RELAXED = 1.5  # of Euclidean steps with a target, below 2: 30 of 30 arrive where with 1 did 18


def deepfool(
    model: nn.Module,
    x: Float[Tensor, " n ..."],
    y: Shaped[Tensor, " n"],
    *,
    norm: Literal["l2", "linf"] = "l2",
    radius: float | Float[Tensor, " n"] | None = None,
    box: tuple[float, float] | None = (0.0, 1.0),
    steps: int = 50,
    overshoot: float = 0.02,
    candidates: int = 10,
    target: Shaped[Tensor, " n"] | None = None,
    preprocess: Preprocess = None,
    quantum: float | None = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> Attack:
    r"""A short perturbation that changes the answer, by linear steps to the nearest class.

    Args:
        model: Any module that gives logits, or something with `.logits`; taken in evaluation mode
            and left as it was.
        x: The inputs, examples along the first axis.
        y: Their labels.
        norm: The norm in which the perturbation is short.
        radius: How long it may be at most, or one for each example; None for any length.
        box: The least and the largest value that an input may have, or None.
        steps: How many steps are made at most.
        overshoot: By how much the perturbation is lengthened, as a part of it.
        candidates: Of how many classes the gradients are computed: the label's and those that are
            likeliest at the inputs.
        target: The classes that examples shall be taken for; None if any wrong one will do.
        preprocess: What lies between inputs and model, such as a normalisation.
        quantum: The spacing of the grid that results keep to, 1/255 for pixels.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default. This attack
            draws none beyond the one that all of them do.

    References:
        Moosavi-Dezfooli, Fawzi and Frossard, DeepFool: a simple and accurate method to fool deep
        neural networks, CVPR, 2016.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[3.0, -4.0], [0.0, 0.0]])
        >>> x, y = torch.tensor([[0.9, 0.3]]), torch.tensor([0])
        >>> deepfool(model, x, y, overshoot=0.02).distance
        tensor([0.3060], dtype=torch.float64)
    """
    whole("steps", steps, low=1)
    number("overshoot", overshoot, low=0)
    whole("candidates", candidates, low=2)
    radius = torch.inf if radius is None else radius
    terms = Terms(norm, radius, box, target, preprocess, quantum, memory, generator)
    search = partial(_search, steps=steps, overshoot=overshoot, candidates=candidates)
    return campaign(search, model, x, y, terms, norms=("l2", "linf"), loss="margin", infinite=True)


def _search(battle: Battle, *, steps: int, overshoot: float, candidates: int) -> Proposal:
    kept = Kept(battle)
    x0, goal, threat = kept.own(battle)
    box = threat._replace(radius=torch.full_like(threat.radius, torch.inf))
    x, r = x0, torch.zeros_like(x0)
    rivals = torch.empty(0)
    for k in range(steps + 1):
        if k:  # at the inputs they are right
            seen, z, value, _ = kept.look(battle, x, goal, "margin", gradient=False)
            stay = kept.note(seen, z, value, goal)
            x = seen
            if stay is not None:
                x, x0, r, rivals = (t[stay] for t in (x, x0, r, rivals))
                goal, box = goal.rows(stay), box.rows(stay)
        if k == steps or not len(x):
            break
        kept.count(queries=1)
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            z = battle.logits.traced(at)
        if k == 0:  # the likeliest classes, or the target
            rivals = best_classes(z.detach(), goal.y, candidates - 1)
            rivals = rivals if goal.target is None else goal.target[:, None]
        if goal.target is not None and 2 * k >= steps:
            r = r + _RELAXED * _shortest(at, z, goal, rivals, 2.0)
        else:
            r = r + _shortest(at, z, goal, rivals, NORMS[threat.norm])
        kept.count(steps=1)
        x = box.nearest(x0, x0 + (1 + overshoot) * r)
    return kept.proposal()


def _shortest(at: Tensor, z: Tensor, goal: Goal, rivals: Tensor, p: float) -> Tensor:
    """The shortest steps to a face, and so far beyond that rounding cannot undo them."""
    if goal.target is None:
        home = z.gather(1, goal.y[:, None])
    else:
        home = best_other(z, goal.target)[:, None]
    h = z.gather(1, rivals) - home
    gap = _BEYOND * rounding_gap(z)
    best = torch.full_like(gap, torch.inf)
    step = torch.zeros_like(at)
    for j in range(rivals.shape[1]):
        (w,) = torch.autograd.grad(h[:, j].sum(), at, retain_graph=j + 1 < rivals.shape[1])
        found, length = face_step(h[:, j].detach() - gap, w.nan_to_num(0.0), p)
        nearer = length < best
        best = torch.where(nearer, length, best)
        step = torch.where(per_example(nearer, step), found, step)
    return step


def face_step(h: Tensor, w: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The shortest steps r with h + <w, r> = 0, and their lengths in the norm p.

    Example:
        >>> face_step(torch.tensor([-10.0]), torch.tensor([[3.0, 4.0]]), 2.0)
        (tensor([[1.2000, 1.6000]]), tensor([2.]))
    """
    dual = dual_norm(w.flatten(1), p)
    length = h.abs() / dual.value
    r = length.nan_to_num(0.0, 0.0, 0.0)[:, None] * dual.maximiser
    return r.view_as(w), length.nan_to_num(torch.inf, torch.inf)
