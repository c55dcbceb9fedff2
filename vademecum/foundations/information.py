r"""Mutual information: what one of two variables tells about the other.

$$I(X; Y) = \mathrm{KL}(p_{XY} \| p_X \otimes p_Y) = \sum_x p_x \, \mathrm{KL}(p_{Y | x} \| p_Y)
= H(X) + H(Y) - H(X, Y),$$

at least 0 and zero only for independent variables, at most the smaller of $H(X)$ and $H(Y)$.

The middle form is the one computed: its terms do not cancel, so that nearly independent variables
keep their accuracy, and no product of two small marginals can underflow.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, probabilities
from vademecum.foundations._finite_laws import nats
from vademecum.foundations._relative_entropy import relative_entropy

__all__ = ["mutual_information"]


def mutual_information(
    joint: Float[Tensor, " *batch x y"], *, base: float = math.e
) -> Float[Tensor, " *batch"]:
    r"""The mutual information $I(X; Y)$ of two variables with the joint law $p_{xy}$.

    Args:
        joint: Joint laws: the probabilities of the pairs in the last two axes sum to one.
        base: The base of the logarithm: $e$ for nats, 2 for bits.

    Returns:
        The mutual information of each joint law.

    Raises:
        ValueError: If `joint` is not a batch of joint laws.

    References:
        Cover and Thomas, Elements of Information Theory, Wiley, 2006.

    Example:
        >>> same, independent = torch.eye(2) / 2, torch.full((2, 2), 0.25)
        >>> mutual_information(torch.stack([same, independent]), base=2)
        tensor([1., 0.])
    """
    if floats("joint", joint).ndim < 2:
        raise ValueError(f"joint must have two axes or more, got shape {tuple(joint.shape)}")
    probabilities("joint", joint.flatten(-2))
    p_x, p_y = joint.sum(-1, keepdim=True), joint.sum(-2, keepdim=True)
    given_x = joint / torch.where(p_x > 0, p_x, 1)
    return (p_x * relative_entropy(given_x, p_y)).sum((-2, -1)) / nats(base)
