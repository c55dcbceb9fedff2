"""What a PAC-Bayes certificate holds, and a drawing of it."""

from typing import TYPE_CHECKING, Any, NamedTuple

from jaxtyping import Int
from torch import Tensor

from vademecum.generalization.random_weights.weight_gaussians import StochasticNetwork
from vademecum.results import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PacBayesCertificate", "RiskBounds", "draw_certificate"]


class RiskBounds(NamedTuple):
    """The risk of a posterior for one loss in [0, 1], and upper bounds of it on new examples.

    Each bound holds with probability at least `1 - delta - delta_mc` of its certificate.

    Example:
        >>> RiskBounds(0.1, 0.11, 0.13, 0.14, 0.15, 0.135)
        RiskBounds(risk=0.1, risk_upper=0.11, kl=0.13, quadratic=0.14, mcallester=0.15, catoni=0.135)
    """  # noqa: E501

    risk: float
    """The mean loss on the examples of the bound, over the draws that were made."""
    risk_upper: float
    """An upper bound of the mean over all draws, with confidence `1 - delta_mc`."""
    kl: float
    """The bound by the inverted divergence of two coins, which is the tightest but for Catoni's."""
    quadratic: float
    """The quadratic bound."""
    mcallester: float
    """McAllester's bound."""
    catoni: float
    """Catoni's bound, the best of a grid, with its union bound."""

    __repr__ = one_line


class PacBayesCertificate(NamedTuple):
    """Upper bounds of the risk of a stochastic network on new examples, and all they rest on.

    Example:
        >>> from vademecum.generalization import pac_bayes_certificate
        >>> x, y = torch.eye(4).repeat(10, 1), torch.tensor([0, 1, 0, 1]).repeat(10)
        >>> network = StochasticNetwork(torch.nn.Linear(4, 2), prior="init")
        >>> found = pac_bayes_certificate(network, x, y, passes=5)
        >>> len(found.bound_index), found.draws, round(found.kl, 9), found.prior_std
        (40, 200.0, 0.0, 0.1)
    """

    zero_one: RiskBounds
    """Of the share of examples that are classified wrongly."""
    cross_entropy: RiskBounds
    """Of the cross-entropy, cut at `ln(1 / p_min)` and divided by that."""
    kl: float
    """The divergence of the posterior from the prior, in nats."""
    delta: float
    """The probability over examples with which a bound may fail; it is shared by all scales."""
    delta_mc: float
    """The probability over draws of weights with which `risk_upper` may fail."""
    prior_std: float
    """The standard deviation of the prior, which was chosen from the grid after seeing the data."""
    prior_scales: tuple[float, ...]
    """The grid, which was there before: each scale has the same share of `delta`."""
    draws: float
    """The number of independent draws that Chernoff's bound for `risk_upper` counts."""
    prior_index: Int[Tensor, " n_prior"]
    """The examples that the prior has seen."""
    bound_index: Int[Tensor, " n_bound"]
    """The examples of the bound, none of which the prior has seen."""
    network: StochasticNetwork
    """The network that is certified: with weights that are drawn anew for each answer."""
    assumptions: tuple[str, ...]
    """What must be true for the bounds to hold, a sentence each."""

    __repr__ = one_line


def draw_certificate(result: PacBayesCertificate, axes: Any = None) -> "Figure":
    """Draw what was measured, what draws of weights add, and the four bounds, for both losses.

    Args:
        result: What `pac_bayes_certificate` gave.
        axes: Where to draw, in a figure of its own by default.

    Example:
        >>> risks = RiskBounds(0.1, 0.11, 0.13, 0.14, 0.15, 0.135)
        >>> index = torch.arange(4)
        >>> net = StochasticNetwork(torch.nn.Linear(1, 2), prior="init")
        >>> found = PacBayesCertificate(
        ...     risks, risks, 3.0, 0.025, 0.01, 0.1, (0.1,), 100.0, index[:2], index[2:], net, ()
        ... )
        >>> len(draw_certificate(found).axes)
        1
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(6.4, 3.6), layout="constrained").add_subplot()
    kinds = ("kl", "quadratic", "mcallester", "catoni")
    for i, (name, risks) in enumerate((("0-1", result.zero_one),
                                       ("cross-entropy", result.cross_entropy))):  # fmt: skip
        places = [k + 0.4 * i - 0.2 for k in range(len(kinds))]
        tops = [min(1.0, getattr(risks, kind)) for kind in kinds]
        rest = [max(0.0, top - risks.risk_upper) for top in tops]
        drawn = risks.risk_upper - risks.risk
        axes.bar(places, risks.risk, 0.36, color=f"C{i}", label=f"{name} risk measured")
        axes.bar(places, drawn, 0.36, risks.risk, color="0.35", label="draws of weights" * (1 - i))
        axes.bar(places, rest, 0.36, risks.risk_upper, color=f"C{i}", alpha=0.35,
                 label="bound" * (1 - i))  # fmt: skip
        for place, top in zip(places, tops, strict=True):
            axes.annotate(f"{top:.3f}", (place, top), ha="center", va="bottom", fontsize="x-small")
    axes.set(xticks=range(len(kinds)), xticklabels=["inverted kl", "quadratic", "McAllester",
             "Catoni"], ylabel="risk", ylim=(0, None))  # fmt: skip
    handles, labels = axes.get_legend_handles_labels()
    kept = [(h, text) for h, text in zip(handles, labels, strict=True) if text]
    axes.legend(*zip(*kept, strict=True), fontsize="small")
    n, confidence = len(result.bound_index), 1 - result.delta - result.delta_mc
    axes.set_title(f"{n} examples, KL {result.kl:.3g} nats, confidence {confidence:.3g}",
                   fontsize="medium")  # fmt: skip
    return axes.figure
