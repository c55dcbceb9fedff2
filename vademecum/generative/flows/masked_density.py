r"""MADE: a density as a product of conditionals, all from one masked network.

$$p(x \mid c) = \prod_{k} p\big(x_{o_k} \mid x_{o_1}, \dots, x_{o_{k-1}}, c\big)$$

in an order $o$ of the coordinates. The network gives the numbers of every conditional in one pass:
a logit (binary), $K$ logits (categorical), or a mean and the logarithm of a standard deviation
(Gaussian). It is normalised by construction; sampling goes coordinate by coordinate, each unit of
the network being computed once. Exact; checked by the claim
`generative.autoregressive_factorisation`.

References:
    Germain, Gregor, Murray and Larochelle, MADE: masked autoencoder for distribution estimation,
    ICML 2015.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import bits, choice, whole
from vademecum.generative.flows._density import matching_context
from vademecum.generative.flows._masked_network import MaskedNetwork, Unrolled
from vademecum.generative.flows.affine_couplings import squashed
from vademecum.randomness import categorical, source

__all__ = ["MADE"]

_LIMIT = math.log(1000)  # of the logarithms of standard deviations


class MADE(nn.Module):
    """An autoregressive density over vectors of binary, categorical or real coordinates.

    Args:
        d: How many coordinates there are.
        kind: What a coordinate is: "binary", 0 or 1; "categorical", one of the classes 0, 1, ...;
            or "gaussian", real and normal given those before it.
        classes: How many classes there are, for categorical coordinates.
        hidden: The widths of the network's hidden layers.
        context: How wide the context is, 0 for none.
        order: Which coordinate comes first, second, ...; ascending by default.
        activation: What makes an activation that acts entry by entry; rectifiers by default.

    Example:
        >>> density = MADE(2, hidden=(8,))
        >>> x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> torch.allclose(density.log_prob(x).exp().sum(), torch.tensor(1.0))
        True
    """

    def __init__(
        self,
        d: int,
        *,
        kind: Literal["binary", "categorical", "gaussian"] = "binary",
        classes: int | None = None,
        hidden: Sequence[int] = (128, 128),
        context: int = 0,
        order: Sequence[int] | None = None,
        activation: Callable[[], nn.Module] | None = None,
    ):
        super().__init__()
        self.d, self.context = whole("d", d, low=1), whole("context", context, low=0)
        self.kind = choice("kind", kind, ("binary", "categorical", "gaussian"))
        if (kind == "categorical") != (classes is not None):
            raise ValueError(
                "classes must be given for categorical coordinates, and only for those, got"
                f" {classes} for kind={kind!r}"
            )
        self.classes = 2 if classes is None else whole("classes", classes, low=2)
        self.numbers = {"binary": 1, "gaussian": 2, "categorical": self.classes}[kind]
        made: dict[str, Any] = {"hidden": hidden, "order": order, "activation": activation}
        inputs = self.classes if kind == "categorical" else 1  # as indicators
        self.network = MaskedNetwork(d, self.numbers, context=context, inputs=inputs, **made)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """The numbers of every conditional, (n, numbers, d).

        Args:
            x: Data, (n, d); classes may be integers.
            context: What to condition on, (n, context), or (context,) for all rows.
        """
        x, context = self._given(x, context)
        return self.network(self._seen(x), context)

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """The logarithm of the probability, or of the density, of each row of x.

        Args:
            x: Data, (n, d); classes may be integers.
            context: What to condition on, (n, context), or (context,) for all rows.
        """
        x, context = self._given(x, context)
        numbers = self.network(self._seen(x), context)
        if self.kind == "binary":
            return -F.binary_cross_entropy_with_logits(numbers[:, 0], x, reduction="none").sum(1)
        if self.kind == "categorical":
            return -F.cross_entropy(numbers, x, reduction="none").sum(1)
        log_std = squashed(numbers[:, 1], _LIMIT)
        z = (x - numbers[:, 0]) * torch.exp(-log_std)
        return (-0.5 * (z.square() + math.log(2 * math.pi)) - log_std).sum(1)

    @torch.no_grad()
    def sample(
        self, n: int, context: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw n rows, coordinate by coordinate; classes are integers.

        Args:
            n: How many.
            context: What to condition on, (n, context), or (context,) for all rows.
            generator: Where random numbers come from; torch's global generator by default.
        """
        here = next(self.parameters())
        draw, dtype = (
            (torch.randn, here.dtype) if self.kind == "gaussian" else (torch.rand, _fine(here))
        )
        noise = draw(whole("n", n, low=1), self.d, dtype=dtype, **source(generator, here.device))
        noise = noise.to(here.device)
        context = matching_context(context, self.context, here.new_empty(n, 0))
        net = Unrolled(self.network, n, context, buffers=True)
        found: list[Tensor] = [noise] * self.d
        for k, i in enumerate(self.network.order):
            found[i] = self._drawn(net.numbers_at(k), noise[:, i])
            net.learn(self._seen(found[i][:, None]).T)
        return torch.stack(found, 1)

    def extra_repr(self) -> str:
        """The sizes and the kind."""
        classes = f", classes={self.classes}" if self.kind == "categorical" else ""
        return f"d={self.d}, kind={self.kind!r}{classes}"

    def _given(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Refuse what does not fit; data as the law needs them, context for each row."""
        here = next(self.parameters())
        if x.ndim != 2 or x.shape[1] != self.d:
            raise ValueError(f"x must have shape (n, {self.d}), got {tuple(x.shape)}")
        if x.device != here.device:
            raise ValueError(f"x must be on {here.device} like the parameters, got {x.device}")
        if self.kind == "binary":
            x = bits("x", x).to(here.dtype)
        elif self.kind == "categorical":
            x = _classes(x, self.classes)
        elif x.dtype != here.dtype:
            raise ValueError(f"x must be {here.dtype} like the parameters, got {x.dtype}")
        return x, matching_context(context, self.context, here.new_empty(len(x), 0))

    def _seen(self, x: Tensor) -> Tensor:
        """What the network sees of data: an indicator of each class, or the numbers."""
        dtype = next(self.parameters()).dtype
        if self.kind != "categorical":
            return x.to(dtype)
        classes = torch.arange(self.classes, device=x.device)
        return (x[:, :, None] == classes).to(dtype).flatten(1)

    def _drawn(self, numbers: Tensor, noise: Tensor) -> Tensor:
        if self.kind == "binary":
            return (noise < numbers[0].to(noise).sigmoid()).to(numbers)
        if self.kind == "categorical":
            return categorical(numbers.T, noise)
        return numbers[0] + noise * squashed(numbers[1], _LIMIT).exp()


def _fine(here: Tensor) -> torch.dtype:
    """In which precision probabilities meet random numbers: at least single."""
    return torch.promote_types(here.dtype, torch.float32)


def _classes(x: Tensor, count: int) -> Tensor:
    """Classes as integers, which every dtype can count."""
    found = x.long()  # compared before, small integers could not reach the count
    good = (found >= 0) & (found < count) & (x == found)
    if not good.all():
        place = tuple(int(i) for i in (~good).nonzero()[0])
        raise ValueError(
            f"entries of x must be classes 0, ..., {count - 1}, got {x[place].item()} at {place}"
        )
    return found
