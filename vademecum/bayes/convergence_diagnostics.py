r"""Whether chains have mixed, how many independent draws they are worth, how far means may be off.

All three split each chain into halves, so that a chain that drifts disagrees with itself, and look
at one parameter at a time. With $m$ half chains of $n$ draws, $B / n$ the variance of their means
and $W$ the mean of their variances,

$$\hat R = \sqrt{\frac{n - 1}n + \frac1n \frac B W},$$

taken of the normal scores of the draws and of their distances from the median, whichever is larger:
so chains that differ in location or in spread are both seen, whatever their tails. Chains that have
mixed have $\hat R < 1.01$. The effective sample size in the bulk is that of the normal scores, in
the tails the smaller one of the indicators of the 5 % and the 95 % quantile
(`vademecum.bayes._autocorrelation`). The Monte-Carlo standard errors follow from it.

The numbers are those of ArviZ up to rounding, in double precision whatever the dtype. Parameters
are taken in portions, sorted and Fourier transformed together.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from scipy.special import betaincinv
from torch import Tensor

from vademecum.arguments import choice, floats, number, whole
from vademecum.arrays import portions
from vademecum.bayes._autocorrelation import effective_number
from vademecum.bayes._rank_normalised import halves, indicator, normal_scores, scores_and_median
from vademecum.estimators import warn_unconverged

__all__ = ["ess", "mcse", "rhat"]

_COPIES = 16  # bytes at the peak for each byte of draws in double precision: sorting, transforms
_PORTION = 2**26  # bytes at a time if there is no limit: larger ones are no faster on two cores
_ONE_SIGMA = (0.1586553, 0.8413447)  # the normal distribution at -1 and 1, in ArviZ's digits


def rhat(
    draws: Float[Tensor, " chains draws *rest"], *, memory: int | None = None
) -> Float[Tensor, " *rest"]:
    r"""How much chains disagree: $\hat R$ with normal scores and split chains; 1 for none.

    With one chain its halves are compared. A chain that never moves gives a `ConvergenceWarning`;
    if no chain does, $\hat R$ is NaN.

    Args:
        draws: Draws of any parameters, in the order in which the chains made them.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Raises:
        ValueError: If a chain has fewer than 4 draws, or draws are not finite.

    References:
        Vehtari, Gelman, Simpson, Carpenter and Buerkner, Rank-normalization, folding, and
        localization: An improved R-hat for assessing convergence of MCMC, Bayesian Analysis, 2021.

    Example:
        >>> draws = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))
        >>> apart = draws + torch.tensor([[0.0], [0.0], [0.0], [1.0]])  # one chain lies elsewhere
        >>> rhat(torch.stack([draws, apart], -1)).round(decimals=2)
        tensor([1.0000, 1.1000], dtype=torch.float64)
    """

    def each(x: Tensor) -> Tensor:
        split = halves(x)
        scores, median = scores_and_median(split)
        return torch.maximum(_ratio(scores), _ratio(normal_scores((split - median).abs())))

    return _by_parameter(draws, each, memory)


def ess(
    draws: Float[Tensor, " chains draws *rest"],
    *,
    kind: str = "bulk",
    prob: float | None = None,
    memory: int | None = None,
) -> Float[Tensor, " *rest"]:
    """How many independent draws the chains are worth: the effective sample size.

    A chain that never moves gives a `ConvergenceWarning`; if no chain does, nothing is known, and
    the number is that of the draws.

    Args:
        draws: Draws of any parameters, in the order in which the chains made them.
        kind: For what: "bulk" (locations), "tail" (5 % and 95 % quantiles, the worse of both),
            "mean", "sd" or "quantile".
        prob: Which quantile, for that kind; for "tail" the share of draws in each tail, 0.05.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Raises:
        ValueError: If a chain has fewer than 4 draws, draws are not finite, or `prob` is given for
            another kind or is missing.

    Example:
        >>> walk = torch.randn(2, 4000, generator=torch.Generator().manual_seed(0)).double()
        >>> for t in range(1, 4000):  # with the autocorrelation 0.8^t, of sum (1 + 0.8)/(1 - 0.8)
        ...     walk[:, t] = 0.8 * walk[:, t - 1] + 0.6 * walk[:, t]
        >>> 600 < ess(walk) < 1200  # about 8000 / 9
        tensor(True)
    """
    choice("kind", kind, ("bulk", "tail", "mean", "sd", "quantile"))
    if kind in ("tail", "quantile"):
        prob = _probability(kind, prob)
    elif prob is not None:
        raise ValueError(f"prob must be None for kind {kind!r}, got {prob}")
    return _by_parameter(draws, lambda x: _effective(x, kind, prob), memory)


def mcse(
    draws: Float[Tensor, " chains draws *rest"],
    *,
    kind: str = "mean",
    prob: float | None = None,
    memory: int | None = None,
) -> Float[Tensor, " *rest"]:
    r"""How far an average over the draws may be off: its Monte-Carlo standard error.

    For the mean it is $s / \sqrt{\text{ESS}}$; that of the standard deviation follows from the
    fourth moment; that of a quantile from the quantiles of a Beta law for the share of draws below.

    Args:
        draws: Draws of any parameters, in the order in which the chains made them.
        kind: Of what: "mean", "sd" or "quantile".
        prob: Which quantile, for that kind.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Raises:
        ValueError: If a chain has fewer than 4 draws, draws are not finite, or `prob` is given for
            another kind or is missing.

    Example:
        >>> draws = torch.randn(4, 2500, generator=torch.Generator().manual_seed(0))
        >>> 0.009 < mcse(draws) < 0.011  # independent draws: 1 / 100
        tensor(True)
    """
    choice("kind", kind, ("mean", "sd", "quantile"))
    if kind == "quantile":
        prob = _probability(kind, prob)
    elif prob is not None:
        raise ValueError(f"prob must be None for kind {kind!r}, got {prob}")

    def each(x: Tensor) -> Tensor:
        if kind == "quantile":
            assert prob is not None
            return _quantile_error(x, prob)
        off = x - x.mean((1, 2), keepdim=True)
        worth, variance = effective_number(halves(x)), off.square().mean((1, 2))
        if kind == "mean":
            n = x.shape[1] * x.shape[2]
            return (variance * n / (n - 1) / worth).sqrt()
        of_variance = (off.pow(4).mean((1, 2)) - variance**2) / worth
        return (of_variance / variance / 4).sqrt()

    return _by_parameter(draws, each, memory)


def _probability(kind: str, prob: float | None) -> float:
    if prob is None and kind == "quantile":
        raise ValueError("prob must be a number between 0 and 1 for kind 'quantile', got None")
    return number("prob", 0.05 if prob is None else prob, above=0, below=1)


def _effective(x: Tensor, kind: str, prob: float | None) -> Tensor:
    if kind == "bulk":
        return effective_number(normal_scores(halves(x)))
    if kind == "mean":
        return effective_number(halves(x))
    if kind == "sd":
        return effective_number(halves((x - x.mean((1, 2), keepdim=True)).square()))
    assert prob is not None
    ordered = x.flatten(1).sort(1).values
    sides = (prob,) if kind == "quantile" else sorted((prob, 1 - prob))
    found = [effective_number(halves(indicator(x, ordered, q))) for q in sides]
    return torch.stack(found).amin(0)


def _ratio(x: Tensor) -> Tensor:
    n = x.shape[2]
    return ((n * x.mean(2).var(1) / x.var(2).mean(1) + n - 1) / n).sqrt()


def _quantile_error(x: Tensor, prob: float) -> Tensor:
    ordered = x.flatten(1).sort(1).values
    size = ordered.shape[1]
    worth = effective_number(halves(indicator(x, ordered, prob))).cpu().numpy()
    a, b = worth * prob + 1, worth * (1 - prob) + 1
    low, high = (torch.from_numpy(betaincinv(a, b, p)) * size - 1 for p in _ONE_SIGMA)
    ends = low.clamp(min=0).floor(), high.clamp(max=size - 1).ceil()
    one, other = (ordered.gather(1, i.long()[:, None].to(x.device))[:, 0] for i in ends)
    return (other - one) / 2


def _by_parameter(draws: Tensor, each: Callable[[Tensor], Tensor], memory: int | None) -> Tensor:
    """A number for each parameter, from its draws (parameters, chains, draws), in portions."""
    if not isinstance(draws, Tensor) or draws.ndim < 2 or draws.shape[1] < 4:
        given = tuple(draws.shape) if isinstance(draws, Tensor) else type(draws).__name__
        raise ValueError(f"draws must have shape (chains, draws >= 4, ...), got {given}")
    if memory is not None:
        whole("memory", memory, low=1)
    flat = draws.detach().flatten(2) if draws.ndim > 2 else draws.detach()[..., None]
    found = torch.empty(flat.shape[2], dtype=torch.float64, device=draws.device)
    room = 8 * _COPIES * flat.shape[0] * flat.shape[1]
    for here in portions(flat.shape[2], each=room, memory=memory or _PORTION):
        x = floats("draws", flat[..., here]).permute(2, 0, 1).to(torch.float64).contiguous()
        _warn_of_stuck(x, here.start)
        found[here] = each(x)
    return found.view(draws.shape[2:])


def _warn_of_stuck(x: Tensor, first: int) -> None:
    stuck = (x == x[..., :1]).all(2)
    if stuck.any():
        parameter, chain = (int(i) for i in stuck.nonzero()[0])
        warn_unconverged(
            f"{int(stuck.sum())} of {stuck.numel()} chains of a parameter never move, the first is"
            f" chain {chain} of parameter {first + parameter}"
        )
