"""Metropolis-Hastings: proposals accepted so that a law stays, on finite spaces and a line."""

import numpy as np
import torch
from torch import Tensor

from vademecum.bayes import mh_step
from vademecum.bayes.claims._laws import follows
from vademecum.claims import at_most, claim, equals, in_mean


def transitions(E: Tensor, R: Tensor, ratio: float) -> Tensor:
    """The transition matrix that follows from the step's own probabilities of acceptance."""
    n = len(E)
    i, j = (t.flatten() for t in torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij"))

    def propose(theta: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        return j[:, None].double(), ratio * (R[j, i] / R[i, j]).log()

    step = mh_step(lambda t: E[t[:, 0].long()], i[:, None].double(), propose=propose)
    moves = (R * step.probability.view(n, n)).fill_diagonal_(0)
    return moves + torch.diag(1 - moves.sum(1))


@claim(
    by="identity",
    sources=("A-311", "D-372"),
    budget=0.5,
    short=r"\alpha = \min \{1, \tfrac{r(\theta|\theta')}{r(\theta'|\theta)}"
    r" e^{E(\theta) - E(\theta')}\}",
)
def metropolis_hastings(ratio: float = 1.0, n: int = 50_000):
    r"""Metropolis-Hastings.

    A proposal $r(\theta' \mid \theta)$ is accepted with probability $\min \big\{1, \frac{r(\theta
    \mid \theta')}{r(\theta' \mid \theta)} e^{E(\theta) - E(\theta')} \big\}$, else the chain stays;
    detailed balance with $e^{-E} / Z$ holds, so it is stationary, and only differences of energies
    are needed, never $Z$.

    *Proof.* $e^{-E(\theta)} r(\theta' \mid \theta) \min\{1, \cdot\} = \min \{ e^{-E(\theta)}
    r(\theta' \mid \theta), e^{-E(\theta')} r(\theta \mid \theta') \}$ is symmetric. Checked for
    `mh_step` on 6 and on 9 states with random energies and proposals that are not symmetric, where
    its probabilities of acceptance give the whole transition matrix; by the moves that it makes;
    and for a multiplicative proposal on the half-line, started in the law of the energy $\theta -
    \log \theta$.

    Knobs:
        ratio: The power of the proposals' ratio in the acceptance; 0 omits it, -1 inverts it.
        n: How many chains make a step on the half-line.
    """
    for size in (6, 9):
        E, R = torch.randn(size), torch.randint(1, 9, (size, size)).double()
        R = R / R.sum(1, keepdim=True)
        law = torch.from_numpy(np.exp(-E.numpy()) / np.exp(-E.numpy()).sum())
        P = transitions(E, R, ratio)
        flow = law[:, None] * P
        yield equals("flow from state to state, and back", flow, flow.T, tol=1e-14, states=size)
        yield equals("law after a step", law @ P, law, tol=1e-13, states=size)
        equations = torch.cat([(P - torch.eye(size)).T, torch.ones(1, size)])
        wanted = torch.cat([torch.zeros(size), torch.ones(1)])
        only = torch.linalg.lstsq(equations, wanted[:, None]).solution[:, 0]
        yield equals("only solution of the equations", only, law, tol=1e-9, states=size)
        raised = transitions(E + 100, R, ratio)
        yield equals("transitions after all energies rose", raised, P, tol=1e-12, states=size)
    yield from moves(E, R, P)
    yield from half_line(ratio, n)


def moves(E: Tensor, R: Tensor, P: Tensor):
    """What the step does, against the matrix, for pairs whose acceptance is near one half."""
    n, size = 20_000, len(E)
    chance = P / R
    order = (chance - 0.5).abs().fill_diagonal_(1).flatten().argsort()
    for pair in order[:3].tolist():
        i, j = divmod(pair, size)

        def propose(theta: Tensor, _: object, i=i, j=j) -> tuple[Tensor, Tensor]:
            return torch.full((n, 1), float(j)), (R[j, i] / R[i, j]).log().expand(n)

        step = mh_step(lambda t: E[t[:, 0].long()], torch.full((n, 1), float(i)), propose=propose)
        share = (step.theta[:, 0] == j).double()
        yield in_mean("share of chains that moved", share, float(chance[i, j]), i=i, j=j)
        stay = (step.theta[:, 0] == i).double()
        yield equals("where the others are", share + stay, 1.0, tol=0.0, i=i, j=j)


def half_line(ratio: float, n: int):
    """One step from the law itself: the distance is at most that of DKW at a level of 1e-6."""

    def energy(t: Tensor) -> Tensor:
        return torch.where(t > 0, t - t.log(), torch.inf)[:, 0]

    def propose(theta: Tensor, _: object) -> tuple[Tensor, Tensor]:
        new = theta * torch.randn(n, 1).exp()
        return new, ratio * (new / theta).log()[:, 0]

    start = torch.distributions.Gamma(2.0, 1.0).sample((n, 1))
    step = mh_step(energy, start, propose=propose)
    grid = torch.linspace(1e-9, 40, 40_001)
    yield follows("distance from the law after a step", step.theta, energy, grid, n=n)
    yield at_most("share of proposals that failed", step.failed.double().mean(), 0.0, tol=0.0)


metropolis_hastings.foil(
    "without the proposals' ratio", refuted_by="flow from state to state, and back", ratio=0.0
)
metropolis_hastings.foil("the ratio inverted", refuted_by="law after a step", ratio=-1.0)
