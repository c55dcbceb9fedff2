r"""Contrastive predictive coding: what comes next, told from what comes elsewhere.

An encoder gives latents $z_t$, a causal network contexts $c_t = g(z_1, \dots, z_t)$, and linear
maps predict $W_r c_t \approx z_{t + r}$ for $r = 1, \dots, R$. The loss is the mean over $r$ of

$$\ell_r = -\frac1N \sum_{k, t} \log
\frac{\exp(z_{k, t + r}^\top W_r c_{k, t})}
{\sum_{k', t'} \exp(z_{k', t' + r}^\top W_r c_{k, t})} ,$$

InfoNCE over all $N = n (T - r)$ pairs of sequence and time: the negatives are other times and other
sequences of the batch. $\log N - \ell_r$ estimates from below what the past tells of the future,
were negatives independent.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.regularization.contrast.tiled_softmax import info_nce_loss
from vademecum.results import one_line

__all__ = ["ContrastivePredictiveCoding", "PredictiveCoding"]


class PredictiveCoding(NamedTuple):
    """How well futures were recognised, and what they were recognised by.

    Example:
        >>> net = ContrastivePredictiveCoding(nn.Identity(), nn.Identity(), 2, ahead=1)
        >>> net(torch.zeros(3, 5, 2)).losses  # nothing to tell 12 futures by: log 12
        tensor([2.4849], grad_fn=<StackBackward0>)
    """

    loss: Float[Tensor, ""]
    """The mean of the losses, to be minimised."""
    losses: Float[Tensor, " ahead"]
    """That of each distance, from the next latent to the furthest one."""
    information: Float[Tensor, " ahead"]
    """What contexts tell of latents at that distance: log N - loss, in nats."""
    latents: Float[Tensor, " n T latent"]
    """What the encoder made of the sequences."""
    contexts: Float[Tensor, " n T context"]
    """What the causal network made of the latents so far."""

    __repr__ = one_line


class ContrastivePredictiveCoding(nn.Module):
    """Train an encoder of sequences by predicting its own future latents.

    Args:
        encoder: Gives latents (n, T, latent) for the sequences, whatever their shape.
        context: Gives contexts (n, T, context) for latents, each from those so far, as a
            recurrent layer with `batch_first`; of a tuple the first entry counts.
        latent: How many features a latent has.
        width: How many features a context has; as many as a latent by default.
        ahead: How many steps ahead it predicts.
        temperature: By what scores are divided.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.

    Raises:
        ValueError: If a size is not positive, or sequences are not longer than `ahead`.

    References:
        van den Oord, Li and Vinyals, Representation learning with contrastive predictive coding,
        arXiv, 2018.

    Example:
        >>> encoder, context = nn.Linear(6, 4), nn.GRU(4, 5, batch_first=True)
        >>> net = ContrastivePredictiveCoding(encoder, context, 4, width=5, ahead=3)
        >>> net(torch.randn(2, 10, 6)).losses.shape
        torch.Size([3])
    """

    def __init__(
        self,
        encoder: nn.Module,
        context: nn.Module,
        latent: int,
        *,
        width: int | None = None,
        ahead: int = 4,
        temperature: float = 1.0,
        memory: int | None = None,
    ):
        super().__init__()
        self.latent = whole("latent", latent, low=1)
        self.width = self.latent if width is None else whole("width", width, low=1)
        self.ahead = whole("ahead", ahead, low=1)
        self.temperature = number("temperature", temperature, above=0)
        self.memory = None if memory is None else whole("memory", memory, low=1)
        self.encoder, self.context = encoder, context
        maps = (nn.Linear(self.width, self.latent, bias=False) for _ in range(self.ahead))
        self.predictions = nn.ModuleList(maps)

    def extra_repr(self) -> str:
        """What is printed beside the parts."""
        return f"ahead={self.ahead}, temperature={self.temperature}"

    def forward(self, x: Tensor) -> PredictiveCoding:
        """The losses of a batch of sequences, and what they were computed from."""
        z = self._features("encoder", self.encoder(x), self.latent)
        given = self.context(z)
        c = self._features("context", given[0] if isinstance(given, tuple) else given, self.width)
        n, T = z.shape[:2]
        if self.ahead >= T or c.shape[:2] != z.shape[:2]:
            raise ValueError(
                f"latents and contexts must be equally many and long, and longer than"
                f" ahead = {self.ahead},"
                f" got {tuple(z.shape[:2])} and {tuple(c.shape[:2])}"
            )
        losses, bounds = [], []
        for r, predict in enumerate(self.predictions, 1):
            query, key = predict(c[:, :-r]).flatten(0, 1), z[:, r:].flatten(0, 1)
            wide = torch.promote_types(query.dtype, key.dtype)  # autocast may narrow one of them
            query, key = query.to(wide), key.to(wide)
            loss = info_nce_loss(query, key, temperature=self.temperature, memory=self.memory)
            losses.append(loss)
            bounds.append(math.log(n * (T - r)) - loss.detach())
        return PredictiveCoding(torch.stack(losses).mean(), torch.stack(losses),
                                torch.stack(bounds), z, c)  # fmt: skip

    def _features(self, name: str, y: Tensor, width: int) -> Tensor:
        if not isinstance(y, Tensor) or y.ndim != 3 or y.shape[2] != width:
            given = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise ValueError(f"{name} must give (n, T, {width}), got {given}")
        return y
