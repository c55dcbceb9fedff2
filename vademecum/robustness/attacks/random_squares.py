r"""The square attack: random search with squares of noise, which needs no gradients.

A point is changed in a random window of $s \times s$ pixels, with $s^2$ a share $p$ of the image
that falls as the search goes on, and the change is kept if the margin $\max_{j \ne y} z_j - z_y$
grows.

- linf: it begins with vertical stripes of $\pm \epsilon$; a window gets one $\pm \epsilon$ for each
  channel;
- l2: it begins with a carpet of bumps, scaled to the length $\epsilon$. A bump is a positive and a
  negative pyramid, $\sum_{c \ge d} (c + 1)^{-2}$ at distance $d$ from its middle, side by side or,
  as often, one above the other (in a row of pixels: one for all of it). A step takes the budget of
  one window away and gives it to a bump, with a random sign, in another one, on top of what lies
  there.

Inputs without two axes of pixels are taken as one row of them. The model is only asked for logits,
so that no trick with its gradients helps.
"""

from functools import lru_cache, partial
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.robustness._logits import Preprocess
from vademecum.robustness._threat import Threat, per_example
from vademecum.robustness.attacks._campaign import Battle, Proposal, Terms, campaign
from vademecum.robustness.attacks._goals import Goal
from vademecum.robustness.attacks._kept import Kept
from vademecum.robustness.attacks.found import Attack

__all__ = ["TRIES", "square", "square_search"]

TRIES = 8
"""How many windows are tried at once, after a tenth of the steps: a larger batch is faster."""
_HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)  # of the steps, as published


