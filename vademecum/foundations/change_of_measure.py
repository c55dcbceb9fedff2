r"""Donsker and Varadhan's change of measure: a divergence from below, by any function.

For laws $Q \ll P$ and every $\phi$ with $\mathbb E_P[e^\phi] < \infty$,

$$\mathbb E_Q[\phi] - \log \mathbb E_P[e^\phi] \le \mathrm{KL}(Q \| P),$$

with equality for $\phi = \log \frac{dQ}{dP} + c$. In words: a function whose mean under $Q$ is far
above what its exponential moment under $P$ allows proves that $Q$ is far from $P$. The divergence
is the supremum over $\phi$; with a network as $\phi$ and samples it is the estimate of MINE.

Exact for laws given by weights. From samples the first mean is unbiased, while the logarithm of the
second is too small on average (Jensen), so that the estimate is too large.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, probabilities
from vademecum.foundations.norms import vectors

__all__ = ["donsker_varadhan_bound"]


def donsker_varadhan_bound(
    phi_q: Float[Tensor, " n"],
    phi_p: Float[Tensor, " m"],
    *,
    q: Float[Tensor, " n"] | None = None,
    p: Float[Tensor, " m"] | None = None,
) -> Float[Tensor, ""]:
    r"""The lower bound $\mathbb E_Q[\phi] - \log \mathbb E_P[e^\phi]$ of $\mathrm{KL}(Q \| P)$.

    Args:
        phi_q: Values of $\phi$ at draws from $Q$, or at its outcomes if `q` is given.
        phi_p: Values of $\phi$ at draws from $P$, or at its outcomes if `p` is given.
        q: The probabilities of the outcomes under $Q$; equal weights for draws.
        p: The probabilities of the outcomes under $P$; equal weights for draws.

    Returns:
        The bound in nats, differentiable in the values of $\phi$.

    Raises:
        ValueError: If values are not finite, or `q` or `p` are no laws on them.

    References:
        Donsker and Varadhan, Asymptotic evaluation of certain Markov process expectations for large
        time, Communications on Pure and Applied Mathematics, 1975.
        Belghazi et al., Mutual information neural estimation, ICML, 2018.

    Example:
        >>> q, p = torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75])
        >>> phi = (q / p).log()
        >>> donsker_varadhan_bound(phi, phi, q=q, p=p)  # KL(q || p) itself
        tensor(0.1438)
    """
    q, p = _weights("q", q, phi_q), _weights("p", p, phi_p)
    return (q * phi_q).sum() - torch.logsumexp(phi_p + p.log(), 0)


def _weights(name: str, weights: Tensor | None, phi: Tensor) -> Tensor:
    vectors(f"phi_{name}", floats(f"phi_{name}", phi, ndim=1))
    if weights is None:
        return torch.full_like(phi, 1 / len(phi), requires_grad=False)
    if probabilities(name, weights).shape != phi.shape:
        raise ValueError(
            f"{name} must have the shape of phi_{name}, {tuple(phi.shape)},"
            f" got {tuple(weights.shape)}"
        )
    return weights
