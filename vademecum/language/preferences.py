r"""Alignment by preferences: rewards from comparisons, and the policy that follows them gently.

*Bradley and Terry*: of two answers the one with the larger reward is preferred with probability
$P(a \succ b) = \sigma(r_a - r_b)$. Of counts $W_{ab}$, how often $a$ was preferred to $b$, the
likelihood

$$\ell(r) = \sum_{a, b} W_{ab} \log \sigma(r_a - r_b)$$

is concave. It has a maximum, unique up to a constant, exactly if from every answer a chain of
preferences leads to every other (Ford); the constant is chosen so that rewards sum to zero.

The policy with the largest $\mathbb E_\pi[r] - \beta\, \mathrm{KL}(\pi \| \pi_0)$ is

$$\pi^*(a) = \frac{\pi_0(a)\, e^{r(a) / \beta}}{Z}, \qquad
Z = \sum_a \pi_0(a)\, e^{r(a) / \beta} ,$$

with the value $\beta \log Z$; any other policy has $\beta\, \mathrm{KL}(\pi \| \pi^*)$ less.

Rewards by Newton's method, to a tolerance; the policy is exact up to rounding. The claim is
`preference_alignment`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Real
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn.functional import logsigmoid

from vademecum.arguments import floats, number, probabilities, square
from vademecum.estimators import warn_unconverged
from vademecum.results import one_line

__all__ = ["BradleyTerry", "KLRegularizedPolicy", "bradley_terry", "kl_regularized_policy"]


class BradleyTerry(NamedTuple):
    """Rewards that comparisons tell.

    Example:
        >>> bradley_terry(torch.tensor([[0.0, 3.0], [1.0, 0.0]])).converged
        True
    """

    rewards: Float[Tensor, " k"]
    """The rewards, which sum to zero, in double precision."""
    log_likelihood: float
    """The log-likelihood of the comparisons."""
    gradient: float
    """The largest entry of its gradient, for one comparison of that answer on average."""
    n_iter: int
    """How many steps were made."""
    converged: bool
    """Whether the gradient is at most `tol`."""

    __repr__ = one_line


def bradley_terry(
    wins: Real[Tensor, " k k"], *, max_iter: int = 100, tol: float = 1e-10
) -> BradleyTerry:
    r"""The rewards under which comparisons are most probable.

    Args:
        wins: How often a was preferred to b, at row a and column b: counts, or any weights, with
            zeros on the diagonal.
        max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.
        tol: The largest entry of the gradient that is good enough, for one comparison of that
            answer on average.

    Raises:
        ValueError: If counts are negative, or no chain of preferences leads from some answer to
            another: then no finite rewards are best.

    References:
        Bradley and Terry, Rank analysis of incomplete block designs, Biometrika, 1952. Ford,
        Solution of a ranking problem from binary comparisons, Amer. Math. Monthly, 1957.

    Example:
        >>> found = bradley_terry(torch.tensor([[0.0, 3.0], [1.0, 0.0]]))
        >>> found.rewards  # odds of 3 to 1: they differ by log 3
        tensor([ 0.5493, -0.5493], dtype=torch.float64)
    """
    W = _counts(wins)
    number("tol", tol, above=0)
    games = W + W.T
    r, n_iter, each = W.new_zeros(len(W)), 0, games.sum(1)
    gradient = _gradient(W, games, r)
    while (largest := float((gradient.abs() / each).max())) > tol and n_iter < max_iter:
        p = torch.sigmoid(r[:, None] - r)
        curvature = games * p * (1 - p)
        laplacian = curvature.sum(1).diag() - curvature
        step = torch.linalg.solve(laplacian + curvature.mean(), gradient)
        r = r + _length(W, r, step) * step
        r = r - r.mean()
        gradient, n_iter = _gradient(W, games, r), n_iter + 1
    if largest > tol:
        warn_unconverged(f"max_iter={max_iter} reached: the gradient is {largest:.3g}, tol={tol:g}")
    return BradleyTerry(r, float(_likelihood(W, r)), largest, n_iter, largest <= tol)


class KLRegularizedPolicy(NamedTuple):
    """The best policy near another one.

    Example:
        >>> r, even = torch.tensor([0.0, 1.0]), torch.full((2,), 0.5)
        >>> kl_regularized_policy(r, even, beta=1e9).policy  # dear: it stays where it is
        tensor([0.5000, 0.5000])
    """

    policy: Float[Tensor, " *contexts actions"]
    """The probabilities of actions."""
    value: Float[Tensor, " *contexts"]
    r"""What it attains, $\beta \log Z$: the mean reward less $\beta$ times the divergence."""

    __repr__ = one_line


def kl_regularized_policy(
    rewards: Float[Tensor, " *contexts actions"],
    prior: Float[Tensor, " *contexts actions"],
    *,
    beta: float,
) -> KLRegularizedPolicy:
    r"""The policy with the largest mean reward less $\beta$ times its divergence from a prior.

    Args:
        rewards: The reward of each action.
        prior: The policy $\pi_0$ to stay near to: probabilities along the last axis.
        beta: The price $\beta$ of a nat of divergence, above 0.

    Raises:
        ValueError: If `beta` is not positive, rewards are not finite, shapes differ, or the prior
            is no distribution.

    References:
        Ziegler et al., Fine-tuning language models from human preferences, 2019.

    Example:
        >>> r = torch.tensor([0.0, 2.0]) * torch.tensor(3.0).log()
        >>> found = kl_regularized_policy(r, torch.tensor([0.75, 0.25]), beta=2.0)
        >>> found.policy, found.value  # 0.75 : 0.25 * 3, and 2 log 1.5
        (tensor([0.5000, 0.5000]), tensor(0.8109))
    """
    rewards, prior = floats("rewards", rewards), probabilities("prior", prior)
    number("beta", beta, above=0)
    if rewards.shape != prior.shape:
        shapes = f"{tuple(rewards.shape)} and {tuple(prior.shape)}"
        raise ValueError(f"rewards and prior must have the same shape, got {shapes}")
    dtype, r, p = torch.promote_types(rewards.dtype, prior.dtype), rewards.double(), prior.double()
    top = r.masked_fill(p == 0, -torch.inf).amax(-1, keepdim=True)  # so that nothing overflows
    tilted = p.log() + torch.where(p > 0, (r - top) / beta, 0.0)
    value = top[..., 0] + beta * tilted.logsumexp(-1)
    return KLRegularizedPolicy(tilted.softmax(-1).to(dtype), value.to(dtype))


def _counts(wins: Tensor) -> Tensor:
    whole = isinstance(wins, Tensor) and not wins.is_floating_point() and not wins.is_complex()
    wins = square("wins", wins.double() if whole else wins).detach()
    if wins.ndim != 2 or len(wins) < 2:
        raise ValueError(f"wins must be a matrix of 2 answers or more, got {tuple(wins.shape)}")
    if bool((wins < 0).any()) or bool(wins.diagonal().any()):
        raise ValueError("wins must be >= 0, with zeros on the diagonal")
    beaten = (wins > 0).cpu().numpy()
    parts, part = connected_components(beaten, directed=True, connection="strong")
    if parts > 1:
        groups = [[int(i) for i in (part == g).nonzero()[0]] for g in range(parts)]
        raise ValueError(
            "wins must lead from every answer to every other, or no finite rewards are best;"
            f" these do not: {', '.join(map(str, groups))}"
        )
    return wins.double()


def _likelihood(W: Tensor, r: Tensor) -> Tensor:
    return (W * logsigmoid(r[:, None] - r)).sum()


def _gradient(W: Tensor, games: Tensor, r: Tensor) -> Tensor:
    p = torch.sigmoid(r[:, None] - r)
    return (W - games * p).sum(1)


def _length(W: Tensor, r: Tensor, step: Tensor) -> float:
    """The longest of 1, 1/2, 1/4, ... that does not lessen the likelihood beyond rounding."""
    before, length = _likelihood(W, r), 1.0
    room = 1e-12 * float(before.abs())
    while float(_likelihood(W, r + length * step)) < float(before) - room and length > 1e-9:
        length /= 2
    return length