def square(
    model: nn.Module,
    x: Float[Tensor, " n ..."],
    y: Shaped[Tensor, " n"],
    *,
    norm: Literal["linf", "l2"] = "linf",
    radius: float | Float[Tensor, " n"],
    box: tuple[float, float] | None = (0.0, 1.0),
    steps: int = 5000,
    share: float = 0.8,
    target: Shaped[Tensor, " n"] | None = None,
    preprocess: Preprocess = None,
    quantum: float | None = None,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> Attack:
    r"""A random search that changes windows of pixels and looks at logits alone.

    Args:
        model: Any module that gives logits, or something with `.logits`; taken in evaluation mode
            and left as it was.
        x: The inputs, examples along the first axis, of images (n, channels, height, width).
        y: Their labels.
        norm: The norm of the ball.
        radius: Its radius, or one for each example.
        box: The least and the largest value that an input may have, or None.
        steps: How many changes are tried, unless the model is fooled earlier.
        share: The part of an image that the first windows cover.
        target: The classes that examples shall be taken for; None if any wrong one will do.
        preprocess: What lies between inputs and model, such as a normalisation.
        quantum: The spacing of the grid that results keep to, 1/255 for pixels.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.

    References:
        Andriushchenko, Croce, Flammarion and Hein, Square attack: a query-efficient black-box
        adversarial attack via random search, ECCV, 2020.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2, bias=False))
        >>> model[1].weight.data = torch.stack([torch.ones(16), torch.zeros(16)])
        >>> x, y = torch.full((1, 1, 4, 4), 0.1), torch.tensor([0])
        >>> square(model, x, y, radius=0.25, box=None, steps=100).fooled
        tensor([True])
    """
    whole("steps", steps, low=1)
    number("share", share, above=0, high=1)
    terms = Terms(norm, radius, box, target, preprocess, quantum, memory, generator)
    search = partial(square_search, steps=steps, share=share)
    return campaign(search, model, x, y, terms, norms=("linf", "l2"), loss="margin", copies=TRIES)


def square_search(battle: Battle, *, steps: int, share: float = 0.8) -> Proposal:
    """Try windows, at first one after the other, and keep what brings the margin up."""
    kept = Kept(battle)
    x0, goal, threat = kept.own(battle)
    shape = _as_image(x0.shape[1:])
    limits = threat.limits(x0)
    x = best = _begun(battle, x0, threat, shape)
    k, tries = 0, 1
    while True:
        seen, z, value = _best_of(battle, kept, x, goal, tries)
        if bool((value > kept.value).any()):
            stay = kept.note(seen, z, value, goal)
            if stay is not None:
                x0, limits = x0[stay], (limits[0][stay], limits[1][stay])
                goal, threat = goal.rows(stay), threat.rows(stay)
            best = kept.best
        if k == steps or not len(x0):
            return kept.proposal()
        tries = 1 if 10 * k < steps else min(TRIES, steps - k)
        kept.count(steps=tries)
        part = share / 2 ** sum(k / steps > at for at in _HALVINGS)
        drawn = _drawn(battle, kept.active, tries, 5 + shape[0]).flatten(0, 1)
        several = (t.repeat_interleave(tries, 0) for t in (best, x0, *limits, threat.radius))
        x = _tried(drawn, *several, threat, shape, part)
        k += tries


def _best_of(
    battle: Battle, kept: Kept, x: Tensor, goal: Goal, tries: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Of several points of each example the one with the largest margin, its logits, its margin."""
    rows = torch.arange(len(goal.y), device=x.device).repeat_interleave(tries)
    x = battle.settled(kept.active[rows], x)
    z = battle.logits(x)
    kept.count(queries=tries)
    value = goal.rows(rows).margin(z)
    first = torch.arange(0, len(value), tries, device=x.device)
    chosen = first + value.view(-1, tries).argmax(1)
    return x[chosen], z[chosen], value[chosen]


def _as_image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of an input."""
    if len(shape) == 1:
        return 1, 1, shape[0]
    if len(shape) == 2:
        return shape[0], 1, shape[1]
    return shape[0], shape[1], int(torch.Size(shape[2:]).numel())


def _drawn(battle: Battle, active: Tensor, *shape: int) -> Tensor:
    """Uniform numbers for the examples that are left, drawn for all of the portion."""
    u = torch.rand(battle.n, *shape, generator=battle.generator, device=battle.x.device)
    return u if len(active) == battle.n else u[battle.whose[active]]


def _signs(u: Tensor, like: Tensor) -> Tensor:
    return torch.where(u < 0.5, -1.0, 1.0).to(like.dtype)


def _begun(battle: Battle, x0: Tensor, threat: Threat, shape: tuple[int, int, int]) -> Tensor:
    """Stripes, or a carpet of bumps."""
    c, h, w = shape
    everyone = torch.arange(len(x0), device=x0.device)
    r = per_example(threat.radius, x0)
    if threat.norm == "linf":
        stripes = (
            _signs(_drawn(battle, everyone, c, 1, w), x0).expand(-1, c, h, w).reshape(x0.shape)
        )
        return threat.nearest(x0, x0 + r * stripes)
    a, b = max(1, h // 5), max(1, w // 5)
    signs = _signs(_drawn(battle, everyone, c, -(-h // a), -(-w // b)), x0)
    bump = _bump(a, b).to(x0)
    carpet = (signs[..., :, None, :, None] * bump[:, None, :]).flatten(4).flatten(2, 3)
    return threat.nearest(x0, x0 + 1e3 * r * carpet[..., :h, :w].reshape(x0.shape))


def _tried(
    u: Tensor, x: Tensor, x0: Tensor, low: Tensor, high: Tensor, radius: Tensor, threat: Threat,
    shape: tuple[int, int, int], part: float,
) -> Tensor:  # fmt: skip
    """The best points with a window changed."""
    c, h, w = shape
    side = max(1, round((part * h * w) ** 0.5))
    a, b = (min(side, h), min(side, w)) if h > 1 else (1, max(1, round(part * w)))
    signs = _signs(u[:, 5:], x).view(-1, c, 1, 1)
    if threat.norm == "linf":
        i, j = _from_corner(u, a, b, h, w)
        window = ((i >= 0) & (i < a) & (j >= 0) & (j < b))[:, None]
        ends = (end.view(-1, c, h, w) for end in (high, low))
        changed = torch.where(signs > 0, *ends)
        return torch.where(window, changed, x.view(-1, c, h, w)).view_as(x)
    if h > 1:
        a, b = max(a, min(3, h)), max(b, min(3, w))
    here, there = (_window(u[:, at : at + 2], a, b, h, w) for at in (0, 2))
    turned = torch.stack([_bump(a, b).flatten(), _bump(b, a).T.flatten()]).to(x)
    bump = torch.where(u[:, 4, None, None] < 0.5, *(each[here[0]] for each in turned))
    v, r = (x - x0).view(-1, c, h, w), radius.view(-1, 1, 1, 1)
    moved = _given(v, r, (bump * here[1])[:, None] * signs, here[1], there[1])
    return threat._replace(radius=radius).nearest(x0, x0 + moved.view_as(x0))


def _given(v: Tensor, r: Tensor, new: Tensor, here: Tensor, there: Tensor) -> Tensor:
    """Perturbations whose budget went from one window to a bump in another."""
    tiny = 1e-12
    mine, both = here[:, None], (here | there)[:, None]
    own = torch.linalg.vector_norm(v * mine, dim=(1, 2, 3), keepdim=True)
    new = new + v * mine / own.clamp(min=tiny)
    left = (r.square() - v.square().sum((1, 2, 3), keepdim=True)).clamp(min=0) / v.shape[1]
    budget = (left + (v * both).square().sum((2, 3), keepdim=True)).sqrt()
    size = torch.linalg.vector_norm(new, dim=(2, 3), keepdim=True)
    return torch.where(both, 0, v) + new * (budget / size.clamp(min=tiny))


def _from_corner(u: Tensor, a: int, b: int, h: int, w: int) -> tuple[Tensor, Tensor]:
    """Rows (n, h, 1) and columns (n, 1, w) of pixels, from the corners of random windows."""
    top = (u[:, 0] * (h - a + 1)).long().clamp_(max=h - a)
    left = (u[:, 1] * (w - b + 1)).long().clamp_(max=w - b)
    rows, columns = _numbered(h, w, u.device)
    return rows - top[:, None, None], columns - left[:, None, None]


@lru_cache(maxsize=16)
def _numbered(h: int, w: int, device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.arange(h, device=device)[:, None], torch.arange(w, device=device)


def _window(u: Tensor, a: int, b: int, h: int, w: int) -> tuple[Tensor, Tensor]:
    """Windows of a times b pixels at random places: where a pixel lies in them, and whether."""
    i, j = _from_corner(u, a, b, h, w)
    inside = (i >= 0) & (i < a) & (j >= 0) & (j < b)
    return (i.clamp(0, a - 1) * b + j.clamp(0, b - 1)), inside


@lru_cache(maxsize=256)
def _bump(a: int, b: int) -> Tensor:
    """A positive and a negative pyramid side by side, of length 1.

    Example:
        >>> _bump(1, 2)
        tensor([[ 0.7071, -0.7071]], dtype=torch.float64)
    """
    half = b // 2
    if half == 0:
        bump = _pyramid(a, b)
    else:
        bump = torch.cat([_pyramid(a, half), -_pyramid(a, b - half)], 1)
    return bump / torch.linalg.vector_norm(bump)


def _pyramid(a: int, b: int) -> Tensor:
    i, j = (torch.arange(size, dtype=torch.float64) - (size - 1) / 2 for size in (a, b))
    away = torch.maximum(i.abs()[:, None], j.abs()).floor()
    rings = torch.arange(max(a, b), dtype=torch.float64)
    return ((rings >= away[..., None]) / (rings + 1) ** 2).sum(-1)
