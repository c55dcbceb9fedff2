r"""The Gibbs measure: the law that attains Donsker and Varadhan's change of measure.

For a law $P$ on a finite set and numbers $Z$, $Q_x \propto P_x\, e^{Z_x}$. Among all laws it has
the largest $\mathbb E_Q[Z] - \mathrm{KL}(Q \| P) = \ln \mathbb E_P[e^Z]$; any other falls short by
$\mathrm{KL}(Q \| Q_{\mathrm{Gibbs}})$. With $Z = -\lambda\, \hat r$ it is the posterior that
minimises the mean risk plus $\mathrm{KL} / \lambda$, the trade that PAC-Bayes bounds make.

Exact up to rounding, by a softmax. The claim is `donsker_varadhan`.
"""

from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, probabilities

__all__ = ["gibbs_measure"]


def gibbs_measure(p: Float[Tensor, " *batch k"], z: Float[Tensor, " *batch k"]) -> Tensor:
    r"""The law $Q \propto P\, e^Z$ along the last axis.

    Args:
        p: The law $P$, the prior.
        z: The numbers $Z$, finite; for a posterior minus the risks times an inverse temperature.

    Raises:
        ValueError: If `p` is no law, `z` is not finite, or their shapes differ.

    Example:
        >>> p = torch.tensor([0.5, 0.25, 0.25])
        >>> gibbs_measure(p, torch.tensor([1.0, 2.0, 4.0]).log())  # proportional to 2, 2, 4
        tensor([0.2500, 0.2500, 0.5000])
    """
    p, z = probabilities("p", p), floats("z", z)
    if p.shape != z.shape or p.dtype != z.dtype:
        raise ValueError(
            f"z must have the shape and dtype of p, {tuple(p.shape)} and {p.dtype},"
            f" got {tuple(z.shape)} and {z.dtype}"
        )
    return (p.log() + z).softmax(-1)
