r"""What the players of a game pay, from the discriminator's logits $a = \operatorname{logit} D$.

With $\zeta(a) = \log(1 + e^a)$ (softplus), $-\log D = \zeta(-a)$ and $-\log(1 - D) = \zeta(a)$, so
nothing overflows however sure the discriminator is. torch's `softplus` is linear from 20 on, where
slopes are off by 2e-9; its `logsigmoid`, $-\zeta(-a)$, is exact.

| objective | discriminator | generator |
|---|---|---|
| saturating | $\mathbb E_p \zeta(-a) + \mathbb E_q \zeta(a)$ | $-\mathbb E_q \zeta(a)$ |
| non-saturating | the same | $\mathbb E_q \zeta(-a)$ |
| wasserstein | $\mathbb E_q a - \mathbb E_p a$ | $-\mathbb E_q a$ |

The discriminator's loss of the first two is minus the value $V$ of the game, a sum of two means.
"""

from typing import Literal

from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = ["Objective", "generated_term", "generator_term", "real_term"]

Objective = Literal["saturating", "non-saturating", "wasserstein"]


def real_term(objective: Objective, logits: Tensor) -> Tensor:
    """What the discriminator pays for real examples.

    Example:
        >>> real_term("saturating", torch.tensor([-1000.0]))
        tensor(1000.)
    """
    return (-logits if objective == "wasserstein" else -logsigmoid(logits)).mean()


def generated_term(objective: Objective, logits: Tensor) -> Tensor:
    """What the discriminator pays for generated examples."""
    return (logits if objective == "wasserstein" else -logsigmoid(-logits)).mean()


def generator_term(objective: Objective, logits: Tensor) -> Tensor:
    """What the generator pays."""
    if objective == "non-saturating":
        return -logsigmoid(logits).mean()
    return -generated_term(objective, logits)
