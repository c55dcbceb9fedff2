r"""Lottery tickets: sparse subnetworks that train from their first weights as well as the whole.

With $\theta_0$ the weights to begin with, $\theta_T$ what training makes of them, and a mask $m \in
\{0, 1\}^P$, iterative magnitude pruning repeats

$$\theta_0 \odot m \to \theta_T, \qquad m \leftarrow \text{the largest } |\theta_T| \text{ among
those left},$$

so that after round $r$ of $R$ the share $\kappa^{r / R}$ of the weights is left. Each round begins
again at $\theta_0$ (or at weights after a few steps, which large networks need). Beside each ticket
stands a random mask that keeps as many weights of each tensor, trained from the same weights: what
is better than it is due to which weights were kept.

The masks are exact: weights outside are zero at every pass and at the end. How good a ticket is
depends on training. The claim is `lottery_ticket`.

References:
    Frankle and Carbin, The lottery ticket hypothesis: finding sparse, trainable neural networks,
    ICLR, 2019. Frankle, Dziugaite, Roy and Carbin, Linear mode connectivity and the lottery ticket
    hypothesis, ICML, 2020.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.generalization.tickets._masks import Masked, Masks, pruned, shuffled
from vademecum.generalization.tickets._plain_training import Training, accuracy
from vademecum.models import Loss, Output, tensor_places, unwrapped
from vademecum.progress import ticking
from vademecum.randomness import given_back
from vademecum.results import one_line

__all__ = ["LotteryTicket", "lottery_ticket"]

Train = Callable[[nn.Module], Any]


class LotteryTicket(NamedTuple):
    """A sparse subnetwork, and how it and random ones of its size fared.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])  # the second input says nothing
        >>> model = nn.Linear(2, 2, bias=False)
        >>> y, few = torch.tensor([0, 1]), {"updates": 100, "eta": 0.1}
        >>> found = lottery_ticket(model, x, y, keep=0.5, prunings=1, **few)
        >>> found.masks[0]["weight"], found.scores
        (tensor([[ True, False], [ True, False]]), tensor([1., 1.], dtype=torch.float64))
    """

    kept: Float[Tensor, " stages"]
    """The share of weights that is left: 1 for the whole network, then after each pruning."""
    scores: Float[Tensor, " stages"]
    """How good the trained network is with these weights: the share of right answers."""
    control_scores: Float[Tensor, " stages"]
    """The same for random masks of the same sizes; the whole network first; NaN if left out."""
    masks: list[Masks]
    """Which weights are left after each pruning, by the names of parameters."""
    start: nn.Module
    """The last ticket before training: a copy with the weights to begin with, others zero."""
    model: nn.Module
    """The last ticket after training."""

    __repr__ = one_line


def lottery_ticket(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    test: tuple[Any, Any] | None = None,
    keep: float = 0.1,
    prunings: int = 5,
    prune: Sequence[str] | None = None,
    scope: str = "global",
    train: Train | None = None,
    rewind: int | Train = 0,
    score: Callable[[nn.Module], float] | None = None,
    control: bool = True,
    loss: Loss | None = None,
    updates: int = 300,
    eta: float = 0.01,
    batch: int | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
    output: Output = None,
) -> LotteryTicket:
    r"""Find a sparse subnetwork by iterative magnitude pruning, and compare it with random ones.

    The model is never changed: copies are trained.

    Args:
        model: Any module, with the weights to begin with.
        x: The inputs for training; a tensor, or any structure of tensors; or a `DataLoader`.
        y: The targets.
        test: Inputs and targets for the score; those for training by default.
        keep: The share of weights to keep in the end.
        prunings: How many times to prune and train again; each keeps the same share of what is
            left.
        prune: The names of the parameters to prune; by default all that are trained and have two
            axes or more.
        scope: Whether weights are compared over all layers, "global", or in each, "layer".
        train: A function that trains the module it is given, in place; by default `updates` steps
            of Adam. Weights outside the mask stay zero whatever it does.
        rewind: Where each round begins: after so many of the steps; or after what this function
            makes of the module. By default with the first weights.
        score: A function of a trained module; by default its share of right answers.
        control: Whether to train random masks as well.
        loss: A function of outputs and targets with one number for all; by default the
            cross-entropy for integer targets and the mean squared error for others.
        updates: How many steps of Adam a training has, where no function is given.
        eta: Their step size.
        batch: How many examples each of them sees; None for all. A loader has its own.
        generator: Where random numbers come from; torch's global generator by default. Its state
            is given back. Dropout and functions that are given draw from the global one.
        progress: Whether to show a progress bar on standard error. It counts trainings.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Raises:
        ValueError: If there is nothing to prune, a name is not known, or the targets are no classes
            and no score is given.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
        >>> y, few = torch.tensor([0, 1]), {"prunings": 2, "updates": 10}
        >>> found = lottery_ticket(nn.Linear(2, 2), x, y, keep=0.25, **few)
        >>> found.kept, int(found.masks[-1]["weight"].sum())
        (tensor([1.0000, 0.5000, 0.2500], dtype=torch.float64), 1)
    """
    number("keep", keep, above=0, below=1)
    whole("prunings", prunings, low=1)
    choice("scope", scope, ("global", "layer"))
    plan = Training(
        x, y, loss=loss, updates=updates, eta=eta, batch=batch, generator=generator, output=output
    )
    early, train = _trainings(plan, train, rewind)
    data = (x, y) if test is None else test
    judge = score or (lambda trained: accuracy(trained, *data, output=output))
    work = deepcopy(unwrapped(model))
    work.zero_grad(set_to_none=True)
    names = _names(work, prune)
    with (
        given_back(generator),
        ticking("trainings", 1 + prunings * (1 + control), progress=progress) as tick,
    ):
        rounds = _Rounds(work, names, early, train, judge, tick)
        for r in range(1, prunings + 1):
            rounds.prune(keep ** (r / prunings), scope)
            rounds.control(generator if control else None, skip=not control)
    return rounds.result()


def _trainings(plan: Training, train: Train | None, rewind: Any) -> tuple[Train, Train]:
    """What is done before the weights to begin with are taken, and after."""
    if callable(rewind):
        return rewind, plan if train is None else train
    early = whole("rewind", rewind, low=0)
    if early and train is not None:
        raise ValueError("rewind must be a function where train is one, got a number of steps")
    whole("rewind", rewind, high=plan.updates - 1)
    return plan.steps(early), plan.steps(plan.updates - early) if train is None else train


def _names(model: nn.Module, prune: Sequence[str] | None) -> list[str]:
    own = dict(model.named_parameters())
    if prune is None:
        found = [name for name, p in own.items() if p.requires_grad and p.ndim > 1]
    else:
        found = list(prune)
        for name in found:
            if name not in own:
                raise ValueError(f"prune must name parameters among {list(own)}, got {name!r}")
    if not found:
        raise ValueError("model must have parameters to prune, with two axes or more, got none")
    return found


class _Rounds:
    """What was trained so far."""

    def __init__(
        self, work: nn.Module, names: list[str], early: Train, train: Train,
        score: Callable[[nn.Module], float], tick: Callable[[int], None],
    ):  # fmt: skip
        self._work, self._train, self._score, self._tick = work, train, score, tick
        early(work)
        self._start = deepcopy(work)
        own = dict(work.named_parameters())
        self._weights = {name: own[name] for name in names}
        self._whole = {n: torch.ones_like(p, dtype=torch.bool) for n, p in self._weights.items()}
        self._masks = [self._whole]
        self._scores = [self._trained(work, {})]
        self._controls = [self._scores[0]]

    def prune(self, share: float, scope: str) -> None:
        """Keep a share of all weights, begin again, and train."""
        masks = pruned(self._weights, self._masks[-1], share, scope=scope)
        self._masks.append(masks)
        _copy_tensors(self._start, self._work)
        self._scores.append(self._trained(self._work, masks))

    def control(self, generator: torch.Generator | None, *, skip: bool) -> None:
        """Train a random mask of the same size."""
        if skip:
            self._controls.append(float("nan"))
            return
        self._controls.append(
            self._trained(deepcopy(self._start), shuffled(self._masks[-1], generator))
        )

    def _trained(self, model: nn.Module, masks: Masks) -> float:
        with Masked(model, masks):
            self._train(model)
        self._tick(1)
        return float(self._score(model))

    def result(self) -> LotteryTicket:
        """All of it."""
        with Masked(self._start, self._masks[-1]):
            pass
        total = sum(mask.numel() for mask in self._whole.values())
        counts = [sum(int(mask.sum()) for mask in masks.values()) for masks in self._masks]
        for module in (self._start, self._work):
            module.zero_grad(set_to_none=True)
        return LotteryTicket(
            kept=torch.tensor(counts, dtype=torch.float64) / total,
            scores=torch.tensor(self._scores, dtype=torch.float64),
            control_scores=torch.tensor(self._controls, dtype=torch.float64),
            masks=self._masks[1:],
            start=self._start,
            model=self._work,
        )


@torch.no_grad()
def _copy_tensors(one: nn.Module, other: nn.Module) -> None:
    for kind in ("parameters", "buffers"):
        own = dict(tensor_places(one, kind))
        for place, t in tensor_places(other, kind):
            t.copy_(own[place])
