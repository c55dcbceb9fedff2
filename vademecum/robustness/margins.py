r"""A detector of inputs that lie close to a decision: their two largest logits hardly differ.

The margin of an input is the gap $g(x) = z_{(1)} - z_{(2)}$ of its two largest logits. An attack
that looks for the shortest perturbation ends just behind the boundary, where $g$ is small, so that
inputs with $g(x) < \tau$ are suspicious. The threshold is the $k$-th smallest of $n$ margins of
clean examples,

$$\tau = g_{(k)}, \qquad k = \lfloor \alpha (n + 1) \rfloor,$$

and a new clean example, exchangeable with them, falls below it with a probability of at most
$k / (n + 1) \le \alpha$: among $n + 1$ margins its rank is uniform, and ties only help. That holds
for every $n$ and every law of the examples, on average over the $n$ that were used; for those at
hand the rate is a draw from the law Beta$(k, n + 1 - k)$ (at most, where margins are tied).

It says nothing of an attack that goes on past the boundary: that evades it. The claim is
`margin_detection`.
"""

from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.arguments import number
from vademecum.models import batches
from vademecum.results import one_line
from vademecum.robustness._logits import as_classifier, finite
from vademecum.robustness._rows import in_portions

__all__ = ["MarginDetector", "margin_detector"]

_SURE = 0.99  # the confidence of `worst`


class MarginDetector(NamedTuple):
    """A threshold on margins, and the model whose margins they are: call it with inputs.

    Example:
        >>> model = nn.Identity()
        >>> detector = MarginDetector(0.5, 0.1, 0.2, 19, model)
        >>> detector(torch.tensor([[1.0, 0.9], [1.0, 0.0]]))
        tensor([ True, False])
    """

    threshold: float
    """The margin below which an input is flagged."""
    rate: float
    """The largest probability with which a new clean example is flagged, over clean examples and
    those of the calibration."""
    worst: float
    """With probability 0.99 over the calibration, the rate at this threshold is at most this."""
    n: int
    """How many examples it was calibrated with."""
    model: nn.Module
    """The model, which is asked in evaluation mode and never changed."""
    preprocess: Callable[[Tensor], Tensor] | None = None
    """What stands between inputs and the model."""

    __repr__ = one_line

    def margins(
        self, x: Float[Tensor, " n *shape"], *, memory: int | None = None
    ) -> Float[Tensor, " n"]:
        """The gaps between the two largest logits.

        Args:
            x: The inputs.
            memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        """
        return _margins(self.model, x, self.preprocess, memory)

    def __call__(
        self, x: Float[Tensor, " n *shape"], *, memory: int | None = None
    ) -> Bool[Tensor, " n"]:
        """Which inputs are suspicious.

        Args:
            x: The inputs.
            memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        """
        return self.margins(x, memory=memory).double() < self.threshold


def margin_detector(
    model: nn.Module,
    x: Float[Tensor, " n *shape"] | DataLoader[Any],
    *,
    alpha: float = 0.05,
    preprocess: Callable[[Tensor], Tensor] | None = None,
    memory: int | None = None,
    progress: bool = False,
) -> MarginDetector:
    r"""A detector of inputs with unusually small margins, which seldom flags clean ones.

    The model is taken in evaluation mode and never changed.

    Args:
        model: Any module that gives logits.
        x: Clean examples that the model was not trained on, at least $1 / \alpha - 1$ of them; or a
            `DataLoader` of such, whose targets are left aside.
        alpha: How often a new clean example may be flagged, in (0, 1).
        preprocess: What stands between `x` and the model, such as a normalisation.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.

    Returns:
        The detector, a `MarginDetector`: `detector(x)` says of each input whether it is flagged.

    Raises:
        ValueError: If there are too few examples for `alpha`.

    References:
        Vovk, Gammerman and Shafer, Algorithmic learning in a random world, Springer, 2005.

    Example:
        >>> x = torch.arange(1.0, 20.0)[:, None] * torch.tensor([[1.0, 0.0]])
        >>> detector = margin_detector(nn.Identity(), x, alpha=0.1)
        >>> detector.threshold, detector.rate, detector(x).sum().item()
        (2.0, 0.1, 1)
    """
    from scipy.special import betaincinv

    alpha = float(number("alpha", alpha, above=0, below=1))
    device = next((p.device for p in model.parameters()), None)
    with closing(batches(x, device=device, progress=progress)) as each:
        found = [_margins(model, inputs, preprocess, memory) for inputs, _ in each]
    if not found:
        raise ValueError("x must hold batches, got an empty DataLoader")
    margins = torch.cat(found).double()
    n = len(margins)
    k = int(alpha * (n + 1) * (1 + 2**-50))  # 0.1 * 30 is 3, which rounding must not lose
    if k == 0:
        least = -int(-1 / alpha // 1) - 1
        raise ValueError(f"x must have >= {least} examples for alpha = {alpha:g}, got {n}")
    threshold = float(margins.kthvalue(k).values)
    worst = float(betaincinv(k, n + 1 - k, _SURE))
    return MarginDetector(threshold, k / (n + 1), worst, n, model, preprocess)


def _margins(model: nn.Module, x: Any, preprocess: Any, memory: int | None) -> Tensor:
    with as_classifier(model, x, None, preprocess) as logits:
        top = in_portions(lambda z: finite(logits(z), "x").topk(2).values, x, memory=memory)
    return top[:, 0] - top[:, 1]
