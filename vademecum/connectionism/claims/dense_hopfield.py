"""Dense associative memories: what is known beyond the sheets."""

import math

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.connectionism import DenseHopfield


@claim(
    by="sampling",
    budget=0.5,
    short=r"x' = \textstyle\sum_t \mathrm{softmax}_t(\beta \langle p_t, x \rangle)\, p_t"
    r" = x - \nabla E(x)",
)
def dense_hopfield_is_attention(
    steepness: float = 1.0,
    sign: float = 1.0,
    sizes: tuple[tuple[int, int], ...] = ((1, 1), (5, 3), (40, 8), (300, 16)),
    starts: int = 50,
):
    r"""Retrieval from a dense associative memory is attention, and lowers its energy.

    For patterns $p_1, \dots, p_s \in \mathbb{R}^d$ and $\beta > 0$ let

    $$E(x) = -\frac1\beta \log \sum_t e^{\beta \langle p_t, x \rangle} + \frac12 \|x\|^2
    + \frac{\log s}{\beta} + \frac12 M^2, \qquad M = \max_t \|p_t\|.$$

    Then $E \ge 0$, and the step $x' = \sum_t \mathrm{softmax}_t(\beta \langle p_t, x \rangle) p_t$,
    attention with keys and values $p_t$, query $x$ and scale $\beta$, is
    $x' = x - \nabla E(x)$ and gives $E(x') \le E(x) - \frac12 \|x' - x\|^2$.

    *Proof.* $E = f + \frac12 \|x\|^2 + \mathrm{const}$ with $f$ concave and $\nabla f(x) = -x'$, so
    that $E(x') - E(x) \le -\langle x', x' - x \rangle + \frac12 \|x'\|^2 - \frac12 \|x\|^2
    = -\frac12 \|x' - x\|^2$. (Ramsauer et al., 2021.)

    *Check.* The step against a loop over patterns, and against the gradient of the energy; the
    energy against its formula, term by term.

    Knobs:
        steepness: The scale of the attention in the loop, in units of $\beta$.
        sign: The sign of the gradient in the step.
        sizes: The numbers $(s, d)$ of patterns and of their coordinates.
        starts: How many states are drawn for each size.
    """
    for s, d in sizes:
        beta = float(0.1 + 2 * torch.rand(()))
        patterns, x = torch.randn(s, d), 2 * torch.randn(starts, d)
        memory = DenseHopfield(patterns, beta=beta)
        new = memory.step(x)
        weights = torch.stack([torch.exp(steepness * beta * (x @ p)) for p in patterns])
        attended = torch.stack([w[:, None] * p for w, p in zip(weights, patterns, strict=True)])
        mean = attended.sum(0) / weights.sum(0)[:, None]
        yield equals("step, against a loop", new, mean, s=s, d=d)
        energy = memory.energy(x)
        sums = sum(torch.exp(beta * (x @ p)) for p in patterns)
        largest = max(float(p @ p) for p in patterns)
        terms = -torch.as_tensor(sums).log() / beta + (x * x).sum(1) / 2
        formula = terms + math.log(s) / beta + largest / 2
        yield equals("energy, against its formula", energy, formula, s=s, d=d)
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(memory.energy(x).sum(), x)
        yield equals("step, against the gradient", new, x - sign * gradient, s=s, d=d)
        moved = (new - x).square().sum(1)
        after = memory.energy(new)
        yield at_most("energy after the step", after, energy - sign * moved / 2, s=s, d=d)
        yield at_least("energy", energy, 0.0, s=s, d=d)
        yield from _to_rest(memory, x.detach()[:5], s=s, d=d)


def _to_rest(memory: DenseHopfield, x: Tensor, tol: float = 1e-3, **at: int):
    """Steps until a state moves by at most tol (1 + |x|), one state after the other."""
    end = memory.retrieve(x, tol=tol, trajectory=True)
    assert end.trajectory is not None
    assert end.energies is not None
    states, steps = [], []
    for state in x:
        new, k = memory.step(state), 1
        while (new - state).norm() > tol * (1 + state.norm()):
            state, new, k = new, memory.step(new), k + 1
        states.append(new)
        steps.append(k)
    yield equals("steps until rest", end.n_iter, torch.tensor(steps), **at)
    yield equals("states at rest", end.states, torch.stack(states), **at)
    yield equals("whether they are at rest", end.converged, 1, **at)
    yield equals("last states on the way", end.trajectory[-1], end.states, tol=0.0, **at)
    yield equals("energies on the way", end.energies, memory.energy(end.trajectory), **at)


dense_hopfield_is_attention.foil(
    "attention with twice the inverse temperature as its scale", steepness=2.0
)
dense_hopfield_is_attention.foil("a step up the gradient", sign=-1.0)
