r"""The discriminator that no other beats: the posterior probability of "real" under equal priors.

$$D^*(x) = \frac{p(x)}{p(x) + q(x)} = \sigma\big(\log p(x) - \log q(x)\big)$$

for data with density $p$ and generated examples with density $q$. Where both vanish every value is
as good, and $\frac12$ is given. Exact up to rounding, also where densities are far too large or too
small for a number, if their logarithms are given. Checked by the claims
`generative.optimal_discriminator` and `generative.gan_jensen_shannon`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import broadcasting

__all__ = ["optimal_discriminator"]


def optimal_discriminator(
    p: Float[Tensor, " ..."], q: Float[Tensor, " ..."], *, log: bool = False
) -> Float[Tensor, " ..."]:
    r"""The probability that an example is real, given the densities of data and of a generator.

    Args:
        p: The density of the data at some points, or the probabilities of outcomes; at least 0.
        q: The density of generated examples at the same points; shapes broadcast.
        log: Whether `p` and `q` are logarithms of densities, as `log_prob` gives them; then
            $-\infty$ is a density of 0.

    Returns:
        $p / (p + q)$, between 0 and 1, and 1/2 where both are 0; differentiable, but not where one
        of them is 0.

    Raises:
        ValueError: If a density is negative, NaN or infinite, or the two differ in dtype or device.

    References:
        Goodfellow et al., Generative adversarial nets, NeurIPS, 2014.

    Example:
        >>> optimal_discriminator(torch.tensor([0.6, 0.0, 0.0]), torch.tensor([0.2, 0.5, 0.0]))
        tensor([0.7500, 0.0000, 0.5000])
        >>> optimal_discriminator(torch.tensor(-2000.0), torch.tensor(-2000.0), log=True)
        tensor(0.5000)
    """
    for name, density in (("p", p), ("q", q)):
        _insist_on_density(name, density, log=log)
    if (p.dtype, p.device) != (q.dtype, q.device):
        raise ValueError(f"q must be {p.dtype} on {p.device} like p, got {q.dtype} on {q.device}")
    broadcasting("shapes", {"p": p.shape, "q": q.shape})
    p, q = torch.broadcast_tensors(p, q)
    if log:
        nowhere = (p == q) & p.isinf()
        return torch.sigmoid(torch.where(nowhere, 0, p) - torch.where(nowhere, 0, q))
    nowhere = (p == 0) & (q == 0)
    likely = p >= q
    small, large = torch.where(likely, q, p), torch.where(likely, p, q)
    ratio = small / torch.where(nowhere, 1, large)  # at most 1: neither it nor a sum overflows
    return torch.where(nowhere, 0.5, torch.where(likely, 1, ratio) / (1 + ratio))


def _insist_on_density(name: str, density: Tensor, *, log: bool) -> None:
    if not isinstance(density, Tensor) or not density.is_floating_point():
        given = density.dtype if isinstance(density, Tensor) else type(density).__name__
        raise ValueError(f"{name} must be a tensor of floating-point numbers, got {given}")
    low = density == -torch.inf if log else density.new_zeros((), dtype=torch.bool)
    good = density.isfinite() | low
    if not log:
        good = good & (density >= 0)
    if not good.all():
        bad = density[~good][0].item()
        must = "logarithms of densities below infinity" if log else "finite and >= 0"
        raise ValueError(f"{name} must be {must}, got {bad}")
